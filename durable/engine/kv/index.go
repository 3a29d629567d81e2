// SPDX-License-Identifier: MIT

package kv

import (
	"context"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/fingerprint"
)

// An index is what an exclusive engine knows about all its tasks: the fingerprints of their keys, and the number of
// each kind. It is loaded in the background, in key order, and covers the tasks before the key that it has reached. A
// Commit changes it only for those.
type index struct {
	prints *fingerprint.Set
	kinds  engine.Tally
	upTo   string // the tasks whose rows are before it are in the index,
	whole  bool   // or all are
}

func newIndex() index {
	return index{prints: fingerprint.New(), kinds: make(engine.Tally), upTo: taskRow}
}

func (x *index) covers(key string) bool { return x.whole || taskRow+key < x.upTo }

// isAbsent reports whether the key certainly has no task.
func (x *index) isAbsent(key string) bool { return x.covers(key) && !x.prints.Has(x.prints.Of(key)) }

// note notes that a task has changed. Either state may be nil.
func (x *index) note(key string, from, to *row) {
	if !x.covers(key) {
		return
	}
	if from != nil {
		x.kinds.Add(from.Kind, from.Due, from.failing, -1)
	}
	if to != nil {
		x.kinds.Add(to.Kind, to.Due, to.failing, 1)
	}
	switch {
	case from == nil && to != nil:
		x.prints.Add(x.prints.Of(key))
	case from != nil && to == nil:
		x.prints.Remove(x.prints.Of(key))
	}
}

// loadPage is how many rows are loaded while a Commit waits.
const loadPage = 1024

// load loads the index. After an error it stays incomplete: keys are read, and tasks are counted by a walk.
func (e *alone) load(ctx context.Context) {
	for more := true; more; {
		e.writing.Lock()
		more = e.loadSome(ctx)
		e.writing.Unlock()
	}
}

// loadSome loads a page of the index, and reports whether there are more pages. Nothing is written meanwhile.
func (e *alone) loadSome(ctx context.Context) (more bool) {
	rows := make([]*row, 0, loadPage)
	for entry, err := range e.kv.Scan(ctx, e.all.upTo, end(taskRow)) {
		var r *row
		if err == nil {
			r, err = decode(entry)
		}
		if err != nil {
			return false
		}
		if rows = append(rows, r); len(rows) == loadPage {
			break
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range rows {
		e.all.upTo = taskRow + r.Key + "\x00"
		e.all.note(r.Key, nil, r)
	}
	e.all.whole = len(rows) < loadPage
	return !e.all.whole
}

// Count makes an exclusive engine an [engine.Counter], which reads no tasks once the index is loaded.
func (e *alone) Count(ctx context.Context) ([]engine.KindCount, error) {
	e.mu.Lock()
	if !e.all.whole {
		e.mu.Unlock()
		return e.base.Count(ctx)
	}
	defer e.mu.Unlock()
	return e.all.kinds.Kinds(), nil
}
