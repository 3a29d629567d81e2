// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"slices"
	"testing"
)

func TestMinima_anySets_leastIsThatOfALinearScan(t *testing.T) {
	for _, n := range []int{1, 2, 63, 64, 65, 4096, 4097} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := random(uint64(n))
			m := newMinima(n)
			model := make([]uint64, n)
			for i := range model {
				model[i] = never
			}
			for step := range 4000 {
				i, v := r.IntN(n), uint64(r.IntN(50)) // few values, so that the least is there more than once
				switch r.IntN(4) {
				case 0:
					v = never
				case 1:
					v += uint64(step) // the hand goes on: the least goes away, and a greater comes in
					i = slices.Index(model, slices.Min(model))
				}
				m.set(i, v)
				model[i] = v
				if got, want := m.least(), slices.Min(model); got != want {
					t.Fatalf("step %d: after %d at %d the least is %d, want %d", step, v, i, got, want)
				}
			}
			if !slices.Equal(m[0], model) {
				t.Error("the numbers themselves are not what was set")
			}
		})
	}
}

func TestMinima_new_hasNothing(t *testing.T) {
	for _, n := range []int{1, 64, 65, 4097} {
		m := newMinima(n)
		if m.least() != never {
			t.Errorf("the least of %d unset numbers is %d", n, m.least())
		}
		for i := range n {
			m.set(i, never) // no change
		}
		if m.least() != never {
			t.Errorf("the least of %d times never is %d", n, m.least())
		}
	}
}
