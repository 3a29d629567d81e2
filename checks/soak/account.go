// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A record is the soak's own account of one task, independent of the wheel's: when it may run at the earliest,
// how often, and how it ended.
type record struct {
	*account
	key      string
	interval time.Duration
	times    int // runs it was added with; 0 is for ever

	mu      sync.Mutex // protects all below
	runs    int
	active  int       // runs that are in progress
	earlier time.Time // no run may begin before it, if it was not moved
	moved   bool
	ended   bool // removed, replaced, drained, or its wheel was stopped
	never   bool // it must not have run at all
}

// An account adds up what the records find.
type account struct {
	operations, runs, panics      atomic.Int64
	early, lost, doubled, unheard atomic.Int64

	mu     sync.Mutex // protects faults
	faults []string   // the first few, in words
}

// fault counts and describes what must not be.
func (a *account) fault(n *atomic.Int64, format string, args ...any) {
	n.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.faults) < 20 {
		a.faults = append(a.faults, fmt.Sprintf(format, args...))
	}
}

// begin is called by each run, first of all. Runs overlap, and so may come in another order than they were
// due in: the time is that at which a run comes, and not from before it had to wait for another, or the later
// of two would be judged by the time of the earlier.
func (r *record) begin() {
	r.account.runs.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.runs++
	r.active++
	if r.times > 0 && r.runs > r.times {
		r.fault(&r.doubled, "%s: run %d of %d", r.key, r.runs, r.times)
	}
	if !r.moved && now.Before(r.earlier) {
		r.fault(&r.early, "%s: run %d began %v early", r.key, r.runs, r.earlier.Sub(now))
	}
	r.earlier = r.earlier.Add(r.interval) // or later, if periods were missed
}

// finish is called as a run ends, however it does.
func (r *record) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active--
}

// rest notes that no run may be in progress.
func (r *record) rest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active != 0 {
		r.fault(&r.unheard, "%s: %d runs are in progress after RemoveWait", r.key, r.active)
	}
}

// move notes that the task was rescheduled. A run that had begun may come to its first statement only now, so
// from here on the observer alone judges whether runs are early.
func (r *record) move() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moved = true
}

// end notes that the task was removed. If it had one run, that had not begun, and does not.
func (r *record) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.never = true, r.times == 1
}

// replace notes that the task was ended or had ended already.
func (r *record) replace() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// settle is called when the wheel has nothing left of the task: it has run as often as it was to, or was
// ended.
func (r *record) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended && r.times > 0 && r.runs != r.times {
		r.fault(&r.lost, "%s: %d of %d runs", r.key, r.runs, r.times)
	}
	if r.never && r.runs > 0 {
		r.fault(&r.doubled, "%s: it ran after it was ended", r.key)
	}
}
