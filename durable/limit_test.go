// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/memengine"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// gateMost is how many tasks a gate holds.
const gateMost = 2048

// A kind with more tasks due than its limit allows takes little memory, and its overdue tasks delay those of no
// other kind.
func TestLimit_ofAKindThatIsOverdue_delaysNoOther(t *testing.T) {
	const tasks = 5 * gateMost
	inOneBubble(t, func(t *testing.T, r *rig) {
		r.add(durable.Task{Key: "other", Kind: "note", Delay: hour / 2}) // due after all of the limited kind
		r.overdue(tasks, "slow")
		r.handle("slow", sleeper(sec), durable.WithConcurrency(2), durable.WithMissed(durable.MissedAll))
		r.start()
		r.add(durable.Task{Key: "live", Kind: "note", Delay: sec})
		testkit.Settle(2 * sec)
		late := r.late(r.runs(), "note")
		if len(late) != 2 || late[0] > 2*tick {
			t.Errorf("the other kind was late by %v", late)
		}
		for range 20 {
			testkit.Settle(10 * sec)
			if s := r.Stats(); s.Limited == 0 || s.Limited > gateMost || s.Running != 2 || s.Pending < gateMost {
				t.Fatalf("%+v", s)
			}
		}
		testkit.Settle(tasks * sec / 2)
		if calls := r.runs(); len(calls) < tasks-10 || r.Len() != 0 {
			t.Errorf("%d ran, and %d are left", len(calls), r.Len())
		}
	}, durable.WithPoolSize(4))
}

// A handler that comes after Start, with a limit, gets all that has waited for it, once.
func TestLimit_ofAHandlerThatComesLate(t *testing.T) {
	const tasks = 3 * gateMost
	inOneBubble(t, func(t *testing.T, r *rig) {
		r.overdue(tasks, "late")
		r.start()
		testkit.Settle(hour)
		r.unhandled(tasks)
		r.handle("late", sleeper(tick), durable.WithConcurrency(8))
		testkit.Settle(hour)
		r.unhandled(0)
		if calls := r.runs(); len(calls) != tasks || r.Len() != 0 {
			t.Errorf("%d ran, and %d are left", len(calls), r.Len())
		}
	})
}

// What is in memory when a handler with a limit is registered is held in addition. It makes no task that is left in
// the store count as read.
func TestLimit_ofAHandlerThatComesLate_losesNothing(t *testing.T) {
	inOneBubble(t, func(t *testing.T, r *rig) {
		const full, resumed, early = gateMost + 76, 5, 400
		r.handle("late", sleeper(sec))
		for i := range early {
			r.add(durable.Task{Key: fmt.Sprint("early", i), Kind: "late", Delay: 50*sec + time.Duration(i)})
		}
		r.crash()
		r.start()
		testkit.Settle(sec)
		r.handle("late", sleeper(sec), durable.WithConcurrency(1))
		var tasks []durable.Task
		for i := range full {
			tasks = append(tasks, durable.Task{Key: fmt.Sprint("k", i), Kind: "late", Delay: 40*sec + time.Duration(i)})
		}
		r.add(tasks...)
		for i := range resumed {
			r.must(r.Pause(ctx, fmt.Sprint("k", i)))
			r.add(durable.Task{Key: fmt.Sprint("more", i), Kind: "late", Delay: 35 * sec})
		}
		r.add(durable.Task{Key: "between", Kind: "late", Delay: 45 * sec})
		testkit.Settle(52 * sec)
		for i := range resumed {
			r.must(r.Resume(ctx, fmt.Sprint("k", i)))
		}
		testkit.Settle(hour)
		if calls := r.runs(); len(calls) != full+resumed+early+1 || r.Len() != 0 {
			t.Errorf("%d have run, %d are left", len(calls), r.Len())
		}
	})
}

// A task whose payload the handler does not take is counted once, however often what is around it is left in the
// store and read again.
func TestLimit_ofAPayloadThatIsNotTaken_countsItOnce(t *testing.T) {
	const many, newer = gateMost + 20, 20 // one of these after each of the last of those
	inOneBubble(t, func(t *testing.T, r *rig) {
		r.handle("k", sleeper(0))
		var tasks []durable.Task
		for i := range many {
			task := durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec + time.Duration(2*i)}
			tasks = append(tasks, task)
			if n := many - i; n <= newer {
				task.Key, task.PayloadVersion, task.Delay = fmt.Sprint("newer", n), 2, task.Delay+1
				tasks = append(tasks, task)
			}
		}
		r.add(tasks...)
		r.crash()
		testkit.Settle(hour)
		r.handle("k", sleeper(sec), durable.WithConcurrency(1))
		r.start()
		testkit.Settle(sec)
		r.unhandled(newer)
		testkit.Settle(hour)
		if calls := r.runs(); len(calls) != many || r.Len() != newer {
			t.Errorf("%d have run, %d are left", len(calls), r.Len())
		}
		r.unhandled(newer)
		if n, err := r.RemovePrefix(ctx, "newer"); n != newer || err != nil {
			t.Errorf("%d were removed: %v", n, err)
		}
		r.unhandled(0)
	})
}

// Whatever is added, moved, removed, paused or crashes while tasks of a kind with a limit are left in the store, and
// whether its handler comes before Start or after, each task runs once, and not before it is due. What is running when the process ends runs again.
func TestLimit_whileTasksChange(t *testing.T) {
	const keys, steps = 6 * gateMost, 20_000
	inOneBubble(t, func(t *testing.T, r *rig) {
		draw := rand.New(rand.NewPCG(1, 2))
		handle := func() {
			for _, kind := range []string{"a", "b"} {
				r.handle(kind, sleeper(tick), durable.WithConcurrency(20), durable.WithRate(2000, sec, 50))
			}
		}
		handle()
		due := make(map[string]time.Time)    // of what is to run
		began := make(map[durable.Token]int) // after how many crashes
		crashes := 0
		ran := func() {
			for _, c := range r.runs() {
				at, ok := due[c.Key]
				before, again := began[c.Token]
				if began[c.Token] = crashes; again && before < crashes {
					continue
				}
				if started := r.begin.Add(c.at); !ok || started.Before(at.Add(-2*tick)) {
					t.Fatalf("%v ran at %v, and is due at %v", c.Key, started, at)
				}
				delete(due, c.Key)
			}
		}
		delay := func() time.Duration { return time.Duration(draw.Int64N(int64(20 * sec))) }
		group := func() string { // half are of one, and a quarter of none
			return []string{"most", "most", "", fmt.Sprint(draw.IntN(keys))}[draw.IntN(4)]
		}
		for step := range steps {
			key := fmt.Sprint(draw.IntN(keys))
			d := delay()
			at := time.Now().Add(d)
			switch draw.IntN(8) {
			case 0:
				if err := r.RemoveTask(ctx, key); err == nil {
					ran()
					delete(due, key)
				}
			case 1:
				if err := r.Reschedule(ctx, key, d); err == nil {
					ran()
					due[key] = at
				}
			default:
				task := durable.Task{Key: key, Kind: string('a' + byte(draw.IntN(2))), Group: group(), Delay: max(d, 1),
					Payload: make([]byte, 1<<draw.IntN(13))}
				if err := r.AddTask(ctx, task); err == nil {
					ran()
					due[key] = at
				}
			}
			if step%5000 == 4999 {
				ran()
				r.crash("note")
				crashes++
				early := step%10_000 == 9999
				if early {
					handle()
				}
				testkit.Settle(time.Duration(draw.Int64N(int64(5 * sec))))
				r.start()
				if !early {
					testkit.Settle(time.Duration(draw.Int64N(int64(5 * sec))))
					handle()
				}
			}
			switch draw.IntN(500) {
			case 0:
				r.must(r.PauseKind(ctx, "a"))
			case 1, 2, 3:
				r.must(r.ResumeKind(ctx, "a"))
			}
			if step%100 == 0 {
				time.Sleep(tick)
			}
		}
		r.must(r.ResumeKind(ctx, "a"))
		testkit.Settle(hour)
		ran()
		if len(due) != 0 || r.Len() != 0 {
			t.Errorf("%d have not run, and %d are left", len(due), r.Len())
		}
	})
}

// What waits for a limit waits for the resumption alone while its kind is paused.
func TestLimit_ofAPausedKind_nothingWaitsForIt(t *testing.T) {
	inOneBubble(t, func(t *testing.T, r *rig) {
		r.handle("k", sleeper(time.Minute), durable.WithConcurrency(1))
		for i := range 3 {
			r.add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		testkit.Settle(2 * sec)
		waiting := func(when string, want int) {
			t.Helper()
			k := r.Kinds()[1]
			if k.Kind != "k" || k.Waiting != want || r.Stats().Limited != want {
				t.Errorf("%s: %+v, and %d are limited; want %d", when, k, r.Stats().Limited, want)
			}
		}
		waiting("at first", 2)
		r.must(r.PauseKind(ctx, "k"))
		waiting("paused", 0)
		r.must(r.ResumeKind(ctx, "k"))
		waiting("resumed", 2)
		r.must(r.PauseAll(ctx))
		waiting("all paused", 0)
	})
}

func TestLimit_wrong(t *testing.T) {
	inOneBubble(t, func(t *testing.T, r *rig) {
		for name, o := range map[string]durable.KindOption{
			"concurrency 0 is not positive":                         durable.WithConcurrency(0),
			"concurrency -1 is not positive":                        durable.WithClusterConcurrency(-1),
			"rate of 0 within 1s with bursts of 1: all must":        durable.WithRate(0, sec, 1),
			"rate of 1 within 0s with bursts of 1: all must":        durable.WithRate(1, 0, 1),
			"rate of 1 within 1s with bursts of 0: all must be pos": durable.WithClusterRate(1, sec, 0),
		} {
			err := r.Handle("k", func(context.Context, durable.Run) error { return nil }, o)
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
}

// The runs on all nodes together keep within the limit while nodes join, leave, die and are cut off, as long as no
// run takes longer than a lease.
func TestLimit_ofAllNodes(t *testing.T) {
	const n, took = 7, 300 * time.Millisecond
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		running, most := 0, 0
		count := func(d int) {
			c.mu.Lock()
			defer c.mu.Unlock()
			running += d
			most = max(most, running)
		}
		join := func() *member {
			m := c.join("note")
			m.handle("k", func(context.Context, durable.Run) error {
				count(1)
				defer count(-1)
				time.Sleep(took)
				return nil
			}, durable.WithClusterConcurrency(n))
			return m
		}
		// ran fails the test unless the nodes are at the limit for about so much of the time, and no more.
		ran := func(what string, d time.Duration, share float64) {
			t.Helper()
			c.runs()
			testkit.Settle(d)
			c.mu.Lock()
			defer c.mu.Unlock()
			if want := share * n * float64(d/took); float64(len(c.calls)) < want || most > n {
				t.Errorf("%s: %d ran, want at least %.0f, and %d at the same time, want %d", what, len(c.calls), want, most, n)
			}
		}
		join()
		for i := range 6000 {
			c.nodes[0].add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		testkit.Settle(2 * sec)
		ran("one node", 10*sec, 0.9)
		join()
		join()
		ran("while two join", 2*lease, 0.3)
		ran("three nodes", 20*sec, 0.9)
		on := make(map[string]int)
		c.mu.Lock()
		for _, call := range c.calls {
			on[call.node]++
		}
		c.mu.Unlock()
		if len(on) != 3 {
			t.Errorf("%v", on)
		}
		c.nodes[1].shutdown()
		ran("after one has left", 10*sec, 0.8)
		c.nodes[0].link.SetDown(true) // the oldest: it is reaped, and comes back as another
		ran("while one is cut off", 3*lease, 0.3)
		c.nodes[0].link.SetDown(false)
		ran("when it is back", 2*lease, 0.3)
		for range 6 {
			join()
		}
		ran("while many join", 2*lease, 0.1)
		ran("more nodes than runs", 20*sec, 0.8)
		for _, m := range c.nodes[3:] {
			m.shutdown()
		}
		ran("when few are left", 10*sec, 0.8)
		for i := range 6000 {
			_ = c.nodes[0].RemoveTask(ctx, fmt.Sprint(i)) // its error is that it has run
		}
	})
}

// A node whose part shrinks gives back what it holds beyond it, so that the node that joins has something to run.
func TestLimit_ofAPartThatShrinks_theOtherNodeRunsWhatWaited(t *testing.T) {
	testkit.NotForRaces(t)
	const n = 4
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		join := func() { c.join("note").handle("k", sleeper(time.Minute), durable.WithClusterConcurrency(n)) }
		join()
		for i := range 2 * n { // as many as one node runs and holds
			c.nodes[0].add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		testkit.Settle(3 * sec)
		if calls := c.runs(); len(calls) != n {
			t.Errorf("these are the runs on one node: %v", briefly(calls))
		}
		join()
		testkit.Settle(3 * lease)
		calls := c.runs()
		for _, call := range calls {
			if call.node != "node 2" {
				t.Errorf("%q has run on %s", call.Key, call.node)
			}
		}
		if len(calls) != n/2 {
			t.Errorf("these are the runs on the node that has joined: %v", briefly(calls))
		}
		testkit.Settle(time.Hour)
	})
}

// Of a limit of one node and one of all nodes the lesser counts.
func TestLimit_ofANodeAndOfAllNodes_theLesserCounts(t *testing.T) {
	for _, own := range []int{2, 8} {
		inCluster(t, 2, func(t *testing.T, c *cluster) {
			c.handle("k", func(*member) durable.Handler { return sleeper(time.Minute) },
				durable.WithConcurrency(own), durable.WithClusterConcurrency(8))
			testkit.Settle(3 * lease)
			for i := range 40 {
				c.nodes[0].add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
			}
			testkit.Settle(10 * sec)
			of := make(map[string]int)
			for _, call := range c.runs() {
				of[call.node]++
			}
			if want := min(own, 4); of["node 1"] != want || of["node 2"] != want {
				t.Errorf("with %d a node and 8 in all, these are running: %v", own, of)
			}
		})
	}
}

// The run of a kind with a limit that ends its goroutine makes room for the next.
func TestLimit_ofHandlersThatEndTheirGoroutine_continues(t *testing.T) {
	inOneBubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(context.Context, durable.Run) error { runtime.Goexit(); return nil },
			durable.WithConcurrency(1), durable.WithRetry(1, sec, sec))
		for i := range 10 {
			r.add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		testkit.Settle(5 * sec)
		if calls := r.runs(); len(calls) != 10 {
			t.Errorf("%v", brief(calls))
		}
	})
}

// Of large tasks that wait for a limit few are in memory.
func TestLimit_ofLargeTasks_holdsFew(t *testing.T) {
	inOneBubble(t, func(t *testing.T, r *rig) {
		const tasks, most = 20, 5
		r.handle("k", sleeper(time.Minute), durable.WithConcurrency(1))
		payload := make([]byte, durable.MaxPayload)
		for i := range tasks {
			r.add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec, Payload: payload})
		}
		testkit.Settle(2 * sec)
		if held, _ := durable.Held(r.Scheduler, "k"); held == 0 || held > most {
			t.Errorf("%d are in memory", held)
		}
		testkit.Settle(tasks * time.Minute)
		if calls := r.runs(); len(calls) != tasks {
			t.Errorf("%d of %d have run", len(calls), tasks)
		}
	})
}

// Shutdown leaves what waits for a limit to the next process.
func TestLimit_atShutdown_leavesWhatWaits(t *testing.T) {
	inOneBubble(t, func(t *testing.T, r *rig) {
		const tasks = 20
		r.handle("k", sleeper(sec), durable.WithConcurrency(1))
		for i := range tasks {
			r.add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		testkit.Settle(2*sec + sec/2)
		r.must(r.Shutdown(ctx))
		calls := len(r.runs())
		r.crash()
		if left := r.Len(); calls != 2 || left != tasks-calls {
			t.Errorf("%d have run, and %d of %d are left", calls, left, tasks)
		}
	})
}

// A node that asks for the tasks of a limit as it loses its part in that claims none.
func TestLimit_ofAPartThatEnds_whileItsTasksAreClaimed(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		handle := func(m *member) { m.handle("k", sleeper(20*time.Millisecond), durable.WithClusterConcurrency(1)) }
		first, second := c.nodes[0], c.nodes[1]
		handle(second)
		const n = 1000
		for i := range n {
			second.add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		testkit.Settle(3 * sec)
		asked := 0
		second.link.SetFaults(func(method string) memengine.Fault {
			if method != "Claim Fair" {
				return memengine.Fault{}
			}
			asked++
			return memengine.Fault{Delay: 800 * time.Millisecond, Fail: true}
		})
		testkit.Settle(3 * sec)
		handle(first)
		testkit.Settle(5 * lease)
		second.link.SetFaults(nil)
		if asked == 0 {
			t.Error("no group had its turn")
		}
		testkit.Settle(time.Minute)
		if calls := c.runs(); len(calls) != n {
			t.Errorf("%d tasks have run, want %d", len(calls), n)
		}
	})
}

// A renewal that reaches the engine after a later one takes no report back: the other nodes divide by those that they see.
func TestLimit_renewalThatIsLate_hidesNoNode(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		late, other := c.nodes[0], c.nodes[1]
		testkit.Settle(lease)
		late.link.Next("Renew", memengine.Fault{Delay: 7 * lease / 10}) // it is given up after half a lease
		testkit.Settle(lease / 2)
		late.handle("k", sleeper(0), durable.WithClusterConcurrency(1))
		seen, hidden := 0, 0
		for range 200 {
			testkit.Settle(lease / 100)
			nodes, err := other.Nodes(ctx)
			if err != nil {
				t.Fatal(err)
			}
			switch has := slices.Contains(nodes[0].Kinds, "k"); {
			case has:
				seen++
			case seen > 0:
				hidden++
			}
		}
		if seen == 0 || hidden > 0 {
			t.Errorf("the kind is seen %d times, and then missed %d times", seen, hidden)
		}
	})
}

// A turnsWatch notes after which group a node asks for turns, and fails every second such call.
type turnsWatch struct {
	engine.Engine
	after []string
}

func (w *turnsWatch) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	if !r.Fair {
		return w.Engine.Claim(ctx, r)
	}
	if w.after = append(w.after, r.Group); len(w.after)%2 == 0 {
		return engine.Claims{}, memengine.ErrFault
	}
	return w.Engine.Claim(ctx, r)
}

// After a call that has failed the turns continue where they were.
func TestLimit_turnsThatFail_continue(t *testing.T) {
	const n = 500
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, engine: memengine.New(), begin: time.Now()}
		w := new(turnsWatch)
		m := c.joinOver(func(to engine.Engine) engine.Engine { w.Engine = to; return w }, "note")
		m.handle("k", sleeper(10*time.Millisecond), durable.WithConcurrency(1))
		for i := range n {
			m.add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Group: fmt.Sprintf("%03d", i), Delay: sec})
		}
		testkit.Settle(time.Minute)
		m.shutdown()
		if calls := c.runs(); len(calls) != n {
			t.Errorf("%d tasks have run, want %d", len(calls), n)
		}
		if len(w.after) < 6 {
			t.Errorf("turns are asked for after the groups %q", w.after)
		}
		for i := 2; i < len(w.after); i += 2 {
			if w.after[i] != w.after[i-1] {
				t.Errorf("after a failure turns are asked for after the group %q, and before after %q", w.after[i], w.after[i-1])
			}
		}
	})
}

// A node that joins takes no share before a node with a longer lease, which renews it less often, must have
// seen it.
func TestLimit_ofAllNodes_whoseLeasesDiffer(t *testing.T) {
	const n, took, long = 4, 300 * time.Millisecond, 10 * lease
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		running, most := 0, 0
		join := func(opts ...durable.Option) {
			c.join("note", opts...).handle("k", func(context.Context, durable.Run) error {
				c.mu.Lock()
				running++
				most = max(most, running)
				c.mu.Unlock()
				time.Sleep(took)
				c.mu.Lock()
				running--
				c.mu.Unlock()
				return nil
			}, durable.WithClusterConcurrency(n))
		}
		join(durable.WithLease(long))
		for i := range 1000 {
			c.nodes[0].add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		testkit.Settle(long/4 + sec) // until it has just renewed its lease
		join()
		testkit.Settle(2 * long)
		c.mu.Lock()
		defer c.mu.Unlock()
		on := make(map[string]int)
		for _, call := range c.calls {
			on[call.node]++
		}
		if most != n || len(on) != 2 {
			t.Errorf("%d ran at the same time, want %d, on %v", most, n, on)
		}
	})
}

// The nodes together start no more than the rate allows.
func TestLimit_rateOfAllNodes(t *testing.T) {
	const n, burst = 40, 4
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		join := func() {
			c.join("note").handle("k", sleeper(0), durable.WithClusterRate(n, sec, burst))
		}
		join()
		for i := range 3000 {
			c.nodes[0].add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: 2 * sec})
		}
		testkit.Settle(5 * sec)
		for range 5 { // more than burst
			join()
		}
		testkit.Settle(20 * sec)
		c.nodes[1].shutdown()
		testkit.Settle(20 * sec)
		c.mu.Lock()
		defer c.mu.Unlock()
		if ran := len(c.calls); ran < 40*n*8/10 {
			t.Errorf("%d ran", ran)
		}
		for i := range c.calls {
			for j := i; j < len(c.calls); j++ {
				d := c.calls[j].at - c.calls[i].at
				if most := burst + int(d*n/sec) + 1; j-i+1 > most {
					t.Fatalf("%d runs within %v; %d are allowed", j-i+1, d, most)
				}
			}
		}
	})
}

// The groups of what is held for a limit take turns, in each group the task that is due first.
func TestLimit_groupsTakeTurns(t *testing.T) {
	inOneBubble(t, func(t *testing.T, r *rig) {
		r.handle("k", sleeper(100*time.Millisecond), durable.WithConcurrency(1))
		add := func(group string, n int, delay time.Duration) {
			for i := range n {
				r.add(durable.Task{
					Key: fmt.Sprint(group, i), Kind: "k", Group: group, Delay: delay + time.Duration(i)*time.Millisecond,
				})
			}
		}
		add("many", 500, sec)
		add("few", 10, 2*sec)
		add("", 5, 2*sec)
		if i := r.info("few3"); i.Group != "few" {
			t.Errorf("%+v", i)
		}
		if err := r.RemoveTask(ctx, "few3"); err != nil {
			t.Error(err)
		}
		testkit.Settle(2*sec + sec/20)
		r.runs()
		testkit.Settle(2 * sec)
		last, ran := map[string]int{}, map[string]int{}
		for _, c := range r.runs() {
			var group string
			var i int
			if n, _ := fmt.Sscanf(c.Key, "many%d", &i); n == 1 {
				group = "many"
			} else if n, _ := fmt.Sscanf(c.Key, "few%d", &i); n == 1 {
				group = "few"
			} else {
				_, _ = fmt.Sscan(c.Key, &i)
			}
			if i < last[group] {
				t.Errorf("%s comes after %d", c.Key, last[group])
			}
			last[group] = i
			ran[group]++
		}
		if ran[""] != 5 || ran["few"] < 6 || ran["many"] < 6 || ran["many"] > 9 {
			t.Errorf("%v", ran)
		}
	})
}

// A run that starts up to a tick after its token does not make the next one late, however few start at once.
func TestLimit_rate_isKeptOnTheAverage(t *testing.T) {
	const n, wide, tasks = 20, 30 * time.Millisecond, 101
	inOneBubble(t, func(t *testing.T, r *rig) {
		r.handle("k", sleeper(0), durable.WithRate(n, sec, 1))
		for i := range tasks {
			r.add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		testkit.Settle(20 * sec)
		calls := r.runs()
		if len(calls) != tasks {
			t.Fatalf("%d runs", len(calls))
		}
		if took := calls[tasks-1].at - calls[0].at; took < (tasks-1)*sec/n-wide || took > (tasks-1)*sec/n+2*wide {
			t.Errorf("%d runs took %v, want %v", tasks, took, (tasks-1)*sec/n)
		}
		for i := range calls {
			for j := range calls[:i] {
				if d := calls[i].at - calls[j].at; i-j+1 > 1+int(n*(d+wide)/sec) {
					t.Fatalf("%d started within %v, from %v on", i-j+1, d, calls[j].at)
				}
			}
		}
	}, durable.WithTick(wide))
}

// While the engine takes long to confirm, what the rate allows does not gather to start at once.
func TestLimit_rateWhileTheEngineIsSlow(t *testing.T) {
	const n, burst = 100, 2
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		m := c.nodes[0]
		m.handle("k", sleeper(0), durable.WithRate(n, sec, burst))
		for i := range 3 * n {
			m.add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		m.link.SetFaults(func(method string) (f memengine.Fault) {
			if at := time.Since(c.begin); method == "Confirm" && at > 2*sec && at < 2*sec+sec/3 {
				f.Delay = 2*sec + sec/3 - at
			}
			return f
		})
		testkit.Settle(10 * sec)
		calls := c.runs()
		for i := range calls {
			for j := range calls[:i] {
				if t2 := calls[i].at - calls[j].at; i-j+1 > burst+1+int(n*(t2+tick)/sec) {
					t.Fatalf("%d started within %v, from %v on", i-j+1, t2, calls[j].at)
				}
			}
		}
		if len(calls) != 3*n {
			t.Errorf("%d runs", len(calls))
		}
	})
}
