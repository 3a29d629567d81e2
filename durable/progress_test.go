// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// near reports whether a time is within some ticks of the wanted one.
func near(got, want time.Duration) bool { return (got - want).Abs() <= 3*tick }

// Running tasks are counted by kind, with the duration of the longest run, and the time since the last call of a
// handler.
func TestStats_runsInProgress(t *testing.T) {
	onEach(t, func(t *testing.T, k *kit.Kit) {
		end := make(chan struct{})
		for _, kind := range []string{"hang", "idle", "other"} {
			k.Handle(kind, func(context.Context, durable.Run) error { <-end; return nil })
		}
		k.Start()
		if got := k.Stats(); got.LongestRun != 0 || got.SinceStart != 0 {
			t.Errorf("before the first run the accounts are %+v", got)
		}
		k.After(time.Minute)
		for i := range 3 {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "hang", Delay: time.Duration(i+1) * time.Second})
		}
		k.Add(durable.Task{Key: "o", Kind: "other", Delay: 4 * time.Second})
		k.After(11 * time.Second)
		if got := k.Stats(); !near(got.LongestRun, 10*time.Second) || !near(got.SinceStart, 7*time.Second) {
			t.Errorf("the accounts are %+v", got)
		}
		kinds := k.Kinds()
		if got := kinds[0]; got.Kind != "hang" || got.Running != 3 || !near(got.Longest, 10*time.Second) {
			t.Errorf("a kind is %+v", got)
		}
		if got := kinds[1]; got.Kind != "idle" || got.Running != 0 || got.Longest != 0 {
			t.Errorf("a kind is %+v", got)
		}
		if got := kinds[2]; got.Running != 1 || !near(got.Longest, 7*time.Second) {
			t.Errorf("a kind is %+v", got)
		}
		close(end)
		synctest.Wait()
		if got := k.Stats(); got.LongestRun != 0 || !near(got.SinceStart, 7*time.Second) {
			t.Errorf("after the runs the accounts are %+v", got)
		}
		if got := k.Kinds()[0]; got.Running != 0 || got.Longest != 0 {
			t.Errorf("after the runs a kind is %+v", got)
		}
	}, durable.WithTick(tick), durable.WithPoolSize(8))
}

// Every node reports where a task is running, and since when by the engine's clock.
func TestInfo_started_onANode(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a, b := k.Nodes[0], k.Nodes[1]
		end := make(chan struct{})
		a.Handle("hang", func(context.Context, durable.Run) error { <-end; return kit.ErrFail }, durable.WithRetry(2, time.Hour, time.Hour))
		k.KV.Step(time.Hour)
		k.After(lease) // until the nodes know that
		a.Add(durable.Task{Key: "k", Kind: "hang", Delay: time.Second})
		at := time.Now().Add(time.Hour + time.Second)
		k.After(500 * time.Millisecond)
		if i, _, err := b.Get(ctx, "k"); err != nil || !i.Started.IsZero() {
			t.Errorf("before its run it is %v, %v", i, err)
		}
		k.After(10 * time.Second)
		found, err := b.Find(ctx, durable.Query{State: durable.Running})
		k.Must(err)
		one, _, err := b.Get(ctx, "k")
		k.Must(err)
		for _, i := range append(found.Tasks, one) {
			if i.State != durable.Running || i.Node != a.Name || i.Started.Before(at) || !near(i.Started.Sub(at), 0) {
				t.Errorf("while it is running it is %v, and should have been since %v", i, at)
			}
		}
		close(end)
		k.After(time.Second)
		if i, _, err := b.Get(ctx, "k"); err != nil || i.State != durable.Retrying || !i.Started.IsZero() {
			t.Errorf("after its run it is %v, %v", i, err)
		}
	})
}
