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
)

func TestNewWrite(t *testing.T) {
	const now = int64(1e18)
	at := func(due int64) time.Time { return time.Unix(0, due) }
	for name, c := range map[string]struct {
		task Task
		due  int64
		want record
	}{
		"delay": {Task{Key: "k", Kind: "x", Delay: 5, Payload: []byte("p")}, now + 5,
			record{payload: []byte("p"), times: 1, grid: now + 5}},
		"interval": {Task{Key: "k", Kind: "x", Interval: 7, Times: 3}, now + 7,
			record{times: 3, interval: 7, grid: now + 7}},
		"delay, then interval": {Task{Key: "k", Kind: "x", Interval: 7, Delay: 1, Times: Forever}, now + 1,
			record{times: Forever, interval: 7, grid: now + 1}},
		"at":              {Task{Key: "k", Kind: "x", At: at(now + 9)}, now + 9, record{times: 1, grid: now + 9}},
		"at, in the past": {Task{Key: "k", Kind: "x", At: at(5)}, now, record{times: 1, grid: 5}},
		"beyond all time": {Task{Key: "k", Kind: "x", Delay: math.MaxInt64}, latest, record{times: 1, grid: latest}},
	} {
		w, err := NewWrite(c.task, now)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := decode(w.Record)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if since := got.generation - uint64(now); since > 1<<10 && -since > 1<<10 {
			t.Errorf("%s: the generation %d is far from %d", name, got.generation, now)
		}
		c.want.key, c.want.kind, c.want.due, c.want.generation = "k", "x", c.due, got.generation
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
	rec := &record{key: "k", kind: "x", times: 3, interval: 10, seq: 7, grid: 100, due: 101, attempts: 1,
		failed: []failed{{text: "why"}}}
	last := *rec
	last.times = 1
	for name, c := range map[string]struct {
		rec    *record
		missed Missed
		now    int64
		want   string // times, seq, grid, attempts, missed
	}{
		"in time":         {rec, MissedOnce, 105, "2 8 110 0 0"},
		"long after":      {rec, MissedOnce, 145, "2 8 150 0 4"},
		"long after, all": {rec, MissedAll, 145, "2 8 110 0 0"},
		"the last":        {&last, MissedOnce, 105, ""},
	} {
		w := (&kind{policy: policy{attempts: 3, missed: missedRuns(c.missed)}}).toRun(c.rec, 42, new(runEnd)).Completion(c.now)
		got := ""
		if w.Data != nil {
			next, err := decode(w.Record)
			if err != nil || next.due != next.grid || w.Kind != "x" || next.failed != nil {
				t.Errorf("%s: %+v, %v", name, w, err)
				continue
			}
			got = fmt.Sprint(next.times, next.seq, next.grid, next.attempts, next.missed)
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
	rec := &record{key: "k", kind: "x", times: 3, interval: 10, generation: 5, seq: 7, grid: 100, due: never,
		attempts: 9, failed: []failed{{text: "why"}}, missed: 2}
	stored := engine.Stored{Record: engine.Record{Key: "k", Due: rec.due, Data: rec.encode()}, Kind: "x", Revision: 42}
	for to, want := range map[int64]string{
		300: "300 300", 0: "0 0", -1: "0 0", math.MaxInt64: fmt.Sprint(latest, latest),
	} {
		w, err := Rescheduled(stored, to)
		if err != nil {
			t.Fatal(err)
		}
		next, err := decode(w.Record)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(next.grid, next.due); got != want || w.Due != next.due || w.If != engine.IfUnchanged ||
			w.Revision != 42 || w.Kind != "x" || w.Hold {
			t.Errorf("to %d: got %s of %+v, want %s", to, got, w, want)
		}
		got := fmt.Sprint(next.times, next.generation, next.seq, next.attempts, next.missed)
		if got != "3 5 8 0 2" || next.failed != nil {
			t.Errorf("to %d: %s", to, got)
		}
	}
	stored.Data = stored.Data[:3]
	if _, err := Rescheduled(stored, 1); !errors.Is(err, ErrCorrupt) {
		t.Errorf("damaged: %v", err)
	}
}
