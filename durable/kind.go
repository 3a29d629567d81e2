// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/seed581295f1/timewheel/durable/internal/past"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A Handler performs a run. The run is complete when the handler returns nil. After an error, a panic or a call to
// runtime.Goexit, the run is retried. The handler controls whether and when this happens by returning an error from
// [Park] or [RetryAfter]. ctx is done when the attempt times out ([WithTimeout]), when [Scheduler.Cancel] cancels the
// run, when Shutdown stops waiting for it, or when the lease expires. context.Cause returns the reason:
// ErrCancelled, ErrStopped or ErrFenced, or context.DeadlineExceeded after the timeout.
type Handler func(ctx context.Context, run Run) error

// A Run is one run of a task. Only Attempt and Fence differ from one attempt to the next.
type Run struct {
	Token
	Kind    string
	Payload []byte    // must not be modified
	Due     time.Time // when the run was due, by the engine's clock; a retry or Snooze does not change it
	Times   int       // runs left after this one, or Forever
	Attempt int       // 1 for the first attempt; on an own engine, an attempt that a crash interrupted may not be counted
	Missed  uint64    // periods without a run since the task was added
	Trace   string    // trace of the task; see [Task]
	Meta    string    // as in Task

	// Fence increases with each attempt of each run of the task, on any node, and continues with the next task that
	// uses the key. A system outside the engine can reject requests whose fence is smaller than one that it has already
	// seen.
	Fence int64

	called int64 // when the handler was called, by the clock of Due
	rec    *task.Record
	of     *kind
	ends   *node.Ending
}

// Lateness returns how long after Due the handler was called. It is correct even if the clocks of the process and the
// engine differ, unlike [time.Since].
func (r Run) Lateness() time.Duration { return time.Duration(r.called - r.Due.UnixNano()) }

// A Token identifies a run. No other run of any task, in this process or a later one, has the same token.
type Token struct {
	Key        string
	Generation uint64 // increases with every task that uses the key, unless a clock is set back
	Seq        uint64 // increases with every run of the task; some numbers may be skipped
}

// String returns the generation, the number Seq and the key as one string, separated by dots.
func (t Token) String() string { return fmt.Sprintf("%x.%d.%s", t.Generation, t.Seq, t.Key) }

// Missed is a policy for runs of a repeating task that fall due while no process can run the task, while the task or
// its kind is paused, or while an earlier run of the task is in progress. A missed run does not count towards Times.
type Missed int

const (
	// MissedOnce performs one run after downtime or a pause. The other runs count as missed, as do all runs that fall
	// due while an earlier run is in progress.
	MissedOnce Missed = iota

	// MissedSkip performs no missed run after downtime or a pause, except the task's last run and a run that was
	// already attempted. In all other cases it works like MissedOnce.
	MissedSkip

	// MissedAll performs every missed run, one after another.
	MissedAll
)

// A KindOption configures a kind. See [Scheduler.Handle].
type KindOption func(*kind) error

// WithRetry sets how many times a run is attempted, and how long to wait after each failed attempt. The wait after the
// first failure equals least. It doubles with each further failure, up to most. Each wait is shortened at random by up to
// half. The default is 10 attempts, with waits from one second to ten minutes.
//
// If the last attempt fails too, a task with further runs gives the run up: it continues with its next run, which has all
// its attempts. The periods that passed meanwhile count as missed, as after a run that took that long, and the run counts
// towards Times. Info.GivenUp and Info.Failure tell that the task's last run was given up, until a run is complete. A task
// without further runs is parked: it waits until an operator reschedules or removes it. See [WithParkRepeating].
//
// A run that is in progress when its process ends also uses up an attempt, whichever task ended the process; see "At
// least once" in the package documentation. Both attempts and least must be positive, and least must not exceed most.
func WithRetry(attempts int, least, most time.Duration) KindOption {
	return func(k *kind) error {
		if attempts <= 0 || least <= 0 || most < least {
			return fmt.Errorf("durable: retry of %d attempts with waits from %v to %v: "+
				"attempts and the first wait must be positive, and the waits must not decrease", attempts, least, most)
		}
		k.Policy.Attempts, k.Policy.Least, k.Policy.Most = uint64(attempts), least, most
		return nil
	}
}

// WithParkRepeating parks a task whose run has failed for the last time even if the task has further runs. Use it if a
// run must not start before an operator has looked at the failure of the run before it. By default only a task without
// further runs is parked.
func WithParkRepeating() KindOption {
	return func(k *kind) error {
		k.Policy.ParkRepeating = true
		return nil
	}
}

// WithMissed sets the policy for missed runs. The default is [MissedOnce].
func WithMissed(m Missed) KindOption {
	return func(k *kind) error {
		if m < MissedOnce || m > MissedAll {
			return fmt.Errorf("durable: unknown policy %d for missed runs", m)
		}
		k.Policy.Missed = task.Missed(m)
		return nil
	}
}

// WithTimeout bounds the duration of an attempt. After d, the attempt's context is done and the attempt fails, unless
// the handler has called [Run.Complete] and returns nil. In that case the run is complete. Returning nil alone is a
// failure, because a handler that stopped halfway may also return nil. [Park], [RetryAfter] and [Snooze] work as usual,
// and a panic is a failure. The failure message says how long the attempt took. The next attempt does not begin until
// the handler has returned, so a handler that ignores its context continues to occupy its worker. By default, attempts
// have no timeout. d must be positive.
func WithTimeout(d time.Duration) KindOption {
	return func(k *kind) error {
		k.Policy.Timeout = d
		return positive("timeout", d)
	}
}

// WithMissedAge sets the maximum age of a missed run. Runs of a repeating task that are overdue by more than d are
// skipped and count as missed, even with [MissedAll]. A task's last run, and a run that was already attempted, are
// performed regardless of age. By default there is no maximum. d must be positive.
func WithMissedAge(d time.Duration) KindOption {
	return func(k *kind) error {
		k.Policy.MissedAge = d
		return positive("age of a missed run", d)
	}
}

// A kind holds the handler, options and counters of one kind of task. It is the node.Runner of its node.Kind.
type kind struct {
	node.Kind
	handler Handler
	wrapped Handler // the handler within its middleware, on which runs call
	within  []Middleware
	typed   bool // the handler is that of a Kind, for which an empty payload needs no upgrade
	tell    *teller
	all     *node.Kinds // of the scheduler

	onFailure func(Info) Task // as in WithOnFailure; may be nil

	overdue overdueStarts
	past    *past.Kind // the history; nil if the kind has none

	keeps    int // as in WithHistory; 0 if the kind has no history
	keepsFor time.Duration

	noteBytes int // as in WithHistoryNotes

	// for KindInfo
	started, succeeded, failed, snoozed, cancelled, parked, givenUp, givenUpAgain, interrupted atomic.Uint64
}

func newKind(name string, h Handler, opts []KindOption) (*kind, error) {
	policy := task.Policy{Attempts: 10, Least: time.Second, Most: 10 * time.Minute}
	k := &kind{handler: h, Kind: node.Kind{Name: name, Policy: policy}, noteBytes: task.MaxFailure}
	k.Runner = k
	for _, o := range opts {
		if o == nil {
			return nil, errors.New("durable: nil option")
		}
		if err := o(k); err != nil {
			return nil, err
		}
	}
	if h != nil && k.Policy.Version > 1 && k.Policy.Upgrade == nil {
		return nil, fmt.Errorf("durable: the upgrade to version %d is nil", k.Policy.Version)
	}
	return k, nil
}

var errNoHandler = errors.New("durable: handler is nil")

// kind returns the kind with the given name, or nil if it has no handler here.
func (s *Scheduler) kind(name string) *kind {
	if k := s.kinds.Get(name); k != nil {
		return k.Runner.(*kind)
	}
	return nil
}
