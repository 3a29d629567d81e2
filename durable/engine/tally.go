// SPDX-License-Identifier: MIT

package engine

// A Tally counts tasks by kind.
type Tally map[string]*KindCount

// Add counts a task n times; n may be negative. failing is the task's Write.Failing.
func (t Tally) Add(kind string, due int64, failing bool, n int) {
	k := t[kind]
	if k == nil {
		k = &KindCount{Kind: kind}
		t[kind] = k
	}
	k.Tasks += n
	switch due {
	case PausedDue:
		k.Paused += n
		failing = false
	case ParkedDue:
		k.Parked += n
	}
	if failing {
		k.Failing += n
	}
	if *k == (KindCount{Kind: kind}) {
		delete(t, kind)
	}
}

// Kinds returns the counts in no particular order.
func (t Tally) Kinds() []KindCount {
	kinds := make([]KindCount, 0, len(t))
	for _, k := range t {
		kinds = append(kinds, *k)
	}
	return kinds
}
