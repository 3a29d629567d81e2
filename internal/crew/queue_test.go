// SPDX-License-Identifier: MIT

package crew

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// check fails the test unless q contains exactly the given items, in that order, and keeps no reference to any other
// item.
func check(t *testing.T, q *Queue[*int], want []*int) {
	t.Helper()
	if got := slices.Collect(q.All); !slices.Equal(got, want) || q.Len() != len(want) {
		t.Fatalf("%d items wait in some order, and Len is %d, want %d", len(got), q.Len(), len(want))
	}
	if first, ok := q.First(); ok != (len(want) > 0) || ok && first != want[0] {
		t.Fatal("First is not the first")
	}
	held, blocks := 0, 0
	for n, b := range q.blocks {
		if b == nil {
			if !slices.Contains(q.free, uint32(n)) {
				t.Fatalf("block %d is lost", n)
			}
			continue
		}
		blocks++
		if b.number != uint32(n) {
			t.Fatalf("block %d has the number %d", n, b.number)
		}
		for _, v := range b.items {
			if v != nil {
				held++
			}
		}
	}
	if held != len(want) || blocks > len(want)+1 {
		t.Fatalf("%d blocks hold %d items, want %d", blocks, held, len(want))
	}
	spares := 0
	for s := q.spare; s != nil; s = s.next {
		if spares++; s.full != 0 || s.end != 0 || s.prev != nil || s.items != [BlockSize]*int{} {
			t.Fatal("a spare block is not empty")
		}
	}
	if spares != q.spares || spares > BlockSize {
		t.Fatalf("%d blocks are spare, and it counts %d", spares, q.spares)
	}
}

func TestQueue_anyOrderOfOperations_isAsASlice(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 0))
	var q Queue[*int]
	var model []*int
	number := make(map[*int]uint32)
	for step := range 40_000 {
		grow := step/2000%2 == 0 // there and back again, over many blocks
		switch k := r.IntN(4); {
		case len(model) == 0 || grow && k > 0 || k == 0:
			v := new(int)
			number[v] = q.Next()
			q.Push(v)
			model = append(model, v)
		case k == 1:
			v, ok := q.Pop()
			if !ok || v != model[0] {
				t.Fatalf("step %d: what came out is not the first", step)
			}
			model = model[1:]
			if _, ok := q.Withdraw(number[v], func(o *int) bool { return o == v }); ok {
				t.Fatalf("step %d: what is gone was withdrawn", step)
			}
		default:
			i := r.IntN(len(model))
			is := func(o *int) bool { return o == model[i] }
			found, _ := q.Find(number[model[i]], is)
			v, ok := q.Withdraw(number[model[i]], is)
			if !ok || v != model[i] || found != v {
				t.Fatalf("step %d: another item was taken out", step)
			}
			model = slices.Delete(model, i, i+1)
		}
		if step%50 == 0 || len(model) < 5 {
			check(t, &q, model)
		}
	}
	for range model {
		q.Pop()
	}
	check(t, &q, nil)
	if _, ok := q.Pop(); ok {
		t.Error("an empty queue has something")
	}
	if _, ok := q.Withdraw(1<<29-1, func(*int) bool { return true }); ok {
		t.Error("a block that there never was has something")
	}
}

func TestQueue_all_stopsWhenToldTo(t *testing.T) {
	var q Queue[int]
	for i := range 3 * BlockSize {
		q.Push(i)
	}
	n := 0
	for v := range q.All {
		if v != n {
			t.Fatalf("number %d is %d", n, v)
		}
		if n++; n == BlockSize+1 {
			break
		}
	}
}

func TestQueue_steadyFlow_allocatesNothing(t *testing.T) {
	var q Queue[*int]
	v := new(int)
	turn := func() {
		for range BlockSize * BlockSize {
			q.Push(v)
		}
		for range BlockSize * BlockSize {
			q.Pop()
		}
	}
	turn()
	if allocs := testing.AllocsPerRun(100, turn); allocs != 0 {
		t.Errorf("items that wait cost %v allocations", allocs)
	}
}

func TestQueue_space_isGivenBackAfterABurst(t *testing.T) {
	var q Queue[int]
	for round := range 2 { // it must work for another burst
		for i := range 100 * BlockSize {
			q.Push(i)
		}
		for i := range 100 * BlockSize {
			if v, _ := q.Pop(); v != i {
				t.Fatalf("round %d: number %d is %d", round, i, v)
			}
		}
		if len(q.blocks) != 1 || len(q.free) != 0 {
			t.Errorf("round %d: after a burst there is room for %d blocks", round, len(q.blocks))
		}
	}
}
