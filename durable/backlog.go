// SPDX-License-Identifier: MIT

package durable

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/limit"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A backlog holds overdue tasks that have been read from the store and not begun. The kinds take turns, and the
// tasks of a kind are in due order. They run on workers of the wheel that nothing else needs, so that what falls
// due now never waits behind them:
//
//   - A worker takes an overdue task only while no due run waits in the wheel, and looks again before each, or
//     after a millisecond.
//   - A worker that has ended a run of what fell due now takes overdue tasks next. When there is no such
//     worker, the keeper asks the wheel for more, at most as many as are spare.
//   - The bounded rate is kept as runs begin.
//
// A run cannot be interrupted, and one that hangs keeps its worker. So a kind that is not known to be quick
// ([kind.quick]) is bounded:
//
//   - It has at most half of the workers for its backlog.
//   - It leaves some workers free, for what falls due now and for the quick kinds of the backlog.
//   - It has at most a share of the queue. The rest of its tasks stays in the store, or with the engine, until half
//     of the share has begun.
//
// A task leaves the backlog once: to the worker that takes it, or to the keeper that removes, replaces or
// moves it.
type backlog struct {
	wheel   *timewheel.TimeWheel
	kinds   *kinds
	workers int           // of the wheel
	tick    time.Duration // of the wheel
	most    int           // tasks of the kinds without a limit in the queue
	shared  bool          // what it does not take can run on another node
	call    func()        // wakes the backend up
	queued  atomic.Int64  // tasks in the queue, for workers that need not look further

	mu      sync.Mutex           // protects below
	queue   limit.Queue          // of the kinds
	n       int                  // tasks of the kinds without a limit; the gates bound the others
	size    int                  // about how many bytes those take
	full    map[string]time.Time // kinds that have their share, since when, until half of it has begun
	each    time.Duration        // the rate: one run each so often
	asked   int                  // workers that were asked for and have not begun
	looked  time.Time            // when nothing was seen to wait in the wheel
	paid    time.Time            // up to when the rate has been used
	stopped bool
}

const (
	// mostQueued is how many tasks a backlog holds, or fewer if they have queuedBytes. It is filled again when half
	// of that is left, which workers begin while the keeper commits: with a quarter of it they wait for the store,
	// and run a quarter fewer. What has begun and is not durable is less than countedStarts.
	mostQueued  = 8192
	queuedBytes = 16 << 20
	slowBytes   = queuedBytes / 8

	// catchUpEvery is how often the keeper looks for spare workers, and catchUpBurst how long after it was due
	// by the rate a run may still make up for it.
	catchUpEvery = 10 * time.Millisecond
	catchUpBurst = 100 * time.Millisecond

	// lookEvery is how often it is looked whether a run waits in the wheel, while runs are quick. A look takes
	// about as long as a run that does nothing, some microseconds.
	lookEvery = time.Millisecond

	// firstRun is how long it is waited for the end of the first run of a kind, before others are read past its tasks. At
	// the least rate it begins after a second.
	firstRun = 2 * time.Second
)

func newBacklog(wheel *timewheel.TimeWheel, kinds *kinds, cfg config, call func()) *backlog {
	return &backlog{
		wheel: wheel, kinds: kinds, workers: cfg.poolSize, tick: cfg.tick, most: mostQueued,
		each: time.Second / time.Duration(cfg.catchUp), call: call, queue: limit.NewQueue(limit.ByKind), full: make(map[string]time.Time),
	}
}

// holdsLocked reports whether tasks of the kind are in the queue.
func (b *backlog) holdsLocked(kind string) bool {
	n, _ := b.queue.Held(kind)
	return n > 0
}

// start begins to count the rate, with a first run at once.
func (b *backlog) start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paid = time.Now().Add(-min(b.each, catchUpEvery))
}

// share sets the rate to that of one of a number of nodes.
func (b *backlog) share(rate, nodes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.each = time.Second * time.Duration(max(nodes, 1)) / time.Duration(rate)
}

func (b *backlog) add(t *limit.Task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue.Add(t)
	if g := b.kinds.gate(t.Rec); g != nil {
		g.overdue.Add(t)
	} else {
		b.countLocked(t, 1)
	}
	b.queued.Store(int64(b.queue.Len()))
}

// remove takes the task out, if no worker has.
func (b *backlog) remove(t *limit.Task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removeLocked(t)
}

// countLocked counts a task of a kind without a limit.
func (b *backlog) countLocked(t *limit.Task, n int) {
	b.n += n
	b.size += n * t.Rec.Size()
}

// removeLocked takes the task out, if it is in.
func (b *backlog) removeLocked(t *limit.Task) {
	if !b.queue.Remove(t) {
		return
	}
	if kind := t.Rec.Kind; !b.full[kind].IsZero() {
		if n, size := b.queue.Held(kind); 2*n <= b.slowMost() && 2*size <= slowBytes {
			delete(b.full, kind)
			b.call()
		}
	}
	if g := b.kinds.gate(t.Rec); g == nil || !g.overdue.Remove(t) { // or it was added before the gate
		b.countLocked(t, -1)
	}
	b.queued.Store(int64(b.queue.Len()))
}

// room returns how many more tasks the backlog takes, if it is time to fill it.
func (b *backlog) room() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.roomLocked()
}

func (b *backlog) roomLocked() int {
	if n, size := b.usedLocked(); n <= b.most/2 && size <= queuedBytes/2 {
		return b.most - n
	}
	return 0
}

// usedLocked returns how many tasks of the kinds without a limit there are, and about how many bytes they take. It leaves
// out the kinds that have their share: they take no room from the others.
func (b *backlog) usedLocked() (n, size int) {
	n, size = b.n, b.size
	for kind := range b.full {
		its, bytes := b.queue.Held(kind)
		n, size = n-its, size-bytes
	}
	return n, size
}

// slowMost is how many tasks of a kind that is not known to be quick the backlog holds, or fewer if they have slowBytes:
// its share. What waits here longer could run on another node.
func (b *backlog) slowMost() int {
	if b.shared {
		return max(b.workers/4, 1)
	}
	return max(b.most/8, b.workers/2)
}

// takes reports whether the backlog takes another task of the kind. If it does not, the backend is called when it
// does again. A gate has bounds of its own.
func (b *backlog) takes(kind string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n, size := b.queue.Held(kind); b.full[kind].IsZero() && n < b.slowMost() && size < slowBytes {
		return true
	}
	if k := b.kinds.get(kind); k == nil || k.gate != nil || k.quick() {
		delete(b.full, kind)
		return true
	}
	if b.full[kind].IsZero() {
		b.full[kind] = time.Now()
	}
	return false
}

// has reports whether overdue tasks of the kind are in the backlog, or running.
func (b *backlog) has(name string, kind *kind) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.holdsLocked(name) || kind.workers.Load() > 0
}

// mayBeQuick reports whether a kind of which the backlog takes no more will be known to be quick, or not, in a moment.
func (b *backlog) mayBeQuick(kind string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kinds.get(kind).longest.Load() == 0 && time.Since(b.full[kind]) < firstRun
}

// isFull reports whether the backlog takes no more for the bytes that it has.
func (b *backlog) isFull() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, size := b.usedLocked()
	return size >= queuedBytes
}

// job is what the wheel runs at the due time of the task. Afterwards the worker runs overdue tasks, if it is spare.
func (b *backlog) job(t *limit.Task) timewheel.Job {
	return func(*timewheel.Task) {
		b.run(t)
		b.work()
	}
}

// run does the run of the task, or has it wait for the limit of its kind. It reports false if it does neither,
// because the kind is paused.
func (b *backlog) run(t *limit.Task) bool {
	if g := b.kinds.gate(t.Rec); g != nil {
		g.pass(t)
		return true
	}
	return t.Run() || b.kinds.of(t.Rec) != nil
}

// work runs overdue tasks on the worker that calls it, as long as that is spare.
func (b *backlog) work() {
	for b.queued.Load() > 0 {
		t, of := b.take()
		if t == nil {
			return
		}
		if !b.runTaken(t, of) {
			b.give()
		}
	}
}

// runTaken is run for a task that take has returned.
func (b *backlog) runTaken(t *limit.Task, kind *kind) bool {
	if kind != nil {
		defer func() {
			kind.workers.Add(-1)
			if !b.shared || kind.quick() {
				return
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if !b.holdsLocked(t.Rec.Kind) {
				b.call() // the node may have been stuck on the kind, and have claimed none of it
			}
		}()
	}
	return b.run(t)
}

// begin is work on a worker that the keeper has asked for.
func (b *backlog) begin() {
	b.mu.Lock()
	b.asked--
	b.mu.Unlock()
	b.work()
}

// take returns the oldest task of the kind whose turn it is, of those kinds that may have this worker, or nil. Of a
// kind with a limit it is the oldest of the group whose turn it is.
func (b *backlog) take() (t *limit.Task, of *kind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.stopped || b.allowedLocked(now) == 0 {
		return nil, nil
	}
	var w timewheel.Stats
	waits := func() bool {
		if w = b.wheel.Stats(); w.Waiting == 0 { // this worker is running
			b.looked = now
		}
		return w.Waiting > 0
	}
	if now.Sub(b.looked) >= lookEvery && waits() {
		return nil, nil
	}
	t = b.queue.NextOf(func(first *limit.Task) bool {
		kind := b.kinds.get(first.Rec.Kind)
		switch {
		case kind != nil && kind.quick():
			return true
		case kind != nil && b.roomOf(kind) == 0:
			return false
		case w.Workers == 0 && waits(): // it was not asked yet
			return false
		}
		return w.Running <= b.workers-b.reserve()
	})
	if t == nil {
		return nil, nil
	}
	if g := b.kinds.gate(t.Rec); g != nil && g.overdue.Len() > 0 {
		t = g.overdue.Next()
	}
	if of = b.kinds.get(t.Rec.Kind); of != nil {
		of.workers.Add(1)
	}
	b.paid = b.paid.Add(b.each)
	before := b.roomLocked()
	b.removeLocked(t)
	if before == 0 && b.roomLocked() > 0 {
		b.call()
	}
	return t, of
}

// give takes back that the rate was used.
func (b *backlog) give() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paid = b.paid.Add(-b.each)
}

// hire asks the wheel for as many workers as are spare. It returns when to look again.
func (b *backlog) hire() time.Duration {
	if b.queued.Load() == 0 {
		return forever
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue.Len() == 0 || b.stopped {
		return forever
	}
	allowed := b.allowedLocked(time.Now())
	if allowed == 0 {
		return max(catchUpEvery, time.Until(b.paid.Add(b.each)))
	}
	w := b.wheel.Stats()
	free := b.workers - w.Running - max(b.asked, w.Waiting)
	for range min(b.neededLocked(free), allowed) {
		b.asked++
		b.wheel.AfterFunc(0, b.begin)
	}
	return catchUpEvery
}

// neededLocked returns how many of the free workers the kinds may have.
func (b *backlog) neededLocked(free int) int {
	quick, slow := 0, 0
	for first, n := range b.queue.Groups() {
		switch kind := b.kinds.get(first.Rec.Kind); {
		case kind != nil && kind.quick():
			quick += n
		case kind != nil:
			slow += min(n, b.roomOf(kind))
		default:
			slow += n
		}
	}
	return min(free, quick+min(slow, max(free-b.reserve(), 0)))
}

// allowedLocked returns how many runs the rate allows to begin now.
func (b *backlog) allowedLocked(now time.Time) int {
	if burst := now.Add(-max(catchUpBurst, b.each)); b.paid.Before(burst) {
		b.paid = burst
	}
	return int(now.Sub(b.paid) / b.each)
}

// roomOf returns how many more workers the backlog of a kind may have that is not known to be quick: half of them in all,
// unless its own limits are as narrow.
func (b *backlog) roomOf(kind *kind) int {
	half := max(1, b.workers/2)
	if !kind.allows(half) {
		return b.workers
	}
	return max(half-int(kind.workers.Load()), 0)
}

// reserve is how many workers such kinds leave free. One worker alone cannot be left free.
func (b *backlog) reserve() int { return min(max(1, b.workers/8), b.workers-1) }

// stop prevents further runs.
func (b *backlog) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
}

func (b *backlog) isStopped() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stopped
}
