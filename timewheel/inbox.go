// SPDX-License-Identifier: MIT

package timewheel

import "sync"

// An inbox passes entries from many callers to the owner of the layout. Its lock is held only to append an entry or,
// when the inbox is emptied, to swap two slices. No other lock is acquired while it is held.
//
// A wheel has several inboxes, so that callers seldom wait for each other. Which inbox an entry goes into does not
// matter, nor does the order in which the inboxes are emptied; see loop.
type inbox struct {
	mu sync.Mutex // protects the fields below
	in []*entry

	// Entries are counted here because this lock is needed anyway. Separate counters would move from one processor's
	// cache to another at every add.
	counts [kinds]uint64

	_ [64]byte // keeps two inboxes from sharing a cache line
}

// A kind is the reason for posting an entry. The loop ignores it; the statistics use added and ended.
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

// empty removes and returns all entries. Later entries go into spare, which must be empty.
func (b *inbox) empty(spare []*entry) []*entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.in
	b.in = spare
	return all
}

// inboxes holds all inboxes of a wheel.
type inboxes [1 << inboxBits]inbox

// inboxBits gives 32 inboxes, enough that two of a few dozen callers seldom use the same inbox at once.
const inboxBits = 5

// of returns the inbox for an entry, chosen by its due time. The due time is hashed because clock readings and delays
// may be round numbers (Fibonacci hashing, Knuth, "The Art of Computer Programming" 3, 6.4).
func (all *inboxes) of(e *entry) *inbox {
	return &all[e.due.Load()*0x9E3779B97F4A7C15>>(64-inboxBits)]
}

// count returns how many entries have been posted for the given reason.
func (all *inboxes) count(why kind) (n uint64) {
	for i := range all {
		b := &all[i]
		b.mu.Lock()
		n += b.counts[why]
		b.mu.Unlock()
	}
	return n
}
