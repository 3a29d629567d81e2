// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The tests in this file cover clock faults and wheels of extreme shapes. The faults of jobs, executors, loggers and
// callers are covered in test/faults_test.go. The rig checks the internal structure and the counters at the end.

func TestFault_clockJumpsAnHour_overdueTasksRunOnceInTheOrderOfTheirTicks(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		var want []string
		for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(59) {
			w.once(fmt.Sprintf("%02d", i), time.Duration(i+1)*time.Minute)
		}
		for i := range 59 {
			want = append(want, fmt.Sprintf("%02d", i))
		}
		w.add(&Task{Key: "often", Interval: time.Second, Delay: time.Hour - time.Second/2, Times: Forever})
		w.add(&Task{Key: "counted", Interval: time.Hour - time.Second/4, Times: 2})
		w.once("later", time.Hour+time.Second)
		synctest.Wait()
		w.advance(time.Hour)
		w.wantRuns(append(want, "often", "counted")...)
		w.advance(time.Second)
		w.wantRuns("often", "later")
		if s := w.Stats(); s.Missed != 0 || s.Pending != 2 {
			t.Errorf("%+v", s)
		}
		w.advance(time.Hour)
		w.wantRuns("often", "counted")
		if s := w.Stats(); s.Missed != 3599 || s.Pending != 1 {
			t.Errorf("%+v, want 3599 missed", s)
		}
	})
}

func TestFault_clockStandsStill_allButTheRunsGoesOn(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		for i := range 1000 {
			w.once(fmt.Sprint(i), time.Duration(1+i%100)*time.Millisecond)
		}
		synctest.Wait()
		before := w.hand.sleeps.Load()
		for i := range 1000 {
			if i%2 == 0 {
				if err := w.RemoveTask(fmt.Sprint(i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Hour) // an hour in the bubble, not on the wheel's clock
		w.wantRuns()
		if n := w.hand.sleeps.Load() - before; n > 1000+10 { // the loop may look once for each removal
			t.Errorf("the loop went to sleep %d times while the clock stood still", n)
		}
		w.advance(time.Second)
		if s := w.Stats(); s.Finished != 500 || s.Removed != 500 || s.Pending != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestFault_ticksLost_forManyRevolutions(t *testing.T) {
	for _, revolutions := range []int{1, 10, 10_000} {
		plan{tick: time.Millisecond, slots: 50}.in(t, func(t *testing.T, w *rig) {
			w.Start()
			lost := time.Duration(50*revolutions) * time.Millisecond
			w.add(&Task{Key: "every", Interval: 7 * time.Millisecond, Times: Forever})
			w.once("first", time.Nanosecond)
			w.once("middle", lost/2)
			w.once("last", lost)
			w.once("one more", lost+1)
			synctest.Wait()
			w.advance(lost + time.Millisecond - 1)
			w.wantRuns("first", "every", "middle", "last")
			w.advance(1)
			w.wantRuns("one more")
			w.advance(7 * time.Millisecond)
			w.wantRuns("every")
			if s := w.Stats(); s.Due != s.Started+s.Missed || s.Started != 6 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestFault_strangeShapes_runOnTime(t *testing.T) {
	testkit.NotForRaces(t)
	const century = 100 * 365 * 24 * time.Hour
	for _, c := range []struct {
		tick  time.Duration
		slots int
	}{
		{time.Millisecond, 1}, {time.Millisecond, 1 << 20}, {1, 1}, {1, 1 << 20}, {century, 1}, {century, 60},
	} {
		plan{tick: c.tick, slots: c.slots}.in(t, func(t *testing.T, w *rig) {
			w.Start()
			delays := []time.Duration{1, c.tick - 1, c.tick, c.tick + 1}
			for i := range 3 {
				delays = append(delays, time.Duration(min(uint64(c.tick)*uint64(c.slots)+uint64(i)-1, math.MaxInt64)))
			}
			for i, d := range delays {
				w.add(&Task{Key: fmt.Sprint(i), Interval: max(d, 1), Times: 1})
			}
			synctest.Wait()
			for w.Len() > 0 {
				next := w.loop.ticks.instant(w.loop.layout.next())
				if next == never {
					t.Fatalf("%d tasks wait for nothing", w.Len())
				}
				w.ran = nil
				w.advance(until(next, w.loop.now()) - 1)
				w.wantRuns() // before the tick
				w.advance(1)
			}
			if s := w.Stats(); s.Finished != uint64(len(delays)) {
				t.Errorf("tick %v, %d slots: %+v", c.tick, c.slots, s)
			}
		})
	}
}

// The tick counter crosses every point at which an integer of some width would wrap.
func TestFault_tickCounter_crossesEveryWrapPoint(t *testing.T) {
	testkit.NotForRaces(t)
	for _, start := range []uint64{1 << 31, 1 << 32, 1 << 53, 1<<63 - 1} {
		for _, slots := range []int{1, 7, 60, 1024} {
			plan{tick: 1, slots: slots, clock: start - 500}.in(t, func(t *testing.T, w *rig) {
				w.Start()
				const n = 1000
				for i := range n {
					w.once(fmt.Sprintf("%04d", i), time.Duration(1+i))
				}
				w.add(&Task{Key: "every", Interval: 10, Delay: n + 1, Times: 3})
				synctest.Wait()
				for i := range n {
					w.advance(1)
					w.wantRuns(fmt.Sprintf("%04d", i))
				}
				for range 3 {
					w.advance(1)
					w.wantRuns("every")
					w.advance(9)
				}
			})
		}
	}
}

func TestFault_threeHundredYears_onTheGrid(t *testing.T) {
	const year = 365 * 24 * time.Hour
	plan{tick: time.Second, slots: 3600}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.add(&Task{Key: "daily", Interval: 24 * time.Hour, Times: Forever})
		w.add(&Task{Key: "yearly", Interval: year, Times: Forever})
		w.once("in 290 years", 290*year)
		w.once("in 290 years and a second", 290*year+time.Second)
		synctest.Wait()
		for range 300 {
			w.advance(year)
		}
		s := w.Stats()
		if s.Started != 300+300+2 || s.Missed != 300*364 || s.Pending != 2 {
			t.Errorf("after 300 years %+v", s)
		}
		w.ran = nil
		w.advance(24*time.Hour - 1)
		w.wantRuns()
		w.advance(1)
		w.wantRuns("daily")
	})
}
