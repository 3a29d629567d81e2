// SPDX-License-Identifier: MIT

package kv

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// loadAll loads the rest of the index.
func (e *alone) loadAll(t *testing.T) {
	t.Helper()
	e.writing.Lock()
	defer e.writing.Unlock()
	for more, err := true, error(nil); more && !e.all.whole; {
		if more, err = e.loadSome(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// indexed checks that the index has exactly the existing tasks.
func indexed(t *testing.T, e *alone) {
	t.Helper()
	list := func(kinds []engine.KindCount, err error) []engine.KindCount {
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(kinds, func(a, b engine.KindCount) int { return strings.Compare(a.Kind, b.Kind) })
		return kinds
	}
	got, want := list(e.Count(t.Context())), list(e.base.Count(t.Context()))
	if !slices.Equal(got, want) {
		t.Errorf("counted are %+v, and there are %+v", got, want)
	}
	n := 0
	for s, err := range e.Walk(t.Context(), engine.Range{Order: engine.ByKey}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; e.all.isAbsent(s.Key) {
			t.Errorf("%q is said to be absent", s.Key)
		}
	}
	if e.all.prints.Len() != n {
		t.Errorf("there are %d fingerprints of %d keys", e.all.prints.Len(), n)
	}
}

// Whatever is written while the index is loaded, in the end it has exactly the existing tasks. Until then keys are read
// from the KV.
func TestIndex_agreesWithTheRows(t *testing.T) {
	m := NewMemory(true)
	first, err := New(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	const keys = 4 * loadPage
	commit := func(e engine.Engine, rnd *rand.Rand, i int) {
		w := engine.Write{Record: engine.Record{Key: fmt.Sprintf("k%05d", i), Data: []byte{1}}, If: engine.IfAbsent}
		w.Kind, w.Failing = fmt.Sprint("kind", rnd.IntN(3)), rnd.IntN(2) == 0
		w.Due = []int64{1, 2, math.MaxInt64 - 1, math.MaxInt64}[rnd.IntN(4)]
		switch rnd.IntN(3) {
		case 0:
			w.Data, w.If = nil, engine.Always
		case 1:
			w.If = engine.Always
		}
		if _, err := e.Commit(t.Context(), 0, []engine.Batch{{w}}); err != nil {
			t.Error(err)
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range keys {
		commit(first, rnd, i)
	}
	first.(*alone).loadAll(t)
	indexed(t, first.(*alone))
	next, err := New(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for g := range 4 {
		wait.Go(func() {
			rnd := rand.New(rand.NewPCG(3, uint64(g)))
			for range 500 {
				commit(next, rnd, rnd.IntN(keys))
			}
		})
	}
	wait.Wait()
	next.(*alone).loadAll(t)
	indexed(t, next.(*alone))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := engine.Count(gone, next); err == nil {
		t.Error("Count returns no error to a caller that has gone")
	}
}

// While it is loaded, the index answers only for keys that it has reached.
func TestIndex_isLoadedByKey(t *testing.T) {
	x := newIndex()
	x.upTo = taskRow + "m"
	one := &row{Stored: engine.Stored{Kind: "kind"}}
	x.note("a", nil, one)
	x.note("z", nil, one)
	for key, absent := range map[string]bool{"a": false, "b": true, "m": false, "z": false} {
		if x.isAbsent(key) != absent {
			t.Errorf("%q is absent: %v", key, !absent)
		}
	}
	if n := x.kinds["kind"].Tasks; n != 1 {
		t.Errorf("%d tasks are counted", n)
	}
	x.note("a", one, nil)
	if !x.isAbsent("a") || len(x.kinds) != 0 {
		t.Errorf("after it was removed a task is there, and counted are %v", x.kinds)
	}
}
