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

// search adds all slots to the search as one group, of the given number.
func (m minima) search(s *search, number int) { m.searchGroup(s, number, len(m)-1, 0) }

func (m minima) searchGroup(s *search, number, level, i int) {
	if from := m[level][i]; from != never {
		s.add(part{from: from, number: number, level: level, i: i})
	}
}

// open adds what the group is made of.
func (m minima) open(s *search, p part) {
	for i := p.i * fanIn; i < min(p.i*fanIn+fanIn, len(m[p.level-1])); i++ {
		m.searchGroup(s, p.number, p.level-1, i)
	}
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
