// SPDX-License-Identifier: MIT

package limit

import (
	"container/list"
	"iter"

	"github.com/seed581295f1/timewheel/durable/internal/task"

	"github.com/google/btree"
)

// A Task represents a task that is waiting to run. Each such task has exactly one Task in memory.
type Task struct {
	Rec *task.Record
	Runner
	taken bool // the run has a place in its limiter; owned by the task's worker, as are
	rated bool // the run takes tokens from its limiter
	begun bool // the run has begun
}

// A Runner runs one task.
type Runner interface {
	Waits() bool        // reports whether the run has not begun and the task has not been removed, replaced or moved
	Run() (called bool) // reports whether the handler was called
}

// before reports whether a is due before b.
func before(a, b *Task) bool { return a.Rec.Position().Before(b.Rec.Position()) }

// NewTree returns an empty tree of tasks in due order.
func NewTree(free *btree.FreeListG[*Task]) *btree.BTreeG[*Task] {
	return btree.NewWithFreeListG(32, before, free)
}

// NewFreeList returns a free list that trees of tasks can share.
func NewFreeList() *btree.FreeListG[*Task] { return btree.NewFreeListG[*Task](32) }

// A Queue is a fair queue: groups of tasks take turns. The tasks of each group are in due order.
type Queue struct {
	by    func(*task.Record) string // returns the group of a task
	of    map[string]*group         // groups by name; no group is empty
	turns *list.List                // groups in the order of their turns
	free  *btree.FreeListG[*Task]
	n     int
}

type group struct {
	tasks *btree.BTreeG[*Task]
	size  int           // approximate size of the tasks in bytes
	turn  *list.Element // the group's element in Queue.turns
}

// NewQueue returns an empty queue. by returns the name of a task's group.
func NewQueue(by func(*task.Record) string) Queue {
	return Queue{by: by, of: make(map[string]*group), turns: list.New(), free: NewFreeList()}
}

// ByGroup returns the task's group within its kind.
func ByGroup(r *task.Record) string { return r.Group }

// ByKind returns the task's kind.
func ByKind(r *task.Record) string { return r.Kind }

// Len returns the number of tasks in the queue.
func (q *Queue) Len() int { return q.n }

// Add adds a task.
func (q *Queue) Add(t *Task) {
	name := q.by(t.Rec)
	in := q.of[name]
	if in == nil {
		in = &group{tasks: NewTree(q.free)}
		in.turn = q.turns.PushBack(in)
		q.of[name] = in
	}
	old, had := in.tasks.ReplaceOrInsert(t)
	if in.size += t.Rec.Size(); had {
		in.size -= old.Rec.Size()
	} else {
		q.n++
	}
}

// Has reports whether the task is in the queue.
func (q *Queue) Has(t *Task) bool {
	in := q.of[q.by(t.Rec)]
	return in != nil && in.has(t)
}

func (g *group) has(t *Task) bool {
	at, _ := g.tasks.Get(t)
	return at == t
}

// Remove removes the task, and reports whether it was in the queue.
func (q *Queue) Remove(t *Task) bool {
	name := q.by(t.Rec)
	in := q.of[name]
	if in == nil || !in.has(t) {
		return false
	}
	in.tasks.Delete(t)
	in.size -= t.Rec.Size()
	if q.n--; in.tasks.Len() == 0 {
		delete(q.of, name)
		q.turns.Remove(in.turn)
	}
	return true
}

// Next returns the first task of the group whose turn it is. The queue must not be empty. Next does not remove the
// task.
func (q *Queue) Next() *Task {
	return q.NextOf(func(*Task) bool { return true })
}

// NextOf is like Next, but considers only groups whose first task may run. It returns nil if there is no such group.
func (q *Queue) NextOf(may func(first *Task) bool) *Task {
	for at := q.turns.Front(); at != nil; at = at.Next() {
		if t, _ := at.Value.(*group).tasks.Min(); may(t) {
			q.turns.MoveToBack(at)
			return t
		}
	}
	return nil
}

// Held returns the number of tasks in the group, and their approximate size in bytes.
func (q *Queue) Held(name string) (n, size int) {
	if in := q.of[name]; in != nil {
		return in.tasks.Len(), in.size
	}
	return 0, 0
}

// Groups yields the first task of each group and the number of tasks in the group, in any order.
func (q *Queue) Groups() iter.Seq2[*Task, int] {
	return func(yield func(*Task, int) bool) {
		for _, in := range q.of {
			if first, _ := in.tasks.Min(); !yield(first, in.tasks.Len()) {
				return
			}
		}
	}
}
