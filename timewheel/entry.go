// SPDX-License-Identifier: MIT

package timewheel

import (
	"sync/atomic"
	"time"
)

// An entry is a task as the wheel keeps it.
//
// # Who owns what
//
//	key, job, interval   nobody: they do not change
//	at, prev, next       the loop, which has the entry in a slot (linked) or in none
//	due, times, node     see the states
//	state                everybody, by compare-and-swap
//
// # States
//
//	scheduled  waits for its due time, or for the loop to hear of it
//	moving     as scheduled, while a Reschedule writes the due time
//	orphaned   as moving, after the loop has met the entry and taken it from its slot
//	waiting    due, and in the backlog of the dispatcher; a repeating task is in its next slot as well
//	removed    removed, replaced or drained
//	done       its last run has begun
//
// # Transitions
//
//	scheduled → moving     Reschedule, which alone may now write due
//	moving    → scheduled  Reschedule; it tells the loop if the entry has come nearer
//	moving    → orphaned   the loop, which does not wait for a caller
//	orphaned  → scheduled  Reschedule; it tells the loop to place the entry
//	scheduled → waiting    the loop, at the due time
//	waiting   → scheduled  the loop, at once, if the entry was moved beyond the tick
//	waiting   → scheduled  a worker, as a run begins that is not the last; Reschedule, which withdraws it
//	waiting   → done       a worker, as the last run begins
//	all but removed and done → removed
//
// Those from and to waiting are made under the dispatcher's lock, and so are the writes of times and
// node, and those of due while the entry waits.
//
// So a run and a removal cannot both win, and neither can a run and a Reschedule: whichever comes second
// finds the state changed. The loop never waits for a caller that was suspended between two steps.
//
// An entry has 80 bytes, a size class of the allocator: one word more would cost 16 bytes.
type entry struct {
	key      string
	job      Job
	interval time.Duration

	due   atomic.Uint64 // when the next run is due; while waiting, the one after that which waits
	times atomic.Int64  // runs that have not begun, or Forever
	state atomic.Uint32
	node  uint32 // where it is in the backlog

	at         uint64 // the tick at which the loop looks at it; not after the due time, but for the rounding
	prev, next *entry // the ring of those in the same slot and circle; nil while in none
}

const (
	scheduled uint32 = iota
	moving
	orphaned
	waiting
	removed
	done
)

// live reports whether the task counts as there.
func (e *entry) live() bool { return e.state.Load() < removed }

func (e *entry) linked() bool { return e.next != nil }

// last reports whether the next run to begin is the last.
func (e *entry) last() bool { return e.times.Load() == 1 }
