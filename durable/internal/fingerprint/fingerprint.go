// SPDX-License-Identifier: MIT

// Package fingerprint keeps fingerprints of keys, which show that a key is free without a read.
package fingerprint

import "hash/maphash"

// A Set holds the fingerprints of keys, which are 64-bit hashes, and how many keys have each. A key whose fingerprint is
// not in it is free. The hash is seeded, so that keys cannot be chosen to collide. Use [New].
type Set struct {
	seed maphash.Seed
	once map[uint64]struct{}
	more map[uint64]int // how many keys beyond the first have the fingerprint; nearly always empty
}

// New returns an empty Set.
func New() *Set {
	return &Set{seed: maphash.MakeSeed(), once: make(map[uint64]struct{}), more: make(map[uint64]int)}
}

// Of returns the fingerprint of a key. It may be called at any time, the other methods by one goroutine at a time.
func (s *Set) Of(key string) uint64 { return maphash.String(s.seed, key) }

// Has reports whether any key has the fingerprint.
func (s *Set) Has(print uint64) bool {
	_, ok := s.once[print]
	return ok
}

// Count returns how many keys have the fingerprint.
func (s *Set) Count(print uint64) int {
	if !s.Has(print) {
		return 0
	}
	return 1 + s.more[print]
}

// Len returns how many fingerprints there are.
func (s *Set) Len() int { return len(s.once) }

// Add adds the fingerprint of a new key.
func (s *Set) Add(print uint64) {
	before := len(s.once)
	s.once[print] = struct{}{}
	if len(s.once) == before { // it was there already
		s.more[print]++
	}
}

// Remove removes the fingerprint of a key that was added.
func (s *Set) Remove(print uint64) {
	switch {
	case s.more[print] > 1:
		s.more[print]--
	case s.more[print] == 1:
		delete(s.more, print)
	default:
		delete(s.once, print)
	}
}
