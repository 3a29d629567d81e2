// SPDX-License-Identifier: MIT

package main

import (
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A clocked timer is a timer with a record. It is set when it is made, and by each Reset that finds it fired or
// stopped. Each setting leads to one call, unless the timer is stopped.
type clocked struct {
	timer *timewheel.Timer

	mu       sync.Mutex // protects below
	settings int
	stopped  int
	fired    int
	earliest time.Time // when the last setting is due
	unsure   bool      // a call of an earlier setting was in progress: it is unknown to which settings the next calls belong
}

const timersEach = 50

// timer starts a timer, or moves or stops an existing one if there are many.
func (h *hand) timer() {
	d := time.Duration(h.r.Int64N(1 << 24))
	if len(h.timers) < timersEach {
		h.added.Add(1)
		h.timers = append(h.timers, h.newTimer(d))
		return
	}
	t := h.timers[h.r.IntN(timersEach)]
	if h.r.IntN(4) == 0 {
		t.stop()
		return
	}
	if !t.reset(d) {
		h.added.Add(1)
	}
}

func (h *hand) newTimer(d time.Duration) *clocked {
	t := &clocked{settings: 1, earliest: time.Now().Add(d)}
	t.timer = h.tw.AfterFunc(d, func() {
		now := time.Now()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.fired++
		if !t.unsure && now.Before(t.earliest) {
			h.fault(&h.early, "a timer fired %v early", t.earliest.Sub(now))
		}
	})
	return t
}

// reset reports whether the timer was active.
func (t *clocked) reset(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	earliest := time.Now().Add(d)
	active := t.timer.Reset(d)
	if !active {
		t.unsure = t.settings > t.stopped+t.fired
		t.settings++
	}
	t.earliest = earliest
	return active
}

func (t *clocked) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer.Stop() {
		t.stopped++
	}
}

// settle compares the calls with the settings when nothing is running. The wheel was stopped: every timer that was set
// and not stopped before has fired.
func (t *clocked) settle(h *hand) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const text = "a timer was set %d times, stopped %d times, and fired %d times"
	switch want := t.settings - t.stopped; {
	case t.fired < want:
		h.fault(&h.lost, text, t.settings, t.stopped, t.fired)
	case t.fired > want:
		h.fault(&h.doubled, text, t.settings, t.stopped, t.fired)
	}
}
