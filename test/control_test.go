// SPDX-License-Identifier: MIT

package test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

func TestK7_pausedTask_keepsItsKeyItsRunsAndTheTimeThatWasLeft(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 16, timewheel.WithMaxPending(1)), newJournal()
		must(t, tw.AddTask(times("k", 100*ms, 3, j.job)))
		testkit.Settle(130 * ms) // the first run was at 100 ms
		must(t, tw.Pause("k"))
		must(t, tw.Pause("k"))
		wantEqual(t, "tasks in the slots", tw.Occupancy(1)[0].Tasks, 0)
		testkit.Settle(time.Hour)
		j.want(t, "k", 100*ms)

		info, ok := tw.Get("k")
		want := timewheel.Info{Key: "k", Interval: 100 * ms, Times: 2, Next: info.Next, Paused: true}
		if !ok || info != want || time.Until(info.Next) != 70*ms {
			t.Errorf("Get: %+v, %v, due after %v, want %+v after 70ms", info, ok, time.Until(info.Next), want)
		}
		wantEqual(t, "Exist", tw.Exist("k"), true)
		wantEqual(t, "GetTaskTimes", tw.GetTaskTimes("k"), 2)
		wantEqual(t, "All", keysOf(tw), []string{"k"})
		wantEqual(t, "tasks in Upcoming", len(tw.Upcoming(10)), 0)
		if err := tw.AddTask(once("k", ms, nothing)); !errors.Is(err, timewheel.ErrDuplicateTaskKey) {
			t.Errorf("AddTask of a paused task's key: %v", err)
		}
		if err := tw.AddTask(once("other", ms, nothing)); !errors.Is(err, timewheel.ErrFull) {
			t.Errorf("AddTask beyond the bound: %v", err)
		}
		if s := balanced(t, tw, 1); s.Paused != 1 || s.Pending != 1 || s.Due != 1 || s.Missed != 0 {
			t.Errorf("%+v", s)
		}

		now := time.Since(j.origin)
		must(t, tw.Resume("k"))
		must(t, tw.Resume("k"))
		testkit.Settle(time.Hour)
		j.want(t, "k", 100*ms, now+70*ms, now+170*ms)
		if s := balanced(t, tw, 1); s.Paused != 0 || s.Pending != 0 || s.Due != 3 || s.Missed != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// Pause withdraws a run that waits for a worker: it begins after the task is resumed, not before.
func TestK7_pausedWhileWaiting_runsAtOnceWhenResumed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 16, timewheel.WithPoolSize(1)), newJournal()
		release := occupy(t, tw, 1)
		must(t, tw.AddTask(times("k", 20*ms, 2, j.job)))
		testkit.Settle(50 * ms)
		must(t, tw.Pause("k"))
		release()
		testkit.Settle(time.Hour)
		j.want(t, "k")
		if s := balanced(t, tw, 2); s.Withdrawn != 1 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
		now := time.Since(j.origin)
		must(t, tw.Resume("k"))
		testkit.Settle(10 * ms)
		if at := j.at("k"); len(at) != 1 || at[0] < now {
			t.Errorf("after Resume at %v it ran at %v", now, at)
		}
		testkit.Settle(time.Hour)
		wantEqual(t, "runs", j.count("k"), 2)
		balanced(t, tw, 2)
	})
}

func TestK7_pausedDuringARun_theRunIsNotInterrupted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, ended := startWheel(t, 10*ms, 16), 0
		must(t, tw.AddTask(every("k", 30*ms, func(task *timewheel.Task) {
			should(t, tw.Pause("k")) // its own
			time.Sleep(10 * ms)
			should(t, task.Context().Err())
			ended++
		})))
		testkit.Settle(time.Hour)
		wantEqual(t, "runs that ended", ended, 1)
		wantEqual(t, "Paused", balanced(t, tw, 1).Paused, 1)
	})
}

func TestK7_verbsOfAPausedTask(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(tw *timewheel.TimeWheel, job timewheel.Job) error
		runs  []time.Duration // when it runs, relative to an hour and 30 ms before Resume
		left  int             // live tasks
		added int
	}{
		{"Reschedule", func(tw *timewheel.TimeWheel, _ timewheel.Job) error {
			return tw.Reschedule("k", 50*ms)
		}, []time.Duration{time.Hour + 50*ms}, 1, 1},
		{"Reschedule_0", func(tw *timewheel.TimeWheel, _ timewheel.Job) error {
			return tw.Reschedule("k", 0)
		}, []time.Duration{time.Hour}, 1, 1},
		{"SetTask", func(tw *timewheel.TimeWheel, job timewheel.Job) error {
			return tw.SetTask(once("k", 20*ms, job)) // it is not paused
		}, []time.Duration{20 * ms}, 0, 2},
		{"RemoveTask", func(tw *timewheel.TimeWheel, _ timewheel.Job) error {
			return tw.RemoveTask("k")
		}, nil, 0, 1},
		{"RemoveWait", func(tw *timewheel.TimeWheel, _ timewheel.Job) error {
			_, err := tw.RemoveWait(context.Background(), "k")
			return err
		}, nil, 0, 1},
		{"Drain", func(tw *timewheel.TimeWheel, _ timewheel.Job) error {
			n, err := tw.Drain(func(task *timewheel.Task) {
				if task.Key != "k" || task.Delay != 70*ms || task.Times != 1 {
					panic(fmt.Sprintf("drained %+v", task))
				}
			})
			if n != 1 {
				err = fmt.Errorf("drained %d tasks", n)
			}
			return err
		}, nil, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				tw, j := startWheel(t, 10*ms, 16), newJournal()
				must(t, tw.AddTask(once("k", 100*ms, j.job)))
				testkit.Settle(30 * ms)
				must(t, tw.Pause("k"))
				must(t, c.do(tw, j.job))
				wantEqual(t, "Paused", tw.Stats().Paused, c.left)
				wantEqual(t, "Exist", tw.Exist("k"), c.left == 1 || c.name == "SetTask")
				testkit.Settle(time.Hour)
				wantEqual(t, "live tasks", tw.Len(), c.left)
				if err := tw.Resume("k"); (err == nil) != (c.left == 1) {
					t.Errorf("Resume: %v", err)
				}
				testkit.Settle(time.Hour)
				at := []time.Duration{}
				for _, d := range c.runs {
					at = append(at, 30*ms+d)
				}
				j.want(t, "k", at...)
				wantEqual(t, "Paused", balanced(t, tw, c.added).Paused, 0)
			})
		})
	}
}

func TestK7_beforeStartAndAfterStop(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := newWheel(t, 10*ms, 16), newJournal()
		must(t, tw.AddTask(once("k", 100*ms, j.job)))
		must(t, tw.AddTask(once("other", time.Hour, j.job)))
		must(t, tw.Pause("k"))
		testkit.Settle(time.Minute)
		tw.Start()
		testkit.Settle(time.Minute)
		must(t, tw.Resume("k"))
		testkit.Settle(time.Minute)
		j.want(t, "k", 2*time.Minute+100*ms)
		must(t, tw.Pause("other"))
		tw.Stop()
		for _, err := range []error{tw.Pause("other"), tw.Resume("other")} {
			if !errors.Is(err, timewheel.ErrStopped) {
				t.Errorf("after Stop: %v", err)
			}
		}
		must(t, tw.RemoveTask("other"))
		wantEqual(t, "Paused", balanced(t, tw, 2).Paused, 0)
	})
}

func TestK8_removeWait_returnsWhenNoRunIsInProgress(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 16), newJournal()
		job := func(*timewheel.Task) {
			j.note("began")
			time.Sleep(100 * ms)
			j.note("ended")
		}
		wait := func(key string, running bool, took time.Duration, is error) {
			t.Helper()
			start := time.Now()
			got, err := tw.RemoveWait(t.Context(), key)
			if got != running || !errors.Is(err, is) || time.Since(start) != took {
				t.Errorf("RemoveWait(%s) is %v, %v after %v, want %v, %v after %v",
					key, got, err, time.Since(start), running, is, took)
			}
			wantEqual(t, "Exist", tw.Exist(key), false)
		}
		wait("k", false, 0, timewheel.ErrTaskKeyNotFound)
		must(t, tw.AddTask(once("k", 20*ms, job)))
		must(t, tw.AddTask(once("other", 20*ms, job)))
		wait("k", false, 0, nil) // it has not run
		must(t, tw.AddTask(once("k", 20*ms, job)))
		testkit.Settle(50 * ms)
		wait("k", true, 70*ms, nil) // its last run has begun
		wait("k", false, 0, timewheel.ErrTaskKeyNotFound)
		must(t, tw.AddTask(every("k", 30*ms, job)))
		testkit.Settle(100 * ms)
		wait("k", true, 90*ms, nil) // three runs, started 30, 60 and 90 ms after the add
		began, ended := j.count("began"), j.count("ended")
		testkit.Settle(time.Hour)
		if j.count("began") != began || began != ended {
			t.Errorf("%d runs began and %d ended, in the end %d", began, ended, j.count("began"))
		}

		// Runs of a replaced task, and of a paused one.
		must(t, tw.AddTask(every("k", 30*ms, job)))
		testkit.Settle(40 * ms)
		must(t, tw.SetTask(once("k", time.Hour, nothing)))
		must(t, tw.Pause("k"))
		wait("k", true, 90*ms, nil)
		balanced(t, tw, 6)
	})
}

func TestK8_removeWait_givesUpWithItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 16, timewheel.WithPoolSize(2))
		cause := errors.New("no more patience")
		var inside error
		must(t, tw.AddTask(every("k", 20*ms, func(*timewheel.Task) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 50*ms, cause)
			defer cancel()
			_, inside = tw.RemoveWait(ctx, "k") // it waits for its own run
		})))
		testkit.Settle(25 * ms)
		ctx, cancel := context.WithTimeout(t.Context(), 20*ms)
		defer cancel()
		running, err := tw.RemoveWait(ctx, "k")
		if !running || !errors.Is(err, context.DeadlineExceeded) || tw.Exist("k") {
			t.Errorf("RemoveWait is %v, %v", running, err)
		}
		start := time.Now()
		running, err = tw.RemoveWait(t.Context(), "k")
		if took := time.Since(start); !running || err != nil || took != 25*ms {
			t.Errorf("RemoveWait is %v, %v after %v", running, err, took)
		}
		if !errors.Is(inside, cause) {
			t.Errorf("inside the job: %v", inside)
		}
		balanced(t, tw, 1)
	})
}

func TestK8_removeWait_afterJobsThatFailAndAfterStop(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 16, quiet())
		must(t, tw.AddTask(once("panics", 20*ms, func(*timewheel.Task) {
			time.Sleep(50 * ms)
			panic("trouble")
		})))
		must(t, tw.AddTask(once("sleeps", 20*ms, func(*timewheel.Task) { time.Sleep(100 * ms) })))
		testkit.Settle(30 * ms)
		tw.Stop()
		for _, key := range []string{"panics", "sleeps"} {
			if running, err := tw.RemoveWait(t.Context(), key); !running || err != nil {
				t.Errorf("%s: %v, %v", key, running, err)
			}
		}
		wantEqual(t, "Running", balanced(t, tw, 2).Running, 0)
	})
}

func TestK9_prefix_hitsTheTasksWithItAndNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 16), newJournal()
		for i := range 1000 {
			key := fmt.Sprintf("%c/%03d", 'a'+i%4, i)
			if i%4 == 0 {
				key += "/b/c/" // other prefixes, but not at the beginning of the key
			}
			must(t, tw.AddTask(once(key, time.Hour, j.job)))
		}
		tw.AfterFunc(time.Hour, func() {})
		must(t, tw.Pause("b/001"))
		var keys []string
		for info := range tw.AllPrefix("b/") {
			keys = append(keys, info.Key)
			wantEqual(t, "Paused", info.Paused, info.Key == "b/001")
		}
		slices.Sort(keys)
		if len(keys) != 250 || len(slices.Compact(keys)) != 250 ||
			slices.ContainsFunc(keys, func(key string) bool { return !strings.HasPrefix(key, "b/") }) {
			t.Errorf("AllPrefix yields %d tasks: %q", len(keys), keys)
		}
		n, err := tw.RemovePrefix(t.Context(), "b/")
		if n != 250 || err != nil {
			t.Errorf("RemovePrefix is %d, %v", n, err)
		}
		n, err = tw.ReschedulePrefix(t.Context(), "c/", 50*ms)
		if n != 250 || err != nil {
			t.Errorf("ReschedulePrefix is %d, %v", n, err)
		}
		testkit.Settle(100 * ms)
		ran := j.keys()
		if len(ran) != 250 || slices.ContainsFunc(ran, func(key string) bool { return key[0] != 'c' }) {
			t.Errorf("%d tasks ran: %q", len(ran), ran)
		}
		wantEqual(t, "live tasks", tw.Len(), 501)
		n, err = tw.ReschedulePrefix(t.Context(), "a/", -1)
		if n != 0 || !errors.Is(err, timewheel.ErrInvalidTask) {
			t.Errorf("ReschedulePrefix by a negative delay is %d, %v", n, err)
		}
		if _, err := tw.ReschedulePrefix(t.Context(), "none", -1); !errors.Is(err, timewheel.ErrInvalidTask) {
			t.Errorf("ReschedulePrefix of no task by a negative delay: %v", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		cancel(cause)
		if n, err := tw.RemovePrefix(ctx, ""); n != 0 || err != cause {
			t.Errorf("RemovePrefix with a context that is done is %d, %v", n, err)
		}
		if n, err := tw.RemovePrefix(t.Context(), ""); n != 500 || err != nil {
			t.Errorf("RemovePrefix of all is %d, %v", n, err)
		}
		balanced(t, tw, 1001)
		wantEqual(t, "live tasks", tw.Len(), 1) // the timer
	})
}

// A hooked is a context whose Err first calls a function. RemovePrefix and ReschedulePrefix call Err before each key.
type hooked struct {
	context.Context
	before func()
}

func (h hooked) Err() error {
	h.before()
	return h.Context.Err()
}

func TestK9_prefix_whileTasksAreRemoved_hitsAllTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, c := range []struct {
			name string
			do   func(tw *timewheel.TimeWheel, ctx context.Context) (int, error)
			left int // of the tasks that stay live
		}{
			{"RemovePrefix", func(tw *timewheel.TimeWheel, ctx context.Context) (int, error) {
				return tw.RemovePrefix(ctx, "k")
			}, 0},
			{"ReschedulePrefix", func(tw *timewheel.TimeWheel, ctx context.Context) (int, error) {
				return tw.ReschedulePrefix(ctx, "k", time.Minute)
			}, 150},
			{"AllPrefix", func(tw *timewheel.TimeWheel, ctx context.Context) (n int, err error) {
				for info := range tw.AllPrefix("k") {
					if !tw.Exist(info.Key) {
						t.Errorf("AllPrefix yields %+v, which is not live", info)
					}
					n++
					err = ctx.Err()
				}
				return n, err
			}, 150},
		} {
			tw := startWheel(t, 10*ms, 16)
			for i := range 200 {
				must(t, tw.AddTask(once(fmt.Sprintf("k%03d", i), time.Hour, nothing)))
			}
			removed := false
			n, err := c.do(tw, hooked{t.Context(), func() {
				if removed {
					return
				}
				removed = true
				for i := range 200 {
					if i%4 == 0 {
						must(t, tw.RemoveTask(fmt.Sprintf("k%03d", i)))
					}
				}
			}})
			if n < 150 || n > 151 || err != nil { // the first one of AllPrefix may be removed at that moment
				t.Errorf("%s is %d, %v, want 150", c.name, n, err)
			}
			wantEqual(t, c.name+": live tasks", tw.Len(), c.left)
			balanced(t, tw, 200)
		}
	})
}

func TestGetMany_returnsTheLiveTasksInTheOrderOfTheKeys(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 16)
		for _, key := range []string{"a", "b", "c"} {
			must(t, tw.AddTask(once(key, time.Hour, nothing)))
		}
		must(t, tw.Pause("a"))
		c, _ := tw.Get("c")
		a, _ := tw.Get("a")
		wantEqual(t, "GetMany", tw.GetMany("c", "x", "a", "c"), []timewheel.Info{c, a, c})
		wantEqual(t, "GetMany of none", len(tw.GetMany()), 0)
	})
}

// A walk sees a task that stays live, even while Pause and Resume replace its entry.
func TestAll_whileTasksArePausedAndResumed_yieldsEachOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 16)
		const n = 200
		for i := range n {
			must(t, tw.AddTask(once(name(i), time.Hour, nothing)))
		}
		seen := map[string]int{}
		for info := range tw.All() {
			seen[info.Key]++
			for i := range n {
				if len(seen)%2 == 1 {
					must(t, tw.Pause(name(i)))
				} else {
					must(t, tw.Resume(name(i)))
				}
			}
		}
		for i := range n {
			if seen[name(i)] != 1 {
				t.Errorf("%s was yielded %d times", name(i), seen[name(i)])
			}
		}
	})
}

func TestL6_errorOfAJob_isReported(t *testing.T) {
	trouble := errors.New("trouble")
	inBubble(t, func(t *testing.T) {
		var book logBook
		type report struct {
			key  string
			left int
			err  error
		}
		var reports [2][]report
		handler := func(i int) timewheel.Option {
			return timewheel.WithErrorHandler(func(task *timewheel.Task, err error) {
				reports[i] = append(reports[i], report{task.Key, task.Times, err})
				if i == 0 {
					panic("on purpose")
				}
			})
		}
		tw := startWheel(t, 10*ms, 16, timewheel.WithLogger(book.logger()), handler(0), handler(1))
		runs := 0
		must(t, tw.AddTask(times("k", 20*ms, 3, timewheel.JobFunc(func(ctx context.Context) error {
			should(t, ctx.Err())
			if runs++; runs == 2 {
				return nil
			}
			return trouble
		}))))
		testkit.Settle(time.Second)
		want := []report{{"k", 2, trouble}, {"k", 0, trouble}}
		wantEqual(t, "what the first handler was given", reports[0], want)
		wantEqual(t, "what the second handler was given", reports[1], want)
		wantEqual(t, "handlers that panicked", len(book.with("error handler panicked")), 2)
		wantEqual(t, "errors logged", len(book.with("job failed")), 0)
		wantEqual(t, "Panicked", balanced(t, tw, 1).Panicked, uint64(0))
	})
	inBubble(t, func(t *testing.T) {
		var book logBook
		tw := startWheel(t, 10*ms, 16, timewheel.WithLogger(book.logger()))
		must(t, tw.AddTask(once("k", 20*ms, timewheel.JobFunc(func(context.Context) error { return trouble }))))
		testkit.Settle(time.Second)
		if logged := book.with("level=error", "job failed", "k", "trouble"); len(logged) != 1 {
			t.Errorf("without a handler the error was logged %d times", len(logged))
		}
	})
	timewheel.JobFunc(func(ctx context.Context) error { // not called by a wheel
		wantEqual(t, "the context", ctx, context.Background())
		return trouble
	})(&timewheel.Task{})
}

// A JobFunc gets the context of the run.
func TestL6_contextOfAJobFunc_isDoneWhenTheWheelStops(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		got := make(chan error, 1)
		tell := func(_ *timewheel.Task, err error) { got <- err }
		tw := startWheel(t, 10*ms, 16, timewheel.WithErrorHandler(tell))
		must(t, tw.AddTask(once("k", 20*ms, timewheel.JobFunc(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}))))
		testkit.Settle(50 * ms)
		ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
		defer cancel()
		if err := tw.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		synctest.Wait()
		if len(got) > 0 {
			t.Error("Shutdown has cancelled a run")
		}
		tw.Stop()
		if err := <-got; err != context.Canceled {
			t.Errorf("after Stop the error is %v", err)
		}
	})
}

// Timers have no key, so RemoveWait with an empty key waits for none of them.
func TestK8_withoutAKey_noTimerIsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := newWheel(t, 10*ms, 16)
		tw.Start()
		tw.AfterFunc(ms, func() { time.Sleep(time.Hour) })
		testkit.Settle(time.Second)
		began := time.Now()
		running, err := tw.RemoveWait(t.Context(), "")
		if running || !errors.Is(err, timewheel.ErrTaskKeyNotFound) || time.Since(began) > 0 {
			t.Errorf("RemoveWait returns %v, %v after %v", running, err, time.Since(began))
		}
		testkit.Settle(time.Hour)
	})
}

// A Reschedule that meets a Pause or a Resume finds the task replaced, and must not be lost with the old one. Whatever
// the others do, the task is due at the time of the last Reschedule: no time passes here.
func TestK7_rescheduledWhilePausedAndResumed_isDueThen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 16)
		must(t, tw.AddTask(once("k", time.Hour, nothing)))
		var other sync.WaitGroup
		var enough atomic.Bool
		other.Go(func() {
			for !enough.Load() {
				should(t, tw.Pause("k"))
				should(t, tw.Resume("k"))
			}
		})
		for i := range 20_000 {
			d := time.Hour + time.Duration(i%7)*time.Minute
			must(t, tw.Reschedule("k", d))
			if info, ok := tw.Get("k"); !ok || time.Until(info.Next) != d {
				t.Errorf("trial %d: due after %v, %v, want %v", i, time.Until(info.Next), ok, d)
				break
			}
		}
		enough.Store(true)
		other.Wait()
		balanced(t, tw, 1)
	})
}
