// SPDX-License-Identifier: MIT

package timewheel

// A tree is a tournament tree: it holds a tick for each of n leaves and maintains the least of them. Each node holds
// the least tick of fanIn nodes on the level below. Reading the least tick is one load; changing a leaf compares at
// most fanIn neighbours on each level. 4,096 leaves take two levels, and a million leaves take four.
type tree [][]uint64

const fanIn = 64

// newTree returns a tree whose leaves are all never.
func newTree(n int) tree {
	var t tree
	for {
		level := make([]uint64, n)
		for i := range level {
			level[i] = never
		}
		t = append(t, level)
		if n == 1 {
			return t
		}
		n = (n + fanIn - 1) / fanIn
	}
}

func (t tree) least() uint64 { return t[len(t)-1][0] }

// leaf returns a leaf with the least tick.
func (t tree) leaf() (i int) {
	for l := len(t) - 2; l >= 0; l-- {
		i *= fanIn
		for t[l][i] != t.least() {
			i++
		}
	}
	return i
}

// set sets the tick of leaf i.
func (t tree) set(i int, tick uint64) {
	for l, level := range t {
		old := level[i]
		if tick == old {
			return
		}
		level[i] = tick
		if l == len(t)-1 {
			return
		}
		i /= fanIn
		switch group := t[l+1][i]; {
		case tick < group:
		case old == group: // the old tick was the least of the group: find the new least tick
			for _, u := range level[i*fanIn : min(i*fanIn+fanIn, len(level))] {
				tick = min(tick, u)
			}
		default:
			return
		}
	}
}

// upTo yields the leaves whose tick is no later than the given one, starting at first and wrapping around.
func (t tree) upTo(tick uint64, first int, yield func(i int) bool) {
	n := len(t[0])
	for k := 0; k < n; {
		i := (first + k) % n
		if i%fanIn == 0 && len(t) > 1 && t[1][i/fanIn] > tick {
			k += min(fanIn, n-i) // no leaf of this group qualifies
			continue
		}
		if t[0][i] <= tick && !yield(i) {
			return
		}
		k++
	}
}
