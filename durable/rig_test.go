// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"iter"
	"math"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

var ctx = context.Background()

const (
	tick  = kit.Tick
	lease = kit.Lease
)

// onEach runs the test on schedulers that are not started and handle no kind: one with its own engine, and one that shares
// it.
func onEach(t *testing.T, test func(t *testing.T, k *kit.Kit), opts ...durable.Option) {
	opts = append([]durable.Option{durable.WithLogger(testkit.Quiet())}, opts...)
	for name, open := range map[string]func() engine.Engine{
		"own engine":    func() engine.Engine { return memory.New().Engine() },
		"shared engine": func() engine.Engine { return memory.New().Shared() },
	} {
		t.Run(name, func(t *testing.T) {
			kit.In(t, func(t *testing.T, k *kit.Kit) {
				k.Use(durable.New(ctx, open(), opts...))
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

// A drowsy is an exclusive KV in which reading an entry takes a while.
type drowsy struct {
	*memory.KV
	each time.Duration
}

func (drowsy) Exclusive() {}

func (d drowsy) Scan(ctx context.Context, from, to string) iter.Seq2[engine.Entry, error] {
	return func(yield func(engine.Entry, error) bool) {
		for e, err := range d.KV.Scan(ctx, from, to) {
			if time.Sleep(d.each); !yield(e, err) {
				return
			}
		}
	}
}

// A heldKV is an exclusive KV whose commits can be held up. It records the number of transactions of the largest one.
type heldKV struct {
	*memory.KV
	turn chan struct{} // has one value, which the test takes to make commits wait
	most int           // read after Shutdown
}

func (*heldKV) Exclusive() {}

func (h *heldKV) Commit(ctx context.Context, txs ...engine.Tx) ([]bool, error) {
	<-h.turn
	defer func() { h.turn <- struct{}{} }()
	h.most = max(h.most, len(txs))
	return h.KV.Commit(ctx, txs...)
}

// A slowToCommit is an exclusive KV whose commits take some time.
type slowToCommit struct {
	*memory.KV
	takes time.Duration
}

func (slowToCommit) Exclusive() {}

func (s slowToCommit) Commit(ctx context.Context, txs ...engine.Tx) ([]bool, error) {
	time.Sleep(s.takes)
	return s.KV.Commit(ctx, txs...)
}

// stored returns the tasks in the KV, by due time.
func stored(t testing.TB, on *memory.KV) (all []engine.Stored) {
	t.Helper()
	e := on.Clone().Engine()
	for one, err := range e.Walk(ctx, engine.Range{After: engine.Position{Due: engine.None}, Until: math.MaxInt64}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}
