// SPDX-License-Identifier: MIT

package pebble

import (
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/cockroachdb/pebble/v2"
	"github.com/seed581295f1/timewheel/durable"
)

// rowIndexed is a row that exists once every failing record has an f row. A store of format 2 has no f rows.
var rowIndexed = []byte("mindexed")

func appendFailingRow(b []byte, key string) []byte { return append(append(b, 'f'), key...) }

// ByKey walks over the records in key order, starting at the given key.
func (s *Store) ByKey(from string) iter.Seq2[engine.Record, error] {
	return s.walkKeys(appendKeyRow(nil, from), []byte("l"))
}

// Failing is like ByKey, but walks only over the failing records.
func (s *Store) Failing(from string) iter.Seq2[engine.Record, error] {
	return s.walkKeys(appendFailingRow(nil, from), []byte("g"))
}

// walkKeys walks over the records whose k or f rows are in the given range. Each of these rows contains the due time of
// the record with that key.
func (s *Store) walkKeys(from, to []byte) iter.Seq2[engine.Record, error] {
	return func(yield func(engine.Record, error) bool) {
		snapshot := s.db.NewSnapshot()
		defer func() { _ = snapshot.Close() }()
		bounds := &pebble.IterOptions{LowerBound: from, UpperBound: to}
		err := walk(snapshot, bounds, func(row, value []byte) (more bool, err error) {
			if len(value) != 8 {
				return false, fmt.Errorf("%w: row %x is %x", engine.ErrCorrupt, row, value)
			}
			r, err := record(snapshot, string(row[1:]), disorderly(binary.BigEndian.Uint64(value)))
			if err != nil {
				return false, noData(err, r.Key)
			}
			return yield(r, nil), nil
		})
		if err = s.check(err); err != nil {
			yield(engine.Record{}, err)
		}
	}
}

// An indexer creates the f rows of a store that has none, during a walk over all keys.
type indexer struct {
	store *Store
	found []string // keys of failing records whose f rows have not been created yet
}

// indexAtOnce is the number of f rows that are created in one commit. Other commits wait for that commit.
const indexAtOnce = 512

// see is called with each key in the snapshot.
func (x *indexer) see(snapshot pebble.Reader, key string) error {
	r, _, err := get(snapshot, key)
	if err != nil {
		return noData(err, key)
	}
	if !failing(r) {
		return nil
	}
	if x.found = append(x.found, key); len(x.found) < indexAtOnce {
		return nil
	}
	return x.make()
}

// failing reports whether the last attempt of the record's task failed. It returns false for an unreadable record.
func failing(r engine.Record) bool {
	task, err := durable.InfoOf(r)
	return err == nil && (task.Attempts > 0 || task.GivenUp > 0)
}

// make creates the f rows of the found records that are still failing.
func (x *indexer) make() error {
	s := x.store
	s.mu.Lock()
	defer s.mu.Unlock()
	var changes []engine.Change
	for _, key := range x.found {
		r, ok, err := get(s.db, key) // no commit runs at the same time
		if err != nil {
			return noData(err, key)
		}
		if ok && failing(r) {
			changes = append(changes, engine.Change{
				Key: key, From: r.Due, Due: r.Due, Data: r.Data, WasFailing: true, Failing: true,
			})
		}
	}
	x.found = x.found[:0]
	return s.commitLocked(changes)
}

// finish creates the remaining f rows and records that the store has all of them.
func (x *indexer) finish() error {
	if err := x.make(); err != nil {
		return err
	}
	s := x.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.indexed = true
	return s.commitLocked(nil)
}
