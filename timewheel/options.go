// SPDX-License-Identifier: MIT

package timewheel

import (
	"errors"
	"fmt"

	"github.com/seed581295f1/timewheel/internal/clock"
)

// An Option changes how a wheel made by [New] behaves.
type Option func(*config) error

// config is what the options set.
type config struct {
	clock        clock.Clock
	layout       Layout
	poolSize     int
	executor     Executor // nil: a pool of poolSize
	maxPending   int64    // 0: no bound
	log          logger
	panicHandler func(task *Task, value any, stack []byte)
	observer     func(Run)
}

const defaultPoolSize = 1024

func newConfig(opts []Option) (config, error) {
	c := config{clock: clock.Real(), poolSize: defaultPoolSize, log: newLogger()}
	for i, opt := range opts {
		if opt == nil {
			return config{}, fmt.Errorf("timewheel: option %d is nil", i+1)
		}
		if err := opt(&c); err != nil {
			return config{}, err
		}
	}
	return c, nil
}

// WithPoolSize sets how many jobs may run at once; 1024 unless it is given. Further due runs wait, first in,
// first out. It is an error if n is not positive. With [WithExecutor] it means nothing.
func WithPoolSize(n int) Option {
	return func(c *config) error {
		if n <= 0 {
			return fmt.Errorf("timewheel: pool size %d is not positive", n)
		}
		c.poolSize = n
		return nil
	}
}

// WithExecutor has jobs run by e in place of a pool that belongs to the wheel. Stop does not close it. It is
// an error if e is nil.
func WithExecutor(e Executor) Option {
	return func(c *config) error {
		if e == nil {
			return errors.New("timewheel: executor is nil")
		}
		c.executor = e
		return nil
	}
}

// WithLayout sets how the wheel keeps the tasks that wait; [Hashed] unless it is given. It is an error if the
// layout is unknown.
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
// SetTask for a new key. A [Timer] counts, but AfterFunc, which has no error to return, is never refused.
// Without this option there is no bound. It is an error if n is not positive.
func WithMaxPending(n int) Option {
	return func(c *config) error {
		if n <= 0 {
			return fmt.Errorf("timewheel: max pending %d is not positive", n)
		}
		c.maxPending = int64(n)
		return nil
	}
}

// WithPanicHandler has h called when a job panics, with what [Job] was given, the value and the stack. If the
// job ended its goroutine with runtime.Goexit the value is an error that says so. h runs on the worker, after
// the panic was logged; a panic of its own is logged, too. It is an error if h is nil.
func WithPanicHandler(h func(task *Task, value any, stack []byte)) Option {
	return func(c *config) error {
		if h == nil {
			return errors.New("timewheel: panic handler is nil")
		}
		c.panicHandler = h
		return nil
	}
}

// WithObserver has o called after each run with its account, on the worker that ran it, so that o may take
// its time but keeps the worker while it does. A panic of o is logged. It is an error if o is nil.
func WithObserver(o func(Run)) Option {
	return func(c *config) error {
		if o == nil {
			return errors.New("timewheel: observer is nil")
		}
		c.observer = o
		return nil
	}
}
