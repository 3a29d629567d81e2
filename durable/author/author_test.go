// SPDX-License-Identifier: MIT

package author_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/author"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

func TestAdd(t *testing.T) {
	const now = int64(1e18)
	at := func(due int64) time.Time { return time.Unix(0, due) }
	for name, c := range map[string]struct {
		task durable.Task
		due  int64
		want task.Record
	}{
		"delay": {durable.Task{Key: "k", Kind: "x", Delay: 5, Payload: []byte("p")}, now + 5,
			task.Record{Payload: []byte("p"), Times: 1, Grid: now + 5}},
		"interval": {durable.Task{Key: "k", Kind: "x", Interval: 7, Times: 3}, now + 7,
			task.Record{Times: 3, Interval: 7, Grid: now + 7}},
		"delay, then interval": {durable.Task{Key: "k", Kind: "x", Interval: 7, Delay: 1, Times: durable.Forever}, now + 1,
			task.Record{Times: task.Forever, Interval: 7, Grid: now + 1}},
		"at":              {durable.Task{Key: "k", Kind: "x", At: at(now + 9)}, now + 9, task.Record{Times: 1, Grid: now + 9}},
		"at, in the past": {durable.Task{Key: "k", Kind: "x", At: at(5)}, now, task.Record{Times: 1, Grid: 5}},
		"beyond all time": {durable.Task{Key: "k", Kind: "x", Delay: math.MaxInt64}, task.Latest, task.Record{Times: 1, Grid: task.Latest}},
	} {
		w, err := author.Add(c.task, now)
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
	if w, err := author.Add(durable.Task{Key: "k", Kind: "x"}, now); err != nil || w.Due != now {
		t.Errorf("a task that is due at once: %+v, %v", w, err)
	}
	_, err := author.Add(durable.Task{Key: strings.Repeat("k", durable.MaxKey+1), Kind: "x", Delay: 1}, now)
	if !errors.Is(err, durable.ErrInvalidTask) {
		t.Errorf("a long key: %v", err)
	}
}

func TestReschedule(t *testing.T) {
	rec := &task.Record{Token: task.Token{Key: "k", Generation: 5, Seq: 7}, Kind: "x", Times: 3, Interval: 10, Grid: 100, Due: task.Never,
		Attempts: 9, Failed: []task.Failure{{Text: "why"}}, Missed: 2}
	stored := engine.Stored{Record: engine.Record{Key: "k", Due: rec.Due, Data: rec.Encode()}, Kind: "x", Revision: 42}
	for after, want := range map[time.Duration]string{
		300: "500 500 200", 0: "200 200 200", -1: "200 200 200", math.MaxInt64: fmt.Sprint(task.Latest, task.Latest, 200),
	} {
		w, err := author.Reschedule(stored, after, 200)
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
	if _, err := author.Reschedule(stored, 1, 1); !errors.Is(err, durable.ErrCorrupt) {
		t.Errorf("damaged: %v", err)
	}
}
