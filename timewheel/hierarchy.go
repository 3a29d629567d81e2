// SPDX-License-Identifier: MIT

package timewheel

// hierarchy is the hierarchical layout, scheme 7 of Varghese and Lauck (see ring), with its levels arranged
// as in Kafka's timer: every level is a wheel of the same number n of slots, and a tick of it is the whole
// span of the level below.
//
//	level 0   slots of 1 tick, n ticks in all
//	level 1   slots of n ticks, n² in all
//	level 2   slots of n² ticks, n³ in all
//	...
//
// A level counts time in its own unit, u ticks. Its hand stands at now div u, which is its start trimmed to a
// multiple of the unit. A task for tick at has the number at div u there, and fits if that is less than n
// ahead of the hand: it then waits in slot (at div u) mod n of the lowest level that it fits. When the hand
// of a level gets to a slot, at tick (at div u) × u, the tasks in it are less than one unit away, and so fit
// the level below, to which they move; those due at that very tick are handed out. So a task moves down a
// level at a time, or several, and never up: as many moves as there are levels below its first, at most.
//
// A level is made when a delay first outgrows those there are, and knows its next slot with a task in it.
// The next visit is the least of those, so the empty slots in between are not visited: a task that waits on
// level 2 costs three visits, whatever its delay. (In Kafka a delay queue of slots is for that.)
//
// An entry does not know its level, which depends on when it was placed. Nor need it: see unlink.
type hierarchy struct {
	slots  uint64 // of each level
	single bool   // the wheel has one slot, and each level two
	levels []wheelLevel
	now    uint64 // the last tick passed

	lengths []uint32 // of the lists of level 0, more or less: see unlink
}

type wheelLevel struct {
	unit   uint64 // ticks to a slot
	slots  []list
	visits minima // per slot, the tick of the next visit
}

// newHierarchy returns a layout whose levels have so many slots, at least two: with one a level would reach
// no farther than the one below.
func newHierarchy(slots int, passed uint64) *hierarchy {
	h := &hierarchy{slots: uint64(max(slots, 2)), single: slots == 1, now: passed}
	h.lengths = make([]uint32, h.slots)
	h.grow(1)
	return h
}

// grow makes the next level.
func (h *hierarchy) grow(unit uint64) {
	n := int(h.slots)
	h.levels = append(h.levels, wheelLevel{unit: unit, slots: make([]list, n), visits: newMinima(n)})
}

func (h *hierarchy) place(e *entry) {
	if e.at <= h.now {
		panic("timewheel: entry placed at a tick that has passed") // a bug: it would wait for ever
	}
	for k := 0; ; k++ {
		if k == len(h.levels) {
			h.grow(h.levels[k-1].unit * h.slots) // no overflow: else every number there is had fitted there
		}
		l := &h.levels[k]
		number := e.at / l.unit
		if number-h.now/l.unit < h.slots {
			i := number % h.slots
			l.slots[i].pushBack(e)
			l.visits.set(int(i), number*l.unit)
			if k == 0 {
				h.lengths[i]++
			}
			return
		}
	}
}

// unlink takes out e. Only if e is the first of its list there is more to do than to join its neighbours, and
// then it is the first of the slot that it has on one of the levels.
//
// If it is not, and others wait for the same tick on level 0, it is counted as one of those, though it may
// not have come down yet. The count of a list is right again when the list is next empty, a turn later at
// most.
func (h *hierarchy) unlink(e *entry) {
	for k := range h.levels {
		l := &h.levels[k]
		i := e.at / l.unit % h.slots
		if l.slots[i].head != e {
			continue
		}
		l.slots[i].remove(e)
		if l.slots[i].empty() {
			l.visits.set(int(i), never)
		}
		if k == 0 {
			h.left(i)
		}
		return
	}
	var others list
	others.remove(e)
	if i := e.at % h.slots; h.levels[0].visits[0][i] == e.at {
		h.left(i)
	}
}

// left counts an entry out of list i of level 0.
func (h *hierarchy) left(i uint64) {
	switch {
	case h.levels[0].slots[i].empty():
		h.lengths[i] = 0
	case h.lengths[i] > 1:
		h.lengths[i]--
	}
}

// near counts what has come down to level 0. It moves nothing.
func (h *hierarchy) near(i uint64, _ *int) int {
	if h.single {
		i = (h.now + 1) % h.slots // the tick that comes is all of a turn
	}
	return int(h.lengths[i])
}

func (h *hierarchy) search(s *search) {
	for k := range h.levels {
		h.levels[k].visits.search(s, k)
	}
}

func (h *hierarchy) open(s *search, p part) list {
	l := &h.levels[p.number]
	if p.level > 0 {
		l.visits.open(s, p)
		return list{}
	}
	return l.slots[p.i]
}

func (h *hierarchy) next() uint64 {
	least := uint64(never)
	for k := range h.levels {
		least = min(least, h.levels[k].visits.least())
	}
	return least
}

func (h *hierarchy) visit() list {
	h.now = h.next()
	var due list
	for k := range h.levels {
		l := &h.levels[k]
		if l.visits.least() != h.now {
			continue
		}
		i := h.now / l.unit % h.slots
		coming := l.slots[i]
		l.slots[i] = list{}
		l.visits.set(int(i), never)
		if k == 0 {
			h.lengths[i] = 0
			due = coming // without a look at any of them
			continue
		}
		coming.takeAll(func(e *entry) {
			if e.at == h.now {
				due.pushBack(e)
			} else {
				h.place(e)
			}
		})
	}
	return due
}

func (h *hierarchy) pass(tick uint64) { h.now = tick }

func (h *hierarchy) drain(yield func(e *entry)) {
	for k := range h.levels {
		l := &h.levels[k]
		for i := range l.slots {
			if !l.slots[i].empty() {
				l.slots[i].takeAll(yield)
				l.visits.set(i, never)
			}
		}
	}
	clear(h.lengths)
}
