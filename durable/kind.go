// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/limit"
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

	// Fence increases with each attempt of each run of the task, on any node, and continues with the next task that
	// uses the key. A system outside the engine can reject requests whose fence is smaller than one that it has already
	// seen.
	Fence int64

	called int64 // when the handler was called, by the clock of Due
	rec    *task.Record
	of     *kind
	ends   *runEnd
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
		k.policy.Attempts, k.policy.Least, k.policy.Most = uint64(attempts), least, most
		return nil
	}
}

// WithParkRepeating parks a task whose run has failed for the last time even if the task has further runs. Use it if a
// run must not start before an operator has looked at the failure of the run before it. By default only a task without
// further runs is parked.
func WithParkRepeating() KindOption {
	return func(k *kind) error {
		k.policy.ParkRepeating = true
		return nil
	}
}

// WithMissed sets the policy for missed runs. The default is [MissedOnce].
func WithMissed(m Missed) KindOption {
	return func(k *kind) error {
		if m < MissedOnce || m > MissedAll {
			return fmt.Errorf("durable: unknown policy %d for missed runs", m)
		}
		k.policy.Missed = task.Missed(m)
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
		k.policy.Timeout = d
		return positive("timeout", d)
	}
}

// WithMissedAge sets the maximum age of a missed run. Runs of a repeating task that are overdue by more than d are
// skipped and count as missed, even with [MissedAll]. A task's last run, and a run that was already attempted, are
// performed regardless of age. By default there is no maximum. d must be positive.
func WithMissedAge(d time.Duration) KindOption {
	return func(k *kind) error {
		k.policy.MissedAge = d
		return positive("age of a missed run", d)
	}
}

// A kind holds the handler, options and counters of one kind of task.
type kind struct {
	limit.Kind
	name    string
	handler Handler
	wrapped Handler // the handler within its middleware, on which runs call
	within  []Middleware
	policy  task.Policy
	typed   bool // the handler is that of a Kind, for which an empty payload needs no upgrade

	since atomic.Int64 // when the kind got its handler or was last resumed after Start, by the node's clock; see isOld

	overdue overdueStarts
	past    *past.Kind // the history; nil if the kind has none

	keeps    int // as in WithHistory; 0 if the kind has no history
	keepsFor time.Duration

	// The node uses and protects the fields below if the kind has a limit. See [node.divideLocked].
	claimed  cursor
	crowded  atomic.Bool // more tasks may be due than were claimed, so the groups take turns
	group    string      // group after which the next turn begins
	reported int64       // when other nodes could first see that this node has the kind, by its own clock; 0 if they cannot

	// for KindInfo
	started, succeeded, failed, snoozed, cancelled, parked, givenUp, givenUpAgain atomic.Uint64
}

func newKind(name string, h Handler, opts []KindOption) (*kind, error) {
	k := &kind{name: name, handler: h, policy: task.Policy{Attempts: 10, Least: time.Second, Most: 10 * time.Minute}}
	for _, o := range opts {
		if o == nil {
			return nil, errors.New("durable: nil option")
		}
		if err := o(k); err != nil {
			return nil, err
		}
	}
	k.crowded.Store(true)
	if h != nil && k.policy.Version > 1 && k.policy.Upgrade == nil {
		return nil, fmt.Errorf("durable: the upgrade to version %d is nil", k.policy.Version)
	}
	return k, nil
}

var errNoHandler = errors.New("durable: handler is nil")

// kinds holds the registered kinds.
type kinds struct {
	mu       sync.RWMutex // protects named, declared and paused
	named    map[string]*kind
	declared map[string]task.Policy // payload versions of kinds without a handler, for the tasks that this process adds
	paused   Pauses
	bounded  atomic.Pointer[[]*kind] // kinds with a limit
}

func (k *kinds) get(name string) *kind {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.named[name]
}

// of returns the task's kind, or nil if the kind is paused or has no handler here that accepts the payload.
func (k *kinds) of(r *task.Record) *kind {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if kind := k.named[r.Kind]; kind != nil && kind.policy.Takes(r) && !k.paused.Has(r.Kind) {
		return kind
	}
	return nil
}

// version returns the payload version for new tasks of the kind. known reports whether the kind has a handler here or
// is declared.
func (k *kinds) version(name string) (version int, known bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if kind := k.named[name]; kind != nil {
		return kind.policy.Version, true
	}
	d, known := k.declared[name]
	return d.Version, known
}

// payloads returns the payload version of the kind, and its upgrade, which may be nil.
func (k *kinds) payloads(name string) (version int, upgrade func([]byte, int) ([]byte, error)) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if kind := k.named[name]; kind != nil {
		return kind.policy.Version, kind.policy.Upgrade
	}
	d := k.declared[name]
	return d.Version, d.Upgrade
}

// declare declares a kind with the payload version of a policy.
func (k *kinds) declare(name string, p task.Policy) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.declared == nil {
		k.declared = make(map[string]task.Policy)
	}
	k.declared[name] = p
}

// policy returns the policy of the task's kind. It returns nil whenever kinds.of does.
func (k *kinds) policy(r *task.Record) *task.Policy {
	if kind := k.of(r); kind != nil {
		return &kind.policy
	}
	return nil
}

// pauses returns the current pauses. The caller must not modify them.
func (k *kinds) pauses() Pauses {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.paused
}

// pause sets the pauses and returns the previous ones.
func (k *kinds) pause(p Pauses, now int64) (was Pauses) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was, k.paused = k.paused, p
	for name, kind := range k.named {
		if was.Has(name) && !p.Has(name) {
			kind.since.Store(now)
		}
	}
	return was
}

// limited returns the task's kind, or nil if the kind has no limit or has no handler here that accepts the payload.
func (k *kinds) limited(r *task.Record) *kind {
	if k.bounded.Load() == nil {
		return nil
	}
	if kind := k.get(r.Kind); kind != nil && kind.Limiter != nil && kind.policy.Takes(r) {
		return kind
	}
	return nil
}

// Limiter returns the limiter of the task's kind, or nil if the kind has no limit or has no handler here that accepts
// the payload.
func (k *kinds) Limiter(r *task.Record) *limit.Limiter {
	if kind := k.limited(r); kind != nil {
		return kind.Limiter
	}
	return nil
}

// Kind returns the kind with the given name, or nil if it has no handler here.
func (k *kinds) Kind(name string) *limit.Kind {
	if kind := k.get(name); kind != nil {
		return &kind.Kind
	}
	return nil
}

// Runs reports whether the task's kind is not paused and has a handler here that accepts the payload.
func (k *kinds) Runs(r *task.Record) bool { return k.of(r) != nil }

// allLimited returns the kinds with a limit.
func (k *kinds) allLimited() []*kind {
	if all := k.bounded.Load(); all != nil {
		return *all
	}
	return nil
}

// shared returns the kinds with a limit for all nodes together.
func (k *kinds) shared() (some []*kind) {
	for _, kind := range k.allLimited() {
		if kind.Cluster != (limit.Bound{}) {
			some = append(some, kind)
		}
	}
	return some
}

// unlimited returns the kinds without a limit that are not paused.
func (k *kinds) unlimited() map[string]*kind {
	k.mu.RLock()
	defer k.mu.RUnlock()
	some := make(map[string]*kind)
	for name, kind := range k.named {
		if kind.Limiter == nil && !k.paused.Has(name) {
			some[name] = kind
		}
	}
	return some
}

// names returns the names of all kinds.
func (k *kinds) names() []string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return slices.Collect(maps.Keys(k.named))
}

// add adds the kind, and begins its history, if it has one.
func (k *kinds) add(name string, added *kind, histories *past.Writer) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.named[name] != nil {
		return fmt.Errorf("durable: kind %q already has a handler", name)
	}
	if added.keeps > 0 {
		added.past = histories.Kind(name, added.keeps, added.keepsFor) // nil after Shutdown; then nothing runs
	}
	if k.named == nil {
		k.named = make(map[string]*kind)
	}
	k.named[name] = added
	if added.Limiter != nil {
		all := append(slices.Clone(k.allLimited()), added)
		k.bounded.Store(&all)
	}
	return nil
}

// isOld reports whether a task was due before Start, or before the kind got its handler or was resumed. If the clock was
// ahead at that time, no task counts as old: otherwise tasks would be skipped until the clock shows that time again.
func (k *kind) isOld(due, started, now int64) bool {
	since := max(started, k.since.Load())
	return due <= since && since-now <= int64(task.MostAhead)
}
