// SPDX-License-Identifier: MIT

package enginetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A Link is a node's connection to an engine of any type. It forwards every call, and injects the faults that a test
// requests. Give each node its own Link to cut off individual nodes, or give all nodes the same Link to cut them all
// off at once. Use [NewLink] to create one.
type Link struct {
	to engine.Engine

	mu   sync.Mutex // protects below
	of   func(method string) Fault
	next map[string][]Fault // faults of the next calls of each method
}

// A Fault is a fault to inject into a call. The zero value means no fault.
type Fault struct {
	Delay time.Duration // how long the call takes to reach the engine
	Fail  bool          // the call fails and has no effect
	Lose  bool          // the call takes effect, but its response is lost
}

// ErrFault is wrapped by the errors that Faults cause.
var ErrFault = errors.New("enginetest: fault")

// NewLink returns a link without faults.
func NewLink(to engine.Engine) *Link { return &Link{to: to, next: make(map[string][]Fault)} }

// Next queues faults, one per call, for the next calls to the named method: "Count" or a method of engine.Engine, such
// as "Confirm". Faults that were queued earlier come first. Some methods have a name for each purpose:
//
//	Commit   "Commit" of tasks, "Commit Notes"
//	Claim    "Claim", "Claim Fair"
//	Renew    "Renew" by a member, "Renew 0"
//	Walk     "Walk ByDue", "Walk ByKey", "Walk Failing", "Walk Held", "Walk Notes"
func (l *Link) Next(method string, faults ...Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next[method] = append(l.next[method], faults...)
}

// SetFaults sets a function that chooses the faults of calls for which Next has queued no fault. The function is called
// with the name of the method, and never concurrently. If it is nil, such calls have no faults.
func (l *Link) SetFaults(of func(method string) Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of = of
}

// SetDown makes every call fail without effect, or restores normal operation. It replaces the function set by
// SetFaults.
func (l *Link) SetDown(down bool) {
	if down {
		l.SetFaults(func(string) Fault { return Fault{Fail: true} })
	} else {
		l.SetFaults(nil)
	}
}

// fault returns the fault for the next call of the method.
func (l *Link) fault(method string) (f Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if queue := l.next[method]; len(queue) > 0 {
		l.next[method] = queue[1:]
		return queue[0]
	}
	if l.of != nil {
		return l.of(method)
	}
	return Fault{}
}

// pass calls do and injects the fault for the method. A delayed call still reaches the engine if its context is done
// during the delay, like a request that was sent before its sender gave up. do must therefore not use anything that the
// caller may modify.
func pass(ctx context.Context, l *Link, method string, do func(context.Context) error) error {
	f := l.fault(method)
	meet := func(ctx context.Context) error {
		if f.Fail {
			return fmt.Errorf("%w: %s failed", ErrFault, method)
		}
		err := do(ctx)
		if f.Lose {
			return fmt.Errorf("%w: the answer of %s was lost", ErrFault, method)
		}
		return err
	}
	if f.Delay <= 0 {
		return meet(ctx)
	}
	done := make(chan error, 1)
	time.AfterFunc(f.Delay, func() { done <- meet(context.WithoutCancel(ctx)) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("enginetest: %s: %w", method, ctx.Err())
	}
}

// Commit implements engine.Engine, as do the other methods of that interface.
func (l *Link) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch,
) ([]engine.Result, error) {
	own := make([]engine.Batch, len(batches))
	for i, batch := range batches {
		own[i] = slices.Clone(batch)
		for j := range own[i] {
			own[i][j].Data = slices.Clone(own[i][j].Data)
		}
	}
	method := "Commit"
	if len(own) > 0 && len(own[0]) > 0 && own[0][0].Note {
		method = "Commit Notes"
	}
	return ask(ctx, l, method, func(ctx context.Context) ([]engine.Result, error) {
		return l.to.Commit(ctx, by, own)
	})
}

// ask is pass for a call that returns a value. If there is an error, ask returns the zero value.
func ask[T any](ctx context.Context, l *Link, method string, do func(context.Context) (T, error)) (T, error) {
	answer := make(chan T, 1) // buffered for the value of an abandoned call
	err := pass(ctx, l, method, func(ctx context.Context) error {
		a, err := do(ctx)
		answer <- a
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return <-answer, nil
}

func (l *Link) Get(ctx context.Context, keys ...string) ([]engine.Stored, error) {
	keys = slices.Clone(keys)
	return ask(ctx, l, "Get", func(ctx context.Context) ([]engine.Stored, error) { return l.to.Get(ctx, keys...) })
}

// Walk forwards the walk. A Fault with Fail or Lose ends the walk before the first task.
func (l *Link) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) {
		method := "Walk " + []string{"ByDue", "ByKey", "Failing", "Held", "Notes"}[over.Order]
		if err := pass(ctx, l, method, func(context.Context) error { return nil }); err != nil {
			yield(engine.Stored{}, err)
			return
		}
		l.to.Walk(ctx, over)(yield)
	}
}

// Count forwards the call if the engine is an [engine.Counter]. Otherwise, it walks over the tasks.
func (l *Link) Count(ctx context.Context) ([]engine.KindCount, error) {
	return ask(ctx, l, "Count", func(ctx context.Context) ([]engine.KindCount, error) { return engine.Count(ctx, l.to) })
}

// A timed is a result together with the engine's time.
type timed[T any] struct {
	v   T
	now int64
}

func (l *Link) Join(ctx context.Context, name string, lease time.Duration) (engine.MemberID, int64, error) {
	a, err := ask(ctx, l, "Join", func(ctx context.Context) (a timed[engine.MemberID], err error) {
		a.v, a.now, err = l.to.Join(ctx, name, lease)
		return a, err
	})
	return a.v, a.now, err
}

func (l *Link) Renew(ctx context.Context, by engine.MemberID, report []byte,
) (members []engine.Membership, now int64, err error) {
	report = slices.Clone(report)
	method := "Renew"
	if by == 0 {
		method = "Renew 0"
	}
	a, err := ask(ctx, l, method, func(ctx context.Context) (a timed[[]engine.Membership], err error) {
		a.v, a.now, err = l.to.Renew(ctx, by, report)
		return a, err
	})
	return a.v, a.now, err
}

func (l *Link) Leave(ctx context.Context, id engine.MemberID) error {
	return pass(ctx, l, "Leave", func(ctx context.Context) error { return l.to.Leave(ctx, id) })
}

func (l *Link) Reap(ctx context.Context) (names []string, err error) {
	return ask(ctx, l, "Reap", l.to.Reap)
}

func (l *Link) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	r.Kinds = slices.Clone(r.Kinds)
	method := "Claim"
	if r.Fair {
		method = "Claim Fair"
	}
	return ask(ctx, l, method, func(ctx context.Context) (engine.Claims, error) { return l.to.Claim(ctx, r) })
}

func (l *Link) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration,
) (held []bool, now int64, err error) {
	claims = slices.Clone(claims)
	a, err := ask(ctx, l, "Confirm", func(ctx context.Context) (a timed[[]bool], err error) {
		a.v, a.now, err = l.to.Confirm(ctx, by, claims, within)
		return a, err
	})
	return a.v, a.now, err
}

func (l *Link) Release(ctx context.Context, by engine.MemberID, claims []engine.Claim) error {
	claims = slices.Clone(claims)
	return pass(ctx, l, "Release", func(ctx context.Context) error { return l.to.Release(ctx, by, claims) })
}
