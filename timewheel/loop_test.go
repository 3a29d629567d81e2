// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/clock"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

func TestLoop_nothingDueSoon_sleeps(t *testing.T) {
	plan{tick: time.Millisecond}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.once("far", time.Hour)
		w.once("farther", 2*time.Hour)
		w.rest()
		before := w.hand.sleeps.Load()
		for range 1000 {
			w.advance(time.Millisecond)
		}
		if n := w.hand.sleeps.Load() - before; n != 0 {
			t.Errorf("in 1000 ticks with nothing due the loop woke up %d times", n)
		}
		w.advance(time.Second - 20*poll) // 2 s since the loop came to rest
		for range 3597 {
			w.advance(time.Second)
		}
		// an hour is 60,000 circles: the task may move twice on its way, and so may the later one
		if n := w.hand.sleeps.Load() - before; n > 6 {
			t.Errorf("in an hour with nothing due the loop woke up %d times", n)
		}
		w.wantRuns()
		w.advance(time.Second)
		w.wantRuns("far")
	})
}

func TestLoop_emptyWheel_neverWakesUp(t *testing.T) {
	plan{tick: time.Millisecond}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.once("gone", time.Second)
		if err := w.RemoveTask("gone"); err != nil {
			t.Fatal(err)
		}
		w.rest()
		before := w.hand.sleeps.Load()
		for range 100 {
			w.advance(time.Minute)
		}
		if n := w.hand.sleeps.Load() - before; n != 0 {
			t.Errorf("an empty wheel woke up %d times", n)
		}
	})
}

func TestLoop_atRest_hearsOfAnOperationAtOnce(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		synctest.Wait()
		for _, op := range []struct {
			what  string
			do    func() error
			later int // entries that the operation may post after the loop has looked
		}{
			{"add", func() error { return w.AddTask(&Task{Key: "k", Interval: time.Hour, Job: ignore}) }, 0},
			{"move nearer", func() error { return w.Reschedule("k", time.Minute) }, 0},
			{"replace", func() error { return w.SetTask(&Task{Key: "k", Interval: time.Hour, Job: ignore}) }, 1},
			{"remove", func() error { return w.RemoveTask("k") }, 0},
		} {
			if err := op.do(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the clock stands still
			if n := w.posted(); n > op.later {
				t.Errorf("%s: %d operations wait for a loop at rest", op.what, n)
			}
			w.rest()
		}
		w.once("k", time.Second)
		synctest.Wait()
		w.advance(2 * time.Second) // and the remainder of a tick
		w.wantRuns("k")
	})
}

// busy makes a loop at rest find a post, after which it polls for further posts.
func (w *rig) busy() {
	w.Helper()
	synctest.Wait()
	if alarm := w.loop.alarm.Load(); alarm != never {
		w.Fatalf("the alarm of the loop is set to %d, it does not rest", alarm)
	}
	e := &entry{} // dead, and so needs no work
	e.state.Store(done)
	w.loop.post(e, moved, noHurry)
	synctest.Wait()
	if alarm := w.loop.alarm.Load(); alarm != later(w.loop.now(), poll) {
		w.Fatalf("the alarm of the busy loop is set to %d, now is %d", alarm, w.loop.now())
	}
}

func TestLoop_aFewOperations_wakeItUpOnce(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		synctest.Wait()
		before := w.hand.sleeps.Load()
		for i := range 10 {
			w.once(strconv.Itoa(i), time.Hour)
			synctest.Wait()
			w.advance(poll / 20)
		}
		if n := w.hand.sleeps.Load() - before; n > 2 {
			t.Errorf("ten operations within half a millisecond woke the loop up %d times", n)
		}
	})
}

func TestLoop_busy_looksAfterAPollAndSoonerOnlyForWhatIsDue(t *testing.T) {
	plan{tick: time.Microsecond}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.busy()
		w.once("after the alarm", time.Hour)
		synctest.Wait()
		if n := w.posted(); n != 1 {
			t.Errorf("%d operations wait for a busy loop, want 1", n)
		}
		w.once("before the alarm", 10*time.Microsecond)
		synctest.Wait()
		if n := w.posted(); n != 0 {
			t.Errorf("a due time before the alarm left %d operations waiting", n)
		}
		w.advance(10 * time.Microsecond)
		w.wantRuns("before the alarm")
		w.advance(2 * poll)

		w.busy()
		w.once("later", time.Minute)
		w.advance(poll - 1)
		if n := w.posted(); n != 1 {
			t.Errorf("before the alarm %d operations wait, want 1", n)
		}
		w.advance(1)
		if n := w.posted(); n != 0 {
			t.Errorf("at the alarm %d operations wait", n)
		}
		w.advance(poll) // nothing came: the loop rests
		if alarm := w.loop.alarm.Load(); alarm != never {
			t.Errorf("the alarm of a loop at rest is %d", alarm)
		}
	})
}

func TestLoop_busy_dueAtTheAlarm_isNotLate(t *testing.T) {
	plan{tick: time.Microsecond}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.busy()
		w.once("k", poll)
		synctest.Wait()
		if n := w.posted(); n != 1 {
			t.Errorf("%d operations wait for the alarm, want 1", n)
		}
		w.advance(poll)
		w.wantRuns("k")
	})
}

func TestLoop_stall_overdueRunsComeInTheOrderOfTheirTicks(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.once("last", time.Hour)
		w.once("second", 10*time.Minute)
		w.once("third", 10*time.Minute+1) // in the next tick
		w.once("first", time.Millisecond)
		w.once("not yet", time.Hour+time.Millisecond)
		w.once("fifth", 45*time.Minute+3)
		w.once("fourth", 45*time.Minute+2) // in the same tick, so in any order
		w.once("moved", time.Second)
		synctest.Wait()
		if err := w.Reschedule("moved", 50*time.Minute); err != nil { // the loop finds it at the old time
			t.Fatal(err)
		}
		synctest.Wait()
		w.advance(time.Hour)
		w.wantTicks([]string{"first"}, []string{"second"}, []string{"third"}, []string{"fourth", "fifth"}, []string{"moved"},
			[]string{"last"})
		w.advance(10 * time.Millisecond)
		w.wantRuns("not yet")
	})
}

func TestLoop_stall_repeatingTaskRunsOnceAndRejoinsItsGrid(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.add(&Task{Key: "second", Interval: time.Second, Times: 3})
		w.add(&Task{Key: "25ms", Interval: 25 * time.Millisecond, Delay: time.Millisecond, Times: Forever})
		synctest.Wait()
		w.advance(time.Hour + 355*time.Millisecond)
		w.wantRuns("25ms", "second")
		// due at 1 s, …, 3600 s, and at 1 ms, …, 1 h + 326 ms; the tick of the one at 351 ms has not come
		missed := uint64(3600-1) + 3600*40 + 14 - 1
		if s := w.Stats(); s.Missed != missed || s.Due != missed+2 || s.Started != 2 {
			t.Errorf("after the stall %+v, want %d missed", s, missed)
		}
		if n := w.GetTaskTimes("second"); n != 2 {
			t.Errorf("what was missed used up Times: %d runs are left, want 2", n)
		}
		w.advance(20 * time.Millisecond) // 375 ms
		w.wantRuns("25ms")
		w.advance(5 * time.Millisecond) // 376 ms was the due time, 380 the tick
		w.wantRuns("25ms")
		if err := w.RemoveTask("25ms"); err != nil {
			t.Fatal(err)
		}
		w.advance(619 * time.Millisecond)
		w.wantRuns()
		w.advance(time.Millisecond)
		w.wantRuns("second")
		w.advance(time.Second)
		w.wantRuns("second")
		if s := w.Stats(); s.Missed != missed || s.Finished != 1 {
			t.Errorf("in the end %+v, want %d missed and 1 finished", s, missed)
		}
	})
}

// The loop wakes up slightly after each tick. A task that is due just after a tick, and again a tick later, must not
// miss every other period because of that: a run whose tick has not yet come is not late.
func TestLoop_lateByLessThanATick_missesNoPeriod(t *testing.T) {
	testkit.NotForRaces(t)
	const tick, late = 10 * time.Millisecond, 50 * time.Microsecond
	for _, phase := range []time.Duration{0, time.Nanosecond, late / 2, late, 2 * late, tick - 1} {
		for _, interval := range []time.Duration{tick / 3, tick, tick + tick/2, 2 * tick} {
			plan{tick: tick}.in(t, func(t *testing.T, w *rig) {
				w.Start()
				w.advance(phase)
				w.add(&Task{Key: "k", Interval: interval, Times: Forever})
				w.advance(late - phase%tick + tick)
				for range 600 {
					w.advance(tick)
				}
				period := max(interval, tick)
				s := w.Stats()
				if least := uint64(599 * tick / period); s.Missed != 0 || s.Started < least || s.Started > least+3 {
					t.Errorf("phase %v, interval %v: %d runs and %d missed", phase, interval, s.Started, s.Missed)
				}
			})
		}
	}
}

func TestLoop_lostTicks_loseNoTask(t *testing.T) {
	const tick, slots = 10 * time.Millisecond, 60
	for _, revolutions := range []int{1, 10, 10_000} {
		t.Run(fmt.Sprint(revolutions), func(t *testing.T) {
			plan{tick: tick, slots: slots, clock: uint64(tick) * 7}.in(t, func(t *testing.T, w *rig) {
				w.Start()
				lost := revolutions * slots
				ticks := []int{
					lost + 1, 1, slots - 1, slots, slots + 1, 2 * slots, lost, lost - 1, lost / 2, 2 * lost,
				}
				for _, n := range ticks {
					task := &Task{Key: fmt.Sprint(n), Interval: time.Duration(n) * tick, Job: w.job}
					if err := w.SetTask(task); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				slices.Sort(ticks)
				ticks = slices.Compact(ticks)
				due := func(upTo int) (keys []string) {
					for len(ticks) > 0 && ticks[0] <= upTo {
						keys = append(keys, fmt.Sprint(ticks[0]))
						ticks = ticks[1:]
					}
					return keys
				}
				w.advance(time.Duration(lost) * tick)
				w.wantRuns(due(lost)...)
				w.advance(tick)
				w.wantRuns(due(lost + 1)...)
				w.advance(time.Duration(lost)*tick - tick - 1)
				w.wantRuns(due(2*lost - 1)...)
				w.advance(1)
				w.wantRuns(due(2 * lost)...)
				if len(ticks) != 0 {
					t.Errorf("%d tasks are left over", len(ticks))
				}
			})
		})
	}
}

func TestLoop_wallClockIsSet_nothingHappens(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.add(&Task{Key: "k", Interval: time.Second, Times: Forever})
		synctest.Wait()
		for _, leap := range []time.Duration{10 * 365 * 24 * time.Hour, -20 * 365 * 24 * time.Hour, 0} {
			w.hand.SetWall(leap)
			w.advance(time.Second - 1)
			w.wantRuns()
			w.advance(1)
			w.wantRuns("k")
			info, ok := w.Get("k")
			if want := w.hand.Time(w.hand.Now() + uint64(time.Second)); !ok || !info.Next.Equal(want) {
				t.Errorf("clock set by %v: the next run is due at %v, want %v", leap, info.Next, want)
			}
		}
	})
}

// A wheel may be created on a clock that has been running for a long time, and may outlast the clock, which ends after
// 584 years.
func TestLoop_oldClock_makesNoDifference(t *testing.T) {
	const year = 365 * 24 * uint64(time.Hour)
	for name, start := range map[string]uint64{
		"new":            0,
		"a moment old":   1,
		"32 bits":        1<<32 - uint64(time.Second),
		"half its range": math.MaxInt64 - uint64(30*time.Second),
		"centuries old":  500 * year,
		"near its end":   never - 2*uint64(time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			plan{clock: start}.in(t, func(t *testing.T, w *rig) {
				w.once("before start", time.Second)
				w.Start()
				w.once("forever", math.MaxInt64)
				w.add(&Task{Key: "minutes", Interval: time.Minute, Times: Forever})
				synctest.Wait()
				w.advance(time.Second - 1)
				w.wantRuns()
				w.advance(10 * time.Millisecond) // to the next tick
				w.wantRuns("before start")
				w.advance(59 * time.Second)
				w.wantRuns("minutes")
				w.advance(30 * time.Minute)
				w.wantRuns("minutes")
				if s := w.Stats(); s.Missed != 29 || s.Pending != 2 {
					t.Errorf("after half an hour %+v, want 29 missed", s)
				}
				want := w.hand.Time(later(start, math.MaxInt64))
				info, ok := w.Get("forever")
				if early := want.Sub(info.Next); !ok || early < 0 || early > 10*time.Millisecond {
					t.Errorf("the farthest task is due at %v, want %v", info.Next, want)
				}
			})
		})
	}
}

func TestLoop_manyPosts_beforeStartAndAfterStop(t *testing.T) {
	const n = 1000
	plan{}.in(t, func(t *testing.T, w *rig) {
		for i := range n {
			w.once(fmt.Sprint(i), time.Second)
		}
		w.advance(time.Minute)
		w.Start()
		synctest.Wait()
		if s := w.Stats(); s.Finished != n {
			t.Errorf("%d of %d tasks ran", s.Finished, n)
		}
		for i := range n {
			w.once(fmt.Sprint(i), time.Second)
		}
		w.Stop()
		for i := range n {
			if err := w.RemoveTask(fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		if n := w.posted(); n != 0 {
			t.Errorf("%d posts were left over", n)
		}
	})
}

// No caller waits for a delayed loop.
func TestLoop_heldUp_holdsUpNoVerb(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		release := make(chan struct{})
		go w.loop.do(func() { <-release })
		synctest.Wait()
		const callers, each = 10, 1000
		var all sync.WaitGroup
		for c := range callers {
			all.Go(func() {
				for i := range each {
					w.once(fmt.Sprint(c, " ", i), time.Second)
				}
			})
		}
		all.Wait()
		if n := w.posted(); n != callers*each {
			t.Errorf("%d posts wait, want %d", n, callers*each)
		}
		close(release)
		synctest.Wait()
		if n := w.Len(); n != callers*each {
			t.Errorf("%d tasks were added, want %d", n, callers*each)
		}
		w.advance(time.Second)
		if s := w.Stats(); s.Finished != callers*each {
			t.Errorf("%d tasks ran, want %d", s.Finished, callers*each)
		}
	})
}

// Each inbox reuses the slice of the previous inbox for new posts. The slice of a burst is not retained.
func TestLoop_look_givesTheRoomOfABurstBack(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.once("k", time.Hour)
		w.loop.running.Store(true) // but no loop is running, so posts stay in the inbox
		for range 10 * maxVisit {
			w.loop.post(w.entry("k"), moved, noHurry)
		}
		w.loop.lookLoop(w.loop.now())
		w.loop.running.Store(false)
		room := cap(w.loop.read)
		for i := range w.loop.inboxes {
			room += cap(w.loop.inboxes[i].in)
		}
		if room > maxVisit {
			t.Errorf("the inboxes keep room for %d posts", room)
		}
	})
}

// A post that arrives during a look is left for the next look. Otherwise callers could keep the loop from its ticks.
func TestLoop_look_emptiesEachInboxOnce(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.loop.running.Store(true) // but no loop is running, so posts stay in the inbox
		w.once("k", time.Hour)
		e := w.entry("k")
		if w.loop.lookLoop(w.loop.now()) == 0 || w.posted() != 0 || !e.placed() {
			t.Error("a look into an inbox found nothing")
		}
		for range 10 {
			w.loop.post(e, moved, noHurry)
		}
		if n := w.posted(); n != 10 {
			t.Errorf("%d posts are left for the next look, want 10", n)
		}
		if w.loop.lookLoop(w.loop.now()) == 0 || w.loop.lookLoop(w.loop.now()) > 0 {
			t.Error("the second look finds nothing, or the third finds something")
		}
		w.loop.running.Store(false)
	})
}

func TestLoop_end_letsNobodyWait(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.loop.running.Store(true) // but no loop is running, so posts stay in the inbox
		const callers = 100
		for i := range callers {
			w.once(fmt.Sprint(i), time.Hour)
		}
		done := false
		go w.loop.do(func() { done = true })
		synctest.Wait()
		w.loop.end()
		synctest.Wait()
		if n := w.posted(); n != 0 || w.Len() != callers {
			t.Errorf("%d tasks were added, want %d, and %d posts left over", w.Len(), callers, n)
		}
		if !done {
			t.Error("what was asked of the loop was not done")
		}
	})
}

func TestLoop_heldUp_firesInTheOrderOfTheTicks(t *testing.T) {
	plan{tick: time.Microsecond}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		release := make(chan struct{})
		go w.loop.do(func() { <-release })
		synctest.Wait()
		w.once("second", 2*time.Microsecond)
		w.once("first", time.Microsecond)
		w.add(&Task{Key: "often", Interval: time.Second, Times: Forever})
		w.advance(time.Minute)
		w.wantRuns()
		close(release)
		synctest.Wait()
		w.wantRuns("first", "second", "often")
		if s := w.Stats(); s.Missed != 59 {
			t.Errorf("%d periods were missed, want 59", s.Missed)
		}
	})
}

// A caller may be suspended between reading the clock and posting the entry. The tick may then have passed.
func TestLoop_tickHasPassed_firesAtOnce(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		e, err := w.entryOf("AddTask", &Task{Key: "k", Interval: time.Second, Times: Forever, Job: w.job})
		if err != nil {
			t.Fatal(err)
		}
		w.advance(10*time.Second + 1)
		w.loop.do(func() {}) // afterwards the loop handles the ticks that have come
		synctest.Wait()
		if err := w.index.add(e); err != nil {
			t.Fatal(err)
		}
		w.loop.post(e, added, e.due.Load())
		synctest.Wait()
		w.wantRuns("k")
		w.advance(time.Second)
		w.wantRuns("k")
		if s := w.Stats(); s.Missed != 9 {
			t.Errorf("%d periods were missed, want 9", s.Missed)
		}
	})
}

// The tick of an entry may also have passed when the loop is stopped. Nothing falls due then.
func TestLoop_stopped_keepsWhatIsDueNow(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		timer := w.AfterFunc(time.Hour, func() { t.Error("a run began after Stop") })
		w.once("k", time.Second)
		synctest.Wait()
		w.advance(time.Second)
		w.wantRuns("k")
		w.Stop()
		if !timer.Reset(0) {
			t.Error("the timer was not active")
		}
		if s := w.Stats(); s.Due != 1 || s.Waiting != 0 {
			t.Errorf("after Stop a timer that is reset falls due: %+v", s)
		}
		if n, err := w.Drain(ignore); n != 1 || err != nil {
			t.Errorf("drained %d and %v, want 1", n, err)
		}
	})
}

func TestLoop_operations_allocateNothing(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 60)
	defer tw.Stop()
	if err := tw.AddTask(&Task{Key: "k", Interval: time.Hour, Job: ignore}); err != nil {
		t.Fatal(err)
	}
	e := tw.index.get("k")
	due := e.due.Load()
	if allocs := testing.AllocsPerRun(1000, func() {
		due -= uint64(time.Millisecond)
		if !tw.move(e, due) || e.at != tw.loop.ticks.up(due) {
			t.Fatal("the task was not moved")
		}
	}); allocs != 0 {
		t.Errorf("a move costs %v allocations", allocs)
	}
}

func TestLoop_entryInTheWrongSlot_panics(t *testing.T) {
	hand := clock.NewFake(0)
	tw := NewTimeWheel(time.Millisecond, 60, WithClock(hand))
	defer tw.Stop()
	if err := tw.AddTask(&Task{Key: "k", Interval: time.Second, Job: ignore}); err != nil {
		t.Fatal(err)
	}
	tw.index.get("k").at++
	hand.Advance(time.Hour)
	defer func() {
		if recover() == nil {
			t.Error("an entry was handed over at another tick than its own")
		}
	}()
	tw.loop.advanceLoop(tw.loop.now())
}

// The real clock reads the bubble's time, so this wheel runs for hours exactly as a user's wheel does.
func TestLoop_realClock_sleepsThroughTheNight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := NewTimeWheel(time.Millisecond, 4096)
		defer tw.Stop()
		tw.Start()
		start := time.Now()
		var ran time.Duration
		task := &Task{Key: "k", Interval: 8 * time.Hour, Job: func(*Task) { ran = time.Since(start) }}
		if err := tw.AddTask(task); err != nil {
			t.Fatal(err)
		}
		testkit.Settle(24 * time.Hour)
		if ran < 8*time.Hour || ran >= 8*time.Hour+time.Millisecond {
			t.Errorf("the task ran after %v", ran)
		}
	})
}
