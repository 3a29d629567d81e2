// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"time"

	"github.com/seed581295f1/timewheel/internal/clock"
)

// An Executor runs functions on goroutines of its own. [WithExecutor] makes a wheel use one in place of its
// pool.
//
// The wheel asks for a worker with Submit; the worker, when it runs, does one due run after the other until
// none waits. Submit may refuse with an error: the wheel asks again a little later and loses nothing. It may
// also block, or run the function before it returns: neither holds up the event loop. A function that was
// accepted must be called, once.
type Executor interface {
	Submit(func()) error
}

// retry is how long after a refusal the executor is asked again.
const retry = 5 * time.Millisecond

// An asker asks an executor of the user's for workers, on a goroutine of its own, since Submit may do as it
// likes.
type asker struct {
	exec  Executor
	work  func()
	clock clock.Clock
	log   logger

	asks chan struct{} // one for each worker that was asked for; there is room for all
	quit chan struct{}
}

func newAsker(exec Executor, work func(), c clock.Clock, log logger) *asker {
	return &asker{
		exec: exec, work: work, clock: c, log: log,
		asks: make(chan struct{}, starters), quit: make(chan struct{}),
	}
}

func (a *asker) ask() {
	select {
	case a.asks <- struct{}{}:
	default: // there is room, unless the executor calls a function twice; the loop must not wait for that
	}
}

func (a *asker) run() {
	defer func() {
		if !a.stopped() {
			// Submit has ended this goroutine: an executor that runs functions here was given such a job, or it
			// did so by itself, and then the worker is still to be asked for.
			a.ask()
			go a.run()
		}
	}()
	timer := a.clock.NewTimer()
	for {
		select {
		case <-a.quit:
			return
		case <-a.asks:
		}
		for refused := false; ; refused = true {
			if a.stopped() {
				return
			}
			err := a.submit()
			if err == nil {
				break
			}
			if !refused {
				a.log.refused(err)
			}
			timer.Reset(retry)
			select {
			case <-a.quit:
			case <-timer.C():
			}
		}
	}
}

func (a *asker) stopped() bool {
	select {
	case <-a.quit:
		return true
	default:
		return false
	}
}

func (a *asker) submit() (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("executor panicked: %v", value)
		}
	}()
	return a.exec.Submit(a.work)
}
