// SPDX-License-Identifier: MIT

package durable

import (
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/task"

	"github.com/google/btree"
)

// shares are the tasks that a limiter of a keeper holds in memory, by group. The keeper leaves the others that the
// feeds have passed in the store alone, and its shares know from where on. A group is in one of three states:
//
//	unknown   nothing of it is held, and nothing is left: it has no share
//	whole     all of it is held
//	cut       at a position: what is due up to there is held, what lies beyond is left
//
// There is one more cut, that of the rest: what lies beyond it is left, whatever the group. It is made if each
// group holds one task, or if limit.HeldTasks groups are cut, so that the number of shares is bounded.
//
// If too much is held, leave takes out the last task of the group that holds most, and cuts the group before
// it. So a group that has a million due delays no other. But if that task is due soon and others are not, the
// last of those goes: it does not take the room of what is due.
//
// A reading moves cuts ahead. It is for the share that needs it most, begins at its cut, and takes in what it
// meets of the groups that are cut there or further ahead. Meanwhile these are cut at its end. If too much is
// held, leave cuts one back, which misses the remainder. At the end the others are cut where the reading has
// come to, or are whole if the feeds are no further. So each task is held, or lies beyond a cut.
//
// A share is read for when what it has left is due soon, if half of what may be held has begun or others make
// way: those that hold more than twice as much, or what is not due soon. The remainder waits for the half.
type shares struct {
	all    *btree.BTreeG[*limit.Task]
	of     map[string]*share     // the groups that hold something or are cut
	bySize *btree.BTreeG[*share] // the fewest tasks first; of those, what was read for least recently
	free   *btree.FreeListG[*limit.Task]
	reads  uint64 // begun, and shares made
	last   *share // the one that a task was added to

	// The keeper's own.
	rest     share // holds nothing; its cut is one of all groups
	cuts     int   // shares that are cut: limit.HeldTasks groups at most, and the rest
	restLast bool  // the last reading was for the rest
}

// A share is that of one group.
type share struct {
	group string
	held  *btree.BTreeG[*limit.Task]
	read  uint64          // the last reading for it
	cut   engine.Position // what lies beyond it is left
}

// uncut is the cut of a group that is whole, and of the rest unless it is cut. No task lies beyond it.
var uncut = end(task.Never)

// shareAhead is how long before it is due a task is due soon. It is read at the latest after half of that.
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

// change calls f, which changes the order or the end of the share of a group.
func (s *shares) change(of *share, f func()) {
	s.bySize.Delete(of)
	if f(); of.held.Len() == 0 && of.cut == uncut {
		delete(s.of, of.group)
		return
	}
	s.bySize.ReplaceOrInsert(of)
}

// Add reports false if it has replaced one of the same position.
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

// Remove takes out a live that is in.
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

// most returns how many tasks the group has that has most.
func (s *shares) most() int {
	if of, ok := s.bySize.Max(); ok {
		return of.held.Len()
	}
	return 0
}

// isSmall reports whether the group that has most has more than twice as much, and more than one task.
func (of *share) isSmall(most int) bool { return most > max(1, 2*of.held.Len()) }

// hasAfter reports whether a task is due only after that time.
func (s *shares) hasAfter(due int64) bool {
	last, ok := s.all.Max()
	return ok && last.Rec.Due > due
}

// isCut reports whether anything is left to the store.
func (s *shares) isCut() bool { return s.cuts > 0 }

// beyond reports whether the task is left to the store.
func (s *shares) beyond(rec *task.Record) bool {
	p, of := rec.Position(), s.of[rec.Group]
	return s.rest.cut.Before(p) || of != nil && of.cut.Before(p)
}

// Excess takes out the task that is to be left to the store, if the tasks are too many or too large, or returns nil.
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

// read begins a reading of what the feeds of a keeper have passed. It returns nil if there is nothing to read,
// and when to come back. The keeper is woken if that is sooner.
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

// full reports whether the limiter holds no more of the share that is read for.
func (k *kind) full(r *reading) (is bool) {
	k.Limiter.Locked(func() { is = r.full() })
	return is
}

// end notes that a reading has come to the position.
func (k *kind) end(r *reading, at, fed engine.Position) {
	k.Limiter.Locked(func() { k.shares.end(r, at, fed) })
}

// leave takes out the task that is to be left to the store, and cuts before it. There is one.
func (s *shares) leave(now int64) *limit.Task {
	ahead := task.Later(now, shareAhead)
	of, _ := s.bySize.Max()
	if s.last.held.Len() == of.held.Len() {
		of = s.last // else groups of one size would displace each other
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
	// Little lies in between, all due at the same instant. What is held of that is read in vain.
	if at := (engine.Position{Due: p.Due, Key: p.Key[:len(p.Key)-1]}); at.Before(of.cut) {
		of.cut = at
	}
}

// lift removes the cut of the share, which has one.
func (s *shares) lift(of *share) {
	s.cuts--
	if of == &s.rest {
		of.cut = uncut
		return
	}
	s.change(of, func() { of.cut = uncut })
}

// Lacks reports whether the group is to be read for, as far as can be told without a look at the clock.
func (s *shares) Lacks(group string) bool {
	of := s.of[group]
	return of != nil && of.cut != uncut && (of.held.Len() == 0 || of.isSmall(s.most()))
}

// begin begins a reading of what the feed has passed. It returns nil if there is none, and when to come back.
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
			of.isSmall(most) && (of != &s.rest || s.cuts < limit.HeldTasks) // else what makes way would cut the rest
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

// needs returns the share to read for, of those that are cut and may be: that of the group that has the fewest
// tasks or, in turn, the rest. It returns nil if there is none. What is cut after the rest is read after it.
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

// A reading is a stretch of the store that is read for a share, and for others that are cut there.
type reading struct {
	of          *share
	from, until engine.Position
	moved       []movedCut
}

// A movedCut is one that is at the end of a reading while that is under way.
type movedCut struct {
	of   *share
	from engine.Position
}

func (r *reading) move(of *share) {
	r.moved = append(r.moved, movedCut{of, of.cut})
	of.cut = r.until
}

// full reports whether no more may be held of the share that is read for.
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

// end notes that a reading has come to the position, and lifts the cuts at the end of what the feed has passed.
func (s *shares) end(r *reading, at, fed engine.Position) {
	for _, m := range r.moved {
		if m.of.cut != r.until {
			continue // leave has cut it
		}
		if m.of.cut = m.from; m.from.Before(at) {
			m.of.cut = at
		}
		if !m.of.cut.Before(fed) {
			s.lift(m.of)
		}
	}
}
