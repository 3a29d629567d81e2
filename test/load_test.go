// SPDX-License-Identifier: MIT

package test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

// hooks returns options that make the wheel call f wherever it calls the user's code, except jobs and executors.
func hooks(f func()) []timewheel.Option {
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.AddHook(hook(f))
	return []timewheel.Option{
		timewheel.WithLogger(l),
		timewheel.WithPanicHandler(func(*timewheel.Task, any, []byte) { f() }),
		timewheel.WithObserver(func(timewheel.Run) { f() }),
	}
}

type hook func()

func (h hook) Levels() []logrus.Level { return logrus.AllLevels }

func (h hook) Fire(*logrus.Entry) error {
	h()
	return nil
}

// Whichever part of the user's code does not return, the next task runs on time.
func TestL1_slowJob_delaysNoTickAndNoOtherTask(t *testing.T) {
	for _, c := range []struct {
		name string
		opts func(stuck func()) []timewheel.Option
		job  func(stuck func()) // the job of the stuck task
	}{
		{"job", nil, func(stuck func()) { stuck() }},
		{"observer", func(stuck func()) []timewheel.Option {
			return []timewheel.Option{timewheel.WithObserver(func(r timewheel.Run) {
				if r.Key == "stuck" {
					stuck()
				}
			})}
		}, func(func()) {}},
		{"panic_handler", func(stuck func()) []timewheel.Option {
			return append(hooks(stuck)[1:2], quiet())
		}, func(func()) { panic("trouble") }},
		{"logger", func(stuck func()) []timewheel.Option {
			return hooks(stuck)[:1]
		}, func(func()) { panic("trouble") }},
		{"panic_handler_after_Goexit", func(stuck func()) []timewheel.Option {
			return append(hooks(stuck)[1:2], quiet())
		}, func(func()) { runtime.Goexit() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				gate := make(chan struct{})
				stuck := func() { <-gate }
				opts := []timewheel.Option{timewheel.WithPoolSize(2)}
				if c.opts != nil {
					opts = append(opts, c.opts(stuck)...)
				}
				tw, j := startWheel(t, 10*ms, 16, opts...), newJournal()
				t.Cleanup(func() { close(gate) })
				must(t, tw.AddTask(once("stuck", 20*ms, func(*timewheel.Task) { c.job(stuck) })))
				var want []time.Duration
				for i := range 20 {
					d := time.Duration(i+1) * 10 * ms
					must(t, tw.AddTask(once(name(i), d, func(*timewheel.Task) { j.note("other") })))
					want = append(want, d)
				}
				testkit.Settle(time.Second)
				j.want(t, "other", want...)
				wantEqual(t, "runs that go on", tw.Stats().Running, 1)
				balanced(t, tw, 21)
			})
		})
	}
}

// With no free worker the loop still notices due tasks, and answers.
func TestL1_stuckWorkers_delayNoTickAndNoVerb(t *testing.T) {
	for _, c := range []struct {
		name   string
		option func(gate chan struct{}) timewheel.Option
	}{
		{"full_pool", func(chan struct{}) timewheel.Option { return timewheel.WithPoolSize(1) }},
		{"executor_that_blocks", func(gate chan struct{}) timewheel.Option {
			return timewheel.WithExecutor(executor(func(f func()) error {
				<-gate
				go f()
				return nil
			}))
		}},
		{"executor_that_runs_at_once", func(chan struct{}) timewheel.Option {
			return timewheel.WithExecutor(executor(func(f func()) error {
				f()
				return nil
			}))
		}},
		{"executor_that_refuses", func(gate chan struct{}) timewheel.Option {
			return timewheel.WithExecutor(executor(func(f func()) error {
				select {
				case <-gate:
					go f()
					return nil
				default:
					return errors.New("no")
				}
			}))
		}},
		{"executor_that_panics", func(gate chan struct{}) timewheel.Option {
			return timewheel.WithExecutor(executor(func(f func()) error {
				select {
				case <-gate:
					go f()
					return nil
				default:
					panic("no")
				}
			}))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				gate := make(chan struct{})
				tw, j := startWheel(t, 10*ms, 16, c.option(gate), quiet()), newJournal()
				release := sync.OnceFunc(func() { close(gate) })
				t.Cleanup(release)
				must(t, tw.AddTask(once("stuck", 10*ms, func(*timewheel.Task) { <-gate })))
				for i := range 100 {
					must(t, tw.AddTask(once(name(i), time.Duration(i+2)*10*ms, j.job)))
				}
				for i := range 100 {
					testkit.Settle(10 * ms)
					if due := tw.Stats().Due; due != uint64(i+1) {
						t.Fatalf("after %d ticks %d runs were due", i+1, due)
					}
				}
				testkit.Settle(10 * ms)
				everyVerb(t, tw)
				synctest.Wait()
				wantEqual(t, "runs that began", len(j.keys()), 0)
				balanced(t, tw, 101+verbsAdded)
				release()
				testkit.Settle(100 * ms)
				if got := j.keys(); len(got) != 100 {
					t.Errorf("%d runs began once there were workers, want 100", len(got))
				}
				balanced(t, tw, 101+verbsAdded)
			})
		})
	}
}

// verbsAdded is how many tasks everyVerb adds.
const verbsAdded = 6

// everyVerb calls every method that does not start, stop or drain the wheel. The wheel may be stopped. Afterwards it
// has the same tasks as before.
func everyVerb(t *testing.T, tw *timewheel.TimeWheel) {
	t.Helper()
	check := func(what string, err error) {
		t.Helper()
		if err != nil && !errors.Is(err, timewheel.ErrStopped) && !errors.Is(err, timewheel.ErrTaskKeyNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	before := tw.Len()
	check("AddTask", tw.AddTask(once("verbs", year, nothing)))
	check("SetTask", tw.SetTask(once("verbs", 2*year, nothing)))
	check("SetTask", tw.SetTask(once("verbs too", 2*year, nothing)))
	check("Reschedule", tw.Reschedule("verbs", 3*year))
	check("Reschedule", tw.Reschedule("verbs", year))
	_, there := tw.Get("verbs")
	if there != tw.Exist("verbs") || there != (tw.GetTaskTimes("verbs") == 1) {
		t.Errorf("Get %v, Exist %v, %d runs left", there, tw.Exist("verbs"), tw.GetTaskTimes("verbs"))
	}
	for range tw.All() {
		break
	}
	check("RemoveTask", tw.RemoveTask("verbs"))
	check("RemoveTask", tw.RemoveTask("verbs too"))
	timer := tw.AfterFunc(year, func() {})
	if timer.Stop() {
		timer.Reset(2 * year)
		timer.Reset(year)
		timer.Stop()
		tw.AfterFunc(year, func() {}).Stop()
	}
	if tw.Stats().Pending != before || tw.Len() != before {
		t.Errorf("%d tasks are there, and %d were before", tw.Len(), before)
	}
	tw.IsRunning()
}

func TestL2_fullPool_losesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const workers, n = 4, 3000
		tw, j := startWheel(t, 10*ms, 16, timewheel.WithPoolSize(workers)), newJournal()
		var now, most atomic.Int64
		for i := range n {
			must(t, tw.AddTask(once(name(i), 50*ms, func(task *timewheel.Task) {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				j.job(task)
				time.Sleep(ms)
			})))
		}
		testkit.Settle(50 * ms)
		if s := balanced(t, tw, n); s.Running != workers || s.Waiting != n-workers || s.Pending != n-workers {
			t.Errorf("Running %d, Waiting %d, Pending %d", s.Running, s.Waiting, s.Pending)
		}
		testkit.Settle(time.Minute)
		keys := j.keys()
		slices.Sort(keys)
		if len(slices.Compact(keys)) != n || len(j.keys()) != n {
			t.Errorf("%d runs of %d tasks, want %d", len(j.keys()), len(slices.Compact(keys)), n)
		}
		wantEqual(t, "most runs at the same time", most.Load(), int64(workers))
		balanced(t, tw, n)
	})
}

// The size of the pool changes while the wheel runs: up, so that waiting runs begin, and down, without an interruption.
func TestResizePool_whileJobsRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 16, timewheel.WithPoolSize(2))
		release := make(chan struct{})
		for i := range 20 {
			must(t, tw.AddTask(once(name(i), 10*ms, func(*timewheel.Task) { <-release })))
		}
		testkit.Settle(20 * ms)
		want := func(running, workers int) {
			t.Helper()
			synctest.Wait()
			if s := balanced(t, tw, 20); s.Running != running || s.Workers != workers {
				t.Errorf("%d runs on at most %d workers, want %d and %d", s.Running, s.Workers, running, workers)
			}
		}
		want(2, 2)
		must(t, tw.ResizePool(10))
		want(10, 10)
		must(t, tw.ResizePool(3))
		for _, running := range []int{10, 9, 8, 7, 6, 5, 4, 3, 3, 3} {
			want(running, 3)
			release <- struct{}{}
		}
		want(3, 3)
		must(t, tw.ResizePool(1))
		want(3, 1)
		release <- struct{}{}
		want(2, 1)
		must(t, tw.ResizePool(2))
		for _, size := range []int{0, -1} {
			if err := tw.ResizePool(size); err == nil || err.Error() != fmt.Sprintf("timewheel: pool size %d is not positive", size) {
				t.Errorf("size %d: %v", size, err)
			}
		}
		want(2, 2)
		close(release)
		want(0, 2)
		tw.Stop()
		must(t, tw.ResizePool(5)) // has no effect
	})
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 16, timewheel.WithExecutor(executor(func(f func()) error { go f(); return nil })))
		if err := tw.ResizePool(2); err == nil || !strings.Contains(err.Error(), "executor") || tw.Stats().Workers != 0 {
			t.Errorf("%v, and %d workers", err, tw.Stats().Workers)
		}
	})
}

func TestL2_waitingRuns_areFirstInFirstOut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const n = 1000
		tw, j := startWheel(t, 10*ms, 16, timewheel.WithPoolSize(1)), newJournal()
		release := occupy(t, tw, 1)
		var want []string
		for _, i := range seeded().Perm(n) {
			must(t, tw.AddTask(once(name(i), time.Duration(i+1)*10*ms, j.job)))
		}
		for i := range n {
			if want = append(want, name(i)); i%7 == 0 {
				want = want[:len(want)-1]
			}
		}
		testkit.Settle(n*10*ms + 10*ms)
		for i := 0; i < n; i += 7 { // some are removed from the middle
			must(t, tw.RemoveTask(name(i)))
		}
		release()
		synctest.Wait()
		if got := j.keys(); !slices.Equal(got, want) {
			t.Errorf("%d runs began, want %d, in due order: %v", len(got), len(want), slices.IsSorted(got))
		}
		balanced(t, tw, n+1)
	})
}

// The wait for a worker begins when the run is dispatched. The time for which a run was overdue before that does not
// count.
func TestStats_oldestWait_beginsWithTheDispatch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := newWheel(t, 10*ms, 16, timewheel.WithPoolSize(1))
		must(t, tw.AddTask(once("runs", 10*ms, func(*timewheel.Task) { time.Sleep(time.Minute) })))
		must(t, tw.AddTask(once("waits", 20*ms, nothing)))
		testkit.Settle(time.Second)
		tw.Start()
		testkit.Settle(50 * ms)
		if s := balanced(t, tw, 2); s.Waiting != 1 || s.OldestWait != 50*ms {
			t.Errorf("%d runs wait, the first for %v, want 1 for 50ms", s.Waiting, s.OldestWait)
		}
	})
}

func TestL2_repeatingTask_waitsOnceAtMost(t *testing.T) {
	const interval = 25 * ms
	for _, n := range []int{3, timewheel.Forever} {
		inBubble(t, func(t *testing.T) {
			tw := startWheel(t, 10*ms, 16, timewheel.WithPoolSize(1))
			release, j := occupy(t, tw, 1), newJournal()
			for i := range 5 {
				must(t, tw.AddTask(times(name(i), interval, n, j.job)))
			}
			for k := 2; k <= 40; k += 2 {
				testkit.Settle(2 * interval)
				s := balanced(t, tw, 6)
				if s.Waiting != 5 || s.Missed != uint64(5*(k-1)) || s.Due != uint64(5*k+1) || s.Started != 1 {
					t.Fatalf("after %d periods: %+v", k, s)
				}
			}
			release()
			synctest.Wait()
			for i := range 5 {
				j.want(t, name(i), time.Second)
			}
			testkit.Settle(time.Second)
			// The grid continues, and the missed periods did not use up the runs.
			at := []time.Duration{time.Second}
			for due := time.Second + interval; due <= 2*time.Second && len(at) != n; due += interval {
				at = append(at, (due+10*ms-1)/(10*ms)*(10*ms))
			}
			for i := range 5 {
				j.want(t, name(i), at...)
			}
			balanced(t, tw, 6)
		})
	}
}

func TestL3_maxPending_boundsTheLiveTasks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 16, timewheel.WithMaxPending(3))
		full := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, timewheel.ErrFull) || !strings.Contains(err.Error(), "3") {
				t.Errorf("%s: %v", what, err)
			}
		}
		must(t, tw.AddTask(once("a", time.Hour, nothing)))
		must(t, tw.AddTask(every("b", 20*ms, nothing)))
		must(t, tw.SetTask(once("c", 50*ms, nothing)))
		full("AddTask of a fourth", tw.AddTask(once("d", time.Hour, nothing)))
		full("SetTask of a fourth", tw.SetTask(once("d", time.Hour, nothing)))
		must(t, tw.SetTask(once("a", 2*time.Hour, nothing))) // replaces one
		if err := tw.AddTask(once("a", time.Hour, nothing)); !errors.Is(err, timewheel.ErrDuplicateTaskKey) {
			t.Errorf("AddTask of a key that is there: %v", err)
		}
		wantEqual(t, "tasks", keysOf(tw), []string{"a", "b", "c"})
		must(t, tw.RemoveTask("a"))
		must(t, tw.AddTask(once("d", time.Hour, nothing)))
		full("AddTask after one was removed and one added", tw.AddTask(once("a", time.Hour, nothing)))
		testkit.Settle(60 * ms) // c has run
		must(t, tw.AddTask(once("a", time.Hour, nothing)))
		full("AddTask after one has run and one was added", tw.AddTask(once("e", time.Hour, nothing)))

		timer := tw.AfterFunc(time.Hour, func() {}) // counts, but is not refused
		must(t, tw.RemoveTask("a"))
		full("AddTask beside a timer", tw.AddTask(once("a", time.Hour, nothing)))
		wantEqual(t, "Stop", timer.Stop(), true)
		must(t, tw.AddTask(once("a", time.Hour, nothing)))
		balanced(t, tw, 8)
	})
}

// If a SetTask could lift the bound for an instant, each one would let in one more task.
func TestL3_replacingTasks_keepsTheBound(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		const bound = 2
		tw := startWheel(t, ms, 16, timewheel.WithMaxPending(bound))
		must(t, tw.AddTask(once("a", time.Hour, nothing)))
		must(t, tw.AddTask(once("b", time.Hour, nothing)))
		replacements := 0
		meanwhile(t, func() error {
			replacements++
			return tw.SetTask(once("a", time.Hour, nothing))
		}, 50_000, func() error {
			if err := tw.AddTask(once("c", time.Hour, nothing)); !errors.Is(err, timewheel.ErrFull) {
				return fmt.Errorf("a third task beside two that were there all the while: %v", err)
			}
			return nil
		})
		balanced(t, tw, 2+replacements)
	})
}

// An add that fails must not take the place of one that could succeed.
func TestL3_addsThatFail_refuseNoOther(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		tw := startWheel(t, ms, 16, timewheel.WithMaxPending(2))
		must(t, tw.AddTask(once("a", time.Hour, nothing)))
		meanwhile(t, func() error {
			if err := tw.AddTask(once("a", time.Hour, nothing)); !errors.Is(err, timewheel.ErrDuplicateTaskKey) {
				return fmt.Errorf("AddTask of a key that is there: %v", err)
			}
			return nil
		}, 50_000, func() error {
			if err := tw.AddTask(once("b", time.Hour, nothing)); err != nil {
				return fmt.Errorf("a second task where two are allowed: %w", err)
			}
			return tw.RemoveTask("b")
		})
	})
}

func TestL4_jobThatPanics_harmsNothingElse(t *testing.T) {
	cause := errors.New("trouble")
	for _, c := range []struct {
		name string
		fail func()
		text string // in the log
		want func(value any) bool
	}{
		{"panic", func() { panic(cause) }, "trouble", func(v any) bool { return v == cause }},
		{"nil_panic", func() { panic(nil) }, "nil", func(v any) bool {
			_, ok := v.(*runtime.PanicNilError)
			return ok
		}},
		{"runtime_error", func() { _ = []int{}[len(cause.Error())] }, "out of range", func(v any) bool {
			_, ok := v.(runtime.Error)
			return ok
		}},
		{"Goexit", runtime.Goexit, "Goexit", func(v any) bool { _, ok := v.(error); return ok }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var book logBook
				var handled []any
				var observed []timewheel.Run
				tw := startWheel(t, 10*ms, 16, timewheel.WithPoolSize(1), timewheel.WithLogger(book.logger()),
					timewheel.WithPanicHandler(func(task *timewheel.Task, value any, stack []byte) {
						if task.Key != "bad" || task.Times != 2-len(handled) {
							t.Errorf("the panic handler was given %+v", task)
						}
						if strings.Contains(string(stack), "load_test.go") {
							handled = append(handled, value)
						}
					}),
					timewheel.WithObserver(func(r timewheel.Run) { observed = append(observed, r) }))
				j := newJournal()
				must(t, tw.AddTask(times("bad", 20*ms, 3, func(task *timewheel.Task) {
					j.job(task)
					c.fail()
				})))
				must(t, tw.AddTask(every("good", 20*ms, j.job)))
				testkit.Settle(100 * ms)

				j.want(t, "bad", 20*ms, 40*ms, 60*ms)
				j.want(t, "good", 20*ms, 40*ms, 60*ms, 80*ms, 100*ms)
				if len(handled) != 3 || !c.want(handled[0]) {
					t.Errorf("the panic handler was given %v", handled)
				}
				if logged := book.with("level=error", "bad", c.text, "load_test.go"); len(logged) != 3 {
					t.Errorf("%d panics were logged with key and stack; the log:\n%s", len(logged), book.entries)
				}
				for _, r := range observed {
					if r.Panicked != (r.Key == "bad") {
						t.Errorf("the observer was told %+v", r)
					}
				}
				wantEqual(t, "observed runs", len(observed), 8)
				if s := balanced(t, tw, 2); s.Panicked != 3 || s.Started != 8 || s.Running != 0 {
					t.Errorf("Panicked %d, Started %d, Running %d", s.Panicked, s.Started, s.Running)
				}
			})
		})
	}
}

func TestL4_handlersThatFail_harmNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func()
	}{
		{"panic", func() { panic("again") }},
		{"Goexit", runtime.Goexit},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				calls := 0
				opts := append(hooks(func() {
					if calls++; calls > 1 { // not at Start, where it would end the test's goroutine
						c.fail()
					}
				}), timewheel.WithPoolSize(1))
				tw := startWheel(t, 10*ms, 16, opts...)
				j := newJournal()
				must(t, tw.AddTask(every("bad", 20*ms, func(*timewheel.Task) { panic("trouble") })))
				must(t, tw.AddTask(every("good", 20*ms, j.job)))
				testkit.Settle(105 * ms)
				j.want(t, "good", 20*ms, 40*ms, 60*ms, 80*ms, 100*ms)
				if s := balanced(t, tw, 2); s.Panicked != 5 || s.Started != 10 || s.Running != 0 {
					t.Errorf("Panicked %d, Started %d, Running %d", s.Panicked, s.Started, s.Running)
				}
				must(t, tw.RemoveTask("bad"))
				must(t, tw.RemoveTask("good"))
				calls = -1 << 30 // what Stop logs is logged here, too
			})
		})
	}
}

// Every failure of a user's handler is also logged each time, and nothing is logged for a handler that does not fail.
func TestL4_handlersThatPanic_areLogged(t *testing.T) {
	for _, c := range []struct{ observer, handler bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		inBubble(t, func(t *testing.T) {
			fail := func(fails bool, text string) {
				if fails {
					panic(text)
				}
			}
			var book logBook
			tw := startWheel(t, 10*ms, 16, timewheel.WithLogger(book.logger()),
				timewheel.WithPanicHandler(func(*timewheel.Task, any, []byte) { fail(c.handler, "this one fails, too") }),
				timewheel.WithObserver(func(timewheel.Run) { fail(c.observer, "the last one fails") }))
			must(t, tw.AddTask(times("k", time.Second, 3, func(*timewheel.Task) { fail(true, "the job fails") })))
			testkit.Settle(5 * time.Second)
			for _, entry := range []struct {
				fails      bool
				what, text string
			}{
				{true, "job panicked", "the job fails"},
				{c.handler, "panic handler panicked", "this one fails, too"},
				{c.observer, "observer panicked", "the last one fails"},
			} {
				want := 0
				if entry.fails {
					want = 3
				}
				wantEqual(t, "entries that the "+entry.what, len(book.with(entry.what)), want)
				wantEqual(t, "of them with value and stack",
					len(book.with(entry.what, "level=error", entry.text, "load_test.go")), want)
			}
			balanced(t, tw, 1)
		})
	}
}

func TestL5_accountsBalance_afterEveryKindOfTrouble(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 16, timewheel.WithPoolSize(3), quiet())
		random := seeded()
		added := 0
		jobs := []timewheel.Job{
			nothing,
			func(*timewheel.Task) { panic("trouble") },
			func(*timewheel.Task) { runtime.Goexit() },
			func(*timewheel.Task) { time.Sleep(70 * ms) },
		}
		var timers []*timewheel.Timer
		for range 3000 {
			key := name(random.IntN(60))
			task := &timewheel.Task{
				Key: key, Interval: time.Duration(1 + random.IntN(int(100*ms))), Times: random.IntN(5) - 1,
				Job: jobs[random.IntN(len(jobs))],
			}
			switch random.IntN(9) {
			case 0, 1:
				if tw.AddTask(task) == nil {
					added++
				}
			case 2:
				must(t, tw.SetTask(task))
				added++
			case 3:
				_ = tw.RemoveTask(key)
			case 4:
				_ = tw.Reschedule(key, task.Interval)
			case 5:
				timers = append(timers, tw.AfterFunc(task.Interval, func() { task.Job(task) }))
				added++
			case 6:
				if len(timers) > 0 && !timers[random.IntN(len(timers))].Reset(task.Interval) {
					added++
				}
			case 7:
				if len(timers) > 0 {
					timers[random.IntN(len(timers))].Stop()
				}
			case 8:
				if random.IntN(100) == 0 {
					_, err := tw.Drain(func(*timewheel.Task) {})
					must(t, err)
				}
			}
			testkit.Settle(time.Duration(random.IntN(int(20 * ms))))
			if balanced(t, tw, added); t.Failed() {
				return
			}
		}
		s := tw.Stats()
		for what, n := range map[string]uint64{
			"Finished": s.Finished, "Removed": s.Removed,
			"Missed": s.Missed, "Withdrawn": s.Withdrawn, "Panicked": s.Panicked,
		} {
			if n < 10 {
				t.Errorf("%s is %d: the trouble was too little", what, n)
			}
		}
		tw.Stop()
		testkit.Settle(time.Second)
		balanced(t, tw, added)
		n, err := tw.Drain(func(*timewheel.Task) {})
		must(t, err)
		wantEqual(t, "drained tasks", n, s.Pending)
		wantEqual(t, "Pending after Drain", balanced(t, tw, added).Pending, 0)
	})
}

// The reports of the single runs add up to the counters of the wheel.
func TestL5_observer_isToldOfEveryRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var runs []timewheel.Run
		var mu sync.Mutex
		tw := startWheel(t, 10*ms, 16, timewheel.WithPoolSize(1), timewheel.WithObserver(func(r timewheel.Run) {
			mu.Lock()
			defer mu.Unlock()
			runs = append(runs, r)
		}))
		origin := time.Now()
		must(t, tw.AddTask(once("first", 15*ms, func(*timewheel.Task) { time.Sleep(30 * ms) })))
		must(t, tw.AddTask(once("second", 31*ms, func(*timewheel.Task) { time.Sleep(5 * ms) })))
		tw.AfterFunc(60*ms, func() {})
		testkit.Settle(time.Second)
		at := func(d time.Duration) time.Time { return origin.Add(d) }
		want := []timewheel.Run{
			{Key: "first", Due: at(15 * ms), Dispatched: at(20 * ms), Started: at(20 * ms), Ended: at(50 * ms)},
			{Key: "second", Due: at(31 * ms), Dispatched: at(40 * ms), Started: at(50 * ms), Ended: at(55 * ms)},
			{Key: "", Due: at(60 * ms), Dispatched: at(60 * ms), Started: at(60 * ms), Ended: at(60 * ms)},
		}
		if len(runs) != len(want) {
			t.Fatalf("told of %d runs, want %d", len(runs), len(want))
		}
		for i, r := range runs {
			if text := func(r timewheel.Run) string {
				return fmt.Sprintf("%q due %v, dispatched %v, started %v, ended %v, panicked %v", r.Key, r.Due.Sub(origin),
					r.Dispatched.Sub(origin), r.Started.Sub(origin), r.Ended.Sub(origin), r.Panicked)
			}; text(r) != text(want[i]) {
				t.Errorf("told of %s\nwant %s", text(r), text(want[i]))
			}
		}
		balanced(t, tw, 3)
	})
}

func TestExecutor_thatRefuses_isAskedAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		refuse func() error
	}{
		{"error", func() error { return errors.New("not now") }},
		{"panic", func() error { panic("not now") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var book logBook
				refusals := 0
				tw := startWheel(t, 10*ms, 16, timewheel.WithLogger(book.logger()),
					timewheel.WithExecutor(executor(func(f func()) error {
						if refusals < 20 {
							refusals++
							return c.refuse()
						}
						go f()
						return nil
					})))
				j := newJournal()
				for i := range 100 {
					must(t, tw.AddTask(once(name(i), 10*ms, j.job)))
				}
				testkit.Settle(time.Second)
				wantEqual(t, "runs", len(j.keys()), 100)
				wantEqual(t, "refusals", refusals, 20)
				wantEqual(t, "warnings", len(book.with("level=warning", "not now")), 1) // one, not one per refusal
				balanced(t, tw, 100)
			})
		})
	}
}

// If an executor runs a job at once, the job may end the goroutine that called the executor.
func TestExecutor_thatRunsAtOnce_survivesJobsThatFail(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 16, quiet(), timewheel.WithExecutor(executor(func(f func()) error {
			f()
			return nil
		})))
		j := newJournal()
		for i := range 40 {
			must(t, tw.AddTask(once(name(i), 10*ms, func(task *timewheel.Task) {
				j.job(task)
				switch i % 4 {
				case 0:
					panic("trouble")
				case 1:
					runtime.Goexit()
				case 2:
					everyVerb(t, tw)
				}
			})))
		}
		testkit.Settle(time.Second)
		wantEqual(t, "runs", len(j.keys()), 40)
		if s := balanced(t, tw, 40+10*verbsAdded); s.Panicked != 20 || s.Running != 0 {
			t.Errorf("Panicked %d, Running %d", s.Panicked, s.Running)
		}
	})
}

// A task that is gone no longer counts. A task that is just ending may take up its room for a moment longer. The job of
// its last run finds the room free, and so does the caller of a RemoveTask that has returned.
func TestL3_goneTask_hasLeftItsRoom(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		for _, c := range []struct {
			name  string
			delay time.Duration
			end   func(tw *timewheel.TimeWheel) error // on a separate goroutine
		}{
			{"by_its_last_run", ms, func(*timewheel.TimeWheel) error { return nil }},
			{"by_RemoveTask", time.Hour, func(tw *timewheel.TimeWheel) error { return tw.RemoveTask("k") }},
		} {
			t.Run(c.name, func(t *testing.T) {
				tw := startWheel(t, ms, 16, timewheel.WithMaxPending(1))
				rounds := 500
				if testkit.Race {
					rounds = 100
				}
				for range rounds {
					must(t, tw.AddTask(once("k", c.delay, nothing)))
					ended := make(chan error)
					go func() { ended <- c.end(tw) }()
					later := once("k", time.Hour, nothing)
					err := tw.AddTask(later)
					for errors.Is(err, timewheel.ErrDuplicateTaskKey) || errors.Is(err, timewheel.ErrFull) {
						runtime.Gosched()
						err = tw.AddTask(later)
					}
					must(t, <-ended)
					if err != nil {
						t.Fatalf("the only task is gone: %v", err)
					}
					must(t, tw.RemoveTask("k"))
					must(t, tw.AddTask(later))
					must(t, tw.RemoveTask("k"))
					inside := make(chan error)
					must(t, tw.AddTask(once("k", ms, func(*timewheel.Task) { inside <- tw.AddTask(later) })))
					must(t, <-inside)
					must(t, tw.RemoveTask("k"))
				}
			})
		}
	})
}
