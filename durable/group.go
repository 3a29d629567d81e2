// SPDX-License-Identifier: MIT

package durable

import (
	"slices"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A group is what the keeper commits at once: the operations that waited, each of which sees what those before
// it have done. Nothing outside changes before the commit, so an operation may fail without a trace, and the
// group may, too.
type group struct {
	k      *keeper
	order  []touched      // in the order in which they were touched first
	index  map[string]int // where in order a key is, for the first of them:
	ready  int            // as many as find has needed; what nothing asks for is never put in
	tally  tally          // what is to be counted
	parked []*task.Record // the records that were parked

	pauses   *Pauses // what is to be paused; nil if that stays as it is
	settings []byte  // with these
}

// tally is what the operations of a group have done.
type tally struct{ added, removed, parked, succeeded, failed uint64 }

func (t *tally) add(more tally) {
	t.added += more.added
	t.removed += more.removed
	t.parked += more.parked
	t.succeeded += more.succeeded
	t.failed += more.failed
}

// attempted returns what an attempt counts as, by its outcome and what the task is after it.
func attempted(o task.Outcome, next *task.Record) tally {
	t := tally{succeeded: 1}
	if o.Failure != "" {
		t = tally{failed: 1}
	}
	if next != nil && next.Due == task.Never {
		t.parked = 1
	}
	return t
}

// touched is what has become of one key.
type touched struct {
	key string
	was *task.Record // the one in the store, or nil
	now *task.Record // the one it has now, or nil

	marked bool // that differs from was in nothing that matters to memory, where it stays as it is
}

// touched returns what has become of the key so far, or nil. It is valid until the next change.
func (g *group) touched(key string) *touched {
	for ; g.ready < len(g.order); g.ready++ {
		if g.index == nil {
			g.index = make(map[string]int, len(g.order))
		}
		g.index[g.order[g.ready].key] = g.ready
	}
	if i, ok := g.index[key]; ok {
		return &g.order[i]
	}
	return nil
}

// find returns the task of the key, or nil.
func (g *group) find(key string) (*task.Record, error) {
	if t := g.touched(key); t != nil {
		if t.marked { // then a verb comes before the start that is counted there
			return t.was, nil
		}
		return t.now, nil
	}
	if l := g.k.live[key]; l != nil {
		return l.Rec, nil
	}
	if g.k.prints != nil && g.k.prints.free(key) {
		return nil, nil
	}
	rec, err := getRecord(g.k.store, key)
	return rec, g.k.readError(err)
}

// put makes next the task of the key, or leaves the key without one if next is nil. was is what find returned.
func (g *group) put(key string, was, next *task.Record) {
	if t := g.touched(key); t != nil {
		t.now, t.marked = next, false
		return
	}
	g.order = append(g.order, touched{key: key, was: was, now: next})
}

// mark puts next in the store, where was is, and leaves what is in memory as it is. Nothing has touched the
// key.
func (g *group) mark(was, next *task.Record) {
	g.order = append(g.order, touched{key: was.Key, was: was, now: next, marked: true})
}

// putNew adds tasks with different keys, for each of which find has returned nil. It leaves the index alone,
// which would take longest if they are many, and is needed only if another operation follows.
func (g *group) putNew(recs []*task.Record) {
	g.order = slices.Grow(g.order, len(recs))
	for _, rec := range recs {
		if i, ok := g.index[rec.Key]; ok {
			g.order[i].now = rec
			continue
		}
		g.order = append(g.order, touched{key: rec.Key, now: rec})
	}
}

// changes returns what the store has to do.
func (g *group) changes() []engine.Change {
	all := make([]engine.Change, 0, len(g.order))
	for _, t := range g.order {
		c := engine.Change{Key: t.key, From: engine.None, Due: engine.None}
		if t.was != nil {
			c.From, c.WasFailing = t.was.Due, t.was.Failing()
		}
		if t.now != nil {
			c.Due, c.Data, c.Failing = t.now.Due, t.now.Encode(), t.now.Failing()
		}
		if c.From != engine.None || c.Due != engine.None {
			all = append(all, c)
		}
	}
	return all
}
