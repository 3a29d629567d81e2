// SPDX-License-Identifier: MIT

package kv

import (
	"context"
	"fmt"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/fingerprint"
)

// An index summarizes all tasks of an exclusive engine: the fingerprints of their keys, and the counts per kind. It is
// loaded in the background, in key order. Until loading has finished, it covers only the tasks before upTo, and a
// Commit updates it only for them.
type index struct {
	prints *fingerprint.Set
	kinds  engine.Tally
	rows   summary
	upTo   string // tasks whose rows sort before it are in the index
	whole  bool   // all tasks are in the index
}

func newIndex() index {
	return index{prints: fingerprint.New(), kinds: make(engine.Tally), upTo: taskRow}
}

func (x *index) covers(key string) bool { return x.whole || taskRow+key < x.upTo }

// isAbsent reports whether the key is known to have no task.
func (x *index) isAbsent(key string) bool { return x.covers(key) && !x.prints.Has(x.prints.Of(key)) }

// note records that a task has changed. Either state may be nil.
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
	x.rows.change(key, from, to)
	switch {
	case from == nil && to != nil:
		x.prints.Add(x.prints.Of(key))
	case from != nil && to == nil:
		x.prints.Remove(x.prints.Of(key))
	}
}

// loadPage is the number of rows loaded while Commits are blocked.
const loadPage = 1024

// load loads the index. If it cannot read the tasks, or they differ from the committed ones, the engine fails.
func (e *alone) load(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		var err error
		e.writing.Lock()
		if more, err = e.loadSome(ctx); err != nil && ctx.Err() == nil {
			e.fail(fmt.Errorf("kv: the tasks have been read: %w", err))
		}
		e.writing.Unlock()
	}
	if v, ok := e.kv.(engine.Verifier); ok && e.all.whole { // only load changes it
		v.Verified()
	}
}

// loadSome loads a page of the index and reports whether there are more pages. Nothing may be written during the call.
func (e *alone) loadSome(ctx context.Context) (more bool, err error) {
	rows := make([]*row, 0, loadPage)
	for entry, err := range e.kv.Scan(ctx, e.all.upTo, end(taskRow)) {
		var r *row
		if err == nil {
			r, err = decode(entry)
		}
		if err != nil {
			return false, err
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
	if len(rows) == loadPage {
		return true, nil
	}
	if e.all.rows != e.stored {
		return false, fmt.Errorf("%w: there are %v, and %v were committed", engine.ErrCorrupt, e.all.rows, e.stored)
	}
	e.all.whole = true
	return false, nil
}

// Counted implements [engine.Owned].
func (e *alone) Counted() (kinds []engine.KindCount, whole bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all.kinds.Kinds(), e.all.whole
}

// Count implements [engine.Counter]. Once the index is loaded, Count reads no tasks.
func (e *alone) Count(ctx context.Context) ([]engine.KindCount, error) {
	if kinds, whole := e.Counted(); whole {
		return kinds, ctx.Err()
	}
	return e.base.Count(ctx)
}
