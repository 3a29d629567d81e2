// SPDX-License-Identifier: MIT

package test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

func TestS1_beforeStart_allVerbsWorkAndDelaysCountFromTheCall(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := newWheel(t, 10*ms, 16, timewheel.WithPoolSize(1)), newJournal()
		everyVerb(t, tw)
		wantEqual(t, "IsRunning", tw.IsRunning(), false)
		must(t, tw.AddTask(once("overdue", 50*ms, j.job)))
		must(t, tw.AddTask(once("later", 150*ms, j.job)))
		must(t, tw.AddTask(once("removed", 20*ms, j.job)))
		must(t, tw.AddTask(once("moved", 30*ms, j.job)))
		must(t, tw.AddTask(once("replaced", 10*ms, j.job)))
		tw.AfterFunc(40*ms, func() { j.note("timer") })
		stopped := tw.AfterFunc(40*ms, func() { j.note("stopped timer") })
		wantEqual(t, "tasks", keysOf(tw), []string{"later", "moved", "overdue", "removed", "replaced"})
		testkit.Settle(20 * ms)
		must(t, tw.RemoveTask("removed")) // overdue by now
		must(t, tw.Reschedule("moved", 100*ms))
		must(t, tw.SetTask(once("replaced", 140*ms, j.job)))
		wantEqual(t, "Stop", stopped.Stop(), true)
		if info, ok := tw.Get("overdue"); !ok || time.Until(info.Next) != 30*ms {
			t.Errorf("Get before Start: %+v, %v", info, ok)
		}
		testkit.Settle(80 * ms)
		wantEqual(t, "runs before Start", j.keys(), []string{})
		tw.Start()
		wantEqual(t, "IsRunning", tw.IsRunning(), true)
		synctest.Wait()
		wantEqual(t, "runs at Start, in due order", j.keys(), []string{"timer", "overdue"})
		testkit.Settle(time.Second)
		j.want(t, "overdue", 100*ms)
		j.want(t, "timer", 100*ms)
		j.want(t, "moved", 120*ms)
		j.want(t, "later", 150*ms)
		j.want(t, "replaced", 160*ms)
		wantEqual(t, "runs", len(j.keys()), 5)
		balanced(t, tw, verbsAdded+8)
	})
}

// More tasks than fit into any buffer between the callers and the loop.
func TestS1_beforeStart_addsDoNotBlock(t *testing.T) {
	testkit.NotForRaces(t)
	inBubble(t, func(t *testing.T) {
		const n = 20_000
		tw, j := newWheel(t, 10*ms, 16), newJournal()
		for i := range n {
			must(t, tw.AddTask(once(name(i), time.Hour, j.job)))
			if i%2 == 0 {
				must(t, tw.RemoveTask(name(i)))
			}
		}
		drained, err := tw.Drain(func(task *timewheel.Task) { must(t, tw.AddTask(task)) })
		must(t, err)
		wantEqual(t, "drained", drained, n/2)
		tw.Start()
		testkit.Settle(time.Hour + 10*ms)
		wantEqual(t, "runs", len(j.keys()), n/2)
		balanced(t, tw, n+n/2)
	})
}

func TestS2_startAndStop_inAnyOrderAndAsOftenAsYouLike(t *testing.T) {
	shutdown := func(tw *timewheel.TimeWheel) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		should(t, tw.Shutdown(ctx))
	}
	steps := map[rune]func(*timewheel.TimeWheel){
		's': (*timewheel.TimeWheel).Start, 'x': (*timewheel.TimeWheel).Stop, 'd': shutdown,
	}
	for _, order := range []string{
		"", "s", "x", "d", "ss", "xx", "dd", "xs", "ds", "sxx", "sdd", "sxd", "sdx", "ssxx", "xsx", "sxs", "sxsx",
		"dsxsd",
	} {
		inBubble(t, func(t *testing.T) {
			tw, j := newWheel(t, 10*ms, 16), newJournal()
			must(t, tw.AddTask(every("k", 20*ms, j.job)))
			running, stopped := false, false
			for _, step := range order {
				steps[step](tw)
				running = step == 's' && !stopped || step == 's' && running
				stopped = stopped || step != 's'
				wantEqual(t, order+": IsRunning", tw.IsRunning(), running)
			}
			testkit.Settle(100 * ms)
			want := 0
			if running {
				want = 5
			}
			wantEqual(t, order+": runs", j.count("k"), want)
			if err := tw.AddTask(once("more", ms, nothing)); stopped != errors.Is(err, timewheel.ErrStopped) {
				t.Errorf("%s: AddTask: %v", order, err)
			}
			everyVerb(t, tw)
		})
	}
}

// The functions that the wheel calls may stop and start it.
func TestS2_startAndStop_fromInside(t *testing.T) {
	within := func(tw *timewheel.TimeWheel) {
		tw.Start()
		tw.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), 30*ms)
		defer cancel()
		if err := tw.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) { // it waits for its own run
			t.Errorf("Shutdown inside a run: %v", err)
		}
		tw.Start()
		tw.Stop()
		if tw.IsRunning() {
			t.Error("runs after Stop")
		}
		everyVerb(t, tw)
	}
	for _, c := range []struct {
		name string
		opts func(call func()) []timewheel.Option
		job  func(call func())
	}{
		{"job", nil, func(call func()) { call() }},
		{"observer_panic_handler_and_logger", hooks, func(func()) { panic("trouble") }},
		{"job_on_an_executor_that_runs_at_once", func(func()) []timewheel.Option {
			return []timewheel.Option{timewheel.WithExecutor(executor(func(f func()) error {
				f()
				return nil
			}))}
		}, func(call func()) { call() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var tw *timewheel.TimeWheel
				ready, calls := false, 0
				call := func() {
					if ready {
						calls++
						within(tw)
					}
				}
				var opts []timewheel.Option
				if c.opts != nil {
					opts = c.opts(call)
				}
				tw = startWheel(t, 10*ms, 16, opts...)
				ready = true
				must(t, tw.AddTask(once("k", 20*ms, func(*timewheel.Task) { c.job(call) })))
				must(t, tw.AddTask(once("other", 30*ms, func(*timewheel.Task) { t.Error("ran after Stop") })))
				testkit.Settle(time.Second)
				if calls == 0 || tw.Stats().Running != 0 {
					t.Errorf("%d calls, and %d jobs are running", calls, tw.Stats().Running)
				}
				ready = false
			})
		})
	}
}

func TestS3_afterStop_noRunStarts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 16, timewheel.WithPoolSize(1)), newJournal()
		must(t, tw.AddTask(every("repeats", 20*ms, j.job)))
		must(t, tw.AddTask(once("soon", 110*ms, j.job)))
		testkit.Settle(45 * ms)
		j.want(t, "repeats", 20*ms, 40*ms)
		release := occupy(t, tw, 1)
		must(t, tw.AddTask(once("waits", 10*ms, j.job)))
		testkit.Settle(50 * ms)
		if info, _ := tw.Get("waits"); !info.Waiting {
			t.Fatalf("does not wait for a worker: %+v", info)
		}
		tw.Stop()
		release()
		testkit.Settle(time.Hour)
		wantEqual(t, "runs", len(j.keys()), 2)
		wantEqual(t, "live tasks", keysOf(tw), []string{"repeats", "soon", "waits"})
		balanced(t, tw, 4)
	})
}

func TestS3_afterStop_addsAreRefusedAndTheRestGoesOn(t *testing.T) {
	for _, started := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			tw, j := newWheel(t, 10*ms, 16, timewheel.WithPoolSize(1)), newJournal()
			if started {
				tw.Start()
			}
			must(t, tw.AddTask(once("a", 50*ms, j.job)))
			must(t, tw.AddTask(once("b", 60*ms, j.job)))
			must(t, tw.AddTask(every("c", 70*ms, j.job)))
			timer := tw.AfterFunc(80*ms, func() { j.note("timer") })
			other := tw.AfterFunc(90*ms, func() { j.note("timer") })
			testkit.Settle(20 * ms)
			tw.Stop()
			before := tw.Stats()
			for what, err := range map[string]error{
				"AddTask":              tw.AddTask(once("new", ms, j.job)),
				"AddTask of a":         tw.AddTask(once("a", ms, j.job)),
				"SetTask":              tw.SetTask(once("new", ms, j.job)),
				"SetTask of a":         tw.SetTask(once("a", ms, j.job)),
				"Reschedule of a":      tw.Reschedule("a", ms),
				"Reschedule of no key": tw.Reschedule("new", ms),
			} {
				if !errors.Is(err, timewheel.ErrStopped) {
					t.Errorf("%s: %v", what, err)
				}
			}
			wantEqual(t, "Stats", tw.Stats(), before)
			late := tw.AfterFunc(ms, func() { j.note("timer") })
			wantEqual(t, "Stop of a timer made after Stop", late.Stop(), false)
			wantEqual(t, "Reset of a timer made after Stop", late.Reset(ms), false)
			wantEqual(t, "Stop of a timer made before", timer.Stop(), true)
			wantEqual(t, "Reset of the same", timer.Reset(ms), false)
			wantEqual(t, "Reset of a timer that is active", other.Reset(40*ms), true)
			must(t, tw.RemoveTask("b"))
			wantEqual(t, "tasks", keysOf(tw), []string{"a", "c"})
			wantEqual(t, "runs left of c", tw.GetTaskTimes("c"), timewheel.Forever)
			if info, ok := tw.Get("a"); !ok || time.Until(info.Next) != 30*ms {
				t.Errorf("Get: %+v, %v", info, ok)
			}
			var drained []string
			n, err := tw.Drain(func(task *timewheel.Task) { drained = append(drained, task.Key) })
			must(t, err)
			wantEqual(t, "number of drained tasks", n, 3)
			wantEqual(t, "drained tasks", drained, []string{"a", "", "c"})
			tw.Start()
			testkit.Settle(time.Hour)
			wantEqual(t, "runs", j.keys(), []string{})
			balanced(t, tw, 5)
		})
	}
}

// More tasks than fit into any buffer between the callers and the loop, and no loop to empty it.
func TestS3_afterStop_removalsDoNotBlock(t *testing.T) {
	testkit.NotForRaces(t)
	inBubble(t, func(t *testing.T) {
		const n = 20_000
		tw := startWheel(t, 10*ms, 16)
		for i := range n {
			must(t, tw.AddTask(once(name(i), time.Hour, nothing)))
		}
		tw.Stop()
		for i := range n {
			must(t, tw.RemoveTask(name(i)))
		}
		balanced(t, tw, n)
	})
}

func TestS4_shutdown_cancelsNothingAndWaits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 16)
		ended := 0
		for range 3 {
			tw.AfterFunc(20*ms, func() {})
		}
		must(t, tw.AddTask(once("k", 20*ms, func(task *timewheel.Task) {
			time.Sleep(300 * ms)
			should(t, task.Context().Err())
			ended++
		})))
		must(t, tw.AddTask(once("later", 100*ms, func(*timewheel.Task) { t.Error("ran after Shutdown") })))
		testkit.Settle(50 * ms)
		start := time.Now()
		must(t, tw.Shutdown(t.Context()))
		wantEqual(t, "Shutdown took", time.Since(start), 270*ms)
		wantEqual(t, "runs that ended", ended, 1)
		wantEqual(t, "IsRunning", tw.IsRunning(), false)
		if err := tw.AddTask(once("new", ms, nothing)); !errors.Is(err, timewheel.ErrStopped) {
			t.Errorf("AddTask after Shutdown: %v", err)
		}
		testkit.Settle(time.Second)
		balanced(t, tw, 5)
	})
}

func TestS4_shutdown_saysWhatGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 16)
		release := occupy(t, tw, 3)
		cause := errors.New("no more patience")
		for _, c := range []struct {
			name string
			ctx  func() (context.Context, context.CancelFunc)
			want error
			took time.Duration
		}{
			{"deadline", func() (context.Context, context.CancelFunc) {
				return context.WithTimeout(t.Context(), 70*ms)
			}, context.DeadlineExceeded, 70 * ms},
			{"done already", func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				return ctx, cancel
			}, context.Canceled, 0},
			{"cause", func() (context.Context, context.CancelFunc) {
				return context.WithTimeoutCause(t.Context(), 20*ms, cause)
			}, cause, 20 * ms},
		} {
			ctx, cancel := c.ctx()
			start := time.Now()
			err := tw.Shutdown(ctx)
			cancel()
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), "3") {
				t.Errorf("%s: %v", c.name, err)
			}
			wantEqual(t, c.name+": Shutdown took", time.Since(start), c.took)
		}
		release()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		must(t, tw.Shutdown(ctx)) // no job is running, so there is nothing to wait for
		balanced(t, tw, 3)
	})
}

func TestContext_isDoneWhenTheWheelStops(t *testing.T) {
	for _, c := range []struct {
		name string
		stop func(tw *timewheel.TimeWheel)
		done time.Duration // when the context of a running job is done
	}{
		{"Stop", func(tw *timewheel.TimeWheel) { tw.Stop() }, 50 * ms},
		{"Shutdown and then Stop", func(tw *timewheel.TimeWheel) {
			ctx, cancel := context.WithTimeout(context.Background(), 30*ms)
			defer cancel()
			_ = tw.Shutdown(ctx)
			tw.Stop()
		}, 80 * ms},
		{"Stop while Shutdown waits", func(tw *timewheel.TimeWheel) {
			time.AfterFunc(40*ms, tw.Stop)
			_ = tw.Shutdown(context.Background())
		}, 90 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				tw, j := startWheel(t, 10*ms, 16), newJournal()
				must(t, tw.AddTask(once("k", 20*ms, func(task *timewheel.Task) {
					should(t, task.Context().Err())
					<-task.Context().Done()
					j.note("done")
				})))
				testkit.Settle(50 * ms)
				c.stop(tw)
				synctest.Wait()
				j.want(t, "done", c.done)
			})
		})
	}
	wantEqual(t, "Context of a task that is no run's", once("k", ms, nothing).Context(), context.Background())
}

// Shutdown cancels the context once the last run has ended, so that goroutines started by a job can end too.
func TestContext_isDoneAfterShutdown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 16), newJournal()
		must(t, tw.AddTask(once("k", 20*ms, func(task *timewheel.Task) {
			go func() {
				<-task.Context().Done()
				j.note("done")
			}()
			time.Sleep(100 * ms)
		})))
		testkit.Settle(50 * ms)
		must(t, tw.Shutdown(t.Context()))
		synctest.Wait()
		j.want(t, "done", 120*ms)
	})
}

func TestS5_stoppedWheel_leavesNoGoroutine(t *testing.T) {
	for _, c := range []struct {
		name string
		opts []timewheel.Option
	}{
		{"pool", nil},
		{"small_pool", []timewheel.Option{timewheel.WithPoolSize(2)}},
		{"executor", []timewheel.Option{timewheel.WithExecutor(executor(func(f func()) error {
			go f()
			return nil
		}))}},
		{"executor_that_refuses", []timewheel.Option{quiet(), timewheel.WithExecutor(executor(func(func()) error {
			return errors.New("no")
		}))}},
	} {
		for _, stop := range []func(*timewheel.TimeWheel){
			(*timewheel.TimeWheel).Stop,
			func(tw *timewheel.TimeWheel) { must(t, tw.Shutdown(context.Background())) },
		} {
			t.Run(c.name, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					before := goroutines()
					tw := newWheel(t, 10*ms, 16, c.opts...)
					for i := range 50 {
						must(t, tw.AddTask(every(name(i), 20*ms, func(*timewheel.Task) { time.Sleep(5 * ms) })))
						tw.AfterFunc(time.Duration(i)*ms, func() {})
					}
					tw.Start()
					testkit.Settle(101 * ms)
					if len(startedSince(before)) == 0 {
						t.Error("no goroutine seen while the wheel runs")
					}
					stop(tw)
					testkit.Settle(5 * ms) // the runs that were in progress
					for _, stack := range startedSince(before) {
						t.Errorf("left behind:\n%s", stack)
					}
				})
			})
		}
	}
}

// An executor may be closed once the wheel is stopped: the wheel has no further use for it.
func TestS5_afterStop_theExecutorIsNotAsked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for range 20 { // select picks one of two ready cases at random
			gate, asked := make(chan struct{}), 0
			tw := startWheel(t, 10*ms, 16, timewheel.WithExecutor(executor(func(f func()) error {
				asked++
				<-gate
				go f()
				return nil
			})))
			for i := range 10 { // at several ticks, so that several workers are requested
				must(t, tw.AddTask(once(name(i), time.Duration(i+1)*10*ms, nothing)))
			}
			testkit.Settle(200 * ms)
			tw.Stop()
			close(gate)
			synctest.Wait()
			if asked != 1 {
				t.Fatalf("the executor was asked %d times, once before Stop", asked)
			}
		}
	})
}

func TestS6_halfAnHour_passesInABubble(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, ms, 512), newJournal()
		for i := range 1000 {
			must(t, tw.AddTask(once(name(i), 30*time.Minute, j.job)))
		}
		testkit.Settle(29*time.Minute + 59*time.Second)
		must(t, tw.RemoveTask(name(500)))
		wantEqual(t, "expired before half an hour", len(j.keys()), 0)
		testkit.Settle(time.Second)
		wantEqual(t, "expired after half an hour", len(j.keys()), 999)
		for _, at := range j.at(name(7)) {
			wantEqual(t, "expired at", at, 30*time.Minute)
		}
		balanced(t, tw, 1000)
	})
}

func TestLifecycle_isLoggedForDebugging(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var book logBook
		tw := startWheel(t, 10*ms, 16, timewheel.WithLogger(book.logger()))
		must(t, tw.AddTask(every("k", 20*ms, nothing)))
		testkit.Settle(time.Second)
		tw.Stop()
		tw.Stop()
		for _, event := range []string{"started", "stopped"} {
			wantEqual(t, "entries with "+event, len(book.with("level=debug", event)), 1)
		}
		wantEqual(t, "entries", len(book.with()), 2) // none for adds, ticks and runs
	})
}

// A logger that fails or is slow keeps no task from running.
func TestL4_loggerThatPanicsOrBlocks_harmsNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		log  func(gate chan struct{})
	}{
		{"panics", func(chan struct{}) { panic("the logger fails") }},
		{"blocks", func(gate chan struct{}) { <-gate }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				gate := make(chan struct{})
				j := newJournal()
				log := hooks(func() { c.log(gate) })[0]
				tw := startWheel(t, 10*ms, 16, log, timewheel.WithPoolSize(10),
					timewheel.WithPanicHandler(func(*timewheel.Task, any, []byte) { j.note("handled") }))
				t.Cleanup(func() { close(gate) })
				for i := range 5 {
					must(t, tw.AddTask(once(name(i), 10*ms, func(*timewheel.Task) { panic("trouble") })))
				}
				must(t, tw.AddTask(every("good", 100*ms, j.job)))
				testkit.Settle(time.Second)
				wantEqual(t, "runs of the good task", j.count("good"), 10)
				wantEqual(t, "panics", j.count("handled")+tw.Stats().Running, 5) // or stuck in the logger
				balanced(t, tw, 6)
			})
		})
	}
}

// A logger may panic at every level, and the goroutines of the executor do not recover.
func TestL4_loggerThatAlwaysPanics_harmsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJournal()
		tw := startWheel(t, 10*ms, 16, timewheel.WithSlog(slog.New(brokenHandler{})),
			timewheel.WithExecutor(executor(func(f func()) error {
				go f()
				return nil
			})))
		must(t, tw.AddTask(once("bad", 10*ms, func(*timewheel.Task) { panic("trouble") })))
		must(t, tw.AddTask(once("good", 20*ms, j.job)))
		testkit.Settle(time.Second)
		j.want(t, "good", 20*ms)
		wantEqual(t, "panics", balanced(t, tw, 2).Panicked, uint64(1))
		tw.Stop()
	})
}

// A brokenHandler is a handler of package log/slog that panics on every record.
type brokenHandler struct{ slog.Handler }

func (brokenHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (brokenHandler) Handle(context.Context, slog.Record) error { panic("the logger fails") }

// A log hook may be slow, and may itself stop the wheel. No other call waits for it. The test runs in real time,
// because a bubble does not notice that a goroutine waits for a mutex.
func TestS2_startAndStop_whileTheLifecycleIsLogged(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		var tw *timewheel.TimeWheel
		var calls atomic.Int64
		log := new(logBook).logger()
		log.AddHook(hook(func() {
			if calls.Add(1) > 1 {
				return
			}
			testkit.Returns(t, "Stop, while Start is logged,", func() {
				tw.Start()
				tw.Stop()
				everyVerb(t, tw)
			})
		}))
		tw = newWheel(t, 10*ms, 16, timewheel.WithLogger(log))
		tw.Start()
		for tw.IsRunning() {
			runtime.Gosched()
		}
		if calls.Load() == 0 {
			t.Error("nothing was logged")
		}
	})
}
