// SPDX-License-Identifier: MIT

package timewheel

import (
	"sync"
	"time"
)

// A Timer represents a single future call of a function. It is created by [TimeWheel.AfterFunc] and has no key. It
// behaves like a [time.Timer] created by time.AfterFunc, except that it fires up to a tick late and on a goroutine of
// the wheel's pool.
type Timer struct {
	tw  *TimeWheel
	job Job

	mu sync.Mutex // protects e, so that concurrent Resets take effect one after the other
	e  *entry     // the latest setting; nil if the wheel had been stopped
}

// AfterFunc calls f after d, or at the next tick if d is not positive, on a goroutine of the wheel's pool. It returns a
// [Timer] that can be used to cancel the call. AfterFunc may be called before Start. On a stopped wheel f is never
// called. [WithMaxPending] never causes a timer to be refused, because AfterFunc cannot return an error. AfterFunc
// panics if f is nil.
func (tw *TimeWheel) AfterFunc(d time.Duration, f func()) *Timer {
	if f == nil {
		panic("timewheel: nil function for AfterFunc")
	}
	t := &Timer{tw: tw, job: func(*Task) { f() }}
	t.set(later(tw.loop.now(), max(d, 0)))
	return t
}

// Stop prevents the timer from firing. It returns true if the call stops the timer, false if the timer has already
// fired or been stopped. If the timer has fired, Stop does not wait for f to begin or to end.
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

// Reset changes the timer to fire d from now. It returns true if the timer had been active, false if it had fired or
// been stopped. If it had fired, f is called again, possibly while the earlier call is still running. On a stopped
// wheel an inactive timer stays inactive.
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

// set creates an entry for the timer. The caller must hold mu or have exclusive access to t.
func (t *Timer) set(due uint64) {
	if t.tw.stopped.Load() {
		return
	}
	t.e = newEntry("", t.job, 0, due, 1)
	t.tw.index.enter()
	t.tw.loop.post(t.e, added, due)
}
