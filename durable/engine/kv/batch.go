// SPDX-License-Identifier: MIT

package kv

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// notesOf returns the stored notes that the batches write.
func (b *base) notesOf(ctx context.Context, batches []engine.Batch) (map[string]*row, error) {
	var names []string
	for _, batch := range batches {
		for _, w := range batch {
			if w.Note {
				names = append(names, w.Key)
			}
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	return b.readNotes(ctx, names)
}

// readNotes returns the notes with the names.
func (b *base) readNotes(ctx context.Context, names []string) (map[string]*row, error) {
	rows := make([]string, len(names))
	for i, name := range names {
		rows[i] = noteRow + name
	}
	entries, err := b.kv.Get(ctx, rows...)
	if err != nil {
		return nil, err
	}
	found := make(map[string]*row, len(entries))
	for _, entry := range entries {
		if found[entry.Key[1:]], err = decode(entry); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// rowOf returns the prefix of the row that the write changes.
func rowOf(w engine.Write) string {
	if w.Note {
		return noteRow
	}
	return taskRow
}

// A plan is a batch whose conditions hold.
type plan struct {
	number  int // index of the batch
	tx      engine.Tx
	written []engine.Written
	was     []*row // the row that each write replaces, or nil
}

// isRefused reports whether the batch must not be applied, and sets its result in that case. It also sets p.was.
func (p *plan) isRefused(batch engine.Batch, present func(engine.Write) *row, now int64, r *engine.Result) bool {
	if p.was == nil {
		p.was, p.written = make([]*row, 0, len(batch)), make([]engine.Written, 0, len(batch))
	}
	*r = engine.Result{}
	for _, w := range batch {
		old := present(w)
		p.was = append(p.was, old)
		if !w.Holds(old.stored()) {
			r.Unmet = append(r.Unmet, w.Key)
		}
		if !w.Note && old != nil && old.Revision != w.Begun {
			r.Wait = max(r.Wait, old.wait(now))
		}
	}
	if r.Unmet != nil {
		r.Wait = 0
	}
	return r.Unmet != nil || r.Wait > 0
}

// put adds the rows of the next write to the plan, the task or note row first. It returns the new task or note.
func (b *base) put(p *plan, w engine.Write, owner engine.MemberID, revision int64) (next row) {
	old := p.was[len(p.written)]
	p.written = append(p.written, engine.Written{Held: owner != 0, Replaced: old != nil})
	if w.Data == nil {
		p.tx.Delete = append(slices.Grow(p.tx.Delete, 2), rowOf(w)+w.Key)
		if !w.Note {
			b.change(&p.tx, old, nil)
		}
		return next
	}
	next = row{Stored: engine.Stored{Record: w.Record, Kind: w.Kind, Group: w.Group}, failing: w.Failing}
	next.Owner, next.Revision, next.kept = owner, revision, revision
	kept := next
	if b.alone && !w.Note {
		kept.Data = nil
	}
	p.tx.Put = append(slices.Grow(p.tx.Put, 2), engine.Entry{Key: rowOf(w) + w.Key, Value: kept.encode()})
	if !w.Note {
		b.change(&p.tx, old, &next)
	}
	return next
}

// ownerBytes is the maximum number of bytes that a claim adds to a task's row.
const ownerBytes = 10

// fits returns an error if the Tx exceeds the limits of the KV, or if a value would once its task is claimed.
func (b *base) fits(tx engine.Tx) error {
	if b.limits == (engine.Limits{}) {
		return nil
	}
	size, n := 0, len(tx.If)+len(tx.Put)+len(tx.Delete)
	for _, put := range tx.Put {
		if l := b.limits.Value; l > 0 && len(put.Value)+ownerBytes > l {
			return fmt.Errorf("%w: record of key %q of %d bytes; %d are allowed", engine.ErrTooLarge, keyOf(put.Key),
				len(put.Value), l-ownerBytes)
		}
		size += len(put.Key) + len(put.Value)
	}
	for _, key := range tx.Delete {
		size += len(key)
	}
	for _, check := range tx.If {
		size += len(check.Key)
	}
	if l := b.limits.Operations; l > 0 && n > l {
		return fmt.Errorf("%w: batch of %d operations; %d are allowed", engine.ErrTooLarge, n, l)
	}
	if l := b.limits.Bytes; l > 0 && size > l {
		return fmt.Errorf("%w: batch of %d bytes; %d are allowed", engine.ErrTooLarge, size, l)
	}
	return nil
}

// A material is the memory for the plans of a Commit. Allocating it once costs less than in pieces.
type material struct {
	plans   []plan
	was     []*row
	written []engine.Written
	puts    []engine.Entry
	deletes []string
	states  []state
}

// rowsOf is the usual number of rows that a write puts, or deletes.
const rowsOf = 2

func newMaterial(batches []engine.Batch) *material {
	writes, puts := 0, 0
	for _, batch := range batches {
		writes += len(batch)
		puts += putsOf(batch)
	}
	return &material{
		make([]plan, len(batches)), make([]*row, writes), make([]engine.Written, writes), make([]engine.Entry, rowsOf*puts),
		make([]string, rowsOf*writes), make([]state, writes),
	}
}

// putsOf returns the number of writes that put a task or a note.
func putsOf(batch engine.Batch) (puts int) {
	for _, w := range batch {
		if w.Data != nil {
			puts++
		}
	}
	return puts
}

// next returns the plan and the states of the next batch.
func (m *material) next(batch engine.Batch) (p *plan, states []state) {
	n, puts := len(batch), putsOf(batch)
	p, m.plans = &m.plans[0], m.plans[1:]
	p.was, m.was = m.was[:0:n], m.was[n:]
	p.written, m.written = m.written[:0:n], m.written[n:]
	p.tx.Put, m.puts = m.puts[:0:rowsOf*puts], m.puts[rowsOf*puts:]
	p.tx.Delete, m.deletes = m.deletes[:0:rowsOf*n], m.deletes[rowsOf*n:]
	states, m.states = m.states[:n:n], m.states[n:]
	return p, states
}
