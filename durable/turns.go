// SPDX-License-Identifier: MIT

package durable

import (
	"slices"

	"github.com/google/btree"
)

// turns is a queue in which the groups take turns. Those of one group are in due order.
type turns struct {
	of   map[string]*btree.BTreeG[*live] // by group; none of them is empty
	line []string                        // the groups in the order of their turns
	free *btree.FreeListG[*live]
	n    int
}

func newTurns() turns {
	return turns{of: make(map[string]*btree.BTreeG[*live]), free: btree.NewFreeListG[*live](32)}
}

func (t *turns) add(l *live) {
	group := t.of[l.rec.group]
	if group == nil {
		group = btree.NewWithFreeListG(32, dueBefore, t.free)
		t.of[l.rec.group] = group
		t.line = append(t.line, l.rec.group)
	}
	if _, had := group.ReplaceOrInsert(l); !had {
		t.n++
	}
}

// remove takes out the live, if it is in.
func (t *turns) remove(l *live) {
	group := t.of[l.rec.group]
	if group == nil {
		return
	}
	if _, had := group.Delete(l); !had {
		return
	}
	if t.n--; group.Len() == 0 {
		delete(t.of, l.rec.group)
		i := slices.Index(t.line, l.rec.group)
		t.line = slices.Delete(t.line, i, i+1)
	}
}

// next takes out a live of the group whose turn it is. There is one.
func (t *turns) next() *live {
	name := t.line[0]
	l, _ := t.of[name].Min()
	copy(t.line, t.line[1:])
	t.line[len(t.line)-1] = name
	t.remove(l)
	return l
}
