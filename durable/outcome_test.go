// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/sirupsen/logrus"
)

func TestPark_ofNil_isNil(t *testing.T) {
	if err := errors.Join(durable.Park(nil), durable.RetryAfter(time.Second, nil)); err != nil {
		t.Error(err)
	}
	for _, err := range []error{durable.Park(kit.ErrFail), durable.RetryAfter(-1, kit.ErrFail)} {
		if !errors.Is(err, kit.ErrFail) || err.Error() != kit.ErrFail.Error() {
			t.Errorf("%v", err)
		}
	}
}

// The outer of two errors decides the outcome, and an error that panics counts as one that decides nothing.
func TestPark_withinAnother(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", func(_ context.Context, run durable.Run) error {
			return map[string]error{
				"park":  durable.Park(durable.RetryAfter(time.Second, kit.ErrFail)),
				"retry": durable.RetryAfter(time.Hour, durable.Park(kit.ErrFail)),
				"joint": errors.Join(kit.ErrFail, fmt.Errorf("and %w", durable.Park(kit.ErrFail))),
				"panic": panicking{},
			}[run.Key]
		}, durable.WithRetry(2, time.Minute, time.Minute))
		for key, parked := range map[string]bool{"park": true, "retry": false, "joint": true, "panic": false} {
			k.Add(durable.Task{Key: key, Kind: "k", Delay: time.Second})
			if calls := k.RunsAfter(2 * time.Second); len(calls) != 1 {
				t.Errorf("%s: %v", key, calls)
			}
			if i := k.Info(key); (i.State == durable.Parked) != parked {
				t.Errorf("%+v", i)
			}
		}
	})
}

// RetryAfter with a non-positive delay retries the run at once.
func TestRetryAfter_ofNoTime_isAtOnce(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", func(_ context.Context, run durable.Run) error {
			if run.Attempt < 3 {
				return durable.RetryAfter(time.Duration(run.Attempt-2), kit.ErrFail)
			}
			return nil
		}, durable.WithRetry(3, time.Minute, time.Minute))
		k.Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
		if calls := k.RunsAfter(2 * time.Second); len(calls) != 3 {
			t.Errorf("%v", calls)
		}
	})
}

// completing returns a handler that completes its runs with the note.
func completing(note string) durable.Handler {
	return func(_ context.Context, run durable.Run) error {
		run.Complete(note)
		return nil
	}
}

// A handler that closes a resource at its end joins the errors of both.
func TestComplete_beforeErrorsAreJoined(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", func(_ context.Context, run durable.Run) (err error) {
			defer func() { err = errors.Join(err, nil) }()
			run.Complete("a note")
			return nil
		}, durable.WithRetry(1, time.Second, time.Second))
		k.Add(durable.Task{Key: "a", Kind: "k", Interval: time.Second, Times: 2})
		k.After(1500 * time.Millisecond)
		if i := k.Info("a"); i.State == durable.Parked || i.Note != "a note" || i.Times != 1 {
			t.Errorf("%+v", i)
		}
	})
}

// After a handler has returned Complete has no effect, nor has it for a Run that no scheduler has made.
func TestComplete_tooLateOrInNoScheduler(t *testing.T) {
	durable.Run{}.Complete("nothing")
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		kept := make(chan durable.Run, 3)
		k.Handle("k", func(_ context.Context, run durable.Run) error { kept <- run; return nil })
		k.Add(durable.Task{Key: "a", Kind: "k", Interval: time.Second, Times: 3})
		k.After(1500 * time.Millisecond)
		(<-kept).Complete("too late")
		k.After(time.Second)
		if i := k.Info("a"); i.Note != "" || i.Times != 1 {
			t.Errorf("%+v", i)
		}
	})
}

// The observers and the log get the note, including that of the last run.
func TestComplete_isObservedAndLogged(t *testing.T) {
	var mu sync.Mutex // protects below
	var observed, logged []string
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.AddHook(callingHook(func(e *logrus.Entry) {
		mu.Lock()
		defer mu.Unlock()
		if note, ok := e.Data["note"]; ok {
			logged = append(logged, fmt.Sprint(e.Data["task"], " ", note))
		}
	}))
	observe := durable.WithObserver(func(a durable.Attempt) {
		mu.Lock()
		defer mu.Unlock()
		observed = append(observed, fmt.Sprint(a.Key, " ", a.Note, a.Failure))
	})
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", completing("paid already"))
		k.Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
		k.After(2 * time.Second)
		k.Gone("a")
		stats := k.Stats()
		mu.Lock()
		defer mu.Unlock()
		want := []string{"a paid already"}
		if !slices.Equal(observed, want) || !slices.Equal(logged, want) || stats.Failed != 0 || stats.Succeeded != 1 {
			t.Errorf("observed are %q, and logged %q; %+v", observed, logged, stats)
		}
	}, durable.WithLogger(log), observe)
}

type panicking struct{}

func (panicking) Error() string { return "it panics" }
func (panicking) As(any) bool   { panic("As") }

// A run whose process ends is a failed attempt. The first is not counted, because it did not begin overdue.
func TestCrash_aTaskThatEndsItsProcess_isParked(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		kills := func() {
			k.Handle("kills", func(ctx context.Context, _ durable.Run) error { <-ctx.Done(); return ctx.Err() },
				durable.WithRetry(3, time.Second, time.Second), durable.WithParkRepeating())
		}
		kills()
		k.Add(durable.Task{Key: "a", Kind: "kills", Delay: time.Second, Interval: time.Hour, Times: 2},
			durable.Task{Key: "b", Kind: "note", Delay: time.Second, Times: 1})
		k.After(2 * time.Second)
		k.Runs()
		for attempt := 1; attempt <= 3; attempt++ {
			k.Crash()
			kills()
			k.Start()
			calls := k.RunsAfter(time.Second)
			if len(calls) != 1 || calls[0].Key != "a" || calls[0].Attempt != attempt {
				t.Fatalf("attempt %d: %v", attempt, calls)
			}
			if i := k.Info("a"); i.Attempts != attempt-1 || len(i.Failed) != attempt-1 || i.State == durable.Parked { // the last is not over
				t.Errorf("attempt %d: %+v", attempt, i)
			}
		}
		k.Crash()
		kills()
		k.Start()
		k.After(time.Second)
		k.RanNothing()
		if i := k.Info("a"); i.State != durable.Parked || i.Attempts != 3 || k.Stats().Parked != 1 {
			t.Errorf("%+v, %+v", i, k.Stats())
		}
		for _, i := range k.Kinds() {
			if want := map[string]uint64{"kills": 1}[i.Kind]; i.Interrupted != want {
				t.Errorf("of kind %s %d attempts were cut off, want %d", i.Kind, i.Interrupted, want)
			}
		}
		if err := k.Reschedule(ctx, "a", time.Hour); err != nil {
			t.Error(err)
		}
		if i := k.Info("a"); i.Attempts != 0 || i.Failure != "" {
			t.Errorf("%+v", i)
		}
	})
}

// A run that is in progress when another ends the process has failed too, and its task is eventually parked.
func TestCrash_whatRunsNextToIt_usesUpAnAttempt(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		waits := func() {
			k.Handle("waits", func(ctx context.Context, _ durable.Run) error { <-ctx.Done(); return ctx.Err() },
				durable.WithRetry(2, time.Second, time.Second))
		}
		waits()
		k.Add(durable.Task{Key: "kills", Kind: "waits", Delay: time.Second},
			durable.Task{Key: "innocent", Kind: "waits", Delay: time.Second})
		for range 4 {
			k.After(2 * time.Second)
			k.Crash()
			waits()
			k.Start()
		}
		k.After(time.Second)
		for _, key := range []string{"kills", "innocent"} {
			if i := k.Info(key); i.State != durable.Parked || i.Attempts != 2 {
				t.Errorf("%+v", i)
			}
		}
		if err := k.Reschedule(ctx, "innocent", time.Hour); err != nil {
			t.Error(err)
		}
		if i := k.Info("innocent"); i.State == durable.Parked || i.Attempts != 0 {
			t.Errorf("rescheduled: %+v", i)
		}
	})
}

// An attempt that exceeds its time has failed, even if its context was done earlier for another reason.
func TestTimeout_ofARunThatWasCancelledBefore_isAFailure(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		handleEach(k, "slow", func(m *kit.Node) durable.Handler {
			return func(ctx context.Context, _ durable.Run) error {
				m.Link.SetDown(true)
				<-ctx.Done()
				m.Link.SetDown(false)
				if cause := context.Cause(ctx); !errors.Is(cause, durable.ErrFenced) {
					t.Errorf("the context is done because of %v", cause)
				}
				time.Sleep(time.Minute)
				return nil
			}
		}, durable.WithTimeout(time.Minute), durable.WithRetry(5, time.Hour, time.Hour))
		k.Nodes[0].Add(durable.Task{Key: "a", Kind: "slow", Delay: time.Second})
		k.After(10 * time.Minute)
		if i := k.Info("a"); i.Attempts != 1 || !strings.HasPrefix(i.Failure, "timed out after 1m0s") {
			t.Errorf("%+v", i)
		}
	})
}

// The same holds behind a backlog that is longer than the number of counted starts: the tasks that ran before it are
// done.
func TestCrash_behindABacklog_isParked(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		const backlog = 20_000
		kills := func() {
			k.Handle("kills", func(ctx context.Context, _ durable.Run) error { <-ctx.Done(); return ctx.Err() },
				durable.WithRetry(2, time.Second, time.Second))
		}
		kills()
		var tasks []durable.Task
		for i := range backlog {
			tasks = append(tasks, durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: time.Hour})
		}
		k.Add(tasks...)
		k.Add(durable.Task{Key: "a", Kind: "kills", Delay: time.Hour + time.Millisecond})
		attempts := 0
		for life := 0; life < 5 && k.Info("a").State != durable.Parked; life++ {
			k.Crash()
			kills()
			if life == 0 {
				k.After(2 * time.Hour)
			}
			k.Start()
			for _, c := range k.RunsAfter(10 * time.Second) {
				if c.Key == "a" {
					attempts++
				}
			}
		}
		if i := k.Info("a"); i.State != durable.Parked || attempts != 3 {
			t.Errorf("after %d attempts: %+v", attempts, i)
		}
	})
}

// An overdue run that ends normally counts as usual.
func TestCrash_overdueRuns_endAsOthers(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "done", Kind: "note", Delay: time.Second},
			durable.Task{Key: "again", Kind: "note", Delay: time.Second, Interval: time.Hour, Times: durable.Forever},
			durable.Task{Key: "fails", Kind: "fail", Delay: time.Second})
		k.Crash()
		k.After(time.Minute)
		k.Start()
		if calls := k.RunsAfter(2 * tick); len(calls) != 3 {
			t.Errorf("%v", calls)
		}
		k.Gone("done")
		if i := k.Info("again"); i.Attempts != 0 || i.Seq != 1 {
			t.Errorf("%+v", i)
		}
		if i := k.Info("fails"); i.Attempts != 1 || i.Failure != kit.ErrFail.Error() {
			t.Errorf("%+v", i)
		}
	})
}

// A task that is removed while its start is being counted does not start. The test is repeated until the removal comes
// first.
func TestCrash_removedAsItStarts(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		var began, removed atomic.Bool
		k.Handle("watched", func(context.Context, durable.Run) error {
			if began.Store(true); removed.Load() {
				t.Error("it starts after its removal")
			}
			return nil
		})
		for range 100 {
			k.Add(durable.Task{Key: "a", Kind: "watched", Delay: time.Second})
			k.After(500 * time.Millisecond)
			k.Crash()
			k.After(time.Minute)
			k.Start()
			err := k.RemoveTask(ctx, "a")
			removed.Store(true)
			if k.After(time.Minute); err == nil && !began.Load() {
				return
			}
			if err != nil && !errors.Is(err, durable.ErrTaskKeyNotFound) {
				t.Fatal(err)
			}
			began.Store(false)
			removed.Store(false)
		}
		t.Error("the task always began before it was removed")
	})
}
