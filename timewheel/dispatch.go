// SPDX-License-Identifier: MIT

package timewheel

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// starters is how many workers may be about to take a run. One would do; two let jobs that block have
	// more workers sooner.
	starters = 2

	// chunk is how many due entries are handed over under one lock: enough for the lock to cost nothing
	// beside them, few enough that a worker waits for it some microseconds at most.
	chunk = 256
)

// A dispatcher takes what is due from the loop and has it run. What waits for a worker waits here, in the
// backlog, and not with the executor, so that it can be withdrawn.
//
// While something waits there is a worker about to take it: one that was asked for and has not begun, or one
// between two runs. A worker that is to begin a run when there are too few such asks for one first. So jobs
// that block have as many workers as the executor has room for, and short jobs have few. (When a worker that
// waited for the lock after its run did not count, 100,000 short jobs had 400 workers, which fought for the
// lock and took 15 % longer.)
type dispatcher struct {
	tw   *TimeWheel
	loop *loop
	ask  func() // asks the executor for a worker; does not block

	ending atomic.Int32 // workers whose run has ended, and that wait for mu; they are counted in running still

	mu       sync.Mutex // protects all below
	asked    int        // workers that were asked for and have not begun
	workers  []*worker  // those that have begun and not ended, in no order
	running  int        // runs, now
	stopped  bool       // no run begins any more
	started  uint64
	finished uint64
	backlog  backlog

	due, missed, withdrawn, panicked uint64
	idle                             chan struct{} // closed when stopped and nothing runs
}

// fireLoop hands over those of the entries that are due by the given instant, and places those again that
// were moved beyond it. None of them is in a slot.
func (d *dispatcher) fireLoop(entries []dueEntry, by, now uint64) {
	for len(entries) > 0 {
		n := min(len(entries), chunk)
		d.mu.Lock()
		for _, e := range entries[:n] {
			d.fireLocked(e.entry, by, now)
		}
		call := d.callLocked(0)
		d.mu.Unlock()
		if call {
			d.ask()
		}
		entries = entries[n:]
	}
}

func (d *dispatcher) fireLocked(e *entry, by, now uint64) {
	for {
		switch e.state.Load() {
		case scheduled:
			if !e.state.CompareAndSwap(scheduled, waiting) {
				continue
			}
			due := e.due.Load() // which is written under this lock only from here on
			if due > by {
				e.state.Store(scheduled) // whoever saw it waiting looks again when he has the lock
				d.loop.placeDueLoop(e)
				return
			}
			d.due++
			d.backlog.push(e, due, now)
			if !e.last() {
				d.nextPeriodLocked(e, due, now, 1)
			}
		case waiting:
			d.nextPeriodLocked(e, e.due.Load(), now, 0)
		case moving:
			if !e.state.CompareAndSwap(moving, orphaned) {
				continue
			}
		}
		return
	}
}

// nextPeriodLocked places a repeating task for its first period after now. The periods that have begun from
// the one at due on were missed, but for those that were handed over.
func (d *dispatcher) nextPeriodLocked(e *entry, due, now, handed uint64) {
	// The present is that of the ticks: a period whose own tick has not come cannot have been missed. By
	// the clock, a task whose interval is a tick and which is due just after one would miss every other
	// period, for the loop wakes up some microseconds after each tick.
	passed := max(due, d.loop.ticks.instant(d.loop.ticks.down(now)))
	begun, next := grid(due, passed, max(e.interval, time.Duration(d.loop.ticks)))
	d.due += begun - handed
	d.missed += begun - handed
	e.due.Store(next)
	d.loop.placeDueLoop(e)
}

// callLocked reports whether to ask for one more worker, and if so counts it as asked for. The caller is
// about to take so many of the runs that wait, and is no help with the others.
func (d *dispatcher) callLocked(taking int) bool {
	free := d.asked + len(d.workers) - taking - d.running + int(d.ending.Load())
	if d.stopped || d.backlog.length-taking <= free || free >= starters {
		return false
	}
	d.asked++
	return true
}

// work is a worker's life: it runs what waits until nothing does, or until a job ends the goroutine. That
// leaves the rest to another worker, who was asked for before the job began.
func (d *dispatcher) work() {
	d.mu.Lock()
	d.asked = max(d.asked-1, 0) // below 0 only by an executor that calls a function twice
	w := d.joinLocked()
	defer func() {
		d.leaveLocked(w)
		call := d.callLocked(0) // if a job has ended the goroutine, and another worker relied on this one
		d.mu.Unlock()
		if call {
			d.ask()
		}
	}()
	for !d.stopped && d.backlog.length > 0 {
		if d.callLocked(1) {
			d.mu.Unlock()
			d.ask() // before a run begins, so that little lies between that and the job's first statement
			d.mu.Lock()
			continue
		}
		d.runLocked(w, d.backlog.pop())
	}
}

// runLocked begins a run, and lets go of the lock until the run has ended, in whatever way.
func (d *dispatcher) runLocked(w *worker, n node) {
	e := n.e
	times := e.times.Load()
	last := times == 1
	if times != Forever {
		times--
	}
	if last {
		d.finished++
		d.tw.leave(1)
		e.state.Store(done)
	} else {
		e.times.Store(times) // before the state: who finds it scheduled finds the right number
		e.state.Store(scheduled)
	}
	d.started++
	d.running++
	w.run, w.key, w.due, w.handed = d.started, e.key, n.due, n.handed
	if d.tw.observer != nil {
		w.started.Store(0)
	}
	d.mu.Unlock()

	r := run{
		task:     Task{Key: e.key, Interval: e.interval, Times: int(times), Job: e.job, ctx: d.tw.ctx},
		panicked: true, // until it has returned
	}
	defer func() {
		if !d.mu.TryLock() {
			d.ending.Add(1)
			d.mu.Lock()
			d.ending.Add(-1)
		}
		w.run, w.key = 0, ""
		d.running--
		if r.panicked {
			d.panicked++
		}
		if d.stopped && d.running == 0 {
			close(d.idle)
		}
	}()
	if last {
		d.tw.gone(e)
		d.tw.leave(-1)
		d.tw.forget(e)
	}
	r.perform(d.tw, w)
}

// withdraw takes the entry out of the backlog, calls then, and gives the entry the state. It returns when the
// run was due, and whether the entry did wait; if not, nothing was done.
func (d *dispatcher) withdraw(e *entry, state uint32, then func()) (due uint64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.state.Load() != waiting {
		return 0, false
	}
	due = d.backlog.remove(e).due
	d.withdrawn++
	then()
	e.state.Store(state)
	return due, true
}

// entries returns those that wait, first come first.
func (d *dispatcher) entries() []*entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*entry, 0, d.backlog.length)
	for e := range d.backlog.all() {
		all = append(all, e)
	}
	return all
}

// waitingSince returns when the run was due for which the entry waits, if it does.
func (d *dispatcher) waitingSince(e *entry) (due uint64, ok bool) {
	if e.state.Load() != waiting {
		return 0, false // the common case, without the lock
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.state.Load() != waiting {
		return 0, false
	}
	return d.backlog.node(e.node).due, true
}

// stop lets no run begin from here on.
func (d *dispatcher) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return
	}
	d.stopped = true
	if d.running == 0 {
		close(d.idle)
	}
}
