// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"log/slog"
)

// An Executor runs functions on its own goroutines. [WithExecutor] makes a wheel use an Executor instead of its own
// pool.
//
// The wheel submits one function for each due run. The function executes the run that has waited longest. If that run
// was withdrawn and no other is waiting, the function does nothing. Submit may return an error to refuse the function:
// the wheel then tries again a little later and loses no run. Submit may also block, or call the function before
// returning; neither delays the event loop. An accepted function must be called exactly once.
type Executor interface {
	Submit(func()) error
}

// A submitter submits functions to the user's executor. It does so on its own goroutine, because Submit may block.
type submitter struct {
	exec Executor
	d    *dispatcher
	quit chan struct{}
	wake chan struct{} // buffers one value

	submitted int // functions submitted but not yet called; guarded by the dispatcher's lock
}

func newSubmitter(exec Executor, d *dispatcher) *submitter {
	return &submitter{exec: exec, d: d, quit: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// Call wakes the submitter if more runs are waiting than functions have been submitted. Begin records that a function
// was called; it tolerates an executor that calls a function twice. The dispatcher calls these methods under its lock.
func (s *submitter) Call(waiting int) {
	if waiting > s.submitted {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

func (s *submitter) Over() bool { return false }
func (s *submitter) Begin()     { s.submitted = max(s.submitted-1, 0) }
func (s *submitter) End(int)    {}
func (s *submitter) Close()     { close(s.quit) }

// next reports whether one more function must be submitted and, if so, counts it as submitted.
func (s *submitter) next() bool {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.d.waitingLocked() <= s.submitted {
		return false
	}
	s.submitted++
	return true
}

// refused undoes the count made by next, for a function that was refused.
func (s *submitter) refused() {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.Begin()
}

func (s *submitter) run() {
	over := false
	defer func() {
		if !over {
			// Submit ended this goroutine: either the executor called a function here whose job called runtime.Goexit,
			// or the executor called it itself.
			go s.run()
		}
	}()
	timer := s.d.clock.NewTimer()
	defer timer.Stop()
	for refused := false; ; {
		for s.next() {
			err := s.submit()
			if err == nil {
				refused = false
				continue
			}
			s.refused()
			if !refused {
				refused = true
				s.d.report.log.log(slog.LevelWarn, "executor refuses work; the wheel retries until it accepts", "error", err)
			}
			timer.Reset(poll)
			select {
			case <-s.quit:
			case <-timer.C():
			}
		}
		select {
		case <-s.quit:
			over = true
			return
		case <-s.wake:
		}
	}
}

func (s *submitter) submit() (err error) {
	returned := false
	defer func() {
		value := recover()
		if value != nil {
			err = fmt.Errorf("executor panicked: %v", value)
		} else if !returned {
			// Submit ended the goroutine and may not have accepted the function. Submitting one function too many does
			// no harm.
			s.refused()
		}
	}()
	err = s.exec.Submit(func() { s.d.work(false) })
	returned = true
	return err
}
