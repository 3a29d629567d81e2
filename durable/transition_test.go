// SPDX-License-Identifier: MIT

package durable

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// What becomes of a task with the interval 10 whose run 7 was due at 100, after its second attempt.
func TestRecord_after(t *testing.T) {
	const draw = 0.5
	before := record{key: "k", kind: "kind", payload: []byte("p"), interval: 10, times: 3, generation: 5, seq: 7,
		grid: 100, due: 101, attempts: 1, missed: 4, failed: []failed{{99, "the first"}}}
	with := func(change func(r *record)) *record {
		r := before
		change(&r)
		return &r
	}
	again := func(change func(r *record)) *record { // the next run
		return with(func(r *record) {
			r.times, r.seq, r.attempts, r.failed = 2, 8, 0, nil
			change(r)
			r.due = r.grid
		})
	}
	at := func(grid int64, missed uint64) *record {
		return again(func(r *record) { r.grid, r.missed = grid, missed })
	}
	fails := func(at, due int64) *record {
		return with(func(r *record) {
			r.attempts, r.failed, r.due = 2, []failed{{at, "why"}, {99, "the first"}}, due
		})
	}
	times := func(n int64) *record { return with(func(r *record) { r.times = n }) }
	parks, waits := outcome{failure: "why", park: true}, outcome{failure: "why", wait: 500}
	waitsLong := outcome{failure: "why", wait: math.MaxInt64}
	forever := again(func(r *record) { r.times, r.grid = timesForever, 110 })
	for name, c := range map[string]struct {
		record   *record
		outcome  outcome
		missed   missedRuns
		attempts uint64
		now      int64
		want     *record
	}{
		"succeeded, in time":            {&before, outcome{}, missedOnce, 3, 105, at(110, 4)},
		"succeeded, at the next":        {&before, outcome{}, missedOnce, 3, 110, at(120, 5)},
		"succeeded, long after":         {&before, outcome{}, missedOnce, 3, 145, at(150, 8)},
		"succeeded, long after, skip":   {&before, outcome{}, missedSkip, 3, 145, at(150, 8)},
		"succeeded, long after, all":    {&before, outcome{}, missedAll, 3, 145, at(110, 4)},
		"succeeded, the clock set back": {&before, outcome{}, missedOnce, 3, 5, at(110, 4)},
		"succeeded, forever":            {times(timesForever), outcome{}, missedOnce, 3, 105, forever},
		"succeeded, the last":           {times(1), outcome{}, missedOnce, 3, 105, nil},
		"succeeded, the last, all":      {times(1), outcome{}, missedAll, 3, 145, nil},
		// After 20, less a quarter.
		"failed":                     {&before, failedFor("why"), missedOnce, 3, 105, fails(105, 120)},
		"failed, all":                {&before, failedFor("why"), missedAll, 3, 145, fails(145, 160)},
		"failed, at the end of time": {&before, failedFor("why"), missedOnce, 3, latest - 1, fails(latest-1, latest)},
		"failed for the last time":   {&before, failedFor("why"), missedOnce, 2, 105, fails(105, never)},
		"failed once too often":      {&before, failedFor("why"), missedOnce, 1, 105, fails(105, never)}, // of more
		"failed, park":               {&before, parks, missedOnce, 9, 105, fails(105, never)},
		"failed, after a time":       {&before, waits, missedOnce, 3, 105, fails(105, 605)},
		"failed, at once":            {&before, outcome{failure: "why"}, missedOnce, 3, 105, fails(105, 105)},
		"failed, last, after a time": {&before, waits, missedOnce, 2, 105, fails(105, never)},
		"failed, after a long time":  {&before, waitsLong, missedOnce, 3, 105, fails(105, latest)},
	} {
		was := fmt.Sprintf("%+v", c.record)
		of := &policy{attempts: c.attempts, least: 10, most: 1000, missed: c.missed}
		if got := fmt.Sprintf("%+v", c.record.after(c.outcome, of, c.now, draw)); got != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%s:\ngot  %s\nwant %+v", name, got, c.want)
		}
		if is := fmt.Sprintf("%+v", c.record); is != was {
			t.Errorf("%s: the record was %s and is %s", name, was, is)
		}
	}
	want := with(func(r *record) { r.grid, r.due, r.missed = 150, 150, 9 })
	if got := before.skipped(145); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("skipped: got %+v, want %+v", got, want)
	}
	want = again(func(r *record) { r.times, r.grid = 3, 77 })
	if got := before.moved(77); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("moved: got %+v, want %+v", got, want)
	}
}

func TestRecord_onGrid(t *testing.T) {
	for _, c := range []struct{ grid, interval, t, want int64 }{
		{10, 5, 9, 10}, {10, 5, 10, 15}, {10, 5, 14, 15}, {10, 5, 15, 20}, {0, 1, 1 << 62, 1<<62 + 1},
		{10, math.MaxInt64, 10, latest}, {latest - 1, 10, latest - 1, latest}, {0, 7, latest, latest},
	} {
		r := record{grid: c.grid, interval: time.Duration(c.interval)}
		if got := r.onGrid(c.t); got != c.want {
			t.Errorf("from %d every %d, after %d comes %d, want %d", c.grid, c.interval, c.t, got, c.want)
		}
	}
}

func TestPolicy_wait_doublesUpToItsBound(t *testing.T) {
	k := policy{least: 3, most: 1000}
	for failures := uint64(1); failures < 200; failures++ {
		want := time.Duration(1000)
		if failures < 10 {
			want = 3 << (failures - 1)
		}
		least, most := k.wait(failures, 1), k.wait(failures, 0)
		if least != want-want/2 || most != want {
			t.Errorf("after %d failures the wait is %d to %d, want %d to %d", failures, least, most, want-want/2, want)
		}
	}
	forever := policy{least: math.MaxInt64, most: math.MaxInt64}
	if d := forever.wait(100, rand.Float64()); d <= 0 {
		t.Errorf("the longest wait is %d", d)
	}
}

// Each start whose end is not known is a failed attempt of the same run.
func TestRecord_interrupted(t *testing.T) {
	before := record{key: "k", kind: "kind", times: 3, interval: 10, seq: 7, grid: 100, due: 101, attempts: 1,
		failed: []failed{{50, "why"}}}
	for _, c := range []struct {
		starts   int
		allowed  uint64
		attempts uint64
		due      int64
	}{
		{0, 3, 1, 101}, {0, 1, 1, 101}, {1, 3, 2, 101}, {2, 3, 3, never}, {1, 1, 2, never}, {9, 3, 10, never},
	} {
		want := before
		want.attempts, want.due = c.attempts, c.due
		if c.starts > 0 {
			want.failed = nil
			for range min(c.starts, mostFailed) {
				want.failed = append(want.failed, failed{200, "the process ended, or its lease ran out, during the run"})
			}
			if c.starts < mostFailed {
				want.failed = append(want.failed, before.failed...)
			}
		}
		counted := before
		counted.starts = c.starts // as a keeper has them; a node has them of its claim
		got := counted.interrupted(c.starts, &policy{attempts: c.allowed}, 200)
		if fmt.Sprint(*got) != fmt.Sprint(want) {
			t.Errorf("%d starts of %d: got %+v, want %+v", c.starts, c.allowed, *got, want)
		}
	}
	if before.attempts != 1 || before.failure() != "why" {
		t.Errorf("the record has become %+v", before)
	}
}

// A run that is as old as its kind allows is made, and one that is older is passed over.
func TestPolicy_passesOver_whatIsOlderThanItsAge(t *testing.T) {
	k := policy{missed: missedOnce, missedAge: 10}
	for due, want := range map[int64]int64{91: engine.None, 90: engine.None, 89: 89, 50: 89} {
		if to := k.passesOver(due, 100, true); to != want {
			t.Errorf("at 100, what was due at %d is passed over up to %d, want %d", due, to, want)
		}
	}
}

// A process that does not know the zone of a calendar parks the task, when its next run is to be found, and says why.
func TestRecord_unknownZone_parks(t *testing.T) {
	before := record{key: "k", kind: "kind", times: timesForever, cron: "CRON_TZ=Europe/Atlantis @daily", grid: 100, due: 100}
	of := &policy{attempts: 3, least: 10, most: 1000}
	for name, got := range map[string]*record{
		"after":   before.after(outcome{}, of, 105, 0),
		"skipped": before.skipped(1000),
	} {
		want := "this process cannot read the schedule CRON_TZ=Europe/Atlantis @daily"
		if got.due != never || got.failure() != want || got.attempts != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if again := before.moved(500); again.due != 500 || again.failure() != "" {
		t.Errorf("moved: %+v", again)
	}
}
