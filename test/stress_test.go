// SPDX-License-Identifier: MIT

package test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

// count returns how many are true.
func count(all []bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

// number is the inverse of name.
func number(key string) int {
	i, err := strconv.Atoi(strings.TrimPrefix(key, "task-"))
	if err != nil {
		return -1
	}
	return i
}

// These tests run in real time, with several goroutines at once, which a bubble cannot provide.

// together calls f on n goroutines, with their number, and returns when all have returned.
func together(n int, f func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { f(i) })
	}
	group.Wait()
}

func TestStress_startStopAndShutdown_byAllAtOnce(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		before := goroutines()
		for round := range 20 {
			var ran atomic.Uint64
			tw := newWheel(t, ms, 16, timewheel.WithPoolSize(4))
			for i := range 50 {
				must(t, tw.AddTask(every(name(i), time.Duration(1+i%3)*ms, func(*timewheel.Task) { ran.Add(1) })))
			}
			if round%2 == 0 {
				tw.Start()
			}
			together(10, func(i int) {
				random := rand.New(rand.NewPCG(uint64(round), uint64(i)))
				for range 50 {
					switch random.IntN(5) {
					case 0:
						tw.Start()
					case 1:
						tw.Stop()
					case 2:
						should(t, tw.Shutdown(t.Context()))
					case 3:
						tw.AfterFunc(0, func() {
							ran.Add(1)
							tw.Stop()
						})
					case 4:
						key := name(1000 + 100*i)
						if err := tw.AddTask(once(key, time.Hour, nothing)); err == nil {
							should(t, tw.RemoveTask(key))
						} else if !errors.Is(err, timewheel.ErrStopped) {
							t.Error(err)
						}
					}
				}
			})
			must(t, tw.Shutdown(t.Context()))
			if tw.IsRunning() {
				t.Error("runs after Stop")
			}
			if s := tw.Stats(); s.Started != ran.Load() || s.Running != 0 {
				t.Errorf("%d runs began, the accounts say %d, and %d go on", ran.Load(), s.Started, s.Running)
			}
		}
		for _, stack := range leaked(before) {
			t.Errorf("left behind:\n%s", stack)
		}
	})
}

// S3 with the loop, workers and many due runs in full swing. A run that the counters show as begun when Stop returns
// may not have reached the job's first line. No run may begin after that.
func TestS3_stopInFullSwing_noRunStartsAfterIt(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		rounds := 100
		if testkit.Race {
			rounds = 20
		}
		for round := range rounds {
			var ran atomic.Uint64
			tw := newWheel(t, ms, 16, timewheel.WithPoolSize(1+round%4))
			for i := range 200 {
				must(t, tw.AddTask(every(name(i), ms, func(*timewheel.Task) { ran.Add(1) })))
			}
			tw.Start()
			for ran.Load() < uint64(10*round) {
				runtime.Gosched()
			}
			tw.Stop()
			began := tw.Stats().Started
			must(t, tw.Shutdown(t.Context()))
			for range 100 {
				runtime.Gosched()
			}
			if s := balanced(t, tw, 200); s.Started != began || ran.Load() != began {
				t.Fatalf("%d runs had begun when Stop returned, %d in the end; %d jobs ran", began, s.Started, ran.Load())
			}
		}
	})
}

// A task is removed just as it falls due: either the removal succeeds and the task does not run, or it fails and the
// task runs. The tasks fall due one after another, and each is removed when the loop is about to wake up for it.
func TestK3_takenOutAsItFallsDue_runsOrNotButNeverBoth(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		const n = 1000
		rounds := 20
		if testkit.Race {
			rounds = 10
		}
		for _, c := range []struct {
			name string
			// takeOut removes the i-th task, and calls ok for each task that it has removed.
			takeOut func(tw *timewheel.TimeWheel, timers []*timewheel.Timer, i int, ok func(i int))
		}{
			{"RemoveTask", func(tw *timewheel.TimeWheel, _ []*timewheel.Timer, i int, ok func(int)) {
				if tw.RemoveTask(name(i)) == nil {
					ok(i)
				}
			}},
			{"SetTask", func(tw *timewheel.TimeWheel, _ []*timewheel.Timer, i int, ok func(int)) {
				removed := tw.Stats().Removed // nothing else is removed
				if tw.SetTask(once(name(i), time.Hour, nothing)) == nil && tw.Stats().Removed > removed {
					ok(i)
				}
			}},
			{"Reschedule", func(tw *timewheel.TimeWheel, _ []*timewheel.Timer, i int, ok func(int)) {
				if tw.Reschedule(name(i), time.Hour) == nil {
					ok(i)
				}
			}},
			{"Pause", func(tw *timewheel.TimeWheel, _ []*timewheel.Timer, i int, ok func(int)) {
				if tw.Pause(name(i)) == nil {
					ok(i)
				}
			}},
			{"RemoveWait", func(tw *timewheel.TimeWheel, _ []*timewheel.Timer, i int, ok func(int)) {
				if running, err := tw.RemoveWait(context.Background(), name(i)); err == nil && !running {
					ok(i)
				}
			}},
			{"Drain", func(tw *timewheel.TimeWheel, _ []*timewheel.Timer, i int, ok func(int)) {
				if i == n/2 {
					_, err := tw.Drain(func(task *timewheel.Task) { ok(number(task.Key)) })
					should(t, err)
				}
			}},
			{"Timer_Stop", func(_ *timewheel.TimeWheel, timers []*timewheel.Timer, i int, ok func(int)) {
				if timers[i].Stop() {
					ok(i)
				}
			}},
			{"Timer_Reset", func(_ *timewheel.TimeWheel, timers []*timewheel.Timer, i int, ok func(int)) {
				if timers[i].Reset(time.Hour) {
					ok(i)
				}
			}},
		} {
			t.Run(c.name, func(t *testing.T) {
				random := seeded()
				lead, apart, latency := 5*ms, 20*time.Microsecond, 150*time.Microsecond
				total, round := 0, 0
				isVain := func() bool { return total == 0 || total == n*round }
				for ; round < rounds || isVain() && round < 3*rounds; round++ {
					ran, out := make([]atomic.Bool, n), make([]bool, n)
					tw := startWheel(t, 10*time.Microsecond, 512, timewheel.WithPoolSize(1+round%3))
					var timers []*timewheel.Timer
					first := time.Now().Add(lead)
					due := func(i int) time.Time { return first.Add(time.Duration(i) * apart) }
					for i := range n {
						delay, run := time.Until(due(i)), func() { ran[i].Store(true) }
						if strings.HasPrefix(c.name, "Timer") {
							timers = append(timers, tw.AfterFunc(delay, run))
						} else {
							must(t, tw.AddTask(once(name(i), max(delay, 1), func(*timewheel.Task) { run() })))
						}
					}
					for i := range n {
						for meet := due(i).Add(time.Duration(random.Int64N(int64(latency)))); time.Now().Before(meet); {
							runtime.Gosched()
						}
						c.takeOut(tw, timers, i, func(i int) { out[i] = true })
					}
					for tw.Stats().Started < uint64(n-count(out)) {
						runtime.Gosched()
					}
					must(t, tw.Shutdown(t.Context()))
					if s := tw.Stats(); s.Started != uint64(n-count(out)) || s.Panicked != 0 {
						t.Fatalf("round %d: %d were taken out, and %d of %d began: %+v", round, count(out), s.Started, n, s)
					}
					for i := range n {
						if ran[i].Load() == out[i] {
							t.Fatalf("round %d: task %d was taken out: %v; it ran: %v", round, i, out[i], ran[i].Load())
						}
					}
					total += count(out)
					switch taken := count(out); { // how late a task runs depends on the machine
					case taken > n*3/4:
						latency *= 2
					case taken == 0: // the test itself may be too late
						lead, apart = min(2*lead, 200*ms), min(2*apart, 200*time.Microsecond)
						fallthrough
					case taken < n/4:
						latency = max(latency/2, time.Microsecond)
					}
				}
				if isVain() {
					t.Errorf("%d of %d were taken out: none fell due just then", total, n*round)
				}
			})
		}
	})
}

// K5: the last run of one task begins while another is added under its key.
func TestK5_keyTakenAsItFallsFree_staysTaken(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		tw := startWheel(t, ms, 4)
		const rounds, keys = 60, 30
		added := 0
		for range rounds {
			for i := range keys {
				must(t, tw.AddTask(once(name(i), time.Duration(1+i%3)*ms, nothing)))
			}
			for i := range keys { // by this goroutine as soon as the worker releases it
				for {
					err := tw.AddTask(once(name(i), time.Hour, nothing))
					if err == nil {
						break
					}
					if !errors.Is(err, timewheel.ErrDuplicateTaskKey) {
						t.Fatal(err)
					}
				}
			}
			for i := range keys {
				if !tw.Exist(name(i)) {
					t.Fatalf("%s was added as the last run of an earlier task began, and is gone", name(i))
				}
				must(t, tw.RemoveTask(name(i)))
			}
			added += 2 * keys
		}
		balanced(t, tw, added)
	})
}

// C2: tasks that Drain removes while other goroutines add are freed too. Drain has much to do at first, so that many
// tasks are added meanwhile.
func TestC2_drainedWhileOthersAdd_isFreed(t *testing.T) {
	testkit.NotForRaces(t)
	eachLayout(t, func(t *testing.T) {
		tw := startWheel(t, ms, 64)
		const adders, each, before = 2, 10_000, 50_000
		for i := range before {
			must(t, tw.AddTask(once(name(adders*each+i), time.Hour, nothing)))
		}
		held := make([][]weak.Pointer[[64]byte], adders)
		done := make(chan struct{})
		go func() {
			defer close(done)
			together(adders, func(i int) {
				for k := range each {
					b := new([64]byte)
					held[i] = append(held[i], weak.Make(b))
					key := name(i*each + k)
					should(t, tw.AddTask(once(key, time.Hour, func(*timewheel.Task) { b[0]++ })))
				}
			})
		}()
		_, err := tw.Drain(func(*timewheel.Task) {})
		must(t, err)
		<-done
		for key := range infosOf(tw) { // a second Drain would also free tasks that the first had left behind
			must(t, tw.RemoveTask(key))
		}
		wantEqual(t, "Pending", balanced(t, tw, adders*each+before).Pending, 0)
		left := 0
		for range 20 {
			runtime.GC()
			left = 0
			for _, pointers := range held {
				for _, w := range pointers {
					if w.Value() != nil {
						left++
					}
				}
			}
			if left == 0 {
				break
			}
		}
		if left > 0 {
			t.Errorf("%d of %d tasks that were drained or removed are held", left, adders*each)
		}
		runtime.KeepAlive(tw)
	})
}

func TestSkipIfRunning_underManyCalls_runsOneAtATime(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		tw := startWheel(t, ms, 16)
		var now, ran, called atomic.Int64
		job := timewheel.SkipIfRunning(func(*timewheel.Task) {
			if now.Add(1) > 1 {
				t.Error("two runs go on at the same time")
			}
			for range 50 {
				runtime.Gosched()
			}
			ran.Add(1)
			now.Add(-1)
		})
		const tasks, runs = 20, 10
		for i := range tasks {
			must(t, tw.AddTask(times(name(i), ms, runs, func(task *timewheel.Task) {
				job(task)
				called.Add(1)
			})))
		}
		for called.Load() < tasks*runs {
			runtime.Gosched()
		}
		if n := ran.Load(); n == 0 || n > tasks*runs {
			t.Errorf("%d of %d calls did something", n, tasks*runs)
		}
		must(t, tw.Shutdown(t.Context()))
		balanced(t, tw, tasks)
	})
}

// S6: every verb, called by many goroutines and jobs at once, for the race detector; then L5.
func TestS6_everyVerbAtOnce_keepsTheAccounts(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		for _, c := range []struct {
			name string
			opts []timewheel.Option
		}{
			{"pool", []timewheel.Option{timewheel.WithPoolSize(3)}},
			{"executor", []timewheel.Option{timewheel.WithExecutor(executor(func(f func()) error {
				if rand.IntN(3) == 0 {
					return errors.New("not now")
				}
				go f()
				return nil
			}))}},
			{"executor_that_runs_at_once", []timewheel.Option{timewheel.WithExecutor(executor(func(f func()) error {
				f()
				return nil
			}))}},
		} {
			t.Run(c.name, func(t *testing.T) {
				tw := startWheel(t, ms, 8, append(c.opts, quiet(), timewheel.WithObserver(func(timewheel.Run) {}))...)
				var added atomic.Int64
				together(8, func(i int) {
					random := rand.New(rand.NewPCG(7, uint64(i)))
					timer := tw.AfterFunc(ms, func() {})
					added.Add(1)
					for n := 0; n < 1000 || tw.Stats().Started < 100; n++ {
						key := name(random.IntN(200))
						task := times(key, time.Duration(1+random.IntN(int(ms))), random.IntN(4), nil)
						bad := random.IntN(4)
						task.Job = func(task *timewheel.Task) {
							switch bad {
							case 0:
								panic("trouble")
							case 1:
								runtime.Goexit()
							case 2:
								if tw.AddTask(once(task.Key, ms, nothing)) == nil {
									added.Add(1)
								}
							}
						}
						switch random.IntN(10) {
						case 0, 1:
							if tw.AddTask(task) == nil {
								added.Add(1)
							}
						case 2:
							should(t, tw.SetTask(task))
							added.Add(1)
						case 3:
							_ = tw.RemoveTask(key)
						case 4:
							_ = tw.Reschedule(key, task.Interval)
						case 5:
							if !timer.Reset(task.Interval) {
								added.Add(1)
							}
						case 6:
							timer.Stop()
						case 7:
							if info, ok := tw.Get(key); ok && (info.Key != key || info.Times < 0 || info.Times > 3) {
								t.Errorf("Get(%q): %+v", key, info)
							}
							if left := tw.GetTaskTimes(key); left < 0 || left > 3 || tw.Stats().Running < 0 {
								t.Errorf("%d runs left of %q", left, key)
							}
						case 8:
							for info := range tw.All() {
								if info.Key == "" {
									t.Error("All yields a task with no key")
								}
							}
						case 9:
							if random.IntN(20) == 0 {
								_, err := tw.Drain(func(*timewheel.Task) {})
								should(t, err)
							}
						}
					}
				})
				for deadline := time.Now().Add(30 * time.Second); tw.Len() > 0; runtime.Gosched() {
					if time.Now().After(deadline) {
						t.Fatalf("%d tasks are left", tw.Len())
					}
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				must(t, tw.Shutdown(ctx))
				// The last run may have added one more.
				if s := balanced(t, tw, int(added.Load())); s.Running != 0 || s.Panicked == 0 {
					t.Errorf("Started %d, Panicked %d, Running %d", s.Started, s.Panicked, s.Running)
				}
			})
		}
	})
}
