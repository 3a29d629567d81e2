// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A record is the soak's own record of one task, independent of the wheel's: how early and how often it may run, and
// how it ended.
type record struct {
	*account
	key      string
	interval time.Duration
	times    int // runs at the add; 0 is forever

	mu      sync.Mutex // protects all below
	runs    int
	active  int       // runs that are in progress
	earlier time.Time // no run may begin before it, unless the task was moved
	moved   bool
	ended   bool // removed, replaced, drained, or its wheel was stopped
	never   bool // it must never have run
}

// An account sums up the findings of the records.
type account struct {
	operations, runs, panics      atomic.Int64
	early, lost, doubled, unheard atomic.Int64

	mu     sync.Mutex // protects faults
	faults []string   // the first few, in words
}

// fault counts and describes a violation.
func (a *account) fault(n *atomic.Int64, format string, args ...any) {
	n.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.faults) < 20 {
		a.faults = append(a.faults, fmt.Sprintf(format, args...))
	}
}

// begin is called first by each run. Runs overlap, so they may arrive in another order than that of their due times.
// The time is therefore read under the lock: otherwise the later of two runs would be judged by the time of the
// earlier.
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

// finish is called when a run ends, in whatever way.
func (r *record) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active--
}

// rest records that no run may be in progress.
func (r *record) rest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active != 0 {
		r.fault(&r.unheard, "%s: %d runs are in progress after RemoveWait", r.key, r.active)
	}
}

// move records that the task was rescheduled. A run that had begun may reach its first statement only now, so from here
// on only the observer judges whether runs are early.
func (r *record) move() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moved = true
}

// end records that the task was removed. If it had one run, that run had not begun, and never will.
func (r *record) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.never = true, r.times == 1
}

// replace records that the task was ended or had already ended.
func (r *record) replace() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// settle is called when the wheel has nothing left of the task: it has had all its runs, or was ended.
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
