// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/seed581295f1/timewheel/durable/internal/series"
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
	return open(ctx, e, opts, false)
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
	return open(ctx, e, opts, true)
}

func open(ctx context.Context, e engine.Engine, opts []Option, client bool) (*Scheduler, error) {
	if e == nil {
		return nil, errors.New("durable: engine is nil")
	}
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	wheel, err := timewheel.New(cfg.Tick, slots, timewheel.WithPoolSize(cfg.PoolSize), timewheel.WithLogger(cfg.Log))
	if err != nil {
		return nil, err
	}
	s := &Scheduler{wheel: wheel, within: cfg.middleware, ended: make(chan struct{})}
	s.behind.count.Limit = overdueTimeout
	s.node, err = node.Open(ctx, e, wheel, &s.kinds, cfg.Config, client)
	if err != nil {
		wheel.Stop()
		return nil, err
	}
	s.teller = newTeller(cfg, s.node)
	s.past = newPast(s.node, cfg)
	s.hour = series.NewWriter(s.node.Notebook(), cfg.Name, s.node.Now, s.hourNumbers)
	return s, nil
}
