// SPDX-License-Identifier: MIT

package durable

import "hash/maphash"

// Fingerprints are 64-bit hashes of all keys there are. A key whose fingerprint is not among them is free; for
// one whose is, the store is asked. The hash is seeded, so that who chooses keys cannot make them collide.
//
// At the start the keys are read in the background, as they were in the beginning. What changes meanwhile is
// noted, and made good for at the end; until then the store is asked for every key. The keeper owns them.
type fingerprints struct {
	seed  maphash.Seed
	ready bool
	once  map[uint64]struct{}
	more  map[uint64]int // how many keys beyond the first have the fingerprint; hardly ever any
	noted []noted        // in order, while not ready
}

type noted struct {
	print uint64
	added bool
}

func newFingerprints() *fingerprints { return &fingerprints{seed: maphash.MakeSeed()} }

func (f *fingerprints) of(key string) uint64 { return maphash.String(f.seed, key) }

// free reports whether there is certainly no such key.
func (f *fingerprints) free(key string) bool {
	if !f.ready {
		return false
	}
	_, ok := f.once[f.of(key)]
	return !ok
}

// note adds or removes a key, which was free or there.
func (f *fingerprints) note(key string, added bool) {
	n := noted{f.of(key), added}
	if !f.ready {
		f.noted = append(f.noted, n)
		return
	}
	f.apply(n)
}

func (f *fingerprints) apply(n noted) {
	if n.added {
		before := len(f.once)
		f.once[n.print] = struct{}{}
		if len(f.once) == before { // it was there
			f.more[n.print]++
		}
		return
	}
	switch {
	case f.more[n.print] > 1:
		f.more[n.print]--
	case f.more[n.print] == 1:
		delete(f.more, n.print)
	default:
		delete(f.once, n.print)
	}
}

// load makes the fingerprints ready. They are those of the keys that there were in the beginning.
func (f *fingerprints) load(prints []uint64) {
	f.once, f.more, f.ready = make(map[uint64]struct{}, len(prints)), make(map[uint64]int), true
	for _, p := range prints {
		f.apply(noted{p, true})
	}
	for _, n := range f.noted {
		f.apply(n)
	}
	f.noted = nil
}
