// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// began takes a rate token for a run whose handler is about to be called, if the kind's limiter has a rate.
func (k *kind) began(l *live) {
	if k.Limiter != nil {
		k.Limiter.Began(&l.Task)
	}
}

// attempt calls the handler. It then calls after with the outcome and the engine's time, which returns the task as it is after the
// attempt, and end with the result. Both are called regardless of what the handler does, and before the observers and the
// logger, which may also panic.
func (k *kind) attempt(ctx context.Context, began time.Time, run Run, tell *teller,
	after func(o task.Outcome, now int64) *task.Record, end func(task.Outcome, result),
) {
	whole := ctx
	if k.policy.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, k.policy.Timeout)
		defer cancel()
	}
	o := task.FailedFor("handler called runtime.Goexit") // unless the handler returns
	k.started.Add(1)
	defer func() {
		value := recover()
		ended := time.Now()
		took := ended.Sub(began)
		k.Took(took)
		if value != nil {
			o = task.FailedFor(explain(func() string { return fmt.Sprint("handler panicked: ", value) }))
		}
		if k.policy.Timeout > 0 && took >= k.policy.Timeout { // the context may have ended earlier for another reason
			o = o.Late(k.policy.Timeout, took)
		}
		now := tell.now()
		r := result{next: after(o, now)}
		if r.next != nil {
			final := o
			r.asof, r.again = now, func(now int64) *task.Record { return after(final, now) }
		}
		r.tally = attempted(o, run.rec, r.next)
		ahead := time.Duration(now - ended.UnixNano()) // of the process's clock
		cancelled := o.Failure != "" && errors.Is(context.Cause(whole), ErrCancelled)
		a := Attempt{
			Token: run.Token, Kind: run.Kind, Attempt: run.Attempt, Due: time.Unix(0, run.rec.AttemptDue()),
			Started: began.Add(ahead), Ended: ended.Add(ahead), Failure: o.Failure, Note: o.Note,
			Snoozed: o.Snooze, Cancelled: cancelled,
		}
		last := r.tally.isLast()
		if last {
			r = tell.ended(k, a, run.rec, r)
		}
		end(o, r)
		k.note(o, cancelled)
		if !last {
			tell.attempted(k, a, run.rec)
		}
		if o.Note != "" {
			tell.cfg.log.WithField("task", run.Key).WithField("note", o.Note).Info("durable: a run is done")
		}
		if value != nil {
			tell.cfg.log.WithField("task", run.Key).WithField("stack", string(debug.Stack())).
				Error("durable: " + o.Failure)
		}
	}()
	o = run.ends.judge(k.wrapped(ctx, run))
}

// note counts an attempt.
func (k *kind) note(o task.Outcome, cancelled bool) {
	switch {
	case o.Snooze:
		k.snoozed.Add(1)
	case o.Failure == "":
		k.succeeded.Add(1)
	default:
		k.failed.Add(1)
	}
	if cancelled {
		k.cancelled.Add(1)
	}
}

func (k *kind) toRun(r *task.Record, fence, now int64, ends *runEnd) Run {
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
		called:  now,
		rec:     r,
		of:      k,
		ends:    ends,
	}
}
