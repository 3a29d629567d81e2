// SPDX-License-Identifier: MIT

package durable

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// Park returns an error with which a handler parks its task at once: no attempt is left, for another would fail
// as well. It returns nil if err is nil. It is found in an error that wraps it. If an error wraps another Park
// or [RetryAfter], the outer one counts.
func Park(err error) error {
	if err == nil {
		return nil
	}
	return &verdict{error: err, park: true}
}

// RetryAfter returns an error with which a handler has the run tried again after d, in place of the wait of
// [WithRetry]. The attempt counts as failed, and the last one parks the task. If d is not positive, the run
// is tried again at once. RetryAfter returns nil if err is nil. It is found in an error that wraps it.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &verdict{error: err, wait: max(d, 0)}
}

// Complete says that the run is complete, and leaves a note: what the handler has skipped, or found done already.
// It counts when the handler returns nil. If the handler returns an error, panics or calls runtime.Goexit, the
// attempt has failed all the same. The note is logged and given to the observers ([Attempt]), and Info.Note has it
// until the next run is complete. Up to 256 bytes of it are kept. A run that calls Complete is complete after its
// timeout, too, when nil alone is a failure ([WithTimeout]). The last call counts. Complete does nothing once the
// handler has returned, or on a Run that no scheduler has made.
func (r Run) Complete(note string) {
	if r.ends != nil {
		r.ends.note.Store(&note)
	}
}

// A runEnd is how the handler of a run ends it, but for what it returns.
type runEnd struct {
	note    atomic.Pointer[string] // of Complete; nil before it is called
	written atomic.Bool            // a write of the user's completes it: see [Run.Completion]
}

// A verdict is an error that says what is to become of the task. The first in the tree of an error counts.
type verdict struct {
	error
	park bool
	wait time.Duration // if park is not set
}

func (v *verdict) Unwrap() error { return v.error }

// judge returns the outcome of an attempt whose handler has returned. It is called on the worker, for the
// methods of the user's error may do as they like.
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
		o.Park, o.Wait = v.park, v.wait
	}
	return o
}

const inexplicable = "it failed, and panicked when it was asked why"

// explain returns what the user's error or value says about itself, as much as is kept. It is called on the
// worker, for it may do as it likes.
func explain(say func() string) (said string) {
	defer func() {
		if recover() != nil {
			said = inexplicable
		}
	}()
	if said = task.Clip(say()); said == "" {
		return "it failed, and does not say why"
	}
	return said
}
