// SPDX-License-Identifier: MIT

package timewheel

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A modelled ring goes through its operations beside the plainest model there is. After each it is checked
// that the two agree, that the ring is in order, and that the operation touched what it may.
type modelled struct {
	*testing.T
	*ring
	model []*entry // in the order of their placement
	links map[*entry]links
	moves map[*entry]int // how often a waiting entry may still be moved
}

// links is where an entry hangs.
type links struct {
	prev, next *entry
	shift      uint8
}

func newModelled(t *testing.T, slots int, passed uint64) *modelled {
	return &modelled{
		T: t, ring: newRing(slots, passed),
		links: make(map[*entry]links), moves: make(map[*entry]int),
	}
}

func (m *modelled) linksOf(e *entry) links {
	n := uint64(len(m.slots))
	return links{e.prev, e.next, m.slots[e.at%n].shiftOf(e.at / n)}
}

// verify compares the ring with the model. The entries given, and those that moved a level down, may have
// got other neighbours; all others must not have been touched. It returns how many moved.
func (m *modelled) verify(may ...*entry) (moved int) {
	m.Helper()
	checkRing(m.T, m.ring, len(m.model))
	least := uint64(never)
	for _, e := range m.model {
		least = min(least, e.at)
		old, known := m.links[e]
		now := m.linksOf(e)
		switch {
		case !known:
			m.moves[e] = int(now.shift) / digitBits
		case now.shift != old.shift:
			moved++
			m.moves[e]--
			if now.shift > old.shift || m.moves[e] < 0 {
				m.Fatalf("entry at %d was moved from level %d to %d", e.at, old.shift, now.shift)
			}
		case now != old && !slices.Contains(may, e):
			m.Fatalf("now %d: entry at %d was touched", m.now, e.at)
		}
		m.links[e] = now
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
	slices.SortStableFunc(want, func(a, b *entry) int { return cmp.Compare(a.at, b.at) })
	for m.next() <= tick {
		next, before := m.next(), len(due)
		list := m.visit()
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
	m.verify()
	if !slices.Equal(due, want) {
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

// reach draws a number of ticks, from one to many revolutions and next to what may be a boundary of the ring.
func (m *modelled) reach(r *rand.Rand) uint64 {
	n := uint64(len(m.slots))
	spans := []uint64{1, n, 2 * n, n * lists, n * lists * lists, n * lists * lists * lists, 1 << 40, 1 << 62}
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
		m.advance(m.now + uint64(r.IntN(2))*min(uint64(len(m.slots)), never-1-m.now))
	case k < 90 && len(m.model) > 0: // to the very tick of an entry, or to the last before
		m.advance(max(m.now, m.model[r.IntN(len(m.model))].at-uint64(r.IntN(2))))
	case k < 98 && m.next() != never: // next to the next visit
		m.advance(min(m.next(), never-2) + uint64(r.IntN(3)) - 1)
	case k == 98:
		m.advance(m.now + m.reach(r)/4)
	case k == 99:
		m.empty()
	}
}

func TestRing_anyOperationsFromAnyStart_isAsASortedList(t *testing.T) {
	starts := []uint64{0, 1<<31 - 100, 1<<32 - 100, 1<<53 - 100, math.MaxInt64 - 100, 3 << 62, never - 1000}
	for _, slots := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 64, 1000} {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			for i, start := range starts {
				r := random(uint64(i))
				m := newModelled(t, slots, start)
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
func TestRing_everySmallPlacement_comesOutAtItsTick(t *testing.T) {
	placements := 0
	for n := 1; n <= 9; n++ {
		for now := uint64(0); now <= 20; now++ {
			for delay := uint64(1); delay <= 40; delay++ {
				placements++
				at := now + delay
				m := newModelled(t, n, now)
				slot, circle := m.position(at, now)
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
}

func TestRing_position_ofWhatHasPassed_isNoCircleAhead(t *testing.T) {
	r := newRing(60, 100)
	for at := uint64(0); at <= 100; at++ {
		if slot, circle := r.position(at, 100); slot != int(at)%60 || circle != 0 {
			t.Errorf("tick %d is in slot %d, circle %d", at, slot, circle)
		}
	}
}

func TestRing_visit_handsOutInOrderOfPlacement(t *testing.T) {
	const slots = 7
	m := newModelled(t, slots, 0)
	var want []*entry
	at := uint64(slots * lists * lists * 3) // two levels up, at first
	for at > m.now+1 {
		want = append(want, m.add(at))
		m.advance(m.now + (at-m.now)/2) // nearer, so that the next is placed in a lower level
	}
	want = append(want, m.add(at))
	if got := m.advance(at); !slices.Equal(got, want) {
		t.Errorf("%d entries of one tick came out in another order than they went in", len(want))
	}
}

func TestRing_visit_touchesOnlyWhatIsDue(t *testing.T) {
	const slots, each = 4, 3
	m := newModelled(t, slots, 0)
	for range each {
		for at := uint64(1); at < slots*lists; at++ {
			m.add(at)
		}
	}
	before := maps.Clone(m.links)
	for len(m.model) > 0 {
		if due := m.advance(m.next()); len(due) != each {
			t.Fatalf("%d entries were due at %d, want %d", len(due), m.now, each)
		}
		for _, e := range m.model {
			if m.links[e] != before[e] {
				t.Fatalf("the visit of tick %d touched an entry that is due at %d", m.now, e.at)
			}
		}
	}
}

// Nor does a visit look at what is not due: whoever follows the links of that falls off their end here.
func TestRing_visit_readsOnlyWhatIsDue(t *testing.T) {
	const slots, each = 4, 3
	r := newRing(slots, 0)
	var all []*entry
	for range each {
		for at := uint64(1); at < slots*lists; at++ {
			e := &entry{at: at}
			r.place(e)
			all = append(all, e)
		}
	}
	type links struct{ prev, next *entry }
	for tick := uint64(1); tick < slots*lists; tick++ {
		cut := make(map[*entry]links)
		for _, e := range all {
			if e.at > tick {
				cut[e] = links{e.prev, e.next}
				e.prev, e.next = nil, nil
			}
		}
		due := r.visit()
		for e, l := range cut {
			e.prev, e.next = l.prev, l.next
		}
		n := 0
		for e := due.popFront(); e != nil; e = due.popFront() {
			if n++; e.at != tick {
				t.Fatalf("the visit of tick %d hands out an entry that is due at %d", tick, e.at)
			}
		}
		if n != each {
			t.Fatalf("%d entries were due at %d, want %d", n, tick, each)
		}
	}
}

func TestRing_farTasks_moveOnceALevelAtMost(t *testing.T) {
	for _, c := range []struct{ revolutions, moves int }{
		{lists, 0},
		{lists * lists, 1},
		{lists * lists * lists, 2},
	} {
		r := random(5)
		m := newModelled(t, 1, 0)
		for range 300 {
			m.add(1 + uint64(r.IntN(c.revolutions-1)))
		}
		most, left := 0, maps.Clone(m.moves)
		for _, n := range left {
			most = max(most, n)
		}
		if most != c.moves {
			t.Errorf("within %d revolutions an entry may be moved %d times, want %d", c.revolutions, most, c.moves)
		}
		entries := slices.Clone(m.model)
		total, visits := 0, 0
		for len(m.model) > 0 {
			m.advance(m.next()) // fails when one is moved more often than it has levels below it
			visits++
			for _, e := range m.model {
				total += left[e] - m.moves[e]
				left[e] = m.moves[e]
			}
		}
		if limit := len(entries) * c.moves; total > limit || visits > len(entries)+limit {
			t.Errorf("%d entries within %d revolutions were moved %d times in %d visits",
				len(entries), c.revolutions, total, visits)
		}
	}
}

func TestRing_place_atATickThatHasPassed_panics(t *testing.T) {
	for _, at := range []uint64{0, 9, 10} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("tick %d was accepted at tick 10", at)
				}
			}()
			newRing(4, 10).place(&entry{at: at})
		}()
	}
}

func TestRing_levels_areUsedAgainElsewhere(t *testing.T) {
	const slots = 1000
	r := newRing(slots, 0)
	near, far := new(entry), new(entry)
	tick := uint64(0)
	turn := func() {
		near.at, far.at = tick+1, tick+1+slots*lists
		r.place(near)
		r.place(far)
		r.unlink(far)
		tick = r.next()
		if list := r.visit(); list.popFront() != near {
			t.Fatalf("tick %d: nothing came out", tick)
		}
	}
	turn()
	if allocs := testing.AllocsPerRun(2*slots, turn); allocs != 0 {
		t.Errorf("with two levels at a time, each turn costs %v allocations", allocs)
	}
	if r.spares != 2 {
		t.Errorf("%d levels were made, want 2", r.spares)
	}
	checkRing(t, r, 0)
}

func TestRing_levels_returnTheirMemoryAfterABurst(t *testing.T) {
	const slots = 4 * maxSpares
	for name, empty := range map[string]func(r *ring, entries []entry){
		"unlink": func(r *ring, entries []entry) {
			for i := range entries {
				r.unlink(&entries[i])
			}
		},
		"visit": func(r *ring, _ []entry) {
			for r.next() != never {
				list := r.visit()
				list.popFront()
			}
		},
		"drain": func(r *ring, _ []entry) { r.drain(func(*entry) {}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRing(slots, 0)
			entries := make([]entry, slots)
			for i := range entries {
				entries[i].at = uint64(i) + 1 + slots*lists
				r.place(&entries[i])
			}
			checkRing(t, r, slots)
			empty(r, entries)
			checkRing(t, r, 0)
			spares := 0
			for l := r.spare; l != nil; l = l.up {
				spares++
				if l.occupied != 0 || l.lists != [lists]list{} {
					t.Fatal("a spare level keeps something")
				}
			}
			if spares != r.spares || spares > maxSpares {
				t.Errorf("%d levels are kept, the ring says %d, want %d at most", spares, r.spares, maxSpares)
			}
			for i := range r.slots {
				if r.slots[i].levels != nil {
					t.Fatalf("the empty slot %d keeps a level", i)
				}
			}
		})
	}
}
