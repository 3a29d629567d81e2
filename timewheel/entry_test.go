// SPDX-License-Identifier: MIT

package timewheel

import (
	"slices"
	"testing"
	"unsafe"
)

// With one more word each task would take 16 more bytes, and two cache lines.
func TestEntry_fitsALineOfTheCache(t *testing.T) {
	if size := unsafe.Sizeof(entry{}); size > 64 {
		t.Errorf("an entry has %d bytes, more than 64", size)
	}
}

func TestBucket_anyOrderOfOperations_isAsASet(t *testing.T) {
	r := random(3)
	var b, other bucket
	stranger := new(entry)
	for range 3 {
		other.add(new(entry))
	}
	other.add(stranger)
	model := make(map[*entry]bool)
	for step := range 20_000 {
		if len(model) == 0 || step/500%2 == 0 && r.IntN(3) > 0 {
			e := new(entry)
			b.add(e)
			model[e] = true
		} else {
			e := b[r.IntN(len(b))]
			b.remove(e)
			if delete(model, e); e.placed() || slices.Contains(b, e) {
				t.Fatalf("step %d: what was taken out is there still", step)
			}
		}
		if len(b) != len(model) || b.has(stranger) {
			t.Fatalf("step %d: the bucket has %d entries, want %d, or a stranger", step, len(b), len(model))
		}
		for _, e := range b {
			if !model[e] || !b.has(e) {
				t.Fatalf("step %d: the bucket has another entry, or does not know it", step)
			}
		}
		if slices.ContainsFunc(b[len(b):cap(b)], func(e *entry) bool { return e != nil }) {
			t.Fatalf("step %d: an entry that is gone is kept from the collector", step)
		}
	}
}
