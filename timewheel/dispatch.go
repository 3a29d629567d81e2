// SPDX-License-Identifier: MIT

package timewheel

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/internal/clock"
	"github.com/seed581295f1/timewheel/internal/crew"
)

// A dispatcher receives due entries, a tick at a time, and runs them on its own workers or the user's executor. Due
// runs wait in its queue, from which they can be withdrawn. It refers to neither the loop nor the TimeWheel. Package
// crew contains the rule for the number of workers.
//
// Code that holds the lock reads only memory that is probably in the processor's cache. The loop reads the entries just
// before it queues them. A worker takes a run from the queue, which is contiguous memory, and reads the run's entry
// only after it has released the lock. The compare-and-swap of the state decides whether the run begins or has been
// withdrawn in the meantime.
type dispatcher struct {
	ticks  ticks
	clock  clock.Clock
	index  *index
	dates  *dates
	report report
	ctx    context.Context // context of all runs

	mu      sync.Mutex // protects the fields below
	size    int        // maximum number of runs in progress; 0 if an executor decides
	queue   crew.Queue[dueRun]
	callers callers
	workers []*worker     // workers that have begun and not ended, in no particular order
	running int           // number of runs in progress
	stopped bool          // whether no further run may begin
	idle    chan struct{} // closed when the dispatcher is stopped and no run is in progress
	once    sync.Once     // closes idle once

	taken                          uint64        // number of runs taken by workers, including runs given back
	due, started, missed, panicked uint64        // numbers of runs
	withdrawn                      atomic.Uint64 // number of runs; incremented before the entry is scheduled again
	finished                       uint64        // number of tasks
}

// A dueRun is a run that is due.
type dueRun struct {
	e          *entry
	due        uint64 // when the run was due
	dispatched uint64 // when the loop dispatched the run
	left       int64  // number of runs that the task has after this one, or Forever
}

// last reports whether r is the last run of its task.
func (r *dueRun) last() bool { return r.left == 0 }

func newDispatcher(ctx context.Context, t ticks, c config, x *index, dates *dates) *dispatcher {
	d := &dispatcher{
		ticks: t, clock: c.clock, index: x, dates: dates, report: c.report, ctx: ctx, idle: make(chan struct{}),
	}
	if c.executor != nil {
		d.callers = newSubmitter(c.executor, d)
		return d
	}
	d.size = c.poolSize
	workers := crew.New(d.size, func() { d.work(true) }, d.mu.Lock, d.mu.Unlock)
	d.callers = &workers
	return d
}

// callers is the source of workers: the wheel's own crew or the user's executor.
type callers interface {
	Call(waiting int) // calls one more worker if one is needed
	Begin()           // records that a worker begins
	End(waiting int)  // records that a worker ends
	Over() bool       // reports whether a worker must end although runs are waiting
	Close()
}

// fire queues the entries that are due by the given instant. It returns the slice again, extended by the entries that
// must be placed again: entries that have a further run, are being moved, or were moved beyond that instant. None of
// the entries may be in a slot.
func (d *dispatcher) fire(entries []*entry, by, now uint64, again []*entry) []*entry {
	for _, e := range entries {
		e.load() // brings the entries into the cache, many at a time, before the lock is acquired
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range entries {
		if d.fireLocked(e, by, now) {
			again = append(again, e)
		}
	}
	d.callers.Call(d.waitingLocked())
	return again
}

// fireLocked queues the run of the entry if it is due, and reports whether the entry must be placed again.
func (d *dispatcher) fireLocked(e *entry, by, now uint64) (again bool) {
	for {
		switch s := e.state.Load(); s & stateMask {
		case scheduled:
			due := e.due.Load()
			if due > by {
				return true
			}
			if !e.state.CompareAndSwap(s, waiting|d.queue.Next()<<stateBits) {
				continue
			}
			if due = e.due.Load(); due > by { // it was moved in between
				e.state.Store(scheduled)
				return true
			}
			times := e.times.Load()
			if times != Forever {
				times--
				e.times.Store(times)
			}
			d.due++
			d.queue.Push(dueRun{e: e, due: due, dispatched: now, left: times})
			if times == 0 {
				return false
			}
			d.nextPeriodLocked(e, due, now, 1)
			return true
		case waiting:
			due := e.due.Load()
			if e.state.Load() != s {
				continue // a worker has begun the run, and a Reschedule may have set the due time
			}
			d.nextPeriodLocked(e, due, now, 0)
			return true
		case moving:
			return true
		}
		return false
	}
}

// nextPeriodLocked makes the entry due at its first period after now. Of the periods that have begun from the old due
// time onwards, all except the given number of dispatched ones were missed.
func (d *dispatcher) nextPeriodLocked(e *entry, due, now, dispatched uint64) {
	// The current time is rounded down to a tick, because a period whose own tick has not come cannot have been missed.
	// Without rounding, a task with an interval of one tick that is due just after a tick would miss every other
	// period, because the loop wakes up some microseconds after each tick.
	passed := max(due, d.ticks.instant(d.ticks.down(now)))
	begun, next := grid(due, passed, max(e.interval, time.Duration(d.ticks)))
	if !e.due.CompareAndSwap(due, next) {
		return // a worker has begun the waiting run, and the entry has been moved since
	}
	d.due += begun - dispatched
	d.missed += begun - dispatched
}

// waitingLocked returns how many runs are waiting for a worker and may begin.
func (d *dispatcher) waitingLocked() int {
	if d.stopped {
		return 0
	}
	return d.queue.Len()
}

// withdraw removes the run of a waiting entry from the queue and changes the entry's state to the given one, moving or
// removed. It returns when the run was due, and whether it succeeded. If a worker has already taken the run and is
// about to begin it, the entry can still be removed but no longer moved.
func (d *dispatcher) withdraw(e *entry, then uint32) (due uint64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := e.state.Load()
	if s&stateMask != waiting {
		return 0, false
	}
	r, queued := d.queue.Withdraw(s>>stateBits, func(r dueRun) bool { return r.e == e })
	if !queued {
		if then != removed || !e.state.CompareAndSwap(s, then) {
			return 0, false
		}
		i := slices.IndexFunc(d.workers, func(w *worker) bool { return w.number != 0 && w.run.e == e })
		r.due = d.workers[i].run.due
	}
	if left := e.times.Load(); left != Forever {
		e.times.Store(left + 1)
	}
	if queued {
		e.state.Store(then) // nothing else changes it: the loop would need this lock, and no worker has taken the run
		d.withdrawn.Add(1)
	}
	return r.due, true
}

// times returns how many runs of the entry have not begun, and when the waiting run was due, if there is one.
func (d *dispatcher) times(e *entry) (left int, due uint64, waits bool) {
	for {
		withdrawn := d.withdrawn.Load()
		s := e.state.Load()
		if s&stateMask != waiting {
			// An unchanged state is not enough: in the meantime a run may have been queued, which decrements times, and
			// then withdrawn.
			if times := e.times.Load(); e.state.Load() == s && d.withdrawn.Load() == withdrawn {
				return int(times), 0, false
			}
			continue
		}
		d.mu.Lock()
		r, ok := d.queue.Find(s>>stateBits, func(r dueRun) bool { return r.e == e })
		times := e.times.Load()
		unchanged := e.state.Load() == s
		d.mu.Unlock()
		if !unchanged {
			continue
		}
		if times != Forever {
			times++
		}
		if !ok { // a worker has taken the run and is about to begin it
			return int(times), e.due.Load(), false
		}
		return int(times), r.due, true
	}
}

// stats returns the statistics of the dispatcher.
func (d *dispatcher) stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := Stats{
		Finished: d.finished, Due: d.due, Started: d.started, Missed: d.missed, Withdrawn: d.withdrawn.Load(),
		Panicked: d.panicked, Waiting: d.queue.Len(), Running: d.running, Workers: d.size,
	}
	if r, ok := d.queue.First(); ok {
		s.OldestWait = until(d.ticks.now(d.clock), r.dispatched)
	}
	return s
}

// resize sets the maximum number of runs in progress. It reports whether there is one: an executor has its own.
func (d *dispatcher) resize(size int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, ok := d.callers.(*crew.Crew)
	if ok {
		d.size = size
		c.Resize(size, d.waitingLocked())
	}
	return ok
}

// start lets runs begin.
func (d *dispatcher) start() {
	if s, ok := d.callers.(*submitter); ok {
		go s.run()
	}
}

// stop prevents any further run from beginning.
func (d *dispatcher) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return
	}
	d.stopped = true
	d.idleLocked()
	d.callers.Close()
}

func (d *dispatcher) idleLocked() {
	if d.stopped && d.running == 0 {
		d.once.Do(func() { close(d.idle) })
	}
}
