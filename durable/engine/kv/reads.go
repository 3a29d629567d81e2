// SPDX-License-Identifier: MIT

package kv

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A changed is the set of tasks that have been written since a read began. The read may have seen their former rows.
type changed struct {
	keys  map[string]struct{}
	freed map[span]int64 // the earliest due time of the tasks of each span that became free; nil except for a Claim
}

func (c *changed) has(key string) bool {
	_, ok := c.keys[key]
	return ok
}

// watch returns a set to which every task that changes is added until unwatch is called. e.mu must be held.
func (e *alone) watch() *changed {
	c := &changed{keys: make(map[string]struct{})}
	e.reads[c] = struct{}{}
	return c
}

func (e *alone) unwatch(c *changed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.reads, c)
}

// rows returns the rows with the keys, without the data.
func (e *alone) rows(ctx context.Context, keys []string) (map[string]*row, error) {
	found := make(map[string]*row, len(keys))
	rows := make([]string, 0, len(keys))
	for _, key := range keys {
		if _, ok := found[key]; !ok {
			found[key] = nil
			rows = append(rows, taskRow+key)
		}
	}
	entries, err := e.kv.Get(ctx, rows...)
	if err != nil {
		return nil, err
	}
	clear(found)
	for _, entry := range entries {
		if found[entry.Key[1:]], err = decode(entry); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// whole returns the tasks with the keys. It finds each task's f row through its t row, and starts over if the t row has
// changed in between.
func (e *alone) whole(ctx context.Context, keys []string) (map[string]*row, error) {
	found := make(map[string]*row, len(keys))
	left, err := e.rows(ctx, keys)
	if err != nil {
		return nil, err
	}
	for len(left) > 0 {
		rows := make([]string, 0, len(left))
		for _, r := range left {
			rows = append(rows, r.freeRow())
		}
		entries, err := e.kv.Get(ctx, rows...)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			r, err := decodeFree(keyOf(entry.Key), entry.Value)
			if err != nil {
				return nil, err
			}
			found[r.Key] = r
			delete(left, r.Key)
		}
		if len(left) == 0 {
			break
		}
		before := left
		if left, err = e.rows(ctx, slices.Collect(maps.Keys(before))); err != nil {
			return nil, err
		}
		for key, r := range left {
			if r.Revision == before[key].Revision {
				return nil, fmt.Errorf("%w: the data of key %q is missing", engine.ErrCorrupt, key)
			}
		}
	}
	return found, nil
}

// tasksOf returns the candidates' tasks, including the data, as their rows describe them. Tasks whose rows are gone are
// missing.
func (e *alone) tasksOf(ctx context.Context, found []candidate) (tasks []*row, err error) {
	var turns []string // f rows of the candidates found through g rows
	for _, c := range found {
		if c.row.Key[:1] == turnRow {
			turns = append(turns, freeRowOf(c.row.Key))
		}
	}
	values := make(map[string][]byte, len(turns))
	if len(turns) > 0 {
		entries, err := e.kv.Get(ctx, turns...)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			values[entry.Key] = entry.Value
		}
	}
	tasks = make([]*row, 0, len(found))
	for _, c := range found {
		value := c.row.Value
		if c.row.Key[:1] == turnRow {
			if value = values[freeRowOf(c.row.Key)]; value == nil {
				continue
			}
		}
		r, err := decodeFree(c.key, value)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, r)
	}
	return tasks, nil
}

// current returns the candidates' tasks with their states. It rereads tasks that have changed since they were read.
func (e *alone) current(ctx context.Context, found []candidate, seen *changed) (tasks []*row, err error) {
	tasks, err = e.tasksOf(ctx, found)
	if err != nil {
		return nil, err
	}
	var again []string
	e.mu.Lock()
	for _, r := range tasks {
		if seen.has(r.Key) {
			again = append(again, r.Key)
		} else {
			e.states[r.Key].of(r)
		}
	}
	e.mu.Unlock()
	if len(again) == 0 {
		return tasks, nil
	}
	fresh, err := e.read(ctx, again)
	if err != nil {
		return nil, err
	}
	old := make(map[string]bool, len(again))
	for _, key := range again {
		old[key] = true
	}
	kept := tasks[:0]
	for _, r := range tasks {
		if f := fresh[r.Key]; !old[r.Key] {
			kept = append(kept, r)
		} else if f != nil && f.Due == r.Due {
			kept = append(kept, f)
		}
	}
	return kept, nil
}

// walkPart is the number of tasks after which a walk by due time reads the latest rows.
const walkPart = 32 * page

// byDue walks over the tasks by due time, a page at a time.
func (e *alone) byDue(ctx context.Context, after engine.Position, until int64) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) {
		for more := true; more; {
			more = e.walkSome(ctx, &after, until, yield)
		}
	}
}

// walkSome yields up to walkPart tasks after the position, and moves the position behind them. It reports whether there
// are more.
func (e *alone) walkSome(ctx context.Context, after *engine.Position, until int64, yield func(engine.Stored, error) bool) bool {
	e.mu.Lock()
	seen := e.watch()
	e.mu.Unlock()
	defer e.unwatch(seen)
	var found []candidate
	flush := func() bool {
		tasks, err := e.current(ctx, found, seen)
		if err != nil {
			yield(engine.Stored{}, err)
			return false
		}
		for _, r := range tasks {
			if !yield(r.Stored, nil) {
				return false
			}
		}
		found = found[:0]
		return true
	}
	n, most, began := 0, firstPage, time.Now()
	for c, err := range e.mergeKinds(ctx, *after, until) {
		if err != nil {
			yield(engine.Stored{}, err)
			return false
		}
		found = append(found, c)
		n++
		if len(found) < most && n < walkPart && time.Since(began) <= pageFor {
			continue
		}
		if !flush() {
			return false
		}
		if n >= walkPart {
			*after = engine.Position{Due: c.due, Key: c.key}
			return true
		}
		most, began = min(2*most, page), time.Now()
	}
	flush()
	return false
}

// read returns the tasks with the keys, each in its state at the beginning or at the end of the call.
func (e *alone) read(ctx context.Context, keys []string) (map[string]*row, error) {
	before := make([]*state, len(keys))
	e.mu.Lock()
	for i, key := range keys {
		before[i] = e.states[key]
	}
	e.mu.Unlock()
	found, err := e.whole(ctx, keys)
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, key := range keys {
		if r := found[key]; r != nil && !e.states[key].of(r) {
			before[i].of(r)
		}
	}
	return found, err
}
