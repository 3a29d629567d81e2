// SPDX-License-Identifier: MIT

// Package clock is the wheel's source of time. It provides the machine's clock, and a fake clock for tests that is
// advanced manually.
package clock

import "time"

// A Clock returns a monotonic time in nanoseconds since its origin, the moment it was created. Setting the wall clock
// does not affect it. An unsigned 64-bit integer is enough for 584 years.
//
// A Clock is safe for concurrent use by multiple goroutines.
type Clock interface {
	// Now returns the nanoseconds since the clock's origin. The result never decreases.
	Now() uint64
	// Time returns the time of day at the given number of nanoseconds after the origin.
	Time(at uint64) time.Time
	// NewTimer returns a timer that is not set.
	NewTimer() Timer
}

// A Timer sends one value on its channel when the time for which it was set arrives.
type Timer interface {
	// C returns the channel, which never changes.
	C() <-chan time.Time
	// Reset sets the timer to d from now. It replaces any earlier setting, which no longer sends.
	Reset(d time.Duration)
	// Stop cancels the setting.
	Stop()
}
