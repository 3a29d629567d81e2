// SPDX-License-Identifier: MIT

// Package clock is the wheel's source of time. It has the clock of the machine, and a clock for tests that is advanced
// by hand.
package clock

import "time"

// A Clock returns a monotonic time in nanoseconds since its origin, the moment it was made. Setting the wall clock does
// not affect it. 64 unsigned bits reach 584 years.
//
// A Clock is safe for use by several goroutines.
type Clock interface {
	// Now returns the nanoseconds since the clock's origin. It never goes back.
	Now() uint64
	// Time returns the time of day at the given number of nanoseconds after the origin.
	Time(at uint64) time.Time
	// NewTimer returns a timer that is not set.
	NewTimer() Timer
}

// A Timer sends once on its channel when the time it was set for arrives.
type Timer interface {
	// C returns the channel, always the same.
	C() <-chan time.Time
	// Reset sets the timer to d from now. It replaces any earlier setting, which no longer sends.
	Reset(d time.Duration)
	// Stop cancels the setting.
	Stop()
}
