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
//	key, job, interval   no owner: immutable
//	at, place            the loop
//	due, times           see States below
//	state                every goroutine, by compare-and-swap
//
// # States
//
//	scheduled  waits for its due time, in a slot or on the way to one
//	moving     like scheduled, while a Reschedule, or the loop for a dated task, writes the due time
//	waiting    due: in the dispatcher's queue, or taken by a worker that has not begun it; a repeating task
//	           is also in the slot of its next period
//	paused     in no slot and no queue; due is the delay that remained until the next run
//	removed    removed, replaced, paused, resumed or drained
//	done       its last run has begun
//
// # Transitions
//
//	scheduled → moving     Reschedule or the loop; only that goroutine may now write due
//	moving    → scheduled  the same goroutine
//	scheduled → waiting    the dispatcher, called by the loop at the due time
//	waiting   → moving     Reschedule, which withdraws the run
//	waiting   → scheduled  a worker, as a run other than the last begins
//	waiting   → done       a worker, as the last run begins
//	all but removed and done → removed
//
// Transitions to and from waiting happen under the dispatcher's lock. So do all writes to times, and writes to due
// while the entry is waiting. The exception is a worker. It takes the run under the lock; from then on the entry can
// still be removed but no longer moved. Without the lock, the worker then begins the run or finds that the task has
// been removed. So only one of a run, a removal and a Reschedule wins; the other two find that the state has changed.
// In the meantime the loop may write the due time of the next period, which it does by compare-and-swap. The loop never
// waits for a caller: it places a moving entry by its current due time. If that is still the old due time, the loop
// looks at the entry again one tick later.
//
// The state takes 3 bits. While the entry is waiting, the other 29 bits hold the number of its block in the queue.
//
// An entry never changes to or from paused: Pause and Resume end the entry and replace it with a new one. So the
// meaning of an entry's due time never changes, and the loop never encounters a paused entry.
//
// An entry takes 64 bytes, which is a size class of the allocator and the size of a cache line.
type entry struct {
	key      string
	job      Job
	interval time.Duration

	due   atomic.Uint64 // when the next run is due; while waiting, when the run after the waiting one is due
	times atomic.Int64  // number of runs that have not fallen due, or Forever; excludes a waiting run
	state atomic.Uint32

	place uint32 // 1 + index in the bucket of its slot; 0 if the entry is in no slot
	at    uint64 // tick of its place in the layout; not after the due time, except for rounding
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

// newDead returns a dead entry that serves as a placeholder for the key in the index.
func newDead(key string) *entry {
	e := &entry{key: key}
	e.state.Store(removed)
	return e
}

// load returns the state without the block number.
func (e *entry) load() uint32 { return e.state.Load() & stateMask }

// live reports whether the task is live.
func (e *entry) live() bool { return e.load() < removed }

// placed reports whether the entry is in a slot.
func (e *entry) placed() bool { return e.place != 0 }

// A bucket holds entries of one slot, in no particular order. Any entry can be removed in O(1): the last entry takes
// its place.
type bucket []*entry

func (b *bucket) add(e *entry) {
	*b = append(*b, e)
	e.place = uint32(len(*b))
}

// has reports whether e, which must be in some bucket, is in b.
func (b bucket) has(e *entry) bool { return int(e.place) <= len(b) && b[e.place-1] == e }

func (b *bucket) remove(e *entry) {
	last := len(*b) - 1
	(*b)[e.place-1] = (*b)[last]
	(*b)[e.place-1].place = e.place
	(*b)[last] = nil
	*b = (*b)[:last]
	e.place = 0
}

// empty removes all entries, and retains the memory for later entries if it is small.
func (b *bucket) empty() {
	if cap(*b) > keepRoom {
		*b = nil
		return
	}
	clear(*b)
	*b = (*b)[:0]
}

// keepRoom is the largest capacity that an empty bucket retains, so that a steady flow of entries allocates nothing.
const keepRoom = 16
