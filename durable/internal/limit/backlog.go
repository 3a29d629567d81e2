// SPDX-License-Identifier: MIT

package limit

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A Backlog holds the overdue tasks in memory whose runs have not begun. Kinds take turns, and the tasks of each kind
// are in due order. Overdue tasks run on spare workers, so that a task that falls due now never waits behind them:
//
//   - A worker takes an overdue task only while no due run is waiting for a worker. It checks this before each task or,
//     for tasks of quick kinds, once per millisecond.
//   - A worker that has finished the run of a newly due task takes overdue tasks. If there are too few such workers,
//     Hire asks for more, but never for more than are spare.
//   - Runs begin at no more than the configured rate.
//
// A run cannot be interrupted, and a hanging run occupies its worker. A kind that is not known to be quick
// ([Kind.IsQuick]) is therefore bounded:
//
//   - Its overdue tasks occupy at most half of the workers.
//   - It leaves some workers free for tasks that fall due now and for overdue tasks of quick kinds.
//   - It occupies at most its share of the queue. Its other tasks stay in the engine until half of the share
//     has begun.
//
// A task leaves the backlog when a worker takes it or Remove removes it.
type Backlog struct {
	Config
	queued atomic.Int64 // length of queue, so that workers can skip an empty queue without locking
	pool   atomic.Int64 // number of workers
	room   atomic.Int64 // maximum number of tasks of kinds without a limit

	mu      sync.Mutex      // protects below
	queue   Queue           // fair queue of the kinds
	n       int             // queued tasks of kinds without a limit; limiters bound the other kinds
	size    int             // approximate bytes of the tasks counted by n
	full    map[string]bool // kinds that have filled their share; removed once half of it has begun
	nodes   int             // see Share
	each    time.Duration   // interval between runs that the rate allows
	most    int             // maximum of n, not counting the kinds in full
	asked   int             // workers that were asked for and have not begun
	looked  time.Time       // last time at which no run was waiting for a worker
	paid    time.Time       // time up to which the rate has been used
	stopped bool
}

const (
	// MostQueued is the maximum number of tasks in a backlog. A backlog holds fewer if they reach queuedBytes, and fewer
	// of a slow kind if those reach SlowBytes. It is refilled when half of that is left, which keeps the workers busy
	// while tasks are claimed.
	MostQueued  = 8192
	queuedBytes = 16 << 20
	SlowBytes   = queuedBytes / 8
	shareFor    = 2 * time.Second // for one of several nodes: see Share

	// HireEvery is the interval at which the backlog looks for spare workers. catchUpBurst is how long an unused part
	// of the rate remains usable.
	HireEvery    = 10 * time.Millisecond
	catchUpBurst = 100 * time.Millisecond

	// LookEvery is the interval at which a worker checks whether a run is waiting for a worker, as long as runs are
	// quick. A check takes a few microseconds, about as long as an empty run.
	LookEvery = time.Millisecond
)

// NewBacklog returns an empty backlog.
func NewBacklog(c Config) *Backlog {
	b := &Backlog{Config: c, queue: NewQueue(ByKind), full: make(map[string]bool), nodes: 1}
	b.Resize(c.Size, c.Queue)
	return b
}

// Start starts the rate limit. The first run may begin at once.
func (b *Backlog) Start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paid = time.Now().Add(-min(b.each, HireEvery))
}

// Add adds an overdue task.
func (b *Backlog) Add(t *Task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue.Add(t)
	if l := b.Kinds.Limiter(t.Rec); l != nil {
		l.overdue.Add(t)
	} else {
		b.countLocked(t, 1)
	}
	b.queued.Store(int64(b.queue.Len()))
}

// Remove removes the task, unless a worker has taken it.
func (b *Backlog) Remove(t *Task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removeLocked(t)
}

// countLocked counts a task of a kind without a limit n times.
func (b *Backlog) countLocked(t *Task, n int) {
	b.n += n
	b.size += n * t.Rec.Size()
}

// removeLocked removes the task, if it is in the backlog.
func (b *Backlog) removeLocked(t *Task) {
	if !b.queue.Remove(t) {
		return
	}
	if kind := t.Rec.Kind; b.full[kind] {
		if n, size := b.queue.Held(kind); 2*n <= b.SlowMost() && 2*size <= SlowBytes {
			delete(b.full, kind)
			b.wake()
		}
	}
	if l := b.Kinds.Limiter(t.Rec); l == nil || !l.overdue.Remove(t) { // or the task was added before the limiter
		b.countLocked(t, -1)
	}
	b.queued.Store(int64(b.queue.Len()))
}

// wake signals that there is room again.
func (b *Backlog) wake() {
	select {
	case b.Wake <- struct{}{}:
	default:
	}
}

// Len returns the number of tasks in the backlog.
func (b *Backlog) Len() int { return int(b.queued.Load()) }

// Room returns the number of tasks that the backlog has room for, and their total size in bytes, or 0 if it is not yet
// time to refill it.
func (b *Backlog) Room() (n, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.roomLocked()
}

func (b *Backlog) roomLocked() (n, size int) {
	n, size = b.usedLocked()
	if n <= b.most/2 && size <= queuedBytes/2 {
		return b.most - n, queuedBytes - size
	}
	return 0, 0
}

// usedLocked returns the number of tasks of kinds without a limit, and their approximate size in bytes. It does not
// count kinds that have filled their share, because they must not take room from other kinds.
func (b *Backlog) usedLocked() (n, size int) {
	n, size = b.n, b.size
	for kind := range b.full {
		its, bytes := b.queue.Held(kind)
		n, size = n-its, size-bytes
	}
	return n, size
}

// SlowMost returns the maximum number of tasks in the backlog of each kind that is not known to be quick. The backlog
// holds fewer if they reach SlowBytes.
func (b *Backlog) SlowMost() int { return max(int(b.room.Load())/8, 1) }

// Takes reports whether the backlog accepts another task of the kind. If it does not, Wake receives a value when it
// does again. A kind with a limiter is always accepted, because the limiter has its own bounds.
func (b *Backlog) Takes(kind string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n, size := b.queue.Held(kind); !b.full[kind] && n < b.SlowMost() && size < SlowBytes {
		return true
	}
	if k := b.Kinds.Kind(kind); k == nil || k.Limiter != nil || k.IsQuick() {
		delete(b.full, kind)
		return true
	}
	b.full[kind] = true
	return false
}

// Has reports whether overdue tasks of the kind are in the backlog or running.
func (b *Backlog) Has(kind string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hasLocked(kind) || b.Kinds.Kind(kind).workers.Load() > 0
}

func (b *Backlog) hasLocked(kind string) bool {
	n, _ := b.queue.Held(kind)
	return n > 0
}

// IsFull reports whether the backlog accepts no more tasks because of their total size.
func (b *Backlog) IsFull() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, size := b.usedLocked()
	return size >= queuedBytes
}

// Do runs a task that falls due now. Afterwards, the worker runs overdue tasks as long as it is spare.
func (b *Backlog) Do(t *Task) {
	b.run(t)
	b.work()
}

// run runs the task, or queues it at its kind's limiter. It reports false if it does neither because the kind is
// paused.
func (b *Backlog) run(t *Task) bool {
	if l := b.Kinds.Limiter(t.Rec); l != nil {
		l.work(l.enter(t))
		return true
	}
	return t.Run() || b.Kinds.Runs(t.Rec)
}

// work runs overdue tasks on the calling worker as long as the worker is spare.
func (b *Backlog) work() {
	for b.queued.Load() > 0 {
		t, of := b.take()
		if t == nil {
			return
		}
		if !b.runTaken(t, of) { // no run began: return its part of the rate
			b.mu.Lock()
			b.paid = b.paid.Add(-b.each)
			b.mu.Unlock()
		}
	}
}

// runTaken is run for a task and kind returned by take. The kind may be nil.
func (b *Backlog) runTaken(t *Task, of *Kind) bool {
	if of != nil {
		defer func() {
			of.workers.Add(-1)
			if of.IsQuick() {
				return
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if !b.hasLocked(t.Rec.Kind) {
				b.wake() // the node may have been blocked on the kind and claimed no tasks of it
			}
		}()
	}
	return b.run(t)
}

// begin runs on a worker that Hire asked for, and calls work.
func (b *Backlog) begin() {
	b.mu.Lock()
	b.asked--
	b.mu.Unlock()
	b.work()
}

// take returns the earliest due task of the next kind in turn that may use this worker, or nil. For a kind with a
// limit, it returns the earliest due task of the next group in turn.
func (b *Backlog) take() (t *Task, of *Kind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.stopped || b.allowedLocked(now) == 0 {
		return nil, nil
	}
	running := 0 // 0 until the load is read; the load includes this worker
	waits := func() bool {
		var waiting int
		if running, waiting = b.Workers.Load(); waiting == 0 {
			b.looked = now
		}
		return waiting > 0
	}
	if now.Sub(b.looked) >= LookEvery && (waits() || running > b.Pool()) { // the pool may have shrunk
		return nil, nil
	}
	t = b.queue.NextOf(func(first *Task) bool {
		kind := b.Kinds.Kind(first.Rec.Kind)
		switch {
		case kind != nil && kind.IsQuick():
			return true
		case kind != nil && b.roomOf(kind) == 0:
			return false
		case running == 0 && waits():
			return false
		}
		return running <= b.Pool()-b.reserve()
	})
	if t == nil {
		return nil, nil
	}
	if l := b.Kinds.Limiter(t.Rec); l != nil && l.overdue.Len() > 0 {
		t = l.overdue.Next()
	}
	if of = b.Kinds.Kind(t.Rec.Kind); of != nil {
		of.workers.Add(1)
		of.open.Store(now.UnixNano())
	}
	b.paid = b.paid.Add(b.each)
	before, _ := b.roomLocked()
	b.removeLocked(t)
	if after, _ := b.roomLocked(); before == 0 && after > 0 {
		b.wake()
	}
	return t, of
}

// Hire asks for as many workers as are spare and needed. It returns the time after which to call it again.
func (b *Backlog) Hire() time.Duration {
	const never = time.Duration(math.MaxInt64)
	if b.queued.Load() == 0 {
		return never
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue.Len() == 0 || b.stopped {
		return never
	}
	allowed := b.allowedLocked(time.Now())
	if allowed == 0 {
		return max(HireEvery, time.Until(b.paid.Add(b.each)))
	}
	running, waiting := b.Workers.Load()
	free := b.Pool() - running - max(b.asked, waiting)
	for range min(b.neededLocked(free), allowed) {
		b.asked++
		b.Workers.After(0, b.begin)
	}
	return HireEvery
}

// neededLocked returns how many of the free workers the queued kinds may use.
func (b *Backlog) neededLocked(free int) int {
	quick, slow := 0, 0
	for first, n := range b.queue.Groups() {
		switch kind := b.Kinds.Kind(first.Rec.Kind); {
		case kind != nil && kind.IsQuick():
			quick += n
		case kind != nil:
			slow += min(n, b.roomOf(kind))
		default:
			slow += n
		}
	}
	return min(free, quick+min(slow, max(free-b.reserve(), 0)))
}

// allowedLocked returns the number of runs that the rate allows to begin now.
func (b *Backlog) allowedLocked(now time.Time) int {
	if burst := now.Add(-max(catchUpBurst, b.each)); b.paid.Before(burst) {
		b.paid = burst
	}
	return int(now.Sub(b.paid) / b.each)
}

// roomOf returns how many more workers the overdue tasks of a kind may use if the kind is not known to be quick. They
// may use half of all workers in total. There is no limit if the kind's own bounds are at least as strict.
func (b *Backlog) roomOf(kind *Kind) int {
	half := max(1, b.Pool()/2)
	if !kind.allows(half) {
		return b.Pool()
	}
	return max(half-int(kind.workers.Load()), 0)
}

// reserve returns how many workers must stay free of kinds that are not known to be quick. A single worker cannot be
// reserved.
func (b *Backlog) reserve() int { return min(max(1, b.Pool()/8), b.Pool()-1) }

// ShutFor returns how long ago a worker was last free for an overdue task of the kind, or took one. It returns 0 if a
// worker is free now. running is the number of runs in progress.
func (b *Backlog) ShutFor(kind *Kind, running int) time.Duration {
	now := time.Now()
	if kind.IsQuick() && running < b.Pool() || running < b.Pool()-b.reserve() && b.roomOf(kind) > 0 {
		kind.open.Store(now.UnixNano())
	}
	return time.Duration(now.UnixNano() - kind.open.Load())
}

// Oldest returns since when a task has waited that no limit holds back, and whether there is such a task. It has waited
// since it was due, or since the time that the function returns for its kind, whichever is later.
func (b *Backlog) Oldest(since func(kind string) int64) (at int64, ok bool) {
	b.mu.Lock()
	var firsts []*Task
	for first := range b.queue.Groups() {
		firsts = append(firsts, first)
	}
	b.mu.Unlock()
	for _, first := range firsts { // not under b.mu, because a locked limiter may lock the backlog
		l := b.Kinds.Limiter(first.Rec)
		began := max(first.Rec.Due, since(first.Rec.Kind))
		if b.Kinds.Runs(first.Rec) && (l == nil || !l.IsFull()) && (!ok || began < at) {
			at, ok = began, true
		}
	}
	return at, ok
}

// Stop prevents further runs.
func (b *Backlog) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
}

func (b *Backlog) isStopped() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stopped
}
