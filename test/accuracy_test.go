// SPDX-License-Identifier: MIT

package test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

// These tests run in real time. How late a run is depends on the machine. That it is never early does not.

func TestAccuracy_inRealTime_neverEarly(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		if testkit.Race {
			t.Skip("takes real time, and is slow")
		}
		for _, tick := range []time.Duration{100 * time.Microsecond, ms, 7 * ms, 50 * ms} {
			tw := startWheel(t, tick, 32)
			random := seeded()
			const n = 500
			early := make(chan time.Duration, n)
			for range n {
				d := time.Duration(random.Int64N(int64(150 * ms)))
				start := time.Now()
				tw.AfterFunc(d, func() { early <- d - time.Since(start) })
			}
			for range n {
				select {
				case e := <-early:
					if e > 0 {
						t.Errorf("tick %v: a run began %v early", tick, e)
					}
				case <-time.After(time.Minute):
					t.Fatalf("tick %v: not all of %d tasks have run within a minute", tick, n)
				}
			}
			balanced(t, tw, n)
		}
	})
}

// A loop wakes up some microseconds after each tick. A task that repeats every tick, and is due between the tick and
// the wake-up, must not miss a period because of that. A period is missed only if its tick comes before the previous
// period's run begins. A busy machine may cause that, but not at every try.
func TestAccuracy_inRealTime_intervalOfOneTick_missesNoPeriod(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		if testkit.Race {
			t.Skip("takes real time, and is slow")
		}
		const tick, tasks, periods, tries = 10 * ms, 40, 20, 20
		for range tries {
			var mu sync.Mutex // protects runs
			runs := make(map[string][]timewheel.Run)
			note := func(r timewheel.Run) {
				mu.Lock()
				defer mu.Unlock()
				runs[r.Key] = append(runs[r.Key], r)
			}
			before := time.Now()
			tw := startWheel(t, tick, 16, timewheel.WithObserver(note))
			made := time.Now()                      // the wheel counts its ticks from some microseconds earlier
			least := make(map[string]time.Duration) // from a run's due time to the tick of its next period
			for i := range tasks {
				for time.Since(made) < tick+time.Duration(i)*10*time.Microsecond {
					continue
				}
				must(t, tw.AddTask(every(name(i), tick, nothing)))
				least[name(i)] = max(tick, 3*tick-time.Since(before))
			}
			for tw.Stats().Due < tasks*periods {
				<-time.After(tick)
			}
			must(t, tw.Shutdown(t.Context()))
			for key, all := range runs {
				slices.SortFunc(all, func(a, b timewheel.Run) int { return a.Due.Compare(b.Due) })
				for i, r := range all[1:] {
					last := all[i]
					if began := last.Started.Sub(last.Due); r.Due.Sub(last.Due) > tick && began < least[key] {
						t.Errorf("%s missed a period, and its run before began %v after it was due, less than %v",
							key, began, least[key])
					}
				}
			}
			if t.Failed() || tw.Stats().Missed == 0 {
				return
			}
		}
	})
}

func TestAccuracy_inRealTime_repeatsKeepTheirGrid(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		if testkit.Race {
			t.Skip("takes real time, and is slow")
		}
		const interval, n = 7 * ms, 30
		runs := make(chan timewheel.Run, n)
		tw := startWheel(t, 2*ms, 16, timewheel.WithObserver(func(r timewheel.Run) { runs <- r }))
		start := time.Now()
		must(t, tw.AddTask(times("k", interval, n, nothing)))
		latest := time.Now()
		var first time.Time
		for k := range n {
			r := <-runs
			if k == 0 {
				first = r.Due
				if first.Before(start.Add(interval)) || first.After(latest.Add(interval)) {
					t.Errorf("the first run was due %v after AddTask", first.Sub(start))
				}
			}
			// The order of the reports may differ from that of the runs, and a stalled machine misses periods.
			if off := r.Due.Sub(first) % interval; off != 0 || r.Started.Before(r.Due) || r.Dispatched.Before(r.Due) {
				t.Errorf("%v off the grid; due %v, dispatched %v, started %v", off, r.Due, r.Dispatched, r.Started)
			}
		}
		tw.Stop()
		balanced(t, tw, 1)
	})
}
