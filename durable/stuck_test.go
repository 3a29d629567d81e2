// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// What is due waits for a worker wherever it is: all workers of all nodes hang, and each node says so, in its accounts
// and in what the others see of it.
func TestStuck_everyNodeSaysSo(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			const workers, tasks = 8, 90
			inCluster(t, nodes, func(t *testing.T, c *cluster) {
				end := make(chan struct{})
				c.handle("hang", func(*member) durable.Handler {
					return func(context.Context, durable.Run) error { <-end; return nil }
				})
				for i := range tasks {
					c.nodes[i%nodes].add(durable.Task{Key: fmt.Sprint(i), Kind: "hang", Delay: time.Second})
				}
				time.Sleep(41 * time.Second)
				synctest.Wait()
				for _, m := range c.nodes {
					s := m.Stats()
					if s.Running != workers || s.OldestWait < 39*time.Second || s.OldestWait > 41*time.Second ||
						s.SinceStart < 38*time.Second || !near(s.LongestRun, 40*time.Second) {
						t.Errorf("the accounts of %s are %v", m.name, s)
					}
					infos, err := m.Nodes(ctx)
					must(t, err)
					for _, i := range infos {
						busiest := durable.KindRuns{Kind: "hang", Running: workers, Longest: i.Busiest.Longest}
						if i.Running != workers || i.OldestWait < 38*time.Second || i.OldestWait > 41*time.Second ||
							i.SinceStart < 37*time.Second || i.Busiest != busiest || i.Busiest.Longest < 38*time.Second {
							t.Errorf("%s sees %+v", m.name, i)
						}
					}
				}
				close(end)
				time.Sleep(10 * time.Second)
				for _, m := range c.nodes {
					if s := m.Stats(); s.OldestWait != 0 || s.LongestRun != 0 || s.Pending != 0 {
						t.Errorf("when it is over, the accounts of %s are %v", m.name, s)
					}
					infos, err := m.Nodes(ctx)
					must(t, err)
					for _, i := range infos {
						if i.OldestWait != 0 || i.Busiest.Running != 0 {
							t.Errorf("when it is over, %s sees %+v", m.name, i)
						}
					}
				}
			}, durable.WithPoolSize(workers))
		})
	}
}

// Only what this node would run if it had a worker waits for one: not what is paused, what a limit holds back or what
// has no handler here, and no backlog that is worked off by short runs.
func TestStuck_whatDoesNotWaitForAWorker(t *testing.T) {
	overdue := func(kind string, n int) (all []durable.Task) {
		for i := range n {
			all = append(all, durable.Task{Key: fmt.Sprint(kind, i), Kind: kind, Delay: time.Second})
		}
		return all
	}
	for name, c := range map[string]struct {
		workers int
		make    func(t *testing.T, c *cluster, hangs durable.Handler)
		least   time.Duration // of the oldest wait
	}{
		"paused": {2, func(t *testing.T, c *cluster, hangs durable.Handler) {
			c.handle("paused", func(*member) durable.Handler { return hangs })
			must(t, c.nodes[0].PauseKind(ctx, "paused"))
			c.nodes[0].add(overdue("paused", 9)...)
		}, 0},
		"limited": {3, func(t *testing.T, c *cluster, hangs durable.Handler) {
			c.handle("limited", func(*member) durable.Handler { return hangs }, durable.WithClusterConcurrency(1))
			time.Sleep(10 * time.Second) // until they know of each other
			c.nodes[0].add(overdue("limited", 9)...)
		}, 0},
		"unhandled": {2, func(t *testing.T, c *cluster, _ durable.Handler) {
			s, err := durable.Connect(ctx, c.engine, durable.WithLogger(testkit.Quiet()))
			must(t, err)
			must(t, s.Handle("foreign", func(context.Context, durable.Run) error { return nil }))
			must(t, s.AddTask(ctx, overdue("foreign", 9)...))
			must(t, s.Shutdown(ctx))
		}, 0},
		"a worker is free": {3, func(t *testing.T, c *cluster, _ durable.Handler) {
			tx := c.engine.Begin()
			c.nodes[0].add(overdue("note", 1)...)
			must(t, tx.Lock(ctx, "note0"))
			time.AfterFunc(2*time.Minute, tx.Rollback)
		}, 0},
		"due": {2, func(_ *testing.T, c *cluster, _ durable.Handler) { c.nodes[0].add(overdue("note", 9)...) }, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 2, func(t *testing.T, cl *cluster) {
				end := make(chan struct{})
				defer close(end)
				hangs := func(context.Context, durable.Run) error { <-end; return nil }
				cl.handle("hang", func(*member) durable.Handler { return hangs })
				for i := range 4 {
					cl.nodes[i%2].add(durable.Task{Key: fmt.Sprint("hang", i), Kind: "hang"})
				}
				c.make(t, cl, hangs)
				time.Sleep(time.Minute)
				for _, m := range cl.nodes {
					if s := m.Stats(); s.Running < 2 || s.OldestWait < c.least || c.least == 0 && s.OldestWait > 0 {
						t.Errorf("the accounts of %s are %v", m.name, s)
					}
				}
			}, durable.WithPoolSize(c.workers))
		})
	}
}

// After downtime a worker is kept free for what falls due now. If no other ends its run, the rest of the backlog waits
// for a worker. A backlog that is worked off waits for none, and nothing has waited for longer than the scheduler is
// there.
func TestStuck_backlogAfterDowntime(t *testing.T) {
	for kind, least := range map[string]time.Duration{"hang": 25 * time.Second, "brief": 0} {
		t.Run(kind, func(t *testing.T) {
			inOneBubble(t, func(t *testing.T, r *rig) {
				end := make(chan struct{})
				defer close(end)
				handle := func() {
					r.handle("hang", func(context.Context, durable.Run) error { <-end; return nil })
					r.handle("brief", func(context.Context, durable.Run) error { time.Sleep(20 * time.Millisecond); return nil })
				}
				handle()
				for i := range 20_000 {
					r.add(durable.Task{Key: fmt.Sprint(i), Kind: kind, Delay: time.Second})
				}
				left := r.store.Reopen()
				must(t, r.Shutdown(ctx))
				time.Sleep(time.Hour)
				r.store = left
				r.open()
				handle()
				r.start()
				for range 30 {
					time.Sleep(time.Second)
					if s := r.Stats(); s.OldestWait > 31*time.Second || least == 0 && s.OldestWait >= time.Second {
						t.Fatalf("the accounts are %v", s)
					}
				}
				if s := r.Stats(); s.OldestWait < least || s.Running == 0 || s.Pending == 0 {
					t.Errorf("the accounts are %v", s)
				}
			}, durable.WithPoolSize(8))
		})
	}
}

// The same on two nodes that join after the downtime.
func TestStuck_backlogOfNodes(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		end := make(chan struct{})
		hangs := func(context.Context, durable.Run) error { <-end; return nil }
		s, err := durable.Connect(ctx, c.engine, durable.WithLogger(testkit.Quiet()))
		must(t, err)
		must(t, s.Handle("hang", hangs))
		for i := range 200 {
			must(t, s.AddTask(ctx, durable.Task{Key: fmt.Sprint(i), Kind: "hang", Delay: time.Second}))
		}
		must(t, s.Shutdown(ctx))
		time.Sleep(time.Hour)
		defer close(end)
		for range 2 {
			c.join("note", durable.WithPoolSize(8)).handle("hang", hangs)
		}
		time.Sleep(30 * time.Second)
		for _, m := range c.nodes {
			if s := m.Stats(); s.Running == 0 || s.OldestWait < 25*time.Second || s.OldestWait > 31*time.Second {
				t.Errorf("the accounts of %s are %v", m.name, s)
			}
		}
	})
}
