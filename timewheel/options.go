// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"

	"github.com/seed581295f1/timewheel/internal/clock"
)

// An Option changes how a wheel made by [New] behaves.
type Option func(*config) error

// config is what the options set.
type config struct {
	clock      clock.Clock
	layout     Layout
	poolSize   int
	executor   Executor // nil: workers of the wheel's own, at most poolSize
	maxPending int64    // 0: no bound
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

// WithPoolSize sets how many jobs may run at once; the default is 1024. Further due runs wait, first in,
// first out. It is an error if n is not positive. The option has no effect with [WithExecutor].
func WithPoolSize(n int) Option {
	return func(c *config) error {
		if n <= 0 {
			return fmt.Errorf("timewheel: pool size %d is not positive", n)
		}
		c.poolSize = n
		return nil
	}
}

// WithExecutor makes the wheel run jobs by e instead of on goroutines of its own. Stop does not close e.
// WithExecutor panics if e is nil.
func WithExecutor(e Executor) Option {
	if e == nil {
		panic("timewheel: nil executor")
	}
	return func(c *config) error {
		c.executor = e
		return nil
	}
}

// WithLayout sets how the wheel keeps waiting tasks; the default is [Hashed]. It is an error if the layout is unknown.
func WithLayout(l Layout) Option {
	return func(c *config) error {
		if l != Hashed && l != Hierarchical {
			return fmt.Errorf("timewheel: layout %d is unknown", int(l))
		}
		c.layout = l
		return nil
	}
}

// WithMaxPending bounds the number of live tasks: when there are n, AddTask returns [ErrFull], and so does
// SetTask for a new key. An add that meets the bound while another add is being refused, or a task is just
// ending, may be refused as well. A [Timer] counts, but AfterFunc, which has no error to return, is never
// refused. Without this option there is no bound. It is an error if n is not positive.
func WithMaxPending(n int) Option {
	return func(c *config) error {
		if n <= 0 {
			return fmt.Errorf("timewheel: max pending %d is not positive", n)
		}
		c.maxPending = int64(n)
		return nil
	}
}

// WithPanicHandler calls h when a job panics, with the task, the recovered value and the stack. If the job ended its
// goroutine with runtime.Goexit, the value is an error that says so. h runs on the worker, after the panic was logged;
// a panic in h is logged as well. If the option is given more than once, every handler is called. WithPanicHandler
// panics if h is nil.
func WithPanicHandler(h func(task *Task, value any, stack []byte)) Option {
	if h == nil {
		panic("timewheel: nil panic handler")
	}
	return func(c *config) error {
		c.report.handlers = append(c.report.handlers, h)
		return nil
	}
}

// WithErrorHandler calls h when the function of a [JobFunc] returns an error, with the task and the error. The wheel
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

// WithObserver calls o with each run after its end, on the worker that ran it: a slow observer delays no other run, but
// occupies the worker. A panic in o is logged. If the option is given more than once, every observer is called.
// WithObserver panics if o is nil.
func WithObserver(o func(Run)) Option {
	if o == nil {
		panic("timewheel: nil observer")
	}
	return func(c *config) error {
		c.report.observers = append(c.report.observers, o)
		return nil
	}
}
