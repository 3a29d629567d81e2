// SPDX-License-Identifier: MIT

package orders

import "time"

// A pace maps the orders' time to real time: speed times as fast, starting with the first order.
type pace struct {
	speed float64

	origin time.Time // the time of the first order; and the real time at which
	start  time.Time // that was, or would have been without skips
}

// begin maps the time of the first order to now, in real time.
func (p *pace) begin(origin, now time.Time) { p.origin, p.start = origin, now }

// offset converts the orders' time to the form kept while an order waits: the time since the first order.
func (p *pace) offset(t time.Time) time.Duration { return t.Sub(p.origin) }

// real returns the real time of an offset.
func (p *pace) real(offset time.Duration) time.Time { return p.start.Add(scale(offset, p.speed)) }

// skip advances the orders' clock, so that events planned for the real time from happen at the time to.
func (p *pace) skip(from, to time.Time) { p.start = p.start.Add(to.Sub(from)) }

// scale returns the real duration of d of the orders' time at a speed.
func scale(d time.Duration, speed float64) time.Duration {
	const longest = 1<<63 - 1
	scaled := float64(d) / speed
	if scaled >= longest {
		return longest
	}
	return time.Duration(scaled)
}
