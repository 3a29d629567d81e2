// SPDX-License-Identifier: MIT

package kv

import (
	"context"
	"errors"
	"fmt"
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

	all index // changes while both mutexes are held

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
		members: make(map[engine.MemberID]*mate), all: newIndex(),
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
	if _, err = kv.Commit(ctx, e.reserve()); err != nil {
		return nil, err
	}
	go e.load(context.WithoutCancel(ctx))
	return e, nil
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

// known returns the rows of the keys for a Commit, during which none changes. It reads those of which memory has neither
// the row nor that there is none.
func (e *alone) known(ctx context.Context, keys []string) (map[string]*row, error) {
	known, unknown := make(map[string]*row, len(keys)), make([]string, 0, len(keys))
	e.mu.Lock()
	if e.broken != nil {
		e.mu.Unlock()
		return nil, e.broken
	}
	for _, key := range keys {
		if s := e.states[key]; s != nil {
			r := *s.row
			known[key] = &r
		} else if !e.all.isAbsent(key) {
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
		for j, w := range batches[p.number] {
			if w.Note {
				continue
			}
			if !undone {
				e.all.note(w.Key, p.was[j], e.states[w.Key].row)
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
