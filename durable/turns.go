// SPDX-License-Identifier: MIT

package durable

import (
	"container/list"

	"github.com/google/btree"
)

// turns is a queue in which the groups take turns. Those of one group are in due order.
type turns struct {
	of   map[string]*turn // by group; none of them is empty
	line *list.List       // of the turns, in their order
	free *btree.FreeListG[*live]
	n    int
}

type turn struct {
	lives *btree.BTreeG[*live]
	at    *list.Element // in line
}

func newTurns() turns {
	return turns{of: make(map[string]*turn), line: list.New(), free: btree.NewFreeListG[*live](32)}
}

func (t *turns) add(l *live) {
	group := t.of[l.rec.group]
	if group == nil {
		group = &turn{lives: btree.NewWithFreeListG(32, dueBefore, t.free)}
		group.at = t.line.PushBack(group)
		t.of[l.rec.group] = group
	}
	if _, had := group.lives.ReplaceOrInsert(l); !had {
		t.n++
	}
}

// remove takes out the live, and reports whether it was in.
func (t *turns) remove(l *live) bool {
	group := t.of[l.rec.group]
	if group == nil {
		return false
	}
	if _, had := group.lives.Delete(l); !had {
		return false
	}
	if t.n--; group.lives.Len() == 0 {
		delete(t.of, l.rec.group)
		t.line.Remove(group.at)
	}
	return true
}

// next returns the live that comes next, of the group whose turn it is. There is one. The caller takes it out.
func (t *turns) next() *live {
	group := t.line.Front().Value.(*turn)
	t.line.MoveToBack(group.at)
	l, _ := group.lives.Min()
	return l
}
