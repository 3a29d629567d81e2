// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"
	"github.com/seed581295f1/timewheel/durable/internal/lane"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/task"

	"github.com/seed581295f1/timewheel/internal/recent"
	"github.com/seed581295f1/timewheel/timewheel"
)

// A node is the backend of a scheduler that is one of many over an [engine.Engine]. The engine decides which node holds
// a task; a node decides what happens to the tasks that it holds. It keeps the tasks that are due soon in its wheel:
//
//	claims    every 100 ms it claims free tasks that are due within the look-ahead; a task that it writes
//	          itself and that is due soon it holds at once (claims.go)
//	overdue   it claims overdue tasks for spare workers; that may take long, and no other call waits for it
//	          (claims.go, cursor.go)
//	starts    when a worker is free, it asks the engine to confirm the claim (starts.go)
//	writes    the verbs (nodeverbs.go) and the ends of runs are commits, in groups (writes.go)
//	member    it renews its lease, joins again if the member is gone, and reaps others (member.go)
//	settings  it reads the pauses every half second (nodepause.go)
//
// No promise depends on memory. Whatever a node believes it holds, a start is confirmed at the revision of its claim,
// and a write about a run applies only at that revision. So a late or lost answer can cost time, but never starts a
// task that was removed, moved or taken over.
//
// A claim in memory is a live. It is in one of these states, and in the map held until it is dropped:
//
//	waits     in the wheel or the backlog; a verb, a reconciliation or the end of the term may drop it
//	begun     with a worker: it is being confirmed, or running, or its end is being written. If the engine does
//	          not confirm it, or does not answer, it waits again, until the claims are checked
type node struct {
	engine  engine.Engine
	wheel   *timewheel.TimeWheel
	kinds   *kinds
	cfg     config
	backlog *limit.Backlog
	alone   bool // the engine is this process's alone, and answers at once
	client  bool // it is not a member, and runs nothing: see Connect
	clock   clock.Clock
	count   counter
	report  reporter

	writes *lane.Lane[*change]
	starts *lane.Lane[*start]
	verbs  readers  // verbs in progress
	bursts keyLocks // of SetTask with MaxDelay

	born time.Time // its own time counts from there
	lifetimes
	helper sync.WaitGroup

	joining chan struct{} // full while it joins again; protects below: a mutex would stop a bubble
	left    bool          // it does not join again

	mu sync.Mutex // protects below
	membership
	holding
	adoption
	generation uint64
	names      map[engine.MemberID]string // of the members asked for so far

	handlings handlings
	answering map[string]*inquiry // of other nodes, by question; owned by the goroutine that reads the settings

	free atomic.Int64 // the earliest due time of an overdue task that waits for a worker of any node, or None

	counts  recent.Of[Counts]
	outages atomic.Uint64 // that are over
}

// lifetimes are the contexts of a node's work, and the signals that wake its goroutines.
type lifetimes struct {
	life     context.Context // of its calls and its helpers
	end      context.CancelFunc
	sends    context.Context // of its commits; done before life if they take too long at the end
	endSends context.CancelFunc
	asks     context.Context // of waits for other nodes; done when the scheduler is about to leave
	endAsks  context.CancelFunc
	runs     context.Context // of the runs; a term has one of its own within it
	endRuns  context.CancelFunc
	wake     chan struct{} // there may be something to claim
	behind   chan struct{} // there may be something overdue to claim
	look     chan struct{} // the member's goroutine has work
	reread   chan struct{} // the pauses have changed
}

// A membership is a node's place among the members of its engine, and whether it runs tasks.
type membership struct {
	started    bool
	stopping   bool
	drained    bool   // by Drain: it starts nothing further
	since      int64  // by the engine's clock: tasks due before it were due before Start
	term       *term  // nil while it is not a member
	members    int    // of the engine, by the last answer
	renewals   uint64 // how many were sent
	away       bool   // the last call failed
	unreported bool   // the report has news for the other nodes
	takenOver  []Takeover
	reaped     int64 // when it last reaped, by its own clock; owned by the goroutine that keeps it a member
	expires    int64 // when the first lease of another member expires, as of the last renewal; owned by the same goroutine
}

// A holding is the tasks that a node believes it holds.
type holding struct {
	held    map[string]*live
	bytes   int       // roughly the size of their records
	unsent  []*change // ends of runs whose commit failed
	overdue cursor
	slow    cursor          // of slow kinds with overdue tasks here
	full    []string        // kinds whose overdue tasks are left to the engine
	load    timewheel.Stats // of the wheel, and when it was asked
	loadAt  int64
	doubt   bool  // the engine's claims for it may differ from these
	recheck int64 // until when to check often
	checked int64 // when it was checked
}

// An adoption is the settings that are in force on a node.
type adoption struct {
	settings int64 // the revision of the settings in force, as of
	adopted  int64 // the node's own time
	settled  int64 // when they were asked for last
	puzzled  bool  // the settings cannot be read
}

// own is the node's own clock: monotonic, since the node was made.
func (n *node) own() int64 { return int64(time.Since(n.born)) }

// now is the time that delays count from. It is never before the engine's time.
func (n *node) now() int64 { return n.clock.Latest(n.own()) }

// call wakes the goroutine that waits for the channel.
func call(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// keep calls do after that time, and again after each time that do returns, or at a signal, until the node's life ends.
// A timer without time to wait can crash Go 1.26 in a bubble.
func (n *node) keep(after time.Duration, signal <-chan struct{}, do func() time.Duration) {
	n.helper.Go(func() {
		timer := time.NewTimer(max(after, 1))
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-signal:
			case <-n.life.Done():
				return
			}
			timer.Reset(max(do(), 1))
		}
	})
}

func (n *node) start() error {
	if !n.verbs.enter() {
		return ErrStopped
	}
	defer n.verbs.leave()
	if n.client {
		return errors.New("durable: a scheduler made by Connect runs nothing; use Join")
	}
	n.mu.Lock()
	if !n.started {
		n.started = true
		n.since = n.clock.Earliest(n.own())
		n.backlog.Start()
	}
	n.mu.Unlock()
	call(n.wake)
	return nil
}

func (n *node) handled(kind string) {
	n.mu.Lock()
	if n.started {
		n.kinds.get(kind).since.Store(n.clock.Earliest(n.own()))
	}
	n.rewindLocked()
	n.unreported = n.kinds.shared() != nil
	n.mu.Unlock()
	call(n.wake)
	call(n.look)
}

// stored returns the engine's record of the key, and whether there is one.
func (n *node) stored(ctx context.Context, key string) (s engine.Stored, ok bool, err error) {
	found, err := n.engine.Get(ctx, key)
	if err != nil || len(found) == 0 {
		return s, false, err
	}
	return found[0], true, nil
}

func (n *node) get(ctx context.Context, key string) (view, bool, error) {
	stored, ok, err := n.stored(ctx, key)
	if err != nil {
		return view{}, false, n.unavailable(ctx, err)
	}
	if !ok {
		return view{}, false, nil
	}
	v, err := n.view(stored, n.namer(ctx))
	return v, err == nil, err
}

func (n *node) getMany(ctx context.Context, keys []string) (map[string]view, error) {
	tasks, err := n.engine.Get(ctx, keys...)
	if err != nil {
		return nil, n.unavailable(ctx, err)
	}
	found := make(map[string]view, len(tasks))
	name := n.namer(ctx)
	for _, stored := range tasks {
		v, err := n.view(stored, name)
		if err != nil {
			return nil, err
		}
		found[stored.Key] = v
	}
	return found, nil
}

func (n *node) view(s engine.Stored, name func(engine.MemberID) string) (view, error) {
	rec, err := task.Decode(s.Record)
	if err != nil {
		return view{}, err
	}
	running := s.Owner != 0 && s.Starts > 0 && s.Due != task.Never
	return view{rec: rec, running: running, started: s.Started, node: name(s.Owner), revision: s.Revision}, nil
}

func (n *node) walk(ctx context.Context, over stretch) iter.Seq2[view, error] {
	return func(yield func(view, error) bool) {
		r := engine.Range{Order: engine.ByDue, After: over.after, Until: over.until, From: over.from}
		switch over.order {
		case byKey:
			r.Order = engine.ByKey
		case byFailing:
			r.Order = engine.Failing
		case byRunning:
			all, err := n.allRunning(ctx)
			if err != nil {
				yield(view{}, n.unavailable(ctx, err))
				return
			}
			yieldFrom(all, over.from, yield)
			return
		}
		name := n.namer(ctx)
		for stored, err := range n.engine.Walk(ctx, r) {
			var v view
			if err != nil {
				err = n.unavailable(ctx, err)
			} else {
				v, err = n.view(stored, name)
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// allRunning returns the tasks that run on any node.
func (n *node) allRunning(ctx context.Context) (all []view, err error) {
	members, _, err := n.engine.Renew(ctx, 0, nil)
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		for stored, err := range n.engine.Walk(ctx, engine.Range{Order: engine.Held, By: m.ID}) {
			if errors.Is(err, engine.ErrMemberGone) {
				break
			}
			if err != nil {
				return nil, err
			}
			v, err := n.view(stored, func(engine.MemberID) string { return m.Name })
			if err == nil && v.running { // a task that cannot be read is not running
				all = append(all, v)
			}
		}
	}
	return all, nil
}

// unavailable returns the error of a verb whose call has failed.
func (n *node) unavailable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	n.trouble(err)
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

func (n *node) census(ctx context.Context) (Counts, error) {
	era := n.era()
	counted := n.counts.Ask(era, func(ctx context.Context) (Counts, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(n.life, cancel)()
		begun := time.Now() // by the clock that measures its age
		kinds, err := engine.Count(ctx, n.engine)
		if err != nil {
			return Counts{}, err
		}
		return newCensus(begun.UnixNano(), true, byKind(kinds)), nil
	})
	if err := await(ctx, counted); err != nil {
		return Counts{}, err
	}
	last := n.counts.Last(era)
	if last.Err != nil {
		return Counts{}, n.unavailable(ctx, last.Err)
	}
	last.Value.Whole = !last.Old
	return last.Value, nil
}

func (n *node) era() uint64 { return n.outages.Load() }

// len returns the number of tasks at the last count.
func (n *node) len() int {
	_, _ = n.census(n.life)
	tasks, _ := n.counts.Last(n.era()).Value.sum()
	return tasks
}

func (n *node) size() int64               { return 0 } // the engine is not the node's alone
func (n *node) space() (free, size int64) { return 0, 0 }

func (n *node) stats() *NodeStats {
	n.mu.Lock()
	away := n.away
	n.mu.Unlock()
	c := &n.count
	lease, age := n.cfg.lease, time.Duration(n.own()-c.renewed.Load())
	if n.client {
		lease, age = 0, 0
	}
	if n.life.Err() != nil { // it has left
		age, away = 0, false
	}
	return &NodeStats{
		Lease: lease, LeaseAge: age, Away: away,
		Calls: c.calls.read(), CallsFailed: c.callsFailed.Load(), Claimed: c.claimed.Load(), TakenOver: c.taken.Load(),
		StartsRefused: c.startsRefused.Load(), EndsRefused: c.endsRefused.Load(),
	}
}

func (n *node) fill(s *Stats) {
	n.count.fill(s)
	s.Node = n.stats()
	_, s.Parked = n.counts.Last(n.era()).Value.sum()
}

// overdueUntil returns the due time up to which tasks are claimed as overdue.
func (n *node) overdueUntil() int64 { return n.clock.Earliest(n.own()) - int64(overdueAfter) }

func (n *node) mayBeOverdue() bool { return true }

func (n *node) nodeCount() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(n.members, 1)
}

func (n *node) Err() error                        { return nil } // it outlives any failure of the engine
func (n *node) limit(k *kind)                     { k.Limiter = limit.NewLimiter(&k.Kind, n.backlog, nil, limit.Part{}) }
func (n *node) backuper() (engine.Backuper, bool) { return nil, false }
func (n *node) failing() <-chan struct{}          { return nil }

func (n *node) stop() {
	n.mu.Lock()
	n.stopping = true
	n.mu.Unlock()
	n.backlog.Stop()
	call(n.look)
}

func (n *node) cancel() { n.endRuns() }

// finish waits until the ends of the runs are written, as long as this node's lease lasts, and then leaves, so that its
// tasks are free for other nodes. Writes that wait for a lock of another transaction are given up after closeGrace.
func (n *node) finish() {
	defer time.AfterFunc(closeGrace, n.endSends).Stop()
	n.endAsks()
	<-n.verbs.stop()
	n.settleUnsent()
	n.writes.Wait()
	n.starts.Wait()
	n.leave()
	n.end()
	n.helper.Wait()
	n.writes.Wait()
}

func (n *node) release() error           { return nil }
func (n *node) written() <-chan struct{} { return n.report.written() }
