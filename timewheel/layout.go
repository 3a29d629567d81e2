// SPDX-License-Identifier: MIT

package timewheel

// A layout keeps the entries by the tick at which they are to be looked at. It knows no clock, no goroutine
// and no task: ticks are numbers that are passed in, and of an entry it uses at, prev and next alone. Its
// owner is the loop.
//
// What every layout keeps to, with now the last tick that was passed:
//
//   - every entry in it has at > now;
//   - an entry is handed out by the visit of its tick, no sooner and no later;
//   - next is never after the at of an entry, so that nothing is missed by sleeping until then. It may be
//     sooner: a layout may ask for a visit to move entries, a bounded number of times in the life of each.
type layout interface {
	// place puts in e, which is in no slot.
	place(e *entry)
	// unlink takes out e, which is in a slot.
	unlink(e *entry)
	// next returns the tick of the next visit, or never.
	next() uint64
	// visit passes next, which must not be never, and returns what is due at it, first placed first.
	visit() list
	// pass makes tick the last that was passed. It must be before next and not before an earlier one.
	pass(tick uint64)
	// drain takes everything out, in no particular order.
	drain(yield func(e *entry))
	// position tells where an entry for the given tick waits when now was the last tick passed, and how many
	// revolutions it waits there. It reads nothing that changes, so any goroutine may call it.
	position(at, now uint64) (slot, circle int)
}
