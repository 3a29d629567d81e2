// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/sirupsen/logrus"
)

// A node whose workers are all busy with long runs gives back the waiting tasks, and tasks claimed in advance once they
// are due.
func TestNode_stuck_givesBackWhatWaits(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a, b := k.Nodes[0], k.Nodes[1]
		end := make(chan struct{})
		a.Handle("long", func(context.Context, durable.Run) error { <-end; return nil })
		k.After(lease)
		a.Add(durable.Task{Key: "long", Kind: "long", Delay: 100 * time.Millisecond})
		for i := range 50 {
			delay := 100*time.Millisecond + time.Duration(i)*10*time.Millisecond
			a.Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: delay})
		}
		due := time.Since(k.Begin) + 100*time.Millisecond
		calls := k.RunsAfter(5 * time.Second)
		if len(calls) != 51 {
			t.Errorf("%d tasks have run", len(calls))
		}
		for _, call := range calls {
			if call.Key != "long" && (call.Node != b.Name || call.At > due+time.Second+100*time.Millisecond) {
				t.Errorf("due from %v on: %v", due, []kit.Call{call})
			}
		}
		close(end)
	}, durable.WithPoolSize(1))
}

// Many callers that set one key at the same time share a commit, and one of them wins. While a transaction has locked
// the key, each caller waits until its own context ends.
func TestNode_manySetAKey_shareACommit(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		const callers = 100
		set := func(unit time.Duration) (errs []error) {
			brief := enginetest.Fault{Delay: 10 * time.Millisecond}
			a.Link.Next("Commit", brief, brief)
			var all sync.WaitGroup
			errs = make([]error, callers)
			for i := range callers {
				all.Go(func() {
					within, cancel := context.WithTimeout(ctx, time.Duration(callers-i)*unit)
					defer cancel()
					errs[i] = a.SetTask(within, durable.Task{Key: "k", Kind: "note", Delay: time.Hour, Payload: []byte{byte(i)}})
				})
			}
			all.Wait()
			return errs
		}
		// A caller that gives up does not end a call that others wait for.
		slow := enginetest.Fault{Delay: 200 * time.Millisecond}
		a.Link.Next("Commit", slow, slow, slow) // the third one serves the last two callers
		for i, wait := range []time.Duration{time.Second, time.Second, time.Second, slow.Delay / 2} {
			go func() {
				within, cancel := context.WithTimeout(ctx, wait)
				defer cancel()
				err := a.SetTask(within, durable.Task{Key: "first", Kind: "note", Delay: time.Hour})
				if (err == nil) != (wait > slow.Delay) {
					t.Errorf("caller %d of a slow commit: %v", i, err)
				}
			}()
			synctest.Wait()
		}
		k.After(2 * time.Second)
		before := a.Stats()
		if err := errors.Join(set(100 * time.Millisecond)...); err != nil {
			t.Error(err)
		}
		after := a.Stats()
		if n := after.Commits.Count - before.Commits.Count; n > 4 || after.Added-before.Added != callers || after.Removed-before.Removed != callers-1 {
			t.Errorf("%d callers make %d commits: before %+v, after %+v", callers, n, before, after)
		}
		tx := k.Engine.Begin()
		k.Must(tx.Lock(ctx, "k"))
		time.AfterFunc(callers/2*100*time.Millisecond+time.Millisecond, tx.Rollback)
		for i, err := range set(100 * time.Millisecond) {
			if gives := callers-i <= callers/2; errors.Is(err, context.DeadlineExceeded) != gives || !gives && err != nil {
				t.Errorf("caller %d, who waits for %d tenths of a second: %v", i, callers-i, err)
			}
		}

		// When all of them have given up, the engine does not count as away.
		tx = k.Engine.Begin()
		k.Must(tx.Lock(ctx, "k"))
		if waiting := set(10 * time.Millisecond); slices.Contains(waiting, nil) {
			t.Errorf("a locked key is set: %v", waiting)
		}
		k.After(20 * time.Second)
		if s := a.Stats().Node; s.CallsFailed != 0 {
			t.Errorf("a lock that outlasts all callers counts as a failure: %+v", s)
		}
		tx.Rollback()
	})
}

// A transaction that locks a key forever delays only calls that need this key. Shutdown gives up after some seconds.
func TestNode_aLock_delaysNothingElse(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		tx := k.Engine.Begin()
		defer tx.Rollback()
		a.Handle("locks", func(ctx context.Context, run durable.Run) error { return tx.Lock(ctx, run.Key) })
		a.Add(durable.Task{Key: "locked", Kind: "locks", Delay: time.Millisecond})
		k.After(time.Second)
		for _, verb := range []func(context.Context) error{
			func(ctx context.Context) error { return a.RemoveTask(ctx, "locked") },
			func(ctx context.Context) error { return a.Reschedule(ctx, "locked", time.Hour) },
			func(ctx context.Context) error {
				return a.SetTask(ctx, durable.Task{Key: "locked", Kind: "note", Delay: time.Hour})
			},
		} {
			wait, cancel := context.WithTimeout(ctx, time.Minute)
			began := time.Now()
			if err := verb(wait); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) < time.Minute {
				t.Errorf("after %v, a verb of a locked task: %v", time.Since(began), err)
			}
			cancel()
		}
		forever := make(chan error)
		go func() { forever <- a.RemoveTask(ctx, "locked") }()
		synctest.Wait()
		for i := range 20 {
			began := time.Now()
			a.Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: time.Millisecond})
			if took := time.Since(began); took > laneWaiting {
				t.Errorf("an add takes %v", took)
			}
			k.After(100 * time.Millisecond)
		}
		if calls := k.Runs(); len(calls) != 21 {
			t.Errorf("%d tasks have run", len(calls))
		}
		began := time.Now()
		a.End()
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("Shutdown has taken %v", took)
		}
		if err := <-forever; !errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("a verb that waits at the end: %v", err)
		}
		k.Info("locked")
	})
}

// The ends of runs share a commit. The commit waits for further ends until it is half a tick old, unless there are many
// or a verb commits. Shutdown does not wait.
func TestNode_endsOfRuns_shareACommit(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		commits := func() uint64 { return a.Stats().Commits.Count }
		gone := func() { // this node knows that the run has ended
			if there, err := a.Exist(ctx, "0"); there || err != nil {
				t.Errorf("the task exists: %v, %v", there, err)
			}
		}
		run := func(n int) (before uint64) {
			var tasks []durable.Task
			for i := range n {
				tasks = append(tasks, durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: kit.Tick})
			}
			a.Add(tasks...)
			before = commits()
			for ran := 0; ran < n; ran += len(k.Runs()) {
				k.After(time.Millisecond)
			}
			return before
		}
		for _, c := range []struct {
			runs    int
			commits uint64 // before the end of the tick, and
			most    uint64 // after it
		}{{1, 0, 1}, {10, 0, 1}, {63, 0, 1}, {64, 1, 1}, {200, 3, 4}} {
			before := run(c.runs)
			if n := commits() - before; n != c.commits {
				t.Errorf("the ends of %d runs have made %d commits at once", c.runs, n)
			}
			k.After(kit.Tick)
			if n := commits() - before; n > c.most {
				t.Errorf("the ends of %d runs have made %d commits", c.runs, n)
			}
			gone()
		}
		before := run(1)
		began := time.Now()
		a.Add(durable.Task{Key: "far", Kind: "note", Delay: time.Hour})
		if n := commits() - before; n != 1 || time.Since(began) != 0 {
			t.Errorf("after %v an add and the end of a run have made %d commits", time.Since(began), n)
		}
		gone()
		run(1)
		began = time.Now()
		a.End()
		if took := time.Since(began); took != 0 {
			t.Errorf("Shutdown has taken %v", took)
		}
	})
}

// A counted engine counts the confirmations of its nodes, each of which takes two milliseconds.
type counted struct {
	engine.Engine
	others                  func() []engine.Membership // members that Renew reports besides; may be nil
	confirms, claims, reaps atomic.Int64
}

func (c *counted) Renew(ctx context.Context, by engine.MemberID, report []byte) ([]engine.Membership, int64, error) {
	members, now, err := c.Engine.Renew(ctx, by, report)
	if c.others != nil {
		members = append(members, c.others()...)
	}
	return members, now, err
}

func (c *counted) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration) ([]bool, int64, error) {
	c.confirms.Add(1)
	time.Sleep(2 * time.Millisecond)
	return c.Engine.Confirm(ctx, by, claims, within)
}

func (c *counted) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	c.claims.Add(1)
	return c.Engine.Claim(ctx, r)
}

func (c *counted) Reap(ctx context.Context) ([]string, error) {
	c.reaps.Add(1)
	return c.Engine.Reap(ctx)
}

// An idle node claims ten times a second, with one call for tasks that fall due and overdue tasks. It reaps once
// in each lease, and not more often while none has expired.
func TestNode_idle_claimsSeldom(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Share()
		var c *counted
		k.Join(func(to engine.Engine) engine.Engine {
			c = &counted{Engine: to}
			return c
		}).Start()
		k.After(time.Second)
		before, reaps := c.claims.Load(), c.reaps.Load()
		k.After(10 * time.Second)
		if n := c.claims.Load() - before; n < 90 || n > 105 {
			t.Errorf("%d claims in ten seconds", n)
		}
		if n := c.reaps.Load() - reaps; n < 1 || n > 5 {
			t.Errorf("%d reaps in ten seconds", n)
		}
	})
}

// A node that sees a lease with more time left than its length, because the engine's clock was ahead, reaps at once. The reap
// cuts the lease.
func TestNode_aLeaseIsTooLong_reaps(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Share()
		var c *counted
		var left atomic.Int64
		k.Join(func(to engine.Engine) engine.Engine {
			c = &counted{Engine: to, others: func() []engine.Membership {
				return []engine.Membership{{ID: 1, Name: "other", Lease: time.Minute, Left: time.Duration(left.Load())}}
			}}
			return c
		}).Start()
		for _, of := range []struct {
			left  time.Duration
			reaps bool
		}{{time.Minute, false}, {time.Minute + 1, true}, {time.Minute, false}} {
			left.Store(int64(of.left))
			k.After(kit.Lease) // until a renewal
			before := c.reaps.Load()
			k.After(10 * time.Second)
			if n := c.reaps.Load() - before; (n > 20) != of.reaps {
				t.Errorf("%d reaps in ten seconds while a lease of a minute has %v left", n, of.left)
			}
		}
	})
}

// Tasks due at one tick are confirmed with one call, and tasks that wait for a limit with one call each.
func TestNode_whatIsDueAtOneTick_isConfirmedTogether(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Share()
		var c *counted
		a := k.Join(func(to engine.Engine) engine.Engine {
			c = &counted{Engine: to}
			return c
		}).Start()
		a.Handle("limited", func(context.Context, durable.Run) error { return nil }, durable.WithConcurrency(1))
		for kind, want := range map[string]int64{"note": 1, "limited": 30} {
			before := c.confirms.Load()
			for i := range 30 {
				a.Add(durable.Task{Key: fmt.Sprint(kind, i), Kind: kind, Delay: 500 * time.Millisecond})
			}
			calls := k.RunsAfter(time.Second)
			if n := c.confirms.Load() - before; len(calls) != 30 || n != want {
				t.Errorf("%d runs of %q were confirmed with %d calls", len(calls), kind, n)
			}
			for _, call := range calls {
				if kind == "note" && call.Late >= kit.Tick+3*time.Millisecond {
					t.Errorf("%v is %v late", call, call.Late)
				}
			}
		}
	})
}

// laneWaiting is how long a lone call may hold up others.
const laneWaiting = 10 * time.Millisecond

// While the engine is away verbs return an error that says so, and everything continues when it is back.
func TestNode_engineAway(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		a.Add(durable.Task{Key: "k", Kind: "note", Delay: 30 * time.Second})
		for _, m := range k.Nodes {
			m.Link.SetDown(true)
		}
		k.After(time.Minute)
		task := durable.Task{Key: "other", Kind: "note", Delay: time.Second}
		_, getErr := a.Exist(ctx, "k")
		_, historyErr := a.History(ctx, durable.HistoryQuery{})
		for _, err := range []error{a.AddTask(ctx, task), a.SetTask(ctx, task), a.RemoveTask(ctx, "k"),
			a.Reschedule(ctx, "k", time.Hour), getErr, historyErr,
			allError(a.Scheduler)} {
			if !errors.Is(err, durable.ErrUnavailable) || !errors.Is(err, enginetest.ErrFault) {
				t.Errorf("while the engine is away: %v", err)
			}
		}
		if n, err := a.Len(), a.Err(); n != 0 || err != nil {
			t.Errorf("Len is %d and Err %v", n, err)
		}
		for _, m := range k.Nodes {
			m.Link.SetDown(false)
		}
		k.After(time.Second)
		k.Ran("k")
		a.Add(task)
		if n, s := a.Len(), a.Stats(); n != 1 || s.Pending != 1 || s.Added != 2 {
			t.Errorf("Len is %d, and the accounts are %+v", n, s)
		}
	})
}

func allError(s *durable.Scheduler) error {
	for _, err := range s.All(ctx) {
		if err != nil {
			return err
		}
	}
	return nil
}

// A node gives back tasks whose records it cannot read, reports it once, and claims no further ones. A node of a later
// version gets them.
func TestNode_recordsOfALaterVersion_areLeftToOthers(t *testing.T) {
	log := testkit.Quiet()
	var lines []string
	log.AddHook(callingHook(func(e *logrus.Entry) {
		if e.Level <= logrus.WarnLevel {
			lines = append(lines, fmt.Sprint(e.Data["tasks"], " ", e.Message))
		}
	}))
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		const tasks = 3
		put := func(key string, after time.Duration) {
			due := time.Now().Add(after).UnixNano()
			w := engine.Write{Record: engine.Record{Key: key, Due: due, Data: []byte{200}}, Kind: "note",
				If: engine.IfAbsent}
			if _, err := k.Engine.Commit(ctx, 0, []engine.Batch{{w}}); err != nil {
				t.Fatal(err)
			}
		}
		revision := func(key string) int64 {
			stored, _, err := one(k.Engine, key)
			if err != nil || stored.Owner != 0 {
				t.Errorf("member %d holds %s, %v", stored.Owner, key, err)
			}
			return stored.Revision
		}
		for i := range tasks {
			put(fmt.Sprint(i), time.Duration(i-1)*2*time.Second) // overdue, due and due soon
		}
		a.Add(durable.Task{Key: "k", Kind: "note", Delay: time.Second})
		k.After(10 * time.Second)
		k.Ran("k")
		put("later", time.Second)
		first, last := revision("1"), revision("later")
		k.After(10 * time.Minute)
		if revision("1") != first || revision("later") != last {
			t.Error("they are claimed again")
		}
		if a.Shutdown(ctx); len(lines) != 1 || !strings.Contains(lines[0], "later version") {
			t.Errorf("these were logged: %q", lines)
		}
		id, now, err := k.Engine.Join(ctx, "of a later version", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		got, err := k.Engine.Claim(ctx, engine.ClaimRequest{
			By: id, Kinds: []string{"note"}, After: engine.None, Until: now, Most: 10, Readable: 255,
		})
		if len(got.Tasks) != tasks+1 {
			t.Errorf("another node gets %d, %v", len(got.Tasks), err)
		}
	}, durable.WithLogger(log))
}

// Bad arguments of Join.
func TestJoin_refuses(t *testing.T) {
	engine := memory.New().Shared()
	for name, err := range map[string]error{
		"engine is nil":                 joinError(nil),
		"name of the node has 0 bytes":  joinError(engine, durable.WithNodeName("")),
		"lease 99ms is less than 100ms": joinError(engine, durable.WithLease(99*time.Millisecond)),
		"tick 0s is not positive":       joinError(engine, durable.WithTick(0)),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want %q, got %v", name, err)
		}
	}
	link := enginetest.NewLink(engine)
	link.SetDown(true)
	if err := joinError(link); !errors.Is(err, durable.ErrUnavailable) || !errors.Is(err, enginetest.ErrFault) {
		t.Errorf("an engine that is away: %v", err)
	}
}

func joinError(engine engine.Engine, opts ...durable.Option) error {
	_, err := durable.New(ctx, engine, opts...)
	return err
}

// allOn fails the test unless that many tasks have run, all on the node and on time.
func allOn(t *testing.T, n *kit.Node, calls []kit.Call, tasks int, within time.Duration) {
	t.Helper()
	for _, call := range calls {
		if call.Late > within || call.Node != n.Name {
			t.Errorf("%s ran %v late on %s", call.Key, call.Late, call.Node)
		}
	}
	if len(calls) != tasks {
		t.Errorf("%d of %d tasks have run", len(calls), tasks)
	}
}

// A node that shuts down waits for a long run. Meanwhile it claims nothing, so that tasks that fall due run elsewhere,
// on time.
func TestShutdown_whileARunIsLong_takesNothingFromTheOthers(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		leaving, stays := k.Nodes[0], k.Nodes[1]
		leaving.Handle("long", sleeper(time.Minute))
		leaving.Add(durable.Task{Key: "long", Kind: "long"})
		k.After(sec)
		ended := make(chan error, 1)
		go func() { ended <- leaving.Shutdown(ctx) }()
		k.After(sec)
		k.Runs()
		const tasks = 200
		for i := range tasks {
			stays.Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: 5 * sec})
			k.After(tick)
		}
		allOn(t, stays, k.RunsAfter(6*sec), tasks, sec/2)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// If the first commit of a run's end fails, Shutdown waits until it is written, so that the task does not run again.
func TestShutdown_afterACommitHasFailed_writesTheEndOfTheRun(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a, end := k.Nodes[0], make(chan struct{})
		a.Handle("k", func(context.Context, durable.Run) error { <-end; return nil })
		a.Add(durable.Task{Key: "a", Kind: "k"})
		k.After(sec)
		a.Link.Next("Commit", enginetest.Fault{Fail: true})
		close(end)
		synctest.Wait()
		a.End()
		k.Gone("a")
		if s := a.Stats(); s.Succeeded != 1 || s.Node.EndsRefused != 0 {
			t.Errorf("the accounts are %+v", s)
		}
	})
}

// A node forgets a claimed task that another node has removed once the engine has refused its start.
func TestNode_whatAnotherNodeRemoves_isForgotten(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a, b := k.Nodes[0], k.Nodes[1]
		a.Add(durable.Task{Key: "k", Kind: "note", Delay: sec / 2})
		k.Must(b.RemoveTask(ctx, "k"))
		k.After(10 * lease)
		if calls, refused := k.Runs(), a.Stats().Node.StartsRefused; len(calls) > 0 || refused > 2 {
			t.Errorf("%d starts were refused, and these are the runs: %v", refused, calls)
		}
	})
}

// A node removes a task, and claims another one of the same key before the removal is answered. It keeps the other
// task.
func TestNode_claimsAnotherTaskOfAKey_whileItsRemovalIsAnswered(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		var committed func()
		m := k.Join(func(to engine.Engine) engine.Engine {
			return watched{Engine: to, committed: func() {
				if committed != nil {
					committed()
				}
			}}
		}).Start()
		m.Add(durable.Task{Key: "k", Kind: "note", Delay: hour})
		k.After(sec)
		var due time.Duration
		committed = func() {
			committed = nil
			due = time.Since(k.Begin) + sec/2
			addTx(k, durable.Task{Key: "k", Kind: "note", Delay: sec / 2})
			time.Sleep(300 * time.Millisecond) // it is claimed
		}
		k.Must(m.RemoveTask(ctx, "k"))
		k.After(5 * lease)
		if ran := k.Ran("k")[0]; ran.At > due+2*tick {
			t.Errorf("due at %v: %v", due, []kit.Call{ran})
		}
	})
}

// A node knows the names of nodes that joined after it last asked for the names.
func TestNode_namesTheNodesThatJoinLater(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		for i := range 2 {
			if i > 0 {
				k.Join(nil).Start()
			}
			m := k.Nodes[i]
			m.Add(durable.Task{Key: m.Name, Kind: "note", Delay: sec / 2})
			if task, ok, err := a.Get(ctx, m.Name); err != nil || !ok || task.Node != m.Name {
				t.Errorf("the task that %s holds is %+v, %v, %v", m.Name, task, ok, err)
			}
		}
	})
}

// Shutdown gives up a verb that waits for a lock, even if it was committed together with others.
func TestShutdown_givesUpALock_thatOneOfAGroupHasMet(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		m := k.Nodes[0]
		m.Add(durable.Task{Key: "locked", Kind: "note", Delay: hour})
		tx := k.Engine.Begin()
		defer tx.Rollback()
		k.Must(tx.Lock(ctx, "locked"))
		m.Link.Next("Commit", enginetest.Fault{Delay: 5 * time.Millisecond}, enginetest.Fault{Delay: 5 * time.Millisecond})
		add := func(key string) {
			go func() { _ = m.AddTask(ctx, durable.Task{Key: key, Kind: "note", Delay: hour}) }()
			synctest.Wait()
		}
		add("alone")
		add("alone, too") // the next verbs wait for these two, and form one group
		removed := make(chan error, 1)
		wait, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		go func() { removed <- m.RemoveTask(wait, "locked") }()
		add("together")
		k.After(sec)
		k.Info("together")
		began := time.Now()
		m.End()
		if took := time.Since(began); took > 6*sec {
			t.Errorf("Shutdown has taken %v", took)
		}
		if err := <-removed; !errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("a removal that waits at the end: %v", err)
		}
		k.Nodes = nil
	})
}

// A node logs that its engine is back and that its lease had expired, even if its logger was busy at the time.
func TestNode_saysThatTheEngineIsBack_thoughItsLoggerIsSlow(t *testing.T) {
	log := testkit.Quiet()
	var lines []string
	log.AddHook(callingHook(func(e *logrus.Entry) {
		lines = append(lines, e.Message)
		time.Sleep(10 * time.Second)
	}))
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		m := k.Nodes[0]
		for _, ends := range []bool{false, true} {
			m.Link.SetDown(true)
			k.After(sec)
			if ends {
				k.After(lease)
				if _, err := k.Engine.Reap(ctx); err != nil {
					t.Fatal(err)
				}
			}
			m.Link.SetDown(false)
			k.After(time.Minute)
		}
		all := strings.Join(lines, "\n")
		away, back := strings.Count(all, "engine is unavailable"), strings.Count(all, "engine is back")
		if away != 2 || back != 2 || strings.Count(all, "joins again") != 1 {
			t.Errorf("these were logged:\n%s", all)
		}
	}, durable.WithLogger(log))
}

// Tasks that a node has run take no room, however large they were in total.
func TestNode_afterManyLargeTasks_claimsOn(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		const tasks = 80 // more than a node holds at once
		payload := make([]byte, durable.MaxPayload)
		for i := range tasks {
			k.Nodes[0].Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Payload: payload})
			k.After(sec)
		}
		if calls := k.Runs(); len(calls) != tasks {
			t.Errorf("%d of %d tasks have run", len(calls), tasks)
		}
	})
}

// A slowLink is an engine whose answers to Renew take long. It records when it handled the last renewal, and can be
// cut.
type slowLink struct {
	engine.Engine
	mu      sync.Mutex // protects below
	renewed time.Time
	cut     bool
}

func (l *slowLink) Renew(ctx context.Context, id engine.MemberID, report []byte) ([]engine.Membership, int64, error) {
	if id == 0 {
		return l.Engine.Renew(ctx, id, report)
	}
	l.mu.Lock()
	if l.cut {
		l.mu.Unlock()
		return nil, 0, kit.ErrFail
	}
	l.renewed = time.Now()
	l.mu.Unlock()
	members, now, err := l.Engine.Renew(ctx, id, report)
	time.Sleep(lease / 5)
	return members, now, err
}

// A lease counts from its request, however long the answer takes: the run must end before another node takes over its
// task.
func TestLease_whoseAnswerTakesLong_isNoLonger(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		link := new(slowLink)
		m := k.Join(func(to engine.Engine) engine.Engine { link.Engine = to; return link }).Start()
		over := make(chan time.Time, 1)
		m.Handle("long", func(ctx context.Context, _ durable.Run) error {
			<-ctx.Done()
			over <- time.Now()
			return ctx.Err()
		})
		m.Add(durable.Task{Key: "a", Kind: "long"})
		k.After(10 * lease)
		link.mu.Lock()
		link.cut = true
		link.mu.Unlock()
		at := <-over
		link.mu.Lock()
		defer link.mu.Unlock()
		if lasted := at.Sub(link.renewed); lasted > lease {
			t.Errorf("the context of the run is done %v after the last renewal; the lease is %v", lasted, lease)
		}
		link.cut = false
	})
}

// A node shuts down during a long run. The tasks that it holds in advance, and those waiting for its workers, run
// elsewhere, no later than after a graceful stop: D3. Both nodes add tasks, and hold their own.
func TestShutdown_whileARunIsLong_givesBackWhatWaits(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		leaving, stays := k.Nodes[0], k.Nodes[1]
		k.Handle("long", sleeper(time.Minute))
		leaving.Add(durable.Task{Key: "long", Kind: "long"})
		k.After(sec)
		const tasks = 500
		for i := range tasks {
			k.Nodes[i%2].Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: sec/2 + time.Duration(i)*time.Millisecond})
		}
		k.Runs()
		ended := make(chan error, 1)
		go func() { ended <- leaving.Shutdown(ctx) }()
		allOn(t, stays, k.RunsAfter(3*sec), tasks, 200*time.Millisecond)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The answer to a claim comes after Shutdown has begun, during a long run on the node. The claimed tasks are free at
// once.
func TestShutdown_whileAClaimIsUnderWay_givesBackWhatItGives(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		leaving, stays := k.Nodes[0], k.Nodes[1]
		k.Handle("long", sleeper(time.Minute))
		leaving.Add(durable.Task{Key: "long", Kind: "long"})
		k.After(sec)
		leaving.Link.SetFaults(func(method string) enginetest.Fault {
			if method == "Claim" {
				return enginetest.Fault{Delay: 300 * time.Millisecond}
			}
			return enginetest.Fault{}
		})
		stays.Link.SetFaults(func(method string) enginetest.Fault {
			if method == "Claim" {
				return enginetest.Fault{Delay: 350 * time.Millisecond}
			}
			return enginetest.Fault{}
		})
		k.After(sec)
		k.Runs()
		for i := range 20 { // no node holds tasks that a transaction adds
			addTx(k, durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: sec})
		}
		ended := make(chan error, 1)
		go func() { ended <- leaving.Shutdown(ctx) }()
		allOn(t, stays, k.RunsAfter(3*sec), 20, sec/2)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A task that repeats within seconds stays with its node, which does not claim it for each run. A node that joins gets its
// share, and the tasks of a node that leaves go to the others.
func TestNode_repeatingTasks_stay(t *testing.T) {
	const tasks = 120
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		for i := range tasks {
			k.Nodes[i%2].Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: time.Second + time.Duration(i)*time.Second/tasks,
				Interval: time.Duration(1+i%2) * time.Second, Times: durable.Forever})
		}
		claimed := func() (n uint64) {
			for _, node := range k.Nodes {
				n += node.Stats().Node.Claimed
			}
			return n
		}
		share := func(when string, least int) {
			t.Helper()
			k.After(10 * time.Second)
			before := claimed()
			k.Runs()
			runs := make(map[string]int)
			for _, c := range k.RunsAfter(20 * time.Second) {
				runs[c.Node]++
			}
			if n := claimed() - before; n > tasks/2 { // 1,800 if each run were claimed
				t.Errorf("%s: %d tasks were claimed for %v runs", when, n, runs)
			}
			all := 0
			for _, n := range runs {
				all += n
				if n < least {
					t.Errorf("%s: the runs are %v", when, runs)
				}
			}
			if want := tasks / 2 * 30; all < want-tasks || all > want+tasks {
				t.Errorf("%s: %d runs, want %d", when, all, want)
			}
		}
		share("two nodes", tasks/2*30/4)
		k.Join(nil).Start()
		share("three nodes", tasks/2*30/8)
		k.Nodes[0].End()
		k.Nodes = k.Nodes[1:]
		share("one has left", tasks/2*30/8)
	})
}

// A node lets go of tasks that repeat each second when another one joins. A single task stays with its node.
func TestNode_repeatingTasks_areShared(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		for i := range 100 {
			k.Nodes[0].Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: sec + time.Duration(i)*5*time.Millisecond,
				Interval: sec, Times: durable.Forever})
		}
		k.After(3 * sec)
		k.Join(nil).Start()
		k.After(30 * sec)
		k.Runs()
		nodes := make(map[string]int)
		for _, c := range k.RunsAfter(30 * sec) {
			nodes[c.Node]++
		}
		if nodes["node 1"] < 900 || nodes["node 2"] < 900 {
			t.Errorf("of 3,000 runs each node should have half, and they are %v", nodes)
		}
	})
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) { // a node that is not started, and one without the kind, take none
		k.Join(nil)
		other, err := durable.New(ctx, k.Engine, durable.WithLogger(testkit.Quiet()))
		k.Must(err, other.Handle("other", ok), other.Start())
		defer func() { k.Must(other.Shutdown(ctx)) }()
		for i := range 100 {
			k.Nodes[0].Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: sec + time.Duration(i)*5*time.Millisecond,
				Interval: sec, Times: durable.Forever})
		}
		k.After(20 * sec)
		before := k.Stats().Node.Claimed
		if calls := k.RunsAfter(20 * sec); len(calls) < 1900 || k.Stats().Node.Claimed != before {
			t.Errorf("%d tasks were claimed for %d runs", k.Stats().Node.Claimed-before, len(calls))
		}
	})
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		k.Nodes[0].Add(durable.Task{Key: "one", Kind: "note", Delay: sec, Interval: 5 * sec / 2, Times: durable.Forever})
		k.After(20 * sec)
		k.Runs()
		nodes := make(map[string]int)
		for _, c := range k.RunsAfter(100 * sec) {
			nodes[c.Node]++
		}
		if len(nodes) != 1 {
			t.Errorf("a single task moves from node to node: %v", nodes)
		}
	})
}
