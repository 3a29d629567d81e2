// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"math"
)

// A Layout is how a wheel keeps waiting tasks. The layouts differ only in cost; the package documentation compares
// them.
type Layout int

const (
	// Hashed is one wheel, in each slot of which the tasks are kept by circle.
	Hashed Layout = iota
	// Hierarchical is a wheel for the near tasks and, made when a delay needs them, further wheels whose
	// slots span more and more ticks. Tasks move down from them as they near.
	Hierarchical
)

// String returns the name of the layout, in lower case.
func (l Layout) String() string {
	if l == Hashed || l == Hierarchical {
		return [...]string{"hashed", "hierarchical"}[l]
	}
	return fmt.Sprintf("Layout(%d)", int(l))
}

// position returns the slot of a wheel with n slots in which an entry for the given tick waits, and how many
// more circles it waits; now is the last tick passed. It is the same for every layout.
func position(at, now, n uint64) (slot, circle int) {
	if at > now {
		circle = int(min((at-now-1)/n, math.MaxInt))
	}
	return int(at % n), circle
}

// A layout keeps the entries by the tick at which the loop must look at them. It knows no clock, no goroutine and no
// task: ticks are numbers passed in, and the only fields of an entry that it uses are at and place. The loop owns it.
//
// # Two layouts, one structure
//
// Tick t belongs to slot t mod n and is number t div n there. A slot keeps its entries by number on levels,
// and a level in lists. With width w:
//
//	level 0   a list for each number, 2w of them: what is less than 2w numbers ahead
//	level 1   a list for w numbers each, 2w of them: what is less than 2w² ahead, or a little less
//	level 2   a list for w² numbers each, ...
//
// [Hashed] is scheme 6 of Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (SOSP 1987). It has n slots, and
// the number of a tick is that of the circle in which the hand meets it. The paper's scheme visits every task of a slot
// in each circle. Here the levels, with a small w, directly find the tasks of one circle.
//
// [Hierarchical] is scheme 7, as in Kafka's timer. It has one slot, so that the number of a tick is the tick,
// and w is the number of slots that the user gave, up to 4,096. Each level is a wheel whose slots span a turn of
// the one below. The loop makes a level when an entry needs it. With more slots than that the loop would be held
// up: a level of 16,777,216 takes 2 GB and 250 ms.
//
// # Moving down
//
// A list of level 1 and up is moved down, level by level, before its first number comes. The lists of a level reach
// twice as far as they would have to. So a list may begin to move one span ahead, and has that whole span to do so. At
// most maxVisit entries move at one tick, and the next tick continues. That may not be enough with more than maxVisit
// entries for each tick of the span (with 10 ms ticks and 1,024 slots, 8 million that are due within 10 s), or after a
// stall. Then the rest has to move when the first number has come; that, too, is done in pieces of maxVisit. An entry
// moves once for each level below its first: with Hashed never if it is due within 31 turns, once within 496, twice
// within 7,936.
//
// # What always holds
//
//   - Every entry in the layout has at > now.
//   - An entry is returned at its tick, no sooner and no later.
//   - next is never after the at of an entry, so that nothing is missed by sleeping until then. It may be
//     sooner, to move entries.
type layout struct {
	turn   uint64 // slots of the wheel, as the user gave them
	width  uint64 // w
	slots  []slot // n
	visits tree   // by slot, the tick of the next visit
	now    uint64 // the last tick passed
	moved  int    // entries, at the tick after now, and
	at     uint64 // that tick

	spare []*level // empty
	few   bucket   // what advance returned, if that was little
}

type slot struct {
	levels []*level // lowest first; nil if empty
}

type level struct {
	lists  []bucket // 2w
	visits tree     // by list, the number from which on it is handed out (level 0) or moves down
}

const (
	// circles is the width of the levels of Hashed. With 64 a level takes 5 KB and not 1, and with 4 half an
	// hour of 10 ms ticks in 1,024 slots takes three levels and not two.
	circles = 16

	// maxWidth bounds the width of the levels of Hierarchical, and so how long the loop makes one: 330 KB.
	maxWidth = 1 << 12

	// maxVisit bounds how many entries the loop moves down at one tick, or looks at for Upcoming, to what takes
	// well below a millisecond.
	maxVisit = 8192

	// maxSpare bounds the levels that are kept for later: with Hashed to 1.4 MB, if each list keeps its room.
	maxSpare = 256
)

// newLayout returns a layout for a wheel that has passed the given tick.
func newLayout(kind Layout, slots int, passed uint64) *layout {
	l := &layout{turn: uint64(slots), width: circles, now: passed}
	n := slots
	if kind == Hierarchical {
		// With one list to a level it would reach no farther than the one below.
		n, l.width = 1, uint64(min(max(slots, 2), maxWidth))
	}
	l.slots, l.visits, l.few = make([]slot, n), newTree(n), make(bucket, 0, keepRoom)
	return l
}

// place adds e, which must be in no slot.
func (l *layout) place(e *entry) {
	if e.at <= l.now {
		panic("timewheel: entry placed at a tick that has passed") // a bug: it would wait for ever
	}
	n := uint64(len(l.slots))
	i := e.at % n
	l.put(&l.slots[i], l.coming(i), e.at/n, e)
	l.schedule(i, l.now+1)
}

// unlink removes e, which must be in a slot.
func (l *layout) unlink(e *entry) {
	n := uint64(len(l.slots))
	i, number := e.at%n, e.at/n
	unit := uint64(1)
	for k, lv := range l.slots[i].levels {
		d := number / unit % (2 * l.width)
		if unit *= l.width; lv == nil || !lv.lists[d].has(e) {
			continue
		}
		if lv.lists[d].remove(e); len(lv.lists[d]) == 0 {
			l.vacate(&l.slots[i], k, d)
			l.schedule(i, l.now+1)
		}
		return
	}
	panic("timewheel: entry is not in its slot") // a bug: it would be lost
}

// next returns the tick of the next piece of work, or never.
func (l *layout) next() uint64 { return l.visits.least() }

// advance does the next piece of work up to the given tick, which must be before never. It returns the
// entries that are due at a tick, and that tick. The entries are then in no slot, though their place still
// says so. more is false when nothing is left, and all ticks up to the given one have passed.
func (l *layout) advance(upTo uint64) (due bucket, tick uint64, more bool) {
	tick = l.visits.least()
	if tick > upTo {
		l.now = upTo
		return nil, upTo, false
	}
	l.now = max(l.now, tick-1)
	own, i := tick%uint64(len(l.slots)), uint64(l.visits.leaf())
	if l.visits[0][own] == tick && l.now < tick {
		i = own // before others, which only need to move entries at this tick
	}
	s, coming := &l.slots[i], l.coming(i)
	if l.at != tick {
		l.at, l.moved = tick, 0
	}
	overdue := l.moveDown(s, coming)
	switch {
	case i != own || l.now == tick:
		l.schedule(i, tick+1)
	case overdue:
		l.moved = 0
		l.schedule(i, tick)
	default:
		if lv := s.level(0); lv != nil {
			d := coming % (2 * l.width)
			switch due = lv.lists[d]; {
			case len(due) > keepRoom:
				lv.lists[d] = nil
				l.vacate(s, 0, d)
			case len(due) > 0:
				due = append(l.few[:0], due...) // the list keeps its room
				l.vacate(s, 0, d)
			}
		}
		l.now = tick
		l.schedule(i, tick+1)
	}
	return due, tick, true
}

// upcoming yields the entries whose tick comes within one turn, the soonest tick first.
func (l *layout) upcoming(yield func(e *entry) bool) {
	n := uint64(len(l.slots))
	last := l.now + min(l.turn, never-1-l.now)
	l.visits.upTo(last, int((l.now+1)%n), func(i int) bool {
		lv := l.slots[i].level(0)
		if lv == nil {
			return true
		}
		more := true
		lv.visits.upTo((last-uint64(i))/n, int(l.coming(uint64(i))%(2*l.width)), func(d int) bool {
			for _, e := range lv.lists[d] {
				if more = yield(e); !more {
					break
				}
			}
			return more
		})
		return more
	})
}

// drain removes all entries, in no order.
func (l *layout) drain(yield func(e *entry)) {
	for i := range l.slots {
		for k, lv := range l.slots[i].levels {
			for d := 0; lv != nil && d < len(lv.lists); d++ {
				all := lv.lists[d]
				if len(all) == 0 {
					continue
				}
				lv.lists[d] = nil
				l.vacate(&l.slots[i], k, uint64(d))
				for _, e := range all {
					e.place = 0
					yield(e)
				}
			}
		}
		l.visits.set(i, never)
	}
}

// coming returns the first number of slot i that has not passed.
func (l *layout) coming(i uint64) uint64 {
	if l.now < i {
		return 0
	}
	return (l.now-i)/uint64(len(l.slots)) + 1
}

// put hangs e, which has the number, into the lowest level that reaches it.
func (l *layout) put(s *slot, coming, number uint64, e *entry) {
	unit := uint64(1)
	for k := 0; ; k++ {
		x := number / unit
		if x-coming/unit >= 2*l.width {
			unit *= l.width // no overflow: otherwise every number would have fitted here
			continue
		}
		for k >= len(s.levels) {
			s.levels = append(s.levels, nil)
		}
		if s.levels[k] == nil {
			s.levels[k] = l.newLevel()
		}
		lv, d := s.levels[k], x%(2*l.width)
		if lv.lists[d].add(e); len(lv.lists[d]) == 1 {
			if k > 0 {
				x = (x - 1) * unit // one span ahead; x is 2 at least
			}
			lv.visits.set(int(d), x)
		}
		return
	}
}

// moveDown moves entries of the slot down from lists whose time has come, as many as may move at this tick. It reports
// whether an entry is left that may be due.
func (l *layout) moveDown(s *slot, coming uint64) (overdue bool) {
	unit := l.width
	for k := 1; k < len(s.levels); k, unit = k+1, unit*l.width { // the lowest level first: it is the most urgent
		for lv := s.levels[k]; lv != nil && lv.visits.least() <= coming; lv = s.levels[k] {
			d := uint64(lv.visits.leaf())
			all := &lv.lists[d]
			for len(*all) > 0 && l.moved < maxVisit {
				e := (*all)[len(*all)-1]
				all.remove(e)
				l.put(s, coming, e.at/uint64(len(l.slots)), e)
				l.moved++
			}
			if len(*all) > 0 {
				overdue = overdue || lv.visits.least()+unit <= coming
				break
			}
			l.vacate(s, k, d)
		}
	}
	return overdue
}

// schedule sets the next visit to slot i, no earlier than the given tick.
func (l *layout) schedule(i, earliest uint64) {
	n, coming, at := uint64(len(l.slots)), l.coming(i), uint64(never)
	for k, lv := range l.slots[i].levels {
		if lv == nil {
			continue
		}
		v := lv.visits.least()
		if k > 0 && v <= coming {
			at = earliest // as soon as can be
			break
		}
		at = min(at, v*n+i)
	}
	l.visits.set(int(i), at)
}

// level returns level k of the slot, or nil if it is empty.
func (s *slot) level(k int) *level {
	if k >= len(s.levels) {
		return nil
	}
	return s.levels[k]
}

func (l *layout) newLevel() *level {
	if n := len(l.spare); n > 0 {
		lv := l.spare[n-1]
		l.spare[n-1] = nil
		l.spare = l.spare[:n-1]
		return lv
	}
	return &level{lists: make([]bucket, 2*l.width), visits: newTree(int(2 * l.width))}
}

// vacate notes that list d of level k is empty.
func (l *layout) vacate(s *slot, k int, d uint64) {
	lv := s.levels[k]
	lv.lists[d].empty()
	lv.visits.set(int(d), never)
	if lv.visits.least() != never {
		return
	}
	s.levels[k] = nil
	if len(l.spare) < maxSpare {
		l.spare = append(l.spare, lv)
	}
}
