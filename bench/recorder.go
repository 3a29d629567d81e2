// SPDX-License-Identifier: MIT

package main

import (
	"slices"
	"sync/atomic"
	"time"
)

// recorder notes when each timer ran, against when it was asked to. Its arrays are made beforehand and a
// run costs one reading of the clock and one atomic write, so that recording disturbs little and every peer
// alike.
type recorder struct {
	start   time.Time
	due     []int64        // by id, since start; 0 is not due in this run; written before the timer is started
	ran     []atomic.Int64 // by id, since start; 0 is has not run
	again   atomic.Int64   // runs of a timer that had run before
	settled int            // ids below it are known to have run, or to have nothing due
}

func newRecorder(ids int) *recorder {
	return &recorder{start: time.Now(), due: make([]int64, ids), ran: make([]atomic.Int64, ids)}
}

// now is the monotonic time since start.
func (r *recorder) now() time.Duration { return time.Since(r.start) }

// fire notes that the timer of the key runs now.
func (r *recorder) fire(key string) {
	if !r.ran[idOf(key)].CompareAndSwap(0, int64(r.now())) {
		r.again.Add(1)
	}
}

// expect notes that the timer of the id will be asked for with the delay that is returned, to run at the
// instant at. What has become due meanwhile is asked for after least.
func (r *recorder) expect(id int, at, least time.Duration) time.Duration {
	now := r.now()
	d := max(at-now, least)
	r.due[id] = int64(now + d)
	return d
}

// wait returns when every timer that is due has run, or at the deadline. It looks at each id about once, and
// more and more seldom, so that what waits for a job that is lost uses no processor time to speak of.
func (r *recorder) wait(deadline time.Duration) {
	const shortest, longest = 2 * time.Millisecond, 100 * time.Millisecond
	for pause := shortest; r.now() < deadline && !r.complete(); pause = min(2*pause, longest) {
		time.Sleep(pause)
	}
}

// complete says whether every timer that is due has run.
func (r *recorder) complete() bool {
	for ; r.settled < len(r.due); r.settled++ {
		if r.due[r.settled] != 0 && r.ran[r.settled].Load() == 0 {
			return false
		}
	}
	return true
}

// lateness is what became of the timers: how long after its due instant each ran, negative if before.
type lateness struct {
	early, lost, again    int
	first, p50, p99, last time.Duration
}

// lateness sums up what was recorded. A timer that was not due and ran is early.
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
