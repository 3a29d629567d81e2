// SPDX-License-Identifier: MIT

package task

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// The outcomes of the second attempt for a task with the interval 10 whose run 7 was due at 100.
func TestRecord_after(t *testing.T) {
	const draw = 0.5
	before := Record{Token: Token{Key: "k", Generation: 5, Seq: 7}, Kind: "kind", Payload: []byte("p"), Interval: 10, Times: 3,
		Grid: 100, Due: 101, Attempts: 1, Missed: 4, Failed: []Failure{{99, "the first"}}}
	with := func(change func(r *Record)) *Record {
		r := before
		change(&r)
		return &r
	}
	again := func(change func(r *Record)) *Record { // the next run
		return with(func(r *Record) {
			r.Times, r.Seq, r.Attempts, r.Failed = 2, 8, 0, nil
			change(r)
			r.Due = r.Grid
		})
	}
	at := func(grid int64, missed uint64) *Record {
		return again(func(r *Record) { r.Grid, r.Missed = grid, missed })
	}
	fails := func(at, due int64) *Record {
		return with(func(r *Record) {
			r.Attempts, r.Failed, r.Due = 2, []Failure{{at, "why"}, {99, "the first"}}, due
		})
	}
	times := func(n int64) *Record { return with(func(r *Record) { r.Times = n }) }
	gaveUp := func(runs int, at, grid int64, missed uint64) *Record {
		return again(func(r *Record) {
			r.Grid, r.Missed, r.GivenUp, r.Failed = grid, missed, runs, []Failure{{at, "why"}, {99, "the first"}}
		})
	}
	lasts := func(at int64) *Record { // it has no further run
		return with(func(r *Record) {
			r.Times, r.Attempts, r.Failed, r.Due = 1, 2, []Failure{{at, "why"}, {99, "the first"}}, Never
		})
	}
	gaveUpOnce := func(r *Record) *Record { r.GivenUp = 1; return r }
	foreverGaveUp := gaveUp(1, 105, 110, 4)
	foreverGaveUp.Times = Forever
	parks, waits := Outcome{Failure: "why", Park: true}, Outcome{Failure: "why", Wait: 500}
	waitsLong := Outcome{Failure: "why", Wait: math.MaxInt64}
	forever := again(func(r *Record) { r.Times, r.Grid = Forever, 110 })
	for name, c := range map[string]struct {
		record   *Record
		outcome  Outcome
		missed   Missed
		attempts uint64
		now      int64
		want     *Record
	}{
		"succeeded, in time":            {&before, Outcome{}, MissedOnce, 3, 105, at(110, 4)},
		"succeeded, at the next":        {&before, Outcome{}, MissedOnce, 3, 110, at(120, 5)},
		"succeeded, long after":         {&before, Outcome{}, MissedOnce, 3, 145, at(150, 8)},
		"succeeded, long after, skip":   {&before, Outcome{}, MissedSkip, 3, 145, at(150, 8)},
		"succeeded, long after, all":    {&before, Outcome{}, MissedAll, 3, 145, at(110, 4)},
		"succeeded, the clock set back": {&before, Outcome{}, MissedOnce, 3, 5, at(110, 4)},
		"succeeded, forever":            {times(Forever), Outcome{}, MissedOnce, 3, 105, forever},
		"succeeded, the last":           {times(1), Outcome{}, MissedOnce, 3, 105, nil},
		"succeeded, the last, all":      {times(1), Outcome{}, MissedAll, 3, 145, nil},
		// After 20, minus a quarter.
		"failed":                     {&before, FailedFor("why"), MissedOnce, 3, 105, fails(105, 120)},
		"failed, all":                {&before, FailedFor("why"), MissedAll, 3, 145, fails(145, 160)},
		"failed, at the end of time": {&before, FailedFor("why"), MissedOnce, 3, Latest - 1, fails(Latest-1, Latest)},
		"failed for the last time":   {&before, FailedFor("why"), MissedOnce, 2, 105, gaveUp(1, 105, 110, 4)},
		"failed, last, long after":   {&before, FailedFor("why"), MissedOnce, 2, 145, gaveUp(1, 145, 150, 8)},
		"failed, last, forever":      {times(Forever), FailedFor("why"), MissedOnce, 2, 105, foreverGaveUp},
		"failed, last of the last":   {times(1), FailedFor("why"), MissedOnce, 2, 105, lasts(105)},
		"failed once too often":      {&before, FailedFor("why"), MissedOnce, 1, 105, gaveUp(1, 105, 110, 4)}, // of more
		"given up twice":             {gaveUpOnce(times(3)), FailedFor("why"), MissedOnce, 2, 105, gaveUp(2, 105, 110, 4)},
		"succeeded, given up before": {gaveUpOnce(times(3)), Outcome{}, MissedOnce, 3, 105, at(110, 4)},
		"failed, given up before":    {gaveUpOnce(times(3)), FailedFor("why"), MissedOnce, 3, 105, gaveUpOnce(fails(105, 120))},
		"failed, park":               {&before, parks, MissedOnce, 9, 105, fails(105, Never)},
		"failed, after a time":       {&before, waits, MissedOnce, 3, 105, fails(105, 605)},
		"failed, at once":            {&before, Outcome{Failure: "why"}, MissedOnce, 3, 105, fails(105, 105)},
		"failed, last, after a time": {&before, waits, MissedOnce, 2, 105, gaveUp(1, 105, 110, 4)},
		"failed, after a long time":  {&before, waitsLong, MissedOnce, 3, 105, fails(105, Latest)},
	} {
		was := fmt.Sprintf("%+v", c.record)
		of := &Policy{Attempts: c.attempts, Least: 10, Most: 1000, Missed: c.missed}
		if c.want != nil {
			asof := *c.want
			asof.Asof = c.now
			c.want = &asof
		}
		if got := fmt.Sprintf("%+v", c.record.After(c.outcome, of, c.now, draw)); got != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%s:\ngot  %s\nwant %+v", name, got, c.want)
		}
		if is := fmt.Sprintf("%+v", c.record); is != was {
			t.Errorf("%s: the record was %s and is %s", name, was, is)
		}
	}
	want := with(func(r *Record) { r.Grid, r.Due, r.Missed, r.Asof = 150, 150, 9, 145 })
	if got := before.Skipped(145, 145); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("skipped: got %+v, want %+v", got, want)
	}
	want = again(func(r *Record) { r.Times, r.Grid, r.Asof = 3, 77, 70 })
	if got := before.Moved(77, 70); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("moved: got %+v, want %+v", got, want)
	}
}

func TestRecord_onGrid(t *testing.T) {
	for _, c := range []struct{ grid, interval, t, want int64 }{
		{10, 5, 9, 10}, {10, 5, 10, 15}, {10, 5, 14, 15}, {10, 5, 15, 20}, {0, 1, 1 << 62, 1<<62 + 1},
		{10, math.MaxInt64, 10, Latest}, {Latest - 1, 10, Latest - 1, Latest}, {0, 7, Latest, Latest},
	} {
		r := Record{Grid: c.grid, Interval: time.Duration(c.interval)}
		if got := r.onGrid(c.t); got != c.want {
			t.Errorf("from %d every %d, after %d comes %d, want %d", c.grid, c.interval, c.t, got, c.want)
		}
	}
}

func TestPolicy_wait_doublesUpToItsBound(t *testing.T) {
	k := Policy{Least: 3, Most: 1000}
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
	forever := Policy{Least: math.MaxInt64, Most: math.MaxInt64}
	if d := forever.wait(100, rand.Float64()); d <= 0 {
		t.Errorf("the longest wait is %d", d)
	}
}

// Each start with an unknown end is a failed attempt of the same run.
func TestRecord_interrupted(t *testing.T) {
	before := Record{Token: Token{Key: "k", Seq: 7}, Kind: "kind", Times: 3, Interval: 10, Grid: 100, Due: 101, Attempts: 1,
		Failed: []Failure{{50, "why"}}}
	for _, c := range []struct {
		starts   int
		allowed  uint64
		attempts uint64
		due      int64
	}{
		{0, 3, 1, 101}, {0, 1, 1, 101}, {1, 3, 2, 101}, {2, 3, 3, Never}, {1, 1, 2, Never}, {9, 3, 10, Never},
	} {
		want := before
		want.Attempts, want.Due = c.attempts, c.due
		if c.starts > 0 {
			want.Failed = nil
			for range min(c.starts, mostFailed) {
				want.Failed = append(want.Failed, Failure{200, "the process ended, or its lease expired, during the run"})
			}
			if c.starts < mostFailed {
				want.Failed = append(want.Failed, before.Failed...)
			}
		}
		got := before.Interrupted(c.starts, &Policy{Attempts: c.allowed, ParkRepeating: true}, 200)
		if fmt.Sprint(*got) != fmt.Sprint(want) {
			t.Errorf("%d starts of %d: got %+v, want %+v", c.starts, c.allowed, *got, want)
		}
	}
	want := before
	want.Times, want.Seq, want.Grid, want.Due, want.Attempts, want.Missed, want.GivenUp, want.Asof = 2, 8, 210, 210, 0, 10, 1, 200
	want.Failed = append([]Failure{{200, "the process ended, or its lease expired, during the run"}}, before.Failed...)
	if got := before.Interrupted(1, &Policy{Attempts: 2}, 200); fmt.Sprint(*got) != fmt.Sprint(want) {
		t.Errorf("given up: got %+v, want %+v", *got, want)
	}
	if before.Attempts != 1 || before.Failure() != "why" {
		t.Errorf("the record has become %+v", before)
	}
}

// A run that is as old as its kind allows is made, and an older one is skipped.
func TestPolicy_passesOver_whatIsOlderThanItsAge(t *testing.T) {
	k := Policy{Missed: MissedOnce, MissedAge: 10}
	for due, want := range map[int64]int64{91: engine.None, 90: engine.None, 89: 89, 50: 89} {
		if to := k.PassesOver(due, 100, true); to != want {
			t.Errorf("at 100, what was due at %d is passed over up to %d, want %d", due, to, want)
		}
	}
}

// A process that does not know the zone of a calendar parks the task when it computes the next run, and records the
// reason.
func TestRecord_unknownZone_parks(t *testing.T) {
	before := Record{Token: Token{Key: "k"}, Kind: "kind", Times: Forever, Cron: "CRON_TZ=Europe/Atlantis @daily", Grid: 100, Due: 100}
	of := &Policy{Attempts: 3, Least: 10, Most: 1000}
	for name, got := range map[string]*Record{
		"after":   before.After(Outcome{}, of, 105, 0),
		"skipped": before.Skipped(1000, 1000),
	} {
		want := "this process cannot read the schedule CRON_TZ=Europe/Atlantis @daily"
		if got.Due != Never || got.Failure() != want || got.Attempts != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if again := before.Moved(500, 400); again.Due != 500 || again.Failure() != "" {
		t.Errorf("moved: %+v", again)
	}
}
