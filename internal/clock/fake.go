// SPDX-License-Identifier: MIT

package clock

import (
	"sync"
	"time"
)

// A Fake is a clock that stands still until Advance moves it. It can simulate rare events: a stall, a leap of an hour,
// a wheel that is centuries old.
type Fake struct {
	mu     sync.Mutex // protects all below
	now    uint64
	ahead  time.Duration
	timers []*fakeTimer // the set ones
}

// NewFake returns a clock that shows now.
func NewFake(now uint64) *Fake { return &Fake{now: now} }

// Now returns the time of the clock.
func (c *Fake) Now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Time counts at from the first instant of the year 2000, in UTC, unless SetWall was called.
func (c *Fake) Time(at uint64) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	origin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(c.ahead)
	half := time.Duration(at / 2) // at may exceed a Duration
	return origin.Add(half).Add(half).Add(time.Duration(at % 2))
}

// SetWall sets the wall clock: at the clock's origin it is that far ahead of the year 2000. Nothing else changes.
func (c *Fake) SetWall(ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = ahead
}

// Advance moves the clock forward by d in one step. A timer that was due on the way sends only now, like a
// timer of a process that was suspended.
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
		t.c <- time.Time{} // Reset and Stop leave room for the one value of a setting
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
	case <-t.c: // the value of an earlier setting
	default:
	}
}
