// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// dueSpreads are the widths of what falls due at one tick, from one instant to all that a due time can be.
var dueSpreads = map[string]uint64{
	"none": 1, "byte": 1 << 8, "tick of 10 ms": 10_000_000, "hour": 3_600_000_000_000, "all": never,
}

// fillSlot returns a slot with n entries of tick 7, due at random from base on, as they are in it.
func fillSlot(rnd *rand.Rand, n int, base, spread uint64) (*list, []*entry) {
	var slot list
	all := make([]*entry, n)
	for i := range all {
		e := &entry{at: 7}
		e.due.Store(base + rnd.Uint64N(spread))
		slot.pushBack(e)
		all[i] = e
	}
	return &slot, all
}

func TestDueList_anySlot_isTakenInDueOrderAndKeepsTies(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 5))
	var d dueList
	for name, spread := range dueSpreads {
		for _, n := range []int{0, 1, 2, 3, 4, radixFrom - 1, radixFrom, radixFrom + 1, 5_000, keepDue + 1} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				slot, want := fillSlot(rnd, n, never-spread, spread)
				slices.SortStableFunc(want, func(a, b *entry) int { return byDue(dueOf(a), dueOf(b)) })
				d.take(slot, 7)
				if !slot.empty() {
					t.Error("the slot is not empty")
				}
				got := make([]*entry, 0, n)
				for _, e := range d.entries {
					if e.due != e.entry.due.Load() {
						t.Fatalf("an entry due at %d is in the list at %d", e.entry.due.Load(), e.due)
					}
					if e.linked() {
						t.Fatal("an entry is still linked")
					}
					got = append(got, e.entry)
				}
				if !slices.Equal(got, want) {
					t.Error("the list is not in due order, with ties as they were in the slot")
				}
				d.reset()
			})
		}
	}
}

func dueOf(e *entry) dueEntry { return dueEntry{e.due.Load(), e} }

func TestDueList_added_stayInOrder(t *testing.T) {
	var d dueList
	for due := range uint64(3) {
		e := new(entry)
		e.due.Store(due)
		d.add(e)
	}
	for i, e := range d.entries {
		if e.due != uint64(i) {
			t.Errorf("entry %d is due at %d", i, e.due)
		}
	}
}

func BenchmarkDueList_take(b *testing.B) {
	for _, n := range []int{10, radixFrom / 2, radixFrom, 5_000, 100_000} {
		_, all := fillSlot(rand.New(rand.NewPCG(3, 5)), n, 1<<40, 10_000_000)
		entries := make([]dueEntry, n)
		run := func(name string, sort func(d *dueList)) {
			b.Run(fmt.Sprintf("%s/entries=%d", name, n), func(b *testing.B) {
				d := dueList{entries: slices.Clone(entries), other: make([]dueEntry, n)}
				for b.Loop() {
					for i, e := range all {
						d.entries[i] = dueOf(e)
					}
					sort(&d)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/entry")
			})
		}
		run("radix", func(d *dueList) { d.radixSort() })
		run("library", func(d *dueList) { slices.SortStableFunc(d.entries, byDue) })
	}
}
