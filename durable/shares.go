// SPDX-License-Identifier: MIT

package durable

import (
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/task"

	"github.com/google/btree"
)

// shares holds the tasks that a keeper's limiter has in memory, by group. Other tasks that the feeds have passed stay
// in the store. For these, shares records the positions beyond which they were left. A group is in one of three states:
//
//	unknown   no task of the group is held or left in the store; the group has no share
//	whole     all tasks of the group are held
//	cut       the group's tasks up to a position are held, and its tasks beyond are left in the store
//
// There is one more cut, the rest: all tasks beyond it are left in the store, regardless of their group. It is created
// when each group holds one task or when limit.HeldTasks groups are cut, so that the number of shares is bounded.
//
// If too many tasks are held, the method leave removes the last task of the largest group and cuts the group before
// that task. So a group with a million due tasks does not delay the other groups. However, if that task is due soon and
// some held tasks are not, leave removes the last of all held tasks, which should not take the place of a due task.
//
// A reading moves cuts forward. It serves the share that needs tasks most, and begins at that share's cut. Along the
// way it also takes tasks of groups whose cuts lie within the stretch being read. During the reading, the cuts of these
// groups are set to its end. If too many tasks are held, leave moves the cut of one group back, and the reading adds no
// more tasks to that group. After the reading, each of the other groups is cut at the position reached, or is whole if
// the feeds have not passed that position. So every task is either held or beyond a cut.
//
// A reading for a share begins when the share's tasks in the store are due soon and there is room for them. There is
// room if half of the tasks that may be held have begun. There is also room if held tasks can make way: tasks of groups
// with more than twice as many tasks, or tasks that are not due soon. Otherwise the share waits until half of the tasks
// have begun.
type shares struct {
	all    *btree.BTreeG[*limit.Task]
	of     map[string]*share     // the groups that hold tasks or are cut
	bySize *btree.BTreeG[*share] // fewest tasks first; among equals, the share with the earliest last reading first
	free   *btree.FreeListG[*limit.Task]
	reads  uint64 // number of readings begun and shares created
	last   *share // the share that was last added to

	// Only the keeper uses the fields below.
	rest     share // holds no tasks; its cut applies to all groups
	cuts     int   // number of cut shares: at most limit.HeldTasks groups, and the rest
	restLast bool  // the last reading was for the rest
}

// A share holds the tasks of one group.
type share struct {
	group string
	held  *btree.BTreeG[*limit.Task]
	read  uint64          // number of the last reading for this share
	cut   engine.Position // tasks beyond this position are left in the store
}

// uncut is the cut of a whole group, and of the rest if it is not cut. No task lies beyond it.
var uncut = end(task.Never)

// shareAhead is how long before its due time a task counts as due soon. A task is read at the latest when half of this
// time has passed.
const shareAhead = 100 * time.Millisecond

func newShares() *shares {
	return &shares{
		all: limit.NewTree(limit.NewFreeList()), of: make(map[string]*share), free: limit.NewFreeList(),
		bySize: btree.NewG(32, func(a, b *share) bool {
			if a, b := a.held.Len(), b.held.Len(); a != b {
				return a < b
			}
			return a.read < b.read
		}),
		rest: share{held: limit.NewTree(limit.NewFreeList()), cut: uncut},
	}
}

// change calls f, which may change the share's place in bySize or its cut.
func (s *shares) change(of *share, f func()) {
	s.bySize.Delete(of)
	if f(); of.held.Len() == 0 && of.cut == uncut {
		delete(s.of, of.group)
		return
	}
	s.bySize.ReplaceOrInsert(of)
}

// Add adds a task. It returns false if the task replaces a task at the same position.
func (s *shares) Add(t *limit.Task) bool {
	of := s.of[t.Rec.Group]
	if of == nil {
		s.reads++
		of = &share{
			group: t.Rec.Group, held: limit.NewTree(s.free), read: s.reads, cut: uncut,
		}
		s.of[of.group] = of
	}
	s.change(of, func() { of.held.ReplaceOrInsert(t) })
	s.last = of
	_, had := s.all.ReplaceOrInsert(t)
	return !had
}

// Remove removes a task that is held.
func (s *shares) Remove(t *limit.Task) {
	s.all.Delete(t)
	of := s.of[t.Rec.Group]
	s.change(of, func() { of.held.Delete(t) })
}

// Has reports whether the task is held.
func (s *shares) Has(t *limit.Task) bool {
	in, ok := s.all.Get(t)
	return ok && in == t
}

// Len returns the number of held tasks.
func (s *shares) Len() int { return s.all.Len() }

// most returns the number of held tasks of the largest group.
func (s *shares) most() int {
	if of, ok := s.bySize.Max(); ok {
		return of.held.Len()
	}
	return 0
}

// isSmall reports whether the largest group, which has most tasks, has more than twice as many tasks as the share and
// more than one.
func (of *share) isSmall(most int) bool { return most > max(1, 2*of.held.Len()) }

// hasAfter reports whether a held task is due after the given time.
func (s *shares) hasAfter(due int64) bool {
	last, ok := s.all.Max()
	return ok && last.Rec.Due > due
}

// isCut reports whether any task is left in the store.
func (s *shares) isCut() bool { return s.cuts > 0 }

// beyond reports whether the task is left in the store.
func (s *shares) beyond(rec *task.Record) bool {
	p, of := rec.Position(), s.of[rec.Group]
	return s.rest.cut.Before(p) || of != nil && of.cut.Before(p)
}

// Excess checks whether the held tasks are too many or too large. If so, it removes one of them and returns it; that
// task is left in the store. Otherwise it returns nil.
func (s *shares) Excess(most, bytes int) *limit.Task {
	if n := s.Len(); n <= most && (n <= 1 || bytes <= limit.HeldBytes) {
		return nil
	}
	return s.leave(time.Now().UnixNano())
}

// beyond reports whether the task is left in the store.
func (k *kind) beyond(rec *task.Record) (is bool) {
	k.Limiter.Locked(func() { is = k.shares.beyond(rec) })
	return is
}

// read begins a reading of the stretch that the feeds have passed. If there is nothing to read, it returns nil and how
// long to wait before the next call. The keeper is woken if a reading is needed sooner.
func (k *kind) read(fed engine.Position) (r *reading, again time.Duration) {
	again = forever
	drained := k.Limiter.IsDrained()
	k.Limiter.Locked(func() {
		if k.shares.isCut() {
			r, again = k.shares.begin(time.Now().UnixNano(), fed, drained)
		}
	})
	return r, again
}

// full reports whether the limiter can hold no more tasks of the share that the reading serves.
func (k *kind) full(r *reading) (is bool) {
	k.Limiter.Locked(func() { is = r.full() })
	return is
}

// end records that a reading has ended at the position.
func (k *kind) end(r *reading, at, fed engine.Position) {
	k.Limiter.Locked(func() { k.shares.end(r, at, fed) })
}

// leave selects a held task that is to stay in the store, removes and returns it, and cuts its group's share just
// before it. At least one task must be held.
func (s *shares) leave(now int64) *limit.Task {
	ahead := task.Later(now, shareAhead)
	of, _ := s.bySize.Max()
	if s.last.held.Len() == of.held.Len() {
		of = s.last // otherwise groups of equal size would displace each other
	}
	out, _ := of.held.Max()
	if of.held.Len() == 1 || out.Rec.Due <= ahead && s.hasAfter(ahead) {
		out, _ = s.all.Max()
		of = s.of[out.Rec.Group]
	}
	s.Remove(out)
	if of.held.Len() == 0 || of.cut == uncut && s.cuts >= limit.HeldTasks {
		of = &s.rest
	}
	s.cutBefore(of, out.Rec.Position())
	return out
}

// cutBefore cuts the share shortly before the position, unless it is already cut there or earlier.
func (s *shares) cutBefore(of *share, p engine.Position) {
	if of.cut == uncut {
		s.cuts++
	}
	// Only a few tasks lie in between, all due at the same instant. Reading held tasks again does no harm.
	if at := (engine.Position{Due: p.Due, Key: p.Key[:len(p.Key)-1]}); at.Before(of.cut) {
		of.cut = at
	}
}

// lift removes the cut of the share. The share must be cut.
func (s *shares) lift(of *share) {
	s.cuts--
	if of == &s.rest {
		of.cut = uncut
		return
	}
	s.change(of, func() { of.cut = uncut })
}

// Lacks reports, without checking the clock, whether a reading for the group is needed.
func (s *shares) Lacks(group string) bool {
	of := s.of[group]
	return of != nil && of.cut != uncut && (of.held.Len() == 0 || of.isSmall(s.most()))
}

// begin begins a reading of the stretch that the feeds have passed. If there is nothing to read, it returns nil and how
// long to wait before the next call.
func (s *shares) begin(now int64, fed engine.Position, drained bool) (r *reading, again time.Duration) {
	soon, ahead := task.Later(now, shareAhead/2), task.Later(now, shareAhead)
	spare, most := s.hasAfter(ahead), s.most()
	again = forever
	of, until := s.needs(func(of *share) bool {
		if of.cut.Due > soon {
			again = min(again, time.Duration(of.cut.Due-soon))
			return false
		}
		return drained || spare && of.held.Len() < limit.HeldTasks/4 ||
			of.isSmall(most) && (of != &s.rest || s.cuts < limit.HeldTasks) // otherwise a task that makes way would cut the rest
	}), end(ahead)
	if of == nil && drained {
		of, until = s.needs(func(*share) bool { return true }), fed
	}
	if of == nil {
		return nil, again
	}
	s.restLast = of == &s.rest
	if !s.restLast && s.rest.cut.Before(until) {
		until = s.rest.cut
	}
	if fed.Before(until) {
		until = fed
	}
	return s.readFor(of, until), 0
}

// needs returns the next share to read for, among the cut shares for which may returns true. It alternates between the
// share with the fewest tasks and the rest. It returns nil if there is no share to read for. Shares that are cut beyond
// the rest are read after the rest.
func (s *shares) needs(may func(*share) bool) *share {
	var group *share
	s.bySize.Ascend(func(of *share) bool {
		if of.cut.Before(s.rest.cut) && may(of) {
			group = of
		}
		return group == nil
	})
	if s.rest.cut != uncut && may(&s.rest) && (group == nil || !s.restLast) {
		return &s.rest
	}
	return group
}

// A reading is a walk over a stretch of the store for one share, and for other shares that are cut within the stretch.
type reading struct {
	of          *share
	from, until engine.Position
	moved       []movedCut
}

// A movedCut is a cut that is set to the end of a reading while the reading is in progress.
type movedCut struct {
	of   *share
	from engine.Position
}

func (r *reading) move(of *share) {
	r.moved = append(r.moved, movedCut{of, of.cut})
	of.cut = r.until
}

// full reports whether no more tasks of the share that the reading serves may be held.
func (r *reading) full() bool { return r.of.cut != r.until }

// readFor begins a reading for the share.
func (s *shares) readFor(of *share, until engine.Position) *reading {
	r := &reading{of: of, from: of.cut, until: until, moved: make([]movedCut, 0, s.cuts)}
	if of == &s.rest {
		r.move(of)
		return r
	}
	s.reads++
	s.change(of, func() { of.read = s.reads })
	for _, other := range s.of {
		if !other.cut.Before(r.from) && !until.Before(other.cut) {
			r.move(other)
		}
	}
	return r
}

// end records that a reading has ended at the position, and lifts the cuts at the feeds' position.
func (s *shares) end(r *reading, at, fed engine.Position) {
	for _, m := range r.moved {
		if m.of.cut != r.until {
			continue // leave has moved this cut since
		}
		if m.of.cut = m.from; m.from.Before(at) {
			m.of.cut = at
		}
		if !m.of.cut.Before(fed) {
			s.lift(m.of)
		}
	}
}
