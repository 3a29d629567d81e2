// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// Tasks of whatever state are spread over a time, each once, and paused ones are left alone.
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
