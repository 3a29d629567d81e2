// SPDX-License-Identifier: MIT

package durable

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
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

// Done returns an error with which a handler completes its run, as if it returned nil, and leaves a note:
// what it has skipped, or found done already. The note is logged and given to the observers ([Attempt]), and
// Info.Note has it until the next run is complete. Up to 256 bytes of it are kept. Done completes the run
// after its timeout, too, when nil does not ([WithTimeout]). It is found in an error that wraps it alone.
// Joined with another error it does not count.
func Done(note string) error {
	return &verdict{error: errors.New("done: " + note), done: true, note: note}
}

// DoneNote reports whether an error of a handler completes the run, and returns its note. What wraps handlers,
// and counts those that fail, needs it.
func DoneNote(err error) (note string, ok bool) {
	for ; err != nil; err = errors.Unwrap(err) {
		if v, ok := err.(*verdict); ok {
			return v.note, v.done
		}
	}
	return "", false
}

// A verdict is an error that says what is to become of the task. The first in the tree of an error counts.
type verdict struct {
	error
	done bool
	note string // if done is set
	park bool
	wait time.Duration // if neither is set
}

func (v *verdict) Unwrap() error { return v.error }

// An outcome is how an attempt of a run has ended. The zero value is a success.
type outcome struct {
	failure string        // why it has failed, or empty
	done    bool          // the handler has said by Done that the run is complete,
	note    string        // and this of it
	park    bool          // it has failed, and there is to be no further attempt
	wait    time.Duration // it has failed, and is to be tried again after that; negative: after the kind's wait
}

// failedFor returns the outcome of an attempt that the handler has not ended by returning.
func failedFor(why string) outcome { return outcome{failure: why, wait: -1} }

// judge returns the outcome of an attempt whose handler has returned. It is called on the worker, for the
// methods of the user's error may do as they like.
func judge(err error) (o outcome) {
	if err == nil {
		return outcome{}
	}
	defer func() {
		if recover() != nil {
			o = failedFor(inexplicable)
		}
	}()
	if note, ok := DoneNote(err); ok {
		return outcome{done: true, note: clip(note)}
	}
	o = failedFor(explain(err.Error))
	var v *verdict
	if errors.As(err, &v) && !v.done {
		o.park, o.wait = v.park, v.wait
	}
	return o
}

// late returns the outcome of an attempt that took longer than its kind allows.
func (o outcome) late(allowed, took time.Duration) outcome {
	if o.done {
		return o
	}
	if o.failure == "" {
		o = failedFor("the handler returned nil")
	}
	o.failure = clip(fmt.Sprintf("timed out after %v, ended after %v: %s",
		allowed, took.Round(time.Millisecond), o.failure))
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
	if said = clip(say()); said == "" {
		return "it failed, and does not say why"
	}
	return said
}

// clip returns as much of the text as is kept.
func clip(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	for n := min(len(text), maxFailure); ; n-- {
		if n == len(text) || utf8.RuneStart(text[n]) {
			return text[:n]
		}
	}
}
