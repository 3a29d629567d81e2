// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
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

// A drained node finishes its runs and starts no other. Its waiting tasks run elsewhere, and so do the ones that it adds.
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
		for i := range 20 {
			a.Add(durable.Task{Key: fmt.Sprint("soon ", i), Kind: "note", Delay: 800 * time.Millisecond})
		}
		k.After(150 * time.Millisecond)
		holder := func(key string) string {
			i, _, err := b.Get(ctx, key)
			k.Must(err)
			return i.Node
		}
		if holder("soon 0") == "" {
			t.Error("no node holds a task that is due soon")
		}
		k.Must(b.Drain(ctx, a.Name), a.Drain(ctx, a.Name))
		k.After(400 * time.Millisecond)
		for i := range 20 {
			if key := fmt.Sprint("soon ", i); holder(key) == a.Name {
				t.Errorf("the drained node holds the task %q", key)
			}
		}
		claimed := a.Stats().Node.Claimed
		k.Must(b.Declare("long"))
		b.Add(durable.Task{Key: "of the drained node", Kind: "long", Delay: 500 * time.Millisecond})
		k.After(2 * time.Second)
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
		if got := fmt.Sprint(drainedNodes(k)); got != fmt.Sprintf("[%s [] 1]", a.Name) {
			t.Errorf("while its run is in progress the drained nodes are %s", got)
		}
		if n := a.Stats().Node.Claimed - claimed; n > 0 {
			t.Errorf("the drained node claims %d tasks", n)
		}
		k.Must(b.RemoveTask(ctx, "of the drained node"))
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

func TestDrain_onAnOwnEngine_isRefused(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		nodes, err := k.Scheduler.Nodes(ctx)
		k.Must(err)
		for _, err := range []error{k.Drain(ctx, nodes[0].Name), k.Undrain(ctx, nodes[0].Name), k.Drain(ctx, "other")} {
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("it returns %v", err)
			}
		}
	})
}

// A slowConfirm is an engine whose confirmations take some time.
type slowConfirm struct {
	engine.Engine
	by *atomic.Int64
}

func (e slowConfirm) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration) ([]bool, int64, error) {
	held, now, err := e.Engine.Confirm(ctx, by, claims, within)
	time.Sleep(time.Duration(e.by.Load()))
	return held, now, err
}

func TestDrain_whileAStartIsConfirmed(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		var by atomic.Int64
		a := k.Join(func(to engine.Engine) engine.Engine { return slowConfirm{to, &by} }, durable.WithLease(10*time.Second)).Start()
		a.Handle("mine", func(context.Context, durable.Run) error { return nil })
		k.After(time.Second)
		by.Store(int64(1500 * time.Millisecond))
		a.Add(durable.Task{Key: "x", Kind: "mine", Delay: 100 * time.Millisecond})
		k.After(150 * time.Millisecond)
		k.Must(k.Nodes[0].Drain(ctx, a.Name))
		at := time.Now()
		k.After(10 * time.Second)
		for _, c := range k.Runs() {
			if late := k.Begin.Add(c.At).Sub(at); late > 2*time.Second {
				t.Errorf("a run starts %v after Drain has returned", late)
			}
		}
	})
}

// The same with the expiry of a task.
func TestExpires_whileAStartIsConfirmed(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		var by atomic.Int64
		a := k.Join(func(to engine.Engine) engine.Engine { return slowConfirm{to, &by} }, durable.WithLease(10*time.Second)).Start()
		k.After(time.Second)
		by.Store(int64(1500 * time.Millisecond))
		a.Add(durable.Task{Key: "x", Kind: "note", Delay: 100 * time.Millisecond, Expires: time.Second})
		k.After(10 * time.Second)
		for _, c := range k.Runs() {
			if c.Late > time.Second {
				t.Errorf("a run that expires after a second starts %v late", c.Late)
			}
		}
	})
}

// A loseRenew is an engine that loses the answers to the reports of a drained node without runs.
type loseRenew struct {
	engine.Engine
	on *atomic.Bool
}

func (e loseRenew) Renew(ctx context.Context, id engine.MemberID, report []byte) ([]engine.Membership, int64, error) {
	m, now, err := e.Engine.Renew(ctx, id, report)
	var r struct {
		Kinds   []string
		Drained bool
	}
	_ = json.Unmarshal(report, &r)
	if id != 0 && r.Drained && len(r.Kinds) == 0 && e.on.Load() {
		<-ctx.Done() // the answer is lost
		return nil, 0, ctx.Err()
	}
	return m, now, err
}

func TestUndrain_whileTheAnswerOfARenewalIsLost(t *testing.T) {
	const most = 6
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		var on atomic.Bool
		on.Store(true)
		a := k.Join(func(to engine.Engine) engine.Engine { return loseRenew{to, &on} }, durable.WithLease(4*time.Second)).Start()
		b := k.Join(nil, durable.WithLease(4*time.Second)).Start()
		var mu sync.Mutex
		running, greatest := 0, 0
		k.Handle("k", func(context.Context, durable.Run) error {
			mu.Lock()
			running++
			greatest = max(greatest, running)
			mu.Unlock()
			time.Sleep(3 * time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		}, durable.WithClusterConcurrency(most))
		k.After(20 * time.Second)
		k.Must(b.Drain(ctx, a.Name))
		// the report without kinds is delivered, and its answer lost
		for range 200 {
			k.After(50 * time.Millisecond)
			all, err := b.Scheduler.Nodes(ctx)
			k.Must(err)
			gone := false
			for _, n := range all {
				gone = gone || n.Name == a.Name && n.Drained && len(n.Kinds) == 0
			}
			if gone {
				break
			}
		}
		for i := range 100 {
			b.Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: 1100 * time.Millisecond})
		}
		k.After(1000 * time.Millisecond)
		k.Must(b.Undrain(ctx, a.Name))
		k.After(5 * time.Second)
		on.Store(false)
		mu.Lock()
		if greatest > most {
			t.Errorf("%d runs at once, where %d are allowed", greatest, most)
		}
		mu.Unlock()
		k.After(2 * time.Minute)
	})
}

// The name of a drained node is forgotten a day after the drain, unless a node has it.
func TestDrain_namesAreForgotten(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		client, _ := connect(k)
		drained := func(name string) bool {
			s, err := durable.New(ctx, k.Engine, durable.WithNodeName(name), durable.WithLogger(testkit.Quiet()))
			k.Must(err, s.Start())
			k.After(3 * time.Second)
			nodes, err := client.Nodes(ctx)
			k.Must(err, s.Shutdown(ctx))
			return nodes[0].Drained
		}
		drain := func(name string) {
			s, err := durable.New(ctx, k.Engine, durable.WithNodeName(name), durable.WithLogger(testkit.Quiet()))
			k.Must(err, client.Drain(ctx, name), s.Shutdown(ctx))
		}
		drain("a")
		k.After(23 * time.Hour)
		drain("b")
		if !drained("a") {
			t.Error("the name is forgotten before a day")
		}
		k.After(2 * time.Hour)
		drain("c")
		if drained("a") || !drained("b") {
			t.Error("a name is kept for longer than a day, or forgotten before")
		}
		k.Must(client.Shutdown(ctx))
	})
}

// A node that shuts down says so while it waits for the ends of its runs, and every node says what limits its kinds have.
func TestNodes_thatLeave_sayWhatIsLeft(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a, b := k.Nodes[0], k.Nodes[1]
		a.Handle("long", func(context.Context, durable.Run) error { time.Sleep(20 * time.Second); return nil },
			durable.WithClusterConcurrency(3), durable.WithRate(100, time.Minute, 1))
		for i := range 3 {
			a.Add(durable.Task{Key: fmt.Sprint(i), Kind: "long", Delay: time.Second})
		}
		k.After(5 * time.Second)
		left := func() (n durable.NodeInfo) {
			nodes, err := b.Scheduler.Nodes(ctx)
			k.Must(err)
			for _, i := range nodes {
				if i.Name == a.Name {
					n = i
				}
			}
			return n
		}
		const limits = "[3 at once on all nodes, 100 per minute on each node]"
		if n := left(); n.Leaving || n.Running != 3 || fmt.Sprint(n.Limits) != limits {
			t.Errorf("before it leaves, %+v", n)
		}
		ended := make(chan error, 1)
		go func() { ended <- a.Scheduler.Shutdown(ctx) }()
		k.After(3 * time.Second)
		if n := left(); !n.Leaving || n.Running != 3 || n.Left <= 0 {
			t.Errorf("while it leaves, %+v", n)
		}
		k.Must(<-ended)
		if n := left(); n.Name != "" {
			t.Errorf("it has left, and is %+v", n)
		}
	})
}
