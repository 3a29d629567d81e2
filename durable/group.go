// SPDX-License-Identifier: MIT

package durable

import (
	"slices"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A group is a set of operations that the keeper commits together. Each operation sees the changes of earlier
// operations. Nothing outside the group changes before the commit, so a failed operation or a failed group leaves no
// trace.
type group struct {
	k     *keeper
	order []touched      // changed keys, in the order in which they were first touched
	index map[string]int // positions of keys in order; see ready
	ready int            // number of leading elements of order that index covers
	tally tally          // counts to add after the commit

	settings *settings // settings to store; nil to leave them unchanged
	encoded  []byte    // the encoded settings
}

// A tally counts the effects of a group's operations.
type tally struct{ added, removed, parked, givenUp, expired, succeeded, failed, snoozed uint64 }

func (t *tally) add(more tally) {
	t.added += more.added
	t.removed += more.removed
	t.parked += more.parked
	t.givenUp += more.givenUp
	t.expired += more.expired
	t.succeeded += more.succeeded
	t.failed += more.failed
	t.snoozed += more.snoozed
}

// attempted returns the tally of an attempt, given its outcome and the task before and after the attempt.
func attempted(o task.Outcome, rec, next *task.Record) (t tally) {
	switch {
	case o.Snooze:
		t.snoozed = 1
	case o.Failure != "":
		t.failed = 1
	default:
		t.succeeded = 1
	}
	t.end(rec, next)
	return t
}

// end counts next if it is parked, or if the run of rec has been given up.
func (t *tally) end(rec, next *task.Record) {
	switch {
	case next == nil:
	case next.IsParked():
		t.parked = 1
	case next.HasGivenUp(rec):
		t.givenUp = 1
	}
}

// isLast reports whether the tally is of a task that is parked, or of a run that has been given up.
func (t *tally) isLast() bool { return t.parked+t.givenUp > 0 }

// A touched holds the task of one key before and after a change.
type touched struct {
	key string
	was *task.Record // task in the store, or nil
	now *task.Record // task after the change, or nil

	marked bool // the change affects only the store
}

// touched returns the key's changes so far, or nil if there are none. The result is valid until the next change.
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

// find returns the task with the key, or nil if there is none.
func (g *group) find(key string) (*task.Record, error) {
	if t := g.touched(key); t != nil {
		if t.marked { // a verb applies to the task as it was before the start was counted
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

// put sets the key's task to next, or removes the task if next is nil. was is the task that find returned.
func (g *group) put(key string, was, next *task.Record) {
	if t := g.touched(key); t != nil {
		t.now, t.marked = next, false
		return
	}
	g.order = append(g.order, touched{key: key, was: was, now: next})
}

// mark replaces was with next in the store, but not in memory. The key must not have been touched before.
func (g *group) mark(was, next *task.Record) {
	g.order = append(g.order, touched{key: was.Key, was: was, now: next, marked: true})
}

// putNew adds tasks with distinct keys, for each of which find returned nil. It does not update the index, because that
// would be its slowest step and only later operations need the index.
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

// changes returns the changes to commit to the store.
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
