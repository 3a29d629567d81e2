// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A workload is what the workers of a scheduler do at a time, and how long due tasks have waited for them.
type workload struct {
	timewheel.Stats
	kinds      map[string]progress
	longest    time.Duration // of the runs in progress
	sinceStart time.Duration // as in Stats
	age        time.Duration // of the scheduler
}

const (
	// longRun is from when on a run keeps its worker from what is due. Workers that are all busy with shorter runs do
	// not keep an overdue task waiting: the rate of [WithCatchUp] does, which bounds how many of them start.
	longRun = time.Second

	// nothingStarts is how long no run may have started while overdue tasks wait, although not all workers are busy:
	// some are kept free for what falls due now.
	nothingStarts = 5 * time.Second
)

func newWorkload(wheel *timewheel.TimeWheel, runs *handlings, c *counter, cfg *config) workload {
	age := cfg.age(time.Now())
	w := workload{Stats: wheel.Stats(), kinds: runs.byKind(), sinceStart: c.sinceStart(age), age: time.Duration(age)}
	for _, p := range w.kinds {
		w.longest = max(w.longest, p.longest())
	}
	return w
}

// isStuck reports whether overdue tasks wait for a worker. overdue says that some are in the backlog.
func (w *workload) isStuck(overdue bool) bool {
	return w.Running >= w.Workers && w.longest >= longRun ||
		overdue && w.Running > 0 && w.sinceStart >= nothingStarts
}

// waits notes that a task waits for a worker that was due then, before the present time. It cannot have waited for
// longer than there has been a scheduler.
func (w *workload) waits(due, now int64) {
	w.OldestWait = max(w.OldestWait, min(time.Duration(now-due), w.age))
}

// busiest returns the kind with most runs in progress, or else the longest, that JSON can hold.
func (w *workload) busiest() (most KindRuns) {
	for kind, p := range w.kinds {
		longest := p.longest()
		if utf8.ValidString(kind) && (p.runs > most.Running || p.runs == most.Running && longest > most.Longest) {
			most = KindRuns{kind, p.runs, longest}
		}
	}
	return most
}

func (k *keeper) work() workload {
	w := newWorkload(k.wheel, &k.handlings, &k.count, &k.cfg)
	if due := oldest(k.backlog); due != engine.None && w.isStuck(true) {
		w.waits(due, k.now())
	}
	return w
}

func (n *node) work() workload {
	w := newWorkload(n.wheel, &n.handlings, &n.count, &n.cfg)
	due := oldest(n.backlog)
	if !n.isStuck(&w, due != engine.None) {
		return w
	}
	now := n.clock.Earliest(n.own())
	for _, due := range []int64{due, n.free.Load()} {
		if due != engine.None {
			w.waits(due, now)
		}
	}
	return w
}

// isStuck is that of the workload, or reports that overdue tasks of a kind are left to other nodes, because the workers
// that the kind may have here are busy with long runs.
func (n *node) isStuck(w *workload, overdue bool) bool {
	if w.isStuck(overdue) {
		return true
	}
	if w.longest < longRun {
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
	// A node whose workers are stuck looks each freeEvery for the first overdue task that no node holds. A look takes
	// one part of the time in freeShare, or is made each freeMost.
	freeEvery = 500 * time.Millisecond
	freeShare = 20
	freeMost  = 15 * time.Second

	// freeFor is how long a look may take.
	freeFor = time.Second
)

// keepLookout looks for overdue tasks that no node holds while this one has no worker for them. The node does not claim
// such tasks, and has given back those that it held, since others may have a worker. If they have not, nothing else
// shows that tasks wait. It returns when to come back.
func (n *node) keepLookout() time.Duration {
	began, due := time.Now(), int64(engine.None)
	if w := newWorkload(n.wheel, &n.handlings, &n.count, &n.cfg); n.isStuck(&w, oldest(n.backlog) != engine.None) {
		due = n.firstFree()
	}
	n.free.Store(due)
	return min(max(freeShare*time.Since(began), freeEvery), freeMost)
}

// firstFree returns when the first overdue task was due that no node holds and this one could run, or None if it finds
// none.
func (n *node) firstFree() int64 {
	ctx, cancel := context.WithTimeout(n.life, freeFor)
	defer cancel()
	for v, err := range n.walk(ctx, stretch{after: engine.Position{Due: engine.None}, until: n.overdueUntil()}) {
		if err != nil {
			return engine.None
		}
		kind := n.kinds.of(v.rec)
		if v.node == "" && kind != nil && (kind.Limiter == nil || !kind.Limiter.IsFull()) {
			return v.rec.Due
		}
	}
	return engine.None
}
