// SPDX-License-Identifier: MIT

package durable

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/task"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A gate keeps the limits of a kind. Each run of the kind passes it before it begins. If there is no room, the
// live is queued here (turns.go), and its worker is free for other kinds:
//
//   - A worker that has ended a run of the kind takes the next one. If other runs wait because no worker is
//     left, the next one gets in line behind them.
//   - If it waits for a rate, the wheel sends a worker when the rate allows the next run.
//   - A queued live is in the state waits. Whatever removes, replaces or moves it takes it out of the queue.
//
// Few of the tasks of the kind are in memory, whether they are due or not: of a node those that are due
// first, of a keeper a share for each group (shares.go). A keeper leaves the others in the store, and a node
// leaves them to the engine, until half of the few have begun. So what waits for a limit takes no room that
// other kinds need.
type gate struct {
	name    string   // of the kind
	kind    *kind    // its limits do not change
	classes []string // of the tasks that pass
	backlog *backlog
	total   *gateTotal
	overdue limit.Queue // in the backlog, which protects it

	mu      sync.Mutex  // protects below
	held    shares      // in memory, and not begun
	bytes   int         // about how many bytes those take
	queue   limit.Queue // of these, those that wait for the gate
	running int
	part    limit.Part       // in the limits of all nodes
	most    int              // may be running at once
	rates   []limit.Bucket   // each run takes a token of each as its handler is called
	rated   int              // running, and will take tokens that are there
	asked   int              // workers that were asked for and have not begun
	waking  *timewheel.Timer // sends a worker when there is a token; nil if none is waited for
	wanted  bool             // the backend is to be called when half of what is held has begun
	looked  time.Time        // when nothing was seen to wait for workers

	// Of a node, which protects these. See [node.divideLocked].
	claimed  cursor
	crowded  bool   // more of it is overdue than was claimed: the groups take turns
	group    string // to go on after
	reported int64  // when the others could know that this node has the kind, by its own time; 0 if they cannot
}

// A gateTotal counts what is held at all gates of a scheduler.
type gateTotal struct{ lives, bytes atomic.Int64 }

const (
	// A gate holds gateTasks in memory, or fewer if they have gateBytes. That is more than three of the largest: so
	// a gate which is full remains more than half full when one has left it, and is not filled at once.
	gateTasks = 2048
	gateBytes = 4 << 20

	// gateQuick is how many more than may be running at once the gate of a node holds if the runs are quick. If
	// they are not, another node can run what has to wait here for long.
	gateQuick = 64
)

// limited reports whether the kind needs a gate.
func (k *kind) limited() bool { return k.limit != limit.Bound{} || k.cluster != limit.Bound{} }

func newGate(name string, k *kind, b *backlog, total *gateTotal) *gate {
	g := &gate{
		name: name, kind: k, classes: k.policy.Classes(name), backlog: b, total: total,
		overdue: limit.NewQueue(limit.ByGroup), held: newShares(), queue: limit.NewQueue(limit.ByGroup),
	}
	if b.shared {
		g.setPartLocked(limit.Part{})
	} else {
		g.setPartLocked(limit.Undivided)
	}
	return g
}

// setPart sets the part of this node in the limits of all nodes.
func (g *gate) setPart(p limit.Part) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p != g.part {
		g.setPartLocked(p)
	}
}

// hasPart reports whether this node has a part in the limits of all nodes, which may be 0 runs.
func (g *gate) hasPart() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.part != limit.Part{}
}

func (g *gate) setPartLocked(p limit.Part) {
	g.part = p
	now := time.Now()
	g.most = math.MaxInt
	if n := g.kind.limit.Concurrency; n > 0 {
		g.most = n
	}
	if n := g.kind.cluster.Concurrency; n > 0 {
		g.most = min(g.most, p.Of(n))
	}
	var rates []limit.Bucket
	if g.kind.limit.Rate > 0 {
		rates = append(rates, limit.NewBucket(g.kind.limit, limit.Undivided, g.backlog.tick))
	}
	if g.kind.cluster.Rate > 0 {
		rates = append(rates, limit.NewBucket(g.kind.cluster, p, g.backlog.tick))
	}
	for i := range g.rates {
		g.rates[i].Become(rates[i], now)
	}
	if g.rates == nil {
		g.rates = rates
	}
	if g.waking != nil && g.waking.Stop() { // there may be a token sooner
		g.waking = nil
	}
	g.hireLocked(now)
}

// pass does the run of the live, if there is room, and then runs of those that wait.
func (g *gate) pass(t *limit.Task) {
	g.work(g.enter(t))
}

// work does the run, which may be nil, and then what waits, on the worker that calls it.
func (g *gate) work(t *limit.Task) {
	for ; t != nil; t = g.next() {
		g.run(t)
	}
}

// begin is work on a worker that was asked for.
func (g *gate) begin() {
	g.mu.Lock()
	g.asked--
	t := g.takeLocked(time.Now())
	g.mu.Unlock()
	g.work(t)
}

// wake is work on a worker that was sent for a token.
func (g *gate) wake() {
	g.mu.Lock()
	g.waking = nil
	t := g.takeLocked(time.Now())
	g.mu.Unlock()
	g.work(t)
}

// run does the run, and makes room whatever becomes of it. One that is not made after all, as its kind is paused,
// takes no token.
func (g *gate) run(t *limit.Task) {
	goes, called := false, true // a handler that ends the goroutine was called
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if t.Rated && !called {
			g.rated--
		}
		if g.running--; !goes { // the goroutine ends: another worker does the next
			g.hireLocked(time.Now())
		}
	}()
	called = t.Run()
	goes = true
}

// enter queues the live, unless it was removed, replaced or moved. It returns what is to run.
func (g *gate) enter(t *limit.Task) *limit.Task {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !t.Waits() {
		return nil
	}
	g.holdLocked(t)
	now := time.Now()
	if g.queue.Len() == 0 && g.roomLocked(now) > 0 && !g.backlog.isStopped() { // it need not wait
		g.startLocked(t)
		return t
	}
	g.queue.Add(t)
	return g.takeLocked(now)
}

// next returns what a worker runs after a run of the kind, or nil.
func (g *gate) next() *limit.Task {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.queue.Len() == 0 {
		return nil
	}
	if now.Sub(g.looked) >= lookEvery {
		if w := g.backlog.wheel.Stats(); w.Waiting > 0 && w.Running >= g.backlog.workers {
			g.hireLocked(now)
			return nil
		}
		g.looked = now
	}
	return g.takeLocked(now)
}

// takeLocked returns the live that runs next, or nil. It is held no more.
func (g *gate) takeLocked(now time.Time) *limit.Task {
	if g.queue.Len() == 0 || g.backlog.isStopped() {
		return nil
	}
	if g.roomLocked(now) == 0 {
		g.wakeLocked(now)
		return nil
	}
	t := g.queue.Next()
	g.startLocked(t)
	g.hireLocked(now)
	return t
}

// startLocked counts the live as running.
func (g *gate) startLocked(t *limit.Task) {
	g.removeLocked(t)
	g.running++
	if t.Rated = len(g.rates) > 0; t.Rated {
		g.rated++
	}
}

// began takes the tokens of a run that is confirmed. If it took them before that, runs that have waited together
// for a slow engine would start at once.
func (g *gate) began() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.rated--
	for i := range g.rates {
		g.rates[i].Take(now)
	}
	g.hireLocked(now)
}

// roomLocked returns how many runs may begin.
func (g *gate) roomLocked(now time.Time) int {
	room := g.most - g.running
	for i := range g.rates {
		room = min(room, g.rates[i].Tokens(now)-g.rated)
	}
	return max(room, 0)
}

// hireLocked asks the wheel for as many workers as may begin what waits.
func (g *gate) hireLocked(now time.Time) {
	if g.queue.Len() == 0 {
		return
	}
	room := g.roomLocked(now)
	for range min(room, g.queue.Len()) - g.asked {
		g.asked++
		g.backlog.wheel.AfterFunc(0, g.begin)
	}
	if room == 0 {
		g.wakeLocked(now)
	}
}

// wakeLocked has the wheel send a worker when the rate allows a run, if that is what the queue waits for.
func (g *gate) wakeLocked(now time.Time) {
	if g.waking != nil || g.running >= g.most {
		return
	}
	var wait time.Duration
	for i := range g.rates {
		if g.rates[i].Holds <= g.rated {
			return
		}
		wait = max(wait, g.rates[i].After(g.rated, now))
	}
	g.waking = g.backlog.wheel.AfterFunc(wait, g.wake)
}

// hold notes a live that is in memory.
func (g *gate) hold(t *limit.Task) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holdLocked(t)
}

func (g *gate) holdLocked(t *limit.Task) {
	if !g.held.has(t) && g.held.add(t) {
		g.countLocked(t, 1)
	}
}

// remove takes out a live that does not wait any more.
func (g *gate) remove(t *limit.Task) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held.has(t) {
		g.removeLocked(t)
	}
}

func (g *gate) removeLocked(t *limit.Task) {
	g.held.remove(t)
	g.queue.Remove(t)
	g.countLocked(t, -1)
	if g.wanted && (g.drainedLocked() || g.held.lacks(t.Rec.Group)) {
		g.wanted = false
		g.backlog.call()
	}
}

func (g *gate) countLocked(t *limit.Task, n int) {
	size := n * t.Rec.Size()
	g.bytes += size
	g.total.lives.Add(int64(n))
	g.total.bytes.Add(int64(size))
}

// boundLocked returns how many tasks the gate holds.
func (g *gate) boundLocked() int {
	if !g.backlog.shared {
		return gateTasks
	}
	bound := g.most
	if bound > 0 && bound < gateTasks && g.kind.quick() {
		bound += gateQuick
	}
	for _, r := range g.rates {
		if r.Holds == 0 {
			return 0
		}
		bound = min(bound, r.Holds+int(min(time.Second/r.Each, gateTasks)))
	}
	return min(bound, gateTasks)
}

func (g *gate) drainedLocked() bool {
	return 2*g.held.len() <= g.boundLocked() && 2*g.bytes <= gateBytes
}

// room returns how many more tasks the gate takes.
func (g *gate) room() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bytes >= gateBytes {
		return 0
	}
	return max(g.boundLocked()-g.held.len(), 0)
}

// drained reports whether it is time to fill the gate. If it is not, the backend is called when it is.
func (g *gate) drained() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wanted = !g.drainedLocked()
	return !g.wanted
}

// excess returns a live that is to leave the memory, if there are too many: of a node, the one that is due
// last. The gate of a keeper is cut before it.
func (g *gate) excess() *limit.Task {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.held.len()
	if n <= g.boundLocked() && (g.backlog.shared || n <= 1 || g.bytes <= gateBytes) {
		return nil
	}
	var t *limit.Task
	if g.backlog.shared {
		t, _ = g.held.all.Max()
		g.held.remove(t)
	} else {
		t = g.held.leave(time.Now().UnixNano())
	}
	g.queue.Remove(t)
	g.countLocked(t, -1)
	return t
}

// beyond reports whether the task is left to the store.
func (g *gate) beyond(rec *task.Record) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held.beyond(rec)
}

// read begins a reading of what the feeds of a keeper have passed. It returns nil if there is nothing to read,
// and when to come back. The keeper is called if that is sooner.
func (g *gate) read(fed engine.Position) (r *reading, again time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if again = forever; g.held.isCut() {
		r, again = g.held.begin(time.Now().UnixNano(), fed, g.drainedLocked())
	}
	g.wanted = r == nil
	return r, again
}

// full reports whether the gate holds no more of the share that is read for.
func (g *gate) full(r *reading) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return r.full()
}

// end notes that a reading has come to the position.
func (g *gate) end(r *reading, at, fed engine.Position) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held.end(r, at, fed)
}

// waiting returns how many due runs wait for the limits.
func (g *gate) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queue.Len()
}
