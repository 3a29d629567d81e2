// SPDX-License-Identifier: MIT

package timewheel

import (
	"errors"
	"runtime/debug"
	"sync/atomic"
)

// A worker executes one run after another. The dispatcher's lock protects it.
type worker struct {
	place    int     // index in the dispatcher's workers
	run      dueRun  // the run that was taken last
	number   uint64  // number of the run among all runs taken; 0 if the run has ended
	panicked bool    // whether the run panicked
	awaited  *ending // ending of the run; nil if nothing waits for it
	began    atomic.Uint64
}

var errGoexit = errors.New("timewheel: job called runtime.Goexit")

// work is the main function of a worker. It executes waiting runs, or only one if all is false, until no run is waiting
// or a job ends the goroutine.
func (d *dispatcher) work(all bool) {
	w := new(worker)
	d.mu.Lock()
	w.place = len(d.workers)
	d.workers = append(d.workers, w)
	d.callers.Begin()
	d.mu.Unlock()
	defer d.leave(w)
	for d.serve(w, all) && all { // serve returns when a job panics
	}
}

// leave ends the worker's last run and removes the worker.
func (d *dispatcher) leave(w *worker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endLocked(w)
	last := len(d.workers) - 1
	d.workers[w.place] = d.workers[last]
	d.workers[w.place].place = w.place
	d.workers[last] = nil
	d.workers = d.workers[:last]
	d.callers.End(d.waitingLocked())
}

// serve executes waiting runs, one after another, until no run is waiting or a job panics. It reports whether it must
// be called again. If a job ends the goroutine, everything is reported before the goroutine ends.
func (d *dispatcher) serve(w *worker, all bool) (again bool) {
	var task *Task
	defer func() {
		if task == nil {
			return
		}
		value := recover()
		if value == nil {
			value = errGoexit
		}
		w.panicked, again = true, true
		d.failed(w, task, value)
	}()
	for d.take(w) {
		if !w.run.begin() {
			d.giveBack(w)
			continue
		}
		e := w.run.e
		if w.run.last() {
			d.index.leave()
		}
		if len(d.report.observers) > 0 {
			w.began.Store(d.ticks.now(d.clock))
		}
		task = &Task{Key: e.key, Interval: e.interval, Times: int(w.run.left), Job: e.job, by: d}
		e.job(task)
		task = nil
		d.after(w)
		if !all {
			return false
		}
	}
	return false
}

// take ends the worker's run, if it has one, and assigns the next waiting run to the worker. It reports whether there
// was one. It assigns none if there are too many workers.
func (d *dispatcher) take(w *worker) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endLocked(w)
	if d.waitingLocked() == 0 || d.callers.Over() {
		return false
	}
	r, _ := d.queue.Pop()
	d.taken++
	d.started++
	d.running++
	if r.last() {
		d.finished++
	}
	w.run, w.number = r, d.taken
	w.began.Store(0)
	d.callers.Call(d.waitingLocked())
	return true
}

// begin begins the run, unless its task has been removed. Once a worker has taken a run, only a removal or begin
// changes the state of the entry.
func (r *dueRun) begin() bool {
	s := r.e.state.Load()
	then := scheduled
	if r.last() {
		then = done
	}
	return s&stateMask == waiting && r.e.state.CompareAndSwap(s, then)
}

// giveBack undoes take for a run that was withdrawn before it began.
func (d *dispatcher) giveBack(w *worker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.started--
	d.running--
	d.withdrawn.Add(1)
	if w.run.last() {
		d.finished--
	}
	w.releaseLocked(false)
	d.idleLocked()
}

// failed reports a job that has panicked or ended the goroutine. Everything is reported even if one of the user's
// handlers also panics or ends the goroutine.
func (d *dispatcher) failed(w *worker, task *Task, value any) {
	defer d.after(w)
	d.report.panicked(w.run.e.key, task, value, debug.Stack())
}

// after finishes a run once its job has ended, however it ended. The key of an ended task has been free since its last run began.
// The index holds the entry until now, so that a worker need not wait for the index before it runs the job.
func (d *dispatcher) after(w *worker) {
	e := w.run.e
	if w.run.last() && e.key != "" {
		d.dates.drop(e)
		d.index.forget(e)
	}
	if len(d.report.observers) == 0 {
		return
	}
	d.report.observe(Run{
		Key:        e.key,
		Due:        d.ticks.time(d.clock, w.run.due),
		Dispatched: d.ticks.time(d.clock, w.run.dispatched),
		Started:    d.ticks.time(d.clock, w.began.Load()),
		Ended:      d.ticks.time(d.clock, d.ticks.now(d.clock)),
		Panicked:   w.panicked,
	})
}

// endLocked counts the worker's run as ended, if it has one.
func (d *dispatcher) endLocked(w *worker) {
	if w.number == 0 {
		return
	}
	if w.panicked {
		d.panicked++
	}
	d.running--
	w.releaseLocked(true)
	d.idleLocked()
}

// releaseLocked records that the worker no longer has a run, and whether the run had begun.
func (w *worker) releaseLocked(ran bool) {
	w.number, w.panicked = 0, false
	if w.awaited != nil {
		w.awaited.ran = ran
		close(w.awaited.came)
		w.awaited = nil
	}
}
