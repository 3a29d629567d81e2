// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"math"
)

// A Layout is how a wheel keeps the tasks that wait. The layouts differ in cost and in nothing else; the
// package documentation compares them.
type Layout int

const (
	// Hashed is one wheel whose tasks have a count of circles.
	Hashed Layout = iota
	// Hierarchical is a wheel for the near tasks and, made when a delay needs them, levels of slots that span
	// more and more ticks, from which tasks move down as they near.
	Hierarchical
)

// String returns the name of the layout, in lower case.
func (l Layout) String() string {
	switch l {
	case Hashed:
		return "hashed"
	case Hierarchical:
		return "hierarchical"
	}
	return fmt.Sprintf("Layout(%d)", int(l))
}

// newLayout makes a layout that is known, for a wheel that has passed so many ticks.
func newLayout(l Layout, slots int, passed uint64) layout {
	if l == Hierarchical {
		return newHierarchy(slots, passed)
	}
	return newRing(slots, passed)
}

// position tells which slot of a wheel with n slots an entry for the given tick waits for when now was the
// last tick passed, and how many more revolutions. It is the same for every layout.
func position(at, now, n uint64) (slot, circle int) {
	if at > now {
		circle = int(min((at-now-1)/n, math.MaxInt))
	}
	return int(at % n), circle
}

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
	// visit passes next, which must not be never, and returns what is due at it. What was placed at one
	// instant is in the order of placement.
	visit() list
	// pass makes tick the last that was passed. It must be before next and not before an earlier one.
	pass(tick uint64)
	// near counts the entries of slot i that wait for no further revolution, as far as the layout can tell
	// without a look at each: see [Sector]. It may move that many entries, which it takes from moves.
	near(i uint64, moves *int) int
	// search adds to s the parts that lead to all entries. open adds what a part is made of, or what follows
	// on it, and returns the list that it has, or an empty one.
	search(s *search)
	open(s *search, p part) list
	// drain takes everything out, in no particular order.
	drain(yield func(e *entry))
}
