// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// An indifferent is a scheduler that answers although the context is over, as an embedded store does.
type indifferent struct {
	scheduler
	cancel context.CancelFunc // called by the first call
	calls  int
}

func (d *indifferent) Get(context.Context, string) (durable.Info, bool, error) {
	d.cancel()
	d.calls++
	return durable.Info{}, false, nil
}

func (d *indifferent) RemoveTask(context.Context, string) error {
	d.cancel()
	d.calls++
	return durable.ErrTaskKeyNotFound
}

// A command for many keys ends when it is cancelled.
func TestKeys_ofACancelledCommand_areLeftAlone(t *testing.T) {
	for _, name := range []string{"show", "rm"} {
		ctx, cancel := context.WithCancel(t.Context())
		s := &indifferent{cancel: cancel}
		var out, errs bytes.Buffer
		p := &program{out: &out, err: &errs, getenv: func(string) string { return "" }, now: time.Now, open: s}
		code := p.run(ctx, append([]string{name}, make([]string, 1000)...))
		if code == done || s.calls > 1 {
			t.Errorf("%s has looked at %d keys, and its exit code is %d: %.500s", name, s.calls, code, errs.String())
		}
		cancel()
	}
}

// The keys that are not there are all named, by their own lines.
func TestKeys_thatAreNotThere_areNamed(t *testing.T) {
	for _, name := range []string{"show", "rm"} {
		var out, errs bytes.Buffer
		s := &indifferent{cancel: func() {}}
		p := &program{out: &out, err: &errs, getenv: func(string) string { return "" }, now: time.Now, open: s}
		p.run(t.Context(), []string{name, "a", "b", "c"})
		if got := bytes.Count(errs.Bytes(), []byte("\n")); got != 3 {
			t.Errorf("%s says %q", name, errs.String())
		}
	}
}
