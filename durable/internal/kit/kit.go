// SPDX-License-Identifier: MIT

// Package kit helps to test durable schedulers in a bubble of virtual time. A [Kit] opens the schedulers and logs their
// runs. Its methods are the steps of a test: they let time pass and check that exactly the expected tasks have run.
//
//	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
//		k.Add(durable.Task{Key: "a", Kind: "note", Delay: time.Minute})
//		k.After(time.Second)
//		k.RanNothing()
//		k.After(time.Minute)
//		k.Ran("a")
//	})
package kit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// Tick and Lease are the defaults. The options of a test may override them.
const Tick, Lease = 10 * time.Millisecond, 2 * time.Second

// ErrFail is the error returned by runs of kind "fail".
var ErrFail = errors.New("it fails")

// A Kit holds the schedulers of a test and the log of their runs. It embeds its first node, and therefore has that
// node's verbs. Its own methods fail the test instead of returning an error.
type Kit struct {
	*Node
	T      testing.TB
	Begin  time.Time
	Nodes  []*Node           // open schedulers, shut down at the end of the test
	KV     *memory.KV        // what the engines are on
	Engine *enginetest.Locks // the shared engine, for tests that use one
	Opts   []durable.Option  // options of every scheduler

	turn     int
	mu       sync.Mutex // protects the fields below
	calls    []Call
	attempts []durable.Attempt
}

// A Node is one of the schedulers.
type Node struct {
	*durable.Scheduler
	Name string
	Link *enginetest.Link // the node's link to the kit's engine, or nil
	kit  *Kit
}

// A Call is one call of a handler.
type Call struct {
	durable.Run
	At   time.Duration // since the beginning of the test
	Late time.Duration // since the run was due
	Node string
}

func (c Call) String() string {
	return fmt.Sprint(c.Node, " at ", c.At, " ", c.Token, " fence ", c.Fence)
}

// In runs the test in a bubble. No scheduler is open when test is called.
func In(t *testing.T, test func(t *testing.T, k *Kit), opts ...durable.Option) {
	synctest.Test(t, func(t *testing.T) {
		k := &Kit{T: t, Begin: time.Now(), KV: memory.New(), Opts: opts}
		defer func() {
			for _, n := range k.Nodes {
				n.End()
			}
		}()
		test(t, k)
	})
}

// OnOwn runs the test with a started scheduler that has its own engine in memory. The scheduler handles the kinds "note"
// and "fail".
func OnOwn(t *testing.T, test func(t *testing.T, k *Kit), opts ...durable.Option) {
	In(t, func(t *testing.T, k *Kit) {
		k.Open(k.KV).Start()
		test(t, k)
	}, opts...)
}

// OnNodes runs the test with the given number of started nodes. Each node has its own link to a shared in-memory
// engine.
func OnNodes(t *testing.T, nodes int, test func(t *testing.T, k *Kit), opts ...durable.Option) {
	In(t, func(t *testing.T, k *Kit) {
		k.Share()
		for range nodes {
			k.Join(nil).Start()
		}
		test(t, k)
	}, opts...)
}

// Share gives the kit a shared engine on its KV.
func (k *Kit) Share() { k.Engine = enginetest.NewLocks(k.KV.Shared()) }

// Restart simulates a crash and an immediate restart of the shared engine. Transactions are rolled back, and the starts
// are lost.
func (k *Kit) Restart() {
	k.T.Helper()
	k.Engine.RollBack()
	k.KV.Restart()
	k.Must(LoseStarts(k.KV))
}

// LoseStarts removes all confirmed starts, as a crash of the engine may.
func LoseStarts(on engine.KV) error {
	const first, end = "s", "t" // of the keys of their rows, as package kv has them
	var tx engine.Tx
	for e, err := range on.Scan(context.Background(), first, end) {
		if err != nil {
			return err
		}
		tx.Delete = append(tx.Delete, e.Key)
	}
	_, err := on.Commit(context.Background(), tx)
	return err
}

// Own returns an engine on the KV for one scheduler. The KV may be a wrapper.
func Own(on engine.KV) engine.Engine {
	if _, is := on.(engine.Exclusive); !is {
		on = exclusive{on}
	}
	e, err := kv.New(context.Background(), on)
	if err != nil {
		panic(err)
	}
	return e
}

type exclusive struct{ engine.KV }

func (exclusive) Exclusive() {}

// Open adds a scheduler with its own engine on the KV. Except for those listed in except, it handles two kinds: "note",
// whose runs do nothing, and "fail", whose runs fail.
func (k *Kit) Open(on engine.KV, except ...string) *Node {
	s, err := durable.New(context.Background(), Own(on), append([]durable.Option{durable.WithTick(Tick), durable.WithLogger(testkit.Quiet())},
		k.Opts...)...)
	n := k.Use(s, err)
	for kind, err := range map[string]error{"note": nil, "fail": ErrFail} {
		if !slices.Contains(except, kind) {
			n.Handle(kind, func(context.Context, durable.Run) error { return err })
		}
	}
	return n
}

// Join adds a node that handles the kind "note". over, if not nil, may wrap the node's link to the engine.
func (k *Kit) Join(over func(engine.Engine) engine.Engine, opts ...durable.Option) *Node {
	link := enginetest.NewLink(k.Engine)
	if over == nil {
		over = func(to engine.Engine) engine.Engine { return to }
	}
	s, err := durable.New(context.Background(), over(link), slices.Concat([]durable.Option{durable.WithTick(Tick), durable.WithLease(Lease),
		durable.WithNodeName(fmt.Sprint("node ", len(k.Nodes)+1)), durable.WithLogger(testkit.Quiet())}, k.Opts, opts)...)
	n := k.Use(s, err)
	n.Link = link
	n.Handle("note", func(context.Context, durable.Run) error { return nil })
	return n
}

// Use adds a scheduler that the caller has opened.
func (k *Kit) Use(s *durable.Scheduler, err error) *Node {
	k.T.Helper()
	k.Must(err)
	n := &Node{Scheduler: s, Name: fmt.Sprint("node ", len(k.Nodes)+1), kit: k}
	k.Nodes = append(k.Nodes, n)
	k.Node = k.Nodes[0]
	return n
}

// On returns the next node, in rotation.
func (k *Kit) On() *Node {
	k.turn++
	return k.Nodes[k.turn%len(k.Nodes)]
}

// Crash ends the scheduler, and opens another one on the data committed before, without starting it. The results of runs
// in progress are lost.
func (k *Kit) Crash(except ...string) {
	left := k.KV.Clone()
	k.Kill()
	k.KV = left
	k.Open(left, except...)
}

// Start starts the node, and returns it.
func (n *Node) Start() *Node {
	n.kit.Must(n.Scheduler.Start())
	return n
}

// End shuts the node down.
func (n *Node) End() {
	if err := n.Shutdown(context.Background()); err != nil {
		n.kit.T.Errorf("shutdown of %s: %v", n.Name, err)
	}
}

// Kill shuts the node down without waiting for its runs, and removes it from the kit.
func (n *Node) Kill() {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.Shutdown(gone) // fails if jobs are still running
	n.kit.Nodes = slices.DeleteFunc(n.kit.Nodes, func(other *Node) bool { return other == n })
}

// Handle registers a kind on every node.
func (k *Kit) Handle(kind string, h durable.Handler, opts ...durable.KindOption) {
	k.T.Helper()
	for _, n := range k.Nodes {
		n.Handle(kind, h, opts...)
	}
}

// Handle registers a kind on this node. Each run is logged before h is called.
func (n *Node) Handle(kind string, h durable.Handler, opts ...durable.KindOption) {
	k := n.kit
	k.T.Helper()
	k.Must(n.Scheduler.Handle(kind, func(ctx context.Context, run durable.Run) error {
		k.mu.Lock()
		k.calls = append(k.calls, Call{run, time.Since(k.Begin), time.Since(run.Due), n.Name})
		k.mu.Unlock()
		return h(ctx, run)
	}, opts...))
}

// Add adds the tasks on the node.
func (n *Node) Add(tasks ...durable.Task) {
	n.kit.T.Helper()
	n.kit.Must(n.AddTask(context.Background(), tasks...))
}

// After lets d pass, and waits until all goroutines are blocked.
func (k *Kit) After(d time.Duration) { testkit.Settle(d) }

// Must fails the test if one of the errors is not nil.
func (k *Kit) Must(errs ...error) {
	k.T.Helper()
	if err := errors.Join(errs...); err != nil {
		k.T.Fatal(err)
	}
}

// Runs returns the runs since the log was last read, in start order.
func (k *Kit) Runs() []Call {
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	calls := k.calls
	k.calls = nil
	return calls
}

// Observe records an attempt. It is for [durable.WithObserver].
func (k *Kit) Observe(a durable.Attempt) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.attempts = append(k.attempts, a)
}

// Attempts returns the recorded attempts, in the order of the calls of Observe.
func (k *Kit) Attempts() []durable.Attempt {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.attempts)
}

// RunsAfter lets d pass, and returns the runs since the log was last read.
func (k *Kit) RunsAfter(d time.Duration) []Call {
	k.After(d)
	return k.Runs()
}

// Ran fails the test unless exactly these keys have run since the log was last read, in any order. A key that is
// expected to have run twice is listed twice. Ran returns the runs in start order.
func (k *Kit) Ran(keys ...string) []Call {
	k.T.Helper()
	calls, ran := k.Runs(), []string{}
	for _, c := range calls {
		ran = append(ran, c.Key)
	}
	slices.Sort(ran)
	if !slices.Equal(ran, slices.Sorted(slices.Values(keys))) {
		k.T.Fatalf("%q should have run, and these are the runs: %v", keys, calls)
	}
	return calls
}

// RanNothing fails the test if any task has run since the log was last read.
func (k *Kit) RanNothing() {
	k.T.Helper()
	k.Ran()
}

// Info returns the task with the key. It fails the test if there is no such task.
func (k *Kit) Info(key string) durable.Info {
	k.T.Helper()
	i, ok := k.look(key)
	if !ok {
		k.T.Fatalf("there is no task %q", key)
	}
	return i
}

// Gone fails the test if a task with the key exists.
func (k *Kit) Gone(key string) {
	k.T.Helper()
	if i, ok := k.look(key); ok {
		k.T.Errorf("the task %q is to be gone: %+v", key, i)
	}
}

// look reads the task with the given key. If the kit has an engine, look reads from it directly, so that injected link
// faults do not affect the result.
func (k *Kit) look(key string) (i durable.Info, ok bool) {
	k.T.Helper()
	if k.Engine == nil {
		i, ok, err := k.On().Get(context.Background(), key)
		k.Must(err)
		return i, ok
	}
	found, err := k.Engine.Get(context.Background(), key)
	if ok = len(found) > 0; ok {
		i, err = durable.InfoOf(found[0].Record)
	}
	k.Must(err)
	return i, ok
}
