// SPDX-License-Identifier: MIT

// Package memstore is a [durable.Store] in memory, for tests: it keeps nothing beyond the process, needs no
// directory, starts no goroutine, and so works inside a testing/synctest bubble.
package memstore

import (
	"errors"
	"iter"
	"strings"
	"sync"

	"github.com/google/btree"
	"github.com/seed581295f1/timewheel/durable"
)

// A Store is a durable.Store in memory.
type Store struct {
	mu     sync.RWMutex // protects below
	keys   map[string]int64
	order  *btree.BTreeG[durable.Record]
	closed bool
}

var errClosed = errors.New("memstore: the store is closed")

// New returns an empty store.
func New() *Store {
	return &Store{keys: make(map[string]int64), order: btree.NewG(32, before)}
}

func before(a, b durable.Record) bool {
	return a.Due < b.Due || a.Due == b.Due && strings.Compare(a.Key, b.Key) < 0
}

// Reopen returns a store with what was committed to s until now, as the next process would find it after this
// one has crashed. The two have nothing in common.
func (s *Store) Reopen() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := &Store{keys: make(map[string]int64, len(s.keys)), order: s.order.Clone()}
	for key, due := range s.keys {
		next.keys[key] = due
	}
	return next
}

// Commit is that of durable.Store, and so are the others.
func (s *Store) Commit(changes []durable.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	for _, c := range changes {
		if c.From != durable.None {
			s.order.Delete(durable.Record{Key: c.Key, Due: c.From})
		}
		if c.Due == durable.None {
			delete(s.keys, c.Key)
			continue
		}
		s.keys[c.Key] = c.Due
		s.order.ReplaceOrInsert(durable.Record{Key: c.Key, Due: c.Due, Data: append([]byte(nil), c.Data...)})
	}
	return nil
}

func (s *Store) Get(key string) (r durable.Record, ok bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return r, false, errClosed
	}
	due, ok := s.keys[key]
	if !ok {
		return r, false, nil
	}
	r, _ = s.order.Get(durable.Record{Key: key, Due: due})
	return handOut(r), true, nil
}

func (s *Store) Due(after durable.Position, until int64) iter.Seq2[durable.Record, error] {
	order, err := s.snapshot()
	return func(yield func(durable.Record, error) bool) {
		if err != nil {
			yield(durable.Record{}, err)
			return
		}
		order.AscendGreaterOrEqual(durable.Record{Key: after.Key, Due: after.Due}, func(r durable.Record) bool {
			return r.Position() == after || r.Due <= until && yield(handOut(r), nil)
		})
	}
}

func (s *Store) Keys() iter.Seq2[string, error] {
	order, err := s.snapshot()
	return func(yield func(string, error) bool) {
		if err != nil {
			yield("", err)
			return
		}
		order.Ascend(func(r durable.Record) bool { return yield(r.Key, nil) })
	}
}

// snapshot returns the order as it is now; copying it costs what is changed afterwards.
func (s *Store) snapshot() (*btree.BTreeG[durable.Record], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	return s.order.Clone(), nil
}

func handOut(r durable.Record) durable.Record {
	r.Data = append([]byte(nil), r.Data...)
	return r
}

func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.keys)
}

func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
