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
	"github.com/seed581295f1/timewheel/test/contract"
)

// BulkReschedule spreads tasks in any state over a period and moves each of them once. It does not touch paused tasks.
func spreadsTasks(t *testing.T, k *kit.Kit) {
	k.Handle("k", ok)
	k.Must(k.On().PauseKind(ctx, "k"))
	k.After(seen)
	for _, state := range []durable.State{durable.AnyState, durable.Scheduled, durable.Waiting} {
		spreads(t, k, state)
		if _, err := k.On().Bulk(ctx, durable.Query{}, durable.DoRemove); err != nil {
			t.Fatal(err)
		}
	}
}

func spreads(t *testing.T, k *kit.Kit, state durable.State) {
	const tasks, over = 2500, time.Hour
	delay := time.Minute
	if state == durable.Waiting {
		delay = time.Second
	}
	addMany(k, tasks, "k", delay)
	k.On().Add(durable.Task{Key: "paused", Kind: "k", Delay: delay})
	k.Must(k.On().Pause(ctx, "paused"))
	k.After(2 * time.Second)
	calls := 0
	n, err := k.On().BulkReschedule(ctx, durable.Query{State: state, Kind: "k"}, func(i int) time.Duration {
		if i != calls {
			t.Errorf("call %d is for task %d", calls, i)
		}
		calls++
		return time.Minute + time.Duration(i)*over/tasks
	})
	if n != tasks || calls != tasks || err != nil {
		t.Errorf("BulkReschedule: %d, %v, after %d calls", n, err, calls)
	}
	due := time.Now().Add(time.Minute)
	for i, err := range k.On().All(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if i.Key == "paused" {
			continue
		}
		if i.Next.Sub(due).Abs() > time.Second {
			t.Fatalf("%s is due at %v, want %v", i.Key, i.Next, due)
		}
		due = due.Add(over / tasks)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	zero := func(int) time.Duration { return -1 }
	if n, err := k.On().BulkReschedule(done, durable.Query{}, zero); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("BulkReschedule with a context that is done: %d, %v", n, err)
	}
	if _, err := k.On().BulkReschedule(ctx, durable.Query{After: "?"}, zero); !errors.Is(err, durable.ErrInvalidTask) {
		t.Errorf("BulkReschedule after no page: %v", err)
	}
	if n, err := k.On().BulkReschedule(ctx, durable.Query{Prefix: "k-01"}, zero); n != 1000 || err != nil {
		t.Errorf("BulkReschedule of a prefix: %d, %v", n, err)
	}
	if i := k.Info(fmt.Sprintf("k-%05d", 1000)); time.Until(i.Next) > 0 {
		t.Errorf("%+v", i)
	}
}

// Bulk cancels the runs of all matching tasks, wherever they are running.
func cancelsMany(t *testing.T, k *kit.Kit) {
	var cancelled atomic.Int64
	k.Handle("k", func(ctx context.Context, _ durable.Run) error {
		<-ctx.Done()
		if errors.Is(context.Cause(ctx), durable.ErrCancelled) {
			cancelled.Add(1)
		}
		return nil
	})
	for _, key := range []string{"a", "b"} {
		k.On().Add(durable.Task{Key: key, Kind: "k"})
	}
	k.On().Add(durable.Task{Key: "c", Kind: "k", Delay: time.Hour})
	k.After(2 * time.Second)
	n, err := k.On().Bulk(ctx, durable.Query{Kind: "k"}, durable.DoCancel)
	k.After(time.Second)
	if n != 2 || err != nil || cancelled.Load() != 2 {
		t.Errorf("Bulk: %d, %v; %d were cancelled", n, err, cancelled.Load())
	}
	k.End()
	if n, err := k.Bulk(ctx, durable.Query{}, durable.DoCancel); n != 0 || !errors.Is(err, durable.ErrStopped) {
		t.Errorf("Bulk after Shutdown: %d, %v", n, err)
	}
}

// The Info of a running task shows when its run started.
func saysSinceWhen(t *testing.T, k *kit.Kit) {
	end := make(chan struct{})
	k.Handle("hang", func(context.Context, durable.Run) error { <-end; return nil })
	k.After(seen)
	at := time.Now().Add(time.Second)
	k.On().Add(durable.Task{Key: "k", Kind: "hang", Interval: time.Second, Times: 2}, durable.Task{Key: "later", Kind: "hang", Delay: time.Hour})
	if i := k.Info("k"); !i.Started.IsZero() {
		t.Errorf("before its run it is %v", i)
	}
	k.After(10 * time.Second)
	for range k.Nodes {
		found, err := k.On().Find(ctx, durable.Query{State: durable.Running})
		k.Must(err)
		for _, i := range append(found.Tasks, k.Info("k")) {
			if i.Key != "k" || i.State != durable.Running || i.Started.Sub(at).Abs() > 3*contract.Tick {
				t.Errorf("the task is %v, and has been running since %v", i, at)
			}
		}
		if i := k.Info("later"); len(found.Tasks) != 1 || !i.Started.IsZero() {
			t.Errorf("running are %v, and what is not running is %v", found.Tasks, i)
		}
	}
	end <- struct{}{}
	k.After(seen)
	if i := k.Info("k"); i.Times != 1 || i.State == durable.Running && i.Started.Sub(at) < 8*time.Second {
		t.Errorf("after its run it is %v", i)
	}
	close(end)
}
