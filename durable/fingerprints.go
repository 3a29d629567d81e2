// SPDX-License-Identifier: MIT

package durable

import "github.com/seed581295f1/timewheel/durable/internal/fingerprint"

// fingerprints holds the fingerprints of all keys in the store. A key whose fingerprint is absent is free. For any
// other key, the keeper queries the store.
//
// At first, a reader goroutine reads the keys as of the start, while the keeper records changes as notes and queries
// the store for every key. The reader then applies the notes in rounds until few are left. The keeper applies the last
// notes, and the set is ready. As a result, no step of the keeper takes longer when there are more keys.
//
//	reading   the reader owns set, the keeper owns noted
//	ready     the keeper owns set, and noted is empty
type fingerprints struct {
	ready bool
	set   *fingerprint.Set
	noted [][]noted // changes in order, in pieces of notedAtOnce
}

type noted struct {
	print uint64
	added bool
}

// notedAtOnce is how many changes the keeper applies in one step, which takes less than a millisecond.
const notedAtOnce = 1024

func newFingerprints() *fingerprints { return &fingerprints{set: fingerprint.New()} }

func (f *fingerprints) of(key string) uint64 { return f.set.Of(key) }

// free reports whether the key is certainly not in the store.
func (f *fingerprints) free(key string) bool {
	if !f.ready {
		return false
	}
	return !f.set.Has(f.of(key))
}

// note records that a key was added or removed.
func (f *fingerprints) note(key string, added bool) { f.change(noted{f.of(key), added}) }

func (f *fingerprints) change(n noted) {
	if f.ready {
		f.apply(n)
		return
	}
	last := len(f.noted) - 1
	if last < 0 || len(f.noted[last]) == notedAtOnce {
		f.noted = append(f.noted, make([]noted, 0, notedAtOnce))
		last++
	}
	f.noted[last] = append(f.noted[last], n)
}

// handOver returns the notes for the reader to apply. If there are few, it applies them itself, marks the set as ready
// and returns nil.
func (f *fingerprints) handOver() (pieces [][]noted) {
	pieces, f.noted = f.noted, nil
	if len(pieces) > 1 {
		return pieces
	}
	f.applyAll(pieces)
	f.ready = true
	return nil
}

func (f *fingerprints) applyAll(pieces [][]noted) {
	for _, piece := range pieces {
		for _, n := range piece {
			f.apply(n)
		}
	}
}

func (f *fingerprints) apply(n noted) {
	if n.added {
		f.set.Add(n.print)
	} else {
		f.set.Remove(n.print)
	}
}
