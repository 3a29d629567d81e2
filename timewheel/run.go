// SPDX-License-Identifier: MIT

package timewheel

import (
	"errors"
	"log/slog"
	"runtime/debug"
)

var errGoexit = errors.New("timewheel: job called runtime.Goexit")

// serve runs what waits, one run after the other, until nothing does, or until a job panics. It reports
// whether it is to be called again. A job that ends the goroutine ends it when everything was reported.
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

// failed reports a job that has panicked or ended the goroutine. A user's function that panics or ends the
// goroutine in turn keeps nothing from being reported.
func (d *dispatcher) failed(w *worker, task *Task, value any) {
	defer d.after(w)
	d.report.panicked(w.run.e.key, task, value, debug.Stack())
}

// after does what is left to do when a job has ended, in whatever way. The key of a task that has ended is free
// since its last run began. The index holds the entry until here, so that a worker need not wait for the index
// before the job.
func (d *dispatcher) after(w *worker) {
	e := w.run.e
	if w.run.last() && e.key != "" {
		d.index.forget(e)
	}
	if len(d.report.observers) == 0 {
		return
	}
	d.report.observe(Run{
		Key:      e.key,
		Due:      d.ticks.time(d.clock, w.run.due),
		Handed:   d.ticks.time(d.clock, w.run.dispatched),
		Started:  d.ticks.time(d.clock, w.began.Load()),
		Ended:    d.ticks.time(d.clock, d.ticks.now(d.clock)),
		Panicked: w.panicked,
	})
}

// A report is the logger and the user's functions to which the outcome of a run is reported. A panic of such a
// function is logged, and keeps none of the others from being called.
type report struct {
	log       logger
	handlers  []func(task *Task, value any, stack []byte)
	errors    []func(task *Task, err error)
	observers []func(Run)
}

func (r *report) panicked(key string, task *Task, value any, stack []byte) {
	defer each(r.handlers, r.log, "panic handler", func(h func(*Task, any, []byte)) { h(task, value, stack) })
	r.log.log(slog.LevelError, "job panicked", "key", key, "panic", value, "stack", string(stack))
}

func (r *report) failed(task *Task, err error) {
	if len(r.errors) == 0 {
		r.log.log(slog.LevelError, "job failed", "key", task.Key, "error", err)
	}
	each(r.errors, r.log, "error handler", func(h func(*Task, error)) { h(task, err) })
}

func (r *report) observe(run Run) {
	each(r.observers, r.log, "observer", func(o func(Run)) { o(run) })
}

// each calls do for every function, also after one of them has panicked or ended the goroutine.
func each[F any](all []F, log logger, what string, do func(f F)) {
	if len(all) == 0 {
		return
	}
	defer each(all[1:], log, what, do)
	defer func() {
		if value := recover(); value != nil {
			log.log(slog.LevelError, what+" panicked", "panic", value, "stack", string(debug.Stack()))
		}
	}()
	do(all[0])
}
