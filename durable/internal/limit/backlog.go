// SPDX-License-Identifier: MIT

package limit

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A Backlog holds the overdue tasks in memory whose runs have not begun. The kinds take turns, and the tasks of a kind
// are in due order. They run on spare workers, so that a task that falls due now never waits behind them:
//
//   - A worker takes an overdue task only while no due run waits for a worker, and looks again before each, or
//     after a millisecond.
//   - After a run that fell due now, its worker takes overdue tasks. If there is no such worker, Hire asks for more, at
//     most as many as are spare.
//   - The bounded rate is kept as runs begin.
//
// A run cannot be interrupted, and a hanging run keeps its worker. So a kind that is not known to be quick
// ([Kind.IsQuick]) is bounded:
//
//   - It has at most half of the workers for its backlog.
//   - It leaves some workers free, for tasks that fall due now and for the quick kinds of the backlog.
//   - It has at most a share of the queue. Its other tasks stay in the store, or with the engine, until half of the
//     share has begun.
//
// A task leaves the backlog once: to the worker that takes it, or by Remove.
type Backlog struct {
	Config
	queued               atomic.Int64 // tasks in the queue, so that workers can skip an empty one
	heldTasks, heldBytes atomic.Int64 // at all limiters

	mu      sync.Mutex           // protects below
	queue   Queue                // of the kinds
	n       int                  // tasks of the kinds without a limit; the limiters bound the others
	size    int                  // roughly how many bytes those take
	full    map[string]time.Time // kinds that have their share, and since when; until half of it has begun
	each    time.Duration        // the rate: one run in each such time
	most    int                  // how many tasks it takes
	asked   int                  // workers asked for that have not begun
	looked  time.Time            // when no run was last seen waiting for a worker
	paid    time.Time            // the time up to which the rate is used
	stopped bool
}

const (
	// MostQueued is how many tasks a backlog holds at most, or fewer if they reach queuedBytes. It is refilled when
	// half of that is left, which lasts the workers while the keeper commits: with a quarter they wait for the store,
	// and run a quarter fewer tasks. Begun tasks that are not yet stored are fewer than countedStarts of the keeper.
	MostQueued  = 8192
	queuedBytes = 16 << 20
	slowBytes   = queuedBytes / 8
	shareFor    = 2 * time.Second // of one of several nodes: see Share

	// HireEvery is how often the backlog looks for spare workers. catchUpBurst is how long an unused part of the rate
	// may still be used.
	HireEvery    = 10 * time.Millisecond
	catchUpBurst = 100 * time.Millisecond

	// LookEvery is how often a worker checks whether a run waits for a worker, while runs are quick. A check takes some
	// microseconds, about as long as an empty run.
	LookEvery = time.Millisecond

	// firstRun is how long the first run of a kind may take before other tasks are read past those of its kind. At the
	// lowest rate it begins after a second.
	firstRun = 2 * time.Second
)

// NewBacklog returns an empty backlog.
func NewBacklog(c Config) *Backlog {
	b := &Backlog{Config: c, queue: NewQueue(ByKind), full: make(map[string]time.Time)}
	b.Share(1)
	return b
}

// Start starts the rate; the first run may begin at once.
func (b *Backlog) Start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paid = time.Now().Add(-min(b.each, HireEvery))
}

// Share sets the rate to that of one of several nodes. Such a node takes no more tasks than it begins in shareFor.
func (b *Backlog) Share(nodes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.each = time.Second * time.Duration(max(nodes, 1)) / time.Duration(b.Rate)
	if b.most = b.Queue; nodes > 1 {
		b.most = min(b.Queue, max(2, int(shareFor/b.each)))
	}
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

// countLocked counts a task of a kind without a limit.
func (b *Backlog) countLocked(t *Task, n int) {
	b.n += n
	b.size += n * t.Rec.Size()
}

// removeLocked removes the task, if it is in the backlog.
func (b *Backlog) removeLocked(t *Task) {
	if !b.queue.Remove(t) {
		return
	}
	if kind := t.Rec.Kind; !b.full[kind].IsZero() {
		if n, size := b.queue.Held(kind); 2*n <= b.SlowMost() && 2*size <= slowBytes {
			delete(b.full, kind)
			b.wake()
		}
	}
	if l := b.Kinds.Limiter(t.Rec); l == nil || !l.overdue.Remove(t) { // or it was added before the limiter
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

// Len returns how many tasks there are.
func (b *Backlog) Len() int { return int(b.queued.Load()) }

// Limited returns how many tasks all limiters hold, and roughly how many bytes they take.
func (b *Backlog) Limited() (n, size int) { return int(b.heldTasks.Load()), int(b.heldBytes.Load()) }

// Room returns how many more tasks the backlog takes, if it is time to fill it.
func (b *Backlog) Room() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.roomLocked()
}

func (b *Backlog) roomLocked() int {
	if n, size := b.usedLocked(); n <= b.most/2 && size <= queuedBytes/2 {
		return b.most - n
	}
	return 0
}

// usedLocked returns how many tasks of kinds without a limit there are, and roughly how many bytes they take. It leaves
// out kinds that have their share: they take no room from the others.
func (b *Backlog) usedLocked() (n, size int) {
	n, size = b.n, b.size
	for kind := range b.full {
		its, bytes := b.queue.Held(kind)
		n, size = n-its, size-bytes
	}
	return n, size
}

// SlowMost is the share of a kind that is not known to be quick: how many of its tasks the backlog holds, or fewer if
// they reach slowBytes.
func (b *Backlog) SlowMost() int { return max(b.Queue/8, 1) }

// Takes reports whether the backlog takes another task of the kind. If it does not, Wake gets a value when it does
// again. A limiter has bounds of its own.
func (b *Backlog) Takes(kind string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n, size := b.queue.Held(kind); b.full[kind].IsZero() && n < b.SlowMost() && size < slowBytes {
		return true
	}
	if k := b.Kinds.Kind(kind); k == nil || k.Limiter != nil || k.IsQuick() {
		delete(b.full, kind)
		return true
	}
	if b.full[kind].IsZero() {
		b.full[kind] = time.Now()
	}
	return false
}

// Has reports whether overdue tasks of the kind are in the backlog, or running.
func (b *Backlog) Has(kind string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hasLocked(kind) || b.Kinds.Kind(kind).workers.Load() > 0
}

func (b *Backlog) hasLocked(kind string) bool {
	n, _ := b.queue.Held(kind)
	return n > 0
}

// MayBeQuick reports whether a kind that has its share is about to be known as quick or slow.
func (b *Backlog) MayBeQuick(kind string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Kinds.Kind(kind).longest.Load() == 0 && time.Since(b.full[kind]) < firstRun
}

// IsFull reports whether the backlog takes no more tasks because of their size.
func (b *Backlog) IsFull() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, size := b.usedLocked()
	return size >= queuedBytes
}

// Do runs a task that falls due now. Afterwards its worker runs overdue tasks, if it is spare.
func (b *Backlog) Do(t *Task) {
	b.run(t)
	b.work()
}

// run runs the task, or queues it at the limiter of its kind. It reports false if it does neither, because the kind is
// paused.
func (b *Backlog) run(t *Task) bool {
	if l := b.Kinds.Limiter(t.Rec); l != nil {
		l.work(l.enter(t))
		return true
	}
	return t.Run() || b.Kinds.Runs(t.Rec)
}

// work runs overdue tasks on the calling worker, as long as that is spare.
func (b *Backlog) work() {
	for b.queued.Load() > 0 {
		t, of := b.take()
		if t == nil {
			return
		}
		if !b.runTaken(t, of) { // the rate was not used
			b.mu.Lock()
			b.paid = b.paid.Add(-b.each)
			b.mu.Unlock()
		}
	}
}

// runTaken is run for a task that take has returned with its kind, which may be nil.
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
				b.wake() // the node may have been stuck on the kind and claimed none of it
			}
		}()
	}
	return b.run(t)
}

// begin is work on a worker that Hire asked for.
func (b *Backlog) begin() {
	b.mu.Lock()
	b.asked--
	b.mu.Unlock()
	b.work()
}

// take returns the oldest task of the next kind in turn that may have this worker, or nil. For a kind with a limit it
// is the oldest task of the next group in turn.
func (b *Backlog) take() (t *Task, of *Kind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.stopped || b.allowedLocked(now) == 0 {
		return nil, nil
	}
	running := 0 // until the load is known, which includes this worker
	waits := func() bool {
		var waiting int
		if running, waiting = b.Workers.Load(); waiting == 0 {
			b.looked = now
		}
		return waiting > 0
	}
	if now.Sub(b.looked) >= LookEvery && waits() {
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
		return running <= b.Size-b.reserve()
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
	before := b.roomLocked()
	b.removeLocked(t)
	if before == 0 && b.roomLocked() > 0 {
		b.wake()
	}
	return t, of
}

// Hire asks for as many workers as are spare. It returns when to look again.
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
	free := b.Size - running - max(b.asked, waiting)
	for range min(b.neededLocked(free), allowed) {
		b.asked++
		b.Workers.After(0, b.begin)
	}
	return HireEvery
}

// neededLocked returns how many of the free workers the kinds may have.
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

// allowedLocked returns how many runs the rate allows to begin now.
func (b *Backlog) allowedLocked(now time.Time) int {
	if burst := now.Add(-max(catchUpBurst, b.each)); b.paid.Before(burst) {
		b.paid = burst
	}
	return int(now.Sub(b.paid) / b.each)
}

// roomOf returns how many more workers the backlog of a kind that is not known to be quick may have: half of them in
// all, unless its own bounds are as narrow.
func (b *Backlog) roomOf(kind *Kind) int {
	half := max(1, b.Size/2)
	if !kind.allows(half) {
		return b.Size
	}
	return max(half-int(kind.workers.Load()), 0)
}

// reserve is how many workers such kinds leave free. One worker alone cannot be left free.
func (b *Backlog) reserve() int { return min(max(1, b.Size/8), b.Size-1) }

// ShutFor returns for how long no worker was free for an overdue task of the kind, and none took one, if that many runs
// are running now. It is 0 if one is free.
func (b *Backlog) ShutFor(kind *Kind, running int) time.Duration {
	now := time.Now()
	if kind.IsQuick() && running < b.Size || running < b.Size-b.reserve() && b.roomOf(kind) > 0 {
		kind.open.Store(now.UnixNano())
	}
	return time.Duration(now.UnixNano() - kind.open.Load())
}

// Oldest returns the earliest due time of a task that no limit holds back, and whether there is one.
func (b *Backlog) Oldest() (due int64, ok bool) {
	b.mu.Lock()
	var firsts []*Task
	for first := range b.queue.Groups() {
		firsts = append(firsts, first)
	}
	b.mu.Unlock()
	for _, first := range firsts { // a limiter looks at the backlog while it is locked
		l := b.Kinds.Limiter(first.Rec)
		if b.Kinds.Runs(first.Rec) && (l == nil || !l.IsFull()) && (!ok || first.Rec.Due < due) {
			due, ok = first.Rec.Due, true
		}
	}
	return due, ok
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
