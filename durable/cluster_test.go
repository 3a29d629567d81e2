// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/memengine"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

const lease = 2 * time.Second

// A cluster is some nodes on an engine in memory, each over a link of its own, in a bubble of virtual time, and
// what they have run.
type cluster struct {
	t      *testing.T
	engine *memengine.Engine
	nodes  []*member
	begin  time.Time

	mu    sync.Mutex // protects calls
	calls []nodeCall
}

// A member is a node of the cluster.
type member struct {
	*durable.Scheduler
	c    *cluster
	name string
	link *memengine.Link
}

// A nodeCall is one call of a handler.
type nodeCall struct {
	call
	node string
}

// inCluster runs the test on a started cluster whose nodes handle the kind "note", and shuts that down.
func inCluster(t *testing.T, nodes int, test func(t *testing.T, c *cluster), opts ...durable.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, engine: memengine.New(), begin: time.Now()}
		for range nodes {
			c.join("note", opts...)
		}
		defer func() {
			for _, m := range c.nodes {
				m.shutdown()
			}
		}()
		test(t, c)
	})
}

// join adds a node, which is started and handles the kind.
func (c *cluster) join(kind string, opts ...durable.Option) *member {
	c.t.Helper()
	return c.joinOver(func(to engine.Engine) engine.Engine { return to }, kind, opts...)
}

// joinOver adds a node over something in front of its link.
func (c *cluster) joinOver(over func(engine.Engine) engine.Engine, kind string, opts ...durable.Option,
) *member {
	c.t.Helper()
	m := &member{c: c, name: fmt.Sprint("node ", len(c.nodes)+1), link: memengine.NewLink(c.engine)}
	s, err := durable.Join(ctx, over(m.link), append([]durable.Option{durable.WithTick(tick),
		durable.WithLease(lease), durable.WithNodeName(m.name), durable.WithLogger(testkit.Quiet())}, opts...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	m.Scheduler = s
	c.nodes = append(c.nodes, m)
	m.handle(kind, func(context.Context, durable.Run) error { return nil })
	if err := s.Start(); err != nil {
		c.t.Fatal(err)
	}
	return m
}

// handle registers a kind whose runs are noted before f is called.
func (m *member) handle(kind string, f durable.Handler, opts ...durable.KindOption) {
	m.c.t.Helper()
	err := m.Handle(kind, func(ctx context.Context, run durable.Run) error {
		m.c.mu.Lock()
		m.c.calls = append(m.c.calls, nodeCall{call{run, time.Since(m.c.begin)}, m.name})
		m.c.mu.Unlock()
		return f(ctx, run)
	}, opts...)
	if err != nil {
		m.c.t.Fatal(err)
	}
}

// handle registers the kind on every node.
func (c *cluster) handle(kind string, f func(m *member) durable.Handler, opts ...durable.KindOption) {
	c.t.Helper()
	for _, m := range c.nodes {
		m.handle(kind, f(m), opts...)
	}
}

func (m *member) add(tasks ...durable.Task) {
	m.c.t.Helper()
	if err := m.AddTask(ctx, tasks...); err != nil {
		m.c.t.Fatal(err)
	}
}

// shutdown shuts the node down. One that is dead does not get its membership to end.
func (m *member) shutdown() {
	m.c.t.Helper()
	if err := m.Shutdown(ctx); err != nil {
		m.c.t.Errorf("shutdown of %s: %v", m.name, err)
	}
}

// runs returns what was run since the last time it was asked.
func (c *cluster) runs() []nodeCall {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

// ran fails the test unless there was one run since it was asked last, and returns that.
func (c *cluster) ran(key string) nodeCall {
	c.t.Helper()
	calls := c.runs()
	if len(calls) != 1 || calls[0].Key != key {
		c.t.Fatalf("%q is to have run once, and these are the runs: %v", key, briefly(calls))
	}
	return calls[0]
}

func briefly(calls []nodeCall) (all []string) {
	for _, c := range calls {
		all = append(all, fmt.Sprint(c.node, " at ", c.at, " ", c.Token, " fence ", c.Fence))
	}
	return all
}

// one returns the task of the key, and whether there is one.
func one(e engine.Engine, key string) (s engine.Stored, ok bool, err error) {
	found, err := e.Get(ctx, key)
	if err != nil || len(found) == 0 {
		return s, false, err
	}
	return found[0], true, nil
}

// membersOf returns the members of the engine.
func membersOf(e engine.Engine) ([]engine.Membership, error) {
	all, _, err := e.Renew(ctx, 0, nil)
	return all, err
}

// pausesNote is the name of the note that says what is paused.
const pausesNote = "pauses"

// noteAt returns the write of a note that has that revision, or of a new one at 0.
func noteAt(name string, data []byte, revision int64) engine.Write {
	w := engine.Write{Record: engine.Record{Key: name, Data: data}, Note: true, If: engine.IfUnchanged, Revision: revision}
	if revision == 0 {
		w.If = engine.IfAbsent
	}
	return w
}

// collected returns what a walk yields.
func collected(walk iter.Seq2[engine.Stored, error]) (all []engine.Stored, err error) {
	for s, err := range walk {
		if err != nil {
			return all, err
		}
		all = append(all, s)
	}
	return all, nil
}

// yieldAll yields what a walk has yielded.
func yieldAll(all []engine.Stored, err error, yield func(engine.Stored, error) bool) {
	for _, s := range all {
		if !yield(s, nil) {
			return
		}
	}
	if err != nil {
		yield(engine.Stored{}, err)
	}
}

// notesOf returns the notes from the name on.
func notesOf(e engine.Engine, from string) ([]engine.Stored, error) {
	return collected(e.Walk(ctx, engine.Range{Order: engine.Notes, From: from}))
}

func (c *cluster) exists(key string, want bool) {
	c.t.Helper()
	if _, ok, err := one(c.engine, key); ok != want || err != nil {
		c.t.Errorf("the engine has %q: %v, %v, want %v", key, ok, err, want)
	}
}

func (c *cluster) info(key string) durable.Info {
	c.t.Helper()
	stored, ok, err := one(c.engine, key)
	if err != nil || !ok {
		c.t.Fatalf("the engine has %q: %v, %v", key, ok, err)
	}
	i, err := durable.InfoOf(stored.Record)
	if err != nil {
		c.t.Fatal(err)
	}
	return i
}

// The other nodes say which node was taken over, soon after its lease has run out. A node that leaves is not.
func TestNodes_sayWhichWasTakenOver(t *testing.T) {
	inCluster(t, 4, func(t *testing.T, c *cluster) {
		time.Sleep(time.Minute)
		c.nodes[3].shutdown()
		c.nodes[1].link.SetDown(true)
		down := time.Now()
		time.Sleep(lease + sec)
		nodes, err := c.nodes[0].Nodes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var all []durable.Takeover
		for _, n := range nodes {
			all = append(all, n.TakenOver...)
		}
		if len(nodes) != 2 || len(all) != 1 || all[0].Node != "node 2" || all[0].At.Before(down) || time.Since(all[0].At) > sec+sec/2 {
			t.Errorf("the nodes are %+v", nodes)
		}
		c.nodes[1].link.SetDown(false)
		time.Sleep(lease)
	})
}

// A node that has left does not join again while it ends: nothing is there then that others would take over.
func TestShutdown_leavesNoMember(t *testing.T) {
	for name, delay := range map[string]time.Duration{"at once": 0, "slowly": 10 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			for range 100 {
				inCluster(t, 2, func(t *testing.T, c *cluster) {
					c.nodes[1].link.SetFaults(func(string) memengine.Fault { return memengine.Fault{Delay: delay} })
					time.Sleep(sec)
					c.nodes[1].shutdown()
					time.Sleep(sec)
					if all, err := membersOf(c.engine); len(all) != 1 || err != nil {
						t.Fatalf("there are %+v, %v", all, err)
					}
				})
			}
		})
	}
}

// A watched engine calls functions before a Commit, and before the answers to Commit and Confirm leave. None need be
// there.
type watched struct {
	engine.Engine
	commits, committed, confirmed func()
}

func (e watched) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	if e.commits != nil {
		e.commits()
	}
	results, err := e.Engine.Commit(ctx, by, batches)
	if e.committed != nil {
		e.committed()
	}
	return results, err
}

func (e watched) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim) ([]bool, int64, error) {
	held, now, err := e.Engine.Confirm(ctx, by, claims)
	if e.confirmed != nil {
		e.confirmed()
	}
	return held, now, err
}
