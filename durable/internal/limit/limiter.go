// SPDX-License-Identifier: MIT

package limit

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/btree"
)

// A Limiter enforces the bounds of a kind. Each run of the kind passes through the limiter before it begins. If there
// is no room, the task is queued at the limiter, and its worker is free for other kinds:
//
//   - After a run of the kind, its worker takes the next task. If other runs are waiting because all workers are busy,
//     the next task waits behind them.
//   - If the queue is waiting for a rate, the limiter asks for a worker when the rate allows the next run.
//   - A queued task still counts as waiting. If it is removed, replaced or moved, [Limiter.Remove] removes it from the
//     queue.
//
// A limiter holds only some tasks of its kind, due or not. The other tasks stay in the engine until half of
// the held tasks have begun. Tasks that wait for a limit therefore take no room from other kinds. A task that is due
// before the last held one takes its place, unless that one is due, too.
type Limiter struct {
	kind    *Kind
	backlog *Backlog
	overdue Queue // overdue tasks in the backlog, protected by the backlog's mutex

	mu      sync.Mutex           // protects below
	held    *btree.BTreeG[*Task] // tasks in memory that have not begun, in due order
	bytes   int                  // approximate size of the held tasks
	queue   Queue                // held tasks that wait for the limiter
	running int                  // tasks with a place: their runs have begun, or are about to
	begun   int                  // runs that have begun
	here    Bound                // the kind's bounds, or an operator's in their place
	cluster Bound
	part    Part     // this node's part of the bound for all nodes
	most    int      // maximum number of concurrent runs
	rates   []bucket // each run takes a token from every bucket when its handler is called
	rated   int      // running tasks with a reserved token
	asked   int      // workers that were asked for and have not begun
	waking  Timer    // asks for a worker when the next token is added; nil if none is needed
	wanted  bool     // a wake-up is wanted when half of the held tasks have begun
	looked  time.Time

	fewest atomic.Int64 // the smaller bound on concurrent runs, here or on all nodes; math.MaxInt64 if there is none
}

const (
	// HeldTasks is the maximum number of tasks in a limiter, but for a few that a claim soon gives back. A limiter holds
	// fewer if they reach HeldBytes, which exceeds the size of three of the largest tasks. A full limiter therefore
	// remains more than half full when a task leaves, and is not refilled.
	HeldTasks = 2048
	HeldBytes = 4 << 20

	// moreIfQuick is the number of tasks held beyond the maximum number of concurrent runs if runs are quick, or as many
	// as run here within quickRun if that is more. If runs are slow, these tasks would wait long here, and are left for
	// other nodes.
	moreIfQuick = 64
)

// NewLimiter returns the limiter of a bounded kind for this node's part of the bound for all nodes.
func NewLimiter(k *Kind, b *Backlog, p Part) *Limiter {
	l := &Limiter{kind: k, backlog: b, overdue: NewQueue(ByGroup), held: NewTree(NewFreeList()), queue: NewQueue(ByGroup),
		here: k.Here, cluster: k.Cluster}
	l.setPartLocked(p)
	return l
}

// SetPart sets this node's part of the bound for all nodes, and reports whether it was another one.
func (l *Limiter) SetPart(p Part) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if changed = p != l.part; changed {
		l.setPartLocked(p)
	}
	return changed
}

// HasPart reports whether this node has a part of the bound for all nodes. The part may be 0 runs.
func (l *Limiter) HasPart() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.part != Part{}
}

func (l *Limiter) setPartLocked(p Part) {
	l.part = p
	now := time.Now()
	fewest := int64(math.MaxInt64)
	l.most = math.MaxInt
	if n := l.here.Concurrency; n > 0 {
		l.most, fewest = n, int64(n)
	}
	if n := l.cluster.Concurrency; n > 0 {
		l.most, fewest = min(l.most, p.of(n)), min(fewest, int64(n))
	}
	l.fewest.Store(fewest)
	var rates []bucket
	if l.here.Rate > 0 {
		rates = append(rates, newBucket(l.here, Undivided, l.backlog.Tick))
	}
	if l.cluster.Rate > 0 {
		rates = append(rates, newBucket(l.cluster, p, l.backlog.Tick))
	}
	for i := range l.rates {
		l.rates[i].become(rates[i], now)
	}
	if l.rates == nil {
		l.rates = rates
	}
	if l.waking != nil && l.waking.Stop() { // a token may now be added sooner
		l.waking = nil
	}
	l.hireLocked(now)
}

// work runs t, which may be nil, and then queued tasks, on the calling worker.
func (l *Limiter) work(t *Task) {
	for ; t != nil; t = l.next() {
		l.run(t)
	}
}

// begin runs queued tasks on a worker that the limiter asked for.
func (l *Limiter) begin() {
	l.mu.Lock()
	l.asked--
	t := l.takeLocked(time.Now())
	l.mu.Unlock()
	l.work(t)
}

// wake runs queued tasks on a worker that the limiter asked for at the time of the next token.
func (l *Limiter) wake() {
	l.mu.Lock()
	l.waking = nil
	t := l.takeLocked(time.Now())
	l.mu.Unlock()
	l.work(t)
}

// run runs the task, and frees its place however the run ends. A run that does not begin takes no token.
func (l *Limiter) run(t *Task) {
	ended := false
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		switch {
		case t.begun:
			l.begun--
		case t.rated:
			l.rated--
		}
		if l.running--; !ended { // the goroutine exits, so another worker runs the next task
			l.hireLocked(time.Now())
		}
	}()
	t.Run()
	ended = true
}

// enter queues the task, unless it has been removed, replaced or moved. It returns the task to run now, or nil.
func (l *Limiter) enter(t *Task) *Task {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !t.Waits() {
		return nil
	}
	l.holdLocked(t)
	now := time.Now()
	if l.queue.Len() == 0 && l.roomLocked(now) > 0 && !l.backlog.isStopped() { // the task need not wait
		l.startLocked(t)
		return t
	}
	l.queue.Add(t)
	return l.takeLocked(now)
}

// next returns the task that a worker should run after a run of the kind, or nil.
func (l *Limiter) next() *Task {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.queue.Len() == 0 {
		return nil
	}
	if now.Sub(l.looked) >= LookEvery {
		running, waiting := l.backlog.Workers.Load()
		if pool := l.backlog.Pool(); running > pool || waiting > 0 && running >= pool {
			l.hireLocked(now)
			return nil
		}
		l.looked = now
	}
	return l.takeLocked(now)
}

// takeLocked returns the next task to run, or nil. The task is no longer held.
func (l *Limiter) takeLocked(now time.Time) *Task {
	if l.queue.Len() == 0 || l.backlog.isStopped() {
		return nil
	}
	if l.roomLocked(now) == 0 {
		l.wakeLocked(now)
		return nil
	}
	t := l.queue.Next()
	l.startLocked(t)
	l.hireLocked(now)
	return t
}

// startLocked counts the task as running.
func (l *Limiter) startLocked(t *Task) {
	l.removeLocked(t)
	l.running++
	t.taken = true
	if t.rated = len(l.rates) > 0; t.rated {
		l.rated++
	}
}

// Begin reports whether a run whose handler is about to be called may begin. It may not if this node's part of the bound
// has shrunk since the task took its place.
//
// Begin takes the tokens for the run. If tokens were taken before starts are confirmed, runs that waited together for a slow
// engine would all begin at once.
func (l *Limiter) Begin(t *Task) bool {
	if !t.taken { // the kind had no limit then
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun >= l.most {
		return false
	}
	l.begun++
	t.begun = true
	if !t.rated {
		return true
	}
	now := time.Now()
	l.rated--
	for i := range l.rates {
		l.rates[i].take(now)
	}
	l.hireLocked(now)
	return true
}

// roomLocked returns the number of runs that may begin now.
func (l *Limiter) roomLocked(now time.Time) int {
	room := l.most - l.running
	for i := range l.rates {
		room = min(room, l.rates[i].tokens(now)-l.rated)
	}
	return max(room, 0)
}

// hireLocked asks for a worker for each queued task that may begin.
func (l *Limiter) hireLocked(now time.Time) {
	if l.queue.Len() == 0 {
		return
	}
	room := l.roomLocked(now)
	for range min(room, l.queue.Len()) - l.asked {
		l.asked++
		l.backlog.Workers.After(0, l.begin)
	}
	if room == 0 {
		l.wakeLocked(now)
	}
}

// wakeLocked asks for a worker at the time when the rate allows the next run, if the queue is waiting for the rate.
func (l *Limiter) wakeLocked(now time.Time) {
	if l.waking != nil || l.running >= l.most {
		return
	}
	var wait time.Duration
	for i := range l.rates {
		if l.rates[i].holds <= l.rated {
			return
		}
		wait = max(wait, l.rates[i].after(l.rated, now))
	}
	l.waking = l.backlog.Workers.After(wait, l.wake)
}

// Hold adds a task to the held tasks.
func (l *Limiter) Hold(t *Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holdLocked(t)
}

func (l *Limiter) holdLocked(t *Task) {
	if _, had := l.held.ReplaceOrInsert(t); !had {
		l.countLocked(t, 1)
	}
}

// Remove removes a task that is no longer waiting.
func (l *Limiter) Remove(t *Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holdsLocked(t) {
		l.removeLocked(t)
	}
}

// holdsLocked reports whether the task, and not another one at its position, is held.
func (l *Limiter) holdsLocked(t *Task) bool {
	is, _ := l.held.Get(t)
	return is == t
}

func (l *Limiter) removeLocked(t *Task) {
	l.held.Delete(t)
	l.queue.Remove(t)
	l.countLocked(t, -1)
	if l.wanted && l.drainedLocked() {
		l.wanted = false
		l.backlog.wake()
	}
}

func (l *Limiter) countLocked(t *Task, n int) {
	l.bytes += n * t.Rec.Size()
}

// boundLocked returns the maximum number of tasks that the limiter holds.
func (l *Limiter) boundLocked() int {
	bound := l.most
	if bound > 0 && bound < HeldTasks && l.kind.IsQuick() {
		bound += max(moreIfQuick, bound*l.kind.quickRuns())
	}
	for _, r := range l.rates {
		if bound = min(bound, r.holds+int(min(time.Second/r.each, HeldTasks))); r.holds == 0 {
			bound = 0
		}
	}
	return min(bound, HeldTasks)
}

func (l *Limiter) drainedLocked() bool {
	return 2*l.held.Len() <= l.boundLocked() && 2*l.bytes <= HeldBytes
}

// Room returns the number of further tasks that the limiter has room for, and their total size in bytes.
func (l *Limiter) Room() (n, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes >= HeldBytes {
		return 0, 0
	}
	return max(l.boundLocked()-l.held.Len(), 0), HeldBytes - l.bytes
}

// Takes reports whether the limiter takes a task that a verb has just written, although there may be no room: it is due before
// the last held one, which is not due at now, and there are few such tasks beyond the bound.
func (l *Limiter) Takes(due, now int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.lastLocked()
	return last > now && due < last && l.held.Len() < l.boundLocked()+moreIfQuick && l.bytes < HeldBytes
}

// IsDrained reports whether it is time to refill the limiter. If it is not, Wake receives a value when it is.
func (l *Limiter) IsDrained() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = !l.drainedLocked()
	return !l.wanted
}

// Ahead returns the number of held tasks that are not due at now, and the due time of the last held task.
func (l *Limiter) Ahead(now int64) (n int, last int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held.Descend(func(t *Task) bool {
		if t.Rec.Due <= now {
			return false
		}
		n++
		return true
	})
	return n, l.lastLocked()
}

// lastLocked returns the due time of the last held task, or the earliest time if there is none.
func (l *Limiter) lastLocked() int64 {
	if t, ok := l.held.Max(); ok {
		return t.Rec.Due
	}
	return math.MinInt64
}

// Excess removes and returns the held task that is due last, which is to be dropped from memory. It returns nil if the
// limiter does not hold too many tasks.
func (l *Limiter) Excess() *Task {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held.Len() <= l.boundLocked() && l.bytes <= HeldBytes {
		return nil
	}
	t, _ := l.held.DeleteMax()
	l.queue.Remove(t)
	l.countLocked(t, -1)
	return t
}

// Locked calls f while the limiter is locked.
func (l *Limiter) Locked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// Waiting returns the number of due runs that are waiting for the limiter.
func (l *Limiter) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.Len()
}

// Free returns the number of runs that may begin now without waiting behind others.
func (l *Limiter) Free() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue.Len() > 0 {
		return 0
	}
	return l.roomLocked(time.Now())
}

// IsFull reports whether a run of the kind that falls due now would have to wait.
func (l *Limiter) IsFull() bool { return l.Free() == 0 }
