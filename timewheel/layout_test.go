// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A modelled layout performs the same operations as the simplest possible model. After each operation the two must
// agree, and the layout must be consistent. Entries may have moved down by one level only, and no more of them than
// allowed.
type modelled struct {
	*testing.T
	*layout
	now    uint64
	model  []*entry
	levels map[*entry]int
}

func newModelled(t *testing.T, kind Layout, slots int, passed uint64) *modelled {
	return &modelled{T: t, layout: newLayout(kind, slots, passed), now: passed, levels: make(map[*entry]int)}
}

// verify compares the layout with the model, and returns how many entries have moved.
func (m *modelled) verify() (moved int) {
	m.Helper()
	least := uint64(never)
	found := 0
	m.check(m.Fatalf, func(e *entry, level int) {
		found++
		least = min(least, e.at)
		switch old, known := m.levels[e]; {
		case !known:
		case level < old:
			moved++
		case level > old:
			m.Fatalf("entry at %d was moved from level %d to %d", e.at, old, level)
		}
		m.levels[e] = level
	})
	if found != len(m.model) || len(m.levels) != found {
		m.Fatalf("%d entries are in the layout, want %d", found, len(m.model))
	}
	if next := m.next(); next > least || len(m.model) == 0 && next != never {
		m.Fatalf("next visit at %d, the first of %d entries is due at %d", next, len(m.model), least)
	}
	return moved
}

func (m *modelled) add(at uint64) *entry {
	m.Helper()
	e := &entry{at: at}
	m.place(e)
	m.model = append(m.model, e)
	m.verify()
	return e
}

// forget removes an entry from the model.
func (m *modelled) forget(e *entry) {
	m.model = slices.DeleteFunc(m.model, func(o *entry) bool { return o == e })
	delete(m.levels, e)
}

func (m *modelled) remove(e *entry) {
	m.Helper()
	m.unlink(e)
	if e.placed() {
		m.Fatal("an entry that was taken out has a place")
	}
	m.forget(e)
	m.verify()
}

// pass passes every tick up to the given one, as the loop does, and returns the entries that fell due.
func (m *modelled) pass(upTo uint64) (due []*entry) {
	m.Helper()
	want := slices.DeleteFunc(slices.Clone(m.model), func(e *entry) bool { return e.at > upTo })
	for {
		next := m.next()
		list, tick, more := m.advance(upTo)
		if !more {
			break
		}
		if tick != next || tick <= m.now && len(list) > 0 {
			m.Fatalf("tick %d was visited after %d, and the next visit was to be at %d", tick, m.now, next)
		}
		for _, e := range list {
			if e.at != tick {
				m.Fatalf("an entry for %d was handed out at %d", e.at, tick)
			}
			e.place = 0
			m.forget(e)
			due = append(due, e)
		}
		clear(list)
		m.now = m.layout.now
		if moved := m.verify(); moved == 0 && len(list) == 0 {
			m.Fatalf("the visit at %d was for nothing", next)
		} else if moved > maxVisit {
			m.Fatalf("the visit at %d moved %d entries", next, moved)
		}
	}
	m.now = upTo
	if m.verify(); m.layout.now != upTo || m.next() <= upTo {
		m.Fatalf("now is %d, want %d, and the next visit is at %d", m.layout.now, upTo, m.next())
	}
	if len(due) != len(want) {
		m.Fatalf("up to %d there came %d entries of %d", upTo, len(due), len(want))
	}
	return due
}

func (m *modelled) empty() {
	m.Helper()
	var out []*entry
	m.drain(func(e *entry) { out = append(out, e) })
	if len(out) != len(m.model) {
		m.Fatalf("drain took out %d of %d", len(out), len(m.model))
	}
	for _, e := range out {
		if e.placed() || !slices.Contains(m.model, e) {
			m.Fatal("drain took out something else, or left it a place")
		}
	}
	m.model = nil
	clear(m.levels)
	m.verify()
}

// look makes the layout yield the tasks due within a circle, and stops the iteration in the middle.
func (m *modelled) look(r *rand.Rand) {
	m.Helper()
	last := m.now + min(m.turn, never-1-m.now)
	want := 0
	for _, e := range m.model {
		if e.at <= last {
			want++
		}
	}
	for _, most := range []int{want, r.IntN(want + 1)} {
		n, tick := 0, uint64(0)
		m.upcoming(func(e *entry) bool {
			if n++; e.at < tick || e.at > last {
				m.Fatalf("within a turn from %d an entry for %d comes after one for %d", m.now, e.at, tick)
			}
			tick = e.at
			return n < most
		})
		if n != most && !(most == 0 && n == 1) {
			m.Fatalf("%d of %d entries are due within a turn from %d, and %d were asked for", n, want, m.now, most)
		}
	}
}

// reach draws a number of ticks, from one to many circles, often next to a possible boundary of a layout.
func (m *modelled) reach(r *rand.Rand) uint64 {
	n, w := m.turn, m.width
	spans := []uint64{1, n, 2 * n, w * n, 2 * w * n, w * w * n, 2 * w * w * n, w * w * w * n, n * n, n * n * n, 1 << 40, 1 << 62}
	span := spans[r.IntN(len(spans))] * uint64(1+r.IntN(3))
	ticks := max(span+uint64(r.IntN(3))-1, 1)
	return min(ticks, never-1-m.now)
}

func (m *modelled) step(r *rand.Rand) {
	m.Helper()
	if m.now == never-1 {
		return // no tick is left
	}
	switch k := r.IntN(100); {
	case k < 50 && len(m.model) < 60:
		m.add(m.now + m.reach(r))
	case k < 70 && len(m.model) > 0:
		m.remove(m.model[r.IntN(len(m.model))])
	case k < 80:
		m.pass(m.now + uint64(r.IntN(2))*min(m.turn, never-1-m.now))
	case k < 90 && len(m.model) > 0: // to the tick of an entry, or to the one before
		m.pass(max(m.now, m.model[r.IntN(len(m.model))].at-uint64(r.IntN(2))))
	case k < 94:
		m.look(r)
	case k < 98 && m.next() != never: // next to the next visit
		m.pass(min(m.next(), never-2) + uint64(r.IntN(3)) - 1)
	case k == 98:
		m.pass(m.now + m.reach(r)/4)
	case k == 99:
		m.empty()
	}
}

func TestLayout_anyOperationsFromAnyStart_isAsASortedList(t *testing.T) {
	testkit.NotForRaces(t)
	eachLayout(t, testAnyOperations)
}

func testAnyOperations(t *testing.T, kind Layout) {
	starts := []uint64{0, 1<<31 - 100, 1<<32 - 100, 1<<53 - 100, math.MaxInt64 - 100, 3 << 62, never - 1000}
	for _, slots := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 64, 1000} {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			for i, start := range starts {
				r := random(uint64(i))
				m := newModelled(t, kind, slots, start)
				for range 400 {
					m.step(r)
				}
				m.pass(never - 1)
				if len(m.model) != 0 {
					t.Fatalf("from %d: at the end of time %d entries wait still", start, len(m.model))
				}
			}
		})
	}
}

// The placements in the design document: every number of slots up to 9, every start up to 20, every delay up to 40.
func TestLayout_everySmallPlacement_comesOutAtItsTick(t *testing.T) {
	testkit.NotForRaces(t)
	eachLayout(t, func(t *testing.T, kind Layout) {
		placements := 0
		for n := 1; n <= 9; n++ {
			for now := uint64(0); now <= 20; now++ {
				for delay := uint64(1); delay <= 40; delay++ {
					placements++
					at := now + delay
					m := newModelled(t, kind, n, now)
					slot, circle := position(at, now, uint64(n))
					e := m.add(at)
					met := 0
					for tick := now + 1; tick <= at; tick++ {
						if len(m.pass(tick)) > 0 {
							break
						}
						if tick%uint64(n) == uint64(slot) {
							met++
						}
					}
					if e.placed() || m.now != at || circle != met || slot != int(at)%n {
						t.Fatalf("%d slots, now %d, delay %d: slot %d, circle %d; out at %d after %d meetings",
							n, now, delay, slot, circle, m.now, met)
					}
				}
			}
		}
		if placements != 7560 {
			t.Errorf("%d placements were tried", placements)
		}
	})
}

func TestPosition_ofWhatHasPassed_isNoCircleAhead(t *testing.T) {
	for at := uint64(0); at <= 100; at++ {
		if slot, circle := position(at, 100, 60); slot != int(at)%60 || circle != 0 {
			t.Errorf("tick %d is in slot %d, circle %d", at, slot, circle)
		}
	}
}

func TestLayout_place_atATickThatHasPassed_panics(t *testing.T) {
	eachLayout(t, func(t *testing.T, kind Layout) {
		for _, at := range []uint64{0, 9, 10} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("tick %d was accepted at tick 10", at)
					}
				}()
				newLayout(kind, 4, 10).place(&entry{at: at})
			}()
		}
	})
}

// Very many entries of one distant tick move down a level in pieces, and arrive in time. They do not hold up the
// entries of other ticks.
func TestLayout_manyEntriesOfOneTick_moveDownInPieces(t *testing.T) {
	testkit.NotForRaces(t)
	for _, c := range []struct {
		kind  Layout
		slots int
		at    uint64
	}{
		{Hashed, 64, 64*100 + 7}, {Hashed, 64, 64*1000 + 7}, {Hierarchical, 64, 64*3 + 7}, {Hierarchical, 64, 64*64*3 + 7},
		{Hashed, 1, 100}, {Hierarchical, 1, 5}, // with less than a circle for the moves
		{Hashed, 1, 112}, {Hierarchical, 1, 6}, // with the same time, and due at the first number of their list
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			l := newLayout(c.kind, c.slots, 0)
			entries := make([]entry, 10*maxVisit+1)
			for i := range entries {
				entries[i].at = c.at
				l.place(&entries[i])
			}
			near := make(map[uint64]*entry)
			for tick := uint64(1); tick < c.at; tick++ {
				near[tick] = &entry{at: tick}
				l.place(near[tick])
			}
			height := func() (sum int) { // a move lowers it by a level or more
				for i := range l.slots {
					for k, lv := range l.slots[i].levels {
						for d := 0; k > 0 && lv != nil && d < len(lv.lists); d++ {
							sum += k * len(lv.lists[d])
						}
					}
				}
				return sum
			}
			levels := len(l.slots[c.at%uint64(len(l.slots))].levels)
			before := height()
			for tick := uint64(1); tick <= c.at; tick++ {
				least := 0
				for visits := 1; ; visits++ {
					due, at, more := l.advance(tick)
					if !more {
						break
					}
					if at != tick {
						t.Fatalf("tick %d was visited in place of %d", at, tick)
					}
					after := height()
					if moved := before - after; moved > levels*maxVisit {
						t.Fatalf("at tick %d visit %d moved %d entries", tick, visits, moved)
					}
					before = after
					for _, e := range due {
						if e.at != tick {
							t.Fatalf("an entry for %d came out at %d", e.at, tick)
						}
						least++
						e.place = 0
					}
					clear(due)
				}
				if want := 1; tick < c.at && least != want || tick == c.at && least != len(entries) {
					t.Fatalf("%d entries came out at tick %d", least, tick)
				}
			}
			if l.next() != never {
				t.Error("something is left")
			}
		})
	}
}

// The walks from the textbooks: the level and the list that contain the entry at each tick. The entry moves down one
// span before the first tick of its list, because many entries may have to move.
func TestLayout_walksOfTheTextbooks(t *testing.T) {
	type step struct {
		tick  uint64
		level int
	}
	for _, c := range []struct {
		name  string
		slots int
		at    uint64
		steps []step
	}{
		{"850 ms in slots of 1 ms, 20 a level", 20, 850, []step{{0, 2}, {400, 1}, {820, 0}}},
		{"39 s in slots of 1 s, 20 a level: two turns of the lowest", 20, 40, []step{{0, 0}}},
		{"41 s in slots of 1 s, 20 a level", 20, 41, []step{{0, 1}, {20, 0}}},
		{"15 s in slots of 1 s, 7 a level", 7, 15, []step{{0, 1}, {7, 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLayout(Hierarchical, c.slots, 0)
			e := &entry{at: c.at}
			l.place(e)
			for _, s := range c.steps {
				if s.tick > 0 {
					if next := l.next(); next != s.tick {
						t.Fatalf("the next visit is at %d, want %d", next, s.tick)
					}
					if due, _, _ := l.advance(s.tick); len(due) > 0 {
						t.Fatalf("it is due at tick %d", s.tick)
					}
				}
				l.check(t.Fatalf, func(_ *entry, level int) {
					if level != s.level {
						t.Errorf("at tick %d it is on level %d, want %d", s.tick, level, s.level)
					}
				})
			}
			if due, at, _ := l.advance(c.at); len(due) != 1 || due[0] != e || at != c.at || l.next() != never {
				t.Errorf("it comes out at %d", at)
			}
		})
	}
}

func TestLayout_levels_areMadeOnDemand(t *testing.T) {
	l := newLayout(Hierarchical, 10, 0)
	for _, c := range []struct {
		at    uint64
		level int
	}{{20, 0}, {21, 1}, {199, 1}, {200, 2}, {5, 0}, {never - 1, 18}} {
		e := &entry{at: c.at}
		l.place(e)
		for k, lv := range l.slots[0].levels {
			if (lv != nil) != (k == c.level) {
				t.Errorf("with tick %d alone there is level %d: %v", c.at, k, lv != nil)
			}
		}
		l.unlink(e)
		if l.next() != never {
			t.Errorf("with tick %d taken out the next visit is at %d", c.at, l.next())
		}
	}
}

// A task moves no more often than the layout promises.
func TestLayout_farEntries_moveOnceALevelAtMost(t *testing.T) {
	testkit.NotForRaces(t)
	for _, c := range []struct {
		kind   Layout
		within uint64 // ticks
		slots  int
		most   int // moves
	}{
		{Hashed, 31 * 5, 5, 0}, {Hashed, 496 * 5, 5, 1}, {Hashed, 7936 * 5, 5, 2},
		{Hierarchical, 2*60 - 1, 60, 0}, {Hierarchical, 2*60*60 - 60, 60, 1},
	} {
		r := random(5)
		m := newModelled(t, c.kind, c.slots, 0)
		first := make(map[*entry]int)
		for range 300 {
			e := m.add(1 + r.Uint64N(c.within))
			first[e] = m.levels[e]
			if m.levels[e] > c.most {
				t.Fatalf("an entry within %d ticks is on level %d", c.within, m.levels[e])
			}
		}
		visits := 0
		for len(m.model) > 0 {
			m.pass(m.next())
			visits++
		}
		if limit := 300 * (1 + c.most); visits > limit {
			t.Errorf("%v: 300 entries within %d ticks took %d visits", c.kind, c.within, visits)
		}
	}
}

// A steady flow allocates nothing, and the memory of a burst is freed.
func TestLayout_room_isUsedAgainAndGivenBack(t *testing.T) {
	eachLayout(t, func(t *testing.T, kind Layout) {
		l := newLayout(kind, 100, 0)
		near, far := make([]entry, keepRoom), new(entry)
		turn := func() {
			for i := range near {
				near[i].at = l.now + 1
				l.place(&near[i])
			}
			far.at = l.now + 100*1000
			l.place(far)
			l.unlink(far)
			due, _, _ := l.advance(l.now + 1)
			if len(due) != keepRoom {
				t.Fatalf("%d entries came out", len(due))
			}
			for i := range near {
				near[i].place = 0
			}
		}
		for range 1000 {
			turn()
		}
		if allocs := testing.AllocsPerRun(1000, turn); allocs != 0 {
			t.Errorf("a tick costs %v allocations", allocs)
		}

		many := make([]entry, 4000*keepRoom)
		for i := range many {
			many[i].at = l.now + 1 + uint64(i)%4000
			l.place(&many[i])
		}
		for i := range many {
			l.unlink(&many[i])
		}
		if n := len(l.spare); n > maxSpare || l.next() != never {
			t.Errorf("%d levels are kept", n)
		}
		for _, lv := range l.spare {
			for _, list := range lv.lists {
				if cap(list) > keepRoom {
					t.Fatalf("an empty list keeps room for %d entries", cap(list))
				}
			}
		}
	})
}

// A tick touches only due tasks. Every other task here has a tick that would reveal that the task was touched.
func TestLayout_tick_touchesOnlyWhatIsDue(t *testing.T) {
	const slots, each = 4, 3
	eachLayout(t, func(t *testing.T, kind Layout) {
		l := newLayout(kind, slots, 0)
		last := 2*l.width*uint64(len(l.slots)) - 1
		var all []*entry
		for range each {
			for at := uint64(1); at < last; at++ {
				e := &entry{at: at}
				l.place(e)
				all = append(all, e)
			}
		}
		for tick := uint64(1); tick < last; tick++ {
			type kept struct {
				at    uint64
				place uint32
			}
			hidden := make(map[*entry]kept)
			for _, e := range all {
				if e.at > tick {
					hidden[e] = kept{e.at, e.place}
					e.at, e.place = 0, 1<<31
				}
			}
			due, at, _ := l.advance(tick)
			for _, e := range due {
				if e.at != tick {
					t.Fatalf("tick %d hands out an entry that is due at %d", tick, hidden[e].at)
				}
			}
			for e, was := range hidden {
				if e.at != 0 || e.place != 1<<31 {
					t.Fatalf("tick %d touched an entry that is due at %d", tick, was.at)
				}
				e.at, e.place = was.at, was.place
			}
			if len(due) != each || at != tick {
				t.Fatalf("%d entries were due at %d, want %d", len(due), tick, each)
			}
		}
	})
}

// A list on a high level does not keep a list on a lower level from moving in time. No tick moves more entries than
// allowed.
func TestLayout_listsOfTwoLevels_moveInTheirTime(t *testing.T) {
	testkit.NotForRaces(t)
	for _, slots := range []int{16, 64} {
		width := uint64(slots)
		l, span := newLayout(Hierarchical, slots, 0), width*width
		many := make([]entry, min(span*maxVisit/2, 200_000)) // on level 2, moved within half a span
		for i := range many {
			many[i].at = 4*span + uint64(i)%span
			l.place(&many[i])
		}
		one := entry{at: 3*span + width} // on level 1, while the other entries move
		l.place(&one)
		high := func() (n int) {
			if lv := l.slots[0].level(2); lv != nil {
				for _, list := range lv.lists {
					n += len(list)
				}
			}
			return n
		}
		for tick := uint64(1); tick < 4*span; tick++ {
			before := high()
			for more := true; more; {
				_, _, more = l.advance(tick)
			}
			if moved := before - high(); moved > maxVisit {
				t.Fatalf("%d slots: %d of %d entries move at one tick", slots, moved, len(many))
			}
		}
		if n := high(); n > 0 {
			t.Errorf("%d slots: %d of %d entries have not moved a tick before the first is due", slots, n, len(many))
		}
	}
}

// The loop allocates the levels of Hierarchical, so each must be small, whatever the number of slots.
func TestLayout_hierarchicalWithTheMostSlots_makesSmallLevels(t *testing.T) {
	l := newLayout(Hierarchical, maxSlots, 0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, tick := range []uint64{1, 1 << 20, 1 << 30} {
		l.place(&entry{at: tick})
	}
	runtime.ReadMemStats(&after)
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 4<<20 {
		t.Errorf("three tasks took %d bytes", bytes)
	}
	for _, want := range []uint64{1, 1 << 20, 1 << 30} {
		for {
			due, tick, more := l.advance(want)
			if len(due) > 0 {
				if tick != want || len(due) != 1 {
					t.Errorf("%d entries are due at tick %d, want one at %d", len(due), tick, want)
				}
				break
			}
			if !more {
				t.Fatalf("nothing is due at tick %d", want)
			}
		}
	}
}
