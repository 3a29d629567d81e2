// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"
	"github.com/seed581295f1/timewheel/durable/internal/lane"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/task"
	"github.com/seed581295f1/timewheel/internal/recent"
	"github.com/seed581295f1/timewheel/timewheel"
)

// A Config holds the values that the options of a scheduler set.
type Config struct {
	Tick     time.Duration
	PoolSize int
	CatchUp  int
	Log      logrus.FieldLogger
	Version  string    // version of package durable
	Made     time.Time // when the scheduler was created

	Name  string
	Lease time.Duration
	Draw  func() float64 // returns a number from 0 to 1, for the waits between attempts

	Clocks func() (mono, wall int64) // the clocks of the process; nil except in tests
}

// age returns the age of the scheduler at the given time, in nanoseconds.
func (c *Config) age(at time.Time) int64 { return int64(at.Sub(c.Made)) }

// Open returns a node on the engine. It makes a first call to the engine, and then reads the settings. A client is no
// member of the engine, and runs nothing. If Open returns an error, the engine is as before.
func Open(ctx context.Context, e engine.Engine, wheel *timewheel.TimeWheel, kinds *Kinds, cfg Config, client bool) (*Node, error) {
	n := newNode(e, wheel, kinds, cfg)
	n.client = client
	first := n.join
	if client {
		first = n.askTime
	}
	err := first(ctx)
	if err == nil {
		_, _, err = n.readSettings(ctx)
	}
	if err != nil {
		n.Stop()
		n.leave()
		n.end()
		if !n.alone {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return nil, err
	}
	n.watchFailure()
	n.keep(settingsEvery, n.reread, n.keepSettings)
	if client {
		n.keep(n.cfg.Lease/4, nil, n.keepTime)
		return n, nil
	}
	n.keep(0, n.look, n.keepMember)
	n.keep(0, n.wake, n.claim)
	n.listen()
	n.keep(0, n.behind, n.claimOverdue)
	if !n.alone {
		n.keep(restMost, n.coming, n.confirmAhead)
	}
	n.keep(0, n.hire, n.backlog.Hire)
	n.keep(freeEvery, nil, n.keepLookout)
	n.keep(unhandledFirst, n.recount, n.keepUnhandled)
	return n, nil
}

func newNode(e engine.Engine, wheel *timewheel.TimeWheel, kinds *Kinds, cfg Config) *Node {
	signal := func() chan struct{} { return make(chan struct{}, 1) }
	n := &Node{
		engine: e, wheel: wheel, kinds: kinds, cfg: cfg, report: Reporter{log: cfg.Log}, clock: clock.New(cfg.Clocks),
		lifetimes:  lifetimes{wake: signal(), coming: signal(), behind: signal(), hire: signal(), look: signal(), reread: signal()},
		membership: membership{joining: signal(), fair: math.MaxInt},
		rest:       rest{hearing: hearing{signals: signal(), alert: signal()}},
		forgotten:  forgotten{recount: signal(), named: make(map[string]bool)},
		holding:    holding{held: make(map[string]*live), slots: make(map[int64]map[*live]bool), each: task.MaxPayload, overdue: cursor{at: engine.None}, slow: cursor{at: engine.None}},
		census:     census{counts: recent.Of[Census]{Limit: countTimeout}},
	}
	n.life, n.end = context.WithCancel(context.Background())
	n.sends, n.endSends = context.WithCancel(n.life)
	n.asks, n.endAsks = context.WithCancel(n.life)
	n.runs, n.endRuns = context.WithCancelCause(context.Background())
	few := fewWait
	if n.possess(); n.alone {
		few = 1
	}
	n.writes = lane.New(few, splitChanges, n.commit)
	n.starts = lane.New(1, splitStarts, n.confirm)
	n.backlog = newBacklog(wheel, kinds, cfg, n.queueOf(cfg.PoolSize), n.wake)
	n.free.Store(engine.None)
	n.hears(errNoSignals) // until it listens
	return n
}

// queueOf returns the maximum number of overdue tasks in the backlog for a number of workers. Another node can run the
// remaining tasks.
func (n *Node) queueOf(workers int) int {
	pool := min(workers, mostHeld/4)
	if n.alone {
		return max(limit.MostQueued, 4*pool)
	}
	return min(limit.MostQueued, 2*pool)
}
