// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
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
	"github.com/seed581295f1/timewheel/durable/memengine"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

var (
	simSeeds = flag.Int("seeds", 1000, "how many seeds TestSimulation runs")
	simSeed  = flag.Uint64("seed", 1, "the first of them")
)

// Three nodes do random verbs on few keys, while answers are lost, calls are delayed, leases run out, the
// engine is away, and nodes crash. In the end the ledger must have nothing to object.
func TestSimulation(t *testing.T) {
	seeds := *simSeeds
	if testing.Short() {
		seeds = min(seeds, 100)
	}
	calls := 0
	for seed := *simSeed; seed < *simSeed+uint64(seeds); seed++ {
		l := simulate(t, seed, "")
		calls += l.calls
		if len(l.broken) > 0 {
			t.Fatalf("seed %d (go test -run TestSimulation$ -seeds 1 -seed %[1]d):\n%s", seed,
				strings.Join(l.broken, "\n"))
		}
	}
	t.Logf("%d calls of handlers", calls)
}

// The simulation finds each fault that is built in, or it proves nothing. The numbers are those of the details
// in the design of the cluster.
func TestSimulation_findsFaults(t *testing.T) {
	for _, fault := range []string{
		"1 no fence", "2 the fence checks no owner", "3 ends of runs at any revision", "4 the node's own clock",
		"5 no reconciliation", "9 a cursor over due times", "10 reaping after an outage",
		"15 confirmed without a worker",
	} {
		t.Run(fault, func(t *testing.T) {
			seeds := uint64(*simSeeds)
			for seed := range seeds {
				if l := simulate(t, seed+1, fault); len(l.broken) > 0 {
					t.Logf("seed %d: %s", seed+1, l.broken[0])
					return
				}
			}
			t.Errorf("%d seeds have not found it", seeds)
		})
	}
}

const (
	simNodes    = 3
	simLease    = 400 * time.Millisecond
	simAttempts = 6
	simVerbs    = 12 // of each node
	simLimit    = 1  // runs at the same time on a node, if there is one
	simKeys     = 6
)

// A simulation is one seed.
type simulation struct {
	seed   uint64
	fault  string
	engine *memengine.Engine
	ledger *ledger
	nodes  [simNodes]*simNode
	calls  sync.WaitGroup // that no node waits for
}

type simNode struct {
	*durable.Scheduler
	link    *memengine.Link
	crashed atomic.Bool
	slow    atomic.Int64 // how long each call takes in addition
}

// simulate runs a seed with a fault built in, or none, and returns its ledger.
func simulate(t *testing.T, seed uint64, fault string) *ledger {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // what happens at one instant happens mostly in the same order
	var l *ledger
	synctest.Test(t, func(t *testing.T) {
		s := &simulation{seed: seed, fault: fault, engine: memengine.New()}
		s.ledger = newLedger(flawed{s.engine, fault}, simLease, simAttempts)
		l = s.ledger
		for i := range s.nodes {
			s.nodes[i] = s.join(t, i)
		}
		var verbs sync.WaitGroup
		for i := range s.nodes {
			verbs.Go(func() { s.verbs(i) })
		}
		verbs.Go(func() { s.trouble() })
		verbs.Wait()
		for _, n := range s.nodes {
			n.slow.Store(0)
			if !n.crashed.Load() {
				n.link.SetDown(false)
			}
		}
		s.drain()
		for _, n := range s.nodes {
			_ = n.Shutdown(ctx) // a node that has crashed does not get its membership to end
		}
		s.calls.Wait()
	})
	return l
}

// draws returns the numbers of one part of the simulation.
func (s *simulation) draws(part ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, part...)
	return rand.New(rand.NewPCG(s.seed, h.Sum64()))
}

func (s *simulation) join(t *testing.T, i int) *simNode {
	n := &simNode{link: memengine.NewLink(s.ledger)}
	var engine durable.Engine = slow{n.link, s.draws("answers", i), new(sync.Mutex)}
	opts := []durable.Option{durable.WithTick(tick), durable.WithLease(simLease), durable.WithPoolSize(2),
		durable.WithNode(fmt.Sprint(i)), durable.WithLogger(testkit.Quiet()),
		durable.WithDraw(locked(s.draws("retry", i).Float64))}
	switch s.fault {
	case "4 the node's own clock":
		if i == 0 {
			engine = ahead{engine}
		}
	case "5 no reconciliation":
		engine = &forgetful{Engine: engine, told: make(map[durable.Claim]bool)}
	case "9 a cursor over due times":
		engine = &cursor{Engine: engine}
	case "15 confirmed without a worker":
		engine = &hasty{Engine: engine, calls: &s.calls, held: make(map[durable.Claim]bool)}
	}
	var err error
	if n.Scheduler, err = durable.Join(ctx, engine, opts...); err != nil {
		t.Fatal(err)
	}
	kind := []durable.KindOption{durable.WithRetry(simAttempts, 10*time.Millisecond, 50*time.Millisecond)}
	switch s.seed % 4 { // else without a limit
	case 1:
		kind = append(kind, durable.WithConcurrency(simLimit))
	case 2:
		kind = append(kind, durable.WithClusterConcurrency(simNodes*simLimit), durable.WithRate(1000, time.Second, 3))
	}
	var running atomic.Int64
	err = n.Handle("work", func(ctx context.Context, run durable.Run) error {
		if is := running.Add(1); is > simLimit && s.seed%4 == 1 {
			s.ledger.exceeded(is)
		}
		defer running.Add(-1)
		return s.work(ctx, run)
	}, kind...)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	s.faults(i, n)
	return n
}

// locked returns f for any number of goroutines.
func locked(f func() float64) func() float64 {
	var mu sync.Mutex
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return f()
	}
}

// faults begins the faults of single calls.
func (s *simulation) faults(i int, n *simNode) {
	rnd := s.draws("faults", i)
	n.link.SetFaults(func(string) memengine.Fault {
		f := memengine.Fault{Delay: time.Duration(n.slow.Load())}
		switch p := rnd.IntN(1000); {
		case p < 30:
			f.Lose = true
		case p < 60:
			f.Fail = true
		case p < 110:
			f.Delay += time.Duration(rnd.Int64N(int64(30 * time.Millisecond)))
		case p < 115:
			f.Delay += time.Duration(rnd.Int64N(int64(simLease * 3 / 2)))
			f.Lose = rnd.IntN(2) == 0
		}
		return f
	})
}

// work is the handler.
func (s *simulation) work(ctx context.Context, run durable.Run) (err error) {
	end := s.ledger.call(run)
	defer func() { end(err) }()
	rnd := s.draws("work", string(run.Payload), run.Seq, run.Attempt)
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
	case <-done:
		return ctx.Err()
	}
	if rnd.IntN(10) == 0 {
		return errFail
	}
	return nil
}

// task returns a new task.
func (s *simulation) task(rnd *rand.Rand, key string) durable.Task {
	task := durable.Task{Key: key, Kind: "work", Payload: fmt.Append(nil, rnd.Uint64()),
		Delay: time.Millisecond + time.Duration(rnd.Int64N(int64(3*time.Second/2)))}
	if rnd.IntN(3) == 0 {
		task.Times = 2 + rnd.IntN(2)
		task.Interval = time.Duration(100+rnd.IntN(200)) * time.Millisecond
	}
	return task
}

// verbs does the verbs of a node.
func (s *simulation) verbs(i int) {
	n, rnd, l := s.nodes[i], s.draws("verbs", i), s.ledger
	for range simVerbs {
		time.Sleep(time.Duration(rnd.Int64N(int64(400 * time.Millisecond))))
		key := fmt.Sprint("k", rnd.IntN(simKeys))
		only := durable.Task{Key: key}
		if n.crashed.Load() {
			return
		}
		switch p := rnd.IntN(100); {
		case p < 40:
			tasks := []durable.Task{s.task(rnd, key)}
			if rnd.IntN(4) == 0 {
				tasks = append(tasks, s.task(rnd, key+"too"))
			}
			v := l.verb("add", tasks...)
			l.returned(v, n.AddTask(ctx, tasks...))
		case p < 60:
			v := l.verb("remove", only)
			l.returned(v, n.RemoveTask(ctx, key))
		case p < 75:
			task := s.task(rnd, key)
			v := l.verb("set", task)
			l.returned(v, n.SetTask(ctx, task))
		case p < 90:
			v := l.verb("move", only)
			l.returned(v, n.Reschedule(ctx, key, time.Duration(rnd.Int64N(int64(time.Second)))))
		default:
			s.transaction(rnd, fmt.Sprint("tx", rnd.Uint32()))
		}
	}
}

// transaction adds a task in a transaction that is committed late.
func (s *simulation) transaction(rnd *rand.Rand, key string) {
	w, err := durable.NewWrite(s.task(rnd, key), time.Now().UnixNano())
	if err != nil {
		panic(err)
	}
	tx := s.engine.Begin()
	if _, err := tx.Write(ctx, w); err != nil {
		panic(err)
	}
	time.Sleep(time.Duration(rnd.Int64N(int64(2 * time.Second))))
	s.ledger.commit(tx, w)
}

// trouble causes what befalls whole nodes, and the engine.
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
			s.ledger.restart = time.Now()
			if s.fault != "10 reaping after an outage" {
				s.engine.Restart()
			}
			s.ledger.mu.Unlock()
		}
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

// drain waits until every task has ended or is parked, and notes those that have not.
func (s *simulation) drain() {
	const patience = 20 * time.Second
	left := ""
	for began := time.Now(); time.Since(began) < patience; time.Sleep(200 * time.Millisecond) {
		left = ""
		until := time.Now().Add(time.Hour).UnixNano() // parked tasks are not left over
		for stored, err := range s.engine.Due(ctx, durable.Position{Due: durable.None}, until) {
			if err != nil {
				panic(err)
			}
			left += fmt.Sprintf(" %s (revision %d, owner %d, due since %v)", stored.Key, stored.Revision, stored.Owner,
				time.Since(time.Unix(0, stored.Due)))
		}
		if left == "" {
			return
		}
	}
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.breaks("D3", "these tasks are left over:%s", left)
}

// Some answers of a slow engine take long.
type slow struct {
	durable.Engine
	rnd *rand.Rand
	mu  *sync.Mutex // protects rnd
}

func (s slow) answer(long bool) {
	s.mu.Lock()
	took := int64(0)
	switch p := s.rnd.IntN(1000); {
	case p < 100:
		took = s.rnd.Int64N(int64(30 * time.Millisecond))
	case p < 105 && long:
		took = s.rnd.Int64N(int64(simLease * 3 / 2))
	}
	s.mu.Unlock()
	if took > 0 {
		time.Sleep(time.Duration(took))
	}
}

func (s slow) Commit(ctx context.Context, by durable.MemberID, batches []durable.Batch,
) ([]durable.Result, error) {
	defer s.answer(true)
	return s.Engine.Commit(ctx, by, batches)
}

func (s slow) Renew(ctx context.Context, id durable.MemberID, report []byte) (int64, int, error) {
	defer s.answer(true)
	return s.Engine.Renew(ctx, id, report)
}

func (s slow) Claim(ctx context.Context, by durable.MemberID, kinds []string, after, until int64, most int,
) ([]durable.Stored, int64, error) {
	defer s.answer(true)
	return s.Engine.Claim(ctx, by, kinds, after, until, most)
}

func (s slow) Claimed(ctx context.Context, by durable.MemberID) ([]durable.Stored, error) {
	defer s.answer(true)
	return s.Engine.Claimed(ctx, by)
}

func (s slow) Confirm(ctx context.Context, by durable.MemberID, claims []durable.Claim,
) ([]bool, int64, error) {
	defer s.answer(false) // the ledger allows for no longer than 100 ms between a decision and the call
	return s.Engine.Confirm(ctx, by, claims)
}

// A flawed engine has a fault built in.
type flawed struct {
	durable.Engine
	fault string
}

func (f flawed) Confirm(ctx context.Context, by durable.MemberID, claims []durable.Claim,
) ([]bool, int64, error) {
	held, now, err := f.Engine.Confirm(ctx, by, claims)
	switch f.fault {
	case "1 no fence":
		if errors.Is(err, durable.ErrMemberGone) {
			held, now, err = make([]bool, len(claims)), time.Now().UnixNano(), nil
		}
		for i := range held {
			held[i] = true
		}
	case "2 the fence checks no owner":
		if errors.Is(err, durable.ErrMemberGone) {
			held, now, err = make([]bool, len(claims)), time.Now().UnixNano(), nil
		}
		for i := range held {
			stored, ok, _ := f.Engine.Get(ctx, claims[i].Key)
			held[i] = ok && stored.Revision >= claims[i].Revision
		}
	}
	return held, now, err
}

func (f flawed) Commit(ctx context.Context, by durable.MemberID, batches []durable.Batch,
) ([]durable.Result, error) {
	if f.fault == "3 ends of runs at any revision" {
		own := make([]durable.Batch, len(batches))
		for i := range batches {
			own[i] = slices.Clone(batches[i])
			for j := range own[i] {
				if w := &own[i][j]; w.If == durable.IfUnchanged {
					w.If = durable.IfPresent
				}
			}
		}
		batches = own
	}
	return f.Engine.Commit(ctx, by, batches)
}

// A forgetful engine is one for a node that does not compare its claims with the engine's books: it learns of none
// whose answer was lost.
type forgetful struct {
	durable.Engine
	mu   sync.Mutex // protects told
	told map[durable.Claim]bool
}

func (f *forgetful) tell(c durable.Claim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told[c] = true
}

func (f *forgetful) Claim(ctx context.Context, by durable.MemberID, kinds []string, after, until int64, most int,
) ([]durable.Stored, int64, error) {
	got, now, err := f.Engine.Claim(ctx, by, kinds, after, until, most)
	for _, s := range got {
		f.tell(durable.Claim{Key: s.Key, Revision: s.Revision})
	}
	return got, now, err
}

func (f *forgetful) Commit(ctx context.Context, by durable.MemberID, batches []durable.Batch,
) ([]durable.Result, error) {
	results, err := f.Engine.Commit(ctx, by, batches)
	for i, r := range results {
		for j, w := range r.Written {
			f.tell(durable.Claim{Key: batches[i][j].Key, Revision: w.Revision})
		}
	}
	return results, err
}

func (f *forgetful) Claimed(ctx context.Context, by durable.MemberID) ([]durable.Stored, error) {
	all, err := f.Engine.Claimed(ctx, by)
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(all, func(s durable.Stored) bool {
		return !f.told[durable.Claim{Key: s.Key, Revision: s.Revision}]
	}), err
}

// A cursor is an engine for a node that claims only what is due after what it has claimed.
type cursor struct {
	durable.Engine
	mu sync.Mutex // protects at
	at int64
}

func (c *cursor) Claim(ctx context.Context, by durable.MemberID, kinds []string, after, until int64, most int,
) ([]durable.Stored, int64, error) {
	c.mu.Lock()
	after = max(after, c.at)
	c.at = max(c.at, until)
	c.mu.Unlock()
	return c.Engine.Claim(ctx, by, kinds, after, until, most)
}

// A hasty engine is one for a node that has a claim confirmed as it falls due, before it has a worker.
type hasty struct {
	durable.Engine
	calls *sync.WaitGroup
	mu    sync.Mutex // protects held
	held  map[durable.Claim]bool
}

func (h *hasty) Claim(ctx context.Context, by durable.MemberID, kinds []string, after, until int64, most int,
) ([]durable.Stored, int64, error) {
	got, now, err := h.Engine.Claim(ctx, by, kinds, after, until, most)
	for _, s := range got {
		h.confirm(by, durable.Claim{Key: s.Key, Revision: s.Revision, Starts: s.Starts}, s.Due)
	}
	return got, now, err
}

func (h *hasty) Commit(ctx context.Context, by durable.MemberID, batches []durable.Batch,
) ([]durable.Result, error) {
	results, err := h.Engine.Commit(ctx, by, batches)
	for i, r := range results {
		for j, w := range r.Written {
			if w.Held {
				h.confirm(by, durable.Claim{Key: batches[i][j].Key, Revision: w.Revision}, batches[i][j].Due)
			}
		}
	}
	return results, err
}

func (h *hasty) confirm(by durable.MemberID, c durable.Claim, due int64) {
	h.calls.Go(func() {
		time.Sleep(time.Until(time.Unix(0, due)))
		if held, _, err := h.Engine.Confirm(context.Background(), by, []durable.Claim{c}); err == nil && held[0] {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.held[c] = true
		}
	})
}

func (h *hasty) Confirm(ctx context.Context, by durable.MemberID, claims []durable.Claim) ([]bool, int64, error) {
	known := make([]bool, len(claims))
	h.mu.Lock()
	for i, c := range claims {
		known[i] = h.held[c]
	}
	h.mu.Unlock()
	if !slices.Contains(known, false) {
		return known, time.Now().UnixNano(), nil
	}
	return h.Engine.Confirm(ctx, by, claims)
}

// An engine is ahead for a node whose clock is ahead, and which uses that.
type ahead struct{ durable.Engine }

const aheadBy = int64(500 * time.Millisecond)

func (a ahead) Join(ctx context.Context, name string, lease time.Duration) (durable.MemberID, int64, error) {
	id, now, err := a.Engine.Join(ctx, name, lease)
	return id, now + aheadBy, err
}

func (a ahead) Renew(ctx context.Context, id durable.MemberID, report []byte) (int64, int, error) {
	now, members, err := a.Engine.Renew(ctx, id, report)
	return now + aheadBy, members, err
}

func (a ahead) Claim(ctx context.Context, by durable.MemberID, kinds []string, after, until int64, most int,
) ([]durable.Stored, int64, error) {
	got, now, err := a.Engine.Claim(ctx, by, kinds, after, until, most)
	return got, now + aheadBy, err
}

func (a ahead) Confirm(ctx context.Context, by durable.MemberID, claims []durable.Claim,
) ([]bool, int64, error) {
	held, now, err := a.Engine.Confirm(ctx, by, claims)
	return held, now + aheadBy, err
}
