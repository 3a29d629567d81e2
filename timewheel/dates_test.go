// SPDX-License-Identifier: MIT

package timewheel

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// at returns the wall time d from now.
func (w *rig) at(d time.Duration) time.Time { return w.hand.Time(w.hand.Fake.Now()).Add(d) }

// dated adds a task that is due once, when the wall clock has advanced by d.
func (w *rig) dated(key string, d time.Duration) {
	w.Helper()
	w.addAt(d, &Task{Key: key})
}

func (w *rig) addAt(d time.Duration, task *Task) {
	w.Helper()
	task.Job = w.job
	if err := w.AddAt(w.at(d), task); err != nil {
		w.Fatal(err)
	}
}

func TestT7_at_isDueByTheWallClock(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.dated("k", time.Hour)
		w.addAt(30*time.Minute, &Task{Key: "repeats", Interval: 20 * time.Minute, Times: 2})
		if info, ok := w.Get("k"); !ok || !info.Next.Equal(w.at(time.Hour)) {
			t.Errorf("it is due at %v, want %v", info.Next, w.at(time.Hour))
		}
		w.advance(30*time.Minute - 1)
		w.wantRuns()
		w.advance(1)
		w.wantRuns("repeats")
		w.advance(20 * time.Minute)
		w.wantRuns("repeats")
		w.advance(10*time.Minute - 1)
		w.wantRuns()
		w.advance(1)
		w.wantRuns("k")
		w.dated("past", -time.Hour)
		w.dated("now", 0)
		w.advance(10 * time.Millisecond)
		w.wantTicks([]string{"past", "now"})
	})
}

// When the clock is set, or the machine has been suspended, the wall clock is suddenly ahead of the monotonic clock or
// behind it. The task is due when the wall clock shows its time, or within a second after the change.
func TestT7_at_followsTheWallClock(t *testing.T) {
	const ahead, second = 40 * time.Minute, time.Second
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.dated("k", time.Hour)
		w.dated("overdue", 10*time.Minute)
		w.dated("next year", 365*24*time.Hour)
		w.addAt(time.Minute, &Task{Key: "repeats", Interval: time.Hour, Times: 2})
		w.once("delayed", 90*time.Minute)
		w.advance(5 * time.Minute)
		w.wantRuns("repeats")
		w.hand.SetWall(ahead)
		w.advance(second)
		w.advance(10 * time.Millisecond)
		w.wantRuns("overdue")
		if info, ok := w.Get("k"); !ok || !info.Next.Equal(w.at(15*time.Minute-second-10*time.Millisecond)) {
			t.Errorf("it is due at %v, and it is %v", info.Next, w.at(0))
		}
		w.advance(15*time.Minute - second - 10*time.Millisecond - 1)
		w.wantRuns()
		w.advance(1)
		w.wantRuns("k")

		w.dated("later", time.Hour)
		w.hand.SetWall(ahead - time.Hour) // back
		w.advance(41 * time.Minute)       // 60 minutes have passed since the first run of repeats
		w.wantRuns("repeats")
		w.advance(29 * time.Minute)
		w.wantRuns("delayed")
		w.advance(50*time.Minute - 1)
		w.wantRuns()
		w.advance(1)
		w.wantRuns("later")
		w.hand.SetWall(400 * 24 * time.Hour)
		w.advance(second)
		w.advance(10 * time.Millisecond)
		w.wantRuns("next year")
	})
}

// The wall clock is set and set back between two looks, and tasks are added in between.
func TestT7_addedWhileTheClockIsSetAndSetBack_isDueByTheClockInTheEnd(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.dated("before", 10*time.Minute)
		w.advance(10 * time.Millisecond)
		w.hand.SetWall(time.Hour)
		w.dated("meanwhile", 70*time.Minute) // 130 minutes by the clock after it has been set back
		w.hand.SetWall(0)
		w.advance(time.Second)
		w.advance(10*time.Minute - time.Second - 20*time.Millisecond)
		w.wantRuns()
		w.advance(20 * time.Millisecond)
		w.wantRuns("before")
		w.advance(2 * time.Hour)
		w.wantRuns("meanwhile")
	})
}

func TestT7_setBeforeStart_isSeenAtStart(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.dated("k", time.Hour)
		w.hand.SetWall(50 * time.Minute)
		w.Start()
		w.advance(10*time.Minute - 1)
		w.wantRuns()
		w.advance(1)
		w.wantRuns("k")
	})
}

// Tasks that are overdue by both clocks when the wheel starts, or after a stall, run in the order of their ticks.
func TestT7_overdueWhenTheClockIsSet_runsInTheOrderOfItsTicks(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		keys := []string{"1", "2", "3", "4", "5", "6", "7", "8"}
		for i := range keys {
			w.dated(keys[len(keys)-1-i], time.Duration(len(keys)-i)*time.Second)
		}
		w.advance(time.Minute)
		w.hand.SetWall(time.Hour)
		w.Start()
		w.advance(time.Second)
		var ticks [][]string
		for _, key := range keys {
			ticks = append(ticks, []string{key})
		}
		w.wantTicks(ticks...)
	})
}

// A task that is moved or replaced no longer follows the wall clock.
func TestT7_movedPausedOrReplaced_followsNoMore(t *testing.T) {
	for name, do := range map[string]func(w *rig) error{
		"Reschedule": func(w *rig) error { return w.Reschedule("k", time.Hour) }, // exactly the same time
		"Pause": func(w *rig) error {
			if err := w.Pause("k"); err != nil {
				return err
			}
			return w.Resume("k")
		},
		"SetTask": func(w *rig) error { return w.SetTask(&Task{Key: "k", Delay: time.Hour, Job: w.job}) },
	} {
		t.Run(name, func(t *testing.T) {
			plan{}.in(t, func(t *testing.T, w *rig) {
				w.Start()
				w.dated("k", time.Hour)
				if err := do(w); err != nil {
					t.Fatal(err)
				}
				if n := w.loop.dates.count.Load(); n != 0 {
					t.Errorf("%d dates are kept", n)
				}
				w.hand.SetWall(2 * time.Hour)
				w.advance(time.Hour - 1)
				w.wantRuns()
				w.advance(1)
				w.wantRuns("k")
			})
		})
	}
}

// A dated task leaves nothing behind after it has run or has been removed or refused.
func TestDates_tasksThatAreGone_areForgotten(t *testing.T) {
	plan{opts: []Option{WithMaxPending(2)}}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.dated("removed", time.Hour)
		w.dated("runs", time.Minute)
		if w.AddAt(w.at(0), &Task{Key: "runs", Job: w.job}) == nil ||
			w.AddAt(w.at(0), &Task{Key: "too many", Job: w.job}) == nil {
			t.Error("a task was not refused")
		}
		if n := w.loop.dates.count.Load(); n != 2 {
			t.Errorf("there are %d dates, want 2", n)
		}
		if err := w.RemoveTask("removed"); err != nil {
			t.Error(err)
		}
		w.advance(time.Minute)
		w.wantRuns("runs")
		if n := w.loop.dates.count.Load(); n != 0 {
			t.Errorf("%d dates are kept", n)
		}
	})
}

// The loop looks at the wall clock once a second, and only while there are tasks with a date.
func TestDates_loopLooks_onceASecondWhileThereAreSome(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.once("k", 24*time.Hour)
		sleeps := func() int64 {
			w.advance(time.Minute) // the loop is at rest
			before := w.hand.sleeps.Load()
			for range 600 {
				w.advance(100 * time.Millisecond)
			}
			return w.hand.sleeps.Load() - before
		}
		if n := sleeps(); n != 0 {
			t.Errorf("without a date the loop woke up %d times in a minute", n)
		}
		w.dated("dated", 24*time.Hour)
		if n := sleeps(); n != 60 {
			t.Errorf("with a date the loop woke up %d times in a minute", n)
		}
		if err := w.RemoveTask("dated"); err != nil {
			t.Error(err)
		}
		if n := sleeps(); n != 0 {
			t.Errorf("when it was gone the loop woke up %d times in a minute", n)
		}
	})
}

// The loop moves no task while the difference between the clocks has changed by less than a tick.
func TestDates_clocksMoveApartByLessThanATick_movesNothing(t *testing.T) {
	const tick = 10 * time.Millisecond
	for _, way := range []time.Duration{1, -1} {
		plan{tick: tick}.in(t, func(t *testing.T, w *rig) {
			w.Start()
			w.dated("k", time.Hour)
			due := w.entry("k").due.Load()
			w.hand.SetWall(way * (tick - 1))
			w.advance(2 * time.Second)
			if at := w.entry("k").due.Load(); at != due {
				t.Errorf("by less than a tick: the task is due %v later", time.Duration(at-due))
			}
			w.hand.SetWall(way * tick)
			w.advance(2 * time.Second)
			if at := w.entry("k").due.Load(); time.Duration(due-at) != way*tick {
				t.Errorf("by a tick: the task is due %v sooner, want %v", time.Duration(due-at), way*tick)
			}
		})
	}
}

// The loop looks while the entry is not yet in the index. If the index refuses the entry, the task must not run.
func TestDates_clockIsSetWhileATaskIsRefused_itDoesNotRun(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.once("k", time.Hour)
		w.dated("other", 24*time.Hour)
		w.advance(time.Second)
		e, err := w.entryAt("AddAt", w.at(time.Minute), &Task{Key: "k", Job: w.job})
		if err != nil {
			t.Fatal(err)
		}
		w.hand.SetWall(2 * time.Minute)
		w.advance(2 * time.Second)
		if w.refusal(w.index.add(e), e) == nil {
			t.Error("it was not refused")
		}
		w.advance(time.Minute)
		w.wantRuns()
	})
}

// The wall clock jumps back and forth while tasks with a date are added, removed and moved, and fall due.
func TestDates_whileTheClockIsSetAllTheTime_loseNothing(t *testing.T) {
	plan{opts: []Option{WithPoolSize(4)}}.in(t, func(t *testing.T, w *rig) {
		w.loop.dates.every = 1
		w.Start()
		var done sync.WaitGroup
		var enough atomic.Bool
		for i := range 3 {
			key := string(rune('a' + i))
			done.Go(func() {
				r := random(uint64(i))
				for range 2000 {
					d := time.Duration(r.IntN(100)) * time.Millisecond
					_ = w.AddAt(w.at(d), &Task{Key: key, Job: ignore})
					pause(r, 20)
					switch r.IntN(5) {
					case 0:
						_ = w.RemoveTask(key)
					case 1:
						_ = w.Reschedule(key, d)
					case 2:
						_ = w.Pause(key)
						_ = w.Resume(key)
					}
				}
				enough.Store(true)
			})
		}
		r := random(9)
		for !enough.Load() {
			w.hand.SetWall(time.Duration(r.IntN(1000)) * time.Millisecond)
			w.hand.Advance(time.Duration(r.IntN(3)) * time.Millisecond)
			pause(r, 50)
		}
		done.Wait()
		synctest.Wait()
		w.verify()
		w.hand.SetWall(0)
		w.advance(2 * time.Second)
		w.advance(time.Minute)
		if n := w.Len(); n != 0 {
			t.Errorf("%d tasks are left", n)
		}
	})
}

// A repeating task follows the wall clock until its first run. After that the loop no longer looks at the clock for it.
func TestDates_repeatingTaskThatHasRun_isForgotten(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.addAt(time.Hour, &Task{Key: "k", Interval: 24 * time.Hour, Times: Forever})
		w.advance(10 * time.Minute)
		w.hand.SetWall(-2 * time.Hour) // it waits in the slot of its old tick, where the loop finds it too early
		w.advance(2 * time.Hour)
		w.wantRuns()
		w.hand.SetWall(-time.Hour)
		w.advance(time.Second)
		w.advance(time.Minute)
		w.wantRuns("k")
		w.advance(time.Minute)
		before := w.hand.sleeps.Load()
		for range 100 {
			w.advance(time.Second)
		}
		if n := w.hand.sleeps.Load() - before; n != 0 {
			t.Errorf("the loop woke up %d times in 100 s, and nothing was due", n)
		}
		if n := w.loop.dates.count.Load(); n != 0 {
			t.Errorf("%d dates are kept", n)
		}
	})
}
