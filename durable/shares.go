// SPDX-License-Identifier: MIT

package durable

import (
	"time"

	"github.com/google/btree"
)

// shares are what a gate holds, by group. When a keeper's gate holds too much, something is left to the store: the
// task that is due last of the group that holds most. That group is cut there, and the others are read on. So a group
// with a million of tasks delays no other.
//
// What is due soon goes before what is not, whatever its group: while a group has more due than is held, the tasks
// of the next minute take no room.
//
// When every group holds but one, the gate itself is cut, for all groups that are not.
type shares struct {
	all    *btree.BTreeG[*live]
	of     map[string]*share     // by group: of those that hold something or are cut
	bySize *btree.BTreeG[*share] // those that hold fewest first, of them the one that was read for least recently
	free   *btree.FreeListG[*live]
	begun  uint64 // readings, and shares

	// A keeper's:
	own  cut // of the groups that are not cut
	cuts int // of groups; mostQueued at most
}

// A share is that of one group.
type share struct {
	group string
	held  *btree.BTreeG[*live] // in due order
	read  uint64               // when it was read for
	cut   cut
}

// A cut is the position beyond which tasks are in the store alone.
type cut struct {
	is bool
	at Position

	reading bool // what lies between it and where a stretch is being read has been read
}

// gateAhead is how long before it is due a task is soon due. What a full gate has left is read that long before.
const gateAhead = 100 * time.Millisecond

func newShares() shares {
	return shares{
		all: newLives(), of: make(map[string]*share), free: btree.NewFreeListG[*live](32),
		bySize: btree.NewG(32, func(a, b *share) bool {
			if a, b := a.held.Len(), b.held.Len(); a != b {
				return a < b
			}
			return a.read < b.read
		}),
	}
}

// change calls f, which changes what the share is ordered by.
func (s *shares) change(of *share, f func()) {
	s.bySize.Delete(of)
	if f(); of.held.Len() == 0 && !of.cut.is {
		delete(s.of, of.group)
		return
	}
	s.bySize.ReplaceOrInsert(of)
}

// add reports false if it has replaced one of the same position.
func (s *shares) add(l *live) bool {
	of := s.of[l.rec.group]
	if of == nil {
		s.begun++
		of = &share{group: l.rec.group, held: btree.NewWithFreeListG(32, dueBefore, s.free), read: s.begun}
		s.of[of.group] = of
	}
	s.change(of, func() { of.held.ReplaceOrInsert(l) })
	_, had := s.all.ReplaceOrInsert(l)
	return !had
}

// remove takes out a live that is in.
func (s *shares) remove(l *live) {
	s.all.Delete(l)
	of := s.of[l.rec.group]
	s.change(of, func() { of.held.Delete(l) })
}

func (s *shares) has(l *live) bool {
	in, ok := s.all.Get(l)
	return ok && in == l
}

func (s *shares) len() int { return s.all.Len() }

// most returns how many the group holds that holds most.
func (s *shares) most() int {
	if of, ok := s.bySize.Max(); ok {
		return of.held.Len()
	}
	return 0
}

// spare reports whether something is held that is due only after then. It gives way to what is due before.
func (s *shares) spare(then int64) bool {
	last, ok := s.all.Max()
	return ok && last.rec.due > then
}

// surplus returns what is to be left to the store. Something is held.
func (s *shares) surplus(now int64) *live {
	last, _ := s.all.Max()
	of, _ := s.bySize.Max()
	l, _ := of.held.Max()
	if soon := later(now, gateAhead); of.held.Len() == 1 || l.rec.due <= soon && last.rec.due > soon {
		return last
	}
	return l
}

// leave takes out a surplus, and cuts before it.
func (s *shares) leave(l *live) {
	s.remove(l)
	of := s.of[l.rec.group]
	if of == nil || of.held.Len() == 0 {
		if last, ok := s.all.Max(); ok {
			s.own.set(last)
		}
		return
	}
	last, _ := of.held.Max()
	switch {
	case of.cut.is:
	case s.cuts < mostQueued:
		s.cuts++
	default:
		s.own.set(last)
		return
	}
	of.cut.set(last)
}

// set cuts after the live, if that is before the cut.
func (c *cut) set(last *live) {
	if at := last.rec.position(); !c.is || at.before(c.at) {
		*c = cut{is: true, at: at}
	}
}

func (c *cut) before(p Position) bool { return c.is && c.at.before(p) }

// lift ends the cut of a group.
func (s *shares) lift(of *share) {
	s.cuts--
	s.change(of, func() { of.cut = cut{} })
}

// few reports whether the group is to be read on, as far as can be told without a look at the clock.
func (s *shares) few(group string) bool {
	of := s.of[group]
	return of != nil && of.cut.is && (of.held.Len() == 0 || 2*of.held.Len() < s.most())
}

// beyond reports whether the task of that position is left in the store.
func (s *shares) beyond(rec *record) bool {
	p := rec.position()
	of := s.of[rec.group]
	return s.own.before(p) || of != nil && of.cut.before(p)
}

// A reading is a stretch of the store that is to be read for a gate.
type reading struct {
	of          *share // for whose cut; nil for that of the groups that are not cut
	from, until Position
}

// next returns what is to be read, of what the feed has passed, and when to come back. What is due soon comes first,
// and of that the group that holds fewest. It is read if the gate is drained, if something that is held is due later
// (spare), or if another group holds more than twice as many. What is due later is read if the gate is drained.
func (s *shares) next(now int64, fed Position, drained bool) (all []reading, again time.Duration) {
	soon, ahead := later(now, gateAhead/2), later(now, gateAhead)
	most, spare := s.most(), s.spare(ahead)
	again = forever
	due := false // something that is due soon is left
	isDue := func(c *cut) bool {
		if c.at.Due > soon {
			again = min(again, time.Duration(c.at.Due-soon))
			return false
		}
		due = true
		return true
	}
	add := func(of *share, c *cut) {
		r := reading{of: of, from: c.at, until: fed}
		if of != nil && s.own.before(r.until) {
			r.until = s.own.at
		}
		if due && end(ahead).before(r.until) {
			r.until = end(ahead)
		}
		all = append(all, r)
	}
	var covered []*share // by the cut of the others
	var least, first *share
	s.bySize.Ascend(func(of *share) bool {
		if !of.cut.is {
			return true
		}
		if s.own.is && !of.cut.at.before(s.own.at) {
			covered = append(covered, of)
			return true
		}
		if n := of.held.Len(); isDue(&of.cut) && first == nil &&
			(drained || spare && n < mostQueued/4 || most > 1 && 2*n < most) {
			first = of
		}
		if least == nil {
			least = of
		}
		return true
	})
	for _, of := range covered {
		s.lift(of)
	}
	own := s.own.is && isDue(&s.own) && (drained || spare || most > 1 && s.cuts < mostQueued)
	if drained && !due {
		first, own = least, s.own.is
	}
	if first != nil {
		add(first, &first.cut)
	}
	if own {
		add(nil, &s.own)
	}
	return all, again
}

// begin begins a reading, for all groups whose cut lies in it.
func (s *shares) begin(r *reading) {
	s.own.reading = r.of == nil
	if r.of == nil {
		return
	}
	s.begun++
	s.change(r.of, func() { r.of.read = s.begun })
	for _, of := range s.of {
		of.cut.reading = of.cut.is && !of.cut.at.before(r.from)
	}
}

// admit reports whether the task, which comes next in the reading, may be held.
func (s *shares) admit(rec *record, now int64, room bool) bool {
	of, c, n := s.of[rec.group], &s.own, 0
	if of != nil {
		n = of.held.Len()
		if !s.own.reading {
			c = &of.cut
		}
	}
	at := rec.position()
	if !c.reading || !c.before(at) {
		return false
	}
	ahead := later(now, gateAhead)
	takes := room || rec.due <= ahead && (s.spare(ahead) || n+1 < s.most() || c == &s.own && s.most() > 1)
	if c.reading = takes; takes {
		c.at = at
	}
	return takes
}

// goesOn reports whether there is more to be held in the reading.
func (s *shares) goesOn(r *reading) bool {
	if r.of == nil {
		return s.own.reading
	}
	return r.of.cut.reading
}

// end notes that the reading has come to the position. A cut that is at the end of what has been passed is lifted.
func (s *shares) end(r *reading, at, fed Position) {
	if s.own.reading {
		s.own.at, s.own.reading = at, false
		if !at.before(fed) {
			s.own = cut{}
		}
		return
	}
	if r.of == nil {
		return
	}
	for _, of := range s.of {
		if c := &of.cut; c.reading {
			c.reading = false
			if c.at.before(at) {
				c.at = at
			}
			if !c.at.before(fed) && !s.own.is {
				s.lift(of)
			}
		}
	}
}
