// SPDX-License-Identifier: MIT

package pool

import (
	"log"
	"runtime/debug"
)

// An Option changes how a Pool made by [New] behaves.
type Option func(*Pool) error

// WithPanicHandler calls h with the value and the stack of a panic in a job, on the goroutine of the job. The pool
// continues. Without this option the panic is written to the standard logger of package log. A panic in h is written
// there as well. WithPanicHandler panics if h is nil.
func WithPanicHandler(h func(value any, stack []byte)) Option {
	if h == nil {
		panic("pool: nil panic handler")
	}
	return func(p *Pool) error {
		p.onPanic = h
		return nil
	}
}

// recover ends a panic of a job. It must be deferred.
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
