// SPDX-License-Identifier: MIT

package timewheel

import (
	"maps"
	"slices"
	"testing"
)

func TestRing_visit_handsOutInOrderOfPlacement(t *testing.T) {
	const slots = 7
	m := newModelled(t, Hashed, slots, 0)
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
	m := newModelled(t, Hashed, slots, 0)
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
		m := newModelled(t, Hashed, 1, 0)
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
