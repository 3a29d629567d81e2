// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A Workload describes what a scheduler's workers are doing, and how long due tasks have waited for them.
type Workload struct {
	timewheel.Stats
	Kinds      map[string]Progress
	Longest    time.Duration // duration of the longest run in progress
	SinceStart time.Duration // as in Stats
	age        time.Duration // age of the scheduler
}

const (
	// longRun is the duration after which a run counts as holding up due tasks. If all workers are busy with shorter
	// runs, overdue tasks wait only because WithCatchUp bounds their starts.
	longRun = time.Second

	// nothingStarts is how long overdue tasks may wait without any run starting before they count as waiting for a
	// worker, even if not all workers are busy. Some workers are reserved for tasks that fall due now.
	nothingStarts = 5 * time.Second
)

func newWorkload(wheel *timewheel.TimeWheel, runs *handlings, c *counter, cfg *Config) Workload {
	age := cfg.age(time.Now())
	w := Workload{Stats: wheel.Stats(), Kinds: runs.byKind(), SinceStart: c.sinceStart(age), age: time.Duration(age)}
	for _, p := range w.Kinds {
		w.Longest = max(w.Longest, p.Longest())
	}
	return w
}

// isStuck reports whether overdue tasks are waiting for a worker. overdue says whether there are overdue tasks in the
// backlog.
func (w *Workload) isStuck(overdue bool) bool {
	return w.Running >= w.Workers && w.Longest >= longRun ||
		overdue && w.Running > 0 && w.SinceStart >= nothingStarts
}

// waits records that a task has waited for a worker since the given time. The task cannot have waited longer than the
// scheduler has existed.
func (w *Workload) waits(since, now int64) {
	w.OldestWait = max(w.OldestWait, min(time.Duration(now-since), w.age))
}

// busiest returns the kind with the most runs in progress, among the kinds whose names JSON can represent. If several
// kinds have the same number, it returns the kind with the longest run.
func (w *Workload) busiest() (most KindRuns) {
	for kind, p := range w.Kinds {
		longest := p.Longest()
		if utf8.ValidString(kind) && (p.Runs > most.Running || p.Runs == most.Running && longest > most.Longest) {
			most = KindRuns{kind, p.Runs, longest}
		}
	}
	return most
}

// Work returns what the workers are doing.
func (n *Node) Work() Workload {
	w := newWorkload(n.wheel, &n.handlings, &n.count, &n.cfg)
	oldest := n.oldest()
	if !n.isStuck(&w, oldest != engine.None) {
		return w
	}
	n.mu.Lock()
	began, drained := max(n.since, n.undrained), n.drained
	n.mu.Unlock()
	if drained {
		return w
	}
	now := n.clock.Earliest(n.own())
	for _, since := range []int64{oldest, n.free.Load()} {
		if since != engine.None {
			w.waits(max(since, began), now)
		}
	}
	return w
}

// isStuck reports whether the workload is stuck, or whether overdue tasks of a kind are left to other nodes because all
// workers that the kind may use on this node are busy with long runs.
func (n *Node) isStuck(w *Workload, overdue bool) bool {
	if w.isStuck(overdue) {
		return true
	}
	if w.Longest < longRun {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, kind := range n.kinds.unlimited() {
		if n.isStuckOnLocked(kind) {
			return true
		}
	}
	return false
}

const (
	// A node whose workers are stuck searches for the first free overdue task every freeEvery. The searches take at
	// most 1/freeShare of the time, but there is a search at least every freeMost.
	freeEvery = 500 * time.Millisecond
	freeShare = 20
	freeMost  = 15 * time.Second

	// freeFor is how long a search may take from the first task on.
	freeFor = time.Second
)

// keepLookout searches for free overdue tasks while this node has no worker for them. The node does not claim these
// tasks, and has released any that it held, because other nodes may have a worker. If no other node has a worker,
// nothing else shows that tasks are waiting. keepLookout returns how long to wait before the next call.
func (n *Node) keepLookout() time.Duration {
	began, oldest := time.Now(), int64(engine.None)
	if w := newWorkload(n.wheel, &n.handlings, &n.count, &n.cfg); n.isStuck(&w, n.oldest() != engine.None) {
		oldest = n.oldestFree()
	}
	n.free.Store(oldest)
	every := freeEvery
	switch {
	case n.alone && oldest != engine.None: // it stays the first one until a worker is free
		every = freeMost
	case n.alone:
		every = n.cfg.Lease
	}
	return min(max(freeShare*time.Since(began), every), freeMost)
}

// oldestFree returns since when a free overdue task has waited that this node could run, or None. The tasks of a kind that
// was paused have waited since it was resumed, so another kind's task that was due later may have waited longer.
func (n *Node) oldestFree() int64 {
	ctx, cancel := context.WithTimeout(n.life, claimTimeout)
	defer cancel()
	ctx, begin, end := Within(ctx, freeFor)
	defer end()
	oldest := int64(engine.None)
	for v, err := range n.Walk(ctx, Stretch{After: engine.Position{Due: engine.None}, Until: n.OverdueUntil()}) {
		if err != nil || oldest != engine.None && v.Rec.Due >= oldest {
			return oldest
		}
		begin()
		kind := n.kinds.Of(v.Rec)
		if v.Node == "" && kind != nil && (kind.Limiter == nil || !kind.Limiter.IsFull()) {
			if since := max(v.Rec.Due, kind.since.Load()); oldest == engine.None || since < oldest {
				oldest = since
			}
		}
	}
	return oldest
}
