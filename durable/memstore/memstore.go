// SPDX-License-Identifier: MIT

// Package memstore provides an in-memory [engine.Store] for tests. Its contents do not outlive the process. It needs no
// directory and starts no goroutines, so it works inside a testing/synctest bubble.
package memstore

import (
	"errors"
	"iter"
	"sync"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/google/btree"
)

// A Store is an in-memory engine.Store and engine.Noter. Use [New] to create one.
type Store struct {
	mu      sync.RWMutex // protects below
	keys    *tree        // all records, by key
	due     *tree        // all records, by due time and key
	failing *tree        // failing records, by key
	closed  bool
	fault   error // returned by every commit; nil if commits succeed

	settings []byte
	notes    *tree // notes, by name
}

type tree = btree.BTreeG[engine.Record]

var errClosed = errors.New("memstore: the store is closed")

// New returns an empty store.
func New() *Store {
	return &Store{keys: btree.NewG(32, byKey), due: btree.NewG(32, byDue), failing: btree.NewG(32, byKey),
		notes: btree.NewG(32, byKey)}
}

func byKey(a, b engine.Record) bool { return a.Key < b.Key }
func byDue(a, b engine.Record) bool { return a.Due < b.Due || a.Due == b.Due && a.Key < b.Key }

// Reopen returns a store that contains everything committed to s so far, as if this process had crashed and another had
// opened the store. The two stores are independent.
func (s *Store) Reopen() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Store{keys: s.keys.Clone(), due: s.due.Clone(), failing: s.failing.Clone(), settings: s.settings,
		notes: s.notes.Clone()}
}

// SetFault makes every later commit return err and change nothing, for instance to simulate a full disk. A nil err
// restores normal operation.
func (s *Store) SetFault(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = err
}

// Commit implements engine.Store, as do the other methods of that interface.
func (s *Store) Commit(changes []engine.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	if s.fault != nil {
		return s.fault
	}
	for _, c := range changes {
		old := engine.Record{Key: c.Key, Due: c.From}
		if c.From != engine.None {
			s.due.Delete(old)
		}
		if c.WasFailing {
			s.failing.Delete(old)
		}
		if c.Due == engine.None {
			s.keys.Delete(old)
			continue
		}
		r := engine.Record{Key: c.Key, Due: c.Due, Data: append([]byte(nil), c.Data...)}
		s.keys.ReplaceOrInsert(r)
		s.due.ReplaceOrInsert(r)
		if c.Failing {
			s.failing.ReplaceOrInsert(r)
		}
	}
	return nil
}

func (s *Store) Get(key string) (r engine.Record, ok bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return r, false, errClosed
	}
	r, ok = s.keys.Get(engine.Record{Key: key})
	return handOut(r), ok, nil
}

func (s *Store) Due(after engine.Position, until int64) iter.Seq2[engine.Record, error] {
	order, err := s.snapshot(s.due)
	from := engine.Record{Key: after.Key, Due: after.Due}
	return walk(order, err, from, func(r engine.Record) (in, more bool) {
		return r.Position() != after, r.Due <= until
	})
}

func (s *Store) ByKey(from string) iter.Seq2[engine.Record, error] {
	order, err := s.snapshot(s.keys)
	return walk(order, err, engine.Record{Key: from}, all)
}

func (s *Store) Failing(from string) iter.Seq2[engine.Record, error] {
	order, err := s.snapshot(s.failing)
	return walk(order, err, engine.Record{Key: from}, all)
}

func all(engine.Record) (in, more bool) { return true, true }

// walk yields the records not less than from. The predicate decides whether to yield a record and whether to continue.
func walk(order *tree, err error, from engine.Record, is func(engine.Record) (in, more bool),
) iter.Seq2[engine.Record, error] {
	return func(yield func(engine.Record, error) bool) {
		if err != nil {
			yield(engine.Record{}, err)
			return
		}
		order.AscendGreaterOrEqual(from, func(r engine.Record) bool {
			in, more := is(r)
			return !in || more && yield(handOut(r), nil)
		})
	}
}

func (s *Store) Keys() iter.Seq2[string, error] {
	order, err := s.snapshot(s.keys)
	return func(yield func(string, error) bool) {
		if err != nil {
			yield("", err)
			return
		}
		order.Ascend(func(r engine.Record) bool { return yield(r.Key, nil) })
	}
}

// snapshot returns a copy of the tree as it is now. The tree is copied lazily, as later changes are made.
func (s *Store) snapshot(of *tree) (*tree, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	return of.Clone(), nil
}

func handOut(r engine.Record) engine.Record {
	r.Data = append([]byte(nil), r.Data...)
	return r
}

func (s *Store) Settings() ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, errClosed
	}
	return append([]byte(nil), s.settings...), nil
}

func (s *Store) SetSettings(settings []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.settings = append([]byte(nil), settings...)
	return nil
}

func (s *Store) SetNotes(notes []engine.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errClosed
	case s.fault != nil:
		return s.fault
	}
	for _, note := range notes {
		if note.Data == nil {
			s.notes.Delete(note)
			continue
		}
		s.notes.ReplaceOrInsert(engine.Record{Key: note.Key, Data: append([]byte{}, note.Data...)})
	}
	return nil
}

func (s *Store) Notes(over engine.Range) iter.Seq2[engine.Record, error] {
	order, err := s.snapshot(s.notes)
	return func(yield func(engine.Record, error) bool) {
		for note, err := range walk(order, err, engine.Record{Key: over.From}, func(r engine.Record) (in, more bool) {
			in = over.To == "" || r.Key < over.To
			return in, in
		}) {
			if over.Bare {
				note.Data = nil
			}
			if !yield(note, err) || err != nil {
				return
			}
		}
	}
}

func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.keys.Len()
}

func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
