// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

func removesAndWaits(t *testing.T, k *kit.Kit) {
	var ended atomic.Int32
	k.Handle("k", func(context.Context, durable.Run) error {
		time.Sleep(4 * time.Second)
		ended.Add(1)
		return nil
	})
	for range len(k.Nodes) { // one call on each node
		if ran, err := k.On().RemoveTaskWait(ctx, "a"); ran || !errors.Is(err, durable.ErrTaskKeyNotFound) {
			t.Errorf("without a task: %v, %v", ran, err)
		}
		k.On().Add(durable.Task{Key: "a", Kind: "k", Delay: time.Hour})
		if ran, err := k.On().RemoveTaskWait(ctx, "a"); ran || err != nil {
			t.Errorf("of a task that does not run: %v, %v", ran, err)
		}
		k.Gone("a")
	}
	for i := range len(k.Nodes) {
		k.On().Add(durable.Task{Key: "a", Kind: "k", Delay: time.Hour, Interval: time.Hour, Times: durable.Forever})
		k.Must(k.On().Reschedule(ctx, "a", time.Second)) // so that the run does not have the first run's number
		calls := k.RunsAfter(2 * time.Second)
		if len(calls) != 1 {
			t.Fatalf("there are %d runs", len(calls))
		}
		within, cancel := context.WithTimeout(ctx, time.Second)
		ran, err := k.On().RemoveTaskWait(within, "a")
		cancel()
		var running *durable.RunningError
		if !ran || !errors.As(err, &running) || !errors.Is(err, context.DeadlineExceeded) ||
			running.Token != calls[0].Token || running.Node == "" {
			t.Errorf("of a run that takes longer: %v, %v", ran, err)
		}
		k.Gone("a")
		ran, err = k.On().RemoveTaskWait(ctx, "a") // the task is gone, but its run is in progress
		if !ran || err != nil || ended.Load() != int32(i+1) {
			t.Errorf("of a run that ends: %v, %v, and %d have ended", ran, err, ended.Load())
		}
	}
}

// RemoveTaskWait also waits for a run whose task was moved or replaced during the run, although the record no longer
// shows that run.
func removesAndWaitsForEarlierRuns(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { time.Sleep(4 * time.Second); return nil })
	for _, then := range []func() error{
		func() error { return k.On().Reschedule(ctx, "a", time.Hour) },
		func() error { return k.On().SetTask(ctx, durable.Task{Key: "a", Kind: "k", Delay: time.Hour}) },
	} {
		k.On().Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
		if calls := k.RunsAfter(2 * time.Second); len(calls) != 1 {
			t.Fatalf("there are %d runs", len(calls))
		}
		k.Must(then())
		began := time.Now()
		ran, err := k.On().RemoveTaskWait(ctx, "a")
		if waited := time.Since(began); !ran || err != nil || waited < time.Second {
			t.Errorf("after %v: %v, %v", waited, ran, err)
		}
	}
}

// Cancel has no effect between two attempts. The next attempt runs as if Cancel had not been called.
func cancelsNoRetry(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(ctx context.Context, run durable.Run) error {
		if run.Attempt == 1 {
			return durable.RetryAfter(10*time.Second, errNot)
		}
		return ctx.Err()
	})
	k.On().Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
	k.RunsAfter(3 * time.Second)
	for range k.Nodes {
		if ran, err := k.On().Cancel(ctx, "a"); ran || err != nil {
			t.Errorf("Cancel between two attempts: %v, %v", ran, err)
		}
	}
	if calls := k.RunsAfter(20 * time.Second); len(calls) != 1 || calls[0].Attempt != 2 {
		t.Errorf("afterwards run %v", calls)
	}
	k.Gone("a")
}

func cancels(t *testing.T, k *kit.Kit) {
	causes := make(chan error, 10)
	k.Handle("k", func(ctx context.Context, run durable.Run) error {
		if run.Attempt > 1 {
			return nil
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}, durable.WithRetry(2, time.Second, time.Second))
	if ran, err := k.On().Cancel(ctx, "a"); ran || err != nil {
		t.Errorf("of no task: %v, %v", ran, err)
	}
	for range len(k.Nodes) {
		k.On().Add(durable.Task{Key: "other", Kind: "k", Delay: time.Second})
		k.On().Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
		if ran, err := k.On().Cancel(ctx, "a"); ran || err != nil {
			t.Errorf("of a task that does not run: %v, %v", ran, err)
		}
		if calls := k.RunsAfter(2 * time.Second); len(calls) != 2 {
			t.Fatalf("there are %d runs", len(calls))
		}
		if ran, err := k.On().Cancel(ctx, "a"); !ran || err != nil {
			t.Errorf("of a run: %v, %v", ran, err)
		}
		if cause := <-causes; !errors.Is(cause, durable.ErrCancelled) {
			t.Errorf("the cause is %v", cause)
		}
		calls := k.RunsAfter(4 * time.Second)
		if len(calls) != 1 || calls[0].Key != "a" || calls[0].Attempt != 2 || len(causes) != 0 {
			t.Errorf("afterwards run %v", calls)
		}
		k.Gone("a")
		if ran, err := k.On().Cancel(ctx, "other"); !ran || err != nil {
			t.Errorf("of the other run: %v, %v", ran, err)
		}
		<-causes
		if ran, err := k.On().RemoveTaskWait(ctx, "other"); err != nil {
			t.Errorf("of a run that is cancelled: %v, %v", ran, err)
		}
		k.RunsAfter(2 * time.Second)
	}
	var failed, cancelled uint64
	for _, s := range k.Nodes {
		for _, k := range s.Kinds() {
			failed, cancelled = failed+k.Failed, cancelled+k.Cancelled
		}
	}
	if want := uint64(2 * len(k.Nodes)); failed != want || cancelled != want {
		t.Errorf("%d have failed, and %d of them are cancelled, want %d", failed, cancelled, want)
	}
}

// A handler cancels its own run, and other runs, with its own context.
func cancelsItself(t *testing.T, k *kit.Kit) {
	causes := make(chan error, 10)
	k.Handle("waits", func(ctx context.Context, run durable.Run) error {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil
	})
	k.Handle("k", func(ctx context.Context, run durable.Run) error {
		if run.Key == "one" {
			ran, err := k.Nodes[0].Cancel(ctx, run.Key)
			if !ran || err != nil {
				t.Errorf("Cancel of the run that calls it returns %v, %v", ran, err)
			}
			if ran, err := k.Nodes[0].Cancel(ctx, run.Key); ran || !errors.Is(err, context.Canceled) {
				t.Errorf("Cancel with a context that is done returns %v, %v", ran, err)
			}
		} else {
			did, err := k.Nodes[0].Bulk(ctx, durable.Query{Prefix: ""}, durable.DoCancel)
			if did != 3 || err != nil {
				t.Errorf("Bulk returns %d, %v", did, err)
			}
		}
		causes <- context.Cause(ctx)
		return nil
	})
	k.On().Add(durable.Task{Key: "one", Kind: "k", Delay: time.Second})
	k.RunsAfter(4 * time.Second)
	k.Gone("one")
	k.On().Add(durable.Task{Key: "a", Kind: "waits", Delay: time.Second}, durable.Task{Key: "b", Kind: "waits", Delay: time.Second},
		durable.Task{Key: "all", Kind: "k", Delay: 3 * time.Second})
	k.RunsAfter(8 * time.Second)
	if len(causes) != 4 {
		t.Errorf("%d of 4 runs have ended", len(causes))
	}
	for range len(causes) {
		if cause := <-causes; !errors.Is(cause, durable.ErrCancelled) {
			t.Errorf("the cause is %v", cause)
		}
	}
}

// Shutdown names the package and the number of runs, and ends after its context is done.
func shutdownSays(t *testing.T, k *kit.Kit) {
	over := make(chan struct{})
	k.Handle("k", func(context.Context, durable.Run) error { <-over; return nil })
	for i := range len(k.Nodes) {
		k.On().Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: time.Second})
	}
	k.After(3 * time.Second)
	running := 0
	for _, n := range k.Nodes {
		running += n.Stats().Running
		within, cancel := context.WithTimeout(ctx, time.Second)
		err := n.Shutdown(within)
		cancel()
		want := fmt.Sprintf("durable: shutdown: runs that have not ended: %d: context deadline exceeded", n.Stats().Running)
		switch {
		case n.Stats().Running == 0 && err != nil:
			t.Errorf("without a run, Shutdown returns %v", err)
		case n.Stats().Running > 0 && (!errors.Is(err, context.DeadlineExceeded) || err.Error() != want):
			t.Errorf("Shutdown returns %v, want %s", err, want)
		}
	}
	if running == 0 {
		t.Error("no run is in progress")
	}
	close(over)
	k.Nodes = nil
}

// A Shutdown whose context is done ends the wait.
func shutdownEndsWait(t *testing.T, k *kit.Kit) {
	over := make(chan struct{})
	k.Handle("k", func(context.Context, durable.Run) error { <-over; return nil })
	k.Nodes[0].Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
	k.After(3 * time.Second)
	ended := make(chan error, 1)
	go func() {
		_, err := k.RemoveTaskWait(ctx, "a")
		ended <- err
	}()
	k.After(time.Second)
	within, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := k.Shutdown(within); err == nil {
		t.Error("Shutdown does not say that a run is running")
	}
	var running *durable.RunningError
	if err := <-ended; !errors.Is(err, durable.ErrStopped) || !errors.As(err, &running) {
		t.Errorf("RemoveTaskWait: %v", err)
	}
	k.Kill()
	close(over)
}
