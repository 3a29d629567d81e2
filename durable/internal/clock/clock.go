// SPDX-License-Identifier: MIT

// Package clock estimates another machine's clock.
package clock

import (
	"sync"
	"sync/atomic"
)

// A Clock is a node's knowledge of the engine's clock. The time in an answer was read between the question and the
// answer. So the offset of the engine's clock from the node's own lies between that time less the node's time at the
// answer, and that time less the node's time at the question. The Clock keeps the intersection of these bounds. The
// node's own clock is monotonic, so no wall clock of a node has any influence.
//
// The earlier bound drives the wheel and the claims, so a run can be late by the width of the bounds, and is never
// early. The later bound gives new due times, so a task is not due before its delay has passed.
type Clock struct {
	least, most atomic.Int64 // bounds of the engine's time minus the node's own

	mu    sync.Mutex // protects below, and is held while the bounds change
	known bool
	at    int64 // the node's own time at the last answer
}

// DriftOf bounds the drift between two clocks: at most 1 in DriftOf.
const DriftOf = 5000

// Heard takes an answer into account: the engine's time, and the node's own at the question and at the answer. If the
// new bounds contradict the old ones, a clock was set, and the new ones replace them.
func (c *Clock) Heard(asked, answered, engine int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	drift := max(answered-c.at, 0) / DriftOf
	least, most := engine-answered, engine-asked
	kept, keptMost := c.least.Load()-drift, c.most.Load()+drift
	if c.known && least <= keptMost && most >= kept {
		least, most = max(least, kept), min(most, keptMost)
	}
	c.known, c.at = true, max(answered, c.at)
	c.least.Store(least)
	c.most.Store(most)
}

// Earliest returns the earliest time that the engine's clock can show, at a time of the node's own.
func (c *Clock) Earliest(own int64) int64 { return own + c.least.Load() }

// Latest returns the latest time that the engine's clock can show.
func (c *Clock) Latest(own int64) int64 { return own + c.most.Load() }
