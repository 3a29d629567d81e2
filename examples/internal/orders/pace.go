// SPDX-License-Identifier: MIT

package orders

import "time"

// A pace maps the orders' time to real time. The orders' clock runs speed times as fast, starting with the first order.
type pace struct {
	speed float64

	origin time.Time // time of the first order on the orders' clock
	start  time.Time // real time of the first order, moved back by the skips
}

// begin maps origin, the time of the first order, to the real time now.
func (p *pace) begin(origin, now time.Time) { p.origin, p.start = origin, now }

// offset converts a time on the orders' clock to the time since the first order, which is stored while an order waits.
func (p *pace) offset(t time.Time) time.Duration { return t.Sub(p.origin) }

// real converts an offset to real time.
func (p *pace) real(offset time.Duration) time.Time { return p.start.Add(scale(offset, p.speed)) }

// skip advances the orders' clock, so that an event that was planned for the real time from happens at the real time
// to.
func (p *pace) skip(from, to time.Time) { p.start = p.start.Add(to.Sub(from)) }

// scale converts a duration d on the orders' clock to real time at the given speed.
func scale(d time.Duration, speed float64) time.Duration {
	const longest = 1<<63 - 1
	scaled := float64(d) / speed
	if scaled >= longest {
		return longest
	}
	return time.Duration(scaled)
}
