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

// rowIndexed says that every failing record has an f row. A store of format 2 has none.
var rowIndexed = []byte("mindexed")

func appendFailingRow(b []byte, key string) []byte { return append(append(b, 'f'), key...) }

// ByKey walks over the records from the key on, in order of the key.
func (s *Store) ByKey(from string) iter.Seq2[engine.Record, error] {
	return s.walkKeys(appendKeyRow(nil, from), []byte("l"))
}

// Failing is ByKey for the failing records.
func (s *Store) Failing(from string) iter.Seq2[engine.Record, error] {
	return s.walkKeys(appendFailingRow(nil, from), []byte("g"))
}

// walkKeys walks over rows that have the due time of the record under its key.
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

// An indexer makes the f rows of a store that has none, while all keys are walked over.
type indexer struct {
	store *Store
	found []string // failing records whose f rows are not made yet
}

// indexAtOnce is how many f rows are made in one commit. Other commits wait for it.
const indexAtOnce = 512

// see is called with each key of the snapshot.
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

// failing reports whether the record is failing. An unreadable record is not.
func failing(r engine.Record) bool {
	task, err := durable.InfoOf(r)
	return err == nil && task.Attempts > 0
}

// make makes the f rows of the records found that are still failing.
func (x *indexer) make() error {
	s := x.store
	s.mu.Lock()
	defer s.mu.Unlock()
	var changes []engine.Change
	for _, key := range x.found {
		r, ok, err := get(s.db, key) // between two commits
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
	return s.commitLocked(changes, nil)
}

// finish makes the remaining f rows, and notes that all are made.
func (x *indexer) finish() error {
	if err := x.make(); err != nil {
		return err
	}
	s := x.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.indexed = true
	return s.commitLocked(nil, nil)
}
