// SPDX-License-Identifier: MIT

package durable

import (
	"slices"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A group is a set of operations that the keeper commits together. Each operation sees the changes of those before it.
// Nothing outside changes before the commit, so an operation may fail without a trace, and so may the group.
type group struct {
	k      *keeper
	order  []touched      // in the order in which they were first touched
	index  map[string]int // the place of a key in order, for the first of them:
	ready  int            // as many as find has needed
	tally  tally          // to be counted
	parked []*task.Record // the records that were parked

	settings *settings // to set; nil to leave them
	encoded  []byte    // the same
}

// A tally counts what the operations of a group did.
type tally struct{ added, removed, parked, expired, succeeded, failed, snoozed uint64 }

func (t *tally) add(more tally) {
	t.added += more.added
	t.removed += more.removed
	t.parked += more.parked
	t.expired += more.expired
	t.succeeded += more.succeeded
	t.failed += more.failed
	t.snoozed += more.snoozed
}

// attempted returns the tally of an attempt, from its outcome and the task after it.
func attempted(o task.Outcome, next *task.Record) tally {
	var t tally
	switch {
	case o.Snooze:
		t.snoozed = 1
	case o.Failure != "":
		t.failed = 1
	default:
		t.succeeded = 1
	}
	if next != nil && next.Due == task.Never {
		t.parked = 1
	}
	return t
}

// A touched is one key before and after a change.
type touched struct {
	key string
	was *task.Record // the one in the store, or nil
	now *task.Record // the one it has now, or nil

	marked bool // the change does not matter to memory
}

// touched returns the changes of the key so far, or nil. It is valid until the next change.
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

// mark replaces was by next in the store only, and leaves memory alone. The key must not have been touched.
func (g *group) mark(was, next *task.Record) {
	g.order = append(g.order, touched{key: was.Key, was: was, now: next, marked: true})
}

// putNew adds tasks with different keys, for each of which find has returned nil. It does not update the index: that
// would take longest, and only a later operation needs it.
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

// changes returns the changes for the store.
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
