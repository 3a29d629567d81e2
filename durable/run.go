// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
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
	note := ""                                           // the whole one
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
			r.Also = k.also(r.Next)
			r = k.tell.ended(k, a, h.Rec, r)
		}
		h.End(r)
		k.note(o, cancelled)
		if !last {
			k.tell.attempted(k, a, h.Rec, note)
		}
		if o.Note != "" {
			k.tell.cfg.Log.WithField("task", run.Key).WithField("note", o.Note).Info("durable: a run is done")
		}
		if value != nil {
			k.tell.cfg.Log.WithField("task", run.Key).WithField("stack", string(debug.Stack())).
				Error("durable: " + o.Failure)
		}
	}()
	o, note = judge(&h.Ending, k.wrapped(ctx, run))
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
		Token:   Token(r.Token),
		Kind:    r.Kind,
		Payload: r.Payload,
		Due:     time.Unix(0, r.Grid),
		Times:   times,
		Attempt: int(r.Attempts) + 1,
		Missed:  r.Missed,
		Trace:   r.Trace,
		Meta:    r.Meta,
		Fence:   h.Fence,
		called:  h.Called,
		rec:     r,
		of:      k,
		ends:    &h.Ending,
	}
}

// Park returns an error that wraps err. A handler that returns this error parks its task at once, without further
// attempts, even if the task repeats. Use Park if another attempt would fail too. Park returns nil if err is nil. The
// returned error may itself be wrapped. If errors from Park and [RetryAfter] wrap each other, the outermost one counts.
func Park(err error) error {
	if err == nil {
		return nil
	}
	return &verdict{error: err, park: true}
}

// RetryAfter returns an error that wraps err. A handler that returns this error sets the wait before the next attempt
// to d, in place of the wait from [WithRetry]. The attempt counts as failed, and if it was the last attempt, there is no
// other. If d is not positive, the run is retried at once. RetryAfter returns nil if err is nil. The returned error
// may itself be wrapped.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &verdict{error: err, wait: max(d, 0)}
}

// Snooze returns an error with which a handler postpones its run. The run is due again after d, or at once if d is not
// positive. The attempt does not count as failed, so a run can be postponed without limit, and [WithRetry] does not
// apply. The next attempt has the same token, the same number and the same Run.Due, so a handler can give up once its
// [Run.Lateness] is too great. The returned error may be wrapped. If errors from Snooze, [Park] and [RetryAfter]
// wrap each other, the outermost one counts.
func Snooze(d time.Duration) error {
	return &verdict{error: fmt.Errorf("durable: snoozed for %v", max(d, 0)), snooze: true, wait: max(d, 0)}
}

// IsSnooze reports whether a handler that returns err postpones its run. It is for middleware.
func IsSnooze(err error) bool {
	var v *verdict
	return errors.As(err, &v) && v.snooze
}

// Complete marks the run as complete, with a note such as "nothing to do". It takes effect when the handler returns
// nil. If the handler panics, calls runtime.Goexit, or returns an error other than one from [Snooze], the attempt fails
// even though Complete was called. The note is logged, passed to observers ([Attempt]), and stored in Info.Note until
// the next run is complete. Only its first 256 bytes are kept; see also [WithHistoryNotes]. If a handler returns nil after its timeout
// ([WithTimeout]), its attempt fails, unless the handler has called Complete. If Complete is called more than once, the
// last call counts. Complete has no effect once the handler has returned, or on a Run that a scheduler did not create.
func (r Run) Complete(note string) {
	if r.ends != nil {
		r.ends.Note.Store(&note)
	}
}

// A verdict is an error that decides what happens to the task. The first verdict in an error's tree counts.
type verdict struct {
	error
	park   bool
	snooze bool
	wait   time.Duration // wait before the next attempt, unless park is set
}

func (v *verdict) Unwrap() error { return v.error }

// judge returns the outcome of an attempt whose handler has returned, and the whole note. It is called on the worker,
// because the methods of a user's error may block.
func judge(e *node.Ending, err error) (o task.Outcome, note string) {
	if err == nil {
		if note := e.Note.Load(); note != nil {
			return task.Outcome{Done: true, Note: task.Clip(*note)}, *note
		}
		return task.Outcome{}, ""
	}
	defer func() {
		if recover() != nil {
			o = task.FailedFor(inexplicable)
		}
	}()
	o = task.FailedFor(explain(err.Error))
	var v *verdict
	if errors.As(err, &v) {
		o.Park, o.Snooze, o.Wait = v.park, v.snooze, v.wait
	}
	if o.Snooze {
		o.Failure = ""
	}
	return o, ""
}

const inexplicable = "it failed, and its error panicked"

// explain returns the text of the user's error or value, cut to the stored length. It is called on the worker, because
// a user's method may block.
func explain(say func() string) (said string) {
	defer func() {
		if recover() != nil {
			said = inexplicable
		}
	}()
	if said = task.Clip(say()); said == "" {
		return "it failed without an error text"
	}
	return said
}

// Completion returns a write that completes the run with the note from [Run.Complete], as if its handler had returned
// nil. now is the engine's time. The write takes effect only if the node still holds the run. If the write takes
// effect, the node later detects that the run is complete and writes nothing further.
func (r Run) Completion(now int64) engine.Write {
	if r.rec == nil {
		return engine.Write{Record: engine.Record{Key: r.Key}, If: engine.IfUnchanged, Revision: r.Fence, Begun: r.Fence}
	}
	r.ends.Written.Store(true)
	o, _ := judge(r.ends, nil)
	return task.Completion(r.rec.After(o, &r.of.Policy, now, 0), r.rec, r.Fence)
}
