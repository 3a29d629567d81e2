// SPDX-License-Identifier: MIT

package durable

import (
	"fmt"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// With the interval 10, run 7 was due at 100 and has failed once.
func TestRun_completion(t *testing.T) {
	rec := &task.Record{Token: task.Token{Key: "k", Seq: 7}, Kind: "x", Times: 3, Interval: 10, Grid: 100, Due: 101, Attempts: 1,
		Failed: []task.Failure{{Text: "why"}}}
	last := *rec
	last.Times = 1
	for name, c := range map[string]struct {
		rec    *task.Record
		missed Missed
		now    int64
		want   string // times, seq, grid, attempts, missed
	}{
		"in time":         {rec, MissedOnce, 105, "2 8 110 0 0"},
		"long after":      {rec, MissedOnce, 145, "2 8 150 0 4"},
		"long after, all": {rec, MissedAll, 145, "2 8 110 0 0"},
		"the last":        {&last, MissedOnce, 105, ""},
	} {
		w := (&kind{Kind: node.Kind{Policy: task.Policy{Attempts: 3, Missed: task.Missed(c.missed)}}}).toRun(&node.Run{Rec: c.rec, Fence: 42}).Completion(c.now)
		got := ""
		if w.Data != nil {
			next, err := task.Decode(w.Record)
			if err != nil || next.Due != next.Grid || w.Kind != "x" || next.Failed != nil {
				t.Errorf("%s: %+v, %v", name, w, err)
				continue
			}
			got = fmt.Sprint(next.Times, next.Seq, next.Grid, next.Attempts, next.Missed)
		}
		if got != c.want || w.Key != "k" || w.If != engine.IfUnchanged || w.Revision != 42 || w.Hold {
			t.Errorf("%s: got %q of %+v, want %q", name, got, w, c.want)
		}
	}
	if w := (Run{Token: Token{Key: "k"}}).Completion(1); w.If != engine.IfUnchanged || w.Revision != 0 || w.Data != nil {
		t.Errorf("a run that no scheduler made: %+v", w)
	}
}
