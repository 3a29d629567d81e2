// SPDX-License-Identifier: MIT

package kv_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// The node is woken whenever a task that is due by then becomes free, and not otherwise.
func TestWake_byWhatBecomesFree(t *testing.T) {
	due := func(at int64) engine.Write {
		w := add(fmt.Sprint("due at ", at))
		w.Due = at
		return w
	}
	const after, until = 10, 20
	kv := &refusing{KV: memory.New()}
	e := open(t, kv)
	id := join(t, e, "a", time.Hour)
	write(t, e, 0, due(5))
	write(t, e, 0, due(11))
	held := claim(t, e, id) // none: all are due after 1
	got, err := e.Claim(t.Context(), engine.ClaimRequest{By: id, Kinds: []string{"kind"}, Until: 11, Most: 9, Readable: 255})
	ok(t, err)
	held = append(held, got.Tasks...)
	wake := make(chan struct{}, 1)
	for i, c := range []struct {
		name  string
		do    func()
		wakes bool
		due   int64 // what the next Wake returns
	}{
		{"nothing", func() {}, false, engine.None},
		{"a task that is due later", func() { write(t, e, 0, due(until+1)) }, false, engine.None},
		{"a task that is due at the end", func() { write(t, e, 0, due(until)) }, true, until},
		{"one that is due before", func() { write(t, e, 0, due(15)) }, true, 15},
		{"one that is due too early", func() { write(t, e, 0, due(after)) }, true, 15}, // the node may have claimed until then
		{"one of another kind", func() { w := due(12); w.Kind = "other"; write(t, e, 0, w) }, true, 15},
		{"one that is held", func() { w := due(13); w.Hold = true; write(t, e, id, w) }, false, 15},
		{"a removal", func() { write(t, e, 0, remove("due at 15")) }, false, until},
		{"a release", func() { ok(t, e.Release(t.Context(), id, claims(held))) }, true, 11},
		{"a commit without effect", func() {
			kv.refuses = true
			if _, err := e.Commit(t.Context(), 0, []engine.Batch{{remove("due at 11")}}); !errors.Is(err, engine.ErrNotDone) {
				t.Errorf("the commit: %v", err)
			}
			kv.refuses = false
		}, true, 11},
		{"the end of a member", func() { ok(t, e.Leave(t.Context(), id)) }, true, 11},
	} {
		if c.do(); i > 0 && (len(wake) == 1) != c.wakes {
			t.Errorf("%s wakes: %v", c.name, !c.wakes)
		}
		select {
		case <-wake:
		default:
		}
		if due, err := e.(engine.Waker).Wake(t.Context(), []string{"kind"}, after, until, wake); due != c.due || err != nil {
			t.Errorf("%s: the next task is due at %d, %v; want %d", c.name, due, err, c.due)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.(engine.Waker).Wake(gone, []string{"kind"}, after, until, wake); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller has gone: %v", err)
	}
}

// A refusing is an exclusive KV that can refuse to commit.
type refusing struct {
	*memory.KV
	refuses bool
}

func (*refusing) Exclusive() {}

func (r *refusing) Commit(ctx context.Context, txs ...engine.Tx) ([]bool, error) {
	if r.refuses {
		return nil, fmt.Errorf("%w: refused", engine.ErrNotDone)
	}
	return r.KV.Commit(ctx, txs...)
}

// A dawdling is an exclusive KV that takes its time, so that calls overlap.
type dawdling struct{ *memory.KV }

func (dawdling) Exclusive() {}

func (d dawdling) Commit(ctx context.Context, txs ...engine.Tx) ([]bool, error) {
	time.Sleep(rand.N(time.Millisecond))
	defer func() { time.Sleep(rand.N(time.Millisecond)) }()
	return d.KV.Commit(ctx, txs...)
}

func (d dawdling) Scan(ctx context.Context, from, to string) iter.Seq2[engine.Entry, error] {
	return func(yield func(engine.Entry, error) bool) {
		time.Sleep(rand.N(time.Millisecond))
		for e, err := range d.KV.Scan(ctx, from, to) {
			time.Sleep(rand.N(time.Millisecond / 4))
			if !yield(e, err) {
				return
			}
		}
	}
}

// A task that becomes free while the node asks to be woken is in the answer, or wakes the node.
func TestWake_missesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 1000 {
			e := open(t, dawdling{memory.New()})
			id := join(t, e, "a", 1000*time.Hour)
			w := add("k")
			w.Due = 20
			if i%2 == 0 {
				write(t, e, 0, w)
			}
			go func() {
				time.Sleep(rand.N(3 * time.Millisecond))
				if i%2 != 0 {
					write(t, e, 0, w)
					return
				}
				got, err := e.Claim(t.Context(), engine.ClaimRequest{By: id, Kinds: []string{"kind"}, Until: 20, Most: 1, Readable: 255})
				ok(t, err)
				time.Sleep(rand.N(3 * time.Millisecond))
				ok(t, e.Release(t.Context(), id, claims(got.Tasks)))
			}()
			time.Sleep(rand.N(3 * time.Millisecond))
			wake := make(chan struct{}, 1)
			due, err := e.(engine.Waker).Wake(t.Context(), []string{"kind"}, 10, 30, wake)
			ok(t, err)
			if time.Sleep(time.Second); due != 20 && len(wake) == 0 {
				t.Fatalf("%d: the next task is due at %d, and nothing wakes", i, due)
			}
		}
	})
}

// Claims of all sorts, writes and releases overlap. Afterwards claims of both sorts find every free task.
func TestClaim_missesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kinds := []string{"a", "b"}
		for i := range 300 {
			e := open(t, dawdling{memory.New()})
			id := join(t, e, "a", 1000*time.Hour)
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() {
					for range 20 {
						w := add(fmt.Sprint(rand.IntN(6)))
						w.If, w.Due, w.Kind, w.Hold = engine.Always, rand.Int64N(40), kinds[rand.IntN(2)], rand.IntN(3) == 0
						if rand.IntN(4) == 0 {
							w.Group = "g"
						}
						if rand.IntN(5) == 0 {
							w = remove(w.Key)
							w.If = engine.Always
						}
						write(t, e, id, w)
					}
				})
				all.Go(func() {
					for range 20 {
						after := int64(engine.None)
						if rand.IntN(2) == 0 {
							after = rand.Int64N(40)
						}
						got, err := e.Claim(t.Context(), engine.ClaimRequest{
							By: id, Kinds: kinds[:1+rand.IntN(2)], After: after, Until: rand.Int64N(40), Most: 1 + rand.IntN(4),
							Fair: rand.IntN(4) == 0, Readable: byte(255 * rand.IntN(2)),
						})
						ok(t, err)
						time.Sleep(rand.N(time.Millisecond))
						if rand.IntN(2) == 0 {
							ok(t, e.Release(t.Context(), id, claims(got.Tasks)))
						}
					}
				})
			}
			all.Wait()
			for more := true; more; {
				got, err := e.Claim(t.Context(), engine.ClaimRequest{
					By: id, Kinds: kinds, After: engine.None, Until: 40, Most: 2, Readable: 255, Fair: i%2 == 0,
				})
				ok(t, err)
				more = len(got.Tasks) > 0
			}
			for s, err := range e.Walk(t.Context(), engine.Range{Order: engine.ByKey}) {
				if ok(t, err); s.Owner == 0 {
					t.Fatalf("%d: no claim finds %q, due at %d", i, s.Key, s.Due)
				}
			}
		}
	})
}

// A blocked is an exclusive KV whose next Commit waits, and may then be refused.
type blocked struct {
	*memory.KV
	next func() error
}

func (*blocked) Exclusive() {}

func (b *blocked) Commit(ctx context.Context, txs ...engine.Tx) ([]bool, error) {
	if next := b.next; next != nil {
		b.next = nil
		if err := next(); err != nil {
			return nil, err
		}
	}
	return b.KV.Commit(ctx, txs...)
}

// The tasks of a member that ends during a Commit are free afterwards, whether or not the Commit takes effect, and its
// result says so.
func TestLeave_duringACommit_freesTheTasks(t *testing.T) {
	for _, hold := range []bool{false, true} {
		for _, err := range []error{nil, engine.ErrNotDone} {
			kv := &blocked{KV: memory.New()}
			e := open(t, kv)
			a, b := join(t, e, "a", time.Hour), join(t, e, "b", time.Hour)
			write(t, e, 0, add("k"))
			if got := claim(t, e, a); len(got) != 1 {
				t.Fatalf("%d tasks are claimed", len(got))
			}
			kv.next = func() error { ok(t, e.Leave(t.Context(), a)); return err }
			w := add("k")
			w.If, w.Hold = engine.Always, hold
			if r, is := e.Commit(t.Context(), a, []engine.Batch{{w}}); !errors.Is(is, err) || err == nil && r[0].Written[0].Held {
				t.Errorf("the commit: %+v, %v", r, is)
			}
			if got := claim(t, e, b); len(got) != 1 {
				t.Errorf("hold %v, %v: %d tasks are free", hold, err, len(got))
			}
		}
	}
}
