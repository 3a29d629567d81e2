// SPDX-License-Identifier: MIT

package timewheel

import "sync"

// An inbox takes entries from many callers to the owner of the layout. Its lock is held for an append, and
// for the exchange of two slices when it is emptied, and never while another lock is taken.
//
// A wheel has several, so that callers seldom wait for each other. It does not matter which one an entry goes
// into, nor in which order two of them are emptied: see loop.
type inbox struct {
	mu sync.Mutex // protects all below
	in []*entry

	// Entries are counted here, under a lock that is needed anyway. Separate counters would move from one processor to
	// the other at every add.
	counts [kinds]uint64

	_ [64]byte // so that two inboxes do not share a line of the cache
}

// A kind is the reason for posting an entry. The loop ignores it; the statistics use the first two.
type kind int

const (
	added kind = iota
	ended
	moved
	kinds
)

func (b *inbox) put(e *entry, why kind) {
	b.mu.Lock()
	b.in = append(b.in, e)
	b.counts[why]++
	b.mu.Unlock()
}

// empty returns all entries, and leaves the empty slice spare for the next ones.
func (b *inbox) empty(spare []*entry) []*entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.in
	b.in = spare
	return all
}

// inboxes holds all inboxes of a wheel.
type inboxes [1 << inboxBits]inbox

// inboxBits makes 32 inboxes, so that two of a few dozen callers seldom meet at one.
const inboxBits = 5

// of returns the inbox for an entry, by its due time. The due time is hashed because the clock and the delays may have
// round numbers (Fibonacci hashing, Knuth, "The Art of Computer Programming" 3, 6.4).
func (all *inboxes) of(e *entry) *inbox {
	return &all[e.due.Load()*0x9E3779B97F4A7C15>>(64-inboxBits)]
}

// count returns how many entries were posted for that reason.
func (all *inboxes) count(why kind) (n uint64) {
	for i := range all {
		b := &all[i]
		b.mu.Lock()
		n += b.counts[why]
		b.mu.Unlock()
	}
	return n
}
