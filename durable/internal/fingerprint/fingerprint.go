// SPDX-License-Identifier: MIT

// Package fingerprint stores fingerprints of the keys in use, so that most unused keys are recognized without a read.
package fingerprint

import "hash/maphash"

// A Set holds the fingerprints of keys, which are 64-bit hashes, and the number of keys with each fingerprint. A key
// whose fingerprint is not in the Set is unused. The hash is seeded, so that keys cannot be chosen to collide. Use
// [New] to create one.
type Set struct {
	seed maphash.Seed
	once map[uint64]struct{}
	more map[uint64]int // number of keys beyond the first with the fingerprint; nearly always empty
}

// New returns an empty Set.
func New() *Set {
	return &Set{seed: maphash.MakeSeed(), once: make(map[uint64]struct{}), more: make(map[uint64]int)}
}

// Of returns the fingerprint of a key. It may be called concurrently. The other methods must be called by one goroutine
// at a time.
func (s *Set) Of(key string) uint64 { return maphash.String(s.seed, key) }

// Has reports whether any key has the fingerprint.
func (s *Set) Has(print uint64) bool {
	_, ok := s.once[print]
	return ok
}

// Count returns the number of keys with the fingerprint.
func (s *Set) Count(print uint64) int {
	if !s.Has(print) {
		return 0
	}
	return 1 + s.more[print]
}

// Len returns the number of different fingerprints.
func (s *Set) Len() int { return len(s.once) }

// Add adds the fingerprint of a new key.
func (s *Set) Add(print uint64) {
	before := len(s.once)
	s.once[print] = struct{}{}
	if len(s.once) == before { // the fingerprint was already in the set
		s.more[print]++
	}
}

// Remove removes the fingerprint of a key. The fingerprint must have been added.
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
