// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/past"
	"github.com/seed581295f1/timewheel/durable/internal/task"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A keeper is a goroutine that owns all state outside the store: which tasks are in the wheel, how far the store has
// been read, and the fingerprints. Every change to a task is an operation sent to the keeper. The keeper takes the
// waiting operations as a group, and handles one group at a time:
//
//	decides   how the tasks change; each operation sees the changes of earlier ones
//	commits   all changes to the store, with one sync
//	updates   the fingerprints and the wheel
//	answers   the waiting callers
//
// So every acknowledged change is durable, and every task in the wheel is in the store. After a failed commit, the
// contents of the store are unknown, so the keeper refuses further operations and the wheel stops.
type keeper struct {
	store   engine.Store
	wheel   *timewheel.TimeWheel
	kinds   *kinds
	cfg     config
	backlog *limit.Backlog

	ctx        context.Context // parent of the runs' contexts
	cancelRuns context.CancelCauseFunc

	mu        sync.Mutex // protects ops and closed
	ops       []op
	closed    bool
	wake      chan struct{} // signals that ops is not empty
	ended     chan struct{}
	helpers   sync.WaitGroup // goroutines that read the store or watch it
	failure   atomic.Pointer[error]
	failed    chan struct{} // closed when failure is set
	count     counter
	counts    census
	running   running
	handlings handlings
	report    reporter
	teller    *teller

	counted atomic.Int64 // number of starts of overdue tasks

	// The keeper goroutine owns the fields below.
	started        bool
	since          int64 // set by Start; tasks due by this time were due before Start
	latest         int64 // the clock when it was last read; see watchClock
	live           map[string]*live
	prints         *fingerprints // nil if fingerprints are disabled
	generation     uint64
	overdue, ahead feed
	cuts           map[string]engine.Position // by kind: overdue tasks beyond this position are left in the store
	unhandled      map[string]int             // by kind: number of tasks set aside; 0 if there were some earlier
	unreported     []string                   // kinds added to unhandled since the last report

	waiting  map[string]bool // paused kinds that have tasks set aside
	settings settings
}

// An op is an operation. It adds its changes to the group. An error does not undo changes, so an op that returns an
// error must not have made any.
type op struct {
	ctx      context.Context // context of the waiting caller; may be nil
	size     int             // approximate number of bytes that the op writes
	do       func(g *group) error
	answered chan error // receives the result; nil if no caller waits
	settled  settled    // receives whether the result of a run was stored
	err      error
}

const forever = time.Duration(math.MaxInt64)

// groupMost is the maximum number of operations in a group, so that the first operation does not wait too long. A
// thousand concurrent callers fit into one group. A group is also complete once it reaches groupBytes.
const (
	groupMost  = 4096
	groupBytes = 16 << 20
)

func newKeeper(store engine.Store, wheel *timewheel.TimeWheel, kinds *kinds, settings settings, cfg config) *keeper {
	k := &keeper{
		store: store, wheel: wheel, kinds: kinds, settings: settings, cfg: cfg,
		wake: make(chan struct{}, 1), ended: make(chan struct{}), failed: make(chan struct{}),
		report:    reporter{log: cfg.log},
		live:      make(map[string]*live),
		unhandled: make(map[string]int),
		waiting:   make(map[string]bool),
		cuts:      make(map[string]engine.Position),
		overdue:   feed{at: engine.Position{Due: engine.None}, until: engine.None},
		ahead:     feed{at: engine.Position{Due: engine.None}, until: engine.None},
	}
	k.teller = newTeller(&k.cfg, k.now, &k.report)
	k.backlog = newBacklog(wheel, kinds, cfg, max(limit.MostQueued, 4*cfg.poolSize), limit.HeldTasks, k.wake)
	k.ctx, k.cancelRuns = context.WithCancelCause(context.Background())
	if cfg.prints {
		k.prints = newFingerprints()
	}
	keys := store.Keys() // the keys before the first operation; countRecords reads the same state
	begun := make(chan struct{})
	k.helpers.Go(func() { k.countRecords(func() { close(begun); k.readKeys(keys) }) })
	<-begun
	if reporter, ok := store.(engine.FailureReporter); ok {
		k.helpers.Go(func() { k.watch(reporter) })
	}
	go k.run()
	return k
}

// watch fails the keeper if the store fails in the background. It returns when the keeper ends.
func (k *keeper) watch(store engine.FailureReporter) {
	select {
	case <-store.Failed():
		_ = k.fail(store.Err())
	case <-k.ctx.Done():
	}
}

func (k *keeper) now() int64 { return time.Now().UnixNano() }

func (k *keeper) do(ctx context.Context, v *verb) error {
	v.timed(k.now()) // here, so that the keeper's other callers need not wait
	return k.ask(ctx, op{do: v.apply, size: v.size})
}

// ask sends the keeper an operation and waits until the operation is durable or refused.
func (k *keeper) ask(ctx context.Context, o op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	answered := make(chan error, 1)
	o.ctx, o.answered = ctx, answered
	if err := k.post(o); err != nil {
		return err
	}
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-k.failed: // the keeper may be in a commit that never returns
	}
	select {
	case err := <-answered:
		return err
	default:
		return k.Err()
	}
}

// post sends the keeper an operation. It returns an error if the keeper has ended or failed.
func (k *keeper) post(o op) error {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return ErrStopped
	}
	if err := k.Err(); err != nil {
		k.mu.Unlock()
		return err
	}
	k.ops = append(k.ops, o)
	k.mu.Unlock()
	call(k.wake)
	return nil
}

// take moves the operations of the next group to an empty slice. It reports false if no further operations can follow.
func (k *keeper) take(into []op) (taken []op, more bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for size := 0; n < min(len(k.ops), groupMost) && size < groupBytes; n++ {
		size += k.ops[n].size
	}
	taken = append(into, k.ops[:n]...)
	left := copy(k.ops, k.ops[n:])
	clear(k.ops[left:])
	k.ops = k.ops[:left]
	return taken, !k.closed || left > 0
}

func (k *keeper) run() {
	defer close(k.ended)
	timer := time.NewTimer(1) // see node.keep
	defer timer.Stop()
	var ops []op
	for {
		var more bool
		ops, more = k.take(ops[:0])
		k.handle(ops)
		clear(ops)
		again := k.feed()
		if len(ops) > 0 {
			continue
		}
		if !more {
			return
		}
		timer.Reset(max(again, 1))
		select {
		case <-k.wake:
		case <-timer.C:
		}
	}
}

// handle performs a group of operations and answers their callers.
func (k *keeper) handle(ops []op) {
	if len(ops) == 0 {
		return
	}
	g := &group{k: k}
	broken := k.Err()
	for i := range ops {
		o := &ops[i]
		if o.ctx != nil {
			o.err = o.ctx.Err() // the caller has gone
		}
		if o.err == nil && broken == nil {
			o.err = o.do(g)
		}
	}
	if broken == nil {
		broken = k.commit(g)
	}
	for _, o := range ops {
		if o.err == nil {
			o.err = broken
		}
		if o.answered != nil {
			o.answered <- o.err
		}
		o.settled.call(o.err == nil)
	}
}

// commit stores the group's changes and then applies them in memory.
func (k *keeper) commit(g *group) error {
	if err := k.Err(); err != nil {
		return err
	}
	if changes := g.changes(); len(changes) > 0 {
		began := time.Now()
		if err := k.store.Commit(changes); err != nil {
			return k.fail(err)
		}
		k.count.commit(len(changes), time.Since(began))
	}
	if g.settings != nil {
		if err := k.store.SetSettings(g.encoded); err != nil {
			return k.fail(err)
		}
	}
	k.count.add(g.tally)
	k.counts.change(g.order)
	for _, t := range g.order {
		if was, is := t.was != nil, t.now != nil; was != is && k.prints != nil {
			k.prints.note(t.key, is)
		}
		if t.marked {
			continue
		}
		if k.isAside(t.was) {
			k.unhandled[t.was.Kind]--
			k.count.unhandled.Add(-1)
		}
		k.place(t.key, t.now)
	}
	if g.settings != nil {
		k.adopt(*g.settings)
	}
	return nil
}

// place puts the key's task in memory if the store has been read past it. If not, the task remains only in the store.
// If rec is nil, the key has no task.
func (k *keeper) place(key string, rec *task.Record) {
	old := k.live[key]
	inWheel := false
	if old != nil && old.state.CompareAndSwap(waits, gone) {
		if inWheel = !old.overdue; old.overdue {
			k.backlog.Remove(&old.Task)
		}
		if of := k.kinds.Limiter(old.Rec); of != nil {
			of.Remove(&old.Task)
		}
	}
	k.running.remove(old)
	delete(k.live, key)
	if rec != nil && k.passed(rec) {
		now := time.Now().UnixNano()
		l := newLive(rec, k)
		l.overdue = rec.Due <= min(k.overdue.until, now) // the clock may have been set back
		k.live[key] = l
		k.hold(l)
		switch {
		case l.state.Load() == gone:
		case l.overdue:
			k.backlog.Add(&l.Task)
		default:
			d := time.Duration(rec.Due - now)
			// SetTask fails only if the wheel has stopped. Nothing runs then, and the task is still stored.
			_ = k.wheel.SetTask(&timewheel.Task{Key: key, Interval: max(d, 1), Job: jobOf(l, k.backlog)})
			return
		}
	}
	if inWheel {
		_ = k.wheel.RemoveTask(key) // fails if the task was just dispatched; its run then does nothing
	}
}

// hold adds the live to its kind's limiter, if any. Excess tasks are dropped from memory and stay in the store.
func (k *keeper) hold(l *live) {
	of := k.kinds.Limiter(l.Rec)
	if of == nil {
		return
	}
	of.Hold(&l.Task)
	for t := of.Excess(); t != nil; t = of.Excess() {
		out := t.Runner.(*live)
		if !out.state.CompareAndSwap(waits, gone) {
			continue // its run has begun
		}
		delete(k.live, out.Rec.Key)
		if out.overdue {
			k.backlog.Remove(t)
		} else {
			_ = k.wheel.RemoveTask(out.Rec.Key) // fails if the task is not in the wheel
		}
	}
}

// passed reports whether the store has been read past the task.
func (k *keeper) passed(rec *task.Record) bool {
	of := k.kinds.limited(rec)
	return k.fed(rec.Position()) && !k.leaves(rec) && (of == nil || !of.beyond(rec))
}

// leaves reports whether the overdue task stays in the store because its kind already has its share of the backlog.
func (k *keeper) leaves(rec *task.Record) bool {
	at, ok := k.cuts[rec.Kind]
	return ok && rec.Due <= k.overdue.until && at.Before(rec.Position())
}

// fed reports whether the feeds have passed the position.
func (k *keeper) fed(p engine.Position) bool {
	if !k.started || p.Due == task.Never {
		return false
	}
	if p.Due <= k.overdue.until {
		return k.overdue.passed(p)
	}
	return k.ahead.passed(p)
}

// limit creates a kind's limiter and its shares.
func (k *keeper) limit(of *kind) {
	of.shares = newShares()
	of.Limiter = limit.NewLimiter(&of.Kind, k.backlog, of.shares, limit.Undivided)
}

// start makes the keeper begin to read due tasks.
func (k *keeper) start() error {
	return k.ask(context.Background(), op{do: func(*group) error {
		if k.started {
			return nil
		}
		k.started = true
		now := time.Now().UnixNano()
		k.since = now - 1
		k.overdue.until = now - 1 // tasks added from now on are not overdue, even if they are due at once
		k.ahead = feed{at: end(now - 1), until: now - 1}
		k.backlog.Start()
		return nil
	}})
}

// handled rereads the tasks that were waiting for a handler of the kind.
func (k *keeper) handled(kind string) {
	_ = k.post(op{do: func(*group) error { // post fails only if the keeper no longer runs tasks
		if k.started {
			k.kinds.get(kind).since.Store(k.now())
		}
		k.readAgain(kind)
		return nil
	}})
}

func (k *keeper) get(_ context.Context, key string) (view, bool, error) {
	rec, err := getRecord(k.store, key)
	if err != nil || rec == nil {
		return view{}, false, k.readError(err)
	}
	return k.view(rec), true, nil
}

func (k *keeper) getMany(ctx context.Context, keys []string) (map[string]view, error) {
	found := make(map[string]view, len(keys))
	for _, key := range keys {
		v, ok, err := k.get(ctx, key)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if ok {
			found[key] = v
		}
	}
	return found, nil
}

func (k *keeper) view(rec *task.Record) view { return k.running.view(rec) }

func (k *keeper) walk(_ context.Context, over stretch) iter.Seq2[view, error] {
	return func(yield func(view, error) bool) {
		var records iter.Seq2[engine.Record, error]
		switch over.order {
		case byKey:
			records = k.store.ByKey(over.from)
		case byFailing:
			records = k.store.Failing(over.from)
		case byRunning:
			yieldFrom(k.running.list(), over.from, yield)
			return
		default:
			records = k.store.Due(over.after, over.until)
		}
		for rec, err := range decoded(records) {
			if err != nil {
				yield(view{}, k.readError(err))
				return
			}
			if !yield(k.view(rec), nil) {
				return
			}
		}
	}
}

func (k *keeper) len() int { return k.store.Len() }

func (k *keeper) census(context.Context) (Counts, error) { return k.counts.take(k.now()), nil }

func (k *keeper) nodes(context.Context) ([]NodeInfo, error) {
	report := k.cfg.report(k.work(), k.kinds, k.len())
	return []NodeInfo{{Name: k.cfg.name, Self: true, NodeReport: report}}, nil
}

func (k *keeper) era() uint64    { return 0 } // a store has no outages
func (k *keeper) nodeCount() int { return 1 }

// mayBeOverdue may overlook a task that was just added, but such a task is not overdue.
func (k *keeper) mayBeOverdue() bool {
	c := k.counts.take(k.now())
	return !c.Whole || slices.ContainsFunc(c.Kinds, func(of KindCounts) bool {
		return of.Tasks > of.Parked+of.Paused && k.kinds.get(of.Kind) != nil
	})
}

func (k *keeper) caughtUp() bool      { return false } // it has started all tasks itself
func (k *keeper) overdueUntil() int64 { return k.now() - int64(overdueAfter) }

func (k *keeper) fill(s *Stats) {
	k.count.fill(s)
	_, s.Parked = k.counts.take(k.now()).sum()
}

func (k *keeper) backuper() (engine.Backuper, bool) { b, ok := k.store.(engine.Backuper); return b, ok }
func (k *keeper) failing() <-chan struct{}          { return k.failed }
func (k *keeper) notebook() past.Notebook           { return past.OfStore(k.store) }
func (k *keeper) stop()                             { k.backlog.Stop() }
func (k *keeper) cancel()                           { k.cancelRuns(ErrStopped) }
func (k *keeper) release() error                    { return k.store.Close() }
func (k *keeper) written() <-chan struct{}          { return k.report.written() }

func (k *keeper) size() int64 {
	if store, ok := k.store.(engine.SizeReporter); ok {
		return store.Size()
	}
	return 0
}

func (k *keeper) space() (free, size int64) {
	if store, ok := k.store.(engine.SpaceReporter); ok {
		return store.Space()
	}
	return 0, 0
}

// fail stops all writes to the store, and returns the error for callers. Any goroutine may call it.
func (k *keeper) fail(err error) error {
	err = fmt.Errorf("%w: %w", ErrBroken, err)
	if !k.failure.CompareAndSwap(nil, &err) {
		return k.Err()
	}
	close(k.failed)
	k.backlog.Stop()
	k.report.note(func(n *notices) { n.failure = err })
	go k.wheel.Stop() // in its own goroutine, because Stop calls the logger
	return err
}

// readError returns the error of a read. If the error means that the store is corrupt, the keeper fails.
func (k *keeper) readError(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return k.fail(err)
	}
	return err
}

// Err returns the error that made the keeper fail, or nil.
func (k *keeper) Err() error {
	if err := k.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// finish waits until the keeper has handled its remaining operations and ended.
func (k *keeper) finish() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	call(k.wake)
	<-k.ended
	k.teller.wait()
	k.helpers.Wait()
}

// next returns the first of n consecutive generations that are greater than the given one and were never used before.
// Across processes, the clock ensures this. The last bits are random, so that no generation is repeated after the clock
// is set back.
func (k *keeper) next(after, n uint64) uint64 {
	first := max(k.generation+1, after+1, generationAt(k.now(), rand.Uint64()))
	k.generation = first + n - 1
	return first
}

// countRecords counts the records as of the start, and calls begun when its walk has begun. Later changes are counted
// as they happen. countRecords returns early if the keeper ends.
func (k *keeper) countRecords(begun func()) {
	begun = sync.OnceFunc(begun)
	var some []touched
	now, ahead := k.now(), false
	for stored, err := range k.store.Due(engine.Position{Due: engine.None}, task.Never) {
		begun()
		if err != nil {
			_ = k.fail(err)
			return
		}
		rec, err := task.Decode(stored)
		if err != nil {
			continue // a later read reports the error
		}
		ahead = ahead || rec.Righted(now) != rec
		if some = append(some, touched{now: rec}); len(some) == feedAtOnce {
			if k.ctx.Err() != nil {
				return
			}
			k.counts.change(some)
			some = some[:0]
		}
	}
	begun()
	k.counts.change(some)
	k.counts.finish()
	if ahead {
		k.helpers.Go(k.keepRight)
	}
}

// readKeys walks over the keys as of the start, and adds their fingerprints unless fingerprints are disabled. The walk
// also lets the store check its contents. readKeys returns early if the keeper ends.
func (k *keeper) readKeys(keys iter.Seq2[string, error]) {
	n := 0
	for key, err := range keys {
		if err != nil {
			_ = k.fail(err)
			return
		}
		if k.prints != nil {
			k.prints.set.Add(k.prints.of(key))
		}
		if n++; n%1024 == 0 && k.ctx.Err() != nil {
			return
		}
	}
	for ready := k.prints == nil; !ready; {
		var pieces [][]noted
		err := k.ask(k.ctx, op{do: func(*group) error {
			pieces = k.prints.handOver()
			ready = pieces == nil
			return nil
		}})
		if err != nil {
			return // the keeper has failed or ended
		}
		k.prints.applyAll(pieces)
	}
}
