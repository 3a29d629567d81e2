// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

const (
	walkSeeds    = 12
	walkTasks    = 1000
	walkSteps    = 120
	walkAttempts = 1000
)

// A thousand tasks of kinds with limits are due together, in groups. Meanwhile nodes join, leave and handle the kinds
// late, calls are delayed, fail or lose their answers, kinds are paused, and tasks are removed and moved. When the
// faults cease, every remaining task runs, and the ledger must report no violation.
func TestLimit_ofAllNodes_whateverHappens(t *testing.T) {
	testkit.NotForRaces(t)
	counts := make(map[string]int)
	walks(t, walkSeeds, walkSeeds, walkSeeds, func(t *testing.T, seed uint64) { walkLimits(t, seed).agrees(t, counts) })
	t.Log(counts)
	if counts["parked"] > 0 {
		t.Errorf("%d were parked", counts["parked"])
	}
}

// A limitWalk is one seed. Its kinds are "limited" with a limit on each node, "shared" with a concurrency for all
// nodes, and "work" with a rate for all nodes.
type limitWalk struct {
	*simulation
	t       *testing.T
	draw    *rand.Rand
	options map[string][]durable.KindOption
	joins   int
	numbers [simNodes]int // of the nodes: a node that leaves may still end its runs when another has its place
	leaving sync.WaitGroup
}

// walkLimits runs a seed, and returns its ledger.
func walkLimits(t *testing.T, seed uint64) *ledger {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // events of one instant happen mostly in the same order
	var l *ledger
	synctest.Test(t, func(t *testing.T) {
		w := &limitWalk{simulation: &simulation{seed: seed, engine: memory.New().Shared(), lease: simLease}, t: t}
		w.ledger = newLedger(w.engine, simLease, walkAttempts)
		w.draw = w.draws("walk")
		l = w.ledger
		w.limit()
		for i := range w.nodes {
			w.nodes[i] = w.join(i)
			w.handle(i)
		}
		w.add()
		for range walkSteps {
			time.Sleep(time.Duration(w.draw.Int64N(int64(100 * time.Millisecond))))
			w.step()
		}
		for i, n := range w.nodes {
			if n.crashed.Load() {
				w.nodes[i] = w.join(i)
			}
			w.nodes[i].link.SetFaults(nil)
			w.handle(i)
		}
		w.unpause()
		w.settle()
		w.leaving.Wait()
		for _, n := range w.nodes {
			if err := n.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	return l
}

// limit draws limits for the kinds.
func (w *limitWalk) limit() {
	each, all := 1+w.draw.IntN(4), 1+w.draw.IntN(4)
	w.ledger.limits["limited"], w.ledger.shared["shared"] = each, all
	rate, burst := 100+w.draw.IntN(400), 1+w.draw.IntN(simNodes-1)
	w.ledger.paces["work"] = &pace{each: sec / time.Duration(rate), burst: burst}
	w.options = map[string][]durable.KindOption{
		"limited": {durable.WithConcurrency(each)},
		"shared":  {durable.WithClusterConcurrency(all)},
		"work":    {durable.WithClusterRate(rate, sec, burst)},
	}
	for _, kind := range w.kinds() {
		if w.draw.IntN(3) == 0 {
			w.options[kind] = append(w.options[kind], durable.WithRate(100+w.draw.IntN(400), sec, 1+w.draw.IntN(20)))
		}
		retry := durable.WithRetry(walkAttempts, 10*time.Millisecond, 50*time.Millisecond)
		w.options[kind] = append(w.options[kind], retry)
	}
}

func (w *limitWalk) kinds() []string { return []string{"limited", "shared", "work"} }

// join adds a node that handles nothing.
func (w *limitWalk) join(i int) *simNode {
	w.t.Helper()
	w.joins++
	w.numbers[i] = w.joins
	n := w.open(w.t, w.joins, 4, new(simMachine))
	if err := n.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.faults(i, n)
	return n
}

// handle registers all kinds on a node. It fails for kinds that are already registered.
func (w *limitWalk) handle(i int) {
	number := w.numbers[i]
	for _, kind := range w.kinds() {
		_ = w.nodes[i].Handle(kind, func(ctx context.Context, run durable.Run) error { return w.run(ctx, number, run) },
			w.options[kind]...)
	}
}

// run is the handler on a node.
func (w *limitWalk) run(ctx context.Context, node int, run durable.Run) (err error) {
	end := w.ledger.call(ctx, node, run)
	defer func() { end(ended{well: err == nil}) }()
	rnd := w.draws("run", run.Key, run.Attempt)
	select {
	case <-time.After(time.Duration(rnd.Int64N(int64(10 * time.Millisecond)))):
	case <-ctx.Done():
		return ctx.Err()
	}
	if rnd.IntN(20) == 0 {
		return kit.ErrFail
	}
	return nil
}

// add adds the tasks, which are due together.
func (w *limitWalk) add() {
	w.t.Helper()
	at := time.Now().Add(sec)
	tasks := make([]durable.Task, walkTasks)
	for i := range tasks {
		tasks[i] = durable.Task{
			Key: fmt.Sprint(i), Kind: w.kinds()[w.draw.IntN(3)], Group: []string{"", "most", fmt.Sprint(w.draw.IntN(50))}[w.draw.IntN(3)],
			At: at, Payload: fmt.Append(nil, "payload ", i),
		}
	}
	v := w.ledger.verb("add", tasks...)
	s, err := durable.Connect(ctx, w.ledger, durable.WithLogger(testkit.Quiet()))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, kind := range w.kinds() {
		if err := s.Handle(kind, func(context.Context, durable.Run) error { return nil }); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := s.AddTask(ctx, tasks...); err != nil {
		w.t.Fatal(err)
	}
	w.ledger.returned(v, nil)
	if err := s.Shutdown(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// step does one random operation.
func (w *limitWalk) step() {
	i := w.draw.IntN(simNodes)
	n, only := w.nodes[i], durable.Task{Key: fmt.Sprint(w.draw.IntN(walkTasks))}
	if n.crashed.Load() { // it has left
		if w.draw.IntN(2) == 0 {
			w.nodes[i] = w.join(i)
		}
		return
	}
	switch w.draw.IntN(16) {
	case 0:
		alive := 0
		for _, n := range w.nodes {
			if !n.crashed.Load() {
				alive++
			}
		}
		if alive > 1 {
			n.crashed.Store(true)
			w.leaving.Go(func() { _ = n.Shutdown(ctx) }) // it fails if the engine does not answer
		}
	case 1, 2, 3:
		w.handle(i)
	case 4:
		w.pauseKindOn(w.draw, n, w.numbers[i], "pause kind")
	case 5, 6:
		w.pauseKindOn(w.draw, n, w.numbers[i], "resume kind")
	case 7, 8:
		v := w.ledger.verb("remove", only)
		w.ledger.returned(v, n.RemoveTask(ctx, only.Key))
	case 9, 10:
		v := w.ledger.verb("move", only)
		w.ledger.returned(v, n.Reschedule(ctx, only.Key, time.Duration(w.draw.Int64N(int64(2*sec)))))
	case 11: // it is cut off
		n.link.SetDown(true)
		w.leaving.Go(func() {
			time.Sleep(simLease * 3 / 2)
			w.faults(i, n)
		})
	case 12, 13: // its claims are slow
		n.link.Next("Claim Fair", w.fault(), w.fault())
		n.link.Next("Claim", w.fault())
	case 14:
		n.link.Next("Release", w.fault())
		n.link.Next("Renew", w.fault())
	}
}

// fault returns a random fault.
func (w *limitWalk) fault() enginetest.Fault {
	f := enginetest.Fault{Delay: time.Duration(w.draw.Int64N(int64(6 * simLease)))}
	f.Fail, f.Lose = w.draw.IntN(3) == 0, w.draw.IntN(3) == 0
	return f
}
