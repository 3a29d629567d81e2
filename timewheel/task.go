// SPDX-License-Identifier: MIT

package timewheel

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Forever as the Times of a [Task] means that the task runs until it is removed.
const Forever = -1

// A Job is the function that a task runs. It is called on a goroutine of the wheel's pool, never on the event loop. It
// may run for any length of time and call any method of the wheel. Runs of one task may overlap if a run takes longer
// than the interval; see [SkipIfRunning].
//
// The task passed to the job is a copy that belongs to this run. Its Times is the number of runs that remained when the
// run began, as returned by [TimeWheel.GetTaskTimes]: 0 in the last run, Forever if there is no last run. Its Delay is
// 0.
type Job func(task *Task)

// A Task is a job with a key and a schedule. The simplest task has a key, a delay and a job, and runs once. The wheel
// copies the task, so the caller may modify and reuse it.
type Task struct {
	// Key names the task. It must not be empty, and must be unique among the live tasks.
	Key string
	// Interval is the time from the start of one run to the start of the next, and also the time before the first run
	// unless Delay is set. It must not be negative, and must be positive if the task runs more than once or Delay is 0.
	// An interval below one tick of the wheel counts as one tick.
	Interval time.Duration
	// Delay is the time before the first run. 0 means Interval; a task that is to run at once has a Delay of 1, which is
	// one nanosecond: it runs at the next tick. It must not be negative.
	Delay time.Duration
	// Times is the number of runs. 0 means one, Forever means until the task is removed, and any other negative number
	// is an error.
	Times int
	// Job is called for each run. It must not be nil.
	Job Job

	by *dispatcher // dispatcher that created the task for a run; nil in a user's task
}

// Context returns the context of the run, which is done when [TimeWheel.Stop] stops the wheel. [TimeWheel.Shutdown]
// does not cancel it while a run is in progress. Outside a run, Context returns context.Background().
func (t *Task) Context() context.Context {
	if t.by == nil {
		return context.Background()
	}
	return t.by.ctx
}

// check returns nil if the task is valid, and otherwise an error that wraps ErrInvalidTask and says what is wrong.
func (t *Task) check() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrInvalidTask, fmt.Sprintf(format, args...))
	}
	switch {
	case t == nil:
		return invalid("task is nil")
	case t.Key == "":
		return invalid("key is empty")
	case t.Delay < 0:
		return invalid("delay %v of %q is negative", t.Delay, t.Key)
	case t.Times < Forever:
		return invalid("times %d of %q is negative and not Forever", t.Times, t.Key)
	case t.Interval < 0:
		return invalid("interval %v of %q is not positive", t.Interval, t.Key)
	case t.Interval == 0 && t.Delay == 0:
		return invalid("interval 0s and delay 0s of %q: one of them must be positive", t.Key)
	case t.Interval == 0 && (t.Times < 0 || t.Times > 1):
		return invalid("interval 0s of %q is not positive, and it runs more than once", t.Key)
	case t.Job == nil:
		return invalid("job of %q is nil", t.Key)
	}
	return nil
}

// JobFunc returns a job that calls f with the run's [Task.Context], which carries no values. If f returns an error, the
// handlers set with [WithErrorHandler] are called; if there are none, the error is logged. The error has no other
// effect: the run is not retried, and later runs start as usual. JobFunc panics if f is nil.
func JobFunc(f func(ctx context.Context) error) Job {
	if f == nil {
		panic("timewheel: nil function for JobFunc")
	}
	return func(task *Task) {
		if err := f(task.Context()); err != nil && task.by != nil {
			task.by.report.failed(task, err)
		}
	}
}

// SkipIfRunning returns a job that calls the given job, but does nothing while an earlier call is still in progress. A
// skipped run counts as a run of its task. SkipIfRunning panics if job is nil.
func SkipIfRunning(job Job) Job {
	if job == nil {
		panic("timewheel: nil job for SkipIfRunning")
	}
	var running atomic.Bool
	return func(task *Task) {
		if !running.CompareAndSwap(false, true) {
			return
		}
		defer running.Store(false)
		job(task)
	}
}
