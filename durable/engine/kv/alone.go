// SPDX-License-Identifier: MIT

package kv

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/valid"
)

// An alone is an Engine that has its KV for itself. In the KV every task is free. Its holder and its starts, its state, are
// in memory. The Engine counts the revisions itself: a row has the revision with which it was written.
type alone struct {
	base

	writing sync.Mutex // held by the one Commit at a time; locked before mu

	mu       sync.Mutex // protects below
	states   map[string]*state
	reads    map[*changed]struct{} // in progress
	members  map[engine.MemberID]*mate
	last     engine.MemberID
	revision int64
	bound    int64 // no process before had a revision from there on
	broken   error // of a Commit whose effect is unknown; every later call returns it
}

// A state is how a task has changed since its row was written. Only a start changes a state; everything else replaces it.
type state struct {
	by       engine.MemberID // the member that holds it, or 0
	revision int64
	starts   int
	started  int64
	row      *row // the task without its data; nil if it is deleted

	writing bool   // it is the state after the Commit in progress, until whose end the task is neither claimed nor started
	before  *state // and this is the state before that Commit, or nil
}

// A mate is a member.
type mate struct {
	name   string
	lease  time.Duration
	until  int64
	report []byte
}

// revisions is how many revisions a process reserves at once. One that dies loses the rest.
const revisions = 1 << 40

func newAlone(ctx context.Context, kv engine.KV) (engine.Engine, error) {
	e := &alone{
		base: newBase(kv), states: make(map[string]*state), reads: make(map[*changed]struct{}),
		members: make(map[engine.MemberID]*mate),
	}
	e.alone, e.look, e.walkDue, e.walkHeld, e.free = true, e.read, e.byDue, e.held, e.isFree
	counter, err := kv.Get(ctx, counterRow)
	if err != nil {
		return nil, err
	}
	if len(counter) > 0 {
		d := decoder{b: counter[0].Value}
		if e.revision = d.varint(); d.bad {
			return nil, d.err(counterRow)
		}
	}
	e.bound = e.revision
	_, err = kv.Commit(ctx, e.reserve())
	return e, err
}

// reserve reserves more revisions when the Tx is done.
func (e *alone) reserve() engine.Tx {
	e.bound += revisions
	return engine.Tx{Put: []engine.Entry{{Key: counterRow, Value: varints(e.bound)}}}
}

// next returns a new revision.
func (e *alone) next() int64 {
	e.revision++
	return e.revision
}

// lock locks e.mu for a call, unless it cannot be done, and returns the time.
func (e *alone) lock(ctx context.Context) (moment, error) {
	at, err := e.moment(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return at, fmt.Errorf("kv: %w: %w", engine.ErrNotDone, err)
	}
	e.mu.Lock()
	if e.broken != nil {
		e.mu.Unlock()
		return at, e.broken
	}
	return at, nil
}

// lockAs locks e.mu for a call of the member.
func (e *alone) lockAs(ctx context.Context, id engine.MemberID) (*mate, moment, error) {
	at, err := e.lock(ctx)
	if err != nil {
		return nil, at, err
	}
	m := e.members[id]
	if m == nil {
		e.mu.Unlock()
		return nil, at, gone(id)
	}
	return m, at, nil
}

// isFree reports whether no member holds the task.
func (e *alone) isFree(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.states[key].free()
}

func (s *state) free() bool { return s == nil || s.by == 0 && !s.writing }

// of sets the holder, revision and starts of the row, and reports whether the state belongs to that row.
func (s *state) of(r *row) bool {
	for ; s != nil; s = s.before {
		if s.row != nil && s.row.Revision == r.Revision {
			r.Owner, r.Revision, r.Starts, r.Started = s.by, s.revision, s.starts, s.started
			return true
		}
	}
	return false
}

// A changed is which tasks have been written since a read has begun, whose rows may be those before.
type changed struct{ keys map[string]struct{} }

func (c *changed) has(key string) bool {
	_, ok := c.keys[key]
	return ok
}

// watch returns the tasks that change from now on, until unwatch. e.mu is held.
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

// rows returns the rows of the keys, without the data.
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

// whole returns the tasks of the keys. It reads each by its row of t, and again if that has changed meanwhile.
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

// tasksOf returns the tasks of candidates, with the data, as their rows are. Some may be missing.
func (e *alone) tasksOf(ctx context.Context, found []candidate) (tasks []*row, err error) {
	var turns []string // where the rows of f are of candidates that rows of g show
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

// current returns the tasks of candidates with their states. It reads those again that have changed since they were read.
func (e *alone) current(ctx context.Context, found []candidate, seen *changed) (tasks []*row, err error) {
	defer e.unwatch(seen)
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

// byDue walks over the tasks by due time, a page at a time.
func (e *alone) byDue(ctx context.Context, after engine.Position, until int64) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) {
		for last := false; !last; {
			var found []candidate
			e.mu.Lock()
			seen := e.watch()
			e.mu.Unlock()
			for c, err := range e.mergeKinds(ctx, after, until) {
				if err != nil {
					e.unwatch(seen)
					yield(engine.Stored{}, err)
					return
				}
				if found = append(found, c); len(found) == page {
					break
				}
			}
			tasks, err := e.current(ctx, found, seen)
			if err != nil {
				yield(engine.Stored{}, err)
				return
			}
			for _, r := range tasks {
				if !yield(r.Stored, nil) {
					return
				}
			}
			if last = len(found) < page; !last {
				after = engine.Position{Due: found[page-1].due, Key: found[page-1].key}
			}
		}
	}
}

// read returns the tasks of the keys, each with its state when the call began or when it ends.
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

// known returns the rows of the keys for a Commit, during which none changes. It reads those that are not in memory.
func (e *alone) known(ctx context.Context, keys []string) (map[string]*row, error) {
	known, unknown := make(map[string]*row, len(keys)), make([]string, 0, len(keys))
	e.mu.Lock()
	for _, key := range keys {
		if s := e.states[key]; s != nil && s.row != nil {
			r := *s.row
			known[key] = &r
		} else {
			unknown = append(unknown, key)
		}
	}
	e.mu.Unlock()
	if len(unknown) == 0 {
		return known, nil
	}
	read, err := e.rows(ctx, unknown)
	for key, r := range read {
		known[key] = r
	}
	return known, err
}

// Commit does all batches in one Commit of the KV. It checks no versions: there is no other writer.
func (e *alone) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	if err := valid.Batches(batches); err != nil {
		return nil, err
	}
	e.writing.Lock()
	defer e.writing.Unlock()
	tasks, notes, _, err := e.present(ctx, batches, e.known)
	if err != nil {
		return nil, err
	}
	results := make([]engine.Result, len(batches))
	plans, txs, err := e.plan(ctx, by, batches, tasks, notes, results)
	if err != nil || len(txs) == 0 {
		return results, err
	}
	// The effect must be known, so the caller cannot end it.
	_, err = e.kv.Commit(context.WithoutCancel(ctx), txs...)
	e.mu.Lock()
	defer e.mu.Unlock()
	undone := errors.Is(err, engine.ErrNotDone)
	if err != nil && !undone {
		e.broken = fmt.Errorf("kv: the effect of a commit is unknown: %w", err)
		return nil, e.broken
	}
	e.settle(batches, plans, undone)
	if undone {
		return nil, err
	}
	for _, p := range plans {
		results[p.number].Written = p.written
	}
	return results, nil
}

// plan plans the batches, and marks their tasks as being written.
func (e *alone) plan(ctx context.Context, by engine.MemberID, batches []engine.Batch, tasks, notes map[string]*row,
	results []engine.Result) (plans []*plan, txs []engine.Tx, err error) {
	at, err := e.lock(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer e.mu.Unlock()
	holder := e.members[by]
	if holder != nil && at.now >= holder.until {
		holder = nil
	}
	for key, r := range tasks {
		if s := e.states[key]; s != nil {
			r.Revision, r.Starts = s.revision, s.starts
		}
	}
	for i, batch := range batches {
		p := &plan{number: i}
		if results[i].Unmet = p.unmet(batch, tasks, notes); results[i].Unmet != nil {
			continue
		}
		nexts := make([]*state, len(batch))
		for j, w := range batch {
			nexts[j] = &state{writing: true, before: e.states[w.Key]}
			if w.Data != nil {
				nexts[j].revision = e.next()
			}
			if holder != nil && w.Hold && w.Data != nil {
				nexts[j].by = by
			}
			next := e.put(p, w, p.was[j], 0, nexts[j].revision)
			p.written[j].Revision, p.written[j].Held = nexts[j].revision, nexts[j].by != 0
			if next != nil {
				nexts[j].row = next.pointer()
			}
		}
		if err := e.fits(p.tx); err != nil {
			e.settle(batches, plans, true)
			return nil, nil, err
		}
		for j, w := range batch {
			if !w.Note {
				e.states[w.Key] = nexts[j]
			}
		}
		plans, txs = append(plans, p), append(txs, p.tx)
	}
	if e.revision > e.bound-revisions/2 {
		txs = append(txs, e.reserve())
	}
	return plans, txs, nil
}

// settle ends the writing of tasks: they have their new states, or again those before.
func (e *alone) settle(batches []engine.Batch, plans []*plan, undone bool) {
	for _, p := range plans {
		for _, w := range batches[p.number] {
			if w.Note {
				continue
			}
			for c := range e.reads {
				c.keys[w.Key] = struct{}{}
			}
			switch s := e.states[w.Key]; {
			case undone && s.before != nil:
				e.states[w.Key] = s.before
			case undone || s.by == 0:
				delete(e.states, w.Key)
			default:
				s.writing, s.before = false, nil
			}
		}
	}
}
