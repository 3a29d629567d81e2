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
