// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// runTask does the run of the task, unless it was removed, replaced or moved in the last moment.
func (k *keeper) runTask(l *live) {
	if !l.state.CompareAndSwap(waits, begun) {
		return
	}
	h := k.handlings.begin(l)
	defer k.handlings.end(h)
	kind := k.kinds.of(l.Rec)
	if kind == nil {
		k.leave(l, false)
		return
	}
	rec := l.Rec
	if rec.Starts > 0 {
		if rec = rec.Interrupted(rec.Starts, &kind.policy, k.now()); rec.Due == task.Never {
			kind.parked.Add(1)
			k.conclude(l, rec, tally{parked: 1})
			return
		}
	}
	if l.overdue {
		if next := k.skip(rec, kind); next != rec { // it has waited for long, or was restored
			k.conclude(l, next, tally{})
			return
		}
		if k.counted.Add(1) <= int64(countedStarts+k.cfg.poolSize) && !k.countStart(l) {
			return
		}
	}
	if !k.running.add(l) {
		return // a verb was made durable with that
	}
	kind.began(l)
	began := time.Now()
	k.count.start(l.Rec, k.cfg.age(began))
	if rec.Due <= began.UnixNano()-int64(overdueAfter) {
		kind.overdue.note(l.Rec, began)
	}
	kind.attempt(h.context(k.ctx, began), began, kind.toRun(rec, 0, &h.ends), &k.cfg, func(o task.Outcome, ended time.Time) *task.Record {
		next := rec.After(o, &kind.policy, ended.UnixNano(), rand.Float64())
		k.conclude(l, next, attempted(o, next))
		return next
	})
}

// began takes a token for a run whose handler is about to be called, if its limiter has a rate.
func (k *kind) began(l *live) {
	if k.Limiter != nil {
		k.Limiter.Began(&l.Task)
	}
}

// attempt calls the handler, and then end with the outcome and the time. end returns what becomes of the task. It
// is called whatever the handler does, and before the observers and the logger, which may do as they like, too.
func (k *kind) attempt(ctx context.Context, began time.Time, run Run, cfg *config,
	end func(task.Outcome, time.Time) *task.Record,
) {
	whole := ctx
	if k.policy.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, k.policy.Timeout)
		defer cancel()
	}
	o := task.FailedFor("handler called runtime.Goexit") // unless it returns
	k.started.Add(1)
	defer func() {
		value := recover()
		ended := time.Now()
		took := ended.Sub(began)
		k.Took(took)
		if value != nil {
			o = task.FailedFor(explain(func() string { return fmt.Sprint("handler panicked: ", value) }))
		}
		if k.policy.Timeout > 0 && took >= k.policy.Timeout { // the context may have been done before, for another reason
			o = o.Late(k.policy.Timeout, took)
		}
		parked := k.note(o, end(o, ended))
		cancelled := o.Failure != "" && errors.Is(context.Cause(whole), ErrCancelled)
		if cancelled {
			k.cancelled.Add(1)
		}
		if len(cfg.observers) > 0 {
			a := Attempt{
				Token: run.Token, Kind: run.Kind, Attempt: run.Attempt, Due: time.Unix(0, run.rec.AttemptDue()),
				Started: began, Ended: ended, Failure: o.Failure, Note: o.Note, Parked: parked,
				Cancelled: cancelled,
			}
			for _, observe := range cfg.observers {
				observe(a)
			}
		}
		if o.Note != "" {
			cfg.log.WithField("task", run.Key).WithField("note", o.Note).Info("durable: a run is done")
		}
		if value != nil {
			cfg.log.WithField("task", run.Key).WithField("stack", string(debug.Stack())).
				Error("durable: " + o.Failure)
		}
	}()
	o = run.ends.judge(k.call(ctx, run))
}

// note counts an attempt, and reports whether the task is parked after it.
func (k *kind) note(o task.Outcome, next *task.Record) (parked bool) {
	if o.Failure == "" {
		k.succeeded.Add(1)
	} else {
		k.failed.Add(1)
	}
	if parked = next != nil && next.Due == task.Never; parked {
		k.parked.Add(1)
	}
	return parked
}

func (k *kind) toRun(r *task.Record, fence int64, ends *runEnd) Run {
	times := int(r.Times)
	if times != Forever {
		times--
	}
	return Run{
		Token:   Token(r.Token()),
		Kind:    r.Kind,
		Payload: r.Payload,
		Due:     time.Unix(0, r.Grid),
		Times:   times,
		Attempt: int(r.Attempts) + 1,
		Missed:  r.Missed,
		Trace:   r.Trace,
		Fence:   fence,
		rec:     r,
		of:      k,
		ends:    ends,
	}
}

// leave has the keeper set the task aside because its kind has no handler or is paused, or run it if that is over
// by then. It undoes the count of its start, if it was counted.
func (k *keeper) leave(l *live, counted bool) {
	_ = k.post(op{do: func(g *group) error {
		key := l.Rec.Key
		if k.live[key] != l || g.touched(key) != nil {
			return nil // it was removed, replaced or moved meanwhile
		}
		if counted {
			g.mark(l.Rec, l.Rec)
		}
		if k.kinds.of(l.Rec) != nil {
			k.place(key, l.Rec)
			return nil
		}
		delete(k.live, key)
		if k.passed(l.Rec) { // or the overdue feed will read it again
			k.setAside(l.Rec)
		}
		return nil
	}})
}

// countStart makes the start of an overdue run durable before the run begins, and reports whether it may still
// begin. An overdue run may be one that has ended the process before. What falls due now does not wait for
// this: if it ends the process, it is overdue afterwards.
//
// Only the first overdue runs of a process are counted, which bounds what it costs. When a run ends the
// process, what ran before it has been acknowledged, apart from what was running and the last commits. So
// after the next start that run is one of the first.
func (k *keeper) countStart(l *live) bool {
	err := k.ask(k.ctx, op{size: l.Rec.Size(), do: func(g *group) error {
		if k.live[l.Rec.Key] != l || g.touched(l.Rec.Key) != nil {
			return errGone
		}
		next := *l.Rec
		next.Starts++
		g.mark(l.Rec, &next)
		return nil
	}})
	if err == nil && k.kinds.of(l.Rec) == nil { // it has been paused meanwhile
		k.leave(l, true)
		return false
	}
	return err == nil
}

// countedStarts is more than the overdue runs that have begun and are not durable: half of the backlog, and what is
// added to that meanwhile.
const countedStarts = 1 << 13

// errGone says that the task was removed, replaced or moved meanwhile.
var errGone = errors.New("durable: the task is gone")

// conclude sends the keeper what has become of a task after its run. Nothing waits for it: until it is
// durable the task counts as running, and has no other run.
func (k *keeper) conclude(l *live, next *task.Record, t tally) {
	_ = k.post(op{size: l.Rec.Size(), do: func(g *group) error {
		if k.live[l.Rec.Key] != l || g.touched(l.Rec.Key) != nil {
			return nil // it was removed, replaced or moved meanwhile
		}
		g.tally.add(t)
		if t.parked > 0 {
			g.parked = append(g.parked, next)
		}
		g.put(l.Rec.Key, l.Rec, next)
		return nil
	}})
}
