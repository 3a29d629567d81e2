// SPDX-License-Identifier: MIT

package timewheel

import "math/bits"

// ring is the hashed layout, scheme 6 of Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (SOSP
// 1987), with the tasks of a slot grouped by circle.
//
// A wheel of n slots turns once in n ticks. Tick t belongs to slot t mod n and comes in revolution t div n. A
// task for tick at waits in slot at mod n for
//
//	circle = (at - now - 1) div n
//
// more revolutions, now being the last tick passed: 0 means that the hand meets it on its way round. There is
// no special case for a whole number of revolutions.
//
// The paper's scheme visits every task of a slot at each turn and takes one off its circle. Here a slot finds
// those of one revolution at once, and at a tick touches nothing else. It holds them as a radix heap (Ahuja,
// Mehlhorn, Orlin and Tarjan, "Faster Algorithms for the Shortest Path Problem", JACM 1990): with the
// revolution written in digits of digitBits bits, a task hangs
//
//	level 0   in list d if its revolution differs from the slot's floor in the last digit at most, which is d
//	level 1   in list d if it differs in the last but one, which is d, and in nothing before
//	...
//
// The floor is a revolution that no task of the slot is due before. When the hand gets to the first
// revolution of a list of level i, the list is dissolved into the levels below it. So a task is moved
// once per level at most: with 64 lists a level at most once if it is due within 64 revolutions, twice
// within 4,096, three times within 262,144. (Most that are due within 64 are never moved; those whose way
// leads over a multiple of 64 are.) A level is made when a task needs it and used again elsewhere when it
// is empty.
type ring struct {
	slots  []slot
	visits minima // per slot, the tick of the next visit
	now    uint64 // the last tick passed

	spare  *level // levels not in use
	spares int
}

const (
	digitBits = 6
	lists     = 1 << digitBits
	maxSpares = 256 // levels that are kept for later: 230 KB
)

type slot struct {
	floor  uint64
	levels *level // those with a task, lowest first
}

type level struct {
	shift    uint8  // of the digit: 0 in level 0, digitBits in level 1, and so on
	occupied uint64 // bit d: lists[d] is not empty
	up       *level
	lists    [lists]list
	lengths  [lists]uint32 // of the lists
}

func newRing(slots int, passed uint64) *ring {
	return &ring{slots: make([]slot, slots), visits: newMinima(slots), now: passed}
}

func (r *ring) place(e *entry) {
	if e.at <= r.now {
		panic("timewheel: entry placed at a tick that has passed") // a bug: it would wait for ever
	}
	n := uint64(len(r.slots))
	rev, i := e.at/n, e.at%n
	s := &r.slots[i]
	r.raise(s, r.coming(i))
	r.hang(s, rev, e)
	r.schedule(i)
}

// coming returns the revolution in which the hand gets to slot i next.
func (r *ring) coming(i uint64) uint64 {
	if r.now < i {
		return 0
	}
	return (r.now-i)/uint64(len(r.slots)) + 1
}

func (r *ring) unlink(e *entry) {
	n := uint64(len(r.slots))
	rev, i := e.at/n, e.at%n
	s := &r.slots[i]
	shift := s.shiftOf(rev)
	l := s.level(shift)
	d := digit(rev, shift)
	l.lists[d].remove(e)
	l.lengths[d]--
	if l.lists[d].empty() {
		r.vacate(s, l, d)
		r.schedule(i)
	}
}

func (r *ring) next() uint64 { return r.visits.least() }

func (r *ring) visit() list {
	r.now = r.visits.least()
	n := uint64(len(r.slots))
	rev, i := r.now/n, r.now%n
	s := &r.slots[i]
	r.raise(s, rev)
	var due list
	if l, d := s.levels, digit(rev, 0); l != nil && l.shift == 0 && l.occupied&(1<<d) != 0 {
		due = l.take(d)
		r.vacate(s, l, d)
	}
	r.schedule(i)
	return due
}

func (r *ring) pass(tick uint64) { r.now = tick }

// near dissolves a list of a higher level that the coming revolution is in, as the visit will: all that is
// due in that revolution is in one list of level 0 then.
func (r *ring) near(i uint64, moves *int) int {
	s, rev := &r.slots[i], r.coming(i)
	if s.shiftOf(rev) > 0 {
		n := s.length(rev)
		if n == 0 || n > *moves {
			return 0
		}
		*moves -= n
		r.raise(s, rev)
		r.schedule(i)
	}
	return s.length(rev)
}

func (r *ring) search(s *search) { r.visits.search(s, 0) }

// open goes through a slot list by list: each list is a part that has the rest of the slot behind it.
func (r *ring) open(s *search, p part) list {
	switch {
	case p.level > 0:
		r.visits.open(s, p)
		return list{}
	case p.in == nil:
		r.searchSlot(s, p.i, r.slots[p.i].levels, 0)
		return list{}
	}
	r.searchSlot(s, p.i, p.in, p.d+1)
	return p.in.lists[p.d]
}

// searchSlot adds the first list of slot i from list d of level l on.
func (r *ring) searchSlot(s *search, i int, l *level, d int) {
	for ; l != nil; l, d = l.up, 0 {
		if rest := l.occupied >> d << d; rest != 0 {
			d = bits.TrailingZeros64(rest)
			s.add(part{from: r.slots[i].first(l, d)*uint64(len(r.slots)) + uint64(i), i: i, in: l, d: d})
			return
		}
	}
}

func (r *ring) drain(yield func(e *entry)) {
	for i := range r.slots {
		s := &r.slots[i]
		for l := s.levels; l != nil; l = l.up {
			for d := range l.lists {
				for e := l.lists[d].popFront(); e != nil; e = l.lists[d].popFront() {
					yield(e)
				}
			}
		}
		s.levels = nil
		r.schedule(uint64(i))
	}
}

// raise makes rev the floor of the slot and dissolves the lists that rev is in, since their tasks no longer
// differ from the floor where they did. No task of the slot may be due before rev.
//
// All others stay where they are. A task of level i is due later than rev and differs from the old floor
// first in digit i. If rev, which is between the two, had that digit from the task, it would be in the task's
// list.
func (r *ring) raise(s *slot, rev uint64) {
	if s.floor == rev {
		return
	}
	s.floor = rev
	for l := s.levels; l != nil; {
		up := l.up // l may be put by
		if d := digit(rev, l.shift); l.shift > 0 && l.occupied&(1<<d) != 0 {
			moving := l.take(d)
			r.vacate(s, l, d)
			for e := moving.popFront(); e != nil; e = moving.popFront() {
				r.hang(s, e.at/uint64(len(r.slots)), e)
			}
		}
		l = up
	}
}

// hang puts the entry, due in revolution rev, into its list. The slot's next visit may be sooner by it.
func (r *ring) hang(s *slot, rev uint64, e *entry) {
	shift := s.shiftOf(rev)
	p := &s.levels
	for *p != nil && (*p).shift < shift {
		p = &(*p).up
	}
	l := *p
	if l == nil || l.shift != shift {
		l = r.newLevel()
		l.shift, l.up = shift, *p
		*p = l
	}
	d := digit(rev, shift)
	l.lists[d].pushBack(e)
	l.lengths[d]++
	l.occupied |= 1 << d
}

// take empties list d and returns what was in it.
func (l *level) take(d uint64) list {
	all := l.lists[d]
	l.lists[d], l.lengths[d] = list{}, 0
	return all
}

// vacate notes that list d of the level is empty.
func (r *ring) vacate(s *slot, l *level, d uint64) {
	l.occupied &^= 1 << d
	if l.occupied != 0 {
		return
	}
	p := &s.levels
	for *p != l {
		p = &(*p).up
	}
	*p = l.up
	l.up = nil
	if r.spares < maxSpares {
		l.up, r.spare = r.spare, l
		r.spares++
	}
}

func (r *ring) newLevel() *level {
	l := r.spare
	if l == nil {
		return new(level)
	}
	r.spare = l.up
	r.spares--
	return l
}

// schedule notes when slot i is to be visited: as the hand gets to the first revolution of its first list.
func (r *ring) schedule(i uint64) {
	s, at := &r.slots[i], uint64(never)
	if l := s.levels; l != nil {
		at = s.first(l, bits.TrailingZeros64(l.occupied))*uint64(len(r.slots)) + i
	}
	r.visits.set(int(i), at)
}

// first returns the first revolution of list d of the level.
func (s *slot) first(l *level, d int) uint64 {
	higher := s.floor >> (l.shift + digitBits) << (l.shift + digitBits)
	return higher | uint64(d)<<l.shift
}

// length counts the entries of the list that revolution rev is in.
func (s *slot) length(rev uint64) int {
	shift := s.shiftOf(rev)
	l := s.level(shift)
	if l == nil {
		return 0
	}
	return int(l.lengths[digit(rev, shift)])
}

// level returns the level of the shift, or nil if the slot has none.
func (s *slot) level(shift uint8) *level {
	l := s.levels
	for l != nil && l.shift != shift {
		l = l.up
	}
	return l
}

// shiftOf returns the shift of the first digit in which rev differs from the floor, or 0.
func (s *slot) shiftOf(rev uint64) uint8 {
	differ := rev ^ s.floor
	if differ < lists {
		return 0
	}
	return uint8((bits.Len64(differ) - 1) / digitBits * digitBits)
}

func digit(rev uint64, shift uint8) uint64 { return rev >> shift % lists }
