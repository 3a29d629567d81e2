// SPDX-License-Identifier: MIT

package durable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/author"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/durable/internal/task"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// Three nodes call random verbs on few keys, while answers are lost, calls are delayed, leases expire, the engine is
// away, and nodes crash. At the end the ledger must report no violation. The tasks are of all sorts, and their runs end
// in every way.
func TestSimulation(t *testing.T) {
	t.Parallel()
	counts := make(map[string]int)
	seeds := walks(t, simWalks, 200, 30, func(t *testing.T, seed uint64) {
		simulate(t, seed, "", simEngine()).agrees(t, counts)
	})
	t.Log(counts)
	for _, what := range []string{"add", "set", "remove", "move", "pause", "resume", "calls", "parked",
		"calls that took too long", "next runs of calendars", "pause kind", "resume kind", "remove prefix",
		"move prefix", "runs that are put off", "snoozed", "expired", "expired in Stats", "drain", "undrain",
		"schedule", "older sets", "history", "given up", "given up again", "suspended", "suspended, unseen by the wall clock"} {
		if seeds >= 100 && counts[what] < 10 {
			t.Errorf("there were only %d of %q", counts[what], what)
		}
	}
}

// The simulation must find each built-in fault, or it proves nothing. The numbers up to 15 refer to the details in the
// design of the cluster.
func TestSimulation_findsFaults(t *testing.T) {
	t.Parallel()
	testkit.NotForRaces(t)
	// The promises that some of them must break. The others break a promise that no other fault breaks, or that is not
	// the point.
	of := map[string][]string{
		"42 a late commit is not refused":             {"D1"},
		"43 a suspension is not noticed":              {"D1"},
		"44 settings are valid after a suspension":    {"D11", "drain"},
		"45 a start is confirmed before a suspension": {"D4"},
	}
	for _, fault := range []string{
		"1 no fence", "2 the fence checks no owner", "3 ends of runs at any revision", "4 the node's own clock",
		"5 no reconciliation", "9 a cursor over due times", "10 reaping after an outage",
		"15 confirmed without a worker", "16 a pause is forgotten", "17 a pause leaves the claim",
		"18 a resumption loses the task", "19 a resumption is forgotten", "20 a resumption begins the wait again",
		"21 off the grid", "22 parked, and tried again", "23 tried again too early", "24 no bound on a run",
		"25 no limit on a node", "26 no limit on all nodes", "27 a pause of a kind is forgotten",
		"28 a node does not read what is paused", "29 the jitter is drawn again", "30 a burst has no end",
		"31 a prefix is removed in part", "32 one of a group of commits is lost", "33 a snooze counts as failed",
		"34 late runs start", "35 a drain is forgotten", "36 the version of a set is forgotten",
		"37 a part of the history is lost", "38 a run that is given up does not count",
		"39 repeating tasks are parked", "40 the next run has fewer attempts",
		"41 the history says given up of every failure", "42 a late commit is not refused",
		"43 a suspension is not noticed",
		"44 settings are valid after a suspension", "45 a start is confirmed before a suspension", "46 nobody waits for a run that may begin",
	} {
		t.Run(fault, func(t *testing.T) {
			for seed := range uint64(simWalks) {
				l := simulate(t, seed+1, fault, simEngine())
				i := slices.IndexFunc(l.broken, func(what string) bool {
					promise, _, _ := strings.Cut(what, ":")
					return of[fault] == nil || slices.Contains(of[fault], promise)
				})
				if i >= 0 {
					t.Logf("seed %d: %s", seed+1, l.broken[i])
					return
				}
			}
			t.Errorf("%d seeds have not found it", simWalks)
		})
	}
}

const (
	simWalks     = 1000
	simNodes     = 3
	simLease     = 400 * time.Millisecond
	simLongLease = 5 * time.Second
	simAttempts  = 3
	simVerbs     = 12 // of each node
	simKeys      = 6
	simBound     = 500 * time.Millisecond // of a run of the kind "bounded"
	simLimit     = 1                      // of the runs of the kind "limited" on each node
	simShared    = 1                      // of the runs of the kind "shared" on all nodes
	simVersions  = 3                      // of the set of declared tasks; then a program declares none
)

// A simulation is one seed.
type simulation struct {
	seed   uint64
	fault  string
	engine engine.Engine
	ledger *ledger
	lease  time.Duration
	nodes  [simNodes]*simNode
	calls  sync.WaitGroup // of calls that no node waits for

	machines [simNodes]*simMachine
}

type simNode struct {
	*durable.Scheduler
	link    *enginetest.Link
	crashed atomic.Bool
	slow    atomic.Int64 // the extra time of each call
}

// simulate runs a seed on an empty engine, with or without a built-in fault, and returns its ledger.
func simulate(t *testing.T, seed uint64, fault string, on engine.Engine) *ledger {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // events of one instant happen mostly in the same order
	var l *ledger
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(58 * time.Second))) // a minute begins in between
		s := &simulation{seed: seed, fault: fault, engine: on, lease: simLease}
		if seed%4 == 0 { // a node may be suspended for longer than the settings are valid, and stay a member
			s.lease = simLongLease
		}
		s.ledger = newLedger(flawed{s.engine, fault}, s.lease, simAttempts)
		for i := range s.machines {
			s.machines[i] = &simMachine{}
		}
		s.ledger.machines = s.machines[:]
		s.ledger.bounds["bounded"] = simBound
		s.ledger.limits["limited"], s.ledger.shared["shared"] = simLimit, simShared
		l = s.ledger
		for i := range s.nodes {
			s.nodes[i] = s.join(t, i)
		}
		var verbs sync.WaitGroup
		for i := range s.nodes {
			verbs.Go(func() { s.verbs(i) })
			verbs.Go(func() { s.deploy(i) })
		}
		verbs.Go(func() { s.trouble() })
		verbs.Go(func() { s.suspend() })
		verbs.Wait()
		for _, n := range s.nodes {
			n.slow.Store(0)
			if !n.crashed.Load() {
				n.link.SetDown(false)
			}
		}
		s.unpause()
		s.undrain()
		s.declared()
		s.settle()
		s.history()
		expired := 0
		for _, n := range s.nodes {
			expired += int(n.Stats().Expired)
			_ = n.Shutdown(ctx) // a crashed node cannot end its membership
		}
		s.calls.Wait()
		if l.counts["expired in Stats"] = expired; expired > l.counts["expired"] { // fewer, if answers were lost
			l.breaks("expires", "%d tasks have expired, and Stats counts %d", l.counts["expired"], expired)
		}
	})
	return l
}

// A restartable engine can be restarted. That rolls transactions back.
type restartable struct {
	*enginetest.Locks
	restart func()
}

func (r restartable) Restart() {
	r.RollBack()
	r.restart()
}

// simEngine returns an empty engine for all nodes. A restart of it loses the starts.
func simEngine() engine.Engine {
	m := memory.New()
	return restartable{enginetest.NewLocks(m.Shared()), func() {
		m.Restart()
		if err := kit.LoseStarts(m); err != nil {
			panic(err)
		}
	}}
}

// draws returns the random numbers of one part of the simulation.
func (s *simulation) draws(part ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, part...)
	return rand.New(rand.NewPCG(s.seed, h.Sum64()))
}

// open returns a node of that name, on a machine, over a slow link. The node is not started.
func (s *simulation) open(t *testing.T, name, workers int, on *simMachine) *simNode {
	n := &simNode{link: enginetest.NewLink(s.ledger)}
	over := s.over(onSimMachine{slow{n.link, s.draws("answers", name), new(sync.Mutex)}, on}, name)
	clocks := on.clocks
	switch s.fault {
	case "43 a suspension is not noticed", "44 settings are valid after a suspension":
		over, clocks = unaware{over, on}, on.monotonic
	case "45 a start is confirmed before a suspension":
		clocks = on.monotonic
	}
	var err error
	n.Scheduler, err = durable.New(ctx, over, durable.WithTick(tick), durable.WithLease(s.lease),
		durable.WithPoolSize(workers), durable.WithNodeName(fmt.Sprint(name)), durable.WithLogger(testkit.Quiet()),
		durable.WithDraw(locked(s.draws("retry", name).Float64)), durable.WithClocks(clocks))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// over returns the engine of a node, with the fault if it belongs to the node.
func (s *simulation) over(to engine.Engine, node int) engine.Engine {
	switch s.fault {
	case "4 the node's own clock":
		if node == 0 {
			return ahead{to}
		}
	case "5 no reconciliation":
		return &forgetful{Engine: to, told: make(map[engine.Claim]bool)}
	case "9 a cursor over due times":
		return &cursor{Engine: to}
	case "15 confirmed without a worker":
		return &hasty{Engine: to, calls: &s.calls, held: make(map[engine.Claim]bool)}
	case "20 a resumption begins the wait again", "21 off the grid", "29 the jitter is drawn again",
		"30 a burst has no end":
		return untimely{to, s.fault}
	case "28 a node does not read what is paused":
		return &blind{Engine: to}
	case "38 a run that is given up does not count", "40 the next run has fewer attempts",
		"41 the history says given up of every failure":
		return resigned{to, s.fault}
	case "42 a late commit is not refused", "43 a suspension is not noticed":
		return timeless{to}
	case "31 a prefix is removed in part":
		return short{to}
	}
	return to
}

func (s *simulation) join(t *testing.T, i int) *simNode {
	n := s.open(t, i, 2, s.machines[i])
	retry := durable.WithRetry(simAttempts, 10*time.Millisecond, 50*time.Millisecond)
	history := durable.WithHistory(durable.MaxHistory, time.Hour)
	bounded := []durable.KindOption{retry, history, durable.WithTimeout(simBound)}
	if s.fault == "24 no bound on a run" {
		bounded = bounded[:2]
	}
	limited, shared := durable.WithConcurrency(simLimit), durable.WithClusterConcurrency(simShared)
	switch s.fault {
	case "25 no limit on a node":
		limited = durable.WithConcurrency(simLimit + 1)
	case "26 no limit on all nodes":
		shared = durable.WithConcurrency(simShared)
	}
	few := []durable.KindOption{retry, history, limited}
	if s.fault == "39 repeating tasks are parked" {
		few = append(few, durable.WithParkRepeating())
	}
	work := func(ctx context.Context, run durable.Run) error { return s.work(ctx, i, run) }
	err := errors.Join(n.Handle("work", work, retry, history), n.Handle("bounded", work, bounded...),
		n.Handle("limited", work, few...), n.Handle("shared", work, retry, history, shared))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	s.faults(i, n)
	return n
}

// locked makes f safe for concurrent use.
func locked(f func() float64) func() float64 {
	var mu sync.Mutex
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return f()
	}
}

// faults starts the faults of single calls.
func (s *simulation) faults(i int, n *simNode) {
	rnd := s.draws("faults", i)
	n.link.SetFaults(func(string) enginetest.Fault {
		f := enginetest.Fault{Delay: time.Duration(n.slow.Load())}
		switch p := rnd.IntN(1000); {
		case p < 30:
			f.Lose = true
		case p < 60:
			f.Fail = true
		case p < 110:
			f.Delay += time.Duration(rnd.Int64N(int64(30 * time.Millisecond)))
		case p < 115:
			f.Delay += time.Duration(rnd.Int64N(int64(6 * simLease)))
			f.Lose = rnd.IntN(2) == 0
		}
		return f
	})
}

// work is the handler on a node.
func (s *simulation) work(ctx context.Context, node int, run durable.Run) (err error) {
	end := s.ledger.call(ctx, node, run)
	var e ended
	defer func() {
		e.well = err == nil
		end(e)
	}()
	rnd := s.draws("work", string(run.Payload), run.Seq, run.Attempt, run.Fence) // a snoozed run has the same number
	took := time.Duration(rnd.Int64N(int64(20 * time.Millisecond)))
	switch p := rnd.IntN(10); {
	case p < 2:
		took = time.Duration(rnd.Int64N(int64(200 * time.Millisecond)))
	case p < 3:
		took = time.Duration(rnd.Int64N(int64(2 * simLease)))
	}
	var done <-chan struct{}
	if rnd.IntN(2) == 0 {
		done = ctx.Done()
	}
	select {
	case <-time.After(took):
		s.machines[node].wake()
	case <-done:
		s.machines[node].wake()
		return ctx.Err()
	}
	switch p := rnd.IntN(100); {
	case p < 8, p < 80 && run.Kind == "limited": // most of these runs are given up
		return kit.ErrFail
	case p < 10:
		e.park = true
		if s.fault == "22 parked, and tried again" {
			return kit.ErrFail
		}
		return durable.Park(kit.ErrFail)
	case p < 15:
		e.wait = time.Millisecond + time.Duration(rnd.Int64N(int64(300*time.Millisecond)))
		if s.fault == "23 tried again too early" {
			return kit.ErrFail
		}
		return durable.RetryAfter(e.wait, kit.ErrFail)
	case p < 20:
		e.done = true
		run.Complete("it is done already")
	case p < 28:
		e.snooze, e.wait = true, time.Duration(rnd.Int64N(int64(300*time.Millisecond)))
		if s.fault == "33 a snooze counts as failed" {
			return durable.RetryAfter(e.wait, kit.ErrFail)
		}
		return durable.Snooze(e.wait)
	}
	return nil
}

// jitter returns the Jitter of the tasks of a key.
func jitter(key string) time.Duration { return time.Duration(len(key)) * 100 * time.Millisecond }

// task returns a new task.
func (s *simulation) task(rnd *rand.Rand, key string) durable.Task {
	task := durable.Task{Key: key, Kind: "work", Payload: fmt.Append(nil, rnd.Uint64())}
	task.Group = key[:1+len(key)%2]
	if i := rnd.IntN(10); i < 8 {
		task.Kind = []string{"bounded", "bounded", "bounded", "bounded", "limited", "limited", "shared", "shared"}[i]
	}
	if rnd.IntN(3) == 0 {
		task.Times = 2 + rnd.IntN(3)
		task.Interval = time.Duration(100+rnd.IntN(200)) * time.Millisecond
	} else if rnd.IntN(5) == 0 {
		task.Cron, task.Jitter = "* * * * *", jitter(key)
		task.Times = 1 + rnd.IntN(2)
	} else if rnd.IntN(3) == 0 {
		task.Expires = time.Duration(1 + rnd.Int64N(int64(1500*time.Millisecond)))
	}
	d := time.Millisecond + time.Duration(rnd.Int64N(int64(3*time.Second/2)))
	switch rnd.IntN(6) {
	case 0:
		task.At = time.Now().Add(d)
	case 1:
		task.At = time.Now().Add(-d)
	case 2, 3:
		if task.Interval == 0 && task.Cron == "" {
			task.Delay = d
		}
	default:
		task.Delay = d
	}
	return task
}

// bursting returns a new task for which a burst of SetTask makes one run.
func (s *simulation) bursting(rnd *rand.Rand, key string) durable.Task {
	return durable.Task{Key: key, Kind: "work", Payload: fmt.Append(nil, rnd.Uint64()), Delay: 1500 * time.Millisecond,
		MaxDelay: 2 * time.Second}
}

// pauseKind pauses or resumes a kind, or all of them, on a node.
func (s *simulation) pauseKind(rnd *rand.Rand, node int, what string) {
	s.pauseKindOn(rnd, s.nodes[node], node, what)
}

// pauseKindOn pauses or resumes a kind on a node, which has a number in the ledger.
func (s *simulation) pauseKindOn(rnd *rand.Rand, n *simNode, number int, what string) {
	kind := []string{"work", "bounded", "limited", "shared", allKinds}[rnd.IntN(5)]
	v := s.ledger.verb(what, durable.Task{Kind: kind})
	s.ledger.kindPaused(v, number, kindVerb(n.Scheduler, what, kind))
}

func kindVerb(s *durable.Scheduler, what, kind string) error {
	switch {
	case what == "pause kind" && kind == allKinds:
		return s.PauseAll(ctx)
	case what == "pause kind":
		return s.PauseKind(ctx, kind)
	case kind == allKinds:
		return s.ResumeAll(ctx)
	}
	return s.ResumeKind(ctx, kind)
}

// unpause resumes kinds that have been paused for long enough to observe the pause.
func (s *simulation) unpause() {
	notes, err := notesOf(s.engine, pausesNote)
	if err != nil {
		panic(err)
	}
	if len(notes) == 0 {
		return
	}
	time.Sleep(3 * time.Second)
	n := s.nodes[s.alive()]
	for _, kind := range []string{"work", "bounded", "limited", "shared", allKinds} {
		v := s.ledger.verb("resume kind", durable.Task{Kind: kind})
		var err error
		for range 100 {
			if err = kindVerb(n.Scheduler, "resume kind", kind); err == nil {
				break
			}
		}
		s.ledger.kindPaused(v, 0, err)
	}
}

// undrain ends the drain of a node that has not crashed. If the other nodes stay drained, it must run all tasks.
func (s *simulation) undrain() { s.drainNode(s.alive(), s.alive(), "undrain", 100) }

// drainNode drains a node or ends its drain, by a call on a node. It calls until that returns nil, but not too often.
func (s *simulation) drainNode(on, node int, what string, tries int) {
	name := fmt.Sprint(node)
	for err := error(kit.ErrFail); err != nil && tries > 0; tries-- {
		v := s.ledger.verb(what, durable.Task{Key: name})
		if what == "drain" {
			err = s.nodes[on].Drain(ctx, name)
		} else {
			err = s.nodes[on].Undrain(ctx, name)
		}
		s.ledger.drainReturned(v, err)
	}
}

// set returns the tasks that a version of the program declares.
func (s *simulation) set(version int64) durable.TaskSet {
	set := durable.TaskSet{Prefix: setPrefix, Version: version}
	if version > simVersions {
		return set
	}
	const ms = time.Millisecond
	set.Tasks = []durable.Task{{Key: sameKey, Kind: "work", Payload: []byte("same"), Interval: 200 * ms}}
	rnd := s.draws("set", version)
	for i := range 4 {
		task := durable.Task{Key: fmt.Sprint(setPrefix, i), Kind: []string{"work", "shared"}[rnd.IntN(2)]}
		task.Payload, task.Interval = fmt.Append(nil, i, rnd.IntN(2)), time.Duration(200+100*rnd.IntN(2))*ms
		if rnd.IntN(3) > 0 {
			set.Tasks = append(set.Tasks, task)
		}
	}
	return set
}

// deploy starts versions of the program on a node, in any order.
func (s *simulation) deploy(i int) {
	rnd := s.draws("deploy", i)
	for range 2 {
		time.Sleep(time.Duration(rnd.Int64N(int64(2 * time.Second))))
		s.machines[i].wake()
		s.schedule(i, 1+rnd.Int64N(simVersions))
	}
}

// schedule declares a version of the set on a node until that returns nil or the node crashes.
func (s *simulation) schedule(i int, version int64) bool {
	n := s.nodes[i]
	brief, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for brief.Err() == nil && !n.crashed.Load() {
		returned := s.ledger.declares(version)
		if r, err := n.Schedule(brief, s.set(version)); err == nil {
			returned(r)
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// declared checks the declared tasks, and then declares none. A version whose last node has crashed is started again.
func (s *simulation) declared() {
	l := s.ledger
	if l.deployed > l.declared {
		s.schedule(s.alive(), l.deployed)
	}
	const patience = 20 * time.Second
	var stored []engine.Stored
	late := "all"
	for began := time.Now(); late != "" && time.Since(began) < patience; {
		time.Sleep(3 * time.Second) // drained nodes must start none of them
		var err error
		stored, err = collected(s.engine.Walk(ctx, engine.Range{Order: engine.ByKey, From: setPrefix}))
		if err != nil {
			panic(err)
		}
		stored = slices.DeleteFunc(stored, func(s engine.Stored) bool { return !strings.HasPrefix(s.Key, setPrefix) })
		late = ""
		for _, task := range stored {
			if _, info := token(task.Record); info.State == durable.Waiting && time.Since(info.Next) > 2*time.Second {
				late += fmt.Sprintf(" %s (owner %d, due since %v)", task.Key, task.Owner, time.Since(info.Next))
			}
		}
	}
	l.mu.Lock()
	if late != "" {
		l.breaks("D3", "these declared tasks do not run:%s", late)
	}
	want, got := map[string]string{}, map[string]string{}
	for _, task := range s.set(l.declared).Tasks {
		want[task.Key] = fmt.Sprint(task.Kind, " ", string(task.Payload), " ", task.Interval)
	}
	for _, task := range stored {
		_, info := token(task.Record)
		got[task.Key] = fmt.Sprint(info.Kind, " ", string(info.Payload), " ", info.Interval)
	}
	if !maps.Equal(want, got) {
		l.breaks("set", "version %d has the tasks %v, and declares %v", l.declared, got, want)
	}
	added := map[uint64]bool{}
	for t := range l.put {
		if t.Key == sameKey {
			added[t.Generation] = true
		}
	}
	if len(added) != 1 {
		l.breaks("set", "%s was added %d times", sameKey, len(added))
	}
	l.mu.Unlock()
	gone := s.schedule(s.alive(), simVersions+1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !gone {
		l.breaks("set", "Schedule does not return nil")
	}
}

// history waits until the history has all attempts of the nodes that have not crashed, each once.
func (s *simulation) history() {
	const patience = 20 * time.Second
	var got, want map[pastRun]int
	for began := time.Now(); time.Since(began) < patience; time.Sleep(500 * time.Millisecond) {
		h, err := s.nodes[s.alive()].History(ctx, durable.HistoryQuery{Limit: durable.MaxHistory})
		if err != nil {
			continue
		}
		s.ledger.mu.Lock()
		want = maps.Clone(s.ledger.past)
		s.ledger.mu.Unlock()
		got = map[pastRun]int{}
		for _, r := range h.Runs {
			s.ledger.stored(r)
			if !r.Expired && !isInterrupted(r) { // the ledger has only calls of handlers
				got[pastRun{r.Token, r.Node, r.Attempt.Attempt, r.Snoozed}]++
			}
		}
		for i, n := range s.nodes {
			if n.crashed.Load() {
				lost := func(r pastRun, _ int) bool { return r.node == fmt.Sprint(i) }
				maps.DeleteFunc(got, lost)
				maps.DeleteFunc(want, lost)
			}
		}
		if maps.Equal(got, want) {
			s.ledger.mu.Lock()
			defer s.ledger.mu.Unlock()
			s.ledger.counts["history"]++
			return
		}
	}
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	for r, n := range want {
		if got[r] != n {
			s.ledger.breaks("history", "%#v is %d times in it, and not %d", r, got[r], n)
		}
	}
	for r, n := range got {
		if want[r] == 0 {
			s.ledger.breaks("history", "%#v is %d times in it, and no such call has ended", r, n)
		}
	}
	s.ledger.breaks("history", "there are %d different attempts, and not %d", len(got), len(want))
}

// isInterrupted reports whether the entry is of an attempt that another node has found to be over, because its node crashed or lost its lease.
func isInterrupted(r durable.PastRun) bool {
	return r.Started.Equal(r.Ended) && strings.HasPrefix(r.Failure, "the process ended, or its lease expired")
}

// alive returns a node that has not crashed.
func (s *simulation) alive() int {
	return slices.IndexFunc(s.nodes[:], func(n *simNode) bool { return !n.crashed.Load() })
}

// verbs calls the verbs of a node.
func (s *simulation) verbs(i int) {
	n, rnd, l := s.nodes[i], s.draws("verbs", i), s.ledger
	for range simVerbs {
		time.Sleep(time.Duration(rnd.Int64N(int64(400 * time.Millisecond))))
		s.machines[i].wake()
		key := fmt.Sprint("k", rnd.IntN(simKeys))
		only := durable.Task{Key: key}
		if n.crashed.Load() {
			return
		}
		switch p := rnd.IntN(130); {
		case p >= 127:
			s.drainNode(i, rnd.IntN(simNodes), "undrain", 1)
		case p >= 124:
			s.drainNode(i, rnd.IntN(simNodes), "drain", 1)
		case p >= 121:
			v := l.verb("remove prefix", only)
			_, err := n.RemovePrefix(ctx, key)
			l.returned(v, err)
		case p >= 118:
			v := l.verb("move prefix", only)
			_, err := n.ReschedulePrefix(ctx, key, time.Duration(rnd.Int64N(int64(time.Second))))
			l.returned(v, err)
		case p >= 110:
			task := s.bursting(rnd, "burst")
			v := l.verb("set", task)
			l.returned(v, n.SetTask(ctx, task))
		case p >= 105:
			s.pauseKind(rnd, i, "pause kind")
		case p >= 100:
			s.pauseKind(rnd, i, "resume kind")
		case p < 35:
			tasks := []durable.Task{s.task(rnd, key)}
			if rnd.IntN(4) == 0 {
				tasks = append(tasks, s.task(rnd, key+"too"))
			}
			v := l.verb("add", tasks...)
			l.returned(v, n.AddTask(ctx, tasks...))
		case p < 45:
			v := l.verb("remove", only)
			l.returned(v, n.RemoveTask(ctx, key))
		case p < 55:
			task := s.task(rnd, key)
			v := l.verb("set", task)
			l.returned(v, n.SetTask(ctx, task))
		case p < 67:
			v := l.verb("move", only)
			l.returned(v, n.Reschedule(ctx, key, time.Duration(rnd.Int64N(int64(time.Second)))))
		case p < 82:
			v := l.verb("pause", only)
			l.returned(v, n.Pause(ctx, key))
		case p < 92:
			v := l.verb("resume", only)
			l.returned(v, n.Resume(ctx, key))
		default:
			s.transaction(rnd, fmt.Sprint("tx", rnd.Uint32()))
		}
	}
}

// transaction adds a task in a transaction that is committed late.
func (s *simulation) transaction(rnd *rand.Rand, key string) {
	w, err := author.Add(s.task(rnd, key), time.Now().UnixNano())
	if err != nil {
		panic(err)
	}
	tx := s.engine.(interface {
		Begin() *enginetest.Transaction
	}).Begin()
	if _, err := tx.Write(ctx, w); err != nil {
		panic(err)
	}
	time.Sleep(time.Duration(rnd.Int64N(int64(2 * time.Second))))
	s.ledger.commit(tx, w)
}

// trouble causes the faults of whole nodes and of the engine.
func (s *simulation) trouble() {
	rnd := s.draws("trouble")
	some := func(most time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(most))) }
	crashes := 0
	for range 3 {
		time.Sleep(some(3 * time.Second / 2))
		i := rnd.IntN(simNodes)
		n := s.nodes[i]
		switch rnd.IntN(4) {
		case 0:
			if crashes++; crashes < simNodes {
				n.crashed.Store(true)
				n.link.SetDown(true)
			}
		case 1: // it is paused
			n.slow.Store(int64(simLease/2 + some(simLease)))
			time.Sleep(some(2 * simLease))
			n.slow.Store(0)
		case 2: // it is cut off
			s.away(some(2*simLease), i)
		case 3: // the engine is away
			s.away(some(3*simLease), 0, 1, 2)
			s.ledger.mu.Lock()
			if e, ok := s.engine.(interface{ Restart() }); ok { // it knows how long it has been up
				s.ledger.restart = time.Now()
				if s.fault != "10 reaping after an outage" {
					e.Restart()
				}
			}
			s.ledger.mu.Unlock()
		}
	}
}

// suspend suspends machines, often just after another node has paused a kind or drained the node.
func (s *simulation) suspend() {
	rnd := s.draws("suspend")
	some := func(most time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(most))) }
	for range 3 {
		time.Sleep(some(2 * time.Second))
		d := 20*time.Millisecond + some(200*time.Millisecond)
		switch rnd.IntN(4) {
		case 0:
			d = some(4 * simLease)
		case 1, 2:
			d = 2*time.Second + some(2*time.Second)
		}
		i, paused := rnd.IntN(simNodes), rnd.IntN(2) == 0
		other := (i + 1 + rnd.IntN(simNodes-1)) % simNodes
		switch rnd.IntN(4) {
		case 0:
			s.pauseKind(rnd, other, "pause kind")
		case 1:
			s.drainNode(other, i, "drain", 1)
		}
		s.machines[i].suspendSoon(d, paused)
		time.Sleep(some(200 * time.Millisecond))
		s.machines[i].begin()
		s.ledger.suspended(paused)
		time.Sleep(d)
	}
}

// away cuts nodes off for some time.
func (s *simulation) away(d time.Duration, nodes ...int) {
	for _, i := range nodes {
		s.nodes[i].link.SetDown(true)
	}
	time.Sleep(d)
	for _, i := range nodes {
		if n := s.nodes[i]; !n.crashed.Load() {
			s.faults(i, n)
		}
	}
}

// settle waits until every task has ended or is parked, and records the others. It resumes paused tasks, and does not
// wait for the next minute.
func (s *simulation) settle() {
	const patience = 20 * time.Second
	left := ""
	for began := time.Now(); time.Since(began) < patience; time.Sleep(200 * time.Millisecond) {
		left = ""
		for stored, err := range s.engine.Walk(ctx, engine.Range{
			After: engine.Position{Due: engine.None}, Until: math.MaxInt64 - 1,
		}) {
			if err != nil {
				panic(err)
			}
			left += fmt.Sprintf(" %s (revision %d, owner %d, due since %v)", stored.Key, stored.Revision, stored.Owner,
				time.Since(time.Unix(0, stored.Due)))
			s.hurry(stored)
		}
		if left == "" {
			s.ledger.lost()
			return
		}
	}
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.breaks("D3", "these tasks are left over:%s", left)
}

// hurry resumes a paused task, and moves a task that waits for the next minute.
func (s *simulation) hurry(task engine.Stored) {
	_, info := token(task.Record)
	only := durable.Task{Key: task.Key}
	switch n := s.nodes[s.alive()]; {
	case info.State == durable.Paused:
		v := s.ledger.verb("resume", only)
		s.ledger.returned(v, n.Resume(ctx, task.Key))
	case info.Cron != "" && time.Until(info.Next) > 3*time.Second:
		v := s.ledger.verb("move", only)
		s.ledger.returned(v, n.Reschedule(ctx, task.Key, 0))
	}
}

// A slow engine delays some of its answers.
type slow struct {
	engine.Engine
	rnd *rand.Rand
	mu  *sync.Mutex // protects rnd
}

func (s slow) answer() {
	s.mu.Lock()
	took := int64(0)
	switch p := s.rnd.IntN(1000); {
	case p < 100:
		took = s.rnd.Int64N(int64(60 * time.Millisecond))
	case p < 105:
		took = s.rnd.Int64N(int64(simLease * 3 / 2))
	}
	s.mu.Unlock()
	if took > 0 {
		time.Sleep(time.Duration(took))
	}
}

func (s slow) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch,
) ([]engine.Result, error) {
	defer s.answer()
	return s.Engine.Commit(ctx, by, batches)
}

func (s slow) Renew(ctx context.Context, id engine.MemberID, report []byte) ([]engine.Membership, int64, error) {
	if id != 0 {
		defer s.answer()
	}
	return s.Engine.Renew(ctx, id, report)
}

func (s slow) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	defer s.answer()
	return s.Engine.Claim(ctx, r)
}

func (s slow) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	if over.Order != engine.Held {
		return s.Engine.Walk(ctx, over)
	}
	return func(yield func(engine.Stored, error) bool) {
		all, err := collected(s.Engine.Walk(ctx, over))
		s.answer()
		yieldAll(all, err, yield)
	}
}

func (s slow) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration,
) ([]bool, int64, error) {
	defer s.answer()
	defer s.answer() // others may end a run that is about to begin
	return s.Engine.Confirm(ctx, by, claims, within)
}

// groupByOne is a fault for TestD2_startsThatAreConfirmedTogether, because a simulation has few starts at one tick.
const groupByOne = "a group of starts is confirmed by one of them"

// A flawed engine has a built-in fault.
type flawed struct {
	engine.Engine
	fault string
}

func (f flawed) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration,
) ([]bool, int64, error) {
	if f.fault == "46 nobody waits for a run that may begin" {
		within = 0
	}
	held, now, err := f.Engine.Confirm(ctx, by, claims, within)
	switch f.fault {
	case "1 no fence":
		if errors.Is(err, engine.ErrMemberGone) {
			held, now, err = make([]bool, len(claims)), time.Now().UnixNano(), nil
		}
		for i := range held {
			held[i] = true
		}
	case "2 the fence checks no owner":
		if errors.Is(err, engine.ErrMemberGone) {
			held, now, err = make([]bool, len(claims)), time.Now().UnixNano(), nil
		}
		for i := range held {
			stored, ok, _ := one(f.Engine, claims[i].Key)
			held[i] = ok && stored.Revision >= claims[i].Revision
		}
	case groupByOne:
		for i := range held {
			held[i] = slices.Contains(held, true)
		}
	case "17 a pause leaves the claim":
		for i := range held {
			stored, ok, _ := one(f.Engine, claims[i].Key)
			held[i] = held[i] || ok && isPaused(stored.Record)
		}
	}
	return held, now, err
}

func (f flawed) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch,
) ([]engine.Result, error) {
	if last := len(batches) - 1; last > 0 && f.fault == "32 one of a group of commits is lost" {
		results, err := f.Engine.Commit(ctx, by, batches[:last])
		return append(results, engine.Result{Written: make([]engine.Written, len(batches[last]))}), err
	}
	return f.Engine.Commit(ctx, by, changed(batches, func(w *engine.Write) {
		if w.Note {
			f.note(w)
			return
		}
		if f.fault == "34 late runs start" && w.Data != nil {
			rec, err := task.Decode(w.Record)
			if err != nil {
				panic(err)
			}
			rec.Expires = 0
			w.Record = rec.Write(w.If, w.Revision).Record
		}
		if w.If != engine.IfUnchanged {
			return
		}
		if f.fault == "3 ends of runs at any revision" {
			w.If = engine.IfPresent
			return
		}
		stored, ok, _ := one(f.Engine, w.Key)
		if !ok || w.Data == nil {
			return
		}
		switch was, is := isPaused(stored.Record), isPaused(w.Record); {
		case f.fault == "16 a pause is forgotten" && is && !was,
			f.fault == "19 a resumption is forgotten" && was && !is:
			w.Record, w.Hold = stored.Record, false
		case f.fault == "18 a resumption loses the task" && was && !is:
			w.Data = nil
		}
	}))
}

// note builds faults into notes.
func (f flawed) note(w *engine.Write) {
	switch {
	case f.fault == "27 a pause of a kind is forgotten" && w.Key == pausesNote:
		w.Data = []byte(`{"version":1}`)
	case f.fault == "35 a drain is forgotten" && w.Key == pausesNote:
		w.Data = bytes.ReplaceAll(w.Data, []byte(`"drained"`), []byte(`"forgotten"`))
	case f.fault == "36 the version of a set is forgotten" && strings.HasPrefix(w.Key, "declared "):
		w.Data = bytes.ReplaceAll(w.Data, []byte(`"version"`), []byte(`"forgotten"`))
	case f.fault == "37 a part of the history is lost" && strings.HasPrefix(w.Key, "history/"):
		w.Data = nil
	}
}

// changed returns the batches with each write changed.
func changed(batches []engine.Batch, change func(w *engine.Write)) []engine.Batch {
	own := make([]engine.Batch, len(batches))
	for i := range batches {
		own[i] = slices.Clone(batches[i])
		for j := range own[i] {
			change(&own[i][j])
		}
	}
	return own
}

func isPaused(r engine.Record) bool {
	_, info := token(r)
	return info.State == durable.Paused
}

// A blind engine is for a node that sees only its own pauses.
type blind struct {
	engine.Engine
	mu  sync.Mutex // protects own
	own []byte
}

func (b *blind) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	if over.Order != engine.Notes {
		return b.Engine.Walk(ctx, over)
	}
	return func(yield func(engine.Stored, error) bool) {
		for note, err := range b.Engine.Walk(ctx, over) {
			if err == nil && note.Key == pausesNote {
				b.mu.Lock()
				note.Data = b.own
				b.mu.Unlock()
			}
			if !yield(note, err) {
				return
			}
		}
	}
}

func (b *blind) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	results, err := b.Engine.Commit(ctx, by, batches)
	if w := batches[0][0]; err == nil && w.Note && w.Key == pausesNote && len(results[0].Unmet) == 0 {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.own = w.Data
	}
	return results, err
}

// A timeless engine is for a node whose writes do not say when they were sent.
type timeless struct{ engine.Engine }

func (o timeless) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	return o.Engine.Commit(ctx, by, changed(batches, func(w *engine.Write) { w.Now = 0 }))
}

// A short engine is for a node whose walks over keys end after the first.
type short struct{ engine.Engine }

func (s short) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	if over.Order != engine.ByKey {
		return s.Engine.Walk(ctx, over)
	}
	return func(yield func(engine.Stored, error) bool) {
		for stored, err := range s.Engine.Walk(ctx, over) {
			yield(stored, err)
			return
		}
	}
}

// An untimely engine is for a node that makes tasks due too late: when they are resumed, after a run or in a burst.
type untimely struct {
	engine.Engine
	fault string
}

func (u untimely) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch,
) ([]engine.Result, error) {
	return u.Engine.Commit(ctx, by, changed(batches, func(w *engine.Write) {
		if w.Note {
			return
		}
		stored, ok, _ := one(u.Engine, w.Key)
		if u.fault == "30 a burst has no end" && w.If == engine.IfUnstarted {
			w.Due += int64(2 * simLease)
		}
		if !ok || w.Data == nil || w.If != engine.IfUnchanged || isPaused(w.Record) {
			return
		}
		_, was := token(stored.Record)
		_, is := token(w.Record)
		if u.fault == "20 a resumption begins the wait again" && was.State == durable.Paused ||
			u.fault == "21 off the grid" && is.Times == was.Times-1 {
			w.Due += int64(time.Millisecond)
		} else if u.fault == "29 the jitter is drawn again" && is.Cron != "" && is.Times == was.Times-1 {
			w.Due += stored.Revision % 5 * int64(time.Millisecond)
		}
	}))
}

// A resigned engine is for a node that gives runs up wrongly, or says so of others.
type resigned struct {
	engine.Engine
	fault string
}

func (r resigned) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	return r.Engine.Commit(ctx, by, changed(batches, func(w *engine.Write) {
		switch {
		case w.Data == nil:
		case w.Note && strings.HasPrefix(w.Key, "history/") && r.fault == "41 the history says given up of every failure":
			block, err := task.DecodePast(w.Data)
			if err != nil {
				panic(err)
			}
			for i := range block.Past {
				block.Past[i].GivenUp = block.Past[i].Failure != ""
			}
			w.Data, _ = block.Encode(math.MaxInt)
		case !w.Note:
			rec, err := task.Decode(w.Record)
			if err != nil {
				panic(err)
			}
			if rec.GivenUp == 0 || rec.HasFailed() {
				return
			}
			switch r.fault {
			case "38 a run that is given up does not count":
				if rec.Times != durable.Forever {
					rec.Times++
				}
			case "40 the next run has fewer attempts":
				rec.Attempts = 1
			}
			w.Record = rec.Write(w.If, w.Revision).Record
		}
	}))
}

// A forgetful engine is for a node that does not compare its claims with the engine's records: it never learns of
// claims whose answer was lost.
type forgetful struct {
	engine.Engine
	mu   sync.Mutex // protects told
	told map[engine.Claim]bool
}

func (f *forgetful) tell(c engine.Claim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told[c] = true
}

func (f *forgetful) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	got, err := f.Engine.Claim(ctx, r)
	for _, s := range got.Tasks {
		if !r.Fair {
			f.tell(engine.Claim{Key: s.Key, Revision: s.Revision})
		}
	}
	return got, err
}

func (f *forgetful) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch,
) ([]engine.Result, error) {
	results, err := f.Engine.Commit(ctx, by, batches)
	for i, r := range results {
		for j, w := range r.Written {
			f.tell(engine.Claim{Key: batches[i][j].Key, Revision: w.Revision})
		}
	}
	return results, err
}

func (f *forgetful) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	if over.Order != engine.Held {
		return f.Engine.Walk(ctx, over)
	}
	return func(yield func(engine.Stored, error) bool) {
		all, err := collected(f.Engine.Walk(ctx, over))
		f.mu.Lock()
		all = slices.DeleteFunc(all, func(s engine.Stored) bool {
			return !f.told[engine.Claim{Key: s.Key, Revision: s.Revision}]
		})
		f.mu.Unlock()
		yieldAll(all, err, yield)
	}
}

// A cursor is an engine for a node that claims only tasks due after those it has already claimed.
type cursor struct {
	engine.Engine
	mu sync.Mutex // protects at
	at int64
}

func (c *cursor) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	if !r.Fair {
		c.mu.Lock()
		r.After = max(r.After, c.at)
		c.at = max(c.at, r.Until)
		c.mu.Unlock()
	}
	return c.Engine.Claim(ctx, r)
}

// A hasty engine is for a node that confirms a start when the task falls due, before it has a worker.
type hasty struct {
	engine.Engine
	calls *sync.WaitGroup
	mu    sync.Mutex // protects held
	held  map[engine.Claim]bool
}

func (h *hasty) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	got, err := h.Engine.Claim(ctx, r)
	for _, s := range got.Tasks {
		if !r.Fair {
			h.confirm(r.By, engine.Claim{Key: s.Key, Revision: s.Revision, Starts: s.Starts}, s.Due)
		}
	}
	return got, err
}

func (h *hasty) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch,
) ([]engine.Result, error) {
	results, err := h.Engine.Commit(ctx, by, batches)
	for i, r := range results {
		for j, w := range r.Written {
			if w.Held {
				h.confirm(by, engine.Claim{Key: batches[i][j].Key, Revision: w.Revision}, batches[i][j].Due)
			}
		}
	}
	return results, err
}

func (h *hasty) confirm(by engine.MemberID, c engine.Claim, due int64) {
	h.calls.Go(func() {
		time.Sleep(time.Until(time.Unix(0, due)))
		if held, _, err := h.Engine.Confirm(context.Background(), by, []engine.Claim{c}, time.Second); err == nil && held[0] {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.held[c] = true
		}
	})
}

func (h *hasty) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration) ([]bool, int64, error) {
	known := make([]bool, len(claims))
	h.mu.Lock()
	for i, c := range claims {
		known[i] = h.held[c]
	}
	h.mu.Unlock()
	if !slices.Contains(known, false) {
		return known, time.Now().UnixNano(), nil
	}
	return h.Engine.Confirm(ctx, by, claims, within)
}

// An ahead engine is for a node whose clock is ahead, and which uses that clock.
type ahead struct{ engine.Engine }

const aheadBy = int64(500 * time.Millisecond)

func (a ahead) Join(ctx context.Context, name string, lease time.Duration) (engine.MemberID, int64, error) {
	id, now, err := a.Engine.Join(ctx, name, lease)
	return id, now + aheadBy, err
}

func (a ahead) Renew(ctx context.Context, id engine.MemberID, report []byte) ([]engine.Membership, int64, error) {
	members, now, err := a.Engine.Renew(ctx, id, report)
	return members, now + aheadBy, err
}

func (a ahead) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	got, err := a.Engine.Claim(ctx, r)
	got.Now += aheadBy
	return got, err
}

func (a ahead) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration,
) ([]bool, int64, error) {
	held, now, err := a.Engine.Confirm(ctx, by, claims, within)
	return held, now + aheadBy, err
}
