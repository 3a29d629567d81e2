// SPDX-License-Identifier: MIT

package clock

import "time"

// Real returns a clock that uses package time for everything. Inside a testing/synctest bubble it therefore
// returns the bubble's time.
func Real() Clock { return realClock{origin: time.Now()} }

type realClock struct{ origin time.Time }

// Now reads only the monotonic clock, as time.Since does if possible. It takes 40 % less time than time.Now.
func (c realClock) Now() uint64 { return uint64(time.Since(c.origin)) }

// Time calculates from the current time and not from the origin, so that its result agrees with the wall clock even
// after the wall clock has been set.
func (c realClock) Time(at uint64) time.Time {
	now := time.Now()
	elapsed := uint64(now.Sub(c.origin))
	if at < elapsed {
		return now.Add(-time.Duration(elapsed - at))
	}
	return now.Add(time.Duration(min(at-elapsed, 1<<63-1)))
}

func (c realClock) NewTimer() Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return realTimer{t}
}

type realTimer struct{ t *time.Timer }

func (t realTimer) C() <-chan time.Time   { return t.t.C }
func (t realTimer) Reset(d time.Duration) { t.t.Reset(d) }
func (t realTimer) Stop()                 { t.t.Stop() }
