// SPDX-License-Identifier: MIT

// Package node is the scheduler of package durable without what its users see: it holds tasks, starts their runs, and
// writes their outcomes, on one engine. It knows neither handlers nor options. A [Runner] of package durable runs
// the tasks of a kind, and [Run.End] gives the node the result.
package node

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"
	"github.com/seed581295f1/timewheel/durable/internal/lane"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/past"
	"github.com/seed581295f1/timewheel/durable/internal/task"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A Node is a scheduler on an [engine.Engine], which it may share with other nodes. The engine decides which
// node holds a task, and the node decides what happens to the tasks that it holds. It keeps tasks that are due soon in
// its wheel. Its work consists of these parts:
//
//	claims    every 100 ms, or when its engine wakes it, the node claims free tasks that are due within the
//	          look-ahead; if it writes a task that is due soon, it holds the task at once (claims.go, rest.go)
//	overdue   the node claims overdue tasks for spare workers; this may take a long time, and no other
//	          call waits for it (claims.go, cursor.go)
//	starts    the node asks the engine to confirm the claims of all tasks that are due in the next 50 ms together; for
//	          the others it asks when a worker is free (starts.go)
//	writes    verbs (verbs.go) and the ends of runs are committed in groups (writes.go)
//	member    the node renews its lease, joins again if its member is gone, and reaps other members
//	          (member.go)
//	settings  the node reads the pauses every half second; on its own engine only it changes them (pauses.go)
//
// No promise depends on the node's memory. Whatever a node believes it holds, the engine confirms a start only at the
// claim's revision, and applies a write about a run only at that revision. A late or lost answer can therefore cost
// time, but never starts a task that was removed, moved or taken over.
//
// A live represents a claim in memory. It stays in n.held until it is dropped, and is in one of these states:
//
//	waits     in the wheel or the backlog, also while its start is confirmed ahead; a verb, a reconciliation or the
//	          end of the term may drop it
//	begun     with a worker: its start is being confirmed, its handler is running, or its end is being
//	          written; if the engine does not confirm the start or does not answer, the live waits again
//	          until the claims are checked
type Node struct {
	engine  engine.Engine
	wheel   *timewheel.TimeWheel
	kinds   *Kinds
	cfg     Config
	backlog *limit.Backlog
	client  bool // the node is not a member and runs nothing
	clock   *clock.Clock
	count   counter
	report  Reporter

	writes *lane.Lane[*change]
	starts *lane.Lane[*start]
	verbs  Gate     // verbs in progress
	bursts keyLocks // key locks for SetTask with MaxDelay

	lifetimes
	helper sync.WaitGroup

	mu sync.Mutex // protects the fields of these three
	membership
	holding
	adoption

	handlings handlings

	census
	clockWatch
	ownership
	rest
	forgotten
}

// lifetimes holds the contexts of a node's work and the signals that wake its goroutines.
type lifetimes struct {
	life     context.Context // context of the node's calls and helper goroutines
	end      context.CancelFunc
	sends    context.Context // context of its commits; done before life if they take too long at shutdown
	endSends context.CancelFunc
	asks     context.Context // context of waits for other nodes; done when the node is about to leave
	endAsks  context.CancelFunc
	runs     context.Context // parent of the terms' contexts for runs
	endRuns  context.CancelCauseFunc
	wake     chan struct{} // signals that there may be tasks to claim
	coming   chan struct{} // signals that there may be starts to confirm ahead
	behind   chan struct{} // signals that there may be overdue tasks to claim
	hire     chan struct{} // signals that there are overdue tasks in the backlog
	look     chan struct{} // signals that the membership goroutine has work
	reread   chan struct{} // signals that the pauses have changed
}

// A membership is a node's state as a member of its engine, including whether it runs tasks.
type membership struct {
	started    bool
	stopping   bool
	drained    bool   // the node starts no further run: see Drain
	undrained  int64  // when that was last over, by the engine's clock
	since      int64  // the time of Start, by the engine's clock
	term       *term  // nil while the node is not a member
	members    int    // number of members with a lease, as of the last renewal
	fair       int    // how many tasks a node holds on average, as of the last renewal; see keepsLocked
	renewals   uint64 // number of renewals sent
	failing    bool   // the last engine call failed
	outage     bool   // the node is away, and the log says so; see awayLocked
	silence    *time.Timer
	renewing   estimate // how long renewals take
	far        bool     // the log says that answers are slow
	unreported bool     // the node's report has unsent news
	takenOver  []Takeover
	tended     int64 // when keepMember was last called, by its own clock; owned by the membership goroutine
	reaped     int64 // when the node last reaped, by its own clock; owned by the membership goroutine
	expires    int64 // next expiry of another member's lease, as of the last renewal; owned by the membership goroutine

	joining    chan struct{}              // full while the node joins again; protects left; a mutex would block a synctest bubble
	left       bool                       // the node has left and does not join again
	generation uint64                     // the last generation given to a task
	names      map[engine.MemberID]string // the member names read so far
}

// A holding is the set of tasks that a node believes it holds.
type holding struct {
	held    map[string]*live
	slots   map[int64]map[*live]bool // held tasks whose starts are to be confirmed ahead, by slot of their due times
	tasks   int                      // number of them whose kinds have no limit; a limiter bounds the others
	bytes   int                      // approximate size of the records of these tasks
	each    int                      // the same of one of the tasks claimed last; the size of the largest one before the first claim
	unsent  []*change                // ends of runs whose commit failed
	overdue cursor
	slow    cursor          // cursor of slow kinds with overdue tasks on this node
	full    []string        // kinds whose overdue tasks are left to the engine
	load    timewheel.Stats // the wheel's statistics, as read at loadAt
	loadAt  int64
	doubt   bool  // the engine's claims for this node may differ from held
	recheck int64 // end of the time during which the claims are checked often
	checked int64 // when the claims were last checked

	ending  atomic.Int64 // number of runs whose ends are being written
	transit atomic.Int64 // how long the last commit took that came too late, until one is quicker; see engine.Write
	free    atomic.Int64 // since when an overdue task has waited for a worker that no node holds, or None
}

// An adoption describes the settings that are in force on a node.
type adoption struct {
	settings  int64               // revision of the settings in force
	adopted   int64               // when the settings were adopted, by the node's own clock
	settled   int64               // when the last received settings were requested
	settledAt int64               // the same, by the engine's clock, at the earliest
	puzzled   bool                // the settings cannot be read
	tuning    Tuning              // the numbers in force that operators have set
	reading   estimate            // how long the settings take to read; owned by the goroutine that reads them
	answering map[string]*inquiry // other nodes' questions, by ID; owned by the same goroutine
}

// own returns the time of the node's own clock, which starts when the node is created and never goes back. It advances
// while the machine is suspended, so everything that the node learned before is then old: its lease and the settings have
// run out, and confirmed starts are confirmed again.
func (n *Node) own() int64 { return n.clock.Own() }

// Now returns the time from which delays are counted. It is never before the engine's time.
func (n *Node) Now() int64 { return n.clock.Latest(n.own()) }

// call wakes the goroutine that is waiting on the channel.
func call(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// keep calls do after the given time or at a signal. It calls do again after the time that do returns or at the next
// signal, until the node's life ends or it fails. A timer with no time to wait can crash Go 1.26 in a synctest bubble.
func (n *Node) keep(after time.Duration, signal <-chan struct{}, do func() time.Duration) {
	n.helper.Go(func() {
		timer := time.NewTimer(max(after, 1))
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-signal:
			case <-n.life.Done():
				return
			case <-n.broken:
				return
			}
			timer.Reset(max(do(), 1))
		}
	})
}

// Start begins running tasks. A second call has no effect.
func (n *Node) Start() error {
	if err := n.enter(); err != nil {
		return err
	}
	defer n.verbs.Leave()
	if n.client {
		return errors.New("durable: a scheduler made by Connect runs nothing; use New")
	}
	n.mu.Lock()
	if !n.started {
		n.started = true
		n.since = n.clock.Earliest(n.own())
		n.backlog.Start()
		call(n.hire)
	}
	n.mu.Unlock()
	call(n.wake)
	return nil
}

// Handle adds a kind, and claims its tasks. It calls begin before any of them can run. It returns an error if the kind
// already has a handler.
func (n *Node) Handle(k *Kind, begin func()) error {
	k.crowded.Store(true)
	if k.IsBounded() {
		var part limit.Part
		if n.alone { // on a shared engine the node's part of a bound for all nodes follows with a renewal
			part = limit.Undivided
		}
		k.Limiter = limit.NewLimiter(&k.Kind, n.backlog, part)
		n.mu.Lock()
		n.tuneKindLocked(k) // before a task of the kind can run
		n.mu.Unlock()
	}
	if err := n.kinds.add(k, begin); err != nil {
		return err
	}
	n.handled(k)
	return nil
}

func (n *Node) handled(k *Kind) {
	n.mu.Lock()
	n.tuneKindLocked(k)
	if n.started {
		k.since.Store(n.clock.Earliest(n.own()))
	}
	n.returnedLocked()
	n.unreported = n.kinds.shared() != nil
	n.mu.Unlock()
	call(n.wake)
	call(n.look)
	call(n.recount)
}

// stored returns the engine's record for the key, and whether there is one.
func (n *Node) stored(ctx context.Context, key string) (s engine.Stored, ok bool, err error) {
	found, err := n.engine.Get(ctx, key)
	if err != nil || len(found) == 0 {
		return s, false, err
	}
	return found[0], true, nil
}

// Get returns the task with the key, and whether there is one.
func (n *Node) Get(ctx context.Context, key string) (View, bool, error) {
	n.settleEnds(ctx, slices.Values([]string{key}))
	stored, ok, err := n.stored(ctx, key)
	if err != nil {
		return View{}, false, n.unavailable(ctx, err)
	}
	if !ok {
		return View{}, false, nil
	}
	v, err := n.view(stored, n.namer(ctx))
	return v, err == nil, err
}

// GetMany returns the tasks with the keys that exist.
func (n *Node) GetMany(ctx context.Context, keys []string) (map[string]View, error) {
	n.settleEnds(ctx, slices.Values(keys))
	tasks, err := n.engine.Get(ctx, keys...)
	if err != nil {
		return nil, n.unavailable(ctx, err)
	}
	found := make(map[string]View, len(tasks))
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

func (n *Node) view(s engine.Stored, name func(engine.MemberID) string) (View, error) {
	rec, err := task.Decode(s.Record)
	if err != nil {
		return View{}, cmp.Or(n.brokenBy(err), err)
	}
	confirmed := s.Owner != 0 && s.Starts > 0 && s.Due != task.Never
	now := n.Now()
	ahead := s.Started <= now && now < s.Due // if the clock was set back during the run, it began later than now
	if s.Started > 0 {
		s.Started = max(s.Started, s.Due)
	}
	return View{rec, confirmed, confirmed && !ahead, s.Starts, s.Started, name(s.Owner), s.Revision}, nil
}

// Walk returns an iterator over the tasks of a stretch.
func (n *Node) Walk(ctx context.Context, over Stretch) iter.Seq2[View, error] {
	return func(yield func(View, error) bool) {
		r := engine.Range{Order: engine.ByDue, After: over.After, Until: over.Until, From: over.From}
		switch over.Order {
		case ByKey:
			r.Order = engine.ByKey
		case ByFailing:
			r.Order = engine.Failing
		case ByRunning:
			all, err := n.allRunning(ctx)
			if err != nil {
				yield(View{}, n.unavailable(ctx, err))
				return
			}
			yieldFrom(all, over.From, yield)
			return
		}
		name := n.namer(ctx)
		for stored, err := range n.engine.Walk(ctx, r) {
			var v View
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

// allRunning returns the tasks that are running on any node.
func (n *Node) allRunning(ctx context.Context) (all []View, err error) {
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
			if err == nil && v.Running { // an unreadable task is not running
				all = append(all, v)
			}
		}
	}
	return all, nil
}

// OverdueUntil returns the due time up to which tasks are claimed as overdue.
func (n *Node) OverdueUntil() int64 { return n.clock.Earliest(n.own()) - int64(overdueAfter) }

// NodeCount returns the number of nodes with a lease.
func (n *Node) NodeCount() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(n.members, 1)
}

// Notebook returns the notes of the engine.
func (n *Node) Notebook() past.Notebook { return notebook{past.OfEngine(n.engine), n} }

// A notebook is the notes of the engine. Its reads fail as reads of tasks do.
type notebook struct {
	past.Notebook
	of *Node
}

func (b notebook) Read(ctx context.Context, over engine.Range) iter.Seq2[engine.Record, error] {
	return func(yield func(engine.Record, error) bool) {
		for note, err := range b.Notebook.Read(ctx, over) {
			if err != nil {
				err = b.of.unavailable(ctx, err)
			}
			if !yield(note, err) || err != nil {
				return
			}
		}
	}
}

// Stop prevents further runs from starting.
func (n *Node) Stop() {
	n.mu.Lock()
	n.stopping, n.unreported = true, true
	n.mu.Unlock()
	n.backlog.Stop()
	call(n.look)
}

// Cancel cancels the contexts of the runs.
func (n *Node) Cancel() { n.endRuns(ErrStopped) }

// CloseGrace is how long an engine that does not answer is waited for.
const CloseGrace = 5 * time.Second

// Finish waits until the ends of the runs are written or this node's lease expires. It then leaves the engine, which
// frees the node's tasks for other nodes. Writes that are waiting for another transaction's lock are abandoned after
// CloseGrace.
func (n *Node) Finish() {
	defer time.AfterFunc(CloseGrace, n.endSends).Stop()
	n.endAsks()
	<-n.verbs.Stop()
	n.settleUnsent()
	n.writes.Wait()
	n.starts.Wait()
	if t := n.current(); t != nil {
		n.unstick(t) // a start that was confirmed ahead is no attempt
	}
	n.writes.Wait()
	n.leave()
	n.end()
	n.helper.Wait()
	n.writes.Wait()
}

// Reporter returns what writes the node's log.
func (n *Node) Reporter() *Reporter { return &n.report }
