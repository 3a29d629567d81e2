// SPDX-License-Identifier: MIT

package timewheel

// minima holds a number per slot and knows the least of them: a tournament, in which each number of a level
// is the least of fanIn numbers of the level below. It is what lets the loop sleep: to read the least is one
// load, and a change looks at fanIn neighbours on each level at worst. 4,096 slots have two levels, a million
// has four.
type minima [][]uint64

const fanIn = 64

func newMinima(n int) minima {
	var m minima
	for {
		level := make([]uint64, n)
		for i := range level {
			level[i] = never
		}
		m = append(m, level)
		if n == 1 {
			return m
		}
		n = (n + fanIn - 1) / fanIn
	}
}

// search adds group i of a level to the search: it opens into the slots that it is the least of, and leaf adds one.
func (m minima) search(s *search, level, i int, leaf func(i int)) {
	if m[level][i] == never {
		return
	}
	if level == 0 {
		leaf(i)
		return
	}
	s.add(part{from: m[level][i], open: func() {
		for j := i * fanIn; j < min(i*fanIn+fanIn, len(m[level-1])); j++ {
			m.search(s, level-1, j, leaf)
		}
	}})
}

func (m minima) least() uint64 { return m[len(m)-1][0] }

func (m minima) set(i int, v uint64) {
	for l, level := range m {
		old := level[i]
		if v == old {
			return
		}
		level[i] = v
		if l == len(m)-1 {
			return
		}
		i /= fanIn
		switch group := m[l+1][i]; {
		case v < group:
		case old == group: // the least of the group may have gone
			for _, u := range level[i*fanIn : min(i*fanIn+fanIn, len(level))] {
				v = min(v, u)
			}
		default:
			return
		}
	}
}
