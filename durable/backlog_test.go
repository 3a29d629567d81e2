// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// sleeper returns a handler that sleeps for d.
func sleeper(d time.Duration) durable.Handler {
	return func(context.Context, durable.Run) error { time.Sleep(d); return nil }
}

// overdue adds n tasks of the kind, due one millisecond apart, and ends the process. An hour later it begins another
// process, whose scheduler is not started and does not handle the kind.
func overdue(k *kit.Kit, n int, kind string) {
	k.T.Helper()
	k.Handle(kind, sleeper(0))
	tasks := make([]durable.Task, n)
	for i := range tasks {
		delay := sec + time.Duration(i)*time.Millisecond
		tasks[i] = durable.Task{Key: fmt.Sprint(kind, i), Kind: kind, Delay: delay}
	}
	for batch := range slices.Chunk(tasks, 10_000) {
		k.Add(batch...)
	}
	k.Crash()
	k.After(hour)
}

// lateness returns how late the runs of the kind began, in ascending order.
func lateness(k *kit.Kit, calls []kit.Call, kind string) (late []time.Duration) {
	for _, c := range calls {
		if c.Kind == kind {
			late = append(late, k.Begin.Add(c.At).Sub(c.Due))
		}
	}
	slices.Sort(late)
	return late
}

func TestCatchUp_whatFallsDueNow_isNotDelayed(t *testing.T) {
	testkit.NotForRaces(t)
	const workers, took = 64, 20 * time.Millisecond
	tasks := 100_000
	if testing.Short() {
		tasks = 20_000
	}
	for name, c := range map[string]struct {
		every time.Duration // a batch of live tasks
		batch int
	}{"one each 2 ms": {2 * time.Millisecond, 1}, "sixty each 100 ms": {100 * time.Millisecond, 60}} {
		t.Run(name, func(t *testing.T) {
			kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
				overdue(k, tasks, "late")
				k.Handle("late", sleeper(took))
				k.Handle("live", sleeper(took))
				k.Start()
				began, live := time.Now(), 0
				for k.Stats().Succeeded < uint64(tasks) {
					for range c.batch {
						k.Add(durable.Task{Key: fmt.Sprint("live", live), Kind: "live", Delay: sec})
						live++
					}
					k.After(c.every)
				}
				elapsed, calls := time.Since(began), k.Runs()
				late := lateness(k, calls, "live")
				if len(late) < 1000 {
					t.Fatalf("only %d live runs", len(late))
				}
				p99, most := late[len(late)*99/100], late[len(late)-1]
				used := float64(len(calls)) / workers * took.Seconds() / elapsed.Seconds()
				if p99 > 2*tick+took || most > 100*time.Millisecond || used < 0.97 {
					t.Errorf("of %d live tasks the p99 of the lateness is %v, and at %.3f of the capacity "+
						"%d runs took %v", len(late), p99, used, len(calls), elapsed)
				}
				t.Logf("%d runs in %v, %.3f of the capacity; %d live, %v late at the p99, %v at most",
					len(calls), elapsed, used, len(late), p99, most)
			}, durable.WithPoolSize(workers))
		})
	}
}

// The rate is also a bound for tasks that had to wait because no worker was spare: it is not exceeded to catch up.
func TestCatchUp_rate_isABoundWhenWorkersBecomeFree(t *testing.T) {
	const rate, tasks = 50, 1000
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		overdue(k, tasks, "late")
		var slow atomic.Bool
		slow.Store(true)
		k.Handle("late", func(context.Context, durable.Run) error {
			if slow.Load() {
				time.Sleep(10 * sec)
			}
			return nil
		})
		k.Start()
		k.After(5 * sec)
		slow.Store(false)
		calls := k.RunsAfter(60 * sec)
		if len(calls) != tasks {
			t.Fatalf("%d runs", len(calls))
		}
		for i, c := range calls[:tasks-2*rate] {
			if d := calls[i+2*rate].At - c.At; d < 2*sec-110*time.Millisecond {
				t.Fatalf("%d overdue tasks began within %v", 2*rate, d)
			}
		}
	}, durable.WithCatchUp(rate), durable.WithPoolSize(8))
}

// A run cannot be interrupted, so overdue tasks of a kind not known to be quick leave workers free.
func TestCatchUp_slowHandlers_leaveWorkersForWhatFallsDueNow(t *testing.T) {
	testkit.NotForRaces(t)
	const workers, tasks = 32, 200
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		overdue(k, tasks, "late")
		var running, most atomic.Int32
		k.Handle("late", func(context.Context, durable.Run) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(10 * time.Minute)
			return nil
		})
		k.Handle("live", sleeper(sec))
		k.Start()
		k.Add(durable.Task{Key: "live", Kind: "live", Interval: 3 * sec, Times: durable.Forever})
		k.Add(durable.Task{Key: "live too", Kind: "live", Interval: 5 * sec, Times: durable.Forever})
		began := time.Now()
		for k.Len() > 2 {
			k.After(time.Minute)
		}
		// 16 at a time, minus one or two that live tasks take when a batch ends.
		if d, want := time.Since(began), tasks/14*10*time.Minute; d > want+20*time.Minute {
			t.Errorf("the overdue tasks took %v, want %v", d, want)
		}
		if n := most.Load(); n > workers/2 || n < workers/2-2 {
			t.Errorf("%d overdue tasks were running at once, want %d", n, workers/2)
		}
		live := lateness(k, k.Runs(), "live")
		if last := live[len(live)-1]; len(live) < 1000 || last > 2*tick {
			t.Errorf("of %d live tasks one was %v late", len(live), last)
		}
	}, durable.WithPoolSize(workers))
}

// The first claims are small, because the tasks may be large. They follow each other at once until the backlog is full.
func TestCatchUp_start_fillsTheBacklogAtOnce(t *testing.T) {
	const tasks = 1000
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		overdue(k, tasks, "late")
		k.Handle("late", sleeper(hour))
		k.Start()
		k.After(5 * tick)
		if n, _ := durable.InMemory(k.Scheduler, ""); n != tasks {
			t.Errorf("%d tasks are in memory, want %d", n, tasks)
		}
	})
}

// With one worker the runs are recorded in start order.
func TestCatchUp_oldest_first(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("all", sleeper(0), durable.WithMissed(durable.MissedAll))
		k.Add(durable.Task{Key: "often", Kind: "all", Interval: 100 * time.Millisecond, Times: 30})
		k.Add(durable.Task{Key: "seldom", Kind: "all", Interval: 700 * time.Millisecond, Times: 4})
		overdue(k, 3000, "late")
		k.Handle("late", sleeper(0))
		k.Handle("all", sleeper(0), durable.WithMissed(durable.MissedAll))
		k.Start()
		calls := k.RunsAfter(3 * sec)
		if len(calls) != 3034 {
			t.Fatalf("%d runs", len(calls))
		}
		// The next run of a task is known only once the previous one is acknowledged. Until then the worker takes other
		// tasks.
		latest := time.Time{}
		for i, c := range calls {
			if c.Kind == "late" && c.Due.Before(latest) {
				t.Errorf("run %d was due at %v, and one due at %v came before it", i, c.Due, latest)
			}
			if c.Kind == "late" {
				latest = c.Due
			}
		}
		for _, key := range []string{"often", "seldom"} {
			run := uint64(0)
			for _, c := range calls {
				if c.Key == key && c.Token.Seq != run {
					t.Errorf("run %d of %s comes as number %d", c.Token.Seq, key, run)
				}
				if c.Key == key {
					run++
				}
			}
		}
	}, durable.WithPoolSize(1))
}

func TestCatchUp_repeating_rejoinsItsGrid(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "k", Kind: "note", Delay: 10 * time.Minute, Interval: 7 * time.Minute, Times: 99})
		k.Crash()
		k.After(hour)
		k.Start()
		k.After(15 * time.Minute)
		c := ranAt(k, "k", hour, 66*time.Minute, 73*time.Minute)
		if c[0].Due != k.Begin.Add(10*time.Minute) || c[1].Missed != 7 {
			t.Errorf("these ran: %+v", c)
		}
	})
}

// A task that is removed, replaced or moved while it waits in the backlog does not run, and every other task runs once.
func TestCatchUp_changedWhileItWaits_doesNotRun(t *testing.T) {
	const tasks = 600
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		overdue(k, tasks, "late")
		k.Handle("late", sleeper(100*time.Millisecond))
		k.Start()
		k.After(sec)
		began := map[string]bool{}
		for _, c := range k.Runs() {
			began[c.Key] = true
		}
		if len(began) < 20 || len(began) > 50 {
			t.Fatalf("%d have begun", len(began))
		}
		want := map[string]int{}
		for i := range tasks {
			key := fmt.Sprint("late", i)
			if began[key] {
				continue
			}
			var err error
			switch i % 5 {
			case 0:
				err = k.RemoveTask(ctx, key)
			case 1:
				err = k.SetTask(ctx, durable.Task{Key: key, Kind: "note", Delay: 2 * hour})
			case 2:
				err = k.Reschedule(ctx, key, 3*hour)
			case 3:
				err = k.RemoveTask(ctx, key)
				k.Add(durable.Task{Key: key, Kind: "note", Delay: 2 * hour})
			default:
				want[key] = 1
			}
			if err != nil && !errors.Is(err, durable.ErrTaskKeyNotFound) {
				t.Fatal(err)
			}
		}
		k.After(hour)
		got := map[string]int{}
		for _, c := range k.Runs() {
			got[c.Key]++
		}
		for key := range want {
			if got[key] != 1 {
				t.Errorf("%s ran %d times", key, got[key])
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d tasks ran, want %d", len(got), len(want))
		}
		k.After(12 * hour)
		later := len(k.Runs())
		if n := k.Len(); n != 0 || later < tasks/5*3-50 || later > tasks/5*3 {
			t.Errorf("%d ran later, %d are left", later, n)
		}
	}, durable.WithPoolSize(4))
}

// A counting KV counts the free tasks read from it.
type counting struct {
	*memory.KV
	records atomic.Int64
}

func (*counting) Exclusive() {}

func (c *counting) Scan(ctx context.Context, from, to string) iter.Seq2[engine.Entry, error] {
	return func(yield func(engine.Entry, error) bool) {
		for e, err := range c.KV.Scan(ctx, from, to) {
			if from[0] == 'f' {
				c.records.Add(1)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// However many tasks are overdue and however large they are, few of them are in memory. Even fewer are in memory of a
// kind that hangs. While it hangs, the rest is looked at every 15 s.
func TestCatchUp_memory_isBounded(t *testing.T) {
	testkit.NotForRaces(t)
	const quick, slow, looks = 8192 + 100, 1024 + 100, 30*4 + 10
	const growth = 1024 // read again while claims grow: all tasks are due at one instant, and a claim passes those it holds
	for name, c := range map[string]struct {
		tasks, payload, rate int
		takes                time.Duration
		most, size, read     int
	}{
		"many":        {9000, 0, 1, 0, quick, 5 << 18, quick + 1800 + growth},
		"large":       {200, 1 << 20, 1, 0, 40, 20 << 20, 600},
		"many, slow":  {9000, 0, 5000, hour, slow, 1 << 20, looks * slow},
		"large, slow": {200, 1 << 20, 5000, hour, 20, 20 << 20, looks * 40},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "large" && name != "many, slow" {
				t.Skip("not in short mode")
			}
			kit.In(t, func(t *testing.T, k *kit.Kit) {
				on := &counting{KV: memory.New()}
				s := k.Use(durable.New(ctx, kit.Own(on), durable.WithLogger(testkit.Quiet()), durable.WithPoolSize(4), durable.WithCatchUp(c.rate))).Scheduler
				var takes atomic.Int64
				takes.Store(int64(c.takes))
				k.Must(s.Handle("k", func(context.Context, durable.Run) error {
					time.Sleep(time.Duration(takes.Load()))
					return nil
				}))
				payload := make([]byte, c.payload)
				tasks := make([]durable.Task, c.tasks)
				for i := range tasks {
					tasks[i] = durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec, Payload: payload}
				}
				for some := range slices.Chunk(tasks, 20) {
					k.Must(s.AddTask(ctx, some...))
				}
				k.After(hour)
				k.Must(s.Start())
				k.After(time.Minute)
				if n, size := durable.InMemory(s, ""); n < 2 || n > c.most || size > c.size {
					t.Errorf("%d tasks of %d bytes are in memory, want at most %d of %d", n, size, c.most, c.size)
				}
				k.After(29 * time.Minute)
				if r := on.records.Load(); r > int64(c.read) || r < 10 {
					t.Errorf("%d records were read, want at most %d", r, c.read)
				}
				takes.Store(0)
				k.After(3 * hour)
				if n := s.Len(); n != 0 {
					t.Errorf("%d tasks are left", n)
				}
			})
		})
	}
}

// A worker whose run panics or ends its goroutine is replaced; a scheduler that is shut down begins no run, and the
// remaining tasks run in the next process.
func TestCatchUp_troubleAndCrashes_loseNothing(t *testing.T) {
	const tasks = 2000
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		overdue(k, tasks, "late")
		done := map[durable.Token]int{}
		for life := 0; k.Len() > 0; life++ {
			if life == 20 {
				t.Fatalf("%d tasks are left", k.Len())
			}
			k.Handle("late", func(_ context.Context, run durable.Run) error {
				time.Sleep(10 * time.Millisecond)
				switch {
				case run.Attempt > 1:
				case run.Key[len(run.Key)-1] == '3':
					panic("at the disco")
				case run.Key[len(run.Key)-1] == '7':
					runtime.Goexit()
				}
				return nil
			}, durable.WithRetry(5, sec, sec))
			k.Start()
			k.After(sec + 5*time.Millisecond)
			left := k.KV.Clone()
			k.Kill()
			for _, c := range k.Runs() {
				done[c.Token]++
			}
			k.After(10 * sec)
			k.RanNothing() // after Shutdown
			k.KV = left
			k.Open(k.KV)
			k.After(hour)
		}
		if len(done) != tasks {
			t.Errorf("%d tasks ran, want %d", len(done), tasks)
		}
		k.Handle("late", sleeper(0))
	}, durable.WithPoolSize(8))
}
