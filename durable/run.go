// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/sirupsen/logrus"
)

// runTask does the run of the task, unless it was removed, replaced or moved in the last moment.
func (k *keeper) runTask(l *live) {
	if !l.state.CompareAndSwap(waits, begun) {
		return
	}
	kind := k.kinds.of(l.rec)
	if kind == nil {
		k.leave(l)
		return
	}
	rec := l.rec.interrupted(l.rec.starts, kind)
	if rec.due == never {
		k.conclude(l, rec, tally{parked: 1})
		return
	}
	if l.overdue && !k.countStart(l) {
		return
	}
	k.count.started.Add(1)
	kind.attempt(k.ctx, rec.toRun(kind, 0), k.cfg.log, func(o outcome) {
		next := rec.after(o, kind, k.now(), rand.Float64())
		k.conclude(l, next, attempted(o, next))
	})
}

// attempt calls the handler, and then end with the outcome. end is called whatever the handler does, and
// before the logger, which may do as it likes, too.
func (k *kind) attempt(ctx context.Context, run Run, log logrus.FieldLogger, end func(outcome)) {
	if k.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, k.timeout)
		defer cancel()
	}
	began := time.Now()
	o := failedFor("handler called runtime.Goexit") // unless it returns
	defer func() {
		value := recover()
		took := time.Since(began)
		k.took(took)
		if value != nil {
			o = failedFor(explain(func() string { return fmt.Sprint("handler panicked: ", value) }))
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) { // no other context of a run has a deadline
			o = o.late(k.timeout, took)
		}
		end(o)
		if value != nil {
			log.WithField("task", run.Key).WithField("stack", string(debug.Stack())).Error("durable: " + o.failure)
		}
	}()
	o = judge(k.call(ctx, run))
}

func (r *record) toRun(of *kind, fence int64) Run {
	times := int(r.times)
	if times != Forever {
		times--
	}
	return Run{
		Token:   Token{r.key, r.generation, r.seq},
		Kind:    r.kind,
		Payload: r.payload,
		Due:     time.Unix(0, r.grid),
		Times:   times,
		Attempt: int(r.attempts) + 1,
		Missed:  r.missed,
		Fence:   fence,
		rec:     r,
		of:      of,
	}
}

// leave has the keeper set the task aside because its kind has no handler, or run it if it has one by then.
func (k *keeper) leave(l *live) {
	_ = k.post(op{do: func(g *group) error {
		key := l.rec.key
		if k.live[key] != l || g.touched(key) != nil {
			return nil // it was removed, replaced or moved meanwhile
		}
		if k.kinds.of(l.rec) != nil {
			k.place(key, l.rec)
			return nil
		}
		delete(k.live, key)
		if k.passed(l.rec.position()) { // or the overdue feed will read it again
			k.setAside(l.rec)
		}
		return nil
	}})
}

// countStart makes the start of an overdue run durable before the run begins, and reports whether it may
// begin. An overdue run may be one that has ended the process before. What falls due now does not wait for
// this: if it ends the process, it is overdue afterwards.
func (k *keeper) countStart(l *live) bool {
	return k.ask(k.ctx, op{size: l.rec.size(), do: func(g *group) error {
		if k.live[l.rec.key] != l || g.touched(l.rec.key) != nil {
			return errGone
		}
		next := *l.rec
		next.starts++
		g.mark(l.rec, &next)
		return nil
	}}) == nil
}

// errGone says that the task was removed, replaced or moved meanwhile.
var errGone = errors.New("durable: the task is gone")

// conclude sends the keeper what has become of a task after its run. Nothing waits for it: until it is
// durable the task counts as running, and has no other run.
func (k *keeper) conclude(l *live, next *record, t tally) {
	_ = k.post(op{size: l.rec.size(), do: func(g *group) error {
		if k.live[l.rec.key] != l || g.touched(l.rec.key) != nil {
			return nil // it was removed, replaced or moved meanwhile
		}
		g.tally.add(t)
		if t.parked > 0 {
			g.parked = next
		}
		g.put(l.rec.key, l.rec, next)
		return nil
	}})
}
