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

// A Link is the way from a node to an engine, which need not be one of this package. It passes every call on,
// with the faults that a test asks for. Give each node a Link of its own to cut off one node, or all the same
// Link to cut off all. Use [NewLink].
type Link struct {
	to engine.Engine

	mu   sync.Mutex // protects below
	of   func(method string) Fault
	next map[string][]Fault // of the next calls of each method
}

// A Fault is what happens to a call.
type Fault struct {
	Delay time.Duration // how long the call takes to reach the engine
	Fail  bool          // then it fails there, and has no effect
	Lose  bool          // or it has its effect, and its answer is lost
}

// ErrFault is the error of a call that failed, or whose answer was lost, by a Fault.
var ErrFault = errors.New("memengine: fault")

// NewLink returns a link without faults.
func NewLink(to engine.Engine) *Link { return &Link{to: to, next: make(map[string][]Fault)} }

// Next makes the faults those of the next calls of a method of engine.Engine, such as "Commit", one for each
// call. They come after those that it has been given earlier.
func (l *Link) Next(method string, faults ...Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next[method] = append(l.next[method], faults...)
}

// SetFaults has of return the fault of every call that has none by Next. It calls of with the name of the
// method, for one call at a time. Nil means no faults.
func (l *Link) SetFaults(of func(method string) Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of = of
}

// SetDown makes every call fail without an effect, or ends that. It replaces what SetFaults was given.
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

// pass makes the call of a method with its fault. A delayed call whose context is done reaches the engine all
// the same, as a request does that has left when its sender gives up. So do must use nothing that the caller
// may change.
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

// Commit is that of engine.Engine, and so are the other methods of its names.
func (l *Link) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch,
) ([]engine.Result, error) {
	own := make([]engine.Batch, len(batches))
	for i, batch := range batches {
		own[i] = slices.Clone(batch)
		for j := range own[i] {
			own[i][j].Data = slices.Clone(own[i][j].Data)
		}
	}
	return ask(ctx, l, "Commit", func(ctx context.Context) ([]engine.Result, error) {
		return l.to.Commit(ctx, by, own)
	})
}

// ask is pass for a call with an answer. It returns the zero value with an error.
func ask[T any](ctx context.Context, l *Link, method string, do func(context.Context) (T, error)) (T, error) {
	answer := make(chan T, 1) // a call that comes too late leaves its answer there
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

func (l *Link) Get(ctx context.Context, key string) (engine.Stored, bool, error) {
	type found struct {
		s  engine.Stored
		ok bool
	}
	a, err := ask(ctx, l, "Get", func(ctx context.Context) (a found, err error) {
		a.s, a.ok, err = l.to.Get(ctx, key)
		return a, err
	})
	return a.s, a.ok, err
}

func (l *Link) GetMany(ctx context.Context, keys []string) ([]engine.Stored, error) {
	keys = slices.Clone(keys)
	return ask(ctx, l, "GetMany", func(ctx context.Context) ([]engine.Stored, error) {
		return l.to.GetMany(ctx, keys)
	})
}

// Due passes the walk on. If its answer is lost, the walk ends before the first task.
func (l *Link) Due(ctx context.Context, after engine.Position, until int64) iter.Seq2[engine.Stored, error] {
	return l.walk(ctx, "Due", l.to.Due(ctx, after, until))
}

// ByKey passes the walk on as Due does, and so does Failing.
func (l *Link) ByKey(ctx context.Context, from string) iter.Seq2[engine.Stored, error] {
	return l.walk(ctx, "ByKey", l.to.ByKey(ctx, from))
}

func (l *Link) Failing(ctx context.Context, from string) iter.Seq2[engine.Stored, error] {
	return l.walk(ctx, "Failing", l.to.Failing(ctx, from))
}

func (l *Link) walk(ctx context.Context, method string, tasks iter.Seq2[engine.Stored, error],
) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) {
		if err := pass(ctx, l, method, func(context.Context) error { return nil }); err != nil {
			yield(engine.Stored{}, err)
			return
		}
		tasks(yield)
	}
}

func (l *Link) Census(ctx context.Context) ([]engine.KindCount, error) {
	return ask(ctx, l, "Census", l.to.Census)
}

func (l *Link) Now(ctx context.Context) (int64, error) { return ask(ctx, l, "Now", l.to.Now) }

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

func (l *Link) Renew(ctx context.Context, id engine.MemberID, report []byte,
) (now int64, members int, err error) {
	report = slices.Clone(report)
	a, err := ask(ctx, l, "Renew", func(ctx context.Context) (a timed[int], err error) {
		a.now, a.v, err = l.to.Renew(ctx, id, report)
		return a, err
	})
	return a.now, a.v, err
}

func (l *Link) Members(ctx context.Context) ([]engine.Membership, error) {
	return ask(ctx, l, "Members", l.to.Members)
}

func (l *Link) Leave(ctx context.Context, id engine.MemberID) error {
	return pass(ctx, l, "Leave", func(ctx context.Context) error { return l.to.Leave(ctx, id) })
}

func (l *Link) Reap(ctx context.Context) (names []string, err error) {
	return ask(ctx, l, "Reap", l.to.Reap)
}

func (l *Link) Claim(ctx context.Context, by engine.MemberID, kinds []string, after, until int64, most int,
) (got []engine.Stored, now int64, err error) {
	kinds = slices.Clone(kinds)
	a, err := ask(ctx, l, "Claim", func(ctx context.Context) (a timed[[]engine.Stored], err error) {
		a.v, a.now, err = l.to.Claim(ctx, by, kinds, after, until, most)
		return a, err
	})
	return a.v, a.now, err
}

func (l *Link) ClaimTurns(ctx context.Context, by engine.MemberID, kinds []string, group string, until int64,
	most int,
) (got []engine.Stored, next string, now int64, err error) {
	kinds = slices.Clone(kinds)
	type answer struct {
		got  []engine.Stored
		next string
		now  int64
	}
	a, err := ask(ctx, l, "ClaimTurns", func(ctx context.Context) (a answer, err error) {
		a.got, a.next, a.now, err = l.to.ClaimTurns(ctx, by, kinds, group, until, most)
		return a, err
	})
	return a.got, a.next, a.now, err
}

// LeaveOut always arrives.
func (l *Link) LeaveOut(by engine.MemberID, version byte) { l.to.LeaveOut(by, version) }

func (l *Link) Claimed(ctx context.Context, by engine.MemberID) (held []engine.Stored, err error) {
	return ask(ctx, l, "Claimed", func(ctx context.Context) ([]engine.Stored, error) {
		return l.to.Claimed(ctx, by)
	})
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

func (l *Link) Settings(ctx context.Context) (settings []byte, revision int64, err error) {
	type found struct {
		settings []byte
		revision int64
	}
	a, err := ask(ctx, l, "Settings", func(ctx context.Context) (a found, err error) {
		a.settings, a.revision, err = l.to.Settings(ctx)
		return a, err
	})
	return a.settings, a.revision, err
}

func (l *Link) SetSettings(ctx context.Context, settings []byte, revision int64) (done bool, err error) {
	settings = slices.Clone(settings)
	return ask(ctx, l, "SetSettings", func(ctx context.Context) (bool, error) {
		return l.to.SetSettings(ctx, settings, revision)
	})
}

func (l *Link) Ask(ctx context.Context, by engine.MemberID, question []byte) (id int64, err error) {
	return ask(ctx, l, "Ask", func(ctx context.Context) (int64, error) { return l.to.Ask(ctx, by, question) })
}

func (l *Link) Asked(ctx context.Context, by engine.MemberID) ([]engine.Question, error) {
	return ask(ctx, l, "Asked", func(ctx context.Context) ([]engine.Question, error) { return l.to.Asked(ctx, by) })
}

func (l *Link) Answer(ctx context.Context, by engine.MemberID, id int64, a engine.Answer) error {
	return pass(ctx, l, "Answer", func(ctx context.Context) error { return l.to.Answer(ctx, by, id, a) })
}

func (l *Link) Answers(ctx context.Context, id int64) ([]engine.Answer, error) {
	return ask(ctx, l, "Answers", func(ctx context.Context) ([]engine.Answer, error) { return l.to.Answers(ctx, id) })
}

func (l *Link) Forget(ctx context.Context, id int64) error {
	return pass(ctx, l, "Forget", func(ctx context.Context) error { return l.to.Forget(ctx, id) })
}
