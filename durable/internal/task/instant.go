// SPDX-License-Identifier: MIT

package task

import (
	"math"
	"time"
)

// The due times of tasks that do not run, in nanoseconds since 1970: they are behind all others.
const (
	PausedDue = math.MaxInt64 - 1 // of a paused task
	Never     = math.MaxInt64     // of a parked one
)

// Latest is the last instant at which a task can be due.
const Latest = PausedDue - 1

// LastTime is Latest as a time.
var LastTime = time.Unix(0, Latest)

// Later returns the instant d after t, where d is not negative, and the latest there is if that is beyond it.
func Later(t int64, d time.Duration) int64 {
	if t > 0 && int64(d) > Latest-t {
		return Latest
	}
	return t + int64(d)
}
