// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// An idleWalk watches nodes with a backlog and with tasks that fall due now. Their kinds take no time, some time, or
// hang on some nodes. One node shuts down during the walk.
type idleWalk struct {
	*kit.Kit
	rnd     *rand.Rand
	workers int
	end     chan struct{} // ends the hanging runs

	mu      sync.Mutex // protects below
	running []map[string]int
	ran     []map[string]bool
	leaving int                    // node that shuts down; -1 before
	free    []map[string]time.Time // since when a worker is free on the node while a task of the kind waits
}

var idleKinds = []string{"quick", "slow", "hang", "plain"}

// No task that has been due for some seconds waits for the handler of another task while a living node has a free
// worker for it. If its kind is known to be quick there, it may have any worker. Otherwise it may have any worker
// outside the reserve, and its kind at most half of them. A worker counts as free after five seconds: the node has to
// claim the task first, and another node may hold it for a run or two of its kind.
func TestWaiting_neverWhileAWorkerIsFree(t *testing.T) {
	t.Parallel()
	walks(t, 300, 100, 10, func(t *testing.T, seed uint64) {
		kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) { walkIdle(k, seed) })
	})
}

func walkIdle(k *kit.Kit, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := &idleWalk{
		Kit: k, rnd: rnd,
		workers: 2 + rnd.IntN(8), end: make(chan struct{}), leaving: -1,
	}
	nodes := 1 + rnd.IntN(3)
	for range nodes {
		w.join()
	}
	a := w.Nodes[0]
	defer func() {
		close(w.end)
	}()
	w.Must(a.PauseAll(ctx))
	k.After(3 * sec)
	n := 0
	add := func(most int, within time.Duration) {
		var tasks []durable.Task
		for range most {
			kind := idleKinds[rnd.IntN(len(idleKinds))]
			if kind == "hang" && rnd.IntN(4) > 0 {
				kind = "quick"
			}
			n++
			tasks = append(tasks, durable.Task{Key: fmt.Sprint(kind, " ", n), Kind: kind, Delay: 1 + time.Duration(rnd.Int64N(int64(within)))})
		}
		a.Add(tasks...)
	}
	add(rnd.IntN(500), 10*sec)
	k.After(20 * sec)
	w.Must(a.ResumeAll(ctx))
	add(rnd.IntN(200), 20*sec)
	for i := range 60 {
		k.After(sec / 2)
		if i == 20 && nodes > 1 {
			w.mu.Lock()
			w.leaving = nodes - 1
			w.mu.Unlock()
			go func() { _ = w.Nodes[nodes-1].Shutdown(ctx) }() // it ends at the end of the test
		}
		if i > 8 {
			w.check()
		}
	}
}

func (w *idleWalk) join() {
	i := len(w.Nodes)
	w.running, w.ran = append(w.running, map[string]int{}), append(w.ran, map[string]bool{})
	w.free = append(w.free, map[string]time.Time{})
	m := w.Join(nil, durable.WithPoolSize(w.workers), durable.WithCatchUp(100_000), durable.WithLogger(testkit.Quiet())).Start()
	slow := time.Duration(1+w.rnd.IntN(2000)) * time.Millisecond
	hangs := w.rnd.IntN(3) > 0
	for _, kind := range idleKinds {
		m.Handle(kind, func(ctx context.Context, _ durable.Run) error {
			w.note(i, kind, 1)
			defer w.note(i, kind, -1)
			switch {
			case kind == "hang" && hangs:
				<-w.end
			case kind == "slow" || kind == "hang":
				time.Sleep(slow)
			}
			return nil
		})
	}
}

func (w *idleWalk) note(node int, kind string, d int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[node][kind] += d
	w.ran[node][kind] = w.ran[node][kind] || d < 0
}

// check fails the test if a task waits unnecessarily.
func (w *idleWalk) check() {
	const patience = 3 * time.Second
	waits := map[string]string{} // the oldest by kind
	for s, err := range w.Engine.Walk(ctx, engine.Range{
		After: engine.Position{Due: engine.None}, Until: time.Now().Add(-patience).UnixNano(),
	}) {
		if err != nil {
			w.T.Fatal(err)
		}
		if kind, _, _ := strings.Cut(s.Key, " "); s.Starts == 0 && waits[kind] == "" {
			waits[kind] = fmt.Sprintf("%s, held by %d, %v late", s.Key, s.Owner, time.Since(time.Unix(0, s.Due)))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.Nodes {
		all := 0
		for _, n := range w.running[i] {
			all += n
		}
		for _, kind := range idleKinds {
			free := w.workers - all
			if kind != "quick" && kind != "plain" || !w.ran[i][kind] {
				free = min(free-max(1, w.workers/8), w.workers/2-w.running[i][kind])
			}
			if waits[kind] == "" || free <= 0 || i == w.leaving {
				delete(w.free[i], kind)
				continue
			}
			if w.free[i][kind].IsZero() {
				w.free[i][kind] = time.Now()
			}
			if time.Since(w.free[i][kind]) >= 5*sec {
				w.T.Errorf("%v after the begin %s waits, and node %d of %d has %d workers: %v", time.Since(w.Begin), waits[kind],
					i+1, len(w.Nodes), w.workers, w.running[i])
			}
		}
	}
	if w.T.Failed() {
		w.T.FailNow()
	}
}
