// SPDX-License-Identifier: MIT

package kv

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// countedStarts is how many starts an exclusive engine writes. It exceeds the number of runs that can be in progress, or
// can have ended without a Commit, at the same time. If a task ends its process, the tasks that ran before it are gone
// from the tasks that the next process finds overdue, until it is among the first ones.
const countedStarts = 1 << 14

// count writes the starts of tasks that were due before the engine was opened, before they are confirmed. One of them may
// have ended an earlier process, and must not run forever. Starts of other tasks are not written: if such a run ends the
// process, its task is overdue for the next one.
func (e *alone) count(ctx context.Context, by engine.MemberID, claims []engine.Claim) error {
	if txs, err := e.toCount(ctx, by, claims); err != nil || len(txs) == 0 {
		return err
	}
	e.writing.Lock() // so that none of the tasks is written meanwhile
	defer e.writing.Unlock()
	txs, err := e.toCount(ctx, by, claims)
	if err != nil || len(txs) == 0 {
		return err
	}
	if err := e.apply(ctx, txs...); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counted += len(txs)
	for _, c := range claims {
		if s := e.states[c.Key]; s != nil && e.counts(s, c) {
			s.starts = 1
		}
	}
	return nil
}

// toCount returns the Txs that write the starts.
func (e *alone) toCount(ctx context.Context, by engine.MemberID, claims []engine.Claim) (txs []engine.Tx, err error) {
	_, at, err := e.lockAs(ctx, by)
	if err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	if e.counted >= countedStarts {
		return nil, nil
	}
	for _, c := range claims {
		if s := e.holds(by, c); s != nil && e.counts(s, c) {
			value := varints(int64(c.Starts)+1, at.now, s.kept)
			txs = append(txs, engine.Tx{Put: []engine.Entry{{Key: startsRow + c.Key, Value: value}}})
		}
	}
	return txs, nil
}

// counts reports whether the start of the task has to be written. It has been if the node asks again.
func (e *alone) counts(s *state, c engine.Claim) bool {
	return s.Due < e.opened && !(s.starts != 0 && s.Starts > c.Starts)
}

// readStarts reads the starts that earlier processes have written, and the states of their tasks.
func (e *alone) readStarts(ctx context.Context) error {
	var starts []engine.Entry
	for entry, err := range e.kv.Scan(ctx, startsRow, end(startsRow)) {
		if err != nil {
			return err
		}
		starts = append(starts, entry)
	}
	for some := range slices.Chunk(starts, loadPage) {
		keys := make([]string, len(some))
		for i, entry := range some {
			keys[i] = entry.Key[1:]
		}
		tasks, err := e.rows(ctx, keys)
		if err != nil {
			return err
		}
		for _, entry := range some {
			d := decoder{b: entry.Value}
			n, at, revision := d.varint(), d.varint(), d.varint()
			r := tasks[entry.Key[1:]]
			if d.bad || r == nil || r.kept != revision {
				return fmt.Errorf("%w: starts of key %q at revision %d, and the task is %+v", engine.ErrCorrupt, entry.Key[1:],
					revision, r)
			}
			r.Starts, r.Started, r.starts = int(n), at, 1
			e.states[r.Key] = &state{row: *r}
		}
	}
	return nil
}
