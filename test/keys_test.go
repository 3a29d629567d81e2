// SPDX-License-Identifier: MIT

package test

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

// states are the states of a wheel while a task's key is looked up. Each creates a wheel in that state and calls f.
var states = []struct {
	name string
	in   func(t *testing.T, f func(tw *timewheel.TimeWheel))
}{
	{"before_Start", func(t *testing.T, f func(*timewheel.TimeWheel)) { f(newWheel(t, 10*ms, 16)) }},
	{"running", func(t *testing.T, f func(*timewheel.TimeWheel)) { f(startWheel(t, 10*ms, 16)) }},
	{"in_a_job", func(t *testing.T, f func(*timewheel.TimeWheel)) {
		tw, done := startWheel(t, 10*ms, 16), make(chan struct{})
		tw.AfterFunc(0, func() {
			defer close(done)
			f(tw)
		})
		<-done
	}},
	{"with_a_full_pool", func(t *testing.T, f func(*timewheel.TimeWheel)) {
		tw := startWheel(t, 10*ms, 16, timewheel.WithPoolSize(1))
		occupy(t, tw, 1)
		f(tw)
	}},
}

func TestK1_addedTask_isThereAtOnce(t *testing.T) {
	for _, state := range states {
		t.Run(state.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				state.in(t, func(tw *timewheel.TimeWheel) {
					before := tw.Len()
					for range 100 { // no pause, so that the loop gets no time
						if err := tw.AddTask(once("k", time.Hour, nothing)); err != nil {
							t.Error(err)
							return
						}
						if !tw.Exist("k") || tw.GetTaskTimes("k") != 1 || tw.Len() != before+1 {
							t.Errorf("Exist %v, %d runs left, %d tasks", tw.Exist("k"), tw.GetTaskTimes("k"), tw.Len()-before)
						}
						if info, ok := tw.Get("k"); !ok || info.Key != "k" || !info.Next.Equal(time.Now().Add(time.Hour)) {
							t.Errorf("Get: %+v, %v", info, ok)
						}
						wantEqual(t, "All", keysOf(tw), []string{"k"})
						if err := tw.AddTask(once("k", ms, nothing)); !errors.Is(err, timewheel.ErrDuplicateTaskKey) {
							t.Errorf("second AddTask: %v", err)
						}
						should(t, tw.RemoveTask("k"))
						if tw.Exist("k") || tw.GetTaskTimes("k") != 0 || tw.Len() != before || len(keysOf(tw)) > 0 {
							t.Errorf("after RemoveTask: Exist %v, %d tasks", tw.Exist("k"), tw.Len()-before)
						}
						if err := tw.RemoveTask("k"); !errors.Is(err, timewheel.ErrTaskKeyNotFound) {
							t.Errorf("second RemoveTask: %v", err)
						}
					}
				})
			})
		})
	}
}

func TestK1_addsOfOneKeyAtTheSameTime_oneWins(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		const rounds, adders = 5000, 3
		tw := startWheel(t, ms, 16)
		var ready, won, others atomic.Int64
		together(adders, func(int) {
			for round := range int64(rounds) {
				// The goroutines spin until the last one is ready. Waking them up would take longer than the add.
				for ready.Add(1); ready.Load() < (2*round+1)*adders; {
					runtime.Gosched()
				}
				switch err := tw.AddTask(once(name(int(round)), time.Hour, nothing)); {
				case err == nil:
					won.Add(1)
				case errors.Is(err, timewheel.ErrDuplicateTaskKey):
					others.Add(1)
				default:
					t.Error(err)
				}
				for ready.Add(1); ready.Load() < (2*round+2)*adders; {
					runtime.Gosched()
				}
			}
		})
		wantEqual(t, "adds that won", won.Load(), int64(rounds))
		wantEqual(t, "adds that did not", others.Load(), int64(rounds*(adders-1)))
		balanced(t, tw, rounds)
	})
}

func TestK2_repeatingTask_neverFlickers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 4, timewheel.WithPoolSize(1))
		var runs atomic.Int64
		const n = 20
		must(t, tw.AddTask(times("k", 25*ms, n, func(*timewheel.Task) {
			run := runs.Add(1)
			there := func() {
				if last := run == n; tw.Exist("k") == last {
					t.Errorf("in run %d of %d Exist is %v", run, n, !last)
				}
			}
			there()
			if run%3 == 0 {
				time.Sleep(90 * ms) // the next periods find no worker
			}
			there()
		})))
		for runs.Load() < n {
			if !tw.Exist("k") && tw.Stats().Running == 0 {
				t.Fatalf("after %d of %d runs the task is gone", runs.Load(), n)
			}
			testkit.Settle(ms)
		}
		if tw.Exist("k") {
			t.Error("the task is there after its last run")
		}
		if s := balanced(t, tw, 1); s.Missed == 0 || s.Started != n {
			t.Errorf("%d runs began and %d were missed", s.Started, s.Missed)
		}
	})
}

// K2 in real time: a lookup at any instant finds the task.
func TestK2_askedWithoutAPause_isAlwaysThere(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		tw := startWheel(t, ms, 4)
		done := make(chan struct{})
		var runs atomic.Int32 // runs may overlap
		must(t, tw.AddTask(every("k", ms, func(*timewheel.Task) {
			if runs.Add(1) == 50 {
				close(done)
			}
		})))
		for asked := 0; ; asked++ {
			if !tw.Exist("k") || tw.GetTaskTimes("k") != timewheel.Forever {
				t.Fatalf("the task was not there when asked for the %d-th time", asked)
			}
			if _, ok := tw.Get("k"); !ok {
				t.Fatalf("Get did not find the task at the %d-th time", asked)
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
}

func TestK2_replacedTask_neverFlickers(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		tw := startWheel(t, ms, 4)
		must(t, tw.AddTask(once("k", time.Hour, nothing)))
		meanwhile(t, func() error { return tw.SetTask(once("k", time.Hour, nothing)) }, 20_000, func() error {
			if !tw.Exist("k") {
				return errors.New("the key was free")
			}
			return nil
		})
	})
}

// withdrawals are the ways to keep a task with a key from running.
var withdrawals = []struct {
	name  string
	apply func(t *testing.T, tw *timewheel.TimeWheel)
	stays int // how many tasks are live afterwards
}{
	{"RemoveTask", func(t *testing.T, tw *timewheel.TimeWheel) { must(t, tw.RemoveTask("k")) }, 0},
	{"SetTask", func(t *testing.T, tw *timewheel.TimeWheel) {
		must(t, tw.SetTask(once("k", year, nothing)))
	}, 1},
	{"Reschedule", func(t *testing.T, tw *timewheel.TimeWheel) { must(t, tw.Reschedule("k", year)) }, 1},
	{"Pause", func(t *testing.T, tw *timewheel.TimeWheel) { must(t, tw.Pause("k")) }, 1},
	{"RemoveWait", func(t *testing.T, tw *timewheel.TimeWheel) {
		running, err := tw.RemoveWait(t.Context(), "k")
		must(t, err)
		wantEqual(t, "running", running, false)
	}, 0},
	{"RemovePrefix", func(t *testing.T, tw *timewheel.TimeWheel) {
		n, err := tw.RemovePrefix(t.Context(), "k")
		must(t, err)
		wantEqual(t, "number of removed tasks", n, 1)
	}, 0},
	{"ReschedulePrefix", func(t *testing.T, tw *timewheel.TimeWheel) {
		n, err := tw.ReschedulePrefix(t.Context(), "k", year)
		must(t, err)
		wantEqual(t, "number of moved tasks", n, 1)
	}, 1},
	{"Drain", func(t *testing.T, tw *timewheel.TimeWheel) {
		n, err := tw.Drain(func(task *timewheel.Task) { wantEqual(t, "drained", task.Key, "k") })
		must(t, err)
		wantEqual(t, "number of drained tasks", n, 1)
	}, 0},
}

func TestK3_removedWhileWaiting_neverRuns(t *testing.T) {
	for _, w := range withdrawals {
		for _, n := range []int{1, 2, timewheel.Forever} {
			t.Run(w.name, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					tw, j := startWheel(t, 10*ms, 16, timewheel.WithPoolSize(2)), newJournal()
					release := occupy(t, tw, 2)
					must(t, tw.AddTask(times("k", 30*ms, n, j.job)))
					testkit.Settle(50 * ms)
					if info, ok := tw.Get("k"); !ok || !info.Waiting || info.Slot != 0 || info.Circle != 0 {
						t.Fatalf("does not wait for a worker: %+v", info)
					}
					w.apply(t, tw)
					if s := tw.Stats(); s.Withdrawn != 1 || s.Waiting != 0 || s.Due != 3 {
						t.Errorf("Withdrawn %d, Waiting %d, Due %d", s.Withdrawn, s.Waiting, s.Due)
					}
					wantEqual(t, "live tasks", tw.Len(), w.stays)
					release()
					testkit.Settle(time.Second)
					j.want(t, "k")
					added := 3
					if w.name == "SetTask" {
						added++
					}
					balanced(t, tw, added)
				})
			})
		}
	}
}

func TestK3_removedBeforeItIsDue_neverRuns(t *testing.T) {
	for _, w := range withdrawals {
		t.Run(w.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				tw, j := startWheel(t, 10*ms, 16), newJournal()
				must(t, tw.AddTask(every("k", 30*ms, j.job)))
				testkit.Settle(75 * ms)
				w.apply(t, tw)
				testkit.Settle(time.Minute)
				j.want(t, "k", 30*ms, 60*ms)
				wantEqual(t, "live tasks", tw.Len(), w.stays)
			})
		})
	}
}

func TestK3_removedDuringARun_theRunGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, ended := startWheel(t, 10*ms, 16), 0
		must(t, tw.AddTask(every("k", 30*ms, func(task *timewheel.Task) {
			time.Sleep(10 * ms)
			should(t, task.Context().Err())
			ended++
		})))
		testkit.Settle(35 * ms)
		must(t, tw.RemoveTask("k"))
		testkit.Settle(time.Second)
		wantEqual(t, "runs that ended", ended, 1)
		balanced(t, tw, 1)
	})
}

// The executor was asked for workers, and they start after the removal.
func TestK3_removedAfterAWorkerWasAskedFor_neverRuns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var held []func()
		tw := startWheel(t, 10*ms, 16, timewheel.WithExecutor(executor(func(f func()) error {
			held = append(held, f)
			return nil
		})))
		j := newJournal()
		for i := range 8 {
			must(t, tw.AddTask(once(name(i), 10*ms, j.job)))
		}
		testkit.Settle(20 * ms)
		if len(held) == 0 {
			t.Fatal("the executor was not asked")
		}
		for i := range 7 {
			must(t, tw.RemoveTask(name(i)))
		}
		for len(held) > 0 {
			f := held[0]
			held = held[1:]
			f()
			synctest.Wait()
		}
		wantEqual(t, "runs", j.keys(), []string{name(7)})
		balanced(t, tw, 8)
	})
}

func TestK4_keyIsFreeWhenTheLastRunBegins(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 4, timewheel.WithMaxPending(1))
		runs := 0
		var job timewheel.Job
		job = func(task *timewheel.Task) {
			runs++
			last := runs%2 == 0
			err := tw.AddTask(times("k", 20*ms, 2, job))
			switch {
			case last && err != nil:
				t.Errorf("in the last run: %v", err)
			case !last && !errors.Is(err, timewheel.ErrDuplicateTaskKey):
				t.Errorf("before the last run: %v", err)
			}
		}
		must(t, tw.AddTask(times("k", 20*ms, 2, job)))
		testkit.Settle(205 * ms)
		wantEqual(t, "runs", runs, 10)
		wantEqual(t, "runs left", tw.GetTaskTimes("k"), 2)
		balanced(t, tw, 6)
	})
}

func TestK5_taskThatReusesTheKey_isNotHitByTheOldOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, old, young := startWheel(t, 10*ms, 16, timewheel.WithPoolSize(1)), newJournal(), newJournal()
		release := occupy(t, tw, 1)
		added := 1
		for i := range 50 { // the old and the new task are sometimes waiting, or in the same slot
			must(t, tw.AddTask(every("k", time.Duration(1+i%3)*20*ms, old.job)))
			testkit.Settle(time.Duration(i%5) * 10 * ms)
			must(t, tw.RemoveTask("k"))
			must(t, tw.AddTask(once("k", 20*ms, young.job)))
			if i%2 == 0 {
				testkit.Settle(30 * ms)
				must(t, tw.RemoveTask("k"))
				must(t, tw.AddTask(once("k", 20*ms, young.job)))
				added++
			}
			testkit.Settle(30 * ms)
			if info, ok := tw.Get("k"); !ok || !info.Waiting || tw.GetTaskTimes("k") != 1 {
				t.Fatalf("round %d: the young task is not there: %+v", i, info)
			}
			must(t, tw.RemoveTask("k"))
			added += 2
		}
		must(t, tw.AddTask(once("k", 20*ms, young.job)))
		release()
		testkit.Settle(time.Second)
		wantEqual(t, "runs of the old tasks", old.count("k"), 0)
		wantEqual(t, "runs of the young tasks", young.count("k"), 1)
		balanced(t, tw, added+1)
	})
}

// A job that ends while a later task has its key must not remove that task.
func TestK5_lastRunThatEnds_leavesTheLaterTask(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 16)
		must(t, tw.AddTask(once("k", 20*ms, func(*timewheel.Task) { time.Sleep(50 * ms) })))
		testkit.Settle(30 * ms)
		j := newJournal()
		must(t, tw.AddTask(once("k", 100*ms, j.job)))
		testkit.Settle(60 * ms)
		if !tw.Exist("k") {
			t.Error("the later task is gone")
		}
		testkit.Settle(60 * ms)
		j.want(t, "k", 100*ms)
		balanced(t, tw, 2)
	})
}

func TestK5_stoppedTimer_isNotHitByItsOldSetting(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 16), newJournal()
		timer := tw.AfterFunc(50*ms, func() { j.note("timer") })
		testkit.Settle(20 * ms)
		wantEqual(t, "Stop", timer.Stop(), true)
		wantEqual(t, "Reset", timer.Reset(70*ms), false)
		testkit.Settle(time.Second)
		j.want(t, "timer", 90*ms)
		balanced(t, tw, 2)
	})
}

func TestK6_getTaskTimes_isTheRunsThatHaveNotBegun(t *testing.T) {
	for n, first := range map[int]int{0: 1, 1: 1, 5: 5, timewheel.Forever: timewheel.Forever} {
		inBubble(t, func(t *testing.T) {
			tw := startWheel(t, 10*ms, 4, timewheel.WithPoolSize(1))
			var left atomic.Int64
			count := func(when string) {
				t.Helper()
				info, ok := tw.Get("k")
				if want := int(left.Load()); tw.GetTaskTimes("k") != want || info.Times != want || ok != (want != 0) {
					t.Errorf("Times %d, %s: %d runs left, Get tells %d and %v, want %d",
						n, when, tw.GetTaskTimes("k"), info.Times, ok, want)
				}
			}
			count("before AddTask")
			must(t, tw.AddTask(times("k", 20*ms, n, func(task *timewheel.Task) {
				if left.Load() > 0 {
					left.Add(-1)
				}
				count("in a run")
				wantEqual(t, "Times of the run's task", int64(task.Times), left.Load())
			})))
			left.Store(int64(first))
			count("after AddTask")
			for range 7 {
				testkit.Settle(20 * ms)
				count("between runs")
			}
			if left.Load() == 0 {
				return
			}
			occupy(t, tw, 1)
			testkit.Settle(50 * ms)
			count("waiting")
			must(t, tw.RemoveTask("k"))
			left.Store(0)
			count("after RemoveTask")
		})
	}
}

func TestK6_waitingRuns_haveNotBegun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 4, timewheel.WithPoolSize(1))
		release := occupy(t, tw, 1)
		must(t, tw.AddTask(times("k", 20*ms, 3, nothing)))
		testkit.Settle(time.Second) // 50 periods
		wantEqual(t, "runs left while it waits", tw.GetTaskTimes("k"), 3)
		release()
		synctest.Wait()
		wantEqual(t, "runs left after one", tw.GetTaskTimes("k"), 2)
		testkit.Settle(time.Second)
		wantEqual(t, "runs left after all", tw.GetTaskTimes("k"), 0)
	})
}
