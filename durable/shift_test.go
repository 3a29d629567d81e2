// SPDX-License-Identifier: MIT

package durable

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The missed runs of a shifted calendar, against a list of all of its instants.
func TestRecord_shiftedCalendar_asAList(t *testing.T) {
	testkit.NotForRaces(t)
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, c := range calendars {
		for _, zone := range []string{"UTC", "Europe/Berlin", "Australia/Lord_Howe"} {
			cron := "CRON_TZ=" + zone + " " + c.spec
			from := time.Date(2026, 3, 1+rnd.IntN(20), rnd.IntN(24), 0, 0, 0, time.UTC)
			calendar, err := parseCalendar(cron)
			if err != nil {
				t.Fatal(err)
			}
			var instants []time.Time
			for at := calendar.next(from); len(instants) < 400 && !at.IsZero() && !at.After(lastTime); at = calendar.next(at) {
				instants = append(instants, at)
			}
			for range 10 {
				shift := time.Duration(rnd.Int64N(int64(3 * 24 * time.Hour)))
				if rnd.IntN(4) == 0 {
					shift = 0
				}
				var list []int64
				for _, at := range instants {
					list = append(list, at.Add(shift).UnixNano())
				}
				first := func(after int64) int { // the index of the first instant after that
					i, found := slices.BinarySearch(list, after)
					if found {
						i++
					}
					return i
				}
				early := len(list) / 4
				grid := list[rnd.IntN(early)]
				if rnd.IntN(3) == 0 {
					grid += rnd.Int64N(list[early] - grid) // it was moved
				}
				now := grid + rnd.Int64N(list[len(list)-2]-grid)
				r := &record{key: "k", kind: "k", cron: cron, shift: shift, times: timesForever, grid: grid, due: grid}
				for missed, to := range map[missedRuns]int64{missedOnce: now, missedAll: grid} {
					of := &policy{attempts: 3, least: 1, most: 1, missed: missed}
					got := r.after(outcome{}, of, now, 0)
					want := list[first(to)]
					passed := uint64(first(to) - first(grid))
					if got.grid != want || got.due != want || got.missed != passed {
						t.Fatalf("%s, shifted by %v, due at %v, run at %v, policy %d: next at %v, %d missed, want %v and %d",
							cron, shift, time.Unix(0, grid), time.Unix(0, now), missed, time.Unix(0, got.grid), got.missed,
							time.Unix(0, want), passed)
					}
				}
				got := r.skipped(now)
				want, passed := list[first(now)], uint64(1+first(now)-first(grid))
				if now < grid {
					want, passed = grid, 0
				}
				if got.grid != want || got.missed != passed {
					t.Fatalf("%s, shifted by %v, due at %v, skipped up to %v: next at %v, %d missed, want %v and %d",
						cron, shift, time.Unix(0, grid), time.Unix(0, now), time.Unix(0, got.grid), got.missed,
						time.Unix(0, want), passed)
				}
				again, err := decode(engine.Record{Key: r.key, Due: r.due, Data: r.encode()})
				if err != nil || again.shift != shift {
					t.Fatalf("shifted by %v, it is read as shifted by %v, %v", shift, again.shift, err)
				}
			}
		}
	}
}
