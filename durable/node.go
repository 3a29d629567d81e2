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

// A node is the backend of a scheduler that is one of many over an [engine.Engine]. The engine decides which node
// holds a task; a node decides what becomes of the tasks that it holds. It keeps those that are due soon in its
// wheel:
//
//	claims    each 100 ms it claims what is due within the look-ahead and has no holder; what it writes itself and
//	          is due soon it holds at once (claims.go)
//	overdue   it claims what is overdue, as far as workers are spare; that may take long, and no other call waits
//	          for it (claims.go, cursor.go)
//	starts    when a worker is in hand, it has the engine confirm the claim (starts.go)
//	writes    the verbs (nodeverbs.go) and the ends of runs are commits, in groups (writes.go)
//	member    it renews its lease, joins again if it is gone, and reaps others (member.go)
//	settings  it reads each half second what is paused (nodepause.go)
//
// Nothing in memory is needed for a promise. Whatever a node believes to hold, a start is confirmed at the
// revision of its claim, and a write about a run is done only at that revision. So an answer that comes late,
// or never, can cost time, but starts nothing that was removed, moved or taken over.
//
// A claim in memory is a live. It is in one of these states, and in the map held until it is dropped:
//
//	waits     in the wheel or the backlog; a verb, a reconciliation or the end of the term may drop it: gone
//	begun     with a worker: it is being confirmed, or running, or its end is being written. If the engine does
//	          not confirm it, or does not answer, it waits again, until the claims are checked
type node struct {
	engine  engine.Engine
	wheel   *timewheel.TimeWheel
	kinds   *kinds
	cfg     config
	backlog *limit.Backlog
	alone   bool // the engine is this process's alone, and answers at once
	client  bool // it is no member, and runs nothing: see Connect
	clock   clock.Clock
	count   counter
	report  reporter

	writes *lane.Lane[*change]
	starts *lane.Lane[*start]
	verbs  readers  // verbs that are under way
	bursts keyLocks // of SetTask with MaxDelay

	born time.Time // its own time counts from there
	lifetimes
	helper sync.WaitGroup

	joining chan struct{} // has something while it joins again, and protects below: a mutex would stop a bubble
	left    bool          // it does not join again

	mu sync.Mutex // protects below
	membership
	holding
	adoption
	generation uint64
	names      map[engine.MemberID]string // of the members, as far as they were asked for

	handlings handlings
	answering map[string]*inquiry // of other nodes, by question; of the goroutine that reads the settings

	free atomic.Int64 // when the first overdue task was due that waits for a worker of any node, or None

	counts  recent.Of[Counts]
	outages atomic.Uint64 // that are over
}

// lifetimes are the contexts of what a node does, each with its end, and what wakes up its goroutines.
type lifetimes struct {
	life     context.Context // of its calls and its helpers
	end      context.CancelFunc
	sends    context.Context // of its commits; done before that if they take too long at the end
	endSends context.CancelFunc
	asks     context.Context // of the waits for other nodes; done when the scheduler is about to leave
	endAsks  context.CancelFunc
	runs     context.Context // of the runs; a term has one of its own within it
	endRuns  context.CancelFunc
	wake     chan struct{} // there may be something to claim
	behind   chan struct{} // there may be something overdue to claim
	look     chan struct{} // there is something for the member's goroutine
	reread   chan struct{} // what is paused has changed
}

// A membership is a node's place among the members of its engine, and whether it runs tasks.
type membership struct {
	started    bool
	stopping   bool
	since      int64  // by the engine's clock: what was due before is from before Start
	term       *term  // nil while it is not a member
	members    int    // of the engine, as far as it knows
	renewals   uint64 // how many were sent
	away       bool   // the last call failed
	unreported bool   // there is something of which the other nodes must hear
	takenOver  []Takeover
	reaped     int64 // when it reaped last, by its own time; of the goroutine that keeps it a member
	expires    int64 // when the first lease of another member runs out that the last renewal has seen; of the same
}

// A holding is what a node believes to hold.
type holding struct {
	held    map[string]*live
	bytes   int       // about how many bytes those take
	unsent  []*change // ends of runs whose commit failed
	overdue cursor
	slow    cursor          // of the kinds that are slow and have overdue tasks here
	full    []string        // kinds whose overdue tasks are left to the engine
	load    timewheel.Stats // of the wheel, and when it was asked
	loadAt  int64
	doubt   bool  // the engine may have it hold something else than it knows of
	recheck int64 // until when that is to be checked often
	checked int64 // when it was checked
}

// An adoption is which settings a node has made true.
type adoption struct {
	settings int64 // the revision of the settings whose pauses are true here, by
	adopted  int64 // the node's own time
	settled  int64 // when they were asked for last
	puzzled  bool  // they cannot be understood
}

// own is the node's own time: monotonic, since it was made.
func (n *node) own() int64 { return int64(time.Since(n.born)) }

// now is what delays count from. It is not before the engine's time.
func (n *node) now() int64 { return n.clock.Latest(n.own()) }

// call wakes up what waits for the channel.
func call(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// keep calls do after that time, and then each time after what it returns, or when there is a signal, until the node's
// life ends. A timer without time to wait can crash Go 1.26 in a bubble.
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
		return errors.New("durable: a scheduler that Connect has made runs nothing; use Join")
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

// stored returns the task of the key as the engine has it, and whether there is one.
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
			if err == nil && v.running { // what cannot be read does not run
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
		begun := time.Now() // by the clock that its age is measured by
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

// len returns the number of tasks that were counted last.
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

func (n *node) Err() error                        { return nil } // it outlives whatever happens to the engine
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

// finish waits until the ends of the runs are written, as long as this node's lease lasts, and leaves. Then all
// that it held is free for others. What waits for somebody's lock is given up after closeGrace.
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
