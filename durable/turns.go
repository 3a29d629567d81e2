// SPDX-License-Identifier: MIT

package durable

import (
	"container/list"

	"github.com/google/btree"
)

// turns is a queue in which groups of tasks take turns. Those of one group are in due order.
type turns struct {
	by   func(*live) string // the group of a task
	of   map[string]*turn   // by group; none of them is empty
	line *list.List         // of the turns, in their order
	free *btree.FreeListG[*live]
	n    int
}

type turn struct {
	lives *btree.BTreeG[*live]
	size  int           // about how many bytes they take
	at    *list.Element // in line
}

func newTurns(by func(*live) string) turns {
	return turns{by: by, of: make(map[string]*turn), line: list.New(), free: btree.NewFreeListG[*live](32)}
}

func groupOf(l *live) string { return l.rec.Group }
func kindOf(l *live) string  { return l.rec.Kind }

func (t *turns) add(l *live) {
	name := t.by(l)
	group := t.of[name]
	if group == nil {
		group = &turn{lives: btree.NewWithFreeListG(32, dueBefore, t.free)}
		group.at = t.line.PushBack(group)
		t.of[name] = group
	}
	old, had := group.lives.ReplaceOrInsert(l)
	if group.size += l.rec.Size(); had {
		group.size -= old.rec.Size()
	} else {
		t.n++
	}
}

// remove takes out the live, and reports whether it was in.
func (t *turns) remove(l *live) bool {
	name := t.by(l)
	group := t.of[name]
	if group == nil {
		return false
	}
	if in, had := group.lives.Get(l); !had || in != l {
		return false
	}
	group.lives.Delete(l)
	group.size -= l.rec.Size()
	if t.n--; group.lives.Len() == 0 {
		delete(t.of, name)
		t.line.Remove(group.at)
	}
	return true
}

// next returns the live that comes next, of the group whose turn it is. There is one. The caller takes it out.
func (t *turns) next() *live {
	return t.nextOf(func(*live) bool { return true })
}

// nextOf is next of the groups whose first task may run. It returns nil if there is none.
func (t *turns) nextOf(may func(first *live) bool) *live {
	for at := t.line.Front(); at != nil; at = at.Next() {
		if l, _ := at.Value.(*turn).lives.Min(); may(l) {
			t.line.MoveToBack(at)
			return l
		}
	}
	return nil
}

// held returns how many tasks of the group there are, and about how many bytes they take.
func (t *turns) held(group string) (n, size int) {
	if in := t.of[group]; in != nil {
		return in.lives.Len(), in.size
	}
	return 0, 0
}
