// SPDX-License-Identifier: MIT

package clock

import (
	"sync"
	"time"
)

// A Fake is a clock that stands still until Advance moves it. It can simulate rare events: a stall, a leap of an hour,
// a wheel that is centuries old.
type Fake struct {
	mu     sync.Mutex // protects the fields below
	now    uint64
	ahead  time.Duration
	timers []*fakeTimer // timers that are set
}

// NewFake returns a clock whose current time is now, in nanoseconds since its origin.
func NewFake(now uint64) *Fake { return &Fake{now: now} }

// Now returns the time of the clock.
func (c *Fake) Now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Time returns the time of day as if the clock's origin were the beginning of the year 2000 in UTC, unless SetWall was
// called.
func (c *Fake) Time(at uint64) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	origin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(c.ahead)
	half := time.Duration(at / 2) // at may exceed the range of a Duration
	return origin.Add(half).Add(half).Add(time.Duration(at % 2))
}

// SetWall sets the wall clock so that, at the clock's origin, it shows the start of the year 2000 plus the given
// duration. Nothing else changes.
func (c *Fake) SetWall(ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = ahead
}

// Advance moves the clock forward by d in one step. A timer that was due in between sends only now, like a timer in a
// process that was suspended.
func (c *Fake) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += uint64(d)
	c.fireLocked()
}

// NewTimer returns a timer that is not set.
func (c *Fake) NewTimer() Timer { return &fakeTimer{clock: c, c: make(chan time.Time, 1)} }

func (c *Fake) fireLocked() {
	waiting := c.timers[:0]
	for _, t := range c.timers {
		if t.at > c.now {
			waiting = append(waiting, t)
			continue
		}
		t.c <- time.Time{} // does not block: Reset and Stop empty the channel
	}
	clear(c.timers[len(waiting):])
	c.timers = waiting
}

type fakeTimer struct {
	clock *Fake
	c     chan time.Time
	at    uint64 // guarded by clock.mu
}

func (t *fakeTimer) C() <-chan time.Time { return t.c }

func (t *fakeTimer) Reset(d time.Duration) {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.stopLocked()
	t.at = t.clock.now + uint64(max(d, 0))
	t.clock.timers = append(t.clock.timers, t)
	t.clock.fireLocked()
}

func (t *fakeTimer) Stop() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.stopLocked()
}

func (t *fakeTimer) stopLocked() {
	for i, o := range t.clock.timers {
		if o == t {
			t.clock.timers = append(t.clock.timers[:i], t.clock.timers[i+1:]...)
			break
		}
	}
	select {
	case <-t.c: // discard the value of an earlier setting
	default:
	}
}
