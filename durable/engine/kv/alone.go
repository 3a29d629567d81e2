// SPDX-License-Identifier: MIT

package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/valid"
)

// An alone is an Engine with exclusive use of its KV. In the KV, every task is free. Holders exist only in memory, and so
// do most starts; see count. The Engine assigns revisions itself. Each row contains the revision that was assigned when
// the row was written.
type alone struct {
	base
	stop    context.CancelFunc // ends the goroutines below
	running sync.WaitGroup     // the load of the index, and the goroutine that waits for a failure of the KV
	failed  chan struct{}      // closed when the engine fails
	opened  int64              // when the engine was opened

	writing turn // serializes Commits; locked before mu

	all    index   // changed only while both mutexes are held
	stored summary // the summary in the KV; likewise
	bound  int64   // revisions up to this one are reserved in the KV; likewise

	mu       sync.Mutex // protects below
	states   map[string]*state
	reads    map[*changed]struct{} // reads in progress
	members  map[engine.MemberID]*mate
	last     engine.MemberID
	revision int64
	counted  int             // number of starts written by count
	wake     chan<- struct{} // as in Wake, and nil before the first call
	wakeFor  int64           // the latest due time for which it receives a value
	leasts   lows            // the due times before which a span has no free task; a Claim raises them
	broken   error           // why the engine has failed; returned by every later call that does not only read
}

// A turn is a mutex that is held during a call of the KV. A [sync.Mutex] that is held while time passes would stop a
// synctest bubble.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

// A state is a task whose row alone does not describe it fully. A start modifies the state in place. Any other change
// replaces it.
type state struct {
	row // without data; the revision is 0 if the task is deleted

	writing bool   // this is the state after the Commit in progress, which blocks claims and starts
	before  *state // the state before the Commit in progress, or nil
}

// A mate is a member of an alone.
type mate struct {
	name   string
	lease  time.Duration
	until  int64
	report []byte
}

// Exclusive implements [engine.Exclusive].
func (e *alone) Exclusive() {}

// revisions is the number of revisions that a process reserves at once. Unused revisions are lost when the process
// ends.
const revisions = 1 << 28

func newAlone(ctx context.Context, kv engine.KV) (engine.Engine, error) {
	e := &alone{
		base: newBase(kv), states: make(map[string]*state), reads: make(map[*changed]struct{}), wakeFor: engine.None,
		members: make(map[engine.MemberID]*mate), leasts: make(lows), all: newIndex(), failed: make(chan struct{}), writing: make(turn, 1),
	}
	e.alone, e.look, e.walkDue, e.walkHeld, e.free, e.least = true, e.read, e.byDue, e.held, e.isFree, e.leastOf
	at, err := e.moment(ctx)
	if err != nil {
		return nil, err
	}
	if err = e.readCounter(ctx); err != nil {
		return nil, err
	}
	if err = e.readStarts(ctx); err != nil {
		return nil, err
	}
	// Microseconds pass faster than revisions are assigned. So the revisions continue above all earlier ones, even if the
	// data was replaced by an older backup.
	e.revision = max(e.bound, at.now/int64(time.Microsecond))
	e.opened = at.now
	if v, ok := kv.(engine.Verifier); ok && v.VerifyFirst() {
		if e.load(ctx); !e.all.whole {
			return nil, cmp.Or(e.broken, ctx.Err())
		}
	}
	ctx, e.stop = context.WithCancel(context.WithoutCancel(ctx))
	if !e.all.whole {
		e.running.Go(func() { e.load(ctx) })
	}
	if r, ok := kv.(engine.FailureReporter); ok {
		e.running.Go(func() {
			select {
			case <-r.Failed():
				e.fail(r.Err())
			case <-ctx.Done():
			}
		})
	}
	return e, nil
}

// readCounter reads the counter row.
func (e *alone) readCounter(ctx context.Context) error {
	entries, err := e.kv.Get(ctx, counterRow)
	if err != nil || len(entries) == 0 {
		return err
	}
	d := decoder{b: entries[0].Value}
	e.bound, e.stored.tasks, e.stored.sum = d.varint(), d.varint(), uint64(d.varint())
	return d.err(counterRow)
}

// counter returns a Tx that puts the counter row.
func counter(bound int64, all summary) engine.Tx {
	return engine.Tx{Put: []engine.Entry{{Key: counterRow, Value: varints(bound, all.tasks, int64(all.sum))}}}
}

// boundFor returns the bound that the next Commit writes.
func (e *alone) boundFor(revision int64) int64 {
	if revision > e.bound-revisions/2 {
		return revision + revisions
	}
	return e.bound
}

// reserve reserves revisions unless there are enough.
func (e *alone) reserve(ctx context.Context) error {
	e.writing.Lock()
	defer e.writing.Unlock()
	if _, err := e.lock(ctx); err != nil {
		return err
	}
	bound := e.boundFor(e.revision)
	e.mu.Unlock()
	if bound == e.bound {
		return nil
	}
	if err := e.apply(ctx, counter(bound, e.stored)); err != nil {
		return err
	}
	e.bound = bound
	return nil
}

// apply applies the Txs. Their effect must be known, so the caller cannot cancel the call.
func (e *alone) apply(ctx context.Context, txs ...engine.Tx) error {
	_, err := e.kv.Commit(context.WithoutCancel(ctx), txs...)
	if err != nil && !errors.Is(err, engine.ErrNotDone) {
		err = fmt.Errorf("kv: the effect of a commit is unknown: %w", err)
		e.fail(err)
	}
	return err
}

// next returns a new revision.
func (e *alone) next() int64 {
	e.revision++
	return e.revision
}

// lock locks e.mu for a call and returns the time. If it returns an error, e.mu is not locked.
func (e *alone) lock(ctx context.Context) (moment, error) {
	at, err := e.moment(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return at, notDone(err)
	}
	e.mu.Lock()
	if e.broken != nil {
		e.mu.Unlock()
		return at, e.broken
	}
	return at, nil
}

// lockAs is lock for a call by a member. It also returns the member.
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

func (s *state) free() bool { return s == nil || s.Owner == 0 && !s.writing }

// of sets the row's holder, revision and starts if the state, or one before it, belongs to the row. It reports whether
// it did.
func (s *state) of(r *row) bool {
	for ; s != nil; s = s.before {
		if s.kept == r.kept {
			r.Owner, r.Revision, r.Starts, r.Started = s.Owner, s.Revision, s.Starts, s.Started
			r.confirmed, r.until = s.confirmed, s.until
			return true
		}
	}
	return false
}

// A known holds the rows that a Commit has read, without their data.
type known struct {
	rows map[string]*row // nil if the key has no row
	seen *changed        // tasks changed since the rows were read
}

// learn reads the rows of the batches' tasks that are neither described in memory nor known to be absent. It skips rows
// that were read before and have not changed since. Unless added is set, it also skips tasks to be added, because their
// keys are usually known to be absent.
func (e *alone) learn(ctx context.Context, batches []engine.Batch, k *known, added bool) error {
	var keys []string
	e.mu.Lock()
	if e.broken != nil {
		e.mu.Unlock()
		return e.broken
	}
	for _, batch := range batches {
		for _, w := range batch {
			if w.Note || w.If == engine.IfAbsent && !added || e.states[w.Key] != nil {
				continue
			}
			if e.all.isAbsent(w.Key) {
				delete(k.rows, w.Key) // the row may have been read before its task was removed
			} else if _, read := k.rows[w.Key]; !read || k.seen.has(w.Key) {
				keys = append(keys, w.Key)
			}
		}
	}
	if len(keys) > 0 && k.seen == nil {
		k.rows, k.seen = make(map[string]*row, len(keys)), e.watch()
	}
	e.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	read, err := e.rows(ctx, keys)
	if err != nil {
		return notDone(err)
	}
	for _, key := range keys {
		k.rows[key] = read[key]
	}
	return nil
}

// notDone is the error of a read on which a Commit depends.
func notDone(err error) error { return fmt.Errorf("kv: %w: %w", engine.ErrNotDone, err) }

// Commit applies all batches in a single Commit of the KV. It does not check versions, because there is no other
// writer.
func (e *alone) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	if err := valid.Batches(batches); err != nil {
		return nil, err
	}
	var k known
	defer func() { e.unwatch(k.seen) }()
	if err := e.learn(ctx, batches, &k, false); err != nil { // most rows are read while another Commit is in progress
		return nil, err
	}
	e.writing.Lock()
	defer e.writing.Unlock()
	if err := e.learn(ctx, batches, &k, true); err != nil {
		return nil, err
	}
	notes, err := e.notesOf(ctx, batches)
	if err != nil {
		return nil, notDone(err)
	}
	results := make([]engine.Result, len(batches))
	c, err := e.plan(ctx, by, batches, k.rows, notes, results)
	if err != nil || len(c.txs) == 0 {
		return results, err
	}
	err = e.apply(ctx, c.txs...)
	e.mu.Lock()
	defer e.mu.Unlock()
	undone := errors.Is(err, engine.ErrNotDone)
	if err != nil && !undone {
		return nil, err
	}
	e.settle(batches, c.plans, undone)
	if undone {
		return nil, err
	}
	e.stored, e.bound = c.all, c.bound
	for _, p := range c.plans {
		results[p.number].Written = p.written
	}
	return results, nil
}

// A commit is a planned Commit.
type commit struct {
	plans []*plan
	txs   []engine.Tx
	all   summary // afterwards
	bound int64   // likewise
}

// plan plans the batches and marks their tasks as being written.
func (e *alone) plan(ctx context.Context, by engine.MemberID, batches []engine.Batch, tasks, notes map[string]*row,
	results []engine.Result) (c commit, err error) {
	at, err := e.lock(ctx)
	if err != nil {
		return c, err
	}
	defer e.mu.Unlock()
	holder := e.members[by]
	if holder != nil && at.now >= holder.until {
		holder = nil
	}
	present := func(w engine.Write) *row {
		if w.Note {
			return notes[w.Key]
		}
		if s := e.states[w.Key]; s != nil {
			return &s.row
		}
		return tasks[w.Key]
	}
	m := newMaterial(batches)
	c.plans, c.txs, c.all = make([]*plan, 0, len(batches)), make([]engine.Tx, 0, len(batches)+1), e.stored
	for i, batch := range batches {
		p, states := m.next(batch)
		p.number = i
		if batch.IsLate(at.now) {
			results[i].Late = at.now
			continue
		}
		if p.isRefused(batch, present, at.now, &results[i]) {
			continue
		}
		for j, w := range batch {
			var revision int64
			if w.Data != nil {
				revision = e.next()
			}
			s := &states[j]
			*s = state{row: e.put(p, w, 0, revision), writing: true, before: e.states[w.Key]}
			old := p.was[j]
			if s.Data = nil; revision != 0 && w.Hold && holder != nil {
				s.Owner = by
			}
			if old != nil && old.starts != 0 {
				p.tx.Delete = append(p.tx.Delete, startsRow+w.Key)
			}
			p.written[j].Revision, p.written[j].Held = revision, s.Owner != 0
		}
		if err := e.fits(p.tx); err != nil {
			e.settle(batches, c.plans, true)
			return commit{}, err
		}
		for j, w := range batch {
			if !w.Note {
				e.states[w.Key] = &states[j]
				c.all.change(w.Key, p.was[j], states[j].task())
			}
		}
		c.plans, c.txs = append(c.plans, p), append(c.txs, p.tx)
	}
	if c.bound = e.boundFor(e.revision); c.all != e.stored || c.bound != e.bound {
		c.txs = append(c.txs, counter(c.bound, c.all))
	}
	return c, nil
}

// settle ends a Commit. Its tasks keep their new states or, if it is undone, return to their former states.
func (e *alone) settle(batches []engine.Batch, plans []*plan, undone bool) {
	for _, p := range plans {
		for j, w := range batches[p.number] {
			if w.Note {
				continue
			}
			s := e.states[w.Key]
			if !undone {
				e.all.note(w.Key, p.was[j], s.task())
				p.written[j].Held = s.Owner != 0 // the member may have ended meanwhile
			}
			for c := range e.reads {
				c.keys[w.Key] = struct{}{}
			}
			after := s.task()
			switch {
			case undone && s.before != nil:
				after, e.states[w.Key] = s.before.task(), s.before
			case undone:
				after = p.was[j]
				delete(e.states, w.Key)
			case s.Owner == 0:
				delete(e.states, w.Key)
			default:
				held := *s // a copy, because s shares its memory with the other states of the Commit
				held.writing, held.before = false, nil
				e.states[w.Key] = &held
			}
			if after != nil && after.Owner == 0 {
				e.freed(after)
			}
		}
	}
}

// task returns the state's task, or nil if the task is deleted.
func (s *state) task() *row {
	if s.kept == 0 {
		return nil
	}
	return &s.row
}
