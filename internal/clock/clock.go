// SPDX-License-Identifier: MIT

// Package clock is how time enters the wheel: the clock of the machine, and one for tests that is turned by
// hand.
package clock

import "time"

// A Clock tells a monotonic time as nanoseconds since an origin of its own, which is the moment it was made.
// The wall clock has no part in it: setting that clock moves nothing. 64 unsigned bits reach 584 years.
//
// A Clock is safe for use by several goroutines.
type Clock interface {
	// Now returns the nanoseconds since the clock's origin. It never goes back.
	Now() uint64
	// Time returns the instant at nanoseconds after the origin as a time of day.
	Time(at uint64) time.Time
	// NewTimer returns a timer that is not set.
	NewTimer() Timer
}

// A Timer sends once on its channel when the time it is set to has come.
type Timer interface {
	// C returns the channel, always the same.
	C() <-chan time.Time
	// Reset sets the timer to d from now, in place of what it was set to: an earlier setting sends no more.
	Reset(d time.Duration)
	// Stop takes the setting back.
	Stop()
}
