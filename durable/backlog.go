// SPDX-License-Identifier: MIT

package durable

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/btree"
	"github.com/seed581295f1/timewheel/timewheel"
)

// A backlog holds overdue tasks that have been read from the store and not begun, in due order. They run on
// workers of the wheel that nothing else needs, so that what falls due now never waits behind them:
//
//   - A worker takes an overdue task only while no due run waits in the wheel, and looks again before each, or
//     after a millisecond.
//   - A worker that has ended a run of what fell due now takes overdue tasks next. When there is no such
//     worker, the keeper asks the wheel for more, at most as many as are spare.
//   - Some workers are left free as long as the next task's kind is not known to be quick ([kind.quick]), for
//     a run cannot be interrupted: what falls due during an overdue run of an hour needs a worker, too.
//   - The bounded rate is kept as runs begin.
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
	left    atomic.Int64  // tasks in the queue, for workers that need not look further

	mu      sync.Mutex // protects below
	queue   *btree.BTreeG[*live]
	n       int           // tasks of the kinds without a limit; the gates bound the others
	size    int           // about how many bytes those take
	each    time.Duration // the rate: one run each so often
	asked   int           // workers that were asked for and have not begun
	looked  time.Time     // when nothing was seen to wait in the wheel
	paid    time.Time     // up to when the rate has been used
	stopped bool
}

const (
	// mostQueued is how many tasks a backlog holds, or fewer if they have queuedBytes. It is filled again when half
	// of that is left, which workers begin while the keeper commits: with a quarter of it they wait for the store,
	// and run a quarter fewer. What has begun and is not durable is less than countedStarts.
	mostQueued  = 8192
	queuedBytes = 16 << 20

	// catchUpEvery is how often the keeper looks for spare workers, and catchUpBurst how long after it was due
	// by the rate a run may still make up for it.
	catchUpEvery = 10 * time.Millisecond
	catchUpBurst = 100 * time.Millisecond

	// lookEvery is how often it is looked whether a run waits in the wheel, while runs are quick. A look takes
	// about as long as a run that does nothing, some microseconds.
	lookEvery = time.Millisecond
)

func newBacklog(wheel *timewheel.TimeWheel, kinds *kinds, cfg config, call func()) *backlog {
	return &backlog{
		wheel: wheel, kinds: kinds, workers: cfg.poolSize, tick: cfg.tick, most: mostQueued,
		each: time.Second / time.Duration(cfg.catchUp), call: call, queue: newLives(),
	}
}

// newLives returns lives in due order.
func newLives() *btree.BTreeG[*live] {
	return btree.NewG(32, dueBefore)
}

func dueBefore(a, b *live) bool { return a.rec.position().before(b.rec.position()) }

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

func (b *backlog) add(l *live) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue.ReplaceOrInsert(l)
	if g := b.kinds.gate(l.rec); g != nil {
		g.overdue.add(l)
	} else {
		b.countLocked(l, 1)
	}
	b.left.Store(int64(b.queue.Len()))
}

// remove takes the task out, if no worker has.
func (b *backlog) remove(l *live) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if in, ok := b.queue.Get(l); ok && in == l {
		b.removeLocked(l)
	}
}

// countLocked counts a task of a kind without a limit.
func (b *backlog) countLocked(l *live, n int) {
	b.n += n
	b.size += n * l.rec.size()
}

func (b *backlog) removeLocked(l *live) {
	b.queue.Delete(l)
	if g := b.kinds.gate(l.rec); g == nil || !g.overdue.remove(l) { // or it was added before the gate
		b.countLocked(l, -1)
	}
	b.left.Store(int64(b.queue.Len()))
}

// room returns how many more tasks the backlog takes, if it is time to fill it.
func (b *backlog) room() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.roomLocked()
}

func (b *backlog) roomLocked() int {
	if b.n <= b.most/2 && b.size <= queuedBytes/2 {
		return b.most - b.n
	}
	return 0
}

// full reports whether the backlog takes no more for the bytes that it has.
func (b *backlog) full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size >= queuedBytes
}

// job is what the wheel runs at the due time of the task. Afterwards the worker runs overdue tasks, if it is spare.
func (b *backlog) job(l *live) timewheel.Job {
	return func(*timewheel.Task) {
		b.run(l)
		b.work()
	}
}

// run does the run of the task, or has it wait for the limit of its kind. It reports false if it does neither,
// because the kind is paused.
func (b *backlog) run(l *live) bool {
	if g := b.kinds.gate(l.rec); g != nil {
		g.pass(l)
		return true
	}
	l.by.runTask(l)
	return l.ran.Load() || b.kinds.of(l.rec) != nil
}

// work runs overdue tasks on the worker that calls it, as long as that is spare.
func (b *backlog) work() {
	for b.left.Load() > 0 {
		l := b.take()
		if l == nil {
			return
		}
		if !b.run(l) {
			b.give()
		}
	}
}

// begin is work on a worker that the keeper has asked for.
func (b *backlog) begin() {
	b.mu.Lock()
	b.asked--
	b.mu.Unlock()
	b.work()
}

// take returns the oldest task, or nil if it must wait. If the oldest is of a kind with a limit, take returns
// the oldest of the group whose turn it is.
func (b *backlog) take() *live {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	l, ok := b.queue.Min()
	if !ok || b.stopped || b.allowedLocked(now) == 0 {
		return nil
	}
	if usable := b.usableLocked(l); usable < b.workers || now.Sub(b.looked) >= lookEvery {
		if w := b.wheel.Stats(); w.Waiting > 0 || w.Running > usable { // this worker is running
			return nil
		}
		b.looked = now
	}
	if g := b.kinds.gate(l.rec); g != nil && g.overdue.n > 0 {
		l = g.overdue.next()
	}
	b.paid = b.paid.Add(b.each)
	before := b.roomLocked()
	b.removeLocked(l)
	if before == 0 && b.roomLocked() > 0 {
		b.call()
	}
	return l
}

// give takes back that the rate was used.
func (b *backlog) give() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paid = b.paid.Add(-b.each)
}

// hire asks the wheel for as many workers as are spare. It returns when to look again.
func (b *backlog) hire() time.Duration {
	if b.left.Load() == 0 {
		return forever
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.queue.Min()
	if !ok || b.stopped {
		return forever
	}
	allowed := b.allowedLocked(time.Now())
	if allowed == 0 {
		return max(catchUpEvery, time.Until(b.paid.Add(b.each)))
	}
	w := b.wheel.Stats()
	spare := b.usableLocked(l) - w.Running - max(b.asked, w.Waiting)
	for range min(spare, b.queue.Len(), allowed) {
		b.asked++
		b.wheel.AfterFunc(0, b.begin)
	}
	return catchUpEvery
}

// allowedLocked returns how many runs the rate allows to begin now.
func (b *backlog) allowedLocked(now time.Time) int {
	if burst := now.Add(-max(catchUpBurst, b.each)); b.paid.Before(burst) {
		b.paid = burst
	}
	return int(now.Sub(b.paid) / b.each)
}

// usableLocked returns how many workers may be running when the overdue task begins.
func (b *backlog) usableLocked(l *live) int {
	if kind := b.kinds.get(l.rec.kind); kind != nil && kind.quick() {
		return b.workers
	}
	return max(1, b.workers-max(1, b.workers/8))
}

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
