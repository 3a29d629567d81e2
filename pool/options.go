// SPDX-License-Identifier: MIT

package pool

import (
	"errors"
	"log"
	"runtime/debug"
)

// An Option changes how a Pool made by [New] behaves.
type Option func(*Pool) error

// WithPanicHandler has h called with the value and the stack of a panic in a job, on the goroutine of the
// job. The pool goes on. Without it the panic is written to the standard logger of package log. A panic of h
// itself goes to that logger, too. It is an error if h is nil.
func WithPanicHandler(h func(value any, stack []byte)) Option {
	return func(p *Pool) error {
		if h == nil {
			return errors.New("pool: panic handler is nil")
		}
		p.onPanic = h
		return nil
	}
}

// recover ends a panic of a job. It is to be deferred.
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
