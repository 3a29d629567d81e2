// SPDX-License-Identifier: MIT

package task

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// An Outcome is how an attempt of a run has ended. The zero value is a success.
type Outcome struct {
	Failure string        // why it has failed, or empty
	Done    bool          // the handler has said by Complete that the run is complete,
	Note    string        // and this of it
	Park    bool          // it has failed, and there is to be no further attempt
	Wait    time.Duration // it has failed, and is to be tried again after that; negative: after the kind's wait
}

// FailedFor returns the outcome of an attempt that the handler has not ended by returning.
func FailedFor(why string) Outcome { return Outcome{Failure: why, Wait: -1} }

// Late returns the outcome of an attempt that took longer than its kind allows.
func (o Outcome) Late(allowed, took time.Duration) Outcome {
	if o.Done {
		return o
	}
	if o.Failure == "" {
		o = FailedFor("the handler returned nil")
	}
	o.Failure = Clip(fmt.Sprintf("timed out after %v, ended after %v: %s",
		allowed, took.Round(time.Millisecond), o.Failure))
	return o
}

// MaxFailure is how much of an error is kept, in bytes.
const MaxFailure = 256

// Clip returns as much of the text as is kept.
func Clip(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	for n := min(len(text), MaxFailure); ; n-- {
		if n == len(text) || utf8.RuneStart(text[n]) {
			return text[:n]
		}
	}
}
