// SPDX-License-Identifier: MIT

// Package clock keeps what is known of another machine's clock.
package clock

import (
	"sync"
	"sync/atomic"
)

// A Clock is what a node knows about the engine's clock. Each answer with the engine's time says
// something: the time was read between the question and the answer. So the engine's time less the node's own
// lies between its time less that of the answer, and its time less that of the question. The clock keeps what
// all of these bounds allow. The node's own time is monotonic, so no wall clock of a node has any influence.
//
// The earlier bound drives the wheel and the claims, so a run is late by the width of the bounds, and never
// early. The later bound gives new due times, so a task is not due before its delay is over.
type Clock struct {
	least, most atomic.Int64 // bounds of the engine's time less the node's own

	mu    sync.Mutex // protects below, and held while those change
	known bool
	at    int64 // the node's own time of the last answer
}

// DriftOf is how slowly two clocks may drift apart at most: by 1 in so much.
const DriftOf = 5000

// Heard takes an answer into account: the engine's time, and the node's own at the question and at the answer.
// If the bounds do not fit those kept, a clock was set, and they replace them.
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

// Earliest returns what the engine's clock shows at least, at a time of the node's own.
func (c *Clock) Earliest(own int64) int64 { return own + c.least.Load() }

// Latest returns what the engine's clock shows at most.
func (c *Clock) Latest(own int64) int64 { return own + c.most.Load() }
