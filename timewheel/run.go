// SPDX-License-Identifier: MIT

package timewheel

import (
	"errors"
	"runtime/debug"
)

var errGoexit = errors.New("timewheel: job called runtime.Goexit")

// A run is one call of a job.
type run struct {
	task     Task
	panicked bool
}

// perform calls the job, and reports what came of it. A panic ends here; a job that ends the goroutine ends
// it when all was reported. What the user gave to be called, and it panics, harms nothing either.
func (r *run) perform(tw *TimeWheel, w *worker) {
	task := r.task // which the user may keep
	key, job := task.Key, task.Job
	if tw.observer != nil {
		w.started.Store(tw.loop.now())
	}
	defer func() { // also after a panic handler that ends the goroutine
		if tw.observer != nil {
			tw.observe(Run{
				Key:      key,
				Due:      tw.loop.time(w.due),
				Handed:   tw.loop.time(w.handed),
				Started:  tw.loop.time(w.started.Load()),
				Ended:    tw.loop.time(tw.loop.now()),
				Panicked: r.panicked,
			})
		}
	}()
	defer func() {
		if r.panicked {
			value := recover()
			if value == nil {
				value = errGoexit
			}
			tw.report(key, &task, value, debug.Stack())
		}
	}()
	job(&task)
	r.panicked = false
}

func (tw *TimeWheel) report(key string, task *Task, value any, stack []byte) {
	tw.log.panicked(key, value, stack)
	if tw.panicHandler == nil {
		return
	}
	defer tw.guard("panic handler")
	tw.panicHandler(task, value, stack)
}

func (tw *TimeWheel) observe(r Run) {
	defer tw.guard("observer")
	tw.observer(r)
}

// guard keeps a panic of the user's function from the wheel. It is to be deferred.
func (tw *TimeWheel) guard(what string) {
	if value := recover(); value != nil {
		tw.log.misbehaved(what, value, debug.Stack())
	}
}
