// SPDX-License-Identifier: MIT

package durable

import (
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/task"

	"github.com/google/btree"
)

// shares are the tasks that a limiter of a keeper holds in memory, by group. Other tasks that the feeds have passed
// stay in the store, and the shares know from which position on. A group is in one of three states:
//
//	unknown   none of its tasks are held or left in the store: it has no share
//	whole     all its tasks are held
//	cut       at a position: its tasks up to there are held, those beyond it are left in the store
//
// There is one more cut, the rest: all tasks beyond it are left, whatever their group. It is made if each group holds
// one task, or if limit.HeldTasks groups are cut, so that the number of shares is bounded.
//
// If too many tasks are held, leave takes out the last task of the largest group, and cuts the group before it. So a
// group with a million due tasks delays no other. But if that task is due soon and others are not, the last of the
// others goes, because it should not take the room of a due task.
//
// A reading moves cuts ahead. It serves the share that needs it most and begins at that share's cut. On the way it
// takes in tasks of groups that are cut there or further ahead. Meanwhile these groups are cut at its end. If too many
// tasks are held, the function leave cuts one group back, which then lacks the remainder. At the end the others are cut
// at the position reached, or are whole if the feeds are no further. So each task is held or lies beyond a cut.
//
// A reading for a share begins when its tasks left in the store are due soon, if half the tasks that may be held have
// begun or others make way: groups with more than twice as many tasks, or tasks that are not due soon. Otherwise the
// share waits for the half.
type shares struct {
	all    *btree.BTreeG[*limit.Task]
	of     map[string]*share     // the groups that hold something or are cut
	bySize *btree.BTreeG[*share] // the fewest tasks first; among equals, the least recently read for
	free   *btree.FreeListG[*limit.Task]
	reads  uint64 // readings begun, and shares made
	last   *share // the share last added to

	// The keeper's own.
	rest     share // holds nothing; its cut is for all groups
	cuts     int   // cut shares: at most limit.HeldTasks groups, and the rest
	restLast bool  // the last reading was for the rest
}

// A share is the share of one group.
type share struct {
	group string
	held  *btree.BTreeG[*limit.Task]
	read  uint64          // the last reading for it
	cut   engine.Position // tasks beyond it are left in the store
}

// uncut is the cut of a whole group, and of the rest if it is not cut. No task lies beyond it.
var uncut = end(task.Never)

// shareAhead is how long before it is due a task is due soon. It is read after half that time at the latest.
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

// change calls f, which changes the order or the end of a group's share.
func (s *shares) change(of *share, f func()) {
	s.bySize.Delete(of)
	if f(); of.held.Len() == 0 && of.cut == uncut {
		delete(s.of, of.group)
		return
	}
	s.bySize.ReplaceOrInsert(of)
}

// Add reports false if it has replaced a task at the same position.
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

// Remove removes a live that is held.
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

// Len returns how many tasks are held.
func (s *shares) Len() int { return s.all.Len() }

// most returns the number of tasks of the largest group.
func (s *shares) most() int {
	if of, ok := s.bySize.Max(); ok {
		return of.held.Len()
	}
	return 0
}

// isSmall reports whether the largest group has more than twice as many tasks, and more than one.
func (of *share) isSmall(most int) bool { return most > max(1, 2*of.held.Len()) }

// hasAfter reports whether a held task is due after that time.
func (s *shares) hasAfter(due int64) bool {
	last, ok := s.all.Max()
	return ok && last.Rec.Due > due
}

// isCut reports whether any task is left to the store.
func (s *shares) isCut() bool { return s.cuts > 0 }

// beyond reports whether the task is left to the store.
func (s *shares) beyond(rec *task.Record) bool {
	p, of := rec.Position(), s.of[rec.Group]
	return s.rest.cut.Before(p) || of != nil && of.cut.Before(p)
}

// Excess removes and returns the task to leave to the store, if the tasks are too many or too large. Otherwise it
// returns nil.
func (s *shares) Excess(most, bytes int) *limit.Task {
	if n := s.Len(); n <= most && (n <= 1 || bytes <= limit.HeldBytes) {
		return nil
	}
	return s.leave(time.Now().UnixNano())
}

// beyond reports whether the task is left to the store.
func (k *kind) beyond(rec *task.Record) (is bool) {
	k.Limiter.Locked(func() { is = k.shares.beyond(rec) })
	return is
}

// read begins a reading of the stretch that the feeds have passed. It returns nil if there is nothing to read, and when
// to call it again. The keeper is woken if it is needed sooner.
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

// full reports whether the limiter can hold no more tasks of the share that is read for.
func (k *kind) full(r *reading) (is bool) {
	k.Limiter.Locked(func() { is = r.full() })
	return is
}

// end notes that a reading has reached the position.
func (k *kind) end(r *reading, at, fed engine.Position) {
	k.Limiter.Locked(func() { k.shares.end(r, at, fed) })
}

// leave removes and returns the task to leave to the store, and cuts its group before it. There must be one.
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

// cutBefore cuts the share just before the position, unless it is cut there already.
func (s *shares) cutBefore(of *share, p engine.Position) {
	if of.cut == uncut {
		s.cuts++
	}
	// Few tasks lie in between, all due at the same instant. Reading the held ones again does no harm.
	if at := (engine.Position{Due: p.Due, Key: p.Key[:len(p.Key)-1]}); at.Before(of.cut) {
		of.cut = at
	}
}

// lift removes the cut of the share, which must have one.
func (s *shares) lift(of *share) {
	s.cuts--
	if of == &s.rest {
		of.cut = uncut
		return
	}
	s.change(of, func() { of.cut = uncut })
}

// Lacks reports whether a reading for the group is needed, without looking at the clock.
func (s *shares) Lacks(group string) bool {
	of := s.of[group]
	return of != nil && of.cut != uncut && (of.held.Len() == 0 || of.isSmall(s.most()))
}

// begin begins a reading of the stretch that the feeds have passed. It returns nil if there is none, and when to call
// it again.
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

// needs returns the share to read for among the cut ones for which may returns true: that of the group with the fewest
// tasks or, in turn, the rest. It returns nil if there is none. Shares cut after the rest are read after it.
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

// A reading is a walk over a stretch of the store for one share, and for others that are cut there.
type reading struct {
	of          *share
	from, until engine.Position
	moved       []movedCut
}

// A movedCut is a cut that is at the end of a reading while that is in progress.
type movedCut struct {
	of   *share
	from engine.Position
}

func (r *reading) move(of *share) {
	r.moved = append(r.moved, movedCut{of, of.cut})
	of.cut = r.until
}

// full reports whether no more tasks may be held of the share that is read for.
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

// end notes that a reading has reached the position, and lifts the cuts at the feeds' position.
func (s *shares) end(r *reading, at, fed engine.Position) {
	for _, m := range r.moved {
		if m.of.cut != r.until {
			continue // leave has cut it meanwhile
		}
		if m.of.cut = m.from; m.from.Before(at) {
			m.of.cut = at
		}
		if !m.of.cut.Before(fed) {
			s.lift(m.of)
		}
	}
}
