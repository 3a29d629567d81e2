// SPDX-License-Identifier: MIT

package kv

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/valid"
)

// A shared is an Engine on a KV that any number of processes may use at the same time. It bases its decisions on the KV
// alone.
type shared struct {
	base

	mu      sync.Mutex // protects below
	beats   map[engine.MemberID]sighting
	asked   time.Time     // time at which all members were last read
	longest time.Duration // longest lease of the members that joined through this Engine
}

func newShared(kv engine.KV) *shared {
	e := &shared{base: newBase(kv), beats: make(map[engine.MemberID]sighting)}
	e.look, e.walkDue, e.walkHeld = e.read, e.byDue, e.held
	e.free = func(string) bool { return true }
	return e
}

// unsure hides ErrNotDone if the call has already had an effect.
func unsure(effect bool, err error) error {
	if effect && errors.Is(err, engine.ErrNotDone) {
		return errors.New(err.Error())
	}
	return err
}

// read returns the tasks with the keys.
func (e *shared) read(ctx context.Context, keys []string) (map[string]*row, error) {
	found := make(map[string]*row, len(keys))
	var rows []string
	for _, key := range keys {
		if _, ok := found[key]; !ok {
			found[key] = nil
			rows = append(rows, taskRow+key, startsRow+key)
		}
	}
	entries, err := e.kv.Get(ctx, rows...)
	if err != nil {
		return nil, err
	}
	clear(found)
	for _, entry := range entries {
		if entry.Key[:1] == taskRow {
			if found[entry.Key[1:]], err = decode(entry); err != nil {
				return nil, err
			}
			continue
		}
		if r := found[entry.Key[1:]]; r != nil { // the starts row follows the task row
			d := decoder{b: entry.Value}
			r.starts, r.Starts, r.confirmed, r.until = entry.Version, int(d.varint()), d.varint(), d.varint()
			if r.Starts > 0 {
				r.Started = r.confirmed
			}
			if err := d.err(entry.Key); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// byDue walks over the tasks by due time.
func (e *shared) byDue(ctx context.Context, after engine.Position, until int64) iter.Seq2[engine.Stored, error] {
	_, to := between(dueRow, engine.None, until)
	return e.walk(ctx, e.kv.Scan(ctx, dueRow+afterKey(after), to),
		func(at string, r *row) bool { return at == ordered(r.Due)+r.Key })
}

// Commit retries each batch until none of its rows changes between reading and committing.
func (e *shared) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	if err := valid.Batches(batches); err != nil {
		return nil, err
	}
	results := make([]engine.Result, len(batches))
	todo := make([]int, 0, len(batches))
	at, err := e.moment(ctx)
	if err != nil {
		return nil, err
	}
	for i, batch := range batches {
		if batch.IsLate(at.now) {
			results[i].Late = at.now
		} else {
			todo = append(todo, i)
		}
	}
	for len(todo) > 0 {
		again, err := e.try(ctx, by, at.now, batches, todo, results)
		if err != nil {
			return nil, unsure(len(todo) < len(batches), err)
		}
		todo = again
	}
	return results, nil
}

// present returns the stored tasks and notes that the batches write, and whether any write has Hold set.
func (e *shared) present(ctx context.Context, batches []engine.Batch) (tasks, notes map[string]*row, holds bool, err error) {
	var keys []string
	for _, batch := range batches {
		for _, w := range batch {
			if !w.Note {
				keys = append(keys, w.Key)
			}
			holds = holds || w.Hold
		}
	}
	if notes, err = e.notesOf(ctx, batches); err == nil && len(keys) > 0 {
		tasks, err = e.read(ctx, keys)
	}
	return tasks, notes, holds, err
}

// try commits the batches whose indexes are in todo and sets their results. It returns the indexes of the batches whose
// rows have changed since they were read.
func (e *shared) try(ctx context.Context, by engine.MemberID, now int64, batches []engine.Batch, todo []int,
	results []engine.Result) (again []int, err error) {
	some := make([]engine.Batch, len(todo))
	for i, n := range todo {
		some[i] = batches[n]
	}
	tasks, notes, holds, err := e.present(ctx, some)
	if err != nil {
		return nil, err
	}
	for _, r := range tasks {
		if r.confirmed > now { // the reads may have taken long
			at, err := e.moment(ctx)
			if err != nil {
				return nil, err
			}
			now = at.now
			break
		}
	}
	var holder *member
	if holds && by != 0 {
		holder, err = e.member(ctx, by)
		if err != nil && !errors.Is(err, engine.ErrMemberGone) {
			return nil, err
		}
		if holder != nil && !holder.leased() {
			holder = nil
		}
	}
	present := func(w engine.Write) *row {
		if w.Note {
			return notes[w.Key]
		}
		return tasks[w.Key]
	}
	var plans []*plan
	var txs []engine.Tx
	for i, batch := range some {
		p := &plan{number: todo[i]}
		if p.isRefused(batch, present, now, &results[p.number]) {
			continue
		}
		for _, w := range batch {
			e.plan(p, w, holder)
		}
		if slices.ContainsFunc(p.written, func(w engine.Written) bool { return w.Held }) {
			p.tx.If = append(p.tx.If, holder.check())
		}
		if err := e.fits(p.tx); err != nil {
			return nil, err
		}
		plans, txs = append(plans, p), append(txs, p.tx)
	}
	if len(txs) == 0 {
		return nil, nil
	}
	done, err := e.kv.Commit(ctx, txs...)
	if err != nil {
		return nil, err
	}
	for i, p := range plans {
		if !done[i] {
			again = append(again, p.number)
			continue
		}
		for j, w := range batches[p.number] {
			if w.Data != nil {
				p.written[j].Revision = find(txs[i].Put, rowOf(w)+w.Key).Version
			}
		}
		results[p.number].Written = p.written
	}
	return again, nil
}

// plan adds the next write of a batch to its plan. holder is the committing member if it may hold the task, or nil.
func (e *shared) plan(p *plan, w engine.Write, holder *member) {
	old := p.was[len(p.written)]
	var version int64
	if old != nil {
		version = old.Revision
	}
	if !w.Note && old != nil {
		if old.Revision != w.Begun { // it must not start meanwhile
			p.tx.If = append(p.tx.If, engine.Check{Key: startsRow + w.Key, Version: old.starts})
		}
		p.tx.Delete = append(p.tx.Delete, startsRow+w.Key) // even if none was read: the task may have started since
	}
	var owner engine.MemberID
	if w.Hold && w.Data != nil && holder != nil {
		owner = holder.id
	}
	p.tx.If = append(p.tx.If, engine.Check{Key: rowOf(w) + w.Key, Version: version})
	e.put(p, w, owner, 0)
}

// own returns a Tx that changes the task's owner, and the task after the change.
func (e *shared) own(r *row, to engine.MemberID, checks ...engine.Check) (tx engine.Tx, next *row) {
	own := *r
	next = &own
	next.Owner, next.Revision = to, 0
	tx.If = append(checks, engine.Check{Key: taskRow + r.Key, Version: r.Revision})
	tx.Put = []engine.Entry{{Key: taskRow + r.Key, Value: next.encode()}}
	e.change(&tx, r, next)
	return tx, next
}

func (e *shared) Claim(ctx context.Context, r engine.ClaimRequest) (got engine.Claims, err error) {
	m, err := e.member(ctx, r.By)
	if err != nil {
		return got, err
	}
	got.Now, got.Next = m.now, r.Group
	if m.leased() && r.Most > 0 {
		got.Tasks, got.Next, err = e.claim(ctx, r, func(found []candidate) ([]engine.Stored, error) {
			return e.give(ctx, r, m, found)
		})
	}
	return got, err
}

// give claims the wanted tasks for the member that are still free.
func (e *shared) give(ctx context.Context, r engine.ClaimRequest, m *member, found []candidate) ([]engine.Stored, error) {
	keys := make([]string, len(found))
	for i, c := range found {
		keys[i] = c.key
	}
	tasks, err := e.read(ctx, keys)
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	var txs []engine.Tx
	var claimed []*row
	for _, key := range keys {
		if task := tasks[key]; task != nil && wanted(r, task) {
			tx, next := e.own(task, r.By, m.check())
			txs, claimed = append(txs, tx), append(claimed, next)
		}
	}
	done, err := e.kv.Commit(ctx, txs...)
	if err != nil {
		return nil, err
	}
	var got []engine.Stored
	for i, next := range claimed {
		if done[i] {
			next.Revision = txs[i].Put[0].Version
			got = append(got, next.Stored)
		}
	}
	return got, nil
}

// mine returns do's transactions for the claims that the member still holds, and the index of the claim that each
// belongs to.
func (e *shared) mine(ctx context.Context, m *member, claims []engine.Claim,
	do func(r *row, c engine.Claim) (engine.Tx, bool)) (txs []engine.Tx, of []int, err error) {
	keys := make([]string, len(claims))
	for i, c := range claims {
		keys[i] = c.Key
	}
	tasks, err := e.read(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	for i, c := range claims {
		if r := tasks[c.Key]; r != nil && r.Owner == m.id && r.Revision == c.Revision {
			if tx, ok := do(r, c); ok {
				txs, of = append(txs, tx), append(of, i)
			}
		}
	}
	return txs, of, nil
}

func (e *shared) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration,
) (held []bool, now int64, err error) {
	m, err := e.member(ctx, by)
	if err != nil {
		return nil, 0, err
	}
	held = make([]bool, len(claims))
	if !m.leased() || len(claims) == 0 {
		return held, m.now, nil
	}
	txs, of, err := e.mine(ctx, m, claims, func(r *row, c engine.Claim) (engine.Tx, bool) {
		r.confirm(m.now, within)
		return engine.Tx{
			If:  []engine.Check{m.check(), {Key: taskRow + r.Key, Version: r.Revision}},
			Put: []engine.Entry{r.startsEntry(c.Starts + 1)},
		}, true
	})
	if err != nil {
		return nil, 0, err
	}
	done, err := e.kv.Commit(ctx, txs...)
	if err != nil {
		return nil, 0, err
	}
	for i, n := range of {
		held[n] = done[i]
	}
	return held, m.now, nil
}

func (e *shared) Release(ctx context.Context, by engine.MemberID, claims []engine.Claim) error {
	m, err := e.member(ctx, by)
	if err != nil {
		return err
	}
	txs, _, err := e.mine(ctx, m, claims, func(r *row, c engine.Claim) (engine.Tx, bool) {
		tx, _ := e.own(r, 0, m.check(), engine.Check{Key: startsRow + r.Key, Version: r.starts})
		return tx, r.Starts == c.Starts
	})
	if err == nil {
		_, err = e.kv.Commit(ctx, txs...)
	}
	return err
}
