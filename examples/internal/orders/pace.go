// SPDX-License-Identifier: MIT

package orders

import "time"

// A pace maps the orders' time on the real one: speed times as fast, from the moment of the first order on.
type pace struct {
	speed float64

	origin time.Time // the time of the first order; and the real time at which
	start  time.Time // that was, or would have been had nothing been skipped
}

// begin says that it is now, in real time, what the first order says.
func (p *pace) begin(origin, now time.Time) { p.origin, p.start = origin, now }

// offset is the orders' time as it is kept while an order waits: counted from the first order.
func (p *pace) offset(t time.Time) time.Duration { return t.Sub(p.origin) }

// real returns when the offset is in real time.
func (p *pace) real(offset time.Duration) time.Time { return p.start.Add(scale(offset, p.speed)) }

// skip moves the orders' clock on, so that what was to be at the real time from is at the time to.
func (p *pace) skip(from, to time.Time) { p.start = p.start.Add(to.Sub(from)) }

// scale returns how long d of the orders' time takes at a speed.
func scale(d time.Duration, speed float64) time.Duration {
	const longest = 1<<63 - 1
	scaled := float64(d) / speed
	if scaled >= longest {
		return longest
	}
	return time.Duration(scaled)
}
