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
// runs wait in its queue, from which they can be withdrawn. It knows neither the loop nor the TimeWheel; package crew
// has the rule for the number of workers.
//
// No memory that may be missing from the processor's cache is read under the lock. The loop has read the entries just
// before it queues them. A worker takes a run out of the queue, which is one stretch of memory, and reads its entry
// only then, without the lock. The compare-and-swap of the state decides whether the run begins, or was withdrawn in
// between.
type dispatcher struct {
	ticks  ticks
	clock  clock.Clock
	index  *index
	dates  *dates
	report report
	ctx    context.Context // of the runs

	size int // how many runs may be running at once; 0 if an executor decides that

	mu      sync.Mutex // protects all below
	queue   crew.Queue[dueRun]
	callers callers
	workers []*worker     // that have begun and not ended, in no order
	running int           // runs
	stopped bool          // no further run begins
	idle    chan struct{} // closed when stopped and nothing runs
	once    sync.Once     // for idle

	taken                          uint64        // runs, including those given back
	due, started, missed, panicked uint64        // runs
	withdrawn                      atomic.Uint64 // runs; counted before the entry is scheduled again
	finished                       uint64        // tasks
}

// A dueRun is a run that is due.
type dueRun struct {
	e          *entry
	due        uint64 // when it was due, and
	dispatched uint64 // when the loop dispatched it
	left       int64  // how many runs the task has after it, or Forever
}

// last reports whether it is the last run of its task.
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

// callers is where workers come from: a crew of the wheel's own, or the user's executor.
type callers interface {
	Call(waiting int) // calls one more if one is needed
	Begin()           // one begins
	End(waiting int)  // one ends
	Close()
}

// fire queues the entries that are due by the given instant. It appends to again the entries that have a further run,
// are being moved, or were moved beyond that instant. None of the entries is in a slot.
func (d *dispatcher) fire(entries []*entry, by, now uint64, again []*entry) []*entry {
	for _, e := range entries {
		e.load() // brings all of them into the cache, many at a time, before the lock is taken
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

// fireLocked reports whether the entry is to be placed again.
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
				continue // a worker has begun the run, and the due time may be that of a Reschedule
			}
			d.nextPeriodLocked(e, due, now, 0)
			return true
		case moving:
			return true
		}
		return false
	}
}

// nextPeriodLocked makes the entry due at its first period after now. The periods that have begun from the
// one at due on were missed, except for the dispatched ones.
func (d *dispatcher) nextPeriodLocked(e *entry, due, now, dispatched uint64) {
	// The present is that of the ticks: a period whose own tick has not come cannot have been missed. By the
	// clock, a task with an interval of one tick that is due just after a tick would miss every other period:
	// the loop wakes up some microseconds after each tick.
	passed := max(due, d.ticks.instant(d.ticks.down(now)))
	begun, next := grid(due, passed, max(e.interval, time.Duration(d.ticks)))
	if !e.due.CompareAndSwap(due, next) {
		return // a worker has begun the run that waited, and since then the entry was moved
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

// withdraw removes the run of a waiting entry from the queue and sets the state of the entry, moving or removed. It
// returns when the run was due, and whether it succeeded. If a worker already has the run, it is about to begin: then
// the entry can still be removed, but no longer moved.
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
		e.state.Store(then) // nothing else changes it: the loop would need this lock, and no worker has the run
		d.withdrawn.Add(1)
	}
	return r.due, true
}

// times returns how many runs of the entry have not begun, and when the waiting run was due, if one waits.
func (d *dispatcher) times(e *entry) (left int, due uint64, waits bool) {
	for {
		withdrawn := d.withdrawn.Load()
		s := e.state.Load()
		if s&stateMask != waiting {
			// The state may be the same again: a run may have been queued, which takes it off times, and then
			// withdrawn.
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
		if !ok { // a worker has it and is about to begin it
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

// start lets runs begin.
func (d *dispatcher) start() {
	if s, ok := d.callers.(*submitter); ok {
		go s.run()
	}
}

// stop lets no run begin from here on.
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
