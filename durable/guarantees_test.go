// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/memengine"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The promises of a cluster, which the table in README.md names.

// D1. The engine's clock decides what is due, wherever it stands, whenever it is set, and however long answers
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
			synctest.Test(t, func(t *testing.T) {
				c2 := &cluster{t: t, engine: memengine.New(), begin: time.Now()}
				c2.engine.Step(c.before)
				c2.joinOver(func(to engine.Engine) engine.Engine { return late{to, c.answer} }, "note").link.SetFaults(
					func(string) memengine.Fault { return memengine.Fault{Delay: c.question} })
				c2.join("note") // over a link without delays
				for i, d := range []time.Duration{50 * time.Millisecond, time.Second, 4 * time.Second, 10 * time.Second} {
					due := time.Since(c2.begin) + d
					c2.nodes[i%2].add(durable.Task{Key: "k", Kind: "note", Delay: d})
					if d > 2*time.Second {
						time.Sleep(d - 2*time.Second/3) // it is claimed by now
						c2.engine.Step(c.meanwhile)
						due -= c.meanwhile
					}
					time.Sleep(d + 20*time.Second)
					if ran := c2.ran("k"); ran.at < due || ran.at > due+c.late && c.meanwhile == 0 {
						t.Errorf("due at %v, and %s", due, briefly([]nodeCall{ran}))
					}
				}
				for _, m := range c2.nodes {
					m.shutdown()
				}
			})
		})
	}
}

// The answers of a late engine take that long.
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

func (e late) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim) ([]bool, int64, error) {
	defer time.Sleep(e.by)
	return e.Engine.Confirm(ctx, by, claims)
}

// D2. What is removed, replaced or moved on one node does not start on another, which has claimed it and has it
// waiting, in the wheel or for a worker.
func TestD2_removed_isRemoved_onEveryNode(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.nodes[0], c.nodes[1]
		c.handle("busy", func(*member) durable.Handler {
			return func(context.Context, durable.Run) error { time.Sleep(200 * time.Millisecond); return nil }
		})
		in := func(d time.Duration, kind string, keys ...string) {
			for _, key := range keys {
				a.add(durable.Task{Key: key, Kind: kind, Delay: d})
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
		time.Sleep(400 * time.Millisecond) // they are in the wheel of node 1
		undo()
		time.Sleep(400 * time.Millisecond)
		c.ran("ran")
		if err := errors.Join(b.RemoveTask(ctx, "moved"), b.RemoveTask(ctx, "replaced")); err != nil {
			t.Error(err)
		}
		in(100*time.Millisecond, "busy", "busy")
		in(150*time.Millisecond, "note", "removed", "moved", "replaced", "ran")
		time.Sleep(200 * time.Millisecond) // they wait for the worker of node 1
		undo()
		time.Sleep(400 * time.Millisecond)
		calls := c.runs()
		if len(calls) != 2 || calls[0].Key != "busy" || calls[1].Key != "ran" || calls[1].node != a.name {
			t.Errorf("these are the runs: %v", briefly(calls))
		}
	}, durable.WithPoolSize(1))
}

// D2. A removal that comes while the answer to a confirmation is on its way is seen, if that takes long.
func TestD2_removed_whileAConfirmationTakesLong(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		b, confirmed := c.nodes[0], 0
		a := c.joinOver(func(to engine.Engine) engine.Engine {
			return watched{Engine: to, confirmed: func() {
				if confirmed++; confirmed > 1 {
					return
				}
				if err := b.RemoveTask(ctx, "k"); err != nil {
					t.Error(err)
				}
				time.Sleep(150 * time.Millisecond)
			}}
		}, "note")
		a.add(durable.Task{Key: "k", Kind: "note", Delay: sec / 10})
		testkit.Settle(sec)
		if calls := c.runs(); len(calls) > 0 || confirmed < 2 {
			t.Errorf("after %d confirmations it has run: %v", confirmed, briefly(calls))
		}
	})
}

// D2. What a node removes itself does not start there, although the engine has just confirmed it.
func TestD2_removed_afterTheConfirmation_onTheSameNode(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		var a *member
		a = c.joinOver(func(to engine.Engine) engine.Engine {
			return watched{Engine: to, confirmed: func() {
				if err := a.RemoveTask(ctx, "k"); err != nil {
					t.Error(err)
				}
			}}
		}, "note")
		a.add(durable.Task{Key: "k", Kind: "note", Delay: sec / 10})
		testkit.Settle(sec)
		if calls := c.runs(); len(calls) > 0 {
			t.Errorf("it has run: %v", briefly(calls))
		}
	})
}

// D3. The tasks of a node that dies run elsewhere within a lease and half a second, those of a node that is
// shut down within 100 ms: what is due, what is running, and what is claimed.
func TestD3_aDeadNodesTasks_runElsewhere(t *testing.T) {
	for name, dies := range map[string]bool{"killed": true, "shut down": false} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 2, func(t *testing.T, c *cluster) {
				a, b := c.nodes[0], c.nodes[1]
				stuck := make(chan struct{})
				c.handle("long", func(m *member) durable.Handler {
					return func(context.Context, durable.Run) error {
						if m == a {
							<-stuck
						}
						return nil
					}
				})
				a.add(durable.Task{Key: "running", Kind: "long", Delay: time.Millisecond},
					durable.Task{Key: "claimed", Kind: "note", Delay: time.Second})
				time.Sleep(700 * time.Millisecond)
				if ran := c.ran("running"); ran.node != a.name {
					t.Fatalf("it runs on %s", ran.node)
				}
				died := time.Since(c.begin)
				within := lease + time.Second/2
				if dies {
					a.link.SetDown(true)
				} else {
					within = 300*time.Millisecond + 100*time.Millisecond // when it is due
					gone, cancel := context.WithCancel(ctx)
					cancel()
					_ = a.Shutdown(gone) // its error is that a job is still running
					c.nodes = c.nodes[1:]
				}
				time.Sleep(within + tick)
				at := map[string]time.Duration{}
				for _, call := range c.runs() {
					if call.node != b.name || call.at > died+within {
						t.Errorf("after the end of node 1 at %v: %v", died, briefly([]nodeCall{call}))
					}
					at[call.Key] = call.at
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

// D3. A task that is overdue when its dead node is reaped is claimed at once, whenever the other node has looked for
// overdue tasks last.
func TestD3_whatIsOverdueOfADeadNode_runsInTime(t *testing.T) {
	for after := time.Duration(0); after < sec; after += sec / 10 {
		inCluster(t, 1, func(t *testing.T, c *cluster) {
			a := c.nodes[0]
			time.Sleep(after)
			b := c.join("note")
			time.Sleep(2*lease - after + tick) // node 1 has just renewed its lease
			died := time.Since(c.begin)
			a.add(durable.Task{Key: "k", Kind: "note", Delay: sec / 10})
			a.link.SetDown(true)
			testkit.Settle(2 * lease)
			if ran := c.ran("k"); ran.node != b.name || ran.at > died+lease+sec/2 {
				t.Errorf("node 1 died at %v; node 2, %v younger: %v", died, after, briefly([]nodeCall{ran}))
			}
		})
	}
}

// D3. A node that shuts down asks again to leave if the first call fails, so that its tasks run elsewhere at once.
func TestD3_shutdownWhoseLeaveFails_triesAgain(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.nodes[0], c.nodes[1]
		time.Sleep(lease)
		due := time.Since(c.begin) + 300*time.Millisecond
		a.add(durable.Task{Key: "k", Kind: "note", Delay: 300 * time.Millisecond})
		a.link.Next("Leave", memengine.Fault{Fail: true})
		a.shutdown()
		c.nodes = c.nodes[1:]
		testkit.Settle(2 * lease)
		if ran := c.ran("k"); ran.node != b.name || ran.at > due+100*time.Millisecond {
			t.Errorf("due at %v: %v", due, briefly([]nodeCall{ran}))
		}
	})
}

// D4. A node that is cut off starts nothing after its lease, has its runs cancelled, and their ends are not
// accepted. The run that takes over has a greater fence.
func TestD4_aZombie_startsNothing_andEndsNothing(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.nodes[0], c.nodes[1]
		release := make(chan struct{})
		var cause atomic.Value
		c.handle("long", func(m *member) durable.Handler {
			return func(ctx context.Context, _ durable.Run) error {
				if m == a {
					<-ctx.Done()
					cause.Store(context.Cause(ctx))
				}
				<-release
				return nil
			}
		})
		a.add(durable.Task{Key: "running", Kind: "long", Delay: time.Millisecond})
		time.Sleep(time.Second)
		first := c.ran("running")
		a.add(durable.Task{Key: "claimed", Kind: "note", Delay: 900 * time.Millisecond})
		a.link.SetDown(true)
		time.Sleep(lease - tick)
		if err := cause.Load(); err != nil {
			t.Errorf("before the lease has run out the run is cancelled: %v", err)
		}
		time.Sleep(2 * tick)
		synctest.Wait()
		if err, _ := cause.Load().(error); !errors.Is(err, durable.ErrFenced) {
			t.Errorf("when the lease has run out the run is cancelled with %v", err)
		}
		time.Sleep(time.Second)
		calls := c.runs()
		if len(calls) != 2 {
			t.Fatalf("these are the runs: %v", briefly(calls))
		}
		for _, call := range calls {
			if call.node != b.name || call.Key == "running" && (call.Fence <= first.Fence || call.Token != first.Token) {
				t.Errorf("after %s: %s", briefly([]nodeCall{first}), briefly([]nodeCall{call}))
			}
		}
		a.link.SetDown(false)
		time.Sleep(lease)     // node 1 is back
		release <- struct{}{} // one of the two, and the other does not end
		synctest.Wait()
		release <- struct{}{}
		time.Sleep(lease)
		c.exists("running", false)
		if s := b.Stats().Succeeded + a.Stats().Succeeded; s != 2 {
			t.Errorf("%d runs were acknowledged, want that of each task", s)
		}
		if s := a.Stats().Succeeded; s != 0 {
			t.Errorf("%d of them were the zombie's", s)
		}
	})
}

// D5. Every attempt has the same token, and one whose node dies counts: a task that kills every node that runs
// it is parked after its attempts.
func TestD5_attempts_areCountedAsTheyStart(t *testing.T) {
	const attempts = 3
	inCluster(t, attempts+1, func(t *testing.T, c *cluster) {
		c.handle("deadly", func(m *member) durable.Handler {
			return func(ctx context.Context, _ durable.Run) error {
				m.link.SetDown(true)
				<-ctx.Done()
				return ctx.Err()
			}
		}, durable.WithRetry(attempts, time.Millisecond, time.Millisecond))
		c.nodes[0].add(durable.Task{Key: "k", Kind: "deadly", Delay: time.Second})
		time.Sleep(time.Second + (attempts+1)*(lease+time.Second))
		calls := c.runs()
		if len(calls) != attempts {
			t.Fatalf("these are the runs: %v", briefly(calls))
		}
		for i, call := range calls {
			if call.Attempt != i+1 || call.Token != calls[0].Token || i > 0 && call.Fence <= calls[i-1].Fence {
				t.Errorf("attempt %d: %v", call.Attempt, briefly(calls))
			}
		}
		if info := c.info("k"); !info.Parked || info.Attempts != attempts || info.Failure == "" {
			t.Errorf("the task is %+v", info)
		}
		for _, m := range c.nodes {
			m.link.SetDown(false)
		}
		if err := c.nodes[0].Reschedule(ctx, "k", time.Hour); err != nil {
			t.Error(err)
		}
		if info := c.info("k"); info.Parked || info.Attempts != 0 {
			t.Errorf("after a Reschedule the task is %+v", info)
		}
	})
}

// D5. A start whose confirmation is lost, comes late or is refused by a lock is confirmed again, and counts once: a
// task is not parked before it has been tried as often as its kind says.
func TestD5_aStartThatIsConfirmedAgain_countsOnce(t *testing.T) {
	const attempts = 2
	inCluster(t, attempts+1, func(t *testing.T, c *cluster) {
		lose := memengine.Fault{Lose: true}
		late := memengine.Fault{Delay: 150 * time.Millisecond}
		c.handle("deadly", func(m *member) durable.Handler {
			return func(ctx context.Context, _ durable.Run) error {
				m.link.SetDown(true)
				<-ctx.Done()
				return ctx.Err()
			}
		}, durable.WithRetry(attempts, time.Millisecond, time.Millisecond))
		for _, m := range c.nodes {
			m.link.Next("Confirm", lose, lose, late)
		}
		c.nodes[0].add(durable.Task{Key: "k", Kind: "deadly", Delay: time.Second})
		time.Sleep(time.Second + (attempts+1)*(lease+2*time.Second))
		if calls := c.runs(); len(calls) != attempts {
			t.Errorf("these are the runs: %v", briefly(calls))
		}
		if info := c.info("k"); !info.Parked || info.Attempts != attempts {
			t.Errorf("the task is %+v", info)
		}
		for _, m := range c.nodes {
			m.link.SetDown(false)
		}
	})
}

// A task with one attempt, whose confirmation is lost and then refused by somebody's lock, runs all the same.
func TestD5_aStartThatIsRefusedAfterALostAnswer_isNotAnAttempt(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		a := c.nodes[0]
		a.handle("once", func(context.Context, durable.Run) error { return nil },
			durable.WithRetry(1, time.Second, time.Second))
		a.link.Next("Confirm", memengine.Fault{Lose: true})
		a.add(durable.Task{Key: "k", Kind: "once", Delay: 500 * time.Millisecond})
		time.Sleep(550 * time.Millisecond) // it is confirmed, and will be asked again
		tx := c.engine.Begin()
		if err := tx.Lock(ctx, "k"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if calls := c.runs(); len(calls) > 0 {
			t.Errorf("a locked task runs: %v", briefly(calls))
		}
		tx.Rollback()
		time.Sleep(time.Second)
		if call := c.ran("k"); call.Attempt != 1 {
			t.Errorf("the first call is attempt %d", call.Attempt)
		}
		c.exists("k", false)
	})
}

// D6. A lost answer loses nothing, and a node recognizes what it has added itself.
func TestD6_lostAnswers(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		a := c.nodes[0]
		task := func(key string) durable.Task { return durable.Task{Key: key, Kind: "note", Delay: time.Second} }
		lose := func() { a.link.Next("Commit", memengine.Fault{Lose: true}) }
		lose()
		a.add(task("added"), task("too"))
		lose()
		if err := a.SetTask(ctx, task("set")); err != nil {
			t.Error(err)
		}
		a.add(durable.Task{Key: "moved", Kind: "note", Delay: time.Hour})
		lose()
		if err := a.Reschedule(ctx, "moved", time.Second); err != nil {
			t.Error(err)
		}
		if err := c.nodes[1].AddTask(ctx, task("added")); !errors.Is(err, durable.ErrDuplicateTaskKey) {
			t.Errorf("a second add: %v", err)
		}
		a.add(durable.Task{Key: "removed", Kind: "note", Delay: time.Hour})
		lose()
		if err := a.RemoveTask(ctx, "removed"); !errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("a removal whose answer is lost: %v", err)
		}
		a.link.Next("Commit", memengine.Fault{Fail: true})
		err := a.AddTask(ctx, task("lost"))
		if !errors.Is(err, durable.ErrUnavailable) || !errors.Is(err, memengine.ErrFault) {
			t.Errorf("an add that fails: %v", err)
		}
		c.exists("lost", false)
		c.exists("removed", false)
		time.Sleep(3 * time.Second)
		ran := map[string]int{}
		for _, call := range c.runs() {
			ran[call.Key]++
		}
		if fmt.Sprint(ran) != "map[added:1 moved:1 set:1 too:1]" {
			t.Errorf("these have run: %v", ran)
		}
	})
}

// D6. When claims, confirmations and ends of runs fail, or their answers are lost, every task runs all the
// same, and ends.
func TestD6_lostAnswers_ofTheNodesOwnCalls(t *testing.T) {
	methods := []string{"Claim", "Confirm", "Commit", "Renew", "Walk Held", "Reap"}
	for i := range 2 * len(methods) {
		method, lost := methods[i/2], i%2 == 0
		t.Run(fmt.Sprint(method, ", answer lost: ", lost), func(t *testing.T) {
			inCluster(t, 2, func(t *testing.T, c *cluster) {
				const tasks = 20
				for i := range tasks {
					c.nodes[i%2].add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: 2*time.Second + time.Duration(i)})
				}
				for _, m := range c.nodes {
					calls := 0
					m.link.SetFaults(func(of string) memengine.Fault {
						if of == method {
							calls++
						}
						faulty := of == method && calls%3 != 0
						return memengine.Fault{Lose: faulty && lost, Fail: faulty && !lost}
					})
				}
				time.Sleep(20 * time.Second)
				ran := map[string]bool{}
				for _, call := range c.runs() {
					ran[call.Key] = true
				}
				if kinds, err := engine.Count(ctx, c.engine); len(ran) != tasks || len(kinds) != 0 || err != nil {
					t.Errorf("%d tasks have run, and left are %v", len(ran), kinds)
				}
				for _, m := range c.nodes {
					m.link.SetDown(false)
				}
			})
		})
	}
}

// D6. A node does not take for its own the task that another node has added at the same instant.
func TestD6_anotherNodesTaskOfTheSameInstant_isNotItsOwn(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.nodes[0], c.nodes[1]
		task := durable.Task{Key: "k", Kind: "note", Delay: hour}
		b.add(task)
		a.link.Next("Commit", memengine.Fault{Fail: true}) // and a does not know that it has had no effect
		if err := a.AddTask(ctx, task); !errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("the error is %v", err)
		}
	})
}

// D7. What a user's transaction adds, removes, moves or completes is done with it, or not at all, also if it is
// committed long after it was due.
func TestD7_inTheUsersTransaction(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		a := c.nodes[0]
		write := func(task durable.Task) engine.Write {
			w, err := durable.NewWrite(task, time.Now().UnixNano())
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
		late, never := c.engine.Begin(), c.engine.Begin()
		must(late.Write(ctx, write(durable.Task{Key: "late", Kind: "note", Delay: time.Second})))
		must(never.Write(ctx, write(durable.Task{Key: "never", Kind: "note", Delay: time.Second})))
		time.Sleep(10 * time.Second)
		if err := late.Commit(); err != nil {
			t.Fatal(err)
		}
		never.Rollback()
		time.Sleep(time.Second + 2*tick)
		c.ran("late")

		// A removal that is rolled back delays the run, one that is committed prevents it.
		for key, commit := range map[string]bool{"kept": false, "removed": true} {
			a.add(durable.Task{Key: key, Kind: "note", Delay: time.Second})
			tx := c.engine.Begin()
			must(tx.Write(ctx, engine.Write{Record: engine.Record{Key: key}, If: engine.IfPresent}))
			time.Sleep(2 * time.Second)
			if calls := c.runs(); len(calls) > 0 {
				t.Errorf("while it is being removed: %v", briefly(calls))
			}
			if commit {
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
			} else {
				tx.Rollback()
			}
			time.Sleep(2 * time.Second)
			if calls := c.runs(); len(calls) == 0 != commit {
				t.Errorf("%s: %v", key, briefly(calls))
			}
		}
	})
}

// D7. A run that is completed in the user's transaction does not run again, though its node dies before it has
// acknowledged it. One that is not completed does.
func TestD7_completedInTheUsersTransaction_isDone(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		a := c.nodes[0]
		completes := true
		c.handle("tx", func(m *member) durable.Handler {
			return func(ctx context.Context, run durable.Run) error {
				if m != a {
					return nil
				}
				if completes {
					tx := c.engine.Begin()
					unmet, err := tx.Write(ctx, run.Completion(time.Now().UnixNano()))
					if len(unmet) > 0 || err != nil {
						t.Error(unmet, err)
					}
					if err := tx.Commit(); err != nil {
						t.Error(err)
					}
				}
				if run.Key == "dies" {
					m.link.SetDown(true)
				}
				return nil
			}
		})
		a.add(durable.Task{Key: "lives", Kind: "tx", Delay: time.Second, Interval: time.Second, Times: 2})
		time.Sleep(3 * time.Second)
		if calls := c.runs(); len(calls) != 2 || calls[0].Seq == calls[1].Seq {
			t.Errorf("these are the runs: %v", briefly(calls))
		}
		c.exists("lives", false)
		// The second run is free when the transaction is committed, so either node may have it.
		if s := a.Stats().Succeeded + c.nodes[1].Stats().Succeeded; s != 2 {
			t.Errorf("%d runs have succeeded", s)
		}
		for _, completes = range []bool{true, false} {
			a.add(durable.Task{Key: "dies", Kind: "tx", Delay: 500 * time.Millisecond})
			time.Sleep(2*lease + 2*time.Second)
			a.link.SetDown(false)
			time.Sleep(time.Second)
			if calls := c.runs(); len(calls) == 1 != completes {
				t.Errorf("completed: %v, and these are the runs: %v", completes, briefly(calls))
			}
			c.exists("dies", false)
		}
		// A completion whose run was taken over, or whose task was removed, is not done.
		tx := c.engine.Begin()
		defer tx.Rollback()
		unmet, err := tx.Write(ctx, (durable.Run{Token: durable.Token{Key: "dies"}, Fence: 1}).Completion(1))
		if len(unmet) != 1 || err != nil {
			t.Errorf("a completion that is not the holder's: %v, %v", unmet, err)
		}
	})
}

// D8. A node leaves alone what it has no handler for: another runs it, now or later.
func TestD8_kinds_ofOthers_areLeftAlone(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		for i := range 20 { // each of them runs on the node that knows it, wherever it was added
			m := c.join(fmt.Sprint("kind", i))
			m.add(durable.Task{Key: fmt.Sprint("own", i), Kind: fmt.Sprint("kind", i), Delay: time.Second})
			m.add(durable.Task{Key: fmt.Sprint("left", i), Kind: fmt.Sprint("kind", i), Delay: time.Minute})
			time.Sleep(2 * time.Second)
			if ran := c.ran(fmt.Sprint("own", i)); ran.node != m.name {
				t.Errorf("it ran on %s", ran.node)
			}
			m.shutdown()
			c.nodes = c.nodes[:2]
		}
		time.Sleep(10 * time.Minute)
		if calls := c.runs(); len(calls) > 0 {
			t.Errorf("these have run: %v", briefly(calls))
		}
		if info := c.info("left0"); info.Parked || info.Attempts > 0 {
			t.Errorf("the task is %+v", info)
		}
		c.join("kind0")
		time.Sleep(time.Second)
		c.ran("left0")
	})
}

// D9. After an outage what falls due now is on time, while the backlog drains at its rate. A node that claimed
// both in one go, the oldest first, would break that.
func TestD9_backlog_drainsAtItsRate_andDelaysNothing(t *testing.T) {
	testkit.NotForRaces(t)
	synctest.Test(t, func(t *testing.T) {
		for _, b := range d9(t, func(e engine.Engine) engine.Engine { return e }) {
			t.Error(b)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		if len(d9(t, func(e engine.Engine) engine.Engine { return oneClaim{e} })) == 0 {
			t.Error("one claim for all is not found")
		}
	})
}

// A oneClaim is an engine for a node that does not claim what falls due now apart from what is overdue.
type oneClaim struct{ engine.Engine }

func (e oneClaim) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	r.After = engine.None
	return e.Engine.Claim(ctx, r)
}

// d9 has an outage of nodes over such engines, and returns what breaks D9.
func d9(t *testing.T, over func(engine.Engine) engine.Engine) (broken []string) {
	const (
		backlog = 10_000
		rate    = 2000
		nodes   = 2
	)
	breaks := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	c := &cluster{t: t, engine: memengine.New(), begin: time.Now()}
	for range nodes {
		m := c.joinOver(over, "note", durable.WithCatchUp(rate), durable.WithPoolSize(64))
		defer m.shutdown()
	}
	c.handle("old", func(*member) durable.Handler {
		return func(context.Context, durable.Run) error { time.Sleep(time.Millisecond); return nil }
	})
	a := c.nodes[0]
	var old []durable.Task
	for i := range backlog {
		old = append(old, durable.Task{Key: fmt.Sprint("old", i), Kind: "old", Delay: 10 * time.Second})
	}
	a.add(old...)
	time.Sleep(5 * time.Second)
	for _, m := range c.nodes {
		m.link.SetDown(true)
	}
	time.Sleep(time.Minute)
	if calls := c.runs(); len(calls) > 0 {
		t.Fatalf("while the engine is away %d tasks run", len(calls))
	}
	for _, m := range c.nodes {
		m.link.SetDown(false)
	}
	back := time.Since(c.begin)
	time.Sleep(lease)
	due := map[string]time.Duration{}
	for i := range 200 {
		task := durable.Task{Key: fmt.Sprint("new", i), Kind: "note", Delay: 200 * time.Millisecond}
		due[task.Key] = time.Since(c.begin) + task.Delay
		if i%2 == 0 { // the node that adds it holds it
			c.nodes[i/2%nodes].add(task)
		} else {
			c.addTx(task)
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(10 * time.Second)
	ran := map[string]int{}
	last := time.Duration(0)
	early := 0
	for i, call := range c.runs() {
		ran[call.Key]++
		if call.Kind == "old" {
			last = call.at
			// A burst of a tenth of a second, at which a node counts from its own last run, is allowed.
			if i > int(float64(rate)*((call.at-back).Seconds()+0.3)) {
				early++
			}
			continue
		}
		if late := call.at - due[call.Key]; late < 0 || late > 30*time.Millisecond {
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
func (c *cluster) addTx(task durable.Task) {
	c.t.Helper()
	w, err := durable.NewWrite(task, time.Now().UnixNano())
	if err != nil {
		c.t.Fatal(err)
	}
	tx := c.engine.Begin()
	if _, err := tx.Write(ctx, w); err != nil {
		c.t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		c.t.Fatal(err)
	}
}
