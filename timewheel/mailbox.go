// SPDX-License-Identifier: MIT

package timewheel

import "sync"

// mailCap bounds the entries under way. Half of it is what the loop handles at one go when they come without
// a pause, some 100 µs' worth.
const mailCap = 4096

// A mailbox takes entries from many callers to the owner of the layout, in one order.
//
// It is a slice under a mutex, and not a channel, because the owner takes all there is in one step. On a
// buffered channel it locks for every single entry, against the callers: with one caller a send took 45 to
// 52 ns and here 15 to 25, with two 53 to 57 and 24 (on 2 cores).
type mailbox struct {
	mu   sync.Mutex // protects all below
	in   []*entry
	room sync.Cond // in is not full

	// What comes in is counted here, under a lock that is taken anyway. Counters of their own would be passed
	// from one processor to the other at every add.
	counts [posts]uint64
}

// A post is why an entry is sent to the loop. The loop does not ask; the accounts do, about the first two.
type post int

const (
	toAdd post = iota
	toRemove
	toMove
	posts
)

func newMailbox() *mailbox {
	m := new(mailbox)
	m.room.L = &m.mu
	return m
}

// put appends e and returns how many there are then, or 0 if the mailbox is full.
func (m *mailbox) put(e *entry, why post) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.in) == mailCap {
		return 0
	}
	m.in = append(m.in, e)
	m.counts[why]++
	return len(m.in)
}

// count returns how many entries were put for that reason.
func (m *mailbox) count(why post) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts[why]
}

// awaitRoom returns when the mailbox is not full.
func (m *mailbox) awaitRoom() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.in) == mailCap {
		m.room.Wait()
	}
}

// take returns all there is, and leaves the empty slice spare for what comes.
func (m *mailbox) take(spare []*entry) []*entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.in
	m.in = spare
	if len(all) == mailCap {
		m.room.Broadcast()
	}
	return all
}
