// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"

	"github.com/seed581295f1/timewheel/internal/clock"
)

// An Option configures a wheel created by [New].
type Option func(*config) error

// config holds the settings that options change.
type config struct {
	clock      clock.Clock
	layout     Layout
	poolSize   int
	executor   Executor // nil: the wheel's own workers, at most poolSize
	maxPending int64    // 0: no limit
	report     report
}

const defaultPoolSize = 1024

func newConfig(opts []Option) (config, error) {
	c := config{clock: clock.Real(), poolSize: defaultPoolSize, report: report{log: newLogger()}}
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("timewheel: option %d is nil", i+1))
		}
		if err := opt(&c); err != nil {
			return config{}, err
		}
	}
	return c, nil
}

// WithPoolSize sets the maximum number of jobs that run at once; the default is 1024. Further due runs wait, first in,
// first out. New returns an error if n is not positive. WithPoolSize has no effect if [WithExecutor] is given.
// [TimeWheel.ResizePool] changes the number later.
func WithPoolSize(n int) Option {
	return func(c *config) error {
		if n <= 0 {
			return fmt.Errorf("timewheel: pool size %d is not positive", n)
		}
		c.poolSize = n
		return nil
	}
}

// WithExecutor makes the wheel run jobs on e instead of on its own goroutines. Stop does not close e. WithExecutor
// panics if e is nil.
func WithExecutor(e Executor) Option {
	if e == nil {
		panic("timewheel: nil executor")
	}
	return func(c *config) error {
		c.executor = e
		return nil
	}
}

// WithLayout sets how the wheel stores waiting tasks; the default is [Hashed]. New returns an error if the layout is
// unknown.
func WithLayout(l Layout) Option {
	return func(c *config) error {
		if l != Hashed && l != Hierarchical {
			return fmt.Errorf("timewheel: layout %d is unknown", int(l))
		}
		c.layout = l
		return nil
	}
}

// WithMaxPending limits the number of live tasks to n. When the limit is reached, AddTask returns [ErrFull], and so
// does SetTask for a new key. An add that would just fit may also be refused if, at the same moment, another add is
// being refused or a task is ending. A [Timer] counts towards the limit, but AfterFunc is never refused, because it
// cannot return an error. By default there is no limit. New returns an error if n is not positive.
func WithMaxPending(n int) Option {
	return func(c *config) error {
		if n <= 0 {
			return fmt.Errorf("timewheel: max pending %d is not positive", n)
		}
		c.maxPending = int64(n)
		return nil
	}
}

// WithPanicHandler calls h with the task, the recovered value and the stack when a job panics. If the job called
// runtime.Goexit, the value is an error that says so. h runs on the worker, after the panic has been logged; a panic in
// h is also logged. If the option is given more than once, every handler is called. WithPanicHandler panics if h is
// nil.
func WithPanicHandler(h func(task *Task, value any, stack []byte)) Option {
	if h == nil {
		panic("timewheel: nil panic handler")
	}
	return func(c *config) error {
		c.report.handlers = append(c.report.handlers, h)
		return nil
	}
}

// WithErrorHandler calls h with the task and the error when a function passed to [JobFunc] returns an error. The wheel
// then does not log the error. h runs on the worker; a panic in h is logged. If the option is given more than once,
// every handler is called. WithErrorHandler panics if h is nil.
func WithErrorHandler(h func(task *Task, err error)) Option {
	if h == nil {
		panic("timewheel: nil error handler")
	}
	return func(c *config) error {
		c.report.errors = append(c.report.errors, h)
		return nil
	}
}

// WithObserver calls o with each run after the run has ended, on the worker that ran it. A slow observer occupies its
// worker, but delays no other run directly. A panic in o is logged. If the option is given more than once, every
// observer is called. WithObserver panics if o is nil.
func WithObserver(o func(Run)) Option {
	if o == nil {
		panic("timewheel: nil observer")
	}
	return func(c *config) error {
		c.report.observers = append(c.report.observers, o)
		return nil
	}
}
