// SPDX-License-Identifier: MIT

package limit

import (
	"math"
	"sync"
	"time"

	"github.com/google/btree"
)

// A Limiter enforces the bounds of a kind. Each run of the kind passes it before it begins. If there is no room, the
// task is queued here, and its worker is free for other kinds:
//
//   - After a run of the kind, its worker takes the next one. If other runs wait because no worker is left, the next
//     one gets in line behind them.
//   - If the queue waits for a rate, a worker is asked for when the rate allows the next run.
//   - A queued task still waits: if it is removed, replaced or moved, [Limiter.Remove] takes it out.
//
// A limiter holds only some tasks of its kind, whether they are due or not. The others stay in the store, or with the
// engine, until half of the held ones have begun. So tasks that wait for a limit take no room from other kinds.
type Limiter struct {
	kind    *Kind
	backlog *Backlog
	overdue Queue // in the backlog, which protects it

	mu      sync.Mutex // protects below
	held    Window
	bytes   int   // roughly how many bytes the held tasks take
	queue   Queue // the held tasks that wait for the limiter
	running int
	part    Part     // in the bound of all nodes
	most    int      // greatest number of runs at once
	rates   []bucket // each run takes a token from each when its handler is called
	rated   int      // running, with a token reserved
	asked   int      // workers that were asked for and have not begun
	waking  Timer    // asks for a worker when there is a token; nil if none is needed
	wanted  bool     // wake when half of the held tasks have begun
	looked  time.Time
}

// A Window is the set of tasks that a limiter holds: they are in memory and have not begun. The limiter protects it.
type Window interface {
	Add(t *Task) (added bool) // reports false if it has replaced a task at the same position
	Remove(t *Task)           // which must be in it
	Has(t *Task) bool
	Len() int
	Lacks(group string) bool      // more of the group is to be read at once
	Excess(most, bytes int) *Task // removes and returns a task if there are too many, or returns nil; the tasks take roughly that many bytes
}

const (
	// A limiter holds HeldTasks, or fewer if they reach HeldBytes. HeldBytes exceeds three of the largest tasks, so a
	// full limiter remains more than half full when one leaves, and is not refilled.
	HeldTasks = 2048
	HeldBytes = 4 << 20

	// moreIfQuick is how many tasks beyond the greatest number of runs at once are held if the runs are quick. If they
	// are not, another node can run tasks that would wait long here.
	moreIfQuick = 64
)

// A window has the tasks in due order. The task that is due last leaves first.
type window struct{ *btree.BTreeG[*Task] }

func (w window) Add(t *Task) bool {
	_, had := w.ReplaceOrInsert(t)
	return !had
}

func (w window) Remove(t *Task) { w.Delete(t) }

func (w window) Has(t *Task) bool {
	in, _ := w.Get(t)
	return in == t
}

func (w window) Lacks(string) bool { return false }

func (w window) Excess(most, _ int) *Task {
	if w.Len() <= most {
		return nil
	}
	last, _ := w.DeleteMax()
	return last
}

// NewLimiter gives a bounded kind its limiter, for a part in the bound of all nodes. If held is nil, the limiter holds
// the tasks that are due first.
func NewLimiter(k *Kind, b *Backlog, held Window, p Part) *Limiter {
	if held == nil {
		held = window{NewTree(NewFreeList())}
	}
	l := &Limiter{kind: k, backlog: b, overdue: NewQueue(ByGroup), held: held, queue: NewQueue(ByGroup)}
	l.setPartLocked(p)
	return l
}

// SetPart sets the part of this node in the bound of all nodes.
func (l *Limiter) SetPart(p Part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p != l.part {
		l.setPartLocked(p)
	}
}

// HasPart reports whether this node has a part in the bound of all nodes, which may be 0 runs.
func (l *Limiter) HasPart() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.part != Part{}
}

func (l *Limiter) setPartLocked(p Part) {
	l.part = p
	now := time.Now()
	l.most = math.MaxInt
	if n := l.kind.Here.Concurrency; n > 0 {
		l.most = n
	}
	if n := l.kind.Cluster.Concurrency; n > 0 {
		l.most = min(l.most, p.of(n))
	}
	var rates []bucket
	if l.kind.Here.Rate > 0 {
		rates = append(rates, newBucket(l.kind.Here, Undivided, l.backlog.Tick))
	}
	if l.kind.Cluster.Rate > 0 {
		rates = append(rates, newBucket(l.kind.Cluster, p, l.backlog.Tick))
	}
	for i := range l.rates {
		l.rates[i].become(rates[i], now)
	}
	if l.rates == nil {
		l.rates = rates
	}
	if l.waking != nil && l.waking.Stop() { // there may now be a token sooner
		l.waking = nil
	}
	l.hireLocked(now)
}

// work runs the task, which may be nil, and then queued tasks, on the calling worker.
func (l *Limiter) work(t *Task) {
	for ; t != nil; t = l.next() {
		l.run(t)
	}
}

// begin is work on a worker that the limiter asked for.
func (l *Limiter) begin() {
	l.mu.Lock()
	l.asked--
	t := l.takeLocked(time.Now())
	l.mu.Unlock()
	l.work(t)
}

// wake is work on a worker that the limiter asked for at the time of the next token.
func (l *Limiter) wake() {
	l.mu.Lock()
	l.waking = nil
	t := l.takeLocked(time.Now())
	l.mu.Unlock()
	l.work(t)
}

// run runs the task, and makes room however the run ends. A run that is not made, because its kind is paused, takes no
// token.
func (l *Limiter) run(t *Task) {
	ended, called := false, true // a handler that ends the goroutine was called
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.rated && !called {
			l.rated--
		}
		if l.running--; !ended { // the goroutine ends: another worker does the next
			l.hireLocked(time.Now())
		}
	}()
	called = t.Run()
	ended = true
}

// enter queues the task, unless it was removed, replaced or moved. It returns the task to run now, or nil.
func (l *Limiter) enter(t *Task) *Task {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !t.Waits() {
		return nil
	}
	l.holdLocked(t)
	now := time.Now()
	if l.queue.Len() == 0 && l.roomLocked(now) > 0 && !l.backlog.isStopped() { // it need not wait
		l.startLocked(t)
		return t
	}
	l.queue.Add(t)
	return l.takeLocked(now)
}

// next returns the task that a worker runs after a run of the kind, or nil.
func (l *Limiter) next() *Task {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.queue.Len() == 0 {
		return nil
	}
	if now.Sub(l.looked) >= LookEvery {
		if running, waiting := l.backlog.Workers.Load(); waiting > 0 && running >= l.backlog.Size {
			l.hireLocked(now)
			return nil
		}
		l.looked = now
	}
	return l.takeLocked(now)
}

// takeLocked returns the task that runs next, or nil. It is no longer held.
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
	if t.rated = len(l.rates) > 0; t.rated {
		l.rated++
	}
}

// Began takes the tokens of a run whose handler is about to be called. If tokens were taken before the start is
// confirmed, runs that have waited together for a slow engine would start at once.
func (l *Limiter) Began(t *Task) {
	if !t.rated {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.rated--
	for i := range l.rates {
		l.rates[i].take(now)
	}
	l.hireLocked(now)
}

// roomLocked returns how many runs may begin.
func (l *Limiter) roomLocked(now time.Time) int {
	room := l.most - l.running
	for i := range l.rates {
		room = min(room, l.rates[i].tokens(now)-l.rated)
	}
	return max(room, 0)
}

// hireLocked asks for as many workers as there are queued tasks that may begin.
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

// wakeLocked asks for a worker when the rate allows the next run, if the queue waits for the rate.
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

// Hold adds a task that is in memory.
func (l *Limiter) Hold(t *Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holdLocked(t)
}

func (l *Limiter) holdLocked(t *Task) {
	if !l.held.Has(t) && l.held.Add(t) {
		l.countLocked(t, 1)
	}
}

// Remove removes a task that no longer waits.
func (l *Limiter) Remove(t *Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held.Has(t) {
		l.removeLocked(t)
	}
}

func (l *Limiter) removeLocked(t *Task) {
	l.held.Remove(t)
	l.queue.Remove(t)
	l.countLocked(t, -1)
	if l.wanted && (l.drainedLocked() || l.held.Lacks(t.Rec.Group)) {
		l.wanted = false
		l.backlog.wake()
	}
}

func (l *Limiter) countLocked(t *Task, n int) {
	size := n * t.Rec.Size()
	l.bytes += size
	l.backlog.heldTasks.Add(int64(n))
	l.backlog.heldBytes.Add(int64(size))
}

// boundLocked returns how many tasks the limiter holds.
func (l *Limiter) boundLocked() int {
	bound := l.most
	if bound > 0 && bound < HeldTasks && l.kind.IsQuick() {
		bound += moreIfQuick
	}
	for _, r := range l.rates {
		if bound = min(bound, r.holds+int(min(time.Second/r.each, HeldTasks))); r.holds == 0 {
			bound = 0
		}
	}
	return min(max(bound, l.backlog.Held), HeldTasks)
}

func (l *Limiter) drainedLocked() bool {
	return 2*l.held.Len() <= l.boundLocked() && 2*l.bytes <= HeldBytes
}

// Room returns how many more tasks the limiter takes.
func (l *Limiter) Room() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes >= HeldBytes {
		return 0
	}
	return max(l.boundLocked()-l.held.Len(), 0)
}

// IsDrained reports whether it is time to fill the limiter. If it is not, Wake gets a value when it is.
func (l *Limiter) IsDrained() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = !l.drainedLocked()
	return !l.wanted
}

// Excess removes a task from the held ones and returns it, to be dropped from memory. It returns nil if there are not
// too many.
func (l *Limiter) Excess() *Task {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.held.Excess(l.boundLocked(), l.bytes)
	if t != nil {
		l.queue.Remove(t)
		l.countLocked(t, -1)
	}
	return t
}

// Locked calls f while nothing changes what the limiter holds.
func (l *Limiter) Locked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// Waiting returns how many due runs wait for the limiter.
func (l *Limiter) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.Len()
}

// IsFull reports whether a run of the kind that falls due now has to wait.
func (l *Limiter) IsFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.Len() > 0 || l.roomLocked(time.Now()) == 0
}
