// SPDX-License-Identifier: MIT

package dashboard

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

const (
	// attemptDigits is the precision of an AttemptRecorder's histograms: about 6 %. The two histograms of a kind take
	// 0.06 MB.
	attemptDigits = 1
	maxRecorded   = 32 // maximum number of recorded kinds
)

// An AttemptRecorder records how late the attempts of each kind start on one durable scheduler, how long they take, and
// the error of the last failed attempt. Pass its [AttemptRecorder.Option] to the scheduler, and the recorder itself to
// [Scheduler]. It records the first 32 kinds that run. An AttemptRecorder takes at most 2 MB, and adds some 100 ns to
// each attempt.
type AttemptRecorder struct {
	schedulers atomic.Int32 // number of schedulers that use the recorder

	mu    sync.Mutex // protects the fields below
	kinds map[string]*attempts
}

// attempts holds the recorded attempts of a kind.
type attempts struct {
	window  window // histograms of lateness and run time
	failure string // error of the last failed attempt that was not cancelled
}

// NewAttemptRecorder returns an empty recorder.
func NewAttemptRecorder() *AttemptRecorder {
	return &AttemptRecorder{kinds: make(map[string]*attempts)}
}

// Option returns the option that attaches the recorder to a scheduler. A recorder serves only one scheduler: if the
// option is used a second time, [durable.New] or [durable.Connect] returns an error. If they fail, make another recorder
// for the next try. The scheduler may have other observers.
func (r *AttemptRecorder) Option() durable.Option {
	return once(&r.schedulers, "scheduler", durable.WithObserver(r.observe))
}

func (r *AttemptRecorder) isWired() bool { return r.schedulers.Load() > 0 }

// once combines the options into one. If that option is used a second time, it returns an error and has no other
// effect. C is the configuration of a wheel or a scheduler, whose type is unexported.
func once[C any](used *atomic.Int32, what string, opts ...func(*C) error) func(*C) error {
	return func(c *C) error {
		if used.Add(1) > 1 {
			return fmt.Errorf("dashboard: the recorder already belongs to a %s, or to one that could not be opened; make one for each", what)
		}
		for _, o := range opts {
			if err := o(c); err != nil {
				return err
			}
		}
		return nil
	}
}

// observe records an attempt.
func (r *AttemptRecorder) observe(a durable.Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.kinds[a.Kind]
	if k == nil {
		if len(r.kinds) == maxRecorded {
			return
		}
		k = &attempts{}
		r.kinds[a.Kind] = k
	}
	if a.Failure != "" && !a.Cancelled {
		k.failure = a.Failure
	}
	k.window.begin(2, attemptDigits, a.Ended)
	k.window.rotate(a.Ended)
	k.window.record(a.Started.Sub(a.Due), a.Ended.Sub(a.Started))
}

// failure returns the error of the kind's last failed attempt, or "".
func (r *AttemptRecorder) failure(kind string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.kinds[kind]; k != nil {
		return k.failure
	}
	return ""
}

// lateness returns the lateness and run times of a kind's attempts in the last minute, or nil if the kind is not
// recorded.
func (r *AttemptRecorder) lateness(kind string, now time.Time) *attemptsJSON {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.kinds[kind]
	if k == nil {
		return nil
	}
	k.window.rotate(now)
	a := &attemptsJSON{}
	a.Late, a.Attempts = k.window.quantiles(0)
	a.Run, _ = k.window.quantiles(1)
	return a
}
