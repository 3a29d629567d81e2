// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

func TestTree_anySets_isAsALinearScan(t *testing.T) {
	testkit.NotForRaces(t)
	for _, n := range []int{1, 2, 63, 64, 65, 4096, 4097} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := random(uint64(n))
			tree := newTree(n)
			model := make([]uint64, n)
			for i := range model {
				model[i] = never
			}
			for step := range 4000 {
				i, v := r.IntN(n), uint64(r.IntN(50)) // few values, so that the least occurs more than once
				switch r.IntN(4) {
				case 0:
					v = never
				case 1:
					v += uint64(step) // the hand moves on: the least is removed, and a greater value is added
					i = slices.Index(model, slices.Min(model))
				}
				tree.set(i, v)
				model[i] = v
				least := slices.Min(model)
				if got := tree.least(); got != least {
					t.Fatalf("step %d: after %d at %d the least is %d, want %d", step, v, i, got, least)
				}
				if got := tree.leaf(); model[got] != least {
					t.Fatalf("step %d: leaf %d has %d, and the least is %d", step, got, model[got], least)
				}
				if step%100 == 0 {
					upTo, first := uint64(r.IntN(step+50)), r.IntN(n)
					var want, got []int
					for k := range n {
						if i := (first + k) % n; model[i] <= upTo {
							want = append(want, i)
						}
					}
					want = want[:min(len(want), 1+r.IntN(n))]
					tree.upTo(upTo, first, func(i int) bool {
						got = append(got, i)
						return len(got) < len(want)
					})
					if len(want) > 0 && !slices.Equal(got, want) {
						t.Fatalf("step %d: up to %d from %d there are %v, want %v", step, upTo, first, got, want)
					}
				}
			}
			if !slices.Equal(tree[0], model) {
				t.Error("the ticks themselves are not what was set")
			}
		})
	}
}

func TestTree_new_hasNothing(t *testing.T) {
	for _, n := range []int{1, 64, 65, 4097} {
		tree := newTree(n)
		for i := range n {
			tree.set(i, never) // no change
		}
		if tree.least() != never {
			t.Errorf("the least of %d times never is %d", n, tree.least())
		}
		tree.upTo(never-1, 0, func(i int) bool {
			t.Errorf("leaf %d of a new tree has a tick", i)
			return true
		})
	}
}
