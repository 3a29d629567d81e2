// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"math"
)

// A Layout determines how a wheel stores waiting tasks. The layouts differ only in cost; the package documentation
// compares them.
type Layout int

const (
	// Hashed is a single wheel whose slots store their tasks by circle.
	Hashed Layout = iota
	// Hierarchical is a wheel for tasks due soon, plus further wheels whose slots span increasing numbers of ticks. A
	// further wheel is created when a delay needs it. Tasks move down from wheel to wheel as their due time approaches.
	Hierarchical
)

// String returns the name of the layout, in lower case.
func (l Layout) String() string {
	if l == Hashed || l == Hierarchical {
		return [...]string{"hashed", "hierarchical"}[l]
	}
	return fmt.Sprintf("Layout(%d)", int(l))
}

// position returns the slot of a wheel with n slots in which an entry waits for the tick at, and how many more circles
// it waits. now is the last tick that has passed. The result is the same for every layout.
func position(at, now, n uint64) (slot, circle int) {
	if at > now {
		circle = int(min((at-now-1)/n, math.MaxInt))
	}
	return int(at % n), circle
}

// A layout stores entries by the tick at which the loop must look at them. It uses no clocks, goroutines or tasks:
// ticks are numbers passed in, and the only entry fields that it uses are at and place. The loop owns it.
//
// # Two layouts, one structure
//
// Tick t belongs to slot t mod n, where its number is t div n. A slot stores its entries by number, on levels that
// consist of lists. With width w:
//
//	level 0   2w lists of one number each, for entries less than 2w numbers ahead
//	level 1   2w lists of w numbers each, for entries less than 2w² numbers ahead, or slightly less
//	level 2   2w lists of w² numbers each, ...
//
// [Hashed] is scheme 6 of Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (SOSP 1987). It has n slots, and
// the number of a tick is the number of the circle in which the hand reaches it. The paper's scheme visits every task
// of a slot in each circle. Here the levels, for which w is small, give direct access to the tasks of one circle.
//
// [Hierarchical] is scheme 7, as in Kafka's timer. It has one slot, so the number of a tick is the tick itself, and w
// is the number of slots that the user specified, up to 4,096. Each level is a wheel whose slots span one circle of the
// level below. The loop creates a level when an entry needs it. Without the limit this would delay the loop: creating a
// level of 16,777,216 slots takes 2 GB and 250 ms.
//
// # Moving down
//
// A list on level 1 or above is moved down, level by level, before its first number comes. The lists of a level reach
// twice as far as necessary, so a list may begin to move one span ahead, and has that whole span to finish. At most
// maxVisit entries move at one tick, and the next tick continues. That may not be enough after a stall, or with more
// than maxVisit entries for each tick of the span. With 10 ms ticks and 1,024 slots, that would be 8 million entries
// due within 10 s. In that case the remaining entries must move when the first number has come, again at most maxVisit
// at a time. An entry moves once for each level below its first. With Hashed, it never moves if it is due within 31
// circles, moves once if due within 496, and twice if due within 7,936.
//
// # Invariants
//
//   - Every entry in the layout has at > now.
//   - An entry is returned at its tick, no sooner and no later.
//   - next is never after the at of any entry, so the loop misses nothing by sleeping until then. It may be
//     earlier, to move entries.
type layout struct {
	turn   uint64 // number of slots that the user specified
	width  uint64 // w
	slots  []slot // n
	visits tree   // by slot, the tick of the next visit
	now    uint64 // the last tick that has passed
	moved  int    // number of entries moved at the tick at
	at     uint64 // the tick of the last piece of work

	spare []*level // empty levels, for reuse
	few   bucket   // buffer for the entries that advance returns, if they are few
}

type slot struct {
	levels []*level // lowest level first; nil if the level is empty
}

type level struct {
	lists  []bucket // 2w
	visits tree     // by list, the number at which its entries are returned (level 0) or begin to move down
}

const (
	// circles is the width of the levels of Hashed. With 64, a level would take 5 KB instead of 1 KB. With 4, half an
	// hour of 10 ms ticks in 1,024 slots would take three levels instead of two.
	circles = 16

	// maxWidth limits the width of the levels of Hierarchical, and so the time that the loop needs to create one. A
	// level of this width takes 330 KB.
	maxWidth = 1 << 12

	// maxVisit limits how many entries the loop moves down at one tick, or looks at for Upcoming. Handling that many
	// entries takes well below a millisecond.
	maxVisit = 8192

	// maxSpare limits the number of levels that are retained for reuse. With Hashed they take up to 1.4 MB, if each
	// list retains its capacity.
	maxSpare = 256
)

// newLayout returns a layout for a wheel that has passed the given tick.
func newLayout(kind Layout, slots int, passed uint64) *layout {
	l := &layout{turn: uint64(slots), width: circles, now: passed}
	n := slots
	if kind == Hierarchical {
		// A level of width 1 would reach no farther than the level below.
		n, l.width = 1, uint64(min(max(slots, 2), maxWidth))
	}
	l.slots, l.visits, l.few = make([]slot, n), newTree(n), make(bucket, 0, keepRoom)
	return l
}

// place adds e, which must be in no slot.
func (l *layout) place(e *entry) {
	if e.at <= l.now {
		panic("timewheel: entry placed at a tick that has passed") // a bug: the entry would wait forever
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
	panic("timewheel: entry is not in its slot") // a bug: the entry would be lost
}

// next returns the tick of the next piece of work, or never.
func (l *layout) next() uint64 { return l.visits.least() }

// advance performs the next piece of work up to the given tick, which must be before never. It returns the entries that
// are due at a tick, and that tick. The returned entries are in no slot, although their place still says otherwise.
// more is false when no work is left and all ticks up to the given one have passed.
func (l *layout) advance(upTo uint64) (due bucket, tick uint64, more bool) {
	tick = l.visits.least()
	if tick > upTo {
		l.now = upTo
		return nil, upTo, false
	}
	l.now = max(l.now, tick-1)
	own, i := tick%uint64(len(l.slots)), uint64(l.visits.leaf())
	if l.visits[0][own] == tick && l.now < tick {
		i = own // before the other slots, which only need to move entries at this tick
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
				due = append(l.few[:0], due...) // the list retains its capacity
				l.vacate(s, 0, d)
			}
		}
		l.now = tick
		l.schedule(i, tick+1)
	}
	return due, tick, true
}

// upcoming yields the entries whose tick comes within one circle, soonest tick first.
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

// drain removes and yields all entries, in no particular order.
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

// put adds e, which has the given number, to the lowest level that reaches that number.
func (l *layout) put(s *slot, coming, number uint64, e *entry) {
	unit := uint64(1)
	for k := 0; ; k++ {
		x := number / unit
		if x-coming/unit >= 2*l.width {
			unit *= l.width // cannot overflow: a level this wide would have accepted every number
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
				x = (x - 1) * unit // one span ahead; x is at least 2
			}
			lv.visits.set(int(d), x)
		}
		return
	}
}

// moveDown moves entries of the slot down from lists whose time has come, up to the limit for this tick. It reports
// whether any entry that may be due is left.
func (l *layout) moveDown(s *slot, coming uint64) (overdue bool) {
	unit := l.width
	for k := 1; k < len(s.levels); k, unit = k+1, unit*l.width { // lowest level first, because it is the most urgent
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
			at = earliest // as soon as possible
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

// vacate records that list d of level k is empty, and sets the level aside for reuse if all its lists are empty.
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
