// SPDX-License-Identifier: MIT

package pool

import (
	"fmt"
	"log"
	"runtime/debug"
)

// An Option configures a Pool created by [New].
type Option func(*Pool) error

// WithMaxWaiting limits the number of jobs that wait for a worker to n. [Pool.Submit] then returns [ErrFull] instead of
// letting one more job wait, and [Pool.SubmitWait] blocks. With 0, a job is accepted only if a worker is free for it.
// [New] returns an error if n is negative.
func WithMaxWaiting(n int) Option {
	return func(p *Pool) error {
		if n < 0 {
			return fmt.Errorf("pool: maximum number of waiting jobs %d is negative", n)
		}
		p.maxWaiting = n
		return nil
	}
}

// WithPanicHandler calls h with the recovered value and the stack when a job panics, on the job's goroutine. The pool
// continues to work. Without this option a panic is written to the standard logger of package log. A panic in h is also
// written there. WithPanicHandler panics if h is nil.
func WithPanicHandler(h func(value any, stack []byte)) Option {
	if h == nil {
		panic("pool: nil panic handler")
	}
	return func(p *Pool) error {
		p.onPanic = h
		return nil
	}
}

// recover stops a panic in a job. It must be deferred.
func (p *Pool) recover() {
	value := recover()
	if value == nil {
		return
	}
	defer func() {
		if again := recover(); again != nil {
			logPanic(again, debug.Stack())
		}
	}()
	p.onPanic(value, debug.Stack())
}

func logPanic(value any, stack []byte) {
	log.Printf("pool: job panicked: %v\n%s", value, stack)
}
