// SPDX-License-Identifier: MIT

package timewheel

import (
	"sync"
	"time"
)

// A Timer is a single run of a function, with no key, made by [TimeWheel.AfterFunc]. It behaves like a
// [time.Timer] made by time.AfterFunc, except that it fires up to a tick late, on a goroutine of the wheel's
// pool.
type Timer struct {
	tw  *TimeWheel
	job Job

	mu sync.Mutex // protects e, so that of two Resets one comes second
	e  *entry     // the last setting; nil if the wheel had been stopped
}

// AfterFunc calls f on a goroutine of the pool d from now, or at the next tick if d is not positive. It returns a
// [Timer] that can cancel the call. It works before Start, too. On a wheel that was stopped f is never called.
// [WithMaxPending] does not refuse a timer, because there is no error to return. AfterFunc panics if f is nil.
func (tw *TimeWheel) AfterFunc(d time.Duration, f func()) *Timer {
	if f == nil {
		panic("timewheel: nil function for AfterFunc")
	}
	t := &Timer{tw: tw, job: func(*Task) { f() }}
	t.set(later(tw.loop.now(), max(d, 0)))
	return t
}

// Stop prevents the timer from firing. It returns true if the call stops the timer, false if the timer has
// already fired or been stopped. Stop does not wait for f to end, or to begin, when the timer has fired.
func (t *Timer) Stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.e == nil || !t.tw.end(t.e) {
		return false
	}
	t.tw.index.leave()
	t.tw.loop.post(t.e, ended, noHurry)
	return true
}

// Reset changes the timer to fire d from now. It returns true if the timer had been active, false if it had
// fired or been stopped. In the latter case f may be called again, at the same time as a call that is
// running. On a wheel that was stopped a timer that is not active stays so.
func (t *Timer) Reset(d time.Duration) bool {
	due := later(t.tw.loop.now(), max(d, 0))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.e != nil && t.tw.move(t.e, due) {
		return true
	}
	t.set(due)
	return false
}

// set makes an entry for the timer. The caller holds mu, or is the only one to know t.
func (t *Timer) set(due uint64) {
	if t.tw.stopped.Load() {
		return
	}
	t.e = newEntry("", t.job, 0, due, 1)
	t.tw.index.enter()
	t.tw.loop.post(t.e, added, due)
}
