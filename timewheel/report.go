// SPDX-License-Identifier: MIT

package timewheel

import (
	"log/slog"
	"runtime/debug"
)

// A report holds the logger and the user's functions that are called with the outcome of a run. A panic in one of these
// functions is logged, and the remaining functions are still called.
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

// each calls do for every function, even if one of them panics or ends the goroutine.
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
