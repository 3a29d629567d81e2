// SPDX-License-Identifier: MIT

// Package kv builds an [engine.Engine] on any [engine.KV].
//
// Every write is a compare-and-commit: it names the versions of the rows that it relies on, and the KV checks them. A
// task is written, claimed, started or released only if its row still has the expected version. A member's row is
// written once and deleted when the member ends, and every claim and start checks its version. A task therefore has at
// most one holder, and a removed task starts no further run, whatever the clocks show.
//
// On a KV that is an [engine.Clock], leases expire by that clock. On any other KV, each Engine times the members'
// heartbeats with its own monotonic clock. It may reap a member whose heartbeat version has not changed for a lease and
// an eighth. The reap fails if the version has changed. Due times are compared with the process's own clock.
//
// On a KV that is an [engine.Exclusive], members, claims and starts are held in memory. A claim writes nothing, a start
// is a map lookup, and a Commit of any number of batches is a single Commit of the KV. For the next process, all tasks
// are free. Each Commit stores a summary of all tasks. New reads all tasks in the background, and the Engine fails if
// they do not agree with the summary.
package kv

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// New returns an Engine on the KV. No other Engine may use an [engine.Exclusive] KV at the same time. On such a KV, New
// starts a goroutine that scans the tasks once and does not stop when ctx is done, but when the Engine is closed. Once
// the scan is complete, adding a task with an unused key reads nothing, and counting reads no tasks. If the scan finds
// damage, the Engine fails: calls return the error, apart from Get, Walk and Count. On such a KV, the Engine is an
// [engine.Owned].
func New(ctx context.Context, kv engine.KV) (engine.Engine, error) {
	if _, ok := kv.(engine.Exclusive); ok {
		return newAlone(ctx, kv)
	}
	return newShared(kv), nil
}

// A base is what the two Engine implementations have in common.
type base struct {
	kv     engine.KV
	clock  engine.Clock // nil if the KV has none
	limits engine.Limits
	alone  bool

	// look returns the tasks with the keys, including their holders and starts. A key may occur twice.
	look func(ctx context.Context, keys []string) (map[string]*row, error)

	// walkDue walks over the tasks after the position that are due at or before until, by due time and key.
	walkDue func(ctx context.Context, after engine.Position, until int64) iter.Seq2[engine.Stored, error]

	// walkHeld walks over the tasks held by a member.
	walkHeld func(ctx context.Context, by engine.MemberID) iter.Seq2[engine.Stored, error]

	// free reports whether a task that has a free row may be free.
	free func(key string) bool

	// least returns a due time before which no task of the span is free.
	least func(s span) int64
}

// A span consists of the tasks of a kind in one group or, if grouped is set, in any group but the empty one.
type span struct {
	kind, group string
	grouped     bool
}

func newBase(kv engine.KV) base {
	clock, _ := kv.(engine.Clock)
	return base{kv: kv, clock: clock, limits: kv.Limits(), least: func(span) int64 { return leastDue }}
}

// A moment is the time of a call, according to both the engine's clock and the process's own.
type moment struct {
	now int64     // time by the engine's clock
	up  int64     // time since which the KV has been up, or 0
	own time.Time // time by the process's monotonic clock
}

func (b *base) moment(ctx context.Context) (m moment, err error) {
	m.own = time.Now()
	if b.clock == nil {
		m.now = m.own.UnixNano()
		return m, nil
	}
	m.now, m.up, err = b.clock.Now(ctx)
	return m, err
}

// Get implements engine.Engine, as do the other methods of that interface.
func (b *base) Get(ctx context.Context, keys ...string) (found []engine.Stored, err error) {
	rows, err := b.look(ctx, keys)
	for _, r := range rows {
		found = append(found, r.Stored)
	}
	return found, err
}

func (b *base) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	switch over.Order {
	case engine.ByDue:
		return b.walkDue(ctx, over.After, over.Until)
	case engine.ByKey:
		return b.walk(ctx, b.kv.Scan(ctx, taskRow+over.From, end(taskRow)), func(string, *row) bool { return true })
	case engine.Failing:
		is := func(_ string, r *row) bool { return r.failing }
		return b.walk(ctx, b.kv.Scan(ctx, failingRow+over.From, end(failingRow)), is)
	case engine.Held:
		return b.walkHeld(ctx, over.By)
	case engine.Notes:
		return b.walkNotes(ctx, over)
	}
	return failing(fmt.Errorf("kv: unknown order %d", over.Order))
}

// failing returns a walk that yields only the error.
func failing(err error) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) { yield(engine.Stored{}, err) }
}

// A walk reads up to page tasks at once, or as many as it can within pageFor, so that a reader with a time limit gets some
// of them from a slow KV. It reads few at first, because each may have a MiB.
const (
	page      = 128
	firstPage = 8
	pageFor   = 2 * time.Millisecond
)

// walk yields the tasks that the index rows refer to. It skips a task if the predicate returns false, because then the
// row is out of date. The predicate gets the row's key without its first byte.
func (b *base) walk(ctx context.Context, index iter.Seq2[engine.Entry, error], is func(string, *row) bool,
) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) {
		var rows, keys []string
		most, began := firstPage, time.Now()
		flush := func() bool {
			tasks, err := b.look(ctx, keys)
			if err != nil {
				yield(engine.Stored{}, err)
				return false
			}
			for i, key := range keys {
				if r := tasks[key]; r != nil && is(rows[i][1:], r) && !yield(r.Stored, nil) {
					return false
				}
			}
			rows, keys, most, began = rows[:0], keys[:0], min(2*most, page), time.Now()
			return true
		}
		for e, err := range index {
			if err != nil {
				yield(engine.Stored{}, err)
				return
			}
			rows, keys = append(rows, e.Key), append(keys, keyOf(e.Key))
			if (len(keys) == most || time.Since(began) > pageFor) && !flush() {
				return
			}
		}
		flush()
	}
}

// keyOf returns the key of the task that a row belongs to.
func keyOf(row string) string {
	switch row[:1] {
	case dueRow:
		return row[9:]
	case heldRow:
		return row[10:]
	case freeRow:
		_, rest := unescaped(row[1:])
		return rest[9:]
	case turnRow:
		_, rest := unescaped(row[1:])
		_, rest = unescaped(rest)
		return rest[8:]
	}
	return row[1:]
}

func (b *base) walkNotes(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	to := end(noteRow)
	if over.To != "" {
		to = noteRow + over.To
	}
	return func(yield func(engine.Stored, error) bool) {
		for e, err := range b.kv.Scan(ctx, noteRow+over.From, to) {
			r := &row{}
			if err == nil {
				r, err = decode(e)
			}
			if err != nil {
				yield(engine.Stored{}, err)
				return
			}
			if over.Bare {
				r.Data = nil
			}
			if !yield(r.Stored, nil) {
				return
			}
		}
	}
}

// Count implements [engine.Counter]. It reads each task once.
func (b *base) Count(ctx context.Context) ([]engine.KindCount, error) {
	kinds := make(engine.Tally)
	for e, err := range b.kv.Scan(ctx, taskRow, end(taskRow)) {
		r := &row{}
		if err == nil {
			r, err = decode(e)
		}
		if err != nil {
			return nil, err
		}
		kinds.Add(r.Kind, r.Due, r.failing, 1)
	}
	return kinds.Kinds(), nil
}
