// SPDX-License-Identifier: MIT

package durable

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// Park returns an error with which a handler parks its task at once, without further attempts. Use it if another
// attempt would fail as well. Park returns nil if err is nil. The returned error may be wrapped. If errors of Park and
// [RetryAfter] wrap each other, the outermost counts.
func Park(err error) error {
	if err == nil {
		return nil
	}
	return &verdict{error: err, park: true}
}

// RetryAfter returns an error with which a handler sets the wait before the next attempt to d, in place of that of
// [WithRetry]. The attempt counts as failed, and the last one parks the task. If d is not positive, the run is retried
// at once. RetryAfter returns nil if err is nil. The returned error may be wrapped.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &verdict{error: err, wait: max(d, 0)}
}

// Snooze returns an error with which a handler puts its run off: the run is due again after d, or at once if d is not
// positive. The attempt does not count as failed, so a run can be put off without limit, and [WithRetry] does not apply
// to it. The next attempt has the same token and number. An error that wraps Snooze counts as one. If errors of Snooze,
// [Park] and [RetryAfter] wrap each other, the outermost counts.
func Snooze(d time.Duration) error {
	return &verdict{error: fmt.Errorf("durable: snoozed for %v", max(d, 0)), snooze: true, wait: max(d, 0)}
}

// IsSnooze reports whether a handler that returns err puts its run off. It is for middleware.
func IsSnooze(err error) bool {
	var v *verdict
	return errors.As(err, &v) && v.snooze
}

// Complete marks the run as complete, with a note such as "nothing to do". It takes effect when the handler returns
// nil. If the handler returns an error, panics or calls runtime.Goexit, the attempt fails in spite of it. The note is
// logged and passed to the observers ([Attempt]), and Info.Note has it until the next run is complete. Its first 256
// bytes are kept. After its timeout, when returning nil alone is a failure, a run that has called Complete is complete
// ([WithTimeout]). The last call counts. Complete does nothing once the handler has returned, or on a Run that was not
// made by a scheduler.
func (r Run) Complete(note string) {
	if r.ends != nil {
		r.ends.note.Store(&note)
	}
}

// A runEnd is how a handler ends its run, apart from what it returns.
type runEnd struct {
	note    atomic.Pointer[string] // of Complete; nil before it is called
	written atomic.Bool            // a write of the user completes it: see [Run.Completion]
}

// A verdict is an error that decides what happens to the task. The first in the tree of an error counts.
type verdict struct {
	error
	park   bool
	snooze bool
	wait   time.Duration // if park is not set
}

func (v *verdict) Unwrap() error { return v.error }

// judge returns the outcome of an attempt whose handler has returned. It is called on the worker, because methods of
// the user's error may block.
func (e *runEnd) judge(err error) (o task.Outcome) {
	if err == nil {
		if note := e.note.Load(); note != nil {
			return task.Outcome{Done: true, Note: task.Clip(*note)}
		}
		return task.Outcome{}
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
	return o
}

const inexplicable = "it failed, and its error panicked"

// explain returns the text of the user's error or value, cut to the stored length. It is called on the worker, because
// the user's method may block.
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
