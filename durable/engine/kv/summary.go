// SPDX-License-Identifier: MIT

package kv

import "fmt"

// A summary describes the t rows of an exclusive engine: their number, and the sum of their hashes. Each Commit of tasks
// stores it. So once all rows have been read, it shows whether one is missing, left over, or in an earlier state.
type summary struct {
	tasks int64
	sum   uint64
}

// change records that a task has changed. Either state may be nil.
func (s *summary) change(key string, from, to *row) {
	if from != nil {
		s.tasks--
		s.sum -= hash(key, from.Due, from.kept)
	}
	if to != nil {
		s.tasks++
		s.sum += hash(key, to.Due, to.kept)
	}
}

func (s summary) String() string { return fmt.Sprintf("%d tasks with the sum %016x", s.tasks, s.sum) }

// hash returns a hash of a task's key, due time and revision. The bytes are hashed by FNV-1a, and the numbers by the
// finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014). Both are
// fixed, because the sum outlives the process.
func hash(key string, due, revision int64) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	return mix(mix(h^uint64(due)) ^ uint64(revision))
}

func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
