// SPDX-License-Identifier: MIT

package timewheel

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A modelled layout goes through its operations beside the plainest model there is. After each it is checked
// that the two agree, that the layout is in order, and that the operation touched what it may.
type modelled struct {
	*testing.T
	checked
	slots uint64
	now   uint64
	model []*entry // in the order of their placement
	links map[*entry]links
	moves map[*entry]int    // how often a waiting entry may still be moved
	since map[*entry]uint64 // when it was placed
}

// links is where an entry hangs.
type links struct {
	prev, next *entry
	level      int
}

func newModelled(t *testing.T, kind Layout, slots int, passed uint64) *modelled {
	return &modelled{
		T: t, checked: newLayout(kind, slots, passed).(checked), slots: uint64(slots), now: passed,
		links: make(map[*entry]links), moves: make(map[*entry]int),
		since: make(map[*entry]uint64),
	}
}

// eachLayout runs f for every layout.
func eachLayout(t *testing.T, f func(t *testing.T, kind Layout)) {
	t.Helper()
	for _, kind := range []Layout{Hashed, Hierarchical} {
		t.Run(kind.String(), func(t *testing.T) { f(t, kind) })
	}
}

// verify compares the layout with the model. The entries given, and those that moved a level down, may have
// got other neighbours, and so may these; all others must not have been touched. It returns how many moved.
func (m *modelled) verify(may ...*entry) (moved int) {
	m.Helper()
	links, least := m.walk(), uint64(never)
	for _, e := range m.model {
		if old, known := m.links[e]; known && old.level != links[e].level {
			may = append(may, e, e.prev, e.next)
		}
	}
	for _, e := range m.model {
		least = min(least, e.at)
		old, known := m.links[e]
		now := links[e]
		switch {
		case !known:
			m.moves[e] = now.level
		case now.level != old.level:
			moved++
			m.moves[e]--
			if now.level > old.level || m.moves[e] < 0 {
				m.Fatalf("entry at %d was moved from level %d to %d", e.at, old.level, now.level)
			}
		case now != old && !slices.Contains(may, e):
			m.Fatalf("now %d: entry at %d was touched", m.now, e.at)
		}
	}
	m.links = links
	if next := m.next(); next > least || len(m.model) == 0 && next != never {
		m.Fatalf("next visit at %d, the first of %d entries is due at %d", next, len(m.model), least)
	}
	return moved
}

// walk looks through the layout, which must hold what the model does, and returns where each entry hangs.
func (m *modelled) walk() map[*entry]links {
	m.Helper()
	found := make(map[*entry]links)
	m.check(m.Fatalf, func(e *entry, level int) { found[e] = links{e.prev, e.next, level} })
	if len(found) != len(m.model) {
		m.Fatalf("%d entries are in the layout, want %d", len(found), len(m.model))
	}
	return found
}

func (m *modelled) add(at uint64) *entry {
	m.Helper()
	e := &entry{at: at}
	m.place(e)
	m.model = append(m.model, e)
	m.since[e] = m.now
	m.verify(e, e.prev, e.next)
	return e
}

// forget takes an entry out of the model.
func (m *modelled) forget(e *entry) {
	m.model = slices.DeleteFunc(m.model, func(o *entry) bool { return o == e })
	delete(m.links, e)
	delete(m.moves, e)
}

func (m *modelled) remove(e *entry) {
	m.Helper()
	prev, next := e.prev, e.next
	m.unlink(e)
	if e.linked() {
		m.Fatal("an entry that was taken out is linked")
	}
	m.forget(e)
	m.verify(prev, next)
}

// advance passes every tick up to the given one, as the loop does, and returns what fell due.
func (m *modelled) advance(tick uint64) (due []*entry) {
	m.Helper()
	want := slices.DeleteFunc(slices.Clone(m.model), func(e *entry) bool { return e.at > tick })
	byPlacement := func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(m.since[a], m.since[b]))
	}
	slices.SortStableFunc(want, byPlacement)
	for m.next() <= tick {
		next, before := m.next(), len(due)
		list := m.visit()
		m.now = next
		for e := list.popFront(); e != nil; e = list.popFront() {
			if e.at != next {
				m.Fatalf("an entry for %d was handed out at %d", e.at, next)
			}
			m.forget(e)
			due = append(due, e)
		}
		if m.verify() == 0 && len(due) == before {
			m.Fatalf("the visit at %d was for nothing", next)
		}
	}
	m.pass(tick)
	m.now = tick
	m.verify()
	sorted := slices.Clone(due)
	slices.SortStableFunc(sorted, byPlacement) // the order of what was placed at one instant stays
	if !slices.Equal(sorted, want) {
		m.Fatalf("up to %d there came %d entries out of %d, or in another order", tick, len(due), len(want))
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
		if e.linked() || !slices.Contains(m.model, e) {
			m.Fatal("drain took out something else, or left it linked")
		}
	}
	m.model = nil
	clear(m.links)
	clear(m.moves)
	m.verify()
}

// reach draws a number of ticks, from one to many revolutions and next to what may be a boundary of a layout.
func (m *modelled) reach(r *rand.Rand) uint64 {
	n := m.slots
	spans := []uint64{1, n, 2 * n, n * lists, n * lists * lists, n * lists * lists * lists, n * n, n * n * n, 1 << 40, 1 << 62}
	span := spans[r.IntN(len(spans))] * uint64(1+r.IntN(3))
	ticks := max(span+uint64(r.IntN(3))-1, 1)
	return min(ticks, never-1-m.now)
}

// look has the layout tell how many entries are near in each slot, and search for those that are due first.
// The look may move entries a level down.
func (m *modelled) look(r *rand.Rand) {
	m.Helper()
	allowed := []int{0, 1, 1000}[r.IntN(3)]
	moves := allowed
	for i := range m.slots {
		want := 0 // that the hand meets on its next way round
		for _, e := range m.model {
			if e.at%m.slots == i && e.at-m.now <= m.slots {
				want++
			}
		}
		n := m.near(i, &moves)
		if _, hashed := m.checked.(*ring); n > want || hashed && allowed == 1000 && n != want {
			m.Fatalf("%d entries are near in slot %d, want %d", n, i, want)
		}
	}
	if moves < 0 || m.verify() > allowed-moves {
		m.Fatalf("of %d moves %d were left, and more were made", allowed, moves)
	}
	s := search{steps: math.MaxInt}
	m.search(&s)
	var from uint64
	found := make(map[*entry]bool)
	for s.Len() > 0 {
		p := heap.Pop(&s).(part)
		if p.from < from {
			m.Fatalf("a part from %d comes after one from %d", p.from, from)
		}
		from = p.from
		entries := m.open(&s, p)
		for e := range entries.all() {
			if e.at < p.from || found[e] {
				m.Fatalf("an entry for %d is in a part from %d, or in two", e.at, p.from)
			}
			found[e] = true
		}
	}
	if len(found) != len(m.model) {
		m.Fatalf("the search found %d entries of %d", len(found), len(m.model))
	}
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
		m.advance(m.now + uint64(r.IntN(2))*min(m.slots, never-1-m.now))
	case k < 90 && len(m.model) > 0: // to the very tick of an entry, or to the last before
		m.advance(max(m.now, m.model[r.IntN(len(m.model))].at-uint64(r.IntN(2))))
	case k < 94:
		m.look(r)
	case k < 98 && m.next() != never: // next to the next visit
		m.advance(min(m.next(), never-2) + uint64(r.IntN(3)) - 1)
	case k == 98:
		m.advance(m.now + m.reach(r)/4)
	case k == 99:
		m.empty()
	}
}

func TestLayout_anyOperationsFromAnyStart_isAsASortedList(t *testing.T) {
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
				m.advance(never - 1)
				if len(m.model) != 0 {
					t.Fatalf("from %d: at the end of time %d entries wait still", start, len(m.model))
				}
			}
		})
	}
}

// The placements of the design: every number of slots up to 9, every start up to 20, every delay up to 40.
func TestLayout_everySmallPlacement_comesOutAtItsTick(t *testing.T) {
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
						if len(m.advance(tick)) > 0 {
							break
						}
						if tick%uint64(n) == uint64(slot) {
							met++
						}
					}
					if e.linked() || m.now != at || circle != met || slot != int(at)%n {
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
