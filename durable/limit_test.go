// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// gateMost is how many tasks a limiter holds.
const gateMost = 2048

// A kind with more due tasks than its limit allows takes little memory, and its overdue tasks delay no other kind.
func TestLimit_ofAKindThatIsOverdue_delaysNoOther(t *testing.T) {
	const tasks = 5 * gateMost
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "other", Kind: "note", Delay: hour / 2}) // due after all tasks of the limited kind
		overdue(k, tasks, "slow")
		k.Handle("slow", sleeper(sec), durable.WithConcurrency(2), durable.WithMissed(durable.MissedAll))
		k.Start()
		k.Add(durable.Task{Key: "live", Kind: "note", Delay: sec})
		k.After(2 * sec)
		late := lateness(k, k.Runs(), "note")
		if len(late) != 2 || late[0] > 2*tick {
			t.Errorf("the other kind was late by %v", late)
		}
		for range 20 {
			k.After(10 * sec)
			if s := k.Stats(); s.Limited == 0 || s.Limited > gateMost || s.Running != 2 || s.Pending < gateMost {
				t.Fatalf("%+v", s)
			}
		}
		if calls := k.RunsAfter(tasks * sec / 2); len(calls) < tasks-10 || k.Len() != 0 {
			t.Errorf("%d ran, and %d are left", len(calls), k.Len())
		}
	}, durable.WithPoolSize(4))
}

// A handler with a limit that is registered after Start gets every task that has waited for it, once.
func TestLimit_ofAHandlerThatComesLate(t *testing.T) {
	const tasks = 3 * gateMost
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		overdue(k, tasks, "late")
		k.Start()
		k.After(hour)
		unhandled(k, tasks)
		k.Handle("late", sleeper(tick), durable.WithConcurrency(8))
		k.After(hour)
		unhandled(k, 0)
		if calls := k.Runs(); len(calls) != tasks || k.Len() != 0 {
			t.Errorf("%d ran, and %d are left", len(calls), k.Len())
		}
	})
}

// Tasks that are in memory when a handler with a limit is registered are held in addition. They do not make tasks that
// are left in the store count as read.
func TestLimit_ofAHandlerThatComesLate_losesNothing(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		const full, resumed, early = gateMost + 76, 5, 400
		k.Handle("late", sleeper(sec))
		for i := range early {
			k.Add(durable.Task{Key: fmt.Sprint("early", i), Kind: "late", Delay: 50*sec + time.Duration(i)})
		}
		k.Crash()
		k.Start()
		k.After(sec)
		k.Handle("late", sleeper(sec), durable.WithConcurrency(1))
		var tasks []durable.Task
		for i := range full {
			tasks = append(tasks, durable.Task{Key: fmt.Sprint("k", i), Kind: "late", Delay: 40*sec + time.Duration(i)})
		}
		k.Add(tasks...)
		for i := range resumed {
			k.Must(k.Pause(ctx, fmt.Sprint("k", i)))
			k.Add(durable.Task{Key: fmt.Sprint("more", i), Kind: "late", Delay: 35 * sec})
		}
		k.Add(durable.Task{Key: "between", Kind: "late", Delay: 45 * sec})
		k.After(52 * sec)
		for i := range resumed {
			k.Must(k.Resume(ctx, fmt.Sprint("k", i)))
		}
		if calls := k.RunsAfter(hour); len(calls) != full+resumed+early+1 || k.Len() != 0 {
			t.Errorf("%d have run, %d are left", len(calls), k.Len())
		}
	})
}

// A task whose payload the handler does not accept is counted once, however often the tasks around it are left in the
// store and read again.
func TestLimit_ofAPayloadThatIsNotTaken_countsItOnce(t *testing.T) {
	const many, newer = gateMost + 20, 20 // one of these after each of the last of those
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", sleeper(0))
		var tasks []durable.Task
		for i := range many {
			task := durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec + time.Duration(2*i)}
			tasks = append(tasks, task)
			if n := many - i; n <= newer {
				task.Key, task.PayloadVersion, task.Delay = fmt.Sprint("newer", n), 2, task.Delay+1
				tasks = append(tasks, task)
			}
		}
		k.Add(tasks...)
		k.Crash()
		k.After(hour)
		k.Handle("k", sleeper(sec), durable.WithConcurrency(1))
		k.Start()
		unhandled(k, newer)
		if calls := k.RunsAfter(hour); len(calls) != many || k.Len() != newer {
			t.Errorf("%d have run, %d are left", len(calls), k.Len())
		}
		unhandled(k, newer)
		if n, err := k.RemovePrefix(ctx, "newer"); n != newer || err != nil {
			t.Errorf("%d were removed: %v", n, err)
		}
		unhandled(k, 0)
	})
}

// Tasks are added, moved, removed and paused, and the process crashes, while tasks of a kind with a limit are left in
// the store. Whether its handler comes before Start or after, each task runs once, and not before it is due. A task
// that is running when the process ends runs again.
func TestLimit_whileTasksChange(t *testing.T) {
	const keys, steps = 6 * gateMost, 20_000
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		draw := rand.New(rand.NewPCG(1, 2))
		handle := func() {
			for _, kind := range []string{"a", "b"} {
				k.Handle(kind, sleeper(tick), durable.WithConcurrency(20), durable.WithRate(2000, sec, 50))
			}
		}
		handle()
		due := make(map[string]time.Time)    // of the tasks that must run
		began := make(map[durable.Token]int) // after how many crashes
		crashes := 0
		ran := func() {
			for _, c := range k.Runs() {
				at, ok := due[c.Key]
				before, again := began[c.Token]
				if began[c.Token] = crashes; again && before < crashes {
					continue
				}
				if started := k.Begin.Add(c.At); !ok || started.Before(at.Add(-2*tick)) {
					t.Fatalf("%v ran at %v, and is due at %v", c.Key, started, at)
				}
				delete(due, c.Key)
			}
		}
		delay := func() time.Duration { return time.Duration(draw.Int64N(int64(20 * sec))) }
		group := func() string { // half are in one group, and a quarter in none
			return []string{"most", "most", "", fmt.Sprint(draw.IntN(keys))}[draw.IntN(4)]
		}
		for step := range steps {
			key := fmt.Sprint(draw.IntN(keys))
			d := delay()
			at := time.Now().Add(d)
			switch draw.IntN(8) {
			case 0:
				if err := k.RemoveTask(ctx, key); err == nil {
					ran()
					delete(due, key)
				}
			case 1:
				if err := k.Reschedule(ctx, key, d); err == nil {
					ran()
					due[key] = at
				}
			default:
				task := durable.Task{Key: key, Kind: string('a' + byte(draw.IntN(2))), Group: group(), Delay: max(d, 1),
					Payload: make([]byte, 1<<draw.IntN(13))}
				if err := k.AddTask(ctx, task); err == nil {
					ran()
					due[key] = at
				}
			}
			if step%5000 == 4999 {
				ran()
				k.Crash("note")
				crashes++
				early := step%10_000 == 9999
				if early {
					handle()
				}
				k.After(time.Duration(draw.Int64N(int64(5 * sec))))
				k.Start()
				if !early {
					k.After(time.Duration(draw.Int64N(int64(5 * sec))))
					handle()
				}
			}
			switch draw.IntN(500) {
			case 0:
				k.Must(k.PauseKind(ctx, "a"))
			case 1, 2, 3:
				k.Must(k.ResumeKind(ctx, "a"))
			}
			if step%100 == 0 {
				k.After(tick)
			}
		}
		k.Must(k.ResumeKind(ctx, "a"))
		k.After(hour)
		ran()
		if len(due) != 0 || k.Len() != 0 {
			t.Errorf("%d have not run, and %d are left", len(due), k.Len())
		}
	})
}

// While its kind is paused, a task that waits for a limit waits only for the resumption.
func TestLimit_ofAPausedKind_nothingWaitsForIt(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, r *kit.Kit) {
		r.Handle("k", sleeper(time.Minute), durable.WithConcurrency(1))
		for i := range 3 {
			r.Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		r.After(2 * sec)
		waiting := func(when string, want int) {
			t.Helper()
			k := r.Kinds()[1]
			if k.Kind != "k" || k.Waiting != want || r.Stats().Limited != want {
				t.Errorf("%s: %+v, and %d are limited; want %d", when, k, r.Stats().Limited, want)
			}
		}
		waiting("at first", 1) // the third stays in the engine
		r.Must(r.PauseKind(ctx, "k"))
		waiting("paused", 0)
		r.Must(r.ResumeKind(ctx, "k"))
		r.After(sec)
		waiting("resumed", 1)
		r.Must(r.PauseAll(ctx))
		waiting("all paused", 0)
	})
}

func TestLimit_wrong(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		for name, o := range map[string]durable.KindOption{
			"concurrency 0 is not positive":                         durable.WithConcurrency(0),
			"concurrency -1 is not positive":                        durable.WithClusterConcurrency(-1),
			"rate of 0 within 1s with bursts of 1: all must":        durable.WithRate(0, sec, 1),
			"rate of 1 within 0s with bursts of 1: all must":        durable.WithRate(1, 0, 1),
			"rate of 1 within 1s with bursts of 0: all must be pos": durable.WithClusterRate(1, sec, 0),
		} {
			err := k.Scheduler.Handle("k", func(context.Context, durable.Run) error { return nil }, o)
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
}

// The runs on all nodes together stay within the limit while nodes join, leave, die and are cut off, as long as no run
// takes longer than a lease.
func TestLimit_ofAllNodes(t *testing.T) {
	const n, took = 7, 300 * time.Millisecond
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		var mu sync.Mutex // protects running and most
		running, most := 0, 0
		count := func(d int) {
			mu.Lock()
			defer mu.Unlock()
			running += d
			most = max(most, running)
		}
		join := func() *kit.Node {
			m := k.Join(nil).Start()
			m.Handle("k", func(context.Context, durable.Run) error {
				count(1)
				defer count(-1)
				time.Sleep(took)
				return nil
			}, durable.WithClusterConcurrency(n))
			return m
		}
		// ran fails the test unless the nodes are at the limit for about that share of the time, and never above it.
		ran := func(what string, d time.Duration, share float64) []kit.Call {
			t.Helper()
			k.Runs()
			calls := k.RunsAfter(d)
			mu.Lock()
			defer mu.Unlock()
			if want := share * n * float64(d/took); float64(len(calls)) < want || most > n {
				t.Errorf("%s: %d ran, want at least %.0f, and %d at the same time, want %d", what, len(calls), want, most, n)
			}
			return calls
		}
		join()
		for i := range 6000 {
			k.Nodes[0].Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		k.After(2 * sec)
		ran("one node", 10*sec, 0.9)
		join()
		join()
		ran("while two join", 2*lease, 0.3)
		on := make(map[string]int)
		for _, call := range ran("three nodes", 20*sec, 0.9) {
			on[call.Node]++
		}
		if len(on) != 3 {
			t.Errorf("%v", on)
		}
		k.Nodes[1].End()
		ran("after one has left", 10*sec, 0.8)
		k.Nodes[0].Link.SetDown(true) // the oldest: it is reaped, and returns as another member
		ran("while one is cut off", 3*lease, 0.3)
		k.Nodes[0].Link.SetDown(false)
		ran("when it is back", 2*lease, 0.3)
		for range 6 {
			join()
		}
		ran("while many join", 2*lease, 0.1)
		ran("more nodes than runs", 20*sec, 0.8)
		for _, m := range k.Nodes[3:] {
			m.End()
		}
		ran("when few are left", 10*sec, 0.8)
		for i := range 6000 {
			_ = k.Nodes[0].RemoveTask(ctx, fmt.Sprint(i)) // it fails if the task has run
		}
	})
}

// A node whose share shrinks gives back the tasks that it holds beyond its share, so that the joining node has tasks to
// run.
func TestLimit_ofAPartThatShrinks_theOtherNodeRunsWhatWaited(t *testing.T) {
	testkit.NotForRaces(t)
	const n = 4
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		join := func() { k.Join(nil).Start().Handle("k", sleeper(time.Minute), durable.WithClusterConcurrency(n)) }
		join()
		for i := range 2 * n { // as many as one node runs and holds
			k.Nodes[0].Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		if calls := k.RunsAfter(3 * sec); len(calls) != n {
			t.Errorf("these are the runs on one node: %v", calls)
		}
		join()
		calls := k.RunsAfter(3 * lease)
		for _, call := range calls {
			if call.Node != "node 2" {
				t.Errorf("%q has run on %s", call.Key, call.Node)
			}
		}
		if len(calls) != n/2 {
			t.Errorf("these are the runs on the node that has joined: %v", calls)
		}
		k.After(time.Hour)
	})
}

// Of a limit per node and a limit for all nodes the smaller one counts.
func TestLimit_ofANodeAndOfAllNodes_theLesserCounts(t *testing.T) {
	for _, own := range []int{2, 8} {
		kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
			k.Handle("k", sleeper(time.Minute),
				durable.WithConcurrency(own), durable.WithClusterConcurrency(8))
			k.After(3 * lease)
			for i := range 40 {
				k.Nodes[0].Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
			}
			k.After(10 * sec)
			of := make(map[string]int)
			for _, call := range k.Runs() {
				of[call.Node]++
			}
			if want := min(own, 4); of["node 1"] != want || of["node 2"] != want {
				t.Errorf("with %d a node and 8 in all, these are running: %v", own, of)
			}
		})
	}
}

// If a run of a kind with a limit ends its goroutine, it makes room for the next.
func TestLimit_ofHandlersThatEndTheirGoroutine_continues(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", func(context.Context, durable.Run) error { runtime.Goexit(); return nil },
			durable.WithConcurrency(1), durable.WithRetry(1, sec, sec))
		for i := range 10 {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		if calls := k.RunsAfter(5 * sec); len(calls) != 10 {
			t.Errorf("%v", calls)
		}
	})
}

// Few of the large tasks that wait for a limit are in memory.
func TestLimit_ofLargeTasks_holdsFew(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		const tasks, most = 20, 5
		k.Handle("k", sleeper(time.Minute), durable.WithConcurrency(1))
		payload := make([]byte, durable.MaxPayload)
		for i := range tasks {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec, Payload: payload})
		}
		k.After(2 * sec)
		if held, _ := durable.InMemory(k.Scheduler, "k"); held == 0 || held > most {
			t.Errorf("%d are in memory", held)
		}
		if calls := k.RunsAfter(tasks * time.Minute); len(calls) != tasks {
			t.Errorf("%d of %d have run", len(calls), tasks)
		}
	})
}

// Shutdown leaves tasks that wait for a limit to the next process.
func TestLimit_atShutdown_leavesWhatWaits(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		const tasks = 20
		k.Handle("k", sleeper(sec), durable.WithConcurrency(1))
		for i := range tasks {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		k.After(2*sec + sec/2)
		k.Must(k.Shutdown(ctx))
		calls := len(k.Runs())
		k.Crash()
		if left := k.Len(); calls != 2 || left != tasks-calls {
			t.Errorf("%d have run, and %d of %d are left", calls, left, tasks)
		}
	})
}

// A node that loses its share of a limit while it asks for the limit's tasks claims none.
func TestLimit_ofAPartThatEnds_whileItsTasksAreClaimed(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		handle := func(m *kit.Node) { m.Handle("k", sleeper(20*time.Millisecond), durable.WithClusterConcurrency(1)) }
		first, second := k.Nodes[0], k.Nodes[1]
		handle(second)
		const n = 1000
		for i := range n {
			second.Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		k.After(3 * sec)
		asked := 0
		second.Link.SetFaults(func(method string) enginetest.Fault {
			if method != "Claim Fair" {
				return enginetest.Fault{}
			}
			asked++
			return enginetest.Fault{Delay: 800 * time.Millisecond, Fail: true}
		})
		k.After(3 * sec)
		handle(first)
		k.After(5 * lease)
		second.Link.SetFaults(nil)
		if asked == 0 {
			t.Error("no group had its turn")
		}
		if calls := k.RunsAfter(time.Minute); len(calls) != n {
			t.Errorf("%d tasks have run, want %d", len(calls), n)
		}
	})
}

// A renewal that reaches the engine after a later one does not bring back an older report: the other nodes divide by
// the nodes that they see.
func TestLimit_renewalThatIsLate_hidesNoNode(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		late, other := k.Nodes[0], k.Nodes[1]
		k.After(lease)
		late.Link.Next("Renew", enginetest.Fault{Delay: 7 * lease / 10}) // it is given up after half a lease
		k.After(lease / 2)
		late.Handle("k", sleeper(0), durable.WithClusterConcurrency(1))
		seen, hidden := 0, 0
		for range 200 {
			k.After(lease / 100)
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

// A turnsWatch records the group after which a node asks for turns, and fails every second such call.
type turnsWatch struct {
	engine.Engine
	after []string
}

func (w *turnsWatch) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	if !r.Fair {
		return w.Engine.Claim(ctx, r)
	}
	if w.after = append(w.after, r.Group); len(w.after)%2 == 0 {
		return engine.Claims{}, enginetest.ErrFault
	}
	return w.Engine.Claim(ctx, r)
}

// After a failed call the turns continue where they were.
func TestLimit_turnsThatFail_continue(t *testing.T) {
	const n = 500
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		w := new(turnsWatch)
		m := k.Join(func(to engine.Engine) engine.Engine { w.Engine = to; return w }).Start()
		m.Handle("k", sleeper(10*time.Millisecond), durable.WithConcurrency(1))
		for i := range n {
			m.Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Group: fmt.Sprintf("%03d", i), Delay: sec})
		}
		k.After(time.Minute)
		m.End()
		if calls := k.Runs(); len(calls) != n {
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

// A joining node takes no share before every other node must have seen it, including a node that renews its longer
// lease less often.
func TestLimit_ofAllNodes_whoseLeasesDiffer(t *testing.T) {
	const n, took, long = 4, 300 * time.Millisecond, 10 * lease
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		var mu sync.Mutex // protects running and most
		running, most := 0, 0
		join := func(opts ...durable.Option) {
			k.Join(nil, opts...).Start().Handle("k", func(context.Context, durable.Run) error {
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(took)
				mu.Lock()
				running--
				mu.Unlock()
				return nil
			}, durable.WithClusterConcurrency(n))
		}
		join(durable.WithLease(long))
		for i := range 1000 {
			k.Nodes[0].Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		k.After(long/4 + sec) // until it has just renewed its lease
		join()
		k.After(2 * long)
		calls := k.Runs()
		mu.Lock()
		defer mu.Unlock()
		on := make(map[string]int)
		for _, call := range calls {
			on[call.Node]++
		}
		if most != n || len(on) != 2 {
			t.Errorf("%d ran at the same time, want %d, on %v", most, n, on)
		}
	})
}

// The nodes together start no more than the rate allows.
func TestLimit_rateOfAllNodes(t *testing.T) {
	const n, burst = 40, 4
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		join := func() {
			k.Join(nil).Start().Handle("k", sleeper(0), durable.WithClusterRate(n, sec, burst))
		}
		join()
		for i := range 3000 {
			k.Nodes[0].Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: 2 * sec})
		}
		k.After(5 * sec)
		for range 5 { // more than burst
			join()
		}
		k.After(20 * sec)
		k.Nodes[1].End()
		calls := k.RunsAfter(20 * sec)
		if ran := len(calls); ran < 40*n*8/10 {
			t.Errorf("%d ran", ran)
		}
		for i := range calls {
			for j := i; j < len(calls); j++ {
				d := calls[j].At - calls[i].At
				if most := burst + int(d*n/sec) + 1; j-i+1 > most {
					t.Fatalf("%d runs within %v; %d are allowed", j-i+1, d, most)
				}
			}
		}
	})
}

// The groups of the tasks held for a limit take turns, and each group runs its earliest task.
func TestLimit_groupsTakeTurns(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", sleeper(100*time.Millisecond), durable.WithConcurrency(1))
		add := func(group string, n int, delay time.Duration) {
			for i := range n {
				k.Add(durable.Task{
					Key: fmt.Sprint(group, i), Kind: "k", Group: group, Delay: delay + time.Duration(i)*time.Millisecond,
				})
			}
		}
		add("many", 500, sec)
		add("few", 10, 2*sec)
		add("", 5, 2*sec)
		if i := k.Info("few3"); i.Group != "few" {
			t.Errorf("%+v", i)
		}
		if err := k.RemoveTask(ctx, "few3"); err != nil {
			t.Error(err)
		}
		k.After(2*sec + sec/20)
		k.Runs()
		k.After(2 * sec)
		last, ran := map[string]int{}, map[string]int{}
		for _, c := range k.Runs() {
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

// A run that starts up to a tick after its token does not make the next one late, however few may start at once.
func TestLimit_rate_isKeptOnTheAverage(t *testing.T) {
	const n, wide, tasks = 20, 30 * time.Millisecond, 101
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", sleeper(0), durable.WithRate(n, sec, 1))
		for i := range tasks {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		calls := k.RunsAfter(20 * sec)
		if len(calls) != tasks {
			t.Fatalf("%d runs", len(calls))
		}
		if took := calls[tasks-1].At - calls[0].At; took < (tasks-1)*sec/n-wide || took > (tasks-1)*sec/n+2*wide {
			t.Errorf("%d runs took %v, want %v", tasks, took, (tasks-1)*sec/n)
		}
		for i := range calls {
			for j := range calls[:i] {
				if d := calls[i].At - calls[j].At; i-j+1 > 1+int(n*(d+wide)/sec) {
					t.Fatalf("%d started within %v, from %v on", i-j+1, d, calls[j].At)
				}
			}
		}
	}, durable.WithTick(wide))
}

// While the engine takes long to confirm, the starts that the rate allows do not accumulate and then happen at once.
func TestLimit_rateWhileTheEngineIsSlow(t *testing.T) {
	const n, burst = 100, 2
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		m := k.Nodes[0]
		m.Handle("k", sleeper(0), durable.WithRate(n, sec, burst))
		for i := range 3 * n {
			m.Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec})
		}
		m.Link.SetFaults(func(method string) (f enginetest.Fault) {
			if at := time.Since(k.Begin); method == "Confirm" && at > 2*sec && at < 2*sec+sec/3 {
				f.Delay = 2*sec + sec/3 - at
			}
			return f
		})
		calls := k.RunsAfter(10 * sec)
		for i := range calls {
			for j := range calls[:i] {
				if t2 := calls[i].At - calls[j].At; i-j+1 > burst+1+int(n*(t2+tick)/sec) {
					t.Fatalf("%d started within %v, from %v on", i-j+1, t2, calls[j].At)
				}
			}
		}
		if len(calls) != 3*n {
			t.Errorf("%d runs", len(calls))
		}
	})
}

// A countedOwn is an own engine that counts the calls about the claims of its scheduler.
type countedOwn struct {
	engine.Owned
	engine.Waker
	releases, walks atomic.Int64
}

func (c *countedOwn) Release(ctx context.Context, by engine.MemberID, claims []engine.Claim) error {
	c.releases.Add(1)
	return c.Owned.Release(ctx, by, claims)
}

func (c *countedOwn) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	if over.Order == engine.Held {
		c.walks.Add(1)
	}
	return c.Owned.Walk(ctx, over)
}

// A scheduler that releases tasks of a limited kind on its own engine, because others are due before, does not read its claims
// back: no other process can have locked them.
func TestLimits_onAnOwnEngine_tasksAreReleasedWithoutALook(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		own := kit.Own(k.KV).(engine.Owned)
		e := &countedOwn{Owned: own, Waker: own.(engine.Waker)}
		n := k.Use(durable.New(ctx, e, durable.WithLogger(testkit.Quiet()))).Start()
		n.Handle("k", func(context.Context, durable.Run) error { time.Sleep(time.Millisecond); return nil }, durable.WithConcurrency(10))
		add := func(name string, tasks int, delay time.Duration) {
			var all []durable.Task
			for i := range tasks {
				all = append(all, durable.Task{Key: fmt.Sprint(name, i), Kind: "k", Delay: delay})
			}
			n.Add(all...)
		}
		const tasks = 3 * gateMost
		add("late", 2*gateMost, 1900*time.Millisecond)
		k.After(500 * time.Millisecond)
		add("early", gateMost, time.Second)
		k.After(time.Minute)
		if ran := len(k.Runs()); ran != tasks {
			t.Errorf("%d of %d tasks have run", ran, tasks)
		}
		if e.releases.Load() == 0 || e.walks.Load() > 0 {
			t.Errorf("%d releases, and %d looks at the claims", e.releases.Load(), e.walks.Load())
		}
	})
}
