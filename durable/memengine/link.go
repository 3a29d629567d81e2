// SPDX-License-Identifier: MIT

package memengine

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

// A Link is the connection from a node to any engine. It forwards every call, with the faults that a test asks for.
// Give each node its own Link to cut off single nodes, or all nodes the same Link to cut off all at once. Use
// [NewLink].
type Link struct {
	to engine.Engine

	mu   sync.Mutex // protects below
	of   func(method string) Fault
	next map[string][]Fault // of the next calls of each method
}

// A Fault is a fault of a call.
type Fault struct {
	Delay time.Duration // how long the call takes to reach the engine
	Fail  bool          // the call fails there, and has no effect
	Lose  bool          // or it takes effect, and its answer is lost
}

// ErrFault is the error of a call that failed, or whose answer was lost, by a Fault.
var ErrFault = errors.New("memengine: fault")

// NewLink returns a link without faults.
func NewLink(to engine.Engine) *Link { return &Link{to: to, next: make(map[string][]Fault)} }

// Next sets the faults of the next calls of a method of engine.Engine, such as "Confirm", or of "Count", one for each
// call. They are added to earlier ones. Calls of one method for different purposes have separate names:
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

// SetFaults sets a function that chooses the fault for every call that Next has not given one. It is called with the
// name of the method, and never concurrently. Nil means no faults.
func (l *Link) SetFaults(of func(method string) Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of = of
}

// SetDown makes every call fail with no effect, or restores normal operation. It replaces the function of SetFaults.
func (l *Link) SetDown(down bool) {
	if down {
		l.SetFaults(func(string) Fault { return Fault{Fail: true} })
	} else {
		l.SetFaults(nil)
	}
}

// fault returns the fault of a call.
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

// pass calls the method, and applies its fault. A delayed call whose context is done still reaches the engine, like a
// request that was sent before its sender gave up. So do must not use anything that the caller may change.
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
		return fmt.Errorf("memengine: %s: %w", method, ctx.Err())
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

// ask is pass for a call with an answer. It returns the zero value with an error.
func ask[T any](ctx context.Context, l *Link, method string, do func(context.Context) (T, error)) (T, error) {
	answer := make(chan T, 1) // a late call leaves its answer there
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

// Walk forwards the walk. If its answer is lost, the walk ends before the first task.
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

// Count calls the engine's Count if the engine is an [engine.Counter]; otherwise it walks over the tasks.
func (l *Link) Count(ctx context.Context) ([]engine.KindCount, error) {
	return ask(ctx, l, "Count", func(ctx context.Context) ([]engine.KindCount, error) { return engine.Count(ctx, l.to) })
}

// A timed is an answer with the engine's time.
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

func (l *Link) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim,
) (held []bool, now int64, err error) {
	claims = slices.Clone(claims)
	a, err := ask(ctx, l, "Confirm", func(ctx context.Context) (a timed[[]bool], err error) {
		a.v, a.now, err = l.to.Confirm(ctx, by, claims)
		return a, err
	})
	return a.v, a.now, err
}

func (l *Link) Release(ctx context.Context, by engine.MemberID, claims []engine.Claim) error {
	claims = slices.Clone(claims)
	return pass(ctx, l, "Release", func(ctx context.Context) error { return l.to.Release(ctx, by, claims) })
}
