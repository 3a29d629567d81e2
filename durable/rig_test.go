// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/durable/memengine"
	"github.com/seed581295f1/timewheel/durable/memstore"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

var ctx = context.Background()

const (
	tick  = kit.Tick
	lease = kit.Lease
)

// inBubble runs the test on a started scheduler on a store in memory, and again on one without fingerprints.
func inBubble(t *testing.T, test func(t *testing.T, k *kit.Kit), opts ...durable.Option) {
	t.Run("fingerprints", func(t *testing.T) { kit.OnStore(t, test, opts...) })
	t.Run("none", func(t *testing.T) {
		testkit.NotForRaces(t)
		kit.OnStore(t, test, append(opts, durable.WithoutKeyFilter())...)
	})
}

// onEach runs the test on schedulers that are not started and handle no kind: one on a store, and one that is a node.
func onEach(t *testing.T, test func(t *testing.T, k *kit.Kit), opts ...durable.Option) {
	opts = append([]durable.Option{durable.WithLogger(testkit.Quiet())}, opts...)
	for name, open := range map[string]func() (*durable.Scheduler, error){
		"store": func() (*durable.Scheduler, error) { return durable.New(memstore.New(), opts...) },
		"node":  func() (*durable.Scheduler, error) { return durable.Join(ctx, memengine.New(), opts...) },
	} {
		t.Run(name, func(t *testing.T) {
			kit.In(t, func(t *testing.T, k *kit.Kit) {
				k.Use(open())
				test(t, k)
			})
		})
	}
}

// ranAt fails the test unless the key, and nothing else, ran at each of the times since its beginning, or less than two
// ticks later. One tick is the wheel's precision, and one the possible difference between the wheel's start and the
// kit's.
func ranAt(k *kit.Kit, key string, times ...time.Duration) []kit.Call {
	k.T.Helper()
	calls := k.Runs()
	ok := len(calls) == len(times)
	for i := 0; ok && i < len(times); i++ {
		ok = calls[i].Key == key && calls[i].At >= times[i] && calls[i].At < times[i]+2*tick
	}
	if !ok {
		k.T.Fatalf("%q should have run at %v, and these are the runs: %v", key, times, calls)
	}
	return calls
}

// times fails the test unless the task of the key has this number of runs left.
func times(k *kit.Kit, key string, want int) {
	k.T.Helper()
	if n, err := k.GetTaskTimes(ctx, key); n != want || err != nil {
		k.T.Errorf("GetTaskTimes(%q) = %d, %v, want %d", key, n, err, want)
	}
}

// handleEach registers a kind on every node, with a handler for each.
func handleEach(k *kit.Kit, kind string, h func(n *kit.Node) durable.Handler, opts ...durable.KindOption) {
	k.T.Helper()
	for _, n := range k.Nodes {
		n.Handle(kind, h(n), opts...)
	}
}
