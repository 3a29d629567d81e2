// SPDX-License-Identifier: MIT

// Package clock estimates another machine's clock.
package clock

import (
	"sync"
	"sync/atomic"
)

// A Clock estimates the engine's clock from a node's own monotonic clock. The engine reads the time in a response
// between the node's request and the response. That time minus the node's time at the response is therefore a lower
// bound on the offset of the engine's clock from the node's own. That time minus the node's time at the request is an
// upper bound. The Clock maintains the intersection of the bounds from all responses. The node's wall clock has no
// influence.
//
// The lower bound drives the wheel and the claims, so a run is never early, and is late by at most the distance between
// the bounds. New due times are computed from the upper bound, so a task is not due before its delay has passed.
type Clock struct {
	least, most atomic.Int64 // bounds on the engine's time minus the node's own

	mu    sync.Mutex // protects below; also held while the bounds change
	known bool
	at    int64 // the node's own time at the last response
}

// DriftOf bounds the drift between the two clocks, which is at most 1 part in DriftOf.
const DriftOf = 5000

// Heard updates the bounds from a response that contains the engine's time. asked and answered are the node's own times
// at the request and at the response. If the new bounds contradict the old ones, a clock was set, and the new bounds
// replace the old ones.
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

// Earliest returns the earliest time that the engine's clock can show when the node's own clock shows own.
func (c *Clock) Earliest(own int64) int64 { return own + c.least.Load() }

// Latest returns the latest time that the engine's clock can show when the node's own clock shows own.
func (c *Clock) Latest(own int64) int64 { return own + c.most.Load() }
