// SPDX-License-Identifier: MIT

package durable

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// An outcome is how an attempt of a run has ended. The zero value is a success.
type outcome struct {
	failure string        // why it has failed, or empty
	done    bool          // the handler has said by Complete that the run is complete,
	note    string        // and this of it
	park    bool          // it has failed, and there is to be no further attempt
	wait    time.Duration // it has failed, and is to be tried again after that; negative: after the kind's wait
}

// failedFor returns the outcome of an attempt that the handler has not ended by returning.
func failedFor(why string) outcome { return outcome{failure: why, wait: -1} }

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

// maxFailure is how much of an error is kept, in bytes.
const maxFailure = 256

// clip returns as much of the text as is kept.
func clip(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	for n := min(len(text), maxFailure); ; n-- {
		if n == len(text) || utf8.RuneStart(text[n]) {
			return text[:n]
		}
	}
}
