// SPDX-License-Identifier: MIT

package durable

import "hash/maphash"

// Fingerprints are 64-bit hashes of all keys there are. A key whose fingerprint is not among them is free; for
// any other the store is asked. The hash is seeded, so that keys cannot be chosen to collide.
//
// At the start a goroutine, the reader, reads the keys as they were in the beginning. The keeper notes what
// changes meanwhile, and asks the store for every key. The reader takes what was noted, again and again, until
// little is left: with that the keeper makes the set ready. So no step of the keeper grows with the number of
// keys.
//
//	reading   the reader owns set, the keeper owns noted
//	ready     the keeper owns set, and nothing is noted
type fingerprints struct {
	seed  maphash.Seed
	ready bool
	set   printSet
	noted [][]noted // in order, in pieces of notedAtOnce
}

// A printSet holds fingerprints, and how many keys have each.
type printSet struct {
	once map[uint64]struct{}
	more map[uint64]int // how many keys beyond the first have the fingerprint; hardly ever any
}

type noted struct {
	print uint64
	added bool
}

// notedAtOnce is how many changes the keeper makes good for in one step, in less than a millisecond.
const notedAtOnce = 1024

func newFingerprints() *fingerprints {
	return &fingerprints{
		seed: maphash.MakeSeed(),
		set:  printSet{once: make(map[uint64]struct{}), more: make(map[uint64]int)},
	}
}

func (f *fingerprints) of(key string) uint64 { return maphash.String(f.seed, key) }

// free reports whether there is certainly no such key.
func (f *fingerprints) free(key string) bool {
	if !f.ready {
		return false
	}
	_, ok := f.set.once[f.of(key)]
	return !ok
}

// note adds or removes a key, which was free or there.
func (f *fingerprints) note(key string, added bool) { f.change(noted{f.of(key), added}) }

func (f *fingerprints) change(n noted) {
	if f.ready {
		f.set.apply(n)
		return
	}
	last := len(f.noted) - 1
	if last < 0 || len(f.noted[last]) == notedAtOnce {
		f.noted = append(f.noted, make([]noted, 0, notedAtOnce))
		last++
	}
	f.noted[last] = append(f.noted[last], n)
}

// handOver gives the reader what was noted. If that is little, it makes the set ready instead.
func (f *fingerprints) handOver() (pieces [][]noted) {
	pieces, f.noted = f.noted, nil
	if len(pieces) > 1 {
		return pieces
	}
	f.set.applyAll(pieces)
	f.ready = true
	return nil
}

func (s *printSet) applyAll(pieces [][]noted) {
	for _, piece := range pieces {
		for _, n := range piece {
			s.apply(n)
		}
	}
}

func (s *printSet) apply(n noted) {
	if n.added {
		before := len(s.once)
		s.once[n.print] = struct{}{}
		if len(s.once) == before { // it was there
			s.more[n.print]++
		}
		return
	}
	switch {
	case s.more[n.print] > 1:
		s.more[n.print]--
	case s.more[n.print] == 1:
		delete(s.more, n.print)
	default:
		delete(s.once, n.print)
	}
}
