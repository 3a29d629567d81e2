// SPDX-License-Identifier: MIT

package durable

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

func TestNewWrite(t *testing.T) {
	const now = int64(1e18)
	at := func(due int64) time.Time { return time.Unix(0, due) }
	for name, c := range map[string]struct {
		task Task
		due  int64
		want task.Record
	}{
		"delay": {Task{Key: "k", Kind: "x", Delay: 5, Payload: []byte("p")}, now + 5,
			task.Record{Payload: []byte("p"), Times: 1, Grid: now + 5}},
		"interval": {Task{Key: "k", Kind: "x", Interval: 7, Times: 3}, now + 7,
			task.Record{Times: 3, Interval: 7, Grid: now + 7}},
		"delay, then interval": {Task{Key: "k", Kind: "x", Interval: 7, Delay: 1, Times: Forever}, now + 1,
			task.Record{Times: Forever, Interval: 7, Grid: now + 1}},
		"at":              {Task{Key: "k", Kind: "x", At: at(now + 9)}, now + 9, task.Record{Times: 1, Grid: now + 9}},
		"at, in the past": {Task{Key: "k", Kind: "x", At: at(5)}, now, task.Record{Times: 1, Grid: 5}},
		"beyond all time": {Task{Key: "k", Kind: "x", Delay: math.MaxInt64}, task.Latest, task.Record{Times: 1, Grid: task.Latest}},
	} {
		w, err := NewWrite(c.task, now)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := task.Decode(w.Record)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if since := got.Generation - uint64(now); since > 1<<10 && -since > 1<<10 {
			t.Errorf("%s: the generation %d is far from %d", name, got.Generation, now)
		}
		c.want.Key, c.want.Kind, c.want.Due, c.want.Generation = "k", "x", c.due, got.Generation
		if c.want.Interval != 0 {
			c.want.Asof = now
		}
		if fmt.Sprint(*got) != fmt.Sprint(c.want) || w.Key != "k" || w.Kind != "x" || w.Due != c.due ||
			w.If != engine.IfAbsent || w.Hold {
			t.Errorf("%s: got %+v of %+v, want %+v", name, *got, w, c.want)
		}
	}
	if w, err := NewWrite(Task{Key: "k", Kind: "x"}, now); err != nil || w.Due != now {
		t.Errorf("a task that is due at once: %+v, %v", w, err)
	}
	_, err := NewWrite(Task{Key: strings.Repeat("k", MaxKey+1), Kind: "x", Delay: 1}, now)
	if !errors.Is(err, ErrInvalidTask) {
		t.Errorf("a long key: %v", err)
	}
}

// With the interval 10, run 7 was due at 100 and has failed once.
func TestRun_completion(t *testing.T) {
	rec := &task.Record{Key: "k", Kind: "x", Times: 3, Interval: 10, Seq: 7, Grid: 100, Due: 101, Attempts: 1,
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

func TestStored_rescheduled(t *testing.T) {
	rec := &task.Record{Key: "k", Kind: "x", Times: 3, Interval: 10, Generation: 5, Seq: 7, Grid: 100, Due: task.Never,
		Attempts: 9, Failed: []task.Failure{{Text: "why"}}, Missed: 2}
	stored := engine.Stored{Record: engine.Record{Key: "k", Due: rec.Due, Data: rec.Encode()}, Kind: "x", Revision: 42}
	for after, want := range map[time.Duration]string{
		300: "500 500 200", 0: "200 200 200", -1: "200 200 200", math.MaxInt64: fmt.Sprint(task.Latest, task.Latest, 200),
	} {
		w, err := Rescheduled(stored, after, 200)
		if err != nil {
			t.Fatal(err)
		}
		next, err := task.Decode(w.Record)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(next.Grid, next.Due, next.Asof); got != want || w.Due != next.Due || w.If != engine.IfUnchanged ||
			w.Revision != 42 || w.Kind != "x" || w.Hold {
			t.Errorf("after %d: got %s of %+v, want %s", after, got, w, want)
		}
		got := fmt.Sprint(next.Times, next.Generation, next.Seq, next.Attempts, next.Missed)
		if got != "3 5 8 0 2" || next.Failed != nil {
			t.Errorf("after %d: %s", after, got)
		}
	}
	stored.Data = stored.Data[:3]
	if _, err := Rescheduled(stored, 1, 1); !errors.Is(err, ErrCorrupt) {
		t.Errorf("damaged: %v", err)
	}
}
