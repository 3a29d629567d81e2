// SPDX-License-Identifier: MIT

package task

import (
	"math/rand/v2"
	"testing"
	"time"
)

const year = int64(365 * 24 * time.Hour)

// The clock is ahead while a run ends, and then it is set back: the next run is the first instant after the present that
// differs from the first run by a number of periods. A run that ends after the clock was set back is as good.
func TestRighted_interval_isTheNextInstantOfTheGrid(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		grid := rnd.Int64N(year) + year
		every := rnd.Int64N(int64(30*24*time.Hour)) + 1
		now := grid + rnd.Int64N(year)
		ahead := now + int64(MostAhead) + 1 + rnd.Int64N(50*year)
		of := &Policy{Attempts: 3, Least: 10, Most: 1000, Missed: Missed(rnd.IntN(2))}
		r := &Record{Token: Token{Key: "k"}, Kind: "k", Times: Forever, Interval: time.Duration(every), Grid: grid, Due: grid, Asof: grid}
		r = r.After(Outcome{}, of, ahead, 0)
		paused := rnd.IntN(2) == 0
		if paused {
			r = r.Held()
		}
		want := grid + ((now-grid)/every+1)*every
		got := r.Righted(now)
		due := got.Due
		if paused {
			due = got.Paused
		}
		if got.Grid != want || due != want || got.Seq != r.Seq || got.Missed != r.Missed {
			t.Fatalf("due at %d every %d, computed at %d, now %d: next at %d, due at %d, want %d",
				grid, every, ahead, now, got.Grid, due, want)
		}
		if got.Righted(now) != got {
			t.Fatalf("%+v is righted twice", got)
		}
		if after := r.After(Outcome{}, of, now, 0); after.Grid != want {
			t.Fatalf("due at %d every %d, computed at %d, ended at %d: next at %d, want %d", grid, every, ahead, now,
				after.Grid, want)
		}
	}
}

func TestRighted(t *testing.T) {
	at := func(text string) int64 {
		at, err := time.Parse(time.DateTime, text)
		if err != nil {
			t.Fatal(err)
		}
		return at.UnixNano()
	}
	of := &Policy{Attempts: 3, Least: time.Minute, Most: time.Hour, ParkRepeating: true}
	now, ahead := at("2026-03-01 12:00:30"), at("2036-03-01 12:00:30")
	nightly := &Record{Token: Token{Key: "k"}, Kind: "k", Times: Forever, Cron: "30 2 * * *", Grid: ahead - 10, Due: ahead - 10, Asof: ahead - year}
	hourly := &Record{Token: Token{Key: "k"}, Kind: "k", Times: Forever, Interval: time.Hour, Grid: ahead - 10, Due: ahead - 10, Asof: ahead - year}
	once := &Record{Token: Token{Key: "k"}, Kind: "k", Times: 1, Grid: now - 10, Due: now - 10}
	down := FailedFor("down")
	for name, c := range map[string]struct {
		from *Record
		want int64
	}{
		"a calendar":              {nightly.After(Outcome{}, of, ahead, 0), at("2026-03-02 02:30:00")},
		"a period":                {hourly.After(Outcome{}, of, ahead, 0), at("2026-03-01 13:00:30") - 10},
		"the last of two runs":    {(&Record{Times: 2, Interval: time.Hour, Grid: ahead, Due: ahead}).After(Outcome{}, of, ahead, 0), now + int64(time.Hour)},
		"another attempt":         {nightly.After(down, of, ahead, 0), now + int64(time.Minute)},
		"another attempt, once":   {once.After(down, of, ahead, 0), now + int64(time.Minute)},
		"snoozed":                 {hourly.After(Outcome{Snooze: true, Wait: 3 * time.Hour}, of, ahead, 0), now + int64(3*time.Hour)},
		"skipped":                 {nightly.Skipped(ahead, ahead), at("2026-03-02 02:30:00")},
		"moved":                   {nightly.Moved(ahead+5*year, ahead), now + 5*year},
		"moved by long":           {hourly.Moved(ahead+5*year, ahead), now + 5*year},
		"moved within the period": {nightly.Moved(ahead+10, ahead), at("2026-03-02 02:30:00")},
		"redefined":               {hourly.Redefined(nightlyAt(ahead), false, ahead), at("2026-03-02 02:30:00")},
		"resumed":                 {nightly.After(Outcome{}, of, ahead, 0).Held().Resumed(nil, ahead), at("2026-03-02 02:30:00")},
	} {
		got := c.from.Righted(now)
		if got.Due != c.want || got.Token != c.from.Token || got.Attempts != c.from.Attempts {
			t.Errorf("%s: due at %v, want %v: %+v", name, time.Unix(0, got.Due), time.Unix(0, c.want), got)
		}
		if got.Attempts == 0 && got.Snoozes == 0 && got.Grid != got.Due || got.Grid > max(now, got.Due) {
			t.Errorf("%s: the run is due at %v: %+v", name, time.Unix(0, got.Grid), got)
		}
		if later := c.from.Righted(ahead - int64(MostAhead)); later != c.from {
			t.Errorf("%s: a clock that was a minute ahead changes it to %+v", name, later)
		}
		if got.Repeats() { // the run after is on the grid, too
			if next := got.After(Outcome{}, of, got.Due, 0); next.Grid <= got.Due || next.Grid > got.Due+int64(24*time.Hour) {
				t.Errorf("%s: the run after is due at %v", name, time.Unix(0, next.Grid))
			}
		}
	}
	for name, r := range map[string]*Record{
		"chosen by a caller": nightly.Moved(ahead, 0),
		"once":               once.Moved(ahead, ahead),
		"parked":             nightly.After(Outcome{Failure: "x", Park: true}, of, ahead, 0),
		"parked, paused":     nightly.After(Outcome{Failure: "x", Park: true}, of, ahead, 0).Held(),
		"overdue":            {Times: Forever, Interval: time.Hour, Grid: now - 1, Due: now - 1, Asof: ahead},
		"of an unknown zone": {Times: Forever, Cron: "CRON_TZ=Europe/Atlantis @daily", Grid: ahead, Due: ahead, Asof: ahead},
	} {
		if got := r.Righted(now); got != r {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func nightlyAt(now int64) *Record {
	r := &Record{Kind: "k", Times: Forever, Cron: "30 2 * * *", Asof: now}
	r.Grid = NextOf(r.Cron, now, 0)
	return r
}

// A run that ended its process, or had no attempts left, counts from the present as well.
func TestRighted_interrupted(t *testing.T) {
	of := &Policy{Attempts: 1, Least: 10, Most: 1000}
	r := &Record{Times: Forever, Interval: time.Hour, Grid: 10 * year, Due: 10 * year, Asof: 10 * year}
	if got := r.Interrupted(1, of, year); got.Grid > year+int64(time.Hour) || got.Grid <= year || got.GivenUp != 1 {
		t.Errorf("%+v", got)
	}
}

// A run that is moved is not complete: the runs that were given up still count.
func TestMoved_keepsTheRunsThatWereGivenUp(t *testing.T) {
	given := &Record{Token: Token{Key: "k"}, Kind: "k", Times: Forever, Interval: time.Hour, GivenUp: 2, Failed: []Failure{{Text: "it fails"}}, Attempts: 1}
	if r := given.Moved(1000, 5); r.GivenUp != 2 || len(r.Failed) != 1 || r.Attempts != 0 || r.Due != 1000 {
		t.Errorf("the task is %+v", r)
	}
	failing := &Record{Token: Token{Key: "k"}, Kind: "k", Times: Forever, Interval: time.Hour, Failed: []Failure{{Text: "it fails"}}, Attempts: 1}
	if r := failing.Moved(1000, 5); r.GivenUp != 0 || len(r.Failed) != 0 {
		t.Errorf("the task is %+v", r)
	}
}
