// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"
	"github.com/seed581295f1/timewheel/durable/internal/lane"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/internal/recent"
	"github.com/seed581295f1/timewheel/timewheel"
)

// New returns a scheduler for the tasks in the engine. Every verb works at once. Once Start is called, the scheduler runs
// tasks of the kinds that it handles.
//
// An engine of one process ([engine.Owned]), such as one of package durable/pebble, belongs to the scheduler once New
// has succeeded: no other scheduler may use it, and Shutdown closes it. It can fail for good, and then so does the
// scheduler: see [Scheduler.Err]. If New returns an error, the caller must close the engine.
//
// Any other engine is shared: each scheduler is one of its nodes, and becomes a member at once. Shutdown ends the
// membership, and other nodes take over its tasks at once. The caller must close the engine after all of them have shut
// down. An unavailable engine does not stop a node. Until the engine is back, verbs return ErrUnavailable and no run
// starts. If the outage lasts longer than the lease ([WithLease]), the contexts of running handlers are cancelled with
// ErrFenced as the cause, because another node may take over their tasks.
func New(ctx context.Context, e engine.Engine, opts ...Option) (*Scheduler, error) {
	s, n, err := reach(ctx, e, opts, (*node).join)
	if err != nil {
		return nil, err
	}
	n.keep(0, n.look, n.keepMember)
	n.keep(0, n.wake, n.claim)
	n.keep(0, n.behind, n.claimOverdue)
	n.keep(0, n.hire, n.backlog.Hire)
	n.keep(freeEvery, nil, n.keepLookout)
	n.keep(unhandledFirst, n.recount, n.keepUnhandled)
	return s, nil
}

// Connect returns a scheduler on which every verb and look-up works but which runs no tasks: Start returns an error.
// The scheduler is not a member of the engine and is invisible to the nodes. It handles an unavailable engine as a node
// does. Handle only makes a kind known to AddTask. A pause takes effect on the nodes within two seconds after PauseKind
// has returned. [Scheduler.CatchUp] returns no overdue tasks: use [Scheduler.Find] with the state [Waiting]. Shutdown
// closes an engine of one process, and the caller any other.
//
// As on a node, AddTask and SetTask refuse an unknown kind. A program that only adds tasks declares their kinds with
// [KindOf] or [Scheduler.Declare].
func Connect(ctx context.Context, e engine.Engine, opts ...Option) (*Scheduler, error) {
	s, n, err := reach(ctx, e, opts, (*node).askTime)
	if err != nil {
		return nil, err
	}
	n.client = true
	n.keep(n.cfg.lease/4, nil, n.keepTime)
	return s, nil
}

// reach returns a scheduler that uses the engine. It makes a first call to the engine, and then reads the pauses.
func reach(ctx context.Context, engine engine.Engine, opts []Option, first func(*node, context.Context) error,
) (*Scheduler, *node, error) {
	if engine == nil {
		return nil, nil, errors.New("durable: engine is nil")
	}
	s, cfg, err := newScheduler(opts)
	if err != nil {
		return nil, nil, err
	}
	n := newNode(engine, s.wheel, &s.kinds, cfg)
	err = first(n, ctx)
	if err == nil {
		_, _, err = n.readSettings(ctx)
	}
	if err != nil {
		n.stop()
		n.leave()
		s.wheel.Stop()
		n.end()
		if !n.alone {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return nil, nil, err
	}
	n.watchFailure()
	n.keep(settingsEvery, n.reread, n.keepSettings)
	s.node = n
	s.past = newPast(n, cfg)
	return s, n, nil
}

func newNode(e engine.Engine, wheel *timewheel.TimeWheel, kinds *kinds, cfg config) *node {
	signal := func() chan struct{} { return make(chan struct{}, 1) }
	n := &node{
		engine: e, wheel: wheel, kinds: kinds, cfg: cfg, report: reporter{log: cfg.log}, clock: clock.New(cfg.clocks),
		lifetimes: lifetimes{wake: signal(), behind: signal(), hire: signal(), look: signal(), reread: signal()},
		joining:   signal(),
		forgotten: forgotten{recount: signal(), named: make(map[string]bool)},
		holding:   holding{held: make(map[string]*live), each: MaxPayload, overdue: cursor{at: engine.None}, slow: cursor{at: engine.None}},
		counts:    recent.Of[Counts]{Limit: countTimeout},
	}
	n.teller = newTeller(&n.cfg, n.now, &n.report)
	n.life, n.end = context.WithCancel(context.Background())
	n.sends, n.endSends = context.WithCancel(n.life)
	n.asks, n.endAsks = context.WithCancel(n.life)
	n.runs, n.endRuns = context.WithCancelCause(context.Background())
	pool := min(cfg.poolSize, mostHeld/4)
	queue, few := min(limit.MostQueued, 2*pool), fewWait // another node can run the remaining tasks
	if n.possess(); n.alone {
		queue, few = max(limit.MostQueued, 4*pool), 1
	}
	n.writes = lane.New(few, splitChanges, n.commit)
	n.starts = lane.New(min(fewWait, cfg.poolSize), splitStarts, n.confirm)
	n.backlog = newBacklog(wheel, kinds, cfg, queue, n.wake)
	n.free.Store(engine.None)
	return n
}
