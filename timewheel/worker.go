// SPDX-License-Identifier: MIT

package timewheel

import (
	"cmp"
	"sync/atomic"
)

// A worker is one that runs what waits. The dispatcher's lock protects it.
type worker struct {
	place  int    // in workers
	run    uint64 // the number of the run that goes on, or 0
	key    string // of that run, as all below
	due    uint64
	handed uint64

	// Only if there is an observer: when the run began, or 0 until the worker, without the lock, has looked.
	started atomic.Uint64
}

// joinLocked counts one worker more, and leaveLocked one less.
func (d *dispatcher) joinLocked() *worker {
	w := &worker{place: len(d.workers)}
	d.workers = append(d.workers, w)
	return w
}

func (d *dispatcher) leaveLocked(w *worker) {
	last := len(d.workers) - 1
	d.workers[w.place] = d.workers[last]
	d.workers[w.place].place = w.place
	d.workers[last] = nil
	d.workers = d.workers[:last]
}

// runs returns up to n of those that go on, the longest first.
func (d *dispatcher) runs(n int) []Run {
	type going struct {
		number, due, handed, started uint64
		key                          string
	}
	byNumber := func(a, b going) int { return cmp.Compare(a.number, b.number) }
	longest := make([]going, 0, max(n, 0))
	d.mu.Lock()
	for _, w := range d.workers[:min(maxWorkers, len(d.workers))] {
		if w.run != 0 {
			longest = keepLeast(longest, going{w.run, w.due, w.handed, w.started.Load(), w.key}, byNumber)
		}
	}
	d.mu.Unlock()
	runs := make([]Run, len(longest))
	for i, g := range longest {
		runs[i] = Run{Key: g.key, Due: d.loop.time(g.due), Handed: d.loop.time(g.handed)}
		if g.started > 0 {
			runs[i].Started = d.loop.time(g.started)
		}
	}
	return runs
}
