// SPDX-License-Identifier: MIT

package test

import (
	"errors"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
	"weak"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

type ballast [1 << 14]byte

// heavy returns a job that references a large object, and a weak pointer to that object.
func heavy() (func(), weak.Pointer[ballast]) {
	b := new(ballast)
	return func() { b[0]++ }, weak.Make(b)
}

func freed(w weak.Pointer[ballast]) bool {
	for range 5 {
		if runtime.GC(); w.Value() == nil {
			return true
		}
	}
	return false
}

// A removed task keeps nothing alive, however and whenever it is removed: hours before it is due, while it waits for a
// worker, before Start and after Stop.
func TestC2_removedTask_isFreedAtOnce(t *testing.T) {
	keyed := func(task timewheel.Task, remove func(tw *timewheel.TimeWheel) error) func(
		*timewheel.TimeWheel, func()) func() error {
		return func(tw *timewheel.TimeWheel, job func()) func() error {
			task.Key, task.Job = "heavy", func(*timewheel.Task) { job() }
			err := tw.AddTask(&task)
			task.Job = nil
			return func() error { return errors.Join(err, remove(tw)) }
		}
	}
	remove := func(tw *timewheel.TimeWheel) error { return tw.RemoveTask("heavy") }
	const soon = 20 * ms // for a task that must wait for a worker
	ways := []struct {
		name string
		// add adds a task with the job, and returns a function that removes it.
		add func(tw *timewheel.TimeWheel, job func()) func() error
	}{
		{"RemoveTask", keyed(timewheel.Task{Interval: time.Hour, Delay: soon}, remove)},
		{"RemoveTask_repeating", keyed(timewheel.Task{Interval: soon, Times: 5}, remove)},
		{"RemoveTask_far", keyed(timewheel.Task{Interval: year}, remove)},
		{"SetTask", keyed(timewheel.Task{Interval: soon}, func(tw *timewheel.TimeWheel) error {
			err := tw.SetTask(once("heavy", year, nothing))
			if errors.Is(err, timewheel.ErrStopped) {
				return remove(tw)
			}
			return err
		})},
		{"SetTask_repeating_far", keyed(timewheel.Task{Interval: year, Times: timewheel.Forever},
			func(tw *timewheel.TimeWheel) error {
				err := tw.SetTask(once("heavy", 2*year, nothing))
				if errors.Is(err, timewheel.ErrStopped) {
					return remove(tw)
				}
				return err
			})},
		{"Reschedule_then_RemoveTask", keyed(timewheel.Task{Interval: soon, Times: 5},
			func(tw *timewheel.TimeWheel) error {
				if err := tw.Reschedule("heavy", year); err != nil && !errors.Is(err, timewheel.ErrStopped) {
					return err
				}
				return remove(tw)
			})},
		{"Drain", keyed(timewheel.Task{Interval: soon, Times: 5}, func(tw *timewheel.TimeWheel) error {
			_, err := tw.Drain(func(*timewheel.Task) {})
			return err
		})},
		{"Drain_far", keyed(timewheel.Task{Interval: year}, func(tw *timewheel.TimeWheel) error {
			_, err := tw.Drain(func(*timewheel.Task) {})
			return err
		})},
		{"Timer", func(tw *timewheel.TimeWheel, job func()) func() error {
			timer := tw.AfterFunc(soon, job)
			return func() error {
				if !timer.Stop() {
					return errors.New("the timer was not active")
				}
				return nil
			}
		}},
	}
	for _, state := range []string{
		"running", "waiting_for_a_worker", "before_Start", "after_Stop", "waiting_after_Stop",
	} {
		for _, way := range ways {
			t.Run(state+"_"+way.name, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					tw := newWheel(t, 10*ms, 4, timewheel.WithPoolSize(1))
					if state != "before_Start" {
						tw.Start()
						occupy(t, tw, 1)
					}
					must(t, tw.AddTask(once("neighbour", soon, nothing)))
					must(t, tw.AddTask(once("far neighbour", year, nothing)))
					job, w := heavy()
					remove := way.add(tw, job)
					job = nil
					switch state {
					case "waiting_for_a_worker":
						testkit.Settle(50 * ms)
					case "after_Stop":
						tw.Stop()
					case "waiting_after_Stop":
						testkit.Settle(50 * ms)
						tw.Stop()
					}
					runtime.GC()
					if w.Value() == nil {
						t.Fatal("freed while the task is there")
					}
					must(t, remove())
					remove = nil
					testkit.Settle(10 * ms) // the loop may be in the middle of other work
					if !freed(w) {
						t.Error("the job of a task that was taken out is held")
					}
					runtime.KeepAlive(tw)
				})
			})
		}
	}
}

func TestC2_finishedTask_isFreedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 4)
		runs := 0
		add := func() weak.Pointer[ballast] {
			f, w := heavy()
			job := func(*timewheel.Task) {
				f()
				runs++
			}
			must(t, tw.AddTask(times("k", 20*ms, 3, job)))
			return w
		}
		w := add()
		testkit.Settle(70 * ms)
		wantEqual(t, "runs", runs, 3)
		if !freed(w) {
			t.Error("the job of a task that has run is held")
		}
		runtime.KeepAlive(tw)
	})
}

// wakeUps returns how often a goroutine of the program was scheduled. The runtime counts one in eight.
func wakeUps() (n uint64) {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	for _, count := range sample[0].Value.Float64Histogram().Counts {
		n += 8 * count
	}
	return n
}

func TestC3_nothingDueSoon_doesNotWakeUpAtEveryTick(t *testing.T) {
	for _, c := range []struct {
		name string
		fill func(t *testing.T, tw *timewheel.TimeWheel)
	}{
		{"empty", func(*testing.T, *timewheel.TimeWheel) {}},
		{"one_far_task", func(t *testing.T, tw *timewheel.TimeWheel) {
			must(t, tw.AddTask(once("far", 200*year, nothing)))
		}},
		{"many_far_tasks", func(t *testing.T, tw *timewheel.TimeWheel) {
			for i := range 100 {
				must(t, tw.AddTask(once(name(i), 101*year+time.Duration(i)*ms, nothing)))
			}
		}},
		{"removed_tasks", func(t *testing.T, tw *timewheel.TimeWheel) {
			for i := range 100 {
				must(t, tw.AddTask(every(name(i), time.Duration(i+1)*ms, nothing)))
			}
			testkit.Settle(time.Second)
			for i := range 100 {
				must(t, tw.RemoveTask(name(i)))
			}
		}},
		{"pushed_back", func(t *testing.T, tw *timewheel.TimeWheel) {
			must(t, tw.AddTask(once("far", 100*ms, nothing)))
			for range 100 {
				testkit.Settle(10 * ms)
				must(t, tw.Reschedule("far", 200*year))
			}
		}},
		{"waiting_for_a_worker", func(t *testing.T, tw *timewheel.TimeWheel) {
			occupy(t, tw, 1)
			must(t, tw.AddTask(once("waits", ms, nothing)))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				tw := startWheel(t, ms, 60, timewheel.WithPoolSize(1))
				c.fill(t, tw)
				testkit.Settle(10 * time.Second)
				before := wakeUps()
				testkit.Settle(20 * time.Minute)
				if n := wakeUps() - before; n > 120_000 {
					t.Fatalf("about %d wake-ups in 20 minutes of 1,200,000 ticks", n)
				}
				if c.name == "waiting_for_a_worker" {
					return // the pool has a goroutine that wakes up twice a second
				}
				testkit.Settle(100 * year)
				wantEqual(t, "runs of the far tasks", tw.Stats().Missed, uint64(0))
			})
		})
	}
}
