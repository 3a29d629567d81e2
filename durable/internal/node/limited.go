// SPDX-License-Identifier: MIT

package node

import (
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"

	"github.com/seed581295f1/timewheel/timewheel"
)

// newBacklog returns a backlog that uses the wheel's workers. queue is the maximum number of overdue tasks of kinds
// without a limit.
func newBacklog(wheel *timewheel.TimeWheel, kinds *Kinds, cfg Config, queue int, wake chan<- struct{}) *limit.Backlog {
	return limit.NewBacklog(limit.Config{
		Kinds: kinds, Workers: workers{wheel}, Size: cfg.PoolSize, Tick: cfg.Tick, Rate: cfg.CatchUp,
		Queue: queue, Wake: wake,
	})
}

// workers implements limit.Workers with a wheel's workers.
type workers struct{ wheel *timewheel.TimeWheel }

func (w workers) After(d time.Duration, work func()) limit.Timer { return w.wheel.AfterFunc(d, work) }

func (w workers) Load() (running, waiting int) {
	s := w.wheel.Stats()
	return s.Running, s.Waiting
}

// oldest returns since when an overdue task has waited that no limit holds back, or None if there is none.
func (n *Node) oldest() int64 {
	if at, ok := n.backlog.Oldest(n.kinds.since); ok {
		return at
	}
	return engine.None
}
