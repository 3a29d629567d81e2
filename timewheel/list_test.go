// SPDX-License-Identifier: MIT

package timewheel

import (
	"slices"
	"testing"
)

// checkList fails the test if l does not hold exactly the given entries, forwards and backwards.
func checkList(t *testing.T, l *list, want []*entry) {
	t.Helper()
	if l.empty() != (len(want) == 0) {
		t.Fatalf("empty is %v with %d entries", l.empty(), len(want))
	}
	e := l.head
	for i, w := range want {
		if e != w {
			t.Fatalf("number %d of %d is the wrong entry", i, len(want))
		}
		if e.next.prev != e || e.prev.next != e {
			t.Fatalf("number %d of %d is linked to strangers", i, len(want))
		}
		e = e.next
	}
	if e != l.head {
		t.Fatalf("after %d entries the ring is not closed", len(want))
	}
}

func TestList_anyOrderOfOperations_isAsASlice(t *testing.T) {
	r := random(3)
	var l list
	var model []*entry
	for step := range 20_000 {
		var out *entry
		switch k := r.IntN(5); {
		case k < 2 && len(model) < 20:
			e := new(entry)
			l.pushBack(e)
			model = append(model, e)
		case k < 4 && len(model) > 0:
			i := r.IntN(len(model))
			out = model[i]
			l.remove(out)
			model = slices.Delete(model, i, i+1)
		default:
			out = l.popFront()
			if (out == nil) != (len(model) == 0) {
				t.Fatalf("step %d: of %d entries the first is %v", step, len(model), out)
			}
			if out != nil {
				if out != model[0] {
					t.Fatalf("step %d: what came out is not the first", step)
				}
				model = model[1:]
			}
		}
		if out != nil && (out.linked() || out.prev != nil) {
			t.Fatalf("step %d: what was taken out is linked still", step)
		}
		checkList(t, &l, model)
	}
}

func TestList_takeAll_letsEachGoElsewhere(t *testing.T) {
	for n := range 5 {
		var from, to list
		var want []*entry
		for range n {
			e := new(entry)
			from.pushBack(e)
			want = append(want, e)
		}
		from.takeAll(func(e *entry) {
			if e.linked() || e.prev != nil {
				t.Fatal("an entry is given out linked")
			}
			to.pushBack(e)
		})
		checkList(t, &from, nil)
		checkList(t, &to, want)
	}
}

func TestList_takeEnds_meetsInTheMiddle(t *testing.T) {
	for n := range 6 {
		var from, front, back list
		var want []*entry
		for range n {
			e := new(entry)
			from.pushBack(e)
			want = append(want, e)
		}
		take := func(to *list) func(e *entry) {
			return func(e *entry) {
				if e.linked() || e.prev != nil {
					t.Fatal("an entry is given out linked")
				}
				to.pushBack(e)
			}
		}
		from.takeEnds(take(&front), take(&back))
		checkList(t, &from, nil)
		checkList(t, &front, want[:(n+1)/2])
		slices.Reverse(want)
		checkList(t, &back, want[:n/2])
	}
}

// Adding and removing take the same time whatever is there: they follow the links of the neighbours
// alone. All others are cut off here, so that whoever walks the list falls off its end.
func TestList_addAndRemove_touchNoneButTheNeighbours(t *testing.T) {
	const n = 9
	cutOff := func(entries []*entry, but ...*entry) {
		for _, e := range entries {
			if !slices.Contains(but, e) {
				e.prev, e.next = nil, nil
			}
		}
	}
	var l list
	fill := func() (entries []*entry) {
		l = list{}
		for range n {
			e := new(entry)
			l.pushBack(e)
			entries = append(entries, e)
		}
		return entries
	}
	for i := range n {
		entries := fill()
		before, after := entries[(i+n-1)%n], entries[(i+1)%n]
		cutOff(entries, before, entries[i], after)
		l.remove(entries[i])
		if before.next != after || after.prev != before {
			t.Errorf("with number %d taken out its neighbours are not linked", i)
		}
	}
	entries := fill()
	first, last := entries[0], entries[n-1]
	cutOff(entries, first, last)
	e := new(entry)
	l.pushBack(e)
	if l.head != first || first.prev != e || last.next != e || e.prev != last || e.next != first {
		t.Error("what was added is not between the last and the first")
	}
}
