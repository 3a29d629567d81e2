// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"log/slog"
)

// An Executor runs functions on goroutines of its own. [WithExecutor] makes a wheel use one in place of its
// pool.
//
// The wheel submits one function for each due run. The function runs the run that has waited longest; if that was
// withdrawn and no other waits, it does nothing. Submit may refuse with an error: the wheel submits again a little
// later and loses nothing. It may also block, or call the function before it returns: neither holds up the event loop.
// An accepted function must be called exactly once.
type Executor interface {
	Submit(func()) error
}

// A submitter submits to the user's executor, on a goroutine of its own, since Submit may block.
type submitter struct {
	exec Executor
	d    *dispatcher
	quit chan struct{}
	wake chan struct{} // has room for one

	submitted int // functions not called yet; under the dispatcher's lock
}

func newSubmitter(exec Executor, d *dispatcher) *submitter {
	return &submitter{exec: exec, d: d, quit: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// Call wakes the submitter if more runs wait than functions were submitted. Begin notes the call of a function, which
// may be called twice. These are for the dispatcher, under its lock.
func (s *submitter) Call(waiting int) {
	if waiting > s.submitted {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

func (s *submitter) Begin()  { s.submitted = max(s.submitted-1, 0) }
func (s *submitter) End(int) {}
func (s *submitter) Close()  { close(s.quit) }

// next reports whether to submit one more function, and if so counts it as submitted.
func (s *submitter) next() bool {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.d.waitingLocked() <= s.submitted {
		return false
	}
	s.submitted++
	return true
}

// refused undoes that count.
func (s *submitter) refused() {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.Begin()
}

func (s *submitter) run() {
	over := false
	defer func() {
		if !over {
			// Submit has ended this goroutine: an executor that calls functions here was given such a job, or
			// it did so by itself.
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
			// Submit has ended the goroutine, and may not have taken the function: one too many does no harm.
			s.refused()
		}
	}()
	err = s.exec.Submit(func() { s.d.work(false) })
	returned = true
	return err
}
