// SPDX-License-Identifier: MIT

package timewheel

import (
	"sync/atomic"
	"time"
)

// An entry is a task in the wheel.
//
// # Ownership
//
//	key, job, interval   no owner: they do not change
//	at, place            the loop
//	due, times           see the states
//	state                every goroutine, by compare-and-swap
//
// # States
//
//	scheduled  waits for its due time, in a slot or on the way to one
//	moving     as scheduled, while a Reschedule, or the loop for a date, writes the due time
//	waiting    due: in the dispatcher's queue, or taken by a worker that has not begun it; a repeating task is
//	           in the slot of its next period as well
//	paused     in no slot and no queue; due is how long it was until the next run
//	removed    removed, replaced, paused, resumed or drained
//	done       its last run has begun
//
// # Transitions
//
//	scheduled → moving     Reschedule or the loop, which alone may now write due
//	moving    → scheduled  the same
//	scheduled → waiting    the dispatcher, for the loop, at the due time
//	waiting   → moving     Reschedule, which withdraws the run
//	waiting   → scheduled  a worker, as a run begins that is not the last
//	waiting   → done       a worker, as the last run begins
//	all but removed and done → removed
//
// Transitions to and from waiting are made under the dispatcher's lock, and so are the writes of times, and of due
// while the entry waits. The exception is a worker. Under the lock it takes the run; from then on the entry can no
// longer be moved, only removed. Then, without the lock, it begins the run or finds the task removed. So only one of a
// run, a removal and a Reschedule wins: the others find the state changed. The loop, which may write the next period's
// due time meanwhile, does so by compare-and-swap. The loop never waits for a caller: it places a moving entry by its
// due time. If that is still the old one, it looks at the entry again one tick later.
//
// The state has 3 bits. The other 29 are, while the entry waits, the number of the block of the queue in
// which it does.
//
// An entry never changes to or from paused: Pause and Resume end it and replace it with another one. So the meaning of
// an entry's due time never changes, and the loop never meets a paused entry.
//
// An entry is 64 bytes: a size class of the allocator and a line of the processor's cache.
type entry struct {
	key      string
	job      Job
	interval time.Duration

	due   atomic.Uint64 // when the next run is due; while waiting, the one after the waiting run
	times atomic.Int64  // runs that have not fallen due, or Forever; a waiting run does not count
	state atomic.Uint32

	place uint32 // 1 + where it is in the bucket of its slot; 0 if it is in none
	at    uint64 // the tick of that slot: not after the due time, but for the rounding
}

const (
	scheduled uint32 = iota
	moving
	waiting
	paused
	removed
	done

	stateBits = 3
	stateMask = 1<<stateBits - 1
)

func newEntry(key string, job Job, interval time.Duration, due uint64, times int) *entry {
	e := &entry{key: key, job: job, interval: interval}
	e.due.Store(due)
	e.times.Store(int64(times))
	return e
}

// newDead returns an entry that only occupies its key in the index.
func newDead(key string) *entry {
	e := &entry{key: key}
	e.state.Store(removed)
	return e
}

// load returns the state, without the number of the block.
func (e *entry) load() uint32 { return e.state.Load() & stateMask }

// live reports whether the task is live.
func (e *entry) live() bool { return e.load() < removed }

// placed reports whether the entry is in a slot.
func (e *entry) placed() bool { return e.place != 0 }

// A bucket is the entries of one slot, in no order. Any of them is taken out in O(1): the last takes its
// place.
type bucket []*entry

func (b *bucket) add(e *entry) {
	*b = append(*b, e)
	e.place = uint32(len(*b))
}

// has reports whether e, which is in a slot, is in this one.
func (b bucket) has(e *entry) bool { return int(e.place) <= len(b) && b[e.place-1] == e }

func (b *bucket) remove(e *entry) {
	last := len(*b) - 1
	(*b)[e.place-1] = (*b)[last]
	(*b)[e.place-1].place = e.place
	(*b)[last] = nil
	*b = (*b)[:last]
	e.place = 0
}

// empty removes all entries, and keeps the memory for the next ones if it is small.
func (b *bucket) empty() {
	if cap(*b) > keepRoom {
		*b = nil
		return
	}
	clear(*b)
	*b = (*b)[:0]
}

// keepRoom is how many entries an empty bucket keeps room for, so that a steady flow allocates nothing.
const keepRoom = 16
