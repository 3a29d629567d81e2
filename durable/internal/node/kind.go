// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A Runner runs the tasks of a kind, and knows how they end.
type Runner interface {
	// Run calls the handler. It calls [Run.Result] and then [Run.End] once each, whatever the handler does.
	Run(ctx context.Context, r *Run)

	// Interrupted returns the result for a task some of whose starts have ended in an unknown way. rec is the task
	// before, and next after it: see [task.Record.Interrupted].
	Interrupted(rec, next *task.Record, starts int) Result

	// Expired returns the result for a task whose run has expired.
	Expired(rec *task.Record) Result
}

// A Kind is what a node knows about a kind of task that has a handler here.
type Kind struct {
	limit.Kind
	Name   string
	Policy task.Policy
	Runner Runner

	since atomic.Int64 // when the kind got its handler or was last resumed after Start, by the node's clock; see isOld

	// The node uses and protects the fields below if the kind has a limit. See [Node.divideLocked].
	claimed  cursor
	crowded  atomic.Bool // more tasks may be due than were claimed, so the groups take turns
	group    string      // group after which the next turn begins
	reported int64       // when other nodes could first see that this node has the kind, by its own clock; 0 if they cannot
}

// Kinds holds the registered kinds.
type Kinds struct {
	mu       sync.RWMutex // protects named, declared and paused
	named    map[string]*Kind
	declared map[string]task.Policy // of kinds without a handler, for the tasks that this process adds
	paused   Pauses
	bounded  atomic.Pointer[[]*Kind] // kinds with a limit
}

// Get returns the kind with the given name, or nil if it has no handler here.
func (k *Kinds) Get(name string) *Kind {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.named[name]
}

// since returns when the kind got its handler, or was last resumed, after Start; 0 if that is unknown.
func (k *Kinds) since(name string) int64 {
	if kind := k.Get(name); kind != nil {
		return kind.since.Load()
	}
	return 0
}

// Of returns the task's kind, or nil if the kind is paused or has no handler here that accepts the payload.
func (k *Kinds) Of(r *task.Record) *Kind {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if kind := k.named[r.Kind]; kind != nil && kind.Policy.Takes(r) && !k.paused.Has(r.Kind) {
		return kind
	}
	return nil
}

// Policy returns the policy for new tasks of the kind. known reports whether the kind has a handler here or is declared.
func (k *Kinds) Policy(name string) (p task.Policy, known bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if kind := k.named[name]; kind != nil {
		return kind.Policy, true
	}
	p, known = k.declared[name]
	return p, known
}

// Declare declares a kind with a policy for new tasks.
func (k *Kinds) Declare(name string, p task.Policy) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.declared == nil {
		k.declared = make(map[string]task.Policy)
	}
	k.declared[name] = p
}

// policy returns the policy of the task's kind. It returns nil whenever Of does.
func (k *Kinds) policy(r *task.Record) *task.Policy {
	if kind := k.Of(r); kind != nil {
		return &kind.Policy
	}
	return nil
}

// Pauses returns the current pauses. The caller must not modify them.
func (k *Kinds) Pauses() Pauses {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.paused
}

// pause sets the pauses and returns the previous ones.
func (k *Kinds) pause(p Pauses, now int64) (was Pauses) {
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

// Limiter returns the limiter of the task's kind, or nil if the kind has no limit or has no handler here that accepts
// the payload.
func (k *Kinds) Limiter(r *task.Record) *limit.Limiter {
	if k.bounded.Load() == nil {
		return nil
	}
	if kind := k.Get(r.Kind); kind != nil && kind.Limiter != nil && kind.Policy.Takes(r) {
		return kind.Limiter
	}
	return nil
}

// Kind returns what a limiter knows of a kind, or nil if the kind has no handler here.
func (k *Kinds) Kind(name string) *limit.Kind {
	if kind := k.Get(name); kind != nil {
		return &kind.Kind
	}
	return nil
}

// Runs reports whether the task's kind is not paused and has a handler here that accepts the payload.
func (k *Kinds) Runs(r *task.Record) bool { return k.Of(r) != nil }

// AllLimited returns the kinds with a limit.
func (k *Kinds) AllLimited() []*Kind {
	if all := k.bounded.Load(); all != nil {
		return *all
	}
	return nil
}

// shared returns the kinds with a limit for all nodes together.
func (k *Kinds) shared() (some []*Kind) {
	for _, kind := range k.AllLimited() {
		if kind.Cluster != (limit.Bound{}) {
			some = append(some, kind)
		}
	}
	return some
}

// unlimited returns the kinds without a limit that are not paused.
func (k *Kinds) unlimited() map[string]*Kind {
	k.mu.RLock()
	defer k.mu.RUnlock()
	some := make(map[string]*Kind)
	for name, kind := range k.named {
		if kind.Limiter == nil && !k.paused.Has(name) {
			some[name] = kind
		}
	}
	return some
}

// Names returns the names of all kinds.
func (k *Kinds) Names() []string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return slices.Collect(maps.Keys(k.named))
}

// add adds the kind. It calls begin before any of its tasks can run.
func (k *Kinds) add(added *Kind, begin func()) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.named[added.Name] != nil {
		return fmt.Errorf("durable: kind %q already has a handler", added.Name)
	}
	begin()
	if k.named == nil {
		k.named = make(map[string]*Kind)
	}
	k.named[added.Name] = added
	if added.Limiter != nil {
		all := append(slices.Clone(k.AllLimited()), added)
		k.bounded.Store(&all)
	}
	return nil
}

// isOld reports whether a task was due before Start, or before the kind got its handler or was resumed. If the clock was
// ahead at that time, no task counts as old: otherwise tasks would be skipped until the clock shows that time again.
func (k *Kind) isOld(due, started, now int64) bool {
	since := max(started, k.since.Load())
	return due <= since && since-now <= int64(task.MostAhead)
}
