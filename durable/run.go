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

// attempt calls the handler, and then calls end with the outcome and the time. end returns the task as it is after the
// attempt. It is called regardless of what the handler does, and before the observers and the logger, which may also
// panic.
func (k *kind) attempt(ctx context.Context, began time.Time, run Run, cfg *config, clock func() int64,
	end func(task.Outcome, time.Time) *task.Record,
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
		ahead := time.Duration(clock() - ended.UnixNano()) // of the process's clock
		took := ended.Sub(began)
		k.Took(took)
		if value != nil {
			o = task.FailedFor(explain(func() string { return fmt.Sprint("handler panicked: ", value) }))
		}
		if k.policy.Timeout > 0 && took >= k.policy.Timeout { // the context may have ended earlier for another reason
			o = o.Late(k.policy.Timeout, took)
		}
		parked := k.note(o, end(o, ended))
		cancelled := o.Failure != "" && errors.Is(context.Cause(whole), ErrCancelled)
		if cancelled {
			k.cancelled.Add(1)
		}
		if len(cfg.observers) > 0 || k.past != nil {
			a := Attempt{
				Token: run.Token, Kind: run.Kind, Attempt: run.Attempt, Due: time.Unix(0, run.rec.AttemptDue()),
				Started: began.Add(ahead), Ended: ended.Add(ahead), Failure: o.Failure, Note: o.Note, Parked: parked,
				Snoozed: o.Snooze, Cancelled: cancelled,
			}
			k.keepAttempt(a, run.rec)
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
	o = run.ends.judge(k.wrapped(ctx, run))
}

// note counts an attempt, and reports whether the attempt parks the task.
func (k *kind) note(o task.Outcome, next *task.Record) (parked bool) {
	switch {
	case o.Snooze:
		k.snoozed.Add(1)
	case o.Failure == "":
		k.succeeded.Add(1)
	default:
		k.failed.Add(1)
	}
	if parked = next != nil && next.Due == task.Never; parked {
		k.parked.Add(1)
	}
	return parked
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
