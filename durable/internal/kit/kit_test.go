// SPDX-License-Identifier: MIT

package kit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// A recorder records failures instead of failing.
type recorder struct {
	testing.TB
	failed []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...) }
func (r *recorder) Fatal(args ...any)                 { r.Errorf("%v", args) }

// Each sentence fails the test when it is wrong, and only then.
func TestSentences(t *testing.T) {
	run := func(t *testing.T, k *kit.Kit) {
		r := &recorder{TB: t}
		k.T = r
		fails := func(want bool, what string, sentence func()) {
			t.Helper()
			r.failed = nil
			if sentence(); len(r.failed) > 0 != want {
				t.Errorf("%s: %q", what, r.failed)
			}
		}
		add := func() {
			k.Add(durable.Task{Key: "a", Kind: "note"}, durable.Task{Key: "b", Kind: "note"})
			k.Add(durable.Task{Key: "later", Kind: "note", Delay: time.Hour})
			k.After(time.Second)
		}
		again := func() {
			k.Must(k.RemoveTask(t.Context(), "later"))
			add()
		}
		add()
		fails(false, "all that ran, in any order", func() { k.Ran("b", "a") })
		fails(false, "nothing since", k.RanNothing)
		again()
		fails(true, "something ran", k.RanNothing)
		again()
		fails(true, "one more ran", func() { k.Ran("a") })
		again()
		fails(true, "one did not run twice", func() { k.Ran("a", "b", "b") })
		again()
		fails(true, "another ran", func() { k.Ran("a", "c") })
		fails(false, "it is there", func() { k.Info("later") })
		fails(true, "it is not there", func() { k.Info("a") })
		fails(false, "it is gone", func() { k.Gone("a") })
		fails(true, "it is not gone", func() { k.Gone("later") })
		fails(true, "an error", func() { k.Must(nil, kit.ErrFail) })
		fails(false, "no error", func() { k.Must(nil, nil) })
		k.T = t
	}
	t.Run("own engine", func(t *testing.T) { kit.OnOwn(t, run) })
	t.Run("three nodes", func(t *testing.T) { kit.OnNodes(t, 3, run) })
}
