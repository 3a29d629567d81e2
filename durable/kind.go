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
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A Handler does the work of a run. The run is complete when the handler returns nil. After an error, a panic or a
// runtime.Goexit the run is retried; the errors made by [Park] and [RetryAfter] say whether and when. ctx is done when
// the attempt times out ([WithTimeout]), when [Scheduler.Cancel] cancels it, when Shutdown stops waiting for it, and on
// a node when the lease expires. context.Cause says which.
type Handler func(ctx context.Context, run Run) error

// A Run is one run of a task. Only Attempt and Fence differ from one attempt to the next.
type Run struct {
	Token
	Kind    string
	Payload []byte    // must not be changed
	Due     time.Time // when the run was due
	Times   int       // runs left after this one, or Forever
	Attempt int       // 1 for the first
	Missed  uint64    // periods that passed without a run, since the task was added
	Trace   string    // as in [Task]

	// Fence increases with each run of the task and with each attempt, on any node. A system outside the engine can
	// refuse a fence smaller than one it has seen. It is 0 on an [engine.Store], whose only process needs none.
	Fence int64

	rec  *task.Record
	of   *kind
	ends *runEnd
}

// A Token identifies a run. No other run of any task, in this process or a later one, has the same token.
type Token struct {
	Key        string
	Generation uint64 // increases with every task that uses the key, unless a clock is set back
	Seq        uint64 // increases with every run of the task; not every number is used
}

// String returns the token as one word: the generation, Seq and the key.
func (t Token) String() string { return fmt.Sprintf("%x.%d.%s", t.Generation, t.Seq, t.Key) }

// Missed is a policy for the runs of a repeating task that fall due while no process runs it, while it or its kind is
// paused, or while an earlier run of the task is running. A missed run does not count towards Times.
type Missed int

const (
	// MissedOnce makes one run after downtime or a pause. The others count as missed, and so do all that fall due
	// during a run.
	MissedOnce Missed = iota

	// MissedSkip makes no run after downtime or a pause, except the task's last run and one that was attempted before.
	// Otherwise it is MissedOnce.
	MissedSkip

	// MissedAll makes every missed run, one after the other.
	MissedAll
)

// A KindOption configures a kind. See [Scheduler.Handle].
type KindOption func(*kind) error

// WithRetry sets how many times a run is attempted before its task is parked, and the wait after each failed attempt.
// The wait is at most least after the first failure, doubles with each further one up to most, and is shortened at
// random by up to a half. The default is 10 attempts, with waits from one second to ten minutes. A run in progress when
// its process ends uses up an attempt as well, whichever task ended the process: see the At least once section of the
// package documentation. attempts and least must be positive, and most must not be less than least.
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

// WithTimeout bounds an attempt. After d its context is done and the attempt fails, unless the handler has called
// [Run.Complete] and returns nil: then the run is complete. Returning nil alone is a failure, because a handler that
// stopped halfway may return nil as well. [Park] and [RetryAfter] work as usual, and a panic is a failure. The failure
// says how long the attempt took. The next attempt does not begin until the handler has returned: a handler that
// ignores its context keeps its worker. There is no bound by default. d must be positive.
func WithTimeout(d time.Duration) KindOption {
	return func(k *kind) error {
		k.policy.Timeout = d
		return positive("timeout", d)
	}
}

// WithMissedAge sets how old a missed run may be. Runs of a repeating task that are overdue by more than d are skipped
// and count as missed, also with [MissedAll]. The last run of a task, and a run that was attempted before, are made
// however old they are. There is no bound by default. d must be positive.
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

	since atomic.Int64 // when it was last handled or resumed after Start, by the backend's time

	overdue overdueStarts

	shares *shares // of a keeper, which holds them for the limiter

	// Of a node, which protects these, if the kind has a limit. See [node.divideLocked].
	claimed  cursor
	crowded  bool   // more of it is overdue than was claimed: the groups take turns
	group    string // to continue after
	reported int64  // when the other nodes could know that this node has the kind, by its own clock; 0 if they cannot

	started, succeeded, failed, snoozed, cancelled, parked atomic.Uint64 // for KindInfo
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
	return k, nil
}

var errNoHandler = errors.New("durable: handler is nil")

// kinds are the registered kinds.
type kinds struct {
	mu       sync.RWMutex // protects named, declared and paused
	named    map[string]*kind
	declared map[string]int // the payload versions of kinds that this process only adds
	paused   Pauses
	bounded  atomic.Pointer[[]*kind] // the kinds with a limit
}

func (k *kinds) get(name string) *kind {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.named[name]
}

// of returns the kind of the task, or nil if it is paused or has no handler here for the payload.
func (k *kinds) of(r *task.Record) *kind {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if kind := k.named[r.Kind]; kind != nil && kind.policy.Takes(r) && !k.paused.Has(r.Kind) {
		return kind
	}
	return nil
}

// version returns the payload version for new tasks of the kind, and whether it has a handler here or is declared.
func (k *kinds) version(name string) (version int, known bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if kind := k.named[name]; kind != nil {
		return kind.policy.Version, true
	}
	version, known = k.declared[name]
	return version, known
}

// declare declares a kind.
func (k *kinds) declare(name string, version int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.declared == nil {
		k.declared = make(map[string]int)
	}
	k.declared[name] = version
}

// policy returns the policy of the task's kind, or nil if of returns nil.
func (k *kinds) policy(r *task.Record) *task.Policy {
	if kind := k.of(r); kind != nil {
		return &kind.policy
	}
	return nil
}

// pauses returns the current pauses. The caller must not change them.
func (k *kinds) pauses() Pauses {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.paused
}

// pause sets the pauses, and returns the previous ones.
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

// limited returns the task's kind, or nil if it has no limit, or no handler here for the payload.
func (k *kinds) limited(r *task.Record) *kind {
	if k.bounded.Load() == nil {
		return nil
	}
	if kind := k.get(r.Kind); kind != nil && kind.Limiter != nil && kind.policy.Takes(r) {
		return kind
	}
	return nil
}

// Limiter returns the limiter of the task's kind, or nil if the kind has no limit, or no handler here for the payload.
func (k *kinds) Limiter(r *task.Record) *limit.Limiter {
	if kind := k.limited(r); kind != nil {
		return kind.Limiter
	}
	return nil
}

// Kind returns the kind of that name, or nil if it has no handler here.
func (k *kinds) Kind(name string) *limit.Kind {
	if kind := k.get(name); kind != nil {
		return &kind.Kind
	}
	return nil
}

// Runs reports whether the task's kind has a handler here for its payload and is not paused.
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

func (k *kinds) add(name string, added *kind) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.named[name] != nil {
		return fmt.Errorf("durable: kind %q already has a handler", name)
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
