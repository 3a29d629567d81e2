// SPDX-License-Identifier: MIT

package task

import (
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A task with the interval 10 whose run is due at 100, after its second attempt. Its last run is the last one that is due by Until.
func TestRecord_until(t *testing.T) {
	const ends, parked = -1, -2
	for _, c := range []struct {
		name   string
		until  int64
		o      Outcome
		missed Missed
		now    int64
		grid   int64 // of the task afterwards
	}{
		{"no end", 0, Outcome{}, MissedOnce, 105, 110},
		{"the next run is the last", 110, Outcome{}, MissedOnce, 105, 110},
		{"the next run would be too late", 109, Outcome{}, MissedOnce, 105, ends},
		{"the first run is due too late", 50, Outcome{}, MissedOnce, 105, ends},
		{"the run took until the end", 130, Outcome{}, MissedOnce, 131, ends},
		{"the run took long", 130, Outcome{}, MissedOnce, 125, 130},
		{"the run took until the end, all", 130, Outcome{}, MissedAll, 131, 110},
		{"given up", 110, FailedFor("why"), MissedOnce, 105, 110},
		{"failed, the last", 109, FailedFor("why"), MissedOnce, 105, parked},
		{"failed, until the end", 130, FailedFor("why"), MissedOnce, 131, parked},
		{"parked", 130, Outcome{Failure: "why", Park: true}, MissedOnce, 105, parked},
	} {
		before := Record{Token: Token{Key: "k", Seq: 7}, Kind: "kind", Interval: 10, Times: Forever, Grid: 100, Due: 101, Attempts: 1, Until: c.until,
			Failed: []Failure{{99, "the first"}}}
		after := before.After(c.o, &Policy{Attempts: 2, Least: 1, Most: 1, Missed: c.missed}, c.now, 0)
		switch {
		case after == nil:
			if c.grid != ends {
				t.Errorf("%s: the task has ended", c.name)
			}
		case c.grid == parked:
			if !after.IsParked() || len(after.Failed) != 2 || after.GivenUp != 0 || after.Seq != 7 || after.Grid != 100 {
				t.Errorf("%s: %+v", c.name, after)
			}
		case after.Grid != c.grid || after.Due != c.grid || after.Until != c.until:
			t.Errorf("%s: %+v", c.name, after)
		}
	}
}

// The last run by Until is not skipped, and neither is the one before if the other would be due too late.
func TestRecord_until_skipsNotTheLast(t *testing.T) {
	for _, c := range []struct{ until, to, want int64 }{
		{0, 155, 155}, {160, 155, 155}, {159, 155, engine.None}, {100, 155, engine.None}, {160, engine.None, engine.None},
	} {
		r := Record{Interval: 10, Times: Forever, Grid: 100, Due: 100, Until: c.until}
		if got := r.SkipsTo(c.to); got != c.want {
			t.Errorf("until %d, skipped to %d: %d, want %d", c.until, c.to, got, c.want)
		}
	}
	for until, repeats := range map[int64]bool{0: true, 110: true, 109: false} {
		r := Record{Interval: 10, Times: Forever, Grid: 100, Until: until}
		if r.Repeats() != repeats || r.Skippable() != repeats {
			t.Errorf("until %d it repeats: %t", until, r.Repeats())
		}
		if r.Times = 1; r.Repeats() {
			t.Errorf("until %d, its last run repeats", until)
		}
	}
	paused := Record{Interval: 10, Times: Forever, Grid: 100, Due: PausedDue, Paused: 100, Until: 120}
	if r := paused.Resumed(&Policy{Missed: MissedSkip}, 119); r.Grid != 120 {
		t.Errorf("resumed before the last run: %+v", r)
	}
	if r := paused.Resumed(&Policy{Missed: MissedSkip}, 121); r.Grid != 100 || r.Due != 100 {
		t.Errorf("resumed after the last run: %+v", r)
	}
	unknown := Record{Cron: "CRON_TZ=No/Where * * * * *", Times: Forever, Grid: 100, Until: 120}
	if next := unknown.After(Outcome{}, &Policy{Attempts: 1}, 105, 0); next == nil || !next.IsParked() {
		t.Errorf("a calendar that cannot be read: %+v", next)
	}
}
