// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/author"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The promises of a cluster, as named in the table in README.md.

// D1. The engine's clock decides which tasks are due, whatever it shows, whenever it is set, and however long answers
// take.
func TestD1_neverEarly_byTheEnginesClock(t *testing.T) {
	for name, c := range map[string]struct {
		before, meanwhile time.Duration // by which the engine's clock is set
		question, answer  time.Duration // on the way
		late              time.Duration
	}{
		"the same clock": {late: 2 * tick},
		"an hour ahead":  {before: time.Hour, late: 2 * tick},
		"an hour behind": {before: -time.Hour, late: 2 * tick},
		"set ahead":      {meanwhile: 3 * time.Second},
		"set back":       {meanwhile: -3 * time.Second},
		"slow questions": {question: 30 * time.Millisecond, late: 200 * time.Millisecond},
		"slow answers":   {answer: 30 * time.Millisecond, late: 200 * time.Millisecond},
		"slow, and set back": {
			question: 30 * time.Millisecond, answer: 30 * time.Millisecond, meanwhile: -700 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
				k.KV.Step(c.before)
				k.Join(func(to engine.Engine) engine.Engine { return late{to, c.answer} }).Start().Link.SetFaults(
					func(string) enginetest.Fault { return enginetest.Fault{Delay: c.question} })
				k.Join(nil).Start() // over a link without delays
				for i, d := range []time.Duration{50 * time.Millisecond, time.Second, 4 * time.Second, 10 * time.Second} {
					due := time.Since(k.Begin) + d
					k.Nodes[i%2].Add(durable.Task{Key: "k", Kind: "note", Delay: d})
					if d > 2*time.Second {
						k.After(d - 2*time.Second/3) // it is claimed by now
						k.KV.Step(c.meanwhile)
						due -= c.meanwhile
					}
					k.After(d + 20*time.Second)
					if ran := k.Ran("k")[0]; ran.At < due || ran.At > due+c.late && c.meanwhile == 0 {
						t.Errorf("due at %v, and %s", due, []kit.Call{ran})
					}
				}
			})
		})
	}
}

// A late engine delays its answers.
type late struct {
	engine.Engine
	by time.Duration
}

func (e late) Join(ctx context.Context, name string, lease time.Duration) (engine.MemberID, int64, error) {
	defer time.Sleep(e.by)
	return e.Engine.Join(ctx, name, lease)
}

func (e late) Renew(ctx context.Context, id engine.MemberID, report []byte) ([]engine.Membership, int64, error) {
	if id != 0 {
		defer time.Sleep(e.by)
	}
	return e.Engine.Renew(ctx, id, report)
}

func (e late) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	if !r.Fair {
		defer time.Sleep(e.by)
	}
	return e.Engine.Claim(ctx, r)
}

func (e late) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration) ([]bool, int64, error) {
	defer time.Sleep(e.by)
	return e.Engine.Confirm(ctx, by, claims, within)
}

// D2. A task that is removed, replaced or moved on one node does not start on another node, even if that has claimed it
// and it waits there in the wheel or for a worker.
func TestD2_removed_isRemoved_onEveryNode(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a, b := k.Nodes[0], k.Nodes[1]
		k.Handle("busy", func(context.Context, durable.Run) error { time.Sleep(200 * time.Millisecond); return nil })
		in := func(d time.Duration, kind string, keys ...string) {
			for _, key := range keys {
				a.Add(durable.Task{Key: key, Kind: kind, Delay: d})
			}
		}
		undo := func() {
			t.Helper()
			set := b.SetTask(ctx, durable.Task{Key: "replaced", Kind: "note", Delay: time.Hour})
			if err := errors.Join(b.RemoveTask(ctx, "removed"), b.Reschedule(ctx, "moved", time.Hour), set); err != nil {
				t.Error(err)
			}
		}
		in(500*time.Millisecond, "note", "removed", "moved", "replaced", "ran")
		k.After(400 * time.Millisecond) // they are in the wheel of node 1
		undo()
		k.After(400 * time.Millisecond)
		k.Ran("ran")
		if err := errors.Join(b.RemoveTask(ctx, "moved"), b.RemoveTask(ctx, "replaced")); err != nil {
			t.Error(err)
		}
		in(100*time.Millisecond, "busy", "busy")
		in(150*time.Millisecond, "note", "removed", "moved", "replaced", "ran")
		k.After(200 * time.Millisecond) // they wait for the worker of node 1
		undo()
		calls := k.RunsAfter(400 * time.Millisecond)
		if len(calls) != 2 || calls[0].Key != "busy" || calls[1].Key != "ran" || calls[1].Node != a.Name {
			t.Errorf("these are the runs: %v", calls)
		}
	}, durable.WithPoolSize(1))
}

// D2. A removal is seen even if it happens while the answer to a confirmation is on its way, if the answer takes so long that the
// run can no longer begin.
func TestD2_removed_whileAConfirmationTakesLong(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		b, confirmed := k.Nodes[0], 0
		a := k.Join(func(to engine.Engine) engine.Engine {
			return watched{Engine: to, confirmed: func() {
				if confirmed++; confirmed > 1 {
					return
				}
				if err := b.RemoveTask(ctx, "k"); err != nil {
					t.Error(err)
				}
				time.Sleep(50 * time.Millisecond)
			}}
		}).Start()
		a.Add(durable.Task{Key: "k", Kind: "note", Delay: 2 * tick}) // too soon to be confirmed ahead
		if calls := k.RunsAfter(sec); len(calls) > 0 || confirmed < 2 {
			t.Errorf("after %d confirmations it has run: %v", confirmed, calls)
		}
	})
}

// D2, D4. If a run is confirmed on one node while another node removes, replaces, moves or pauses its task, the verb waits
// until the run can no longer begin. No run of the new state begins before that. Where nothing is confirmed, nothing waits.
func TestD2_verbOfATaskThatMayBegin_waits(t *testing.T) {
	const within = 100 * time.Millisecond
	for name, verb := range map[string]func(n *kit.Node) error{
		"remove": func(n *kit.Node) error { return n.RemoveTask(ctx, "k") },
		"move":   func(n *kit.Node) error { return n.Reschedule(ctx, "k", 0) },
		"pause":  func(n *kit.Node) error { return n.Pause(ctx, "k") },
		"set":    func(n *kit.Node) error { return n.SetTask(ctx, durable.Task{Key: "k", Kind: "note", Delay: tick}) },
		"set, burst": func(n *kit.Node) error {
			return n.SetTask(ctx, durable.Task{Key: "k", Kind: "note", MaxDelay: tick, Delay: tick})
		},
		"all of them": func(n *kit.Node) error { _, err := n.RemovePrefix(ctx, "k"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
				b := k.Nodes[0]
				var confirmed, returned time.Duration
				since := func() time.Duration { return time.Since(k.Begin) }
				k.Join(func(to engine.Engine) engine.Engine {
					return watched{Engine: to, confirmed: func() {
						if confirmed != 0 {
							return
						}
						confirmed = since()
						go func() {
							if err := verb(b); err != nil {
								t.Error(err)
							}
							returned = since()
						}()
						time.Sleep(60 * time.Millisecond) // the answer is on its way
					}}
				}).Start().Add(durable.Task{Key: "k", Kind: "note", Delay: 2 * tick}) // too soon to be confirmed ahead
				calls := k.RunsAfter(sec)
				if len(calls) == 0 || calls[0].At != confirmed+60*time.Millisecond || returned != confirmed+within {
					t.Errorf("the run was confirmed at %v, and the verb returned at %v; runs: %v", confirmed, returned, calls)
				}
				again := strings.HasPrefix(name, "move") || strings.HasPrefix(name, "set")
				if len(calls) > 1 != again || again && calls[1].At < confirmed+within {
					t.Errorf("the runs are %v, and that of the old state could begin until %v", calls, confirmed+within)
				}
				at := since()
				k.Nodes[1].Add(durable.Task{Key: "k2", Kind: "note", Delay: hour})
				k.Must(b.RemoveTask(ctx, "k2"))
				if since() != at {
					t.Errorf("the removal of a task that was not confirmed takes %v", since()-at)
				}
			})
		})
	}
}

// D2. A Pause of a task that another call has just paused waits as that one does.
func TestD2_secondPause_waits(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		b := k.Nodes[0]
		var confirmed, returned time.Duration
		k.Join(func(to engine.Engine) engine.Engine {
			return watched{Engine: to, confirmed: func() {
				confirmed = time.Since(k.Begin)
				go func() {
					brief, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
					defer cancel()
					if err := b.Pause(brief, "k"); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("the first Pause returns %v", err)
					}
					k.Must(b.Pause(ctx, "k"))
					returned = time.Since(k.Begin)
				}()
				time.Sleep(60 * time.Millisecond) // the answer is on its way
			}}
		}).Start().Add(durable.Task{Key: "k", Kind: "note", Delay: 2 * tick}) // too soon to be confirmed ahead
		if calls := k.RunsAfter(sec); len(calls) != 1 || returned < calls[0].At || returned > confirmed+110*time.Millisecond {
			t.Errorf("the run was confirmed at %v, and the second Pause returned at %v; runs: %v", confirmed, returned, calls)
		}
	})
}

// D2. A task that a node removes does not start on that node, even if the engine has just confirmed its start.
func TestD2_removed_afterTheConfirmation_onTheSameNode(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		var a *kit.Node
		a = k.Join(func(to engine.Engine) engine.Engine {
			return watched{Engine: to, confirmed: func() {
				if err := a.RemoveTask(ctx, "k"); err != nil {
					t.Error(err)
				}
			}}
		}).Start()
		a.Add(durable.Task{Key: "k", Kind: "note", Delay: sec / 10})
		k.After(sec)
		k.RanNothing()
	})
}

// D2. Tasks due at one tick are confirmed in few calls, but each start separately: a task removed on another node does
// not start with the others. Without the separate confirmation it does.
func TestD2_startsThatAreConfirmedTogether(t *testing.T) {
	for _, fault := range []string{"", groupByOne} {
		kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
			const tasks = 20
			var calls atomic.Int64
			a := k.Join(func(to engine.Engine) engine.Engine {
				return &suspended{flawed{to, fault}, func() { calls.Add(1) }}
			}, durable.WithPoolSize(tasks)).Start()
			a.Link.SetFaults(func(string) enginetest.Fault { return enginetest.Fault{Delay: 2 * time.Millisecond} })
			b := k.Join(nil) // it starts nothing
			var all []durable.Task
			for i := range tasks {
				all = append(all, durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: 500 * time.Millisecond})
			}
			a.Add(all...)
			k.After(400 * time.Millisecond)
			for i := range tasks / 2 {
				k.Must(b.RemoveTask(ctx, fmt.Sprint(2*i)))
			}
			calls.Store(0)
			if ran := len(k.RunsAfter(200 * time.Millisecond)); (ran != tasks/2) != (fault != "") {
				t.Errorf("%q: %d have run, and %d were left", fault, ran, tasks/2)
			}
			if n := calls.Load(); n > tasks/2 {
				t.Errorf("%d starts were confirmed in %d calls", tasks, n)
			}
		})
	}
}

// D3. The tasks of a dead node run elsewhere within a lease and half a second, and the tasks of a node that is shut
// down within 100 ms. This holds for due, running and claimed tasks.
func TestD3_aDeadNodesTasks_runElsewhere(t *testing.T) {
	for name, dies := range map[string]bool{"killed": true, "shut down": false} {
		t.Run(name, func(t *testing.T) {
			kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
				a, b := k.Nodes[0], k.Nodes[1]
				stuck := make(chan struct{})
				handleEach(k, "long", func(m *kit.Node) durable.Handler {
					return func(context.Context, durable.Run) error {
						if m == a {
							<-stuck
						}
						return nil
					}
				})
				a.Add(durable.Task{Key: "running", Kind: "long", Delay: time.Millisecond},
					durable.Task{Key: "claimed", Kind: "note", Delay: time.Second})
				k.After(700 * time.Millisecond)
				if ran := k.Ran("running")[0]; ran.Node != a.Name {
					t.Fatalf("it runs on %s", ran.Node)
				}
				died := time.Since(k.Begin)
				within := lease + time.Second/2
				if dies {
					a.Link.SetDown(true)
				} else {
					within = 300*time.Millisecond + 100*time.Millisecond // when it is due
					a.Kill()
				}
				k.After(within + tick)
				at := map[string]time.Duration{}
				for _, call := range k.Runs() {
					if call.Node != b.Name || call.At > died+within {
						t.Errorf("after the end of node 1 at %v: %v", died, []kit.Call{call})
					}
					at[call.Key] = call.At
				}
				if _, ok := at["claimed"]; !ok {
					t.Errorf("these have run: %v", at)
				}
				if _, ok := at["running"]; !ok {
					t.Errorf("these have run: %v", at)
				}
				close(stuck)
			})
		})
	}
}

// D3. A task that is overdue when its dead node is reaped is claimed at once, whenever the other node last looked for
// overdue tasks, and whenever it last renewed its lease, which may be long compared with the other waits.
func TestD3_whatIsOverdueOfADeadNode_runsInTime(t *testing.T) {
	for _, of := range []struct{ lease, each, before time.Duration }{{lease, sec / 10, sec}, {20 * sec, sec, 5 * sec}} {
		for after := time.Duration(0); after < of.before; after += of.each {
			kit.In(t, func(t *testing.T, k *kit.Kit) {
				k.Share()
				a := k.Join(nil, durable.WithLease(of.lease)).Start()
				k.After(after)
				b := k.Join(nil, durable.WithLease(of.lease)).Start()
				k.After(2*of.lease - after + tick) // node 1 has just renewed its lease
				died := time.Since(k.Begin)
				a.Add(durable.Task{Key: "k", Kind: "note", Delay: sec / 10})
				a.Link.SetDown(true)
				k.After(2 * of.lease)
				if ran := k.Ran("k")[0]; ran.Node != b.Name || ran.At > died+of.lease+sec/2 {
					t.Errorf("with a lease of %v, node 1 died at %v; node 2, %v younger: %v", of.lease, died, after, []kit.Call{ran})
				}
			})
		}
	}
}

// D3. A node that shuts down tries again to leave if the first call fails, so that its tasks run elsewhere at once.
func TestD3_shutdownWhoseLeaveFails_triesAgain(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a, b := k.Nodes[0], k.Nodes[1]
		k.After(lease)
		due := time.Since(k.Begin) + 300*time.Millisecond
		a.Add(durable.Task{Key: "k", Kind: "note", Delay: 300 * time.Millisecond})
		a.Link.Next("Leave", enginetest.Fault{Fail: true})
		a.End()
		if all, err := membersOf(k.Engine); len(all) != 1 || err != nil {
			t.Errorf("after Shutdown there are %+v, %v", all, err)
		}
		k.After(2 * lease)
		if ran := k.Ran("k")[0]; ran.Node != b.Name || ran.At > due+100*time.Millisecond {
			t.Errorf("due at %v: %v", due, []kit.Call{ran})
		}
	})
}

// D4. A node that is cut off starts nothing after its lease. Its runs are cancelled, and their ends are refused. The
// run that takes over has a greater fence.
func TestD4_aZombie_startsNothing_andEndsNothing(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a, b := k.Nodes[0], k.Nodes[1]
		release := make(chan struct{})
		var cause atomic.Value
		handleEach(k, "long", func(m *kit.Node) durable.Handler {
			return func(ctx context.Context, _ durable.Run) error {
				if m == a {
					<-ctx.Done()
					cause.Store(context.Cause(ctx))
				}
				<-release
				return nil
			}
		})
		a.Add(durable.Task{Key: "running", Kind: "long", Delay: time.Millisecond})
		k.After(time.Second)
		first := k.Ran("running")[0]
		a.Add(durable.Task{Key: "claimed", Kind: "note", Delay: 900 * time.Millisecond})
		a.Link.SetDown(true)
		k.After(lease - tick)
		if err := cause.Load(); err != nil {
			t.Errorf("before the lease has run out the run is cancelled: %v", err)
		}
		k.After(2 * tick)
		if err, _ := cause.Load().(error); !errors.Is(err, durable.ErrFenced) {
			t.Errorf("when the lease has run out the run is cancelled with %v", err)
		}
		calls := k.RunsAfter(time.Second)
		if len(calls) != 2 {
			t.Fatalf("these are the runs: %v", calls)
		}
		for _, call := range calls {
			if call.Node != b.Name || call.Key == "running" && (call.Fence <= first.Fence || call.Token != first.Token) {
				t.Errorf("after %s: %s", []kit.Call{first}, []kit.Call{call})
			}
		}
		a.Link.SetDown(false)
		k.After(lease)        // node 1 is back
		release <- struct{}{} // one of the two, and the other does not end
		synctest.Wait()
		release <- struct{}{}
		k.After(lease)
		k.Gone("running")
		if s := b.Stats().Succeeded + a.Stats().Succeeded; s != 2 {
			t.Errorf("%d runs were acknowledged, want that of each task", s)
		}
		if s := a.Stats().Succeeded; s != 0 {
			t.Errorf("%d of them were the zombie's", s)
		}
	})
}

// While a machine is suspended its own clock stops, and the engine's does not. So on waking the node still believes in
// its lease. It enters the runs confirmed just before, makes no decision, and finds out within half a lease.
func TestD4_aSuspendedNode_entersOnlyWhatWasConfirmed(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		takenOver := make(chan []engine.Stored, 1)
		s := &suspended{meanwhile: sync.OnceFunc(func() {
			k.KV.Step(2 * lease)
			other, now, err := k.Engine.Join(ctx, "other", lease)
			k.Must(err)
			if names, err := k.Engine.Reap(ctx); err != nil || fmt.Sprint(names) != "[node 1]" {
				t.Errorf("%q are reaped, %v", names, err)
			}
			c, err := k.Engine.Claim(ctx, engine.ClaimRequest{By: other, Kinds: []string{"long", "note"}, Until: now, Most: 10,
				Readable: math.MaxUint8})
			k.Must(err)
			takenOver <- c.Tasks
		})}
		a := k.Join(func(to engine.Engine) engine.Engine { s.Engine = to; return s })
		causes := make(chan error, 1)
		k.Handle("long", func(ctx context.Context, _ durable.Run) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil
		})
		a.Start()
		k.After(lease)
		const delay = 650 * time.Millisecond // no renewal and no claim coincides with the confirmation
		a.Add(durable.Task{Key: "confirmed", Kind: "long", Delay: delay},
			durable.Task{Key: "claimed", Kind: "note", Delay: 900 * time.Millisecond})
		k.After(delay + 2*tick + lease/2)
		ran, taken := k.Ran("confirmed"), <-takenOver
		if len(taken) != 2 || taken[0].Key != "confirmed" || ran[0].Fence >= taken[0].Revision {
			t.Errorf("another has taken over %+v, and these are the runs: %v", taken, ran)
		}
		select {
		case err := <-causes:
			if !errors.Is(err, durable.ErrFenced) {
				t.Errorf("the run is cancelled with %v", err)
			}
		default:
			t.Error("the run is not cancelled")
		}
		k.After(lease / 4)
		k.RanNothing()
		if s := a.Stats(); s.Succeeded != 0 || s.Node.EndsRefused != 1 {
			t.Errorf("%d runs were acknowledged and %d refused, want the one to be refused", s.Succeeded, s.Node.EndsRefused)
		}
	})
}

// A suspended engine belongs to a node whose machine is suspended when it gets the answer to a confirmation.
type suspended struct {
	engine.Engine
	meanwhile func()
}

func (s *suspended) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration) ([]bool, int64, error) {
	held, now, err := s.Engine.Confirm(ctx, by, claims, within)
	s.meanwhile()
	return held, now, err
}

// D5. All attempts of a run have the same token, and an attempt whose node dies counts: a task that kills every node
// that runs it is parked after its attempts.
func TestD5_attempts_areCountedAsTheyStart(t *testing.T) {
	const attempts = 3
	kit.OnNodes(t, attempts+1, func(t *testing.T, k *kit.Kit) {
		handleEach(k, "deadly", func(m *kit.Node) durable.Handler {
			return func(ctx context.Context, _ durable.Run) error {
				m.Link.SetDown(true)
				<-ctx.Done()
				return ctx.Err()
			}
		}, durable.WithRetry(attempts, time.Millisecond, time.Millisecond))
		k.Nodes[0].Add(durable.Task{Key: "k", Kind: "deadly", Delay: time.Second})
		calls := k.RunsAfter(time.Second + (attempts+1)*(lease+time.Second))
		if len(calls) != attempts {
			t.Fatalf("these are the runs: %v", calls)
		}
		for i, call := range calls {
			if call.Attempt != i+1 || call.Token != calls[0].Token || i > 0 && call.Fence <= calls[i-1].Fence {
				t.Errorf("attempt %d: %v", call.Attempt, calls)
			}
		}
		if info := k.Info("k"); info.State != durable.Parked || info.Attempts != attempts || info.Failure == "" {
			t.Errorf("the task is %+v", info)
		}
		for _, m := range k.Nodes {
			m.Link.SetDown(false)
		}
		if err := k.Nodes[0].Reschedule(ctx, "k", time.Hour); err != nil {
			t.Error(err)
		}
		if info := k.Info("k"); info.State == durable.Parked || info.Attempts != 0 {
			t.Errorf("after a Reschedule the task is %+v", info)
		}
	})
}

// D5. A start whose confirmation is lost, comes late or is refused by a lock is confirmed again, and counts once: a
// task is not parked before it has had all the attempts of its kind.
func TestD5_aStartThatIsConfirmedAgain_countsOnce(t *testing.T) {
	const attempts = 2
	kit.OnNodes(t, attempts+1, func(t *testing.T, k *kit.Kit) {
		lose := enginetest.Fault{Lose: true}
		late := enginetest.Fault{Delay: 150 * time.Millisecond}
		handleEach(k, "deadly", func(m *kit.Node) durable.Handler {
			return func(ctx context.Context, _ durable.Run) error {
				m.Link.SetDown(true)
				<-ctx.Done()
				return ctx.Err()
			}
		}, durable.WithRetry(attempts, time.Millisecond, time.Millisecond))
		for _, m := range k.Nodes {
			m.Link.Next("Confirm", lose, lose, late)
		}
		k.Nodes[0].Add(durable.Task{Key: "k", Kind: "deadly", Delay: time.Second})
		if calls := k.RunsAfter(time.Second + (attempts+1)*(lease+2*time.Second)); len(calls) != attempts {
			t.Errorf("these are the runs: %v", calls)
		}
		if info := k.Info("k"); info.State != durable.Parked || info.Attempts != attempts {
			t.Errorf("the task is %+v", info)
		}
		for _, m := range k.Nodes {
			m.Link.SetDown(false)
		}
	})
}

// A task with one attempt still runs if its confirmation is lost and then refused because of a lock.
func TestD5_aStartThatIsRefusedAfterALostAnswer_isNotAnAttempt(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		a.Handle("once", func(context.Context, durable.Run) error { return nil },
			durable.WithRetry(1, time.Second, time.Second))
		lose := enginetest.Fault{Lose: true}
		a.Link.Next("Confirm", lose, lose) // ahead, and when it is due
		a.Add(durable.Task{Key: "k", Kind: "once", Delay: 500 * time.Millisecond})
		k.After(550 * time.Millisecond) // it is confirmed, and the node will ask again
		tx := k.Engine.Begin()
		k.Must(tx.Lock(ctx, "k"))
		k.After(5 * time.Second)
		k.RanNothing()
		tx.Rollback()
		k.After(time.Second)
		if call := k.Ran("k")[0]; call.Attempt != 1 {
			t.Errorf("the first call is attempt %d", call.Attempt)
		}
		k.Gone("k")
	})
}

// D6. A lost answer loses nothing, and a node recognizes the tasks that it has added itself.
func TestD6_lostAnswers(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		task := func(key string) durable.Task { return durable.Task{Key: key, Kind: "note", Delay: time.Second} }
		lose := func() { a.Link.Next("Commit", enginetest.Fault{Lose: true}) }
		lose()
		a.Add(task("added"), task("too"))
		lose()
		if err := a.SetTask(ctx, task("set")); err != nil {
			t.Error(err)
		}
		a.Add(durable.Task{Key: "moved", Kind: "note", Delay: time.Hour})
		lose()
		if err := a.Reschedule(ctx, "moved", time.Second); err != nil {
			t.Error(err)
		}
		if err := k.Nodes[1].AddTask(ctx, task("added")); !errors.Is(err, durable.ErrDuplicateTaskKey) {
			t.Errorf("a second add: %v", err)
		}
		a.Add(durable.Task{Key: "removed", Kind: "note", Delay: time.Hour})
		lose()
		if err := a.RemoveTask(ctx, "removed"); !errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("a removal whose answer is lost: %v", err)
		}
		a.Link.Next("Commit", enginetest.Fault{Fail: true})
		err := a.AddTask(ctx, task("lost"))
		if !errors.Is(err, durable.ErrUnavailable) || !errors.Is(err, enginetest.ErrFault) {
			t.Errorf("an add that fails: %v", err)
		}
		k.Gone("lost")
		k.Gone("removed")
		k.After(3 * time.Second)
		ran := map[string]int{}
		for _, call := range k.Runs() {
			ran[call.Key]++
		}
		if fmt.Sprint(ran) != "map[added:1 moved:1 set:1 too:1]" {
			t.Errorf("these have run: %v", ran)
		}
	})
}

// D6. Every task runs and ends even if claims, confirmations and ends of runs fail, or their answers are lost.
func TestD6_lostAnswers_ofTheNodesOwnCalls(t *testing.T) {
	methods := []string{"Claim", "Confirm", "Commit", "Renew", "Walk Held", "Reap"}
	for i := range 2 * len(methods) {
		method, lost := methods[i/2], i%2 == 0
		t.Run(fmt.Sprint(method, ", answer lost: ", lost), func(t *testing.T) {
			kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
				const tasks = 20
				for i := range tasks {
					k.Nodes[i%2].Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: 2*time.Second + time.Duration(i)})
				}
				for _, m := range k.Nodes {
					calls := 0
					m.Link.SetFaults(func(of string) enginetest.Fault {
						if of == method {
							calls++
						}
						faulty := of == method && calls%3 != 0
						return enginetest.Fault{Lose: faulty && lost, Fail: faulty && !lost}
					})
				}
				k.After(20 * time.Second)
				ran := map[string]bool{}
				for _, call := range k.Runs() {
					ran[call.Key] = true
				}
				if kinds, err := engine.Count(ctx, k.Engine); len(ran) != tasks || len(kinds) != 0 || err != nil {
					t.Errorf("%d tasks have run, and left are %v", len(ran), kinds)
				}
				for _, m := range k.Nodes {
					m.Link.SetDown(false)
				}
			})
		})
	}
}

// D6. A node does not mistake a task that another node has added at the same instant for its own.
func TestD6_anotherNodesTaskOfTheSameInstant_isNotItsOwn(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a, b := k.Nodes[0], k.Nodes[1]
		task := durable.Task{Key: "k", Kind: "note", Delay: hour}
		b.Add(task)
		a.Link.Next("Commit", enginetest.Fault{Fail: true}) // and a does not know that it has had no effect
		if err := a.AddTask(ctx, task); !errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("the error is %v", err)
		}
	})
}

// D7. The adds, removals, moves and completions of a user's transaction take effect with it or not at all, even if it
// is committed long after the task was due.
func TestD7_inTheUsersTransaction(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		write := func(task durable.Task) engine.Write {
			w, err := author.Add(task, time.Now().UnixNano())
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		must := func(unmet []string, err error) {
			t.Helper()
			if len(unmet) > 0 || err != nil {
				t.Fatal(unmet, err)
			}
		}
		late, never := k.Engine.Begin(), k.Engine.Begin()
		must(late.Write(ctx, write(durable.Task{Key: "late", Kind: "note", Delay: time.Second})))
		must(never.Write(ctx, write(durable.Task{Key: "never", Kind: "note", Delay: time.Second})))
		k.After(10 * time.Second)
		k.Must(late.Commit())
		never.Rollback()
		k.After(time.Second + 2*tick)
		k.Ran("late")

		// A removal that is rolled back delays the run, and a committed one prevents it.
		for key, commit := range map[string]bool{"kept": false, "removed": true} {
			a.Add(durable.Task{Key: key, Kind: "note", Delay: time.Second})
			tx := k.Engine.Begin()
			must(tx.Write(ctx, engine.Write{Record: engine.Record{Key: key}, If: engine.IfPresent}))
			k.After(2 * time.Second)
			k.RanNothing()
			if commit {
				k.Must(tx.Commit())
			} else {
				tx.Rollback()
			}
			if calls := k.RunsAfter(2 * time.Second); len(calls) == 0 != commit {
				t.Errorf("%s: %v", key, calls)
			}
		}
	})
}

// D7. A run that is completed in the user's transaction does not run again, even if its node dies before acknowledging
// it. A run that is not completed runs again.
func TestD7_completedInTheUsersTransaction_isDone(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		completes := true
		handleEach(k, "tx", func(m *kit.Node) durable.Handler {
			return func(ctx context.Context, run durable.Run) error {
				if m != a {
					return nil
				}
				if completes {
					tx := k.Engine.Begin()
					unmet, err := tx.Write(ctx, run.Completion(time.Now().UnixNano()))
					if len(unmet) > 0 || err != nil {
						t.Error(unmet, err)
					}
					if err := tx.Commit(); err != nil {
						t.Error(err)
					}
				}
				if run.Key == "dies" {
					m.Link.SetDown(true)
				}
				return nil
			}
		})
		a.Add(durable.Task{Key: "lives", Kind: "tx", Delay: time.Second, Interval: time.Second, Times: 2})
		if calls := k.RunsAfter(3 * time.Second); len(calls) != 2 || calls[0].Seq == calls[1].Seq {
			t.Errorf("these are the runs: %v", calls)
		}
		k.Gone("lives")
		// The second run is free when the transaction is committed, so either node may have it.
		if s := a.Stats().Succeeded + k.Nodes[1].Stats().Succeeded; s != 2 {
			t.Errorf("%d runs have succeeded", s)
		}
		for _, completes = range []bool{true, false} {
			a.Add(durable.Task{Key: "dies", Kind: "tx", Delay: 500 * time.Millisecond})
			k.After(2*lease + 2*time.Second)
			a.Link.SetDown(false)
			if calls := k.RunsAfter(time.Second); len(calls) == 1 != completes {
				t.Errorf("completed: %v, and these are the runs: %v", completes, calls)
			}
			k.Gone("dies")
		}
		// A completion has no effect if its run was taken over or its task was removed.
		tx := k.Engine.Begin()
		defer tx.Rollback()
		unmet, err := tx.Write(ctx, (durable.Run{Token: durable.Token{Key: "dies"}, Fence: 1}).Completion(1))
		if len(unmet) != 1 || err != nil {
			t.Errorf("a completion that is not the holder's: %v, %v", unmet, err)
		}
	})
}

// D8. A node leaves tasks without a handler alone: another node runs them, now or later.
func TestD8_kinds_ofOthers_areLeftAlone(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		for i := range 20 { // each of them runs on the node that handles it, wherever it was added
			m := k.Join(nil).Start()
			m.Handle(fmt.Sprint("kind", i), ok)
			m.Add(durable.Task{Key: fmt.Sprint("own", i), Kind: fmt.Sprint("kind", i), Delay: time.Second})
			m.Add(durable.Task{Key: fmt.Sprint("left", i), Kind: fmt.Sprint("kind", i), Delay: time.Minute})
			k.After(2 * time.Second)
			if ran := k.Ran(fmt.Sprint("own", i))[0]; ran.Node != m.Name {
				t.Errorf("it ran on %s", ran.Node)
			}
			m.End()
			k.Nodes = k.Nodes[:2]
		}
		k.After(10 * time.Minute)
		k.RanNothing()
		if info := k.Info("left0"); info.State == durable.Parked || info.Attempts > 0 {
			t.Errorf("the task is %+v", info)
		}
		k.Join(nil).Start().Handle("kind0", ok)
		k.After(time.Second)
		k.Ran("left0")
	})
}

// D9. After an outage tasks that fall due now are on time, while the backlog drains at its rate. A node that claimed
// both together, oldest first, would break that.
func TestD9_backlog_drainsAtItsRate_andDelaysNothing(t *testing.T) {
	testkit.NotForRaces(t)
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		for _, b := range d9(k, func(e engine.Engine) engine.Engine { return e }) {
			t.Error(b)
		}
	})
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		if len(d9(k, func(e engine.Engine) engine.Engine { return oneClaim{e} })) == 0 {
			t.Error("one claim for all is not found")
		}
	})
}

// A oneClaim is an engine for a node that claims overdue tasks together with tasks that fall due now, and treats them
// alike.
type oneClaim struct{ engine.Engine }

func (e oneClaim) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	r.After = engine.None
	got, err := e.Engine.Claim(ctx, r)
	for i, s := range got.Tasks {
		got.Tasks[i].Due = max(s.Due, got.Now)
	}
	return got, err
}

// d9 simulates an outage of nodes over such engines, and returns the violations of D9.
func d9(k *kit.Kit, over func(engine.Engine) engine.Engine) (broken []string) {
	const (
		backlog = 10_000
		rate    = 2000
		nodes   = 2
	)
	breaks := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	for range nodes {
		k.Join(over, durable.WithCatchUp(rate), durable.WithPoolSize(64)).Start()
	}
	k.Handle("old", func(context.Context, durable.Run) error { time.Sleep(time.Millisecond); return nil })
	a := k.Nodes[0]
	var old []durable.Task
	for i := range backlog {
		old = append(old, durable.Task{Key: fmt.Sprint("old", i), Kind: "old", Delay: 10 * time.Second})
	}
	a.Add(old...)
	k.After(5 * time.Second)
	for _, m := range k.Nodes {
		m.Link.SetDown(true)
	}
	k.After(time.Minute)
	k.RanNothing()
	for _, m := range k.Nodes {
		m.Link.SetDown(false)
	}
	back := time.Since(k.Begin)
	k.After(lease)
	due := map[string]time.Duration{}
	for i := range 200 {
		task := durable.Task{Key: fmt.Sprint("new", i), Kind: "note", Delay: 200 * time.Millisecond}
		due[task.Key] = time.Since(k.Begin) + task.Delay
		if i%2 == 0 { // the node that adds it holds it
			k.Nodes[i/2%nodes].Add(task)
		} else {
			addTx(k, task)
		}
		k.After(10 * time.Millisecond)
	}
	k.After(10 * time.Second)
	ran := map[string]int{}
	last := time.Duration(0)
	early := 0
	for i, call := range k.Runs() {
		ran[call.Key]++
		if call.Kind == "old" {
			last = call.At
			// A burst of a tenth of a second is allowed, because a node counts from its own last run.
			if i > int(float64(rate)*((call.At-back).Seconds()+0.3)) {
				early++
			}
			continue
		}
		if late := call.At - due[call.Key]; late < 0 || late > 30*time.Millisecond {
			breaks("%s is late by %v", call.Key, late)
		}
	}
	if early > 0 {
		breaks("%d overdue tasks have run before the rate allowed it", early)
	}
	if len(ran) != backlog+200 {
		breaks("%d tasks have run", len(ran))
	}
	if took := last - back; took < backlog/rate*time.Second*9/10 || took > backlog/rate*time.Second*5/2 {
		breaks("the backlog took %v", took)
	}
	return broken
}

// addTx adds a task in a transaction, so that no node holds it.
func addTx(k *kit.Kit, task durable.Task) {
	k.T.Helper()
	w, err := author.Add(task, time.Now().UnixNano())
	if err != nil {
		k.T.Fatal(err)
	}
	tx := k.Engine.Begin()
	if _, err := tx.Write(ctx, w); err != nil {
		k.T.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		k.T.Fatal(err)
	}
}
