// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// drainedNodes returns the names of the nodes that say that they are drained, and their kinds and runs in progress.
func drainedNodes(k *kit.Kit) (all []string) {
	k.T.Helper()
	nodes, err := k.Nodes[len(k.Nodes)-1].Scheduler.Nodes(ctx)
	k.Must(err)
	for _, n := range nodes {
		if n.Drained {
			all = append(all, fmt.Sprint(n.Name, " ", n.Kinds, " ", n.Running))
		}
	}
	return all
}

// A drained node finishes its runs and starts no other. Its waiting tasks run elsewhere, and so do those that it adds.
// It stays a member, also if it starts again, until it is undrained.
func TestDrain(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a, b := k.Nodes[0], k.Nodes[1]
		a.Handle("long", func(context.Context, durable.Run) error { time.Sleep(20 * time.Second); return nil })
		a.Add(durable.Task{Key: "long", Kind: "long", Delay: time.Second})
		k.After(2 * time.Second)
		for i := range 50 {
			a.Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: 3*time.Second + time.Duration(i)*100*time.Millisecond})
		}
		k.Must(b.Drain(ctx, a.Name), a.Drain(ctx, a.Name))
		k.After(2500 * time.Millisecond)
		a.Add(durable.Task{Key: "added", Kind: "note", Delay: 500 * time.Millisecond})
		k.Runs()
		calls := k.RunsAfter(7 * time.Second)
		if len(calls) < 49 {
			t.Errorf("%d runs", len(calls))
		}
		for _, c := range calls {
			if c.Node == a.Name || c.Late > time.Second {
				t.Errorf("a run on the drained node, or late by %v: %v", c.Late, c)
			}
		}
		if got := fmt.Sprint(drainedNodes(k)); got != fmt.Sprintf("[%s [long note] 1]", a.Name) {
			t.Errorf("while its run is in progress the drained nodes are %s", got)
		}
		k.After(20 * time.Second)
		k.Gone("long")
		if s := a.Stats(); s.Succeeded == 0 || s.Node.EndsRefused > 0 {
			t.Errorf("the accounts of the drained node are %v", s)
		}
		if got := fmt.Sprint(drainedNodes(k)); got != fmt.Sprintf("[%s [] 0]", a.Name) {
			t.Errorf("the drained nodes are %s", got)
		}

		k.Must(a.Shutdown(ctx))
		again := k.Join(nil, durable.WithNodeName(a.Name)).Start()
		k.After(3 * time.Second)
		again.Handle("long", ok)
		again.Add(durable.Task{Key: "waits", Kind: "long", Delay: time.Second})
		k.After(10 * time.Second)
		if i := k.Info("waits"); i.Node != "" || i.State != durable.Waiting {
			t.Errorf("a task of a kind that only the drained node has: %v", i)
		}
		k.Must(b.Undrain(ctx, a.Name), b.Undrain(ctx, a.Name))
		k.After(3 * time.Second)
		k.Gone("waits")
		if got := drainedNodes(k); len(got) > 0 {
			t.Errorf("the drained nodes are %v", got)
		}

		if err := b.Drain(ctx, "nobody"); !errors.Is(err, durable.ErrUnknownNode) {
			t.Errorf("an unknown node: %v", err)
		}
	})
}

// The share of a drained node in a limit for all nodes is for the others once its runs have ended, and never before: the
// limit holds all the while.
func TestDrain_limitOfAllNodes(t *testing.T) {
	const most = 6
	kit.OnNodes(t, 3, func(t *testing.T, k *kit.Kit) {
		running, greatest := make(chan int, 1), 0
		running <- 0
		count := func(d int) {
			n := <-running + d
			greatest = max(greatest, n)
			running <- n
		}
		k.Handle("k", func(context.Context, durable.Run) error {
			count(1)
			defer count(-1)
			time.Sleep(2 * time.Second)
			return nil
		}, durable.WithClusterConcurrency(most))
		k.After(5 * time.Second)
		for i := range 400 {
			k.On().Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: time.Second})
		}
		k.After(20 * time.Second)
		drained := k.Nodes[0]
		k.Must(drained.Drain(ctx, drained.Name))
		k.After(15 * time.Second)
		before := k.Len()
		k.After(20 * time.Second)
		if n := before - k.Len(); n < most*10-most {
			t.Errorf("two nodes of three have run %d tasks in 20 s, where the limit allows %d", n, most*10)
		}
		k.Must(drained.Undrain(ctx, drained.Name))
		k.After(20 * time.Second)
		if s := drained.Stats(); s.Running == 0 {
			t.Errorf("the node that is no longer drained runs nothing: %v", s)
		}
		k.After(5 * time.Minute)
		if n := <-running; n != 0 || greatest != most || k.Len() != 0 {
			t.Errorf("%d runs at once, where %d are allowed; %d are running, and %d tasks are left", greatest, most, n, k.Len())
		}
	})
}

func TestDrain_onAStore_isRefused(t *testing.T) {
	kit.OnStore(t, func(t *testing.T, k *kit.Kit) {
		nodes, err := k.Scheduler.Nodes(ctx)
		k.Must(err)
		for _, err := range []error{k.Drain(ctx, nodes[0].Name), k.Undrain(ctx, nodes[0].Name)} {
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("it returns %v", err)
			}
		}
	})
}
