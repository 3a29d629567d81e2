// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// A slowKV is an exclusive KV that takes 3 ms for a commit, and knows its size until it is closed.
type slowKV struct {
	*memory.KV
	closed bool
}

func (*slowKV) Exclusive() {}

func (s *slowKV) Commit(ctx context.Context, txs ...engine.Tx) ([]bool, error) {
	time.Sleep(3 * time.Millisecond)
	return s.KV.Commit(ctx, txs...)
}

func (s *slowKV) Size() int64 {
	if s.closed {
		panic("the size of a closed store")
	}
	return 4711
}

func (s *slowKV) Close() error {
	s.closed = true
	return nil
}

// bucketOf returns the index of the bucket that d belongs to.
func bucketOf(d time.Duration) int {
	for i := range durable.TimingBuckets {
		if d <= durable.TimingBound(i) {
			return i
		}
	}
	return durable.TimingBuckets
}

func TestStats_countsCommitsAndRetries(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Open(&slowKV{KV: k.KV}).Start()
		k.Handle("kind", func(_ context.Context, run durable.Run) error {
			if run.Attempt < 3 {
				return errors.New("on purpose")
			}
			return nil
		}, durable.WithRetry(5, time.Second, time.Second))
		k.Add(durable.Task{Key: "a", Kind: "kind", Delay: time.Second},
			durable.Task{Key: "far", Kind: "kind", Delay: time.Hour})
		k.After(time.Minute)
		got := k.Stats()
		if got.Started != 3 || got.Retried != 2 || got.Failed != 2 || got.Succeeded != 1 {
			t.Errorf("the accounts of the runs are %+v", got)
		}
		// The add, and the ends of three attempts.
		if got.Commits.Count != 4 || got.Changes != 5 || got.Commits.Total != 12*time.Millisecond ||
			got.Commits.Buckets[bucketOf(3*time.Millisecond)] != 4 {
			t.Errorf("the accounts of the commits are %+v, %d", got.Commits, got.Changes)
		}
		if got.Disk.Store != 4711 || got.Node != nil {
			t.Errorf("the size is %d, and the node %v", got.Disk.Store, got.Node)
		}
		k.End()
		if after := k.Stats(); after.Disk.Store != 0 || after.Commits != got.Commits {
			t.Errorf("after Shutdown the accounts are %+v", after)
		}
	})
}

// A failed commit does not count.
func TestStats_failedCommits_areNotCounted(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		a.Link.Next("Commit", enginetest.Fault{Fail: true})
		if a.AddTask(ctx, durable.Task{Key: "k", Kind: "note", Delay: time.Hour}) == nil {
			t.Error("an add that fails returns nil")
		}
		if got := a.Stats(); got.Commits.Count != 0 || got.Changes != 0 || got.Node.CallsFailed != 1 {
			t.Errorf("the accounts are %+v, %+v", got, got.Node)
		}
		a.Add(durable.Task{Key: "k", Kind: "note", Delay: time.Hour})
		if got := a.Stats(); got.Commits.Count != 1 || got.Changes != 1 {
			t.Errorf("the accounts are %+v", got)
		}
	})
}

func TestStats_ofANode_leaseAndCalls(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		a.Link.SetFaults(func(string) enginetest.Fault { return enginetest.Fault{Delay: 3 * time.Millisecond} })
		k.After(lease)
		before := a.Stats().Node
		k.After(10 * lease)
		got := a.Stats().Node
		if got.Lease != lease || got.LeaseAge > lease/4+reapEvery || got.Away {
			t.Errorf("all is well, and the node is %+v", got)
		}
		calls, took := got.Calls.Count-before.Calls.Count, got.Calls.Total-before.Calls.Total
		// Ten claims a second, and four renewals a lease.
		if least := uint64(10*lease/(110*time.Millisecond) + 30); calls < least {
			t.Errorf("%d calls, want %d at least", calls, least)
		}
		if took != time.Duration(calls)*3*time.Millisecond ||
			got.Calls.Buckets[bucketOf(3*time.Millisecond)]-before.Calls.Buckets[bucketOf(3*time.Millisecond)] != calls {
			t.Errorf("%d calls took %v: %+v", calls, took, got.Calls)
		}
		a.Link.SetDown(true)
		k.After(10 * lease)
		got = a.Stats().Node
		if got.LeaseAge < 10*lease-lease/4 || got.LeaseAge > 10*lease+lease/4+reapEvery || !got.Away || got.CallsFailed < 10 {
			t.Errorf("the engine has been away for %v, and the node is %+v", 10*lease, got)
		}
		a.Link.SetDown(false)
		k.After(lease)
		if got = a.Stats().Node; got.LeaseAge > lease/4+reapEvery || got.Away {
			t.Errorf("the engine is back, and the node is %+v", got)
		}
		a.End()
		k.After(10 * lease)
		if got = a.Stats().Node; got.LeaseAge != 0 || got.Away {
			t.Errorf("after Shutdown the node is %+v", got)
		}
		k.Nodes = nil
	})
}

// reapEvery is the longest time between two checks of a node's membership.
const reapEvery = 250 * time.Millisecond

// The claims, takeovers and refusals of a node.
func TestStats_ofANode_claims(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a, b := k.Nodes[0], k.Nodes[1]
		k.Handle("long", func(ctx context.Context, _ durable.Run) error {
			time.Sleep(time.Second)
			return nil
		})
		is := func(of *kit.Node, claimed, taken, starts, ends uint64) {
			t.Helper()
			n := of.Stats().Node
			if starts > 0 { // it is asked again and again, until the claims have been checked between
				n.StartsRefused = min(n.StartsRefused, starts)
			}
			if got := []uint64{n.Claimed, n.TakenOver, n.StartsRefused, n.EndsRefused}; !slices.Equal(got,
				[]uint64{claimed, taken, starts, ends}) {
				t.Errorf("%s: claimed, taken over, starts and ends refused are %d, want %d, %d, %d, %d",
					of.Name, got, claimed, taken, starts, ends)
			}
		}
		is(a, 0, 0, 0, 0)
		// Removed by another node after it was claimed, and while it is running.
		a.Add(durable.Task{Key: "claimed", Kind: "long", Delay: 500 * time.Millisecond})
		k.Must(b.RemoveTask(ctx, "claimed"))
		a.Add(durable.Task{Key: "runs", Kind: "long", Delay: 500 * time.Millisecond})
		k.After(time.Second)
		k.Must(b.RemoveTask(ctx, "runs"))
		k.After(time.Second)
		is(a, 0, 0, 1, 1)
		// Claimed, and taken over from a node that is cut off.
		a.Add(durable.Task{Key: "far", Kind: "note", Delay: lease + 3*time.Second})
		k.After(lease)
		a.Link.SetDown(true)
		k.After(4*time.Second + lease)
		is(b, 1, 1, 0, 0)
		a.Link.SetDown(false)
		k.After(time.Second)
		// An end after the lease is refused without a call.
		b.Add(durable.Task{Key: "late", Kind: "long", Delay: time.Millisecond})
		k.After(500 * time.Millisecond)
		b.Link.SetDown(true)
		k.After(2 * lease)
		b.Link.SetDown(false)
		k.After(time.Second)
		if n := b.Stats().Node; n.EndsRefused != 1 {
			t.Errorf("after a run that has ended late the node is %+v", n)
		}
	})
}

// Runs that wait for a worker are in the counters while they wait, with the age of the oldest. After Shutdown there are
// neither pending nor parked tasks.
func TestStats_stuckWorkers_andShutdown(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		end := make(chan struct{})
		k.Handle("stuck", func(context.Context, durable.Run) error { <-end; return nil })
		k.Handle("parks", func(context.Context, durable.Run) error { return kit.ErrFail }, durable.WithRetry(1, time.Second, time.Second))
		for i := range 5 {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "stuck", Delay: time.Second})
		}
		k.After(10 * time.Second)
		if got := k.Stats(); got.Workers != 2 || got.Running != 2 || got.Waiting != 3 ||
			got.OldestWait < 8*time.Second || got.OldestWait > 9*time.Second {
			t.Errorf("the accounts are %+v", got)
		}
		close(end)
		k.Add(durable.Task{Key: "bad", Kind: "parks", Delay: time.Second})
		k.After(2 * time.Second)
		if got := k.Stats(); got.OldestWait != 0 || got.Parked != 1 || got.Pending != 1 {
			t.Errorf("when they are free the accounts are %+v", got)
		}
		k.End()
		if got := k.Stats(); got.Parked != 0 || got.Pending != 0 || got.ParkedTotal != 1 {
			t.Errorf("after Shutdown the accounts are %+v", got)
		}
	}, durable.WithPoolSize(2))
}
