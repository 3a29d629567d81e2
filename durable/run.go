// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// Run calls the handler. It ends the run with the result before it calls the observers and the logger, which may also panic.
func (k *kind) Run(ctx context.Context, h *node.Run) {
	if h.Overdue {
		k.overdue.note(h.Due, h.Began)
	}
	run := k.toRun(h)
	whole := ctx
	if k.Policy.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, k.Policy.Timeout)
		defer cancel()
	}
	o := task.FailedFor("handler called runtime.Goexit") // unless the handler returns
	k.started.Add(1)
	defer func() {
		value := recover()
		ended := time.Now()
		took := ended.Sub(h.Began)
		k.Took(took)
		if value != nil {
			o = task.FailedFor(explain(func() string { return fmt.Sprint("handler panicked: ", value) }))
		}
		if k.Policy.Timeout > 0 && took >= k.Policy.Timeout { // the context may have ended earlier for another reason
			o = o.Late(k.Policy.Timeout, took)
		}
		now := k.tell.now()
		r := h.Result(o, now)
		ahead := time.Duration(now - ended.UnixNano()) // of the process's clock
		cancelled := o.Failure != "" && errors.Is(context.Cause(whole), ErrCancelled)
		a := Attempt{
			Token: run.Token, Kind: run.Kind, Attempt: run.Attempt, Due: time.Unix(0, h.Rec.AttemptDue()),
			Started: h.Began.Add(ahead), Ended: ended.Add(ahead), Failure: o.Failure, Note: o.Note,
			Snoozed: o.Snooze, Cancelled: cancelled,
		}
		last := r.Tally.IsLast()
		if last {
			r = k.tell.ended(k, a, h.Rec, r)
		}
		h.End(r)
		k.note(o, cancelled)
		if !last {
			k.tell.attempted(k, a, h.Rec)
		}
		if o.Note != "" {
			k.tell.cfg.Log.WithField("task", run.Key).WithField("note", o.Note).Info("durable: a run is done")
		}
		if value != nil {
			k.tell.cfg.Log.WithField("task", run.Key).WithField("stack", string(debug.Stack())).
				Error("durable: " + o.Failure)
		}
	}()
	o = judge(&h.Ending, k.wrapped(ctx, run))
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

func (k *kind) toRun(h *node.Run) Run {
	r := h.Rec
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
		Fence:   h.Fence,
		called:  h.Called,
		rec:     r,
		of:      k,
		ends:    &h.Ending,
	}
}
