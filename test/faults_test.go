// SPDX-License-Identifier: MIT

package test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

// faults returns the faults of jobs, executors, handlers and observers: for each the options of the wheel and a job.
// Closing release ends blocked calls.
func faults(release chan struct{}) map[string]struct {
	opts []timewheel.Option
	job  timewheel.Job
} {
	var n atomic.Int64
	seldom := func() bool { return n.Add(1)%3 == 0 }
	run := func(f func()) error {
		go f()
		return nil
	}
	type fault = struct {
		opts []timewheel.Option
		job  timewheel.Job
	}
	with := func(job timewheel.Job, opts ...timewheel.Option) fault { return fault{opts, job} }
	return map[string]fault{
		"nothing":             with(nothing),
		"job panics":          with(func(*timewheel.Task) { panic("trouble") }),
		"job panics with nil": with(func(*timewheel.Task) { panic(nil) }), //nolint:govet // on purpose
		"job ends goroutine":  with(func(*timewheel.Task) { runtime.Goexit() }),
		"job blocks":          with(func(*timewheel.Task) { <-release }, timewheel.WithPoolSize(2)),
		"executor refuses": with(nothing, timewheel.WithExecutor(executor(func(f func()) error {
			if seldom() {
				return run(f)
			}
			return errors.New("not now")
		}))),
		"executor runs on the caller": with(nothing, timewheel.WithExecutor(executor(func(f func()) error {
			f()
			return nil
		}))),
		"executor panics": with(nothing, timewheel.WithExecutor(executor(func(f func()) error {
			if seldom() {
				return run(f)
			}
			panic("trouble")
		}))),
		"panic handler panics": with(func(*timewheel.Task) { panic("trouble") },
			timewheel.WithPanicHandler(func(*timewheel.Task, any, []byte) { panic("more trouble") })),
		"panic handler ends goroutine": with(func(*timewheel.Task) { panic("trouble") },
			timewheel.WithPanicHandler(func(*timewheel.Task, any, []byte) { runtime.Goexit() })),
		"observer panics": with(nothing, timewheel.WithObserver(func(timewheel.Run) { panic("trouble") })),
		"observer blocks": with(nothing, timewheel.WithPoolSize(2),
			timewheel.WithObserver(func(timewheel.Run) { <-release })),
		"observer ends goroutine": with(nothing, timewheel.WithObserver(func(timewheel.Run) { runtime.Goexit() })),
	}
}

// Each fault, with the wheel stopped or shut down in the middle of it, or only at the end.
func TestFaults_whateverGoesWrong_theAccountsBalance(t *testing.T) {
	const tasks = 300
	names := faults(nil)
	for name := range names {
		for _, end := range []string{"at rest", "Stop", "Shutdown", "Drain"} {
			t.Run(name+"/"+end, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					release := make(chan struct{})
					f := faults(release)[name]
					tw := startWheel(t, ms, 16, append([]timewheel.Option{quiet()}, f.opts...)...)
					for i := range tasks {
						must(t, tw.AddTask(times(fmt.Sprint(i), time.Duration(1+i%20)*ms, 1+i%3, f.job)))
					}
					testkit.Settle(15 * ms)
					balanced(t, tw, tasks)
					switch end {
					case "Stop":
						tw.Stop()
					case "Shutdown":
						ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
						_ = tw.Shutdown(ctx)
						cancel()
					case "Drain":
						_, err := tw.Drain(nothing)
						must(t, err)
					}
					balanced(t, tw, tasks)
					close(release)
					testkit.Settle(10 * time.Second)
					s := balanced(t, tw, tasks)
					if s.Running != 0 {
						t.Errorf("jobs are still running: %+v", s)
					}
					if end == "at rest" && (s.Finished != tasks || s.Started != tasks*2) {
						t.Errorf("not all have run: %+v", s)
					}
				})
			})
		}
	}
}

func TestFaults_aHundredThousandGoroutines_addAtTheSameMoment(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		n := 100_000
		if testing.Short() {
			n = 10_000
		}
		tw := startWheel(t, ms, 512, quiet())
		var won, lost, runs atomic.Int64
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range n {
			wg.Go(func() {
				key := name(i / 2) // two for each
				<-start
				err := tw.AddTask(once(key, time.Hour, func(*timewheel.Task) { runs.Add(1) }))
				switch {
				case err == nil:
					won.Add(1)
				case errors.Is(err, timewheel.ErrDuplicateTaskKey):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
		if won.Load() != int64(n/2) || lost.Load() != int64(n/2) {
			t.Errorf("of %d adds of %d keys %d won and %d lost", n, n/2, won.Load(), lost.Load())
		}
		for i := range n / 2 {
			wg.Go(func() { should(t, tw.Reschedule(name(i), 0)) })
		}
		wg.Wait()
		for deadline := time.Now().Add(time.Minute); tw.Len() > 0 && time.Now().Before(deadline); {
			time.Sleep(ms)
		}
		tw.Stop()
		must(t, tw.Shutdown(t.Context()))
		if runs.Load() != won.Load() {
			t.Errorf("%d tasks were added, and %d ran", won.Load(), runs.Load())
		}
		balanced(t, tw, n/2)
	})
}

// Five million tasks in 1.25 GB, or a tenth of both: 250 bytes per task including its key, plus the needs of the
// garbage collector.
func TestFaults_fiveMillionTasks_underAMemoryLimit(t *testing.T) {
	if testkit.Race {
		t.Skip("takes more memory")
	}
	n, limit := 5_000_000, int64(1_250<<20)
	if testing.Short() {
		n, limit = n/10, limit/10
	}
	runtime.GC()
	old := debug.SetMemoryLimit(limit)
	defer debug.SetMemoryLimit(old)
	tw := timewheel.NewTimeWheel(10*ms, 1024, quiet())
	tw.Start()
	defer tw.Stop()
	for i := range n {
		must(t, tw.AddTask(once(name(i), time.Hour+time.Duration(i), nothing)))
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if int64(m.Sys-m.HeapReleased) > limit+limit/10 {
		t.Errorf("%d tasks take %d MB", n, (m.Sys-m.HeapReleased)>>20)
	}
	for i := range n {
		if i%2 == 0 {
			must(t, tw.RemoveTask(name(i)))
		}
	}
	removed, err := tw.Drain(nothing)
	must(t, err)
	wantEqual(t, "drained tasks", removed, n/2)
	balanced(t, tw, n)
}
