// SPDX-License-Identifier: MIT

package durable_test

import (
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// A paused task is paused in the next process, too, and is neither parked nor overdue there.
func TestPause_outlivesTheProcess(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.add(durable.Task{Key: "a", Kind: "note", Delay: time.Minute})
		if err := r.Pause(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		r.crash()
		r.start()
		time.Sleep(time.Hour)
		if i, s := r.info("a"), r.Stats(); i.State != durable.Paused || s.Parked != 0 || len(r.runs()) != 0 {
			t.Errorf("%+v, %+v", i, s)
		}
		if err := r.Resume(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * tick)
		if calls := r.runs(); len(calls) != 1 || calls[0].Due != r.begin.Add(time.Minute) {
			t.Errorf("%v", brief(calls))
		}
	})
}
