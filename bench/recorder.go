// SPDX-License-Identifier: MIT

package main

import (
	"slices"
	"sync/atomic"
	"time"
)

// recorder records when each timer was due and when it ran. Its arrays are preallocated, and a run costs one reading of
// the clock and one atomic write, so that recording disturbs every peer equally little.
type recorder struct {
	start   time.Time
	due     []int64        // by id, since start; 0 if not due in this run; written before the timer is started
	ran     []atomic.Int64 // by id, since start; 0 if it has not run
	again   atomic.Int64   // runs of timers that had already run
	settled int            // lower ids have run, or are not due
}

func newRecorder(ids int) *recorder {
	return &recorder{start: time.Now(), due: make([]int64, ids), ran: make([]atomic.Int64, ids)}
}

// now returns the monotonic time since start.
func (r *recorder) now() time.Duration { return time.Since(r.start) }

// fire records that the timer of the key runs now.
func (r *recorder) fire(key string) {
	if !r.ran[idOf(key)].CompareAndSwap(0, int64(r.now())) {
		r.again.Add(1)
	}
}

// expect records that the timer of the id is due at the instant at, and returns the delay with which to start it. If
// that instant has passed, the timer is due after least.
func (r *recorder) expect(id int, at, least time.Duration) time.Duration {
	now := r.now()
	d := max(at-now, least)
	r.due[id] = int64(now + d)
	return d
}

// wait returns when every timer that is due has run, or at the deadline. It looks at each id about once, less and less
// often, so that waiting for a lost job uses next to no processor time.
func (r *recorder) wait(deadline time.Duration) {
	const shortest, longest = 2 * time.Millisecond, 100 * time.Millisecond
	for pause := shortest; r.now() < deadline && !r.complete(); pause = min(2*pause, longest) {
		time.Sleep(pause)
	}
}

// complete reports whether every due timer has run.
func (r *recorder) complete() bool {
	for ; r.settled < len(r.due); r.settled++ {
		if r.due[r.settled] != 0 && r.ran[r.settled].Load() == 0 {
			return false
		}
	}
	return true
}

// lateness sums up the runs of the timers: how long after its due instant each ran, negative if before.
type lateness struct {
	early, lost, again    int
	first, p50, p99, last time.Duration
}

// lateness sums up the recorded runs. A timer that ran without being due counts as early.
func (r *recorder) lateness() lateness {
	l := lateness{again: int(r.again.Load())}
	var late []int64
	for id, due := range r.due {
		ran := r.ran[id].Load()
		switch {
		case ran == 0 && due != 0:
			l.lost++
		case ran == 0:
		case due == 0:
			l.early++
		default:
			if ran < due {
				l.early++
			}
			late = append(late, ran-due)
		}
	}
	if len(late) == 0 {
		return l
	}
	slices.Sort(late)
	at := func(share float64) time.Duration { return time.Duration(late[int(share*float64(len(late)-1))]) }
	l.first, l.p50, l.p99, l.last = at(0), at(0.50), at(0.99), at(1)
	return l
}
