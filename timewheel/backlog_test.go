// SPDX-License-Identifier: MIT

package timewheel

import (
	"slices"
	"testing"
)

// checkBacklog fails the test if b does not hold exactly the given entries, in that order, or if a node
// that is not in use keeps one from the collector.
func checkBacklog(t *testing.T, b *backlog, want []*entry) {
	t.Helper()
	if got := slices.Collect(b.all()); !slices.Equal(got, want) || b.length != len(want) {
		t.Fatalf("%d entries wait in some order, and length is %d, want %d", len(got), b.length, len(want))
	}
	held := 0
	for _, block := range b.blocks {
		for i := range block {
			if block[i].e != nil {
				held++
			}
		}
	}
	if held != len(want) {
		t.Fatalf("the nodes hold %d entries, want %d", held, len(want))
	}
}

func TestBacklog_anyOrderOfOperations_isAsASlice(t *testing.T) {
	r := random(4)
	var b backlog
	var model []*entry
	due := make(map[*entry]uint64)
	taken := func(n node) {
		t.Helper()
		if n.e.node != 0 {
			t.Fatal("what was taken out knows a place still")
		}
		if n.due != due[n.e] || n.handed != n.due+1 {
			t.Fatalf("a run due at %d came out as due %d, handed over %d", due[n.e], n.due, n.handed)
		}
	}
	for step := range 20_000 {
		grow := step/2000%2 == 0 // there and back again, over more than a block
		switch k := r.IntN(4); {
		case len(model) == 0 || grow && k > 0 || k == 0:
			e := new(entry)
			due[e] = r.Uint64() >> 1
			b.push(e, due[e], due[e]+1)
			model = append(model, e)
		case k == 1:
			n := b.pop()
			if n.e != model[0] {
				t.Fatalf("step %d: what came out is not the first", step)
			}
			taken(n)
			model = model[1:]
		default:
			i := r.IntN(len(model))
			n := b.remove(model[i])
			if n.e != model[i] {
				t.Fatalf("step %d: another entry was taken out", step)
			}
			taken(n)
			model = slices.Delete(model, i, i+1)
		}
		if step%50 == 0 || len(model) < 5 {
			checkBacklog(t, &b, model)
		}
	}
	checkBacklog(t, &b, model)
}

func TestBacklog_all_stopsWhenToldTo(t *testing.T) {
	var b backlog
	for range b.all() {
		t.Fatal("an empty backlog yields something")
	}
	first := new(entry)
	b.push(first, 1, 1)
	b.push(new(entry), 2, 2)
	n := 0
	for e := range b.all() {
		n++
		if e != first {
			t.Error("what is yielded first did not come first")
		}
		break
	}
	if n != 1 {
		t.Errorf("after a break %d entries were yielded", n)
	}
}

func TestBacklog_nodes_areUsedAgain(t *testing.T) {
	var b backlog
	entries := make([]entry, blockSize)
	for range 100 {
		for i := range entries {
			b.push(&entries[i], 0, 0)
		}
		for range entries {
			b.pop()
		}
	}
	if len(b.blocks) != 1 || b.fresh != blockSize {
		t.Errorf("a backlog of one block at a time has %d, and took %d nodes into use", len(b.blocks), b.fresh)
	}
	if allocs := testing.AllocsPerRun(100, func() {
		b.push(&entries[0], 0, 0)
		b.pop()
	}); allocs != 0 {
		t.Errorf("a run that waits costs %v allocations", allocs)
	}
}

func TestBacklog_blocks_areGivenBackAfterABurst(t *testing.T) {
	for _, c := range []struct{ entries, left int }{
		{keepBlocks * blockSize, keepBlocks},
		{keepBlocks*blockSize + 1, 0},
	} {
		var b backlog
		entries := make([]entry, c.entries)
		for round := range 2 { // it must be good for another burst
			for i := range entries {
				b.push(&entries[i], 0, 0)
			}
			for i := range entries {
				if n := b.pop(); n.e != &entries[i] {
					t.Fatalf("round %d: number %d of %d is another", round, i, c.entries)
				}
			}
			checkBacklog(t, &b, nil)
			if len(b.blocks) != c.left {
				t.Errorf("round %d: after %d entries there are %d blocks, want %d",
					round, c.entries, len(b.blocks), c.left)
			}
		}
	}
}
