// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// All workers of all nodes hang, so due tasks wait for a worker everywhere. Each node reports it, in its own counters
// and in its reports to the others.
func TestStuck_everyNodeSaysSo(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			const workers, tasks = 8, 90
			kit.OnNodes(t, nodes, func(t *testing.T, k *kit.Kit) {
				end := make(chan struct{})
				k.Handle("hang", func(context.Context, durable.Run) error { <-end; return nil })
				for i := range tasks {
					k.Nodes[i%nodes].Add(durable.Task{Key: fmt.Sprint(i), Kind: "hang", Delay: time.Second})
				}
				k.After(41 * time.Second)
				for _, m := range k.Nodes {
					s := m.Stats()
					if s.Running != workers || s.OldestWait < 39*time.Second || s.OldestWait > 41*time.Second ||
						s.SinceStart < 38*time.Second || !near(s.LongestRun, 40*time.Second) {
						t.Errorf("the accounts of %s are %v", m.Name, s)
					}
					infos, err := m.Nodes(ctx)
					k.Must(err)
					for _, i := range infos {
						busiest := durable.KindRuns{Kind: "hang", Running: workers, Longest: i.Busiest.Longest}
						if i.Running != workers || i.OldestWait < 38*time.Second || i.OldestWait > 41*time.Second ||
							i.SinceStart < 37*time.Second || i.Busiest != busiest || i.Busiest.Longest < 38*time.Second {
							t.Errorf("%s sees %+v", m.Name, i)
						}
					}
				}
				close(end)
				k.After(10 * time.Second)
				for _, m := range k.Nodes {
					if s := m.Stats(); s.OldestWait != 0 || s.LongestRun != 0 || s.Pending != 0 {
						t.Errorf("when it is over, the accounts of %s are %v", m.Name, s)
					}
					infos, err := m.Nodes(ctx)
					k.Must(err)
					for _, i := range infos {
						if i.OldestWait != 0 || i.Busiest.Running != 0 {
							t.Errorf("when it is over, %s sees %+v", m.Name, i)
						}
					}
				}
			}, durable.WithPoolSize(workers))
		})
	}
}

// Only tasks that this node would run if it had a worker count as waiting for one. Paused tasks, tasks held back by a
// limit and tasks without a handler here do not count, nor does a backlog that is worked off by short runs.
func TestStuck_whatDoesNotWaitForAWorker(t *testing.T) {
	overdue := func(kind string, n int) (all []durable.Task) {
		for i := range n {
			all = append(all, durable.Task{Key: fmt.Sprint(kind, i), Kind: kind, Delay: time.Second})
		}
		return all
	}
	for name, c := range map[string]struct {
		workers int
		make    func(t *testing.T, k *kit.Kit, hangs durable.Handler)
		least   time.Duration // of the longest wait
	}{
		"paused": {2, func(t *testing.T, k *kit.Kit, hangs durable.Handler) {
			k.Handle("paused", hangs)
			k.Must(k.Nodes[0].PauseKind(ctx, "paused"))
			k.Nodes[0].Add(overdue("paused", 9)...)
		}, 0},
		"limited": {3, func(t *testing.T, k *kit.Kit, hangs durable.Handler) {
			k.Handle("limited", hangs, durable.WithClusterConcurrency(1))
			k.After(10 * time.Second) // until they know of each other
			k.Nodes[0].Add(overdue("limited", 9)...)
		}, 0},
		"unhandled": {2, func(t *testing.T, k *kit.Kit, _ durable.Handler) {
			s, err := durable.Connect(ctx, k.Engine, durable.WithLogger(testkit.Quiet()))
			k.Must(err)
			k.Must(s.Handle("foreign", func(context.Context, durable.Run) error { return nil }))
			k.Must(s.AddTask(ctx, overdue("foreign", 9)...))
			k.Must(s.Shutdown(ctx))
		}, 0},
		"a worker is free": {3, func(t *testing.T, k *kit.Kit, _ durable.Handler) {
			tx := k.Engine.Begin()
			k.Nodes[0].Add(overdue("note", 1)...)
			k.Must(tx.Lock(ctx, "note0"))
			time.AfterFunc(2*time.Minute, tx.Rollback)
		}, 0},
		"due": {2, func(_ *testing.T, k *kit.Kit, _ durable.Handler) { k.Nodes[0].Add(overdue("note", 9)...) }, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
				end := make(chan struct{})
				defer close(end)
				hangs := func(context.Context, durable.Run) error { <-end; return nil }
				k.Handle("hang", hangs)
				for i := range 4 {
					k.Nodes[i%2].Add(durable.Task{Key: fmt.Sprint("hang", i), Kind: "hang"})
				}
				c.make(t, k, hangs)
				k.After(time.Minute)
				for _, m := range k.Nodes {
					if s := m.Stats(); s.Running < 2 || s.OldestWait < c.least || c.least == 0 && s.OldestWait > 0 {
						t.Errorf("the accounts of %s are %v", m.Name, s)
					}
				}
			}, durable.WithPoolSize(c.workers))
		})
	}
}

// Tasks that could not run because of a pause, or because their node was drained, wait for a worker only from its end on.
func TestStuck_afterAPause_waitsSinceItsEnd(t *testing.T) {
	for name, c := range map[string]struct{ begin, end func(k *kit.Kit) error }{
		"all kinds": {func(k *kit.Kit) error { return k.PauseAll(ctx) }, func(k *kit.Kit) error { return k.ResumeAll(ctx) }},
		"a kind":    {func(k *kit.Kit) error { return k.PauseKind(ctx, "waits") }, func(k *kit.Kit) error { return k.ResumeKind(ctx, "waits") }},
		"drained":   {func(k *kit.Kit) error { return k.Drain(ctx, k.Nodes[0].Name) }, func(k *kit.Kit) error { return k.Undrain(ctx, k.Nodes[0].Name) }},
	} {
		t.Run(name, func(t *testing.T) {
			kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
				end := make(chan struct{})
				defer close(end)
				for _, kind := range []string{"hangs", "waits"} {
					k.Handle(kind, func(context.Context, durable.Run) error { <-end; return nil })
				}
				for i := range 8 {
					k.Add(durable.Task{Key: fmt.Sprint("hangs", i), Kind: "hangs", Delay: time.Second})
				}
				k.After(3 * time.Second)
				k.Must(c.begin(k))
				k.Add(durable.Task{Key: "waits", Kind: "waits", Delay: time.Second})
				k.After(40 * time.Minute)
				if s := k.Stats(); s.OldestWait != 0 {
					t.Errorf("before the end the accounts are %v", s)
				}
				k.Must(c.end(k))
				k.After(10 * time.Second)
				if s := k.Stats(); s.Running != 8 || s.OldestWait < 5*time.Second || s.OldestWait > 11*time.Second {
					t.Errorf("the accounts are %v", s)
				}
			}, durable.WithPoolSize(8))
		})
	}
}

// After downtime a worker is kept free for tasks that fall due now. If no other worker ends its run, the rest of the
// backlog waits for a worker. A backlog that is being worked off does not count as waiting, and no wait is longer than
// the scheduler has existed.
func TestStuck_backlogAfterDowntime(t *testing.T) {
	for kind, least := range map[string]time.Duration{"hang": 25 * time.Second, "brief": 0} {
		t.Run(kind, func(t *testing.T) {
			kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
				end := make(chan struct{})
				defer close(end)
				handle := func() {
					k.Handle("hang", func(context.Context, durable.Run) error { <-end; return nil })
					k.Handle("brief", func(context.Context, durable.Run) error { time.Sleep(20 * time.Millisecond); return nil })
				}
				handle()
				for i := range 20_000 {
					k.Add(durable.Task{Key: fmt.Sprint(i), Kind: kind, Delay: time.Second})
				}
				left := k.KV.Clone()
				k.Kill()
				k.After(time.Hour)
				k.Open(left)
				handle()
				k.Start()
				for range 30 {
					k.After(time.Second)
					if s := k.Stats(); s.OldestWait > 31*time.Second || least == 0 && s.OldestWait >= time.Second {
						t.Fatalf("the accounts are %v", s)
					}
				}
				if s := k.Stats(); s.OldestWait < least || s.Running == 0 || s.Pending == 0 {
					t.Errorf("the accounts are %v", s)
				}
			}, durable.WithPoolSize(8))
		})
	}
}

// The same on two nodes that join after the downtime.
func TestStuck_backlogOfNodes(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		end := make(chan struct{})
		hangs := func(context.Context, durable.Run) error { <-end; return nil }
		s, err := durable.Connect(ctx, k.Engine, durable.WithLogger(testkit.Quiet()))
		k.Must(err)
		k.Must(s.Handle("hang", hangs))
		for i := range 200 {
			k.Must(s.AddTask(ctx, durable.Task{Key: fmt.Sprint(i), Kind: "hang", Delay: time.Second}))
		}
		k.Must(s.Shutdown(ctx))
		k.After(time.Hour)
		defer close(end)
		for range 2 {
			k.Join(nil, durable.WithPoolSize(8)).Start().Handle("hang", hangs)
		}
		k.After(30 * time.Second)
		for _, m := range k.Nodes {
			if s := m.Stats(); s.Running == 0 || s.OldestWait < 25*time.Second || s.OldestWait > 31*time.Second {
				t.Errorf("the accounts of %s are %v", m.Name, s)
			}
		}
	})
}

// All workers of one node are taken again and again by runs that fall due there. Its overdue tasks go to a node that has
// free workers, although no worker of the first is ever stuck.
func TestStuck_overdueTasksOfABusyNode_startOnAnother(t *testing.T) {
	for name, takes := range map[string]time.Duration{"quick": 0, "slow": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
				const overdue = 50
				handle := func(context.Context, durable.Run) error { time.Sleep(takes); return nil }
				options := []durable.Option{durable.WithPoolSize(2), durable.WithLogger(testkit.Quiet())}
				busy := k.Join(nil, options...).Start()
				busy.Handle("busy", func(context.Context, durable.Run) error { time.Sleep(100 * time.Millisecond); return nil })
				busy.Handle("waits", handle)
				busy.Add(durable.Task{Key: "first", Kind: "waits", Delay: time.Second}) // so that its kind is known there
				k.After(3 * time.Second)
				k.Must(busy.PauseKind(ctx, "waits"))
				for i := range overdue {
					busy.Add(durable.Task{Key: fmt.Sprint(i), Kind: "waits", Delay: time.Second})
				}
				for i := range 1600 { // more than two workers can run
					task := durable.Task{Key: fmt.Sprint("busy", i), Kind: "busy", Delay: 3*time.Second + time.Duration(i)*35*time.Millisecond}
					if i%5 == 0 {
						task.Kind = "waits"
					}
					busy.Add(task)
				}
				k.After(10 * time.Second)
				k.Must(busy.ResumeKind(ctx, "waits"))
				k.After(time.Second)
				k.Join(nil, options...).Start().Handle("waits", handle)
				k.After(20 * time.Second)
				left := 0
				for i := range overdue {
					if ok, err := busy.Exist(ctx, fmt.Sprint(i)); ok || err != nil {
						left++
					}
				}
				if left > 0 {
					t.Errorf("%d of %d overdue tasks wait while a node is idle", left, overdue)
				}
			})
		})
	}
}
