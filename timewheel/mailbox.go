// SPDX-License-Identifier: MIT

package timewheel

import "sync"

// mailCap bounds the entries under way in a mailbox. At half of it the loop is called, so that with 32
// mailboxes filled by chance it handles some thousands at one go, and the cost of waking it up is shared.
const mailCap = 512

// A mailbox takes entries from many callers to the owner of the layout, in one order.
//
// Every shard of the index has a mailbox under the shard's own lock, which an add and a remove hold anyway:
// to be told of one costs an append. With one mailbox for all, under a lock of its own, an add took 5 to 10 %
// longer with one caller and 25 % longer with two, who passed the lock from one processor to the other (on 2
// cores; a channel, on which the loop locks for every single entry, took longer still).
//
// The order in which the loop hears of two entries matters only if they are due at the same instant, which by
// a clock that tells nanoseconds no two adds of a goroutine are. Where the clock stands still between two
// readings, as it does in a test, all shards have one mailbox in common, and what is due at the same instant
// runs in the order of the adds.
type mailbox struct {
	lock sync.Locker // protects all below

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

func newMailbox(lock sync.Locker) *mailbox {
	b := &mailbox{lock: lock}
	b.room.L = lock
	return b
}

// A receipt is what a caller has to show to the loop, when he has let go of all locks: the mailbox, and how
// many entries were in it with his. There are none if he has put in nothing.
type receipt struct {
	box *mailbox
	n   int
}

func (b *mailbox) put(e *entry, why post) receipt {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.putLocked(e, why)
}

// putLocked is put for a caller who holds the lock. It may fill the mailbox beyond mailCap, by one entry for
// each caller: he waits for room afterwards, and not under the lock.
func (b *mailbox) putLocked(e *entry, why post) receipt {
	b.in = append(b.in, e)
	b.counts[why]++
	return receipt{b, len(b.in)}
}

// awaitRoom returns when the mailbox is not full.
func (b *mailbox) awaitRoom() {
	b.lock.Lock()
	defer b.lock.Unlock()
	for len(b.in) >= mailCap {
		b.room.Wait()
	}
}

// take returns all there is, and leaves the empty slice spare for what comes.
func (b *mailbox) take(spare []*entry) []*entry {
	b.lock.Lock()
	defer b.lock.Unlock()
	all := b.in
	b.in = spare
	if len(all) >= mailCap {
		b.room.Broadcast()
	}
	return all
}

// mail is all mailboxes of a wheel.
type mail []*mailbox

// count returns how many entries were put for that reason.
func (m mail) count(why post) (n uint64) {
	for _, b := range m {
		b.lock.Lock()
		n += b.counts[why]
		b.lock.Unlock()
	}
	return n
}
