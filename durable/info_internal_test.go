// SPDX-License-Identifier: MIT

package durable

import (
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// An Info contains the latest failed attempts of a run, newest first, with their times.
func TestInfo_failed_areTheLast(t *testing.T) {
	of := &task.Policy{Attempts: 100, Least: 1, Most: 1}
	r := &task.Record{Token: task.Token{Key: "k"}, Kind: "x", Times: Forever, Interval: 10, Grid: 1}
	for i := range int64(8) {
		r = r.After(task.FailedFor(string(rune('a'+i))), of, 100+i, 0)
	}
	got := infoOf(r, 0)
	if len(got.Failed) != 5 || got.Failure != "h" || got.Attempts != 8 {
		t.Fatalf("after 8 attempts it is %+v", got)
	}
	for i, f := range got.Failed {
		if f.Text != string(rune('h'-i)) || !f.At.Equal(time.Unix(0, int64(107-i))) {
			t.Errorf("failure %d is %+v", i, f)
		}
	}
	if next := infoOf(r.After(task.Outcome{}, of, 200, 0), 0); next.Failed != nil || next.Failure != "" {
		t.Errorf("the next run is %+v", next)
	}
}
