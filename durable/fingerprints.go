// SPDX-License-Identifier: MIT

package durable

import "github.com/seed581295f1/timewheel/durable/internal/fingerprint"

// Fingerprints are the fingerprints of all keys in the store. A key whose fingerprint is not among them is free; for
// any other key the keeper asks the store.
//
// First a goroutine, the reader, reads the keys as they stood at the start. Meanwhile the keeper notes changes, and
// asks the store for every key. The reader applies the notes, again and again, until few are left; the keeper applies
// those, and the set is ready. So no step of the keeper grows with the number of keys.
//
//	reading   the reader owns set, the keeper owns noted
//	ready     the keeper owns set, and nothing is noted
type fingerprints struct {
	ready bool
	set   *fingerprint.Set
	noted [][]noted // in order, in pieces of notedAtOnce
}

type noted struct {
	print uint64
	added bool
}

// notedAtOnce is how many changes the keeper applies in one step, in less than a millisecond.
const notedAtOnce = 1024

func newFingerprints() *fingerprints { return &fingerprints{set: fingerprint.New()} }

func (f *fingerprints) of(key string) uint64 { return f.set.Of(key) }

// free reports whether there is certainly no such key.
func (f *fingerprints) free(key string) bool {
	if !f.ready {
		return false
	}
	return !f.set.Has(f.of(key))
}

// note adds or removes a key.
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

// handOver gives the reader the notes. If there are few, it makes the set ready instead.
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
