// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

const (
	sec  = time.Second
	hour = time.Hour
)

func TestT1_at_isTheTimeOfDay(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "k", Kind: "note", At: time.Now().Add(2 * hour)})
		if next := k.Info("k").Next; !next.Equal(k.Begin.Add(2 * hour)) {
			t.Errorf("Next is %v", next)
		}
		k.After(3 * hour)
		c := ranAt(k, "k", 2*hour)
		if !c[0].Due.Equal(k.Begin.Add(2*hour)) || c[0].Attempt != 1 || c[0].Times != 0 {
			t.Errorf("the run is %+v", c[0].Run)
		}
		k.Add(durable.Task{Key: "past", Kind: "note", At: k.Begin.Add(-hour)})
		k.After(2 * tick)
		ranAt(k, "past", 3*hour)
	})
}

func TestT3_repeats_keepTheirGrid(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "k", Kind: "note", Interval: 25 * time.Millisecond, Times: 40})
		times(k, "k", 40)
		calls := k.RunsAfter(sec + 2*tick)
		if len(calls) != 40 {
			t.Fatalf("%d runs in a second, want 40", len(calls))
		}
		for i, c := range calls {
			due := time.Duration(i+1) * 25 * time.Millisecond
			if !c.Due.Equal(k.Begin.Add(due)) || c.At < due || c.At >= due+2*tick || c.Times != 39-i {
				t.Errorf("run %d, due at %v, is at %v: %+v", i, due, c.At, c.Run)
			}
		}
		k.Gone("k")

		// A first run that is not on the interval, and periods longer than the window.
		k.Add(durable.Task{Key: "slow", Kind: "note", Delay: 5 * time.Minute, Interval: 7 * time.Minute, Times: durable.Forever})
		now := time.Since(k.Begin)
		k.After(20 * time.Minute)
		ranAt(k, "slow", now+5*time.Minute, now+12*time.Minute, now+19*time.Minute)
		times(k, "slow", durable.Forever)
	})
}

func TestT4_handlerLongerThanThePeriod_missesPeriodsAndKeepsTheGrid(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("long", func(context.Context, durable.Run) error { time.Sleep(2500 * time.Millisecond); return nil })
		k.Add(durable.Task{Key: "k", Kind: "long", Interval: sec, Times: 3})
		k.After(20 * sec)
		c := ranAt(k, "k", 1*sec, 4*sec, 7*sec)
		if c[2].Missed != 4 {
			t.Errorf("%d periods were missed, want 4", c[2].Missed)
		}
	})
}

func TestK1_batch_isAddedWholeOrNotAtAll(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		task := func(key string) durable.Task { return durable.Task{Key: key, Kind: "note", Delay: hour} }
		k.Add(task("b"), task("d"))
		err := k.AddTask(ctx, task("a"), task("b"), task("c"), task("c"), task("c"), task("b"), task("d"))
		var dup *durable.DuplicateKeysError
		if !errors.As(err, &dup) || !errors.Is(err, durable.ErrDuplicateTaskKey) || strings.Join(dup.Keys, "") != "bcd" {
			t.Errorf("the error is %v", err)
		}
		for _, key := range []string{`"b"`, `"c"`, `"d"`} {
			if !strings.Contains(err.Error(), key) {
				t.Errorf("%v does not name %s", err, key)
			}
		}
		k.Gone("a")
		k.Gone("c")
		if n := k.Len(); n != 2 {
			t.Errorf("Len is %d", n)
		}
		bad := durable.Task{Key: "bad", Kind: "note", Delay: -1}
		if err := k.AddTask(ctx, task("a"), bad); !errors.Is(err, durable.ErrInvalidTask) {
			t.Errorf("the error is %v", err)
		}
		k.Gone("a")
		k.Add() // nothing
	})
}

func TestStats_tellWhatWaitsAndRuns(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		gate := make(chan struct{})
		k.Handle("gate", func(context.Context, durable.Run) error { <-gate; return nil })
		for key, d := range map[string]time.Duration{"runs": sec, "waits": 2 * sec, "near": 10 * sec, "far": hour} {
			k.Add(durable.Task{Key: key, Kind: "gate", Delay: d})
		}
		k.After(3 * sec)
		ranAt(k, "runs", sec) // and occupies the only worker
		if s := k.Stats(); s.Waiting != 1 || s.Running != 1 || s.Pending != 4 {
			t.Errorf("the accounts are %+v", s)
		}
		close(gate)
	}, durable.WithPoolSize(1))
}

// The outcome of a run does not count if the task was removed, replaced or moved during the run.
func TestK5_changedDuringARun_theRunCountsNoMore(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("slow", func(context.Context, durable.Run) error { time.Sleep(10 * sec); return nil })
		for _, key := range []string{"removed", "readded", "replaced", "moved"} {
			k.Add(durable.Task{Key: key, Kind: "slow", Interval: hour, Times: 3})
		}
		if n := len(k.RunsAfter(hour + 5*sec)); n != 4 {
			t.Fatalf("%d run", n)
		}
		for _, key := range []string{"removed", "readded"} {
			k.Must(k.RemoveTask(ctx, key))
		}
		before := k.Info("replaced").Generation
		k.Add(durable.Task{Key: "readded", Kind: "note", Delay: 10 * hour})
		k.Must(k.SetTask(ctx, durable.Task{Key: "replaced", Kind: "note", Delay: 10 * hour}))
		if after := k.Info("replaced").Generation; after <= before {
			t.Errorf("generation %d comes after %d", after, before)
		}
		k.Must(k.Reschedule(ctx, "moved", 10*hour))
		k.After(sec * 20)
		k.Gone("removed")
		times(k, "readded", 1)
		times(k, "replaced", 1)
		times(k, "moved", 3)
		if i := k.Info("moved"); i.Seq != 1 {
			t.Errorf("the next run of what was moved during its first has number %d", i.Seq)
		}
		k.After(10 * hour)
		tokens := map[string]bool{}
		for _, c := range k.Runs() {
			if tokens[c.Token.String()] {
				t.Errorf("two runs have the token %v", c.Token)
			}
			tokens[c.Token.String()] = true
		}
		if len(tokens) != 3 {
			t.Errorf("%d runs, want those of the task added again, replaced and moved", len(tokens))
		}
	})
}

func TestReschedule_moves(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "k", Kind: "note", Interval: hour, Times: durable.Forever})
		for _, d := range []time.Duration{2 * hour, sec, 90 * sec, 10 * sec, 30 * time.Minute} { // in and out of the window
			k.Must(k.Reschedule(ctx, "k", d))
			if next := k.Info("k").Next; !next.Equal(time.Now().Add(d)) {
				t.Errorf("the next run is at %v", next)
			}
			k.After(sec / 2)
		}
		at := time.Since(k.Begin) - sec/2 + 30*time.Minute
		k.After(4 * hour)
		ranAt(k, "k", at, at+hour, at+2*hour, at+3*hour)
		if err := k.Reschedule(ctx, "other", sec); !errors.Is(err, durable.ErrTaskKeyNotFound) {
			t.Errorf("Reschedule of what is not there: %v", err)
		}
		if err := k.Reschedule(ctx, "k", -sec); err != nil {
			t.Error(err)
		}
		now := time.Since(k.Begin)
		k.After(2 * tick)
		ranAt(k, "k", now)
	})
}

func TestRetry_failure_isTriedAgainLaterAndThenParked(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		const least, most = 4 * sec, 20 * sec
		var fails atomic.Bool
		fails.Store(true)
		k.Handle("flaky", func(context.Context, durable.Run) error {
			if fails.Load() {
				return errors.New(strings.Repeat("very long ", 100))
			}
			return nil
		}, durable.WithRetry(5, least, most), durable.WithParkRepeating())
		k.Add(durable.Task{Key: "k", Kind: "flaky", Interval: hour, Times: 2})
		calls := k.RunsAfter(hour + 5*time.Minute)
		if len(calls) != 5 {
			t.Fatalf("%d attempts, want 5: %v", len(calls), calls)
		}
		wait := least
		for i, c := range calls {
			if c.Token != calls[0].Token || c.Attempt != i+1 || !c.Due.Equal(calls[0].Due) {
				t.Errorf("attempt %d is %+v", i+1, c.Run)
			}
			if i > 0 {
				if d := c.At - calls[i-1].At; d < wait/2 || d > wait+2*tick {
					t.Errorf("attempt %d comes %v after the one before, want %v or down to its half", i+1, d, wait)
				}
				wait = min(2*wait, most)
			}
		}
		i := k.Info("k")
		if i.State != durable.Parked || i.Attempts != 5 || !strings.HasPrefix(i.Failure, "very long") || len(i.Failure) > 256 || i.Times != 2 || !i.Next.IsZero() {
			t.Errorf("the parked task is %+v", i)
		}
		if s := k.Stats(); s.ParkedTotal != 1 || s.Failed != 5 || s.Started != 5 || s.Succeeded != 0 {
			t.Errorf("the accounts are %+v", s)
		}
		fails.Store(false)
		now := time.Since(k.Begin)
		k.Must(k.Reschedule(ctx, "k", 0))
		k.After(2 * hour)
		c := ranAt(k, "k", now, now+hour)
		if c[0].Attempt != 1 || c[0].Seq == calls[0].Seq {
			t.Errorf("the run after the parking is %+v", c[0].Run)
		}
		k.Gone("k")
	})
}

func TestRetry_panicAndGoexit_areFailures(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		once := durable.WithRetry(1, sec, sec)
		k.Handle("panic", func(context.Context, durable.Run) error { panic("at the disco") }, once)
		k.Handle("goexit", func(context.Context, durable.Run) error { runtime.Goexit(); return nil }, once)
		for _, kind := range []string{"panic", "goexit"} {
			k.Add(durable.Task{Key: kind, Kind: kind, Delay: sec})
		}
		k.After(2 * sec)
		for kind, why := range map[string]string{"panic": "at the disco", "goexit": "Goexit"} {
			if i := k.Info(kind); i.State != durable.Parked || !strings.Contains(i.Failure, why) {
				t.Errorf("the task is %+v", i)
			}
		}
		if s := k.Stats(); s.Failed != 2 || s.Running != 0 {
			t.Errorf("the accounts are %+v", s)
		}
	})
}

func TestCrash_unacknowledgedRun_comesAgainWithItsToken(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("hang", func(ctx context.Context, _ durable.Run) error { <-ctx.Done(); return ctx.Err() })
		k.Add(
			durable.Task{Key: "done", Kind: "note", Delay: sec},
			durable.Task{Key: "twice", Kind: "note", Interval: sec, Times: 2},
			durable.Task{Key: "hangs", Kind: "hang", Delay: sec, Payload: []byte("load")},
			durable.Task{Key: "far", Kind: "note", Delay: 3 * hour},
		)
		k.After(sec + sec/2)
		first := map[string]durable.Token{}
		for _, c := range k.Runs() {
			first[c.Key] = c.Token
		}
		if len(first) != 3 {
			t.Fatalf("these ran: %v", first)
		}
		k.Crash()
		k.Handle("hang", func(context.Context, durable.Run) error { return nil })
		k.Gone("done")
		times(k, "twice", 1)
		times(k, "hangs", 1)
		k.After(hour)
		k.RanNothing()
		k.Start()
		k.After(2 * tick)
		seen := map[string]durable.Run{}
		for _, c := range k.Runs() {
			seen[c.Key] = c.Run
		}
		if hangs := seen["hangs"]; len(seen) != 2 || hangs.Token != first["hangs"] || string(hangs.Payload) != "load" || hangs.Attempt != 1 {
			t.Errorf("after the crash these ran: %v", seen)
		}
		if seen["twice"].Token == first["twice"] {
			t.Error("the second run has the token of the first")
		}
		k.After(3 * hour)
		ranAt(k, "far", 3*hour)
		if n := k.Len(); n != 0 {
			t.Errorf("%d tasks are left", n)
		}
	})
}

func TestCatchUp_overdue_runsOldestFirstAtItsRate(t *testing.T) {
	const tasks, rate = 1000, 100
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		for i := range tasks {
			k.Add(durable.Task{Key: fmt.Sprint("late", i), Kind: "note", Delay: hour - time.Duration(i)*sec, Payload: []byte{1}})
		}
		k.Crash()
		k.After(2 * hour)
		k.Start()
		k.Add(durable.Task{Key: "now", Kind: "note", Delay: sec})
		began := time.Since(k.Begin)
		calls := k.RunsAfter(20 * sec)
		if len(calls) != tasks+1 {
			t.Fatalf("%d runs", len(calls))
		}
		n, due := 0, time.Time{}
		for _, c := range calls {
			since := c.At - began
			if c.Key == "now" {
				if since < sec || since > sec+2*tick {
					t.Errorf("what fell due after the start ran after %v", since)
				}
				continue
			}
			n++
			if most := rate*(since.Seconds()+0.1) + 1; float64(n) > most {
				t.Fatalf("%d overdue tasks ran in %v", n, since)
			}
			if c.Due.Before(due.Add(-sec)) { // the tasks of one batch run at the same time
				t.Errorf("what was due at %v ran after what was due at %v", c.Due, due)
			}
			due = c.Due
		}
		if last := calls[len(calls)-1].At - began; last > 11*sec {
			t.Errorf("the last overdue task ran after %v", last)
		}
	}, durable.WithCatchUp(rate))
}

func TestCatchUp_slowHandlers_doNotFillTheMemory(t *testing.T) {
	testkit.NotForRaces(t)
	const rate = 10
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("slow", func(context.Context, durable.Run) error { time.Sleep(hour); return nil })
		for i := range 200 {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "slow", Delay: sec})
		}
		k.Crash()
		k.Handle("slow", func(context.Context, durable.Run) error { time.Sleep(10 * sec); return nil })
		k.After(hour)
		k.Start()
		most := 0
		for k.Len() > 0 {
			k.After(sec)
			s := k.Stats()
			most = max(most, s.Waiting+s.Running)
		}
		if most > 3*rate {
			t.Errorf("%d overdue tasks were in memory at once", most)
		}
	}, durable.WithCatchUp(rate), durable.WithPoolSize(4))
}

// Any rate is kept, and the largest one causes no trouble.
func TestCatchUp_rates(t *testing.T) {
	testkit.NotForRaces(t)
	for _, c := range []struct{ rate, least, most int }{
		{1, 2, 4}, {7, 20, 23}, {150, 445, 455}, {199, 590, 600}, {100_000, 5_000, 5_000}, {math.MaxInt, 5_000, 5_000},
	} {
		kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
			for i := range 5_000 {
				k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: sec})
			}
			k.Crash()
			k.After(hour)
			k.Start()
			if n := len(k.RunsAfter(3 * sec)); n < c.least || n > c.most {
				t.Errorf("at %d a second %d ran in three seconds, want %d to %d", c.rate, n, c.least, c.most)
			}
		}, durable.WithCatchUp(c.rate))
	}
}

func TestCatchUp_hungHandlers_holdUpNothingElse(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		hang := func(ctx context.Context, _ durable.Run) error { <-ctx.Done(); return ctx.Err() }
		k.Handle("hang", hang)
		for i := range 50 {
			k.Add(durable.Task{Key: fmt.Sprint("hangs", i), Kind: "hang", Delay: sec})
		}
		for i := range 20 {
			k.Add(durable.Task{Key: fmt.Sprint("runs", i), Kind: "note", Delay: 2 * sec})
		}
		k.Crash()
		k.Handle("hang", hang)
		k.After(hour)
		k.Start()
		k.After(10 * sec)
		k.Add(durable.Task{Key: "past", Kind: "note", At: k.Begin})
		if n := len(k.RunsAfter(20 * sec)); n != 30+21 { // half of the workers hang
			t.Errorf("%d ran, want 51", n)
		}
		k.Gone("past")
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if err := k.Shutdown(gone); err == nil {
			t.Error("Shutdown says nothing of the runs it gave up")
		}
		k.Crash()
	}, durable.WithCatchUp(5), durable.WithPoolSize(60))
}

func TestCatchUp_anyPoolSize(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "k", Kind: "note", Delay: sec})
		k.Crash()
		k.After(hour)
		k.Start()
		if n := len(k.RunsAfter(sec)); n != 1 {
			t.Errorf("%d runs of the overdue task", n)
		}
	}, durable.WithPoolSize(math.MaxInt))
}

// A task whose At was long ago runs at once, and does not wait behind the backlog.
func TestAt_past_runsAtOnceEvenWhileOthersAreOverdue(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		for i := range 100 {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: sec})
		}
		k.Crash()
		k.After(hour)
		k.Start()
		k.Add(durable.Task{Key: "past", Kind: "note", At: k.Begin, Interval: 24 * hour, Times: 2})
		k.After(2 * tick)
		k.Info("past")
		times(k, "past", 1)
		if next := k.Info("past").Next; !next.Equal(k.Begin.Add(24 * hour)) {
			t.Errorf("the next run is at %v, off the grid", next)
		}
	}, durable.WithCatchUp(1))
}

func TestMissed_policies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy durable.Missed
		runs   int    // at the start
		missed uint64 // by the next run
	}{"Once": {durable.MissedOnce, 1, 9}, "Skip": {durable.MissedSkip, 0, 10}, "All": {durable.MissedAll, 10, 0}} {
		t.Run(name, func(t *testing.T) {
			kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
				handle := func() {
					k.Handle("k", func(context.Context, durable.Run) error { return nil }, durable.WithMissed(c.policy))
				}
				handle()
				k.Add(durable.Task{Key: "k", Kind: "k", Interval: hour, Times: 100})
				k.Crash()
				handle()
				k.After(10*hour + 30*time.Minute)
				k.Start()
				calls := k.RunsAfter(10 * sec)
				if len(calls) != c.runs {
					t.Fatalf("%d runs at the start, want %d", len(calls), c.runs)
				}
				for i, run := range calls {
					if want := k.Begin.Add(time.Duration(i+1) * hour); !run.Due.Equal(want) {
						t.Errorf("run %d was due at %v, want %v", i, run.Due, want)
					}
				}
				times(k, "k", 100-c.runs)
				unhandled(k, 0)
				k.After(hour)
				next := ranAt(k, "k", 11*hour)
				if next[0].Missed != c.missed {
					t.Errorf("%d periods were missed, want %d", next[0].Missed, c.missed)
				}
			})
		})
	}
}

func TestS3_afterShutdown_verbsSaySo(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "k", Kind: "note", Delay: sec})
		if err := k.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		k.After(hour)
		k.RanNothing()
		_, _, get := k.Get(ctx, "k")
		_, exist := k.Exist(ctx, "k")
		_, times := k.GetTaskTimes(ctx, "k")
		var all error
		for _, err := range k.All(ctx) {
			all = err
		}
		task := durable.Task{Key: "l", Kind: "note", Delay: sec}
		for verb, err := range map[string]error{
			"AddTask": k.AddTask(ctx, task), "SetTask": k.SetTask(ctx, task), "RemoveTask": k.RemoveTask(ctx, "k"),
			"Reschedule": k.Reschedule(ctx, "k", sec), "Start": k.Scheduler.Start(),
			"Get": get, "Exist": exist, "GetTaskTimes": times, "All": all,
		} {
			if !errors.Is(err, durable.ErrStopped) {
				t.Errorf("%s: %v", verb, err)
			}
		}
		if n := k.Len(); n != 0 {
			t.Errorf("Len is %d", n)
		}
		_ = k.Stats()
	})
}

func TestS4_shutdown_waitsForRunsAndTheirAcknowledgement(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("slow", func(ctx context.Context, _ durable.Run) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(5 * sec):
				return nil
			}
		})
		k.Add(durable.Task{Key: "k", Kind: "slow", Delay: sec})
		k.After(2 * sec)
		var wait sync.WaitGroup
		for range 3 {
			wait.Go(func() {
				if err := k.Shutdown(ctx); err != nil {
					t.Errorf("shutdown: %v", err)
				}
			})
		}
		wait.Wait()
		if d := time.Since(k.Begin); d < 6*sec {
			t.Errorf("shutdown returned after %v", d)
		}
		if n := len(stored(t, k.KV)); n != 0 {
			t.Errorf("the run that Shutdown waited for was not acknowledged")
		}
	})
}

func TestS4_shutdownThatGivesUp_saysSoAndTheRunComesAgain(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Open(k.KV)
		var cancelled atomic.Bool
		k.Handle("slow", func(ctx context.Context, _ durable.Run) error {
			<-ctx.Done()
			cancelled.Store(true)
			return ctx.Err()
		})
		k.Start()
		k.Add(durable.Task{Key: "k", Kind: "slow", Delay: sec})
		testkit.Settle(2 * sec)
		short, cancel := context.WithTimeout(ctx, sec)
		defer cancel()
		if err := k.Shutdown(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("shutdown: %v", err)
		}
		synctest.Wait()
		if !cancelled.Load() {
			t.Error("the context of the run was not cancelled")
		}
		if n := len(stored(t, k.KV)); n != 1 {
			t.Errorf("%d tasks are left, want the one whose run was given up", n)
		}
		k.Kill()
	})
}

func TestContext_ended_isReturned(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if err := k.AddTask(gone, durable.Task{Key: "k", Kind: "note", Delay: sec}); !errors.Is(err, context.Canceled) {
			t.Errorf("AddTask: %v", err)
		}
		if _, _, err := k.Get(gone, "k"); !errors.Is(err, context.Canceled) {
			t.Errorf("Get: %v", err)
		}
		k.Add(durable.Task{Key: "k", Kind: "note", Delay: sec})
		for _, err := range k.All(gone) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("All: %v", err)
			}
		}
	})
}

func TestHandler_mayCallTheVerbs(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("busy", func(ctx context.Context, run durable.Run) error {
			err := k.AddTask(ctx, durable.Task{Key: "child of " + run.Key, Kind: "note", Delay: sec})
			return errors.Join(err, k.RemoveTask(ctx, "victim"), k.Reschedule(ctx, "moved", sec))
		})
		for _, key := range []string{"victim", "moved"} {
			k.Add(durable.Task{Key: key, Kind: "note", Delay: hour})
		}
		k.Add(durable.Task{Key: "k", Kind: "busy", Delay: sec})
		calls := k.RunsAfter(3 * sec)
		if len(calls) != 3 {
			t.Errorf("these ran: %v", calls)
		}
		if n := k.Len(); n != 0 {
			t.Errorf("%d tasks are left", n)
		}
	})
}

// An error of the user whose methods misbehave does no harm.
func TestRetry_errorThatPanicsOrSaysNothing_isAFailureLikeAnother(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		once := durable.WithRetry(1, sec, sec)
		k.Handle("nil", func(context.Context, durable.Run) error { var e *pointerError; return e }, once)
		k.Handle("silent", func(context.Context, durable.Run) error { return errors.New("") }, once)
		k.Handle("binary", func(context.Context, durable.Run) error { return errors.New("\xff" + strings.Repeat("ä", 200)) }, once)
		k.Handle("deaf", func(context.Context, durable.Run) error { panic(&pointerError{}) }, once)
		for _, kind := range []string{"nil", "silent", "binary", "deaf"} {
			k.Add(durable.Task{Key: kind, Kind: kind, Delay: sec})
		}
		k.After(2 * sec)
		for _, kind := range []string{"nil", "silent", "binary", "deaf"} {
			i := k.Info(kind)
			if i.State != durable.Parked || i.Failure == "" || len(i.Failure) > 256 || !utf8.ValidString(i.Failure) {
				t.Errorf("the task is %+v", i)
			}
		}
	})
}

type pointerError struct{ text *string }

func (e *pointerError) Error() string { return *e.text }

// A walk that reads while Shutdown waits for it must not wait for Shutdown.
func TestAll_readsDuringShutdown_isEnded(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		for i := range 10 {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: hour})
		}
		shut := make(chan error, 1)
		var ended error
		seen := 0
		for i, err := range k.All(ctx) {
			if ended = err; err != nil {
				break
			}
			if seen++; seen == 3 {
				go func() { shut <- k.Shutdown(ctx) }()
			}
			k.After(sec)
			_, _ = k.Exist(ctx, i.Key)
			_ = k.Stats()
		}
		if !errors.Is(ended, durable.ErrStopped) || seen != 3 {
			t.Errorf("the walk ended after %d tasks with %v", seen, ended)
		}
		if err := <-shut; err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
}

// Shutdown does not wait forever for a walk in progress.
func TestS4_walkThatDoesNotEnd_isLeftBehind(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "k", Kind: "note", Delay: hour})
		for range k.All(ctx) {
			short, cancel := context.WithTimeout(ctx, sec)
			began := time.Now()
			if err := k.Shutdown(short); err == nil || time.Since(began) > 7*sec {
				t.Errorf("shutdown after %v: %v", time.Since(began), err)
			}
			cancel()
			again, cancel := context.WithTimeout(ctx, sec)
			if err := k.Shutdown(again); err == nil {
				t.Error("the second shutdown says nothing")
			}
			cancel()
		}
		synctest.Wait()
		k.Crash()
	})
}

// Several operations of one group on one key see each other.
func TestGroup_operationsOnOneKey_seeEachOther(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		for round := range 50 {
			key := fmt.Sprint("k", round)
			var wait sync.WaitGroup
			var added, removed atomic.Int32
			for i := range 20 {
				wait.Go(func() {
					switch i % 4 {
					case 0:
						if k.AddTask(ctx, durable.Task{Key: key, Kind: "note", Delay: hour}) == nil {
							added.Add(1)
						}
					case 1:
						if k.RemoveTask(ctx, key) == nil {
							removed.Add(1)
						}
					case 2:
						_ = k.Reschedule(ctx, key, sec) // or there is none
						_ = k.Reschedule(ctx, key, hour)
					case 3:
						if i == 3 {
							_ = k.RemoveTask(ctx, "no such key")
						}
					}
				})
			}
			wait.Wait()
			left := added.Load() - removed.Load()
			if left != 0 && left != 1 {
				t.Fatalf("%d adds and %d removals of one key", added.Load(), removed.Load())
			}
			if ok, err := k.Exist(ctx, key); ok != (left == 1) || err != nil {
				t.Errorf("Exist(%q) = %v, %v, and %d are left", key, ok, err, left)
			}
		}
		s := k.Stats()
		if s.Added != s.Removed+uint64(s.Pending) {
			t.Errorf("the accounts are %+v", s)
		}
	})
}

// Random verbs, advances of time and crashes are compared with a model of each task: when it is due, how many runs are
// left, and whether it or its kind is paused. Nothing runs early, late or twice, while it is paused or after its
// removal.
func TestScheduler_randomWalk_agreesWithModel(t *testing.T) {
	t.Parallel()
	testkit.NotForRaces(t)
	walks(t, 60, 6, 6, func(t *testing.T, seed uint64) {
		kit.OnOwn(t, func(t *testing.T, k *kit.Kit) { walk(t, k, rand.New(rand.NewPCG(seed, 1))) })
	})
}

type walked struct {
	next     time.Time // when the run is due, or would be if not paused
	from     time.Time // not before this: the task was resumed then
	least    time.Time // nor before this: the task was set when the end of its burst had passed
	deadline time.Time // how far SetTask may postpone it; zero if it is in no burst
	interval time.Duration
	times    int
	kind     string
	paused   bool
	spare    time.Duration // how much later it may be: a task that is resumed with its kind waits for a spare worker
}

// starts returns when the run of a task that is not paused must start.
func (w *walked) starts() time.Time {
	if w.from.After(w.due()) {
		return w.from
	}
	return w.due()
}

// due returns the expected Info.Next.
func (w *walked) due() time.Time {
	if w.least.After(w.next) {
		return w.least
	}
	return w.next
}

// ran records a run. Periods that have passed by then are missed.
func (w *walked) ran() {
	w.times--
	w.deadline, w.spare = time.Time{}, 0
	for first := true; first || !w.next.After(time.Now()); first = false {
		w.next = w.next.Add(w.interval)
	}
}

func walk(t *testing.T, k *kit.Kit, rnd *rand.Rand) {
	model := map[string]*walked{}
	kinds := []string{"note", "limited"}
	limited := func() {
		k.Handle("limited", sleeper(0), durable.WithConcurrency(1), durable.WithRate(1000, sec, 10))
	}
	limited()
	pausedKinds := map[string]bool{}
	stopped := func(m *walked) bool { return m.paused || pausedKinds[m.kind] }
	shifts := map[string]time.Duration{}
	delays := []time.Duration{1, tick, sec, 29 * sec, 30 * sec, 59 * sec, 60 * sec, 61 * sec, 90 * sec, hour, 50 * hour}
	delay := func() time.Duration { return delays[rnd.IntN(len(delays))] + time.Duration(rnd.Int64N(int64(sec))) }
	advance := func(step int, d time.Duration) {
		end := time.Now().Add(d)
		for time.Now().Before(end) {
			// To the next start, or the end, and far enough beyond it for due tasks to have run.
			at := end
			for _, m := range model {
				if !stopped(m) && m.starts().Before(at) {
					at = m.starts()
				}
			}
			testkit.Settle(max(time.Until(at), 0) + 2*tick)
			for _, c := range k.Runs() {
				m := model[c.Key]
				if m == nil || stopped(m) || !c.Due.Equal(m.next) || c.Times != m.times-1 {
					t.Fatalf("step %d: %s ran, due at %v; the model has %+v", step, c.Key, c.Due, m)
				}
				if late := k.Begin.Add(c.At).Sub(m.starts()); late < 0 || late >= 3*tick+m.spare {
					t.Fatalf("step %d: %s ran %v late", step, c.Key, late)
				}
				if m.ran(); m.times == 0 {
					delete(model, c.Key)
				}
			}
			for key, m := range model {
				if !stopped(m) && time.Since(m.starts()) > 2*tick+m.spare {
					t.Fatalf("step %d: %s was due %v ago and did not run", step, key, time.Since(m.starts()))
				}
			}
		}
	}
	for step := range 160 {
		key := fmt.Sprint("k", rnd.IntN(8))
		m := model[key]
		did := func(verb string, err error) {
			t.Helper()
			if (err == nil) != (m != nil) {
				t.Fatalf("step %d: %s(%s): %v", step, verb, key, err)
			}
		}
		task := durable.Task{
			Key: key, Kind: kinds[rnd.IntN(2)], Delay: delay(), Times: 1 + rnd.IntN(3),
			Interval: 10*sec + time.Duration(rnd.Int64N(int64(hour))), Group: fmt.Sprint(rnd.IntN(2)),
		}
		new := &walked{next: time.Now().Add(task.Delay), interval: task.Interval, times: task.Times, kind: task.Kind}
		switch rnd.IntN(16) {
		case 0, 1:
			task.Jitter = time.Duration(rnd.IntN(2)) * sec
			err := k.AddTask(ctx, task)
			if (err == nil) != (m == nil) {
				t.Fatalf("step %d: AddTask(%s): %v", step, key, err)
			}
			if m == nil && task.Jitter > 0 {
				shift := k.Info(key).Next.Sub(new.next)
				if before, known := shifts[key]; shift < 0 || shift > task.Jitter || known && shift != before {
					t.Fatalf("step %d: %s is later by %v, and was by %v", step, key, shift, before)
				}
				shifts[key] = shift
				new.next = new.next.Add(shift)
			}
			if m == nil {
				model[key] = new
			}
		case 10, 11: // a burst
			task.MaxDelay = task.Delay + sec
			k.Must(k.SetTask(ctx, task))
			new.deadline = time.Now().Add(task.MaxDelay)
			if m != nil && !m.deadline.IsZero() && m.deadline.Before(new.deadline) {
				new.deadline = m.deadline
			}
			if new.deadline.Before(new.next) {
				new.next, new.least = new.deadline, time.Now()
			}
			model[key] = new
			advance(step, 2*tick) // it may be due
		case 12:
			n, err := k.RemovePrefix(ctx, key)
			if err != nil || (n == 1) != (m != nil) {
				t.Fatalf("step %d: RemovePrefix(%s): %d, %v", step, key, n, err)
			}
			delete(model, key)
		case 13:
			d := delay()
			if n, err := k.ReschedulePrefix(ctx, "k", d); err != nil || n != len(model) {
				t.Fatalf("step %d: ReschedulePrefix: %d of %d, %v", step, n, len(model), err)
			}
			for _, m := range model {
				m.next, m.least, m.deadline = time.Now().Add(d), time.Time{}, time.Time{}
			}
		case 14:
			k.Must(k.PauseKind(ctx, task.Kind))
			pausedKinds[task.Kind] = true
		case 15:
			k.Must(k.ResumeKind(ctx, task.Kind))
			if pausedKinds[task.Kind] {
				delete(pausedKinds, task.Kind)
				for _, m := range model {
					if m.kind == task.Kind && m.starts().Before(time.Now()) {
						m.from, m.spare = time.Now(), 5*tick
					}
				}
				advance(step, 8*tick)
			}
		case 2:
			did("RemoveTask", k.RemoveTask(ctx, key))
			delete(model, key)
		case 3:
			d := delay()
			did("Reschedule", k.Reschedule(ctx, key, d))
			if m != nil {
				m.next, m.least, m.deadline = time.Now().Add(d), time.Time{}, time.Time{}
			}
		case 4:
			if rnd.IntN(3) == 0 {
				k.Crash()
				limited()
				k.Start() // with no time in between, nothing is overdue
			}
		case 5:
			did("Pause", k.Pause(ctx, key))
			if m != nil {
				m.paused = true
			}
		case 6, 7:
			did("Resume", k.Resume(ctx, key))
			if m != nil && m.paused {
				m.paused, m.from = false, time.Now()
				advance(step, 2*tick) // it may be due
			}
		default:
			advance(step, delay())
		}
		if n := k.Len(); n != len(model) {
			t.Fatalf("step %d: Len is %d, want %d", step, n, len(model))
		}
		if m := model[key]; m != nil {
			i := k.Info(key)
			if m.paused != (i.State == durable.Paused) || !m.paused && !i.Next.Equal(m.due()) || i.Times != m.times {
				t.Fatalf("step %d: %s is %+v, want %+v", step, key, i, m)
			}
		}
	}
}

func TestAll_yieldsInDueOrder(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("once", func(context.Context, durable.Run) error { return kit.ErrFail }, durable.WithRetry(1, sec, sec))
		k.Add(durable.Task{Key: "parked", Kind: "once", Delay: tick})
		k.After(sec)
		for i, key := range []string{"c", "a", "b"} {
			k.Add(durable.Task{Key: key, Kind: "note", Delay: time.Duration(i+1) * hour, Payload: []byte(key)})
		}
		var keys []string
		for i, err := range k.All(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, i.Key)
			if i.State != durable.Parked && string(i.Payload) != i.Key {
				t.Errorf("the task is %+v", i)
			}
		}
		if got := strings.Join(keys, " "); got != "c a b parked" {
			t.Errorf("the tasks are %s", got)
		}
		for range k.All(ctx) {
			break
		}
	})
}
