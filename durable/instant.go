// SPDX-License-Identifier: MIT

package durable

import (
	"math"
	"time"
)

// Instants are in nanoseconds since 1970.

// The due times of tasks that do not run: they are behind all others.
const (
	pausedDue = math.MaxInt64 - 1 // of a paused task
	never     = math.MaxInt64     // of a parked one
)

// latest is the last instant at which a task can be due.
const latest = pausedDue - 1

var lastTime = time.Unix(0, latest)

// later returns the instant d after t, where d is not negative, and the latest there is if that is beyond it.
func later(t int64, d time.Duration) int64 {
	if t > 0 && int64(d) > latest-t {
		return latest
	}
	return t + int64(d)
}
