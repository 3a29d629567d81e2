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

// A Handler does the work of a run. The run is complete when the handler returns nil. After an error, a
// panic or a runtime.Goexit the run is tried again; [Park] and [RetryAfter] make an error that says whether and
// when. ctx is done when the timeout of the run is over ([WithTimeout]), when [Scheduler.Cancel]
// cancels it, when Shutdown stops waiting for it, and on a node when the lease runs out. context.Cause says
// which.
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

	// Fence is greater than that of every earlier run of the task, and every earlier attempt, on whatever node.
	// An effect outside the engine can refuse a smaller fence than it has seen. It is 0 on an [engine.Store], which has
	// one process and needs none.
	Fence int64

	rec  *task.Record
	of   *kind
	ends *runEnd
}

// A Token identifies a run. No other run has the same token, of this task or another, in this process or a
// later one.
type Token struct {
	Key        string
	Generation uint64 // increases with every task that uses the key, unless a clock is set back
	Seq        uint64 // increases with every run of the task; not every number is used
}

// String returns the token as one word: the generation, Seq and the key.
func (t Token) String() string { return fmt.Sprintf("%x.%d.%s", t.Generation, t.Seq, t.Key) }

// Missed is a policy for the runs of a repeating task that fall due while no process runs it, while it or its
// kind is paused, or while an earlier run of the task is running. A run that is missed uses up none of Times.
type Missed int

const (
	// MissedOnce makes one run after downtime or a pause. The others count as missed, as do all that fall due
	// during a run.
	MissedOnce Missed = iota

	// MissedSkip makes none after downtime or a pause, unless it is the task's last or has been attempted. The rest
	// is as with MissedOnce.
	MissedSkip

	// MissedAll makes each of them, one after the other.
	MissedAll
)

// A KindOption configures a kind. See [Scheduler.Handle].
type KindOption func(*kind) error

// WithRetry sets how many times a run is attempted before its task is parked, and the wait after each failed
// attempt. The wait is at most least after the first failure, doubles with each further one up to most, and
// is shortened at random by up to a half. The default is 10 attempts, with waits from one second to ten
// minutes. A run that is running when its process ends uses up an attempt as well, whichever task ended the
// process: see the section At least once of the package documentation. attempts and least must be positive,
// and most must not be less than least.
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

// WithTimeout bounds an attempt. When it has taken d, its context is done, and it has failed, unless the
// handler has called [Run.Complete] when it returns nil: then the run is complete. nil alone is a failure, for a
// handler that is stopped halfway may return it as well. [Park] and [RetryAfter] count as ever, and a panic is a failure. The
// failure says how long the attempt took. The next attempt does not begin before the handler has returned: a
// handler that ignores its context keeps its worker. The default is no bound. d must be positive.
func WithTimeout(d time.Duration) KindOption {
	return func(k *kind) error {
		k.policy.Timeout = d
		return positive("timeout", d)
	}
}

// WithMissedAge sets how old a missed run may be. A repeating task that is overdue by more than d, or has to
// make up for runs that are ([MissedAll]), passes over those: they count as missed. A run that is the last of its
// task, or has been attempted, is made however old it is. The default is no bound. d must be positive.
func WithMissedAge(d time.Duration) KindOption {
	return func(k *kind) error {
		k.policy.MissedAge = d
		return positive("age of a missed run", d)
	}
}

// A kind is what is known about the tasks of one kind.
type kind struct {
	limit.Kind
	name    string
	handler Handler
	policy  task.Policy

	since atomic.Int64 // when it was handled or resumed last after Start, by the backend's time

	lastStart atomic.Int64 // of a run on a node, as the age of the scheduler
	overdue   overdueStarts

	shares *shares // of a keeper, which holds them for the limiter

	// Of a node, which protects these, if the kind has a limit. See [node.divideLocked].
	claimed  cursor
	crowded  bool   // more of it is overdue than was claimed: the groups take turns
	group    string // to continue after
	reported int64  // when the others could know that this node has the kind, by its own time; 0 if they cannot

	started, succeeded, failed, cancelled, parked atomic.Uint64 // for KindInfo
}

func newKind(name string, h Handler, opts []KindOption) (*kind, error) {
	k := &kind{name: name, handler: h, policy: task.Policy{Attempts: 10, Least: time.Second, Most: 10 * time.Minute}}
	if h == nil {
		return nil, errNoHandler
	}
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
	mu      sync.RWMutex // protects named and paused
	named   map[string]*kind
	paused  Pauses
	bounded atomic.Pointer[[]*kind] // those that have a limit
}

func (k *kinds) get(name string) *kind {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.named[name]
}

// of returns the kind of the task, or nil if that has no handler here for its payload, or is paused.
func (k *kinds) of(r *task.Record) *kind {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if kind := k.named[r.Kind]; kind != nil && kind.policy.Takes(r) && !k.paused.Has(r.Kind) {
		return kind
	}
	return nil
}

// policy returns the policy of the task's kind, or nil where of returns nil.
func (k *kinds) policy(r *task.Record) *task.Policy {
	if kind := k.of(r); kind != nil {
		return &kind.policy
	}
	return nil
}

// pauses returns what is paused. The caller must not change it.
func (k *kinds) pauses() Pauses {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.paused
}

// pause makes p what is paused from now on, and returns what was.
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

// limited returns the task's kind if that has a limit, and a handler here for the payload, or else nil.
func (k *kinds) limited(r *task.Record) *kind {
	if k.bounded.Load() == nil {
		return nil
	}
	if kind := k.get(r.Kind); kind != nil && kind.Limiter != nil && kind.policy.Takes(r) {
		return kind
	}
	return nil
}

// Limiter returns the limiter of the task's kind, or nil if that has no limit, or no handler here for the payload.
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

// Runs reports whether the task has a handler here for its payload, and its kind is not paused.
func (k *kinds) Runs(r *task.Record) bool { return k.of(r) != nil }

// allLimited returns the kinds that have a limit.
func (k *kinds) allLimited() []*kind {
	if all := k.bounded.Load(); all != nil {
		return *all
	}
	return nil
}

// shared returns the kinds that have a limit on all nodes.
func (k *kinds) shared() (some []*kind) {
	for _, kind := range k.allLimited() {
		if kind.Cluster != (limit.Bound{}) {
			some = append(some, kind)
		}
	}
	return some
}

// unlimited returns the kinds that are not paused and have no limit.
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
		return fmt.Errorf("durable: kind %q has a handler already", name)
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
