// SPDX-License-Identifier: MIT

package task

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The missed runs of a shifted calendar, compared with a list of all its instants.
func TestRecord_shiftedCalendar_asAList(t *testing.T) {
	testkit.NotForRaces(t)
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, c := range calendars {
		for _, zone := range []string{"UTC", "Europe/Berlin", "Australia/Lord_Howe"} {
			cron := "CRON_TZ=" + zone + " " + c.spec
			from := time.Date(2026, 3, 1+rnd.IntN(20), rnd.IntN(24), 0, 0, 0, time.UTC)
			calendar, err := ParseCalendar(cron)
			if err != nil {
				t.Fatal(err)
			}
			var instants []time.Time
			for at := calendar.Next(from); len(instants) < 400 && !at.IsZero() && !at.After(LastTime); at = calendar.Next(at) {
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
				first := func(after int64) int { // the index of the first instant after it
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
				r := &Record{Token: Token{Key: "k"}, Kind: "k", Cron: cron, Shift: shift, Times: Forever, Grid: grid, Due: grid}
				for missed, to := range map[Missed]int64{MissedOnce: now, MissedAll: grid} {
					of := &Policy{Attempts: 3, Least: 1, Most: 1, Missed: missed}
					got := r.After(Outcome{}, of, now, 0)
					want := list[first(to)]
					passed := uint64(first(to) - first(grid))
					if got.Grid != want || got.Due != want || got.Missed != passed {
						t.Fatalf("%s, shifted by %v, due at %v, run at %v, policy %d: next at %v, %d missed, want %v and %d",
							cron, shift, time.Unix(0, grid), time.Unix(0, now), missed, time.Unix(0, got.Grid), got.Missed,
							time.Unix(0, want), passed)
					}
				}
				got := r.Skipped(now, now)
				want, passed := list[first(now)], uint64(1+first(now)-first(grid))
				if now < grid {
					want, passed = grid, 0
				}
				if got.Grid != want || got.Missed != passed {
					t.Fatalf("%s, shifted by %v, due at %v, skipped up to %v: next at %v, %d missed, want %v and %d",
						cron, shift, time.Unix(0, grid), time.Unix(0, now), time.Unix(0, got.Grid), got.Missed,
						time.Unix(0, want), passed)
				}
				again, err := Decode(engine.Record{Key: r.Key, Due: r.Due, Data: r.Encode()})
				if err != nil || again.Shift != shift {
					t.Fatalf("shifted by %v, it is read as shifted by %v, %v", shift, again.Shift, err)
				}
			}
		}
	}
}
