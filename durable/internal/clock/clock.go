// SPDX-License-Identifier: MIT

// Package clock keeps the time of a process, and estimates another machine's clock.
package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Clock is the clock of a process, and its estimate of the engine's clock. Use [New] to create one.
//
// The process's own time is the monotonic time since New plus the time that the machine was suspended. While a machine
// is suspended, its monotonic clock stands still. If the wall clock has advanced further than the monotonic clock, by
// more than Slack, the machine was suspended, or its wall clock was set. The Clock cannot tell which, so it assumes both:
// the difference is added to the process's own time, so that everything that the process has learned is that much
// older, and the lower bound on the engine's clock stays where it was. If the wall clock stood still too, as in a virtual
// machine that was paused, the first response of the engine shows it.
//
// The engine reads the time in a response between the node's request and the response. That time minus the node's time
// at the response is therefore a lower bound on the offset of the engine's clock from the node's own. That time minus
// the node's time at the request is an upper bound. The Clock maintains the intersection of the bounds from all
// responses. The node's wall clock has no other influence.
//
// The lower bound drives the wheel and the claims, so a run is never early, and is late by at most the distance between
// the bounds. New due times are computed from the upper bound, so a task is not due before its delay has passed.
type Clock struct {
	read func() (mono, wall int64)

	slept       atomic.Int64 // how far the process's own time is ahead of the monotonic time
	apart       atomic.Int64 // the wall clock minus the monotonic clock, when they were last found to differ
	least, most atomic.Int64 // bounds on the engine's time minus the process's own
	jumped      atomic.Int64 // as in IsOld
	unsure      atomic.Bool  // as in IsUnsure

	mu      sync.Mutex // protects below; also held while the fields above change
	known   bool
	at      int64 // the process's own time at the last response
	parted  int64 // the process's own time when the wall clock was last found to have advanced further
	skipped int64 // the same, or when a response contradicted the bounds
}

const (
	// DriftOf bounds the drift between the two clocks, which is at most 1 part in DriftOf.
	DriftOf = 5000

	// Slack is the difference between two clocks from which a suspension is assumed. A clock that is slewed, by at most
	// 500 parts in a million, needs minutes to differ by that much. The clocks then count as set, which does no harm.
	Slack = 100 * time.Millisecond
)

// New returns a Clock. read returns the monotonic and the wall clock in nanoseconds, read at the same instant. If it is
// nil, the Clock reads those of the process.
func New(read func() (mono, wall int64)) *Clock {
	if read == nil {
		born := time.Now()
		read = func() (mono, wall int64) {
			now := time.Now()
			return int64(now.Sub(born)), now.UnixNano()
		}
	}
	c := &Clock{read: read}
	mono, wall := read()
	c.apart.Store(wall - mono)
	return c
}

// Own returns the process's own time. It never decreases.
func (c *Clock) Own() int64 {
	mono, wall := c.read()
	if gap := wall - mono - c.apart.Load(); gap > int64(Slack) || gap < -int64(Slack) {
		c.part()
	}
	return mono + c.slept.Load()
}

// part reads both clocks again and, if they have parted, adjusts the process's own time and the bounds. The lower bound
// changes first, because a caller of Earliest may have read the later time.
func (c *Clock) part() {
	c.mu.Lock()
	defer c.mu.Unlock()
	mono, wall := c.read()
	gap := wall - mono - c.apart.Load()
	if gap > int64(Slack) {
		c.least.Add(-gap)
		c.unsure.Store(c.known)
		c.parted = c.skipLocked(mono, gap)
	}
	if gap > int64(Slack) || gap < -int64(Slack) {
		c.apart.Add(gap)
	}
}

// skipLocked adds a time to the process's own, and returns the sum. mono is the monotonic time.
func (c *Clock) skipLocked(mono, by int64) (own int64) {
	own = mono + c.slept.Add(by)
	c.skipped = own
	c.jumped.Store(c.Latest(own))
	return own
}

// Heard updates the bounds from a response that contains the engine's time. asked is the process's own time at the
// request. If the new bounds contradict the old ones, a clock was set, and the new bounds replace the old ones. If the
// engine's clock is ahead of the old bounds by more than Slack, that difference is also added to the process's own time.
// Heard returns the time at the response.
func (c *Clock) Heard(asked, engine int64) (answered int64) {
	answered = c.Own()
	c.mu.Lock()
	defer c.mu.Unlock()
	drift := max(answered-c.at, 0) / DriftOf
	least, most := engine-answered, engine-asked
	kept, keptMost := c.least.Load()-drift, c.most.Load()+drift
	agree, ahead := !c.known || least <= keptMost && most >= kept, int64(0)
	switch {
	case c.known && agree:
		least, most = max(least, kept), min(most, keptMost)
	case c.known && least-keptMost > int64(Slack):
		ahead = least - keptMost
		least, most = least-ahead, most-ahead
	}
	if c.known && asked < c.skipped { // it may have been sent long after that, and most be that much too high
		most = min(most, max(least, keptMost))
	}
	c.least.Store(least)
	c.most.Store(most)
	if ahead > 0 {
		mono, _ := c.read()
		c.skipLocked(mono, ahead)
	}
	answered += ahead
	if !agree {
		c.skipped = answered
	}
	c.known, c.at = true, max(answered, c.at)
	c.unsure.Store(asked < c.parted || asked < c.skipped && most-least > int64(Slack))
	c.jumped.Store(min(c.jumped.Load(), c.Latest(answered))) // the bounds may have been too high
	return answered
}

// Earliest returns the earliest time that the engine's clock can show when the process's own time is own.
func (c *Clock) Earliest(own int64) int64 { return own + c.least.Load() }

// Latest returns the latest time that the engine's clock can show when the process's own time is own.
func (c *Clock) Latest(own int64) int64 { return own + c.most.Load() }

// IsOld reports whether a time that Latest returned is from before the last suspension. What was computed from such a
// time has to be computed again.
func (c *Clock) IsOld(latest int64) bool { return latest < c.jumped.Load() }

// IsUnsure reports whether the machine may have been suspended since the last request that was answered, and Latest may
// return a time that is more than Slack too late, until there is another response.
func (c *Clock) IsUnsure() bool { return c.unsure.Load() }
