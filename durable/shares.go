// SPDX-License-Identifier: MIT

package durable

import (
	"time"

	"github.com/google/btree"
)

// shares are what a gate holds, by group. When the gate of a keeper holds too much, a task is left to the
// store: the one that is due last in the group that holds most. The group is cut there, and the others are read
// on. So a group that has a million due delays no other.
//
// What is due soon displaces what is not, whatever the groups: a group that has a million due now needs the
// room more than what others have due in a minute.
//
// If every group holds one task, or too many are cut, the rest is cut: the groups that are not cut themselves.
type shares struct {
	all    *btree.BTreeG[*live]
	of     map[string]*share     // the groups that hold something or are cut
	bySize *btree.BTreeG[*share] // the fewest tasks first; of those, what was read for least recently
	free   *btree.FreeListG[*live]
	reads  uint64 // begun, and shares made

	// The keeper's own.
	rest     share // without tasks
	cuts     int   // of groups; mostQueued at most
	restLast bool  // the last reading was for the rest
}

// A share is that of one group.
type share struct {
	group string
	held  *btree.BTreeG[*live]
	read  uint64 // the last reading for it
	cut   cut
}

// A cut is a position beyond which tasks are in the store alone.
type cut struct {
	is bool
	at Position

	reading bool // what lies between it and where a reading has come to has been read
}

// gateAhead is how long before it is due a task is due soon. It is read at the latest after half of that.
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

// change calls f, which changes the order or the end of the share.
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
		s.reads++
		of = &share{group: l.rec.group, held: btree.NewWithFreeListG(32, dueBefore, s.free), read: s.reads}
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

// most returns how many tasks the group has that has most.
func (s *shares) most() int {
	if of, ok := s.bySize.Max(); ok {
		return of.held.Len()
	}
	return 0
}

// hasAfter reports whether a task is due only after that time.
func (s *shares) hasAfter(due int64) bool {
	last, ok := s.all.Max()
	return ok && last.rec.due > due
}

// leave takes out the task that is to be left to the store, and cuts before it. There is one.
func (s *shares) leave(now int64) *live {
	ahead := later(now, gateAhead)
	of, _ := s.bySize.Max()
	out, _ := of.held.Max()
	if of.held.Len() == 1 || out.rec.due <= ahead && s.hasAfter(ahead) {
		out, _ = s.all.Max()
		of = s.of[out.rec.group]
	}
	s.remove(out)
	last, ok := of.held.Max()
	switch {
	case !ok:
		of = &s.rest
		last, ok = s.all.Max()
	case of.cut.is:
	case s.cuts < mostQueued:
		s.cuts++
	default:
		of = &s.rest
	}
	if ok {
		of.cut.set(last.rec.position())
	}
	return out
}

// set cuts at the position, unless it is cut before.
func (c *cut) set(at Position) {
	if !c.is || at.before(c.at) {
		*c = cut{is: true, at: at}
	}
}

func (c *cut) before(p Position) bool { return c.is && c.at.before(p) }

// lift ends the cut of a group.
func (s *shares) lift(of *share) {
	s.cuts--
	s.change(of, func() { of.cut = cut{} })
}

// isCut reports whether anything is left to the store.
func (s *shares) isCut() bool { return s.rest.cut.is || s.cuts > 0 }

// beyond reports whether the task is left to the store.
func (s *shares) beyond(rec *record) bool {
	p, of := rec.position(), s.of[rec.group]
	return s.rest.cut.before(p) || of != nil && of.cut.before(p)
}

// lacks reports whether the group is to be read for, as far as can be told without a look at the clock.
func (s *shares) lacks(group string) bool {
	of := s.of[group]
	return of != nil && of.cut.is && (of.held.Len() == 0 || 2*of.held.Len() < s.most())
}

// A reading is a stretch of the store that is read for a share.
type reading struct {
	of          *share
	from, until Position
}

// begin begins a reading of what the feed has passed. It returns nil if there is none, and when to come back.
//
// What is due soon comes first: for the group that has the fewest tasks or, in turn, for the rest. It is read
// if the gate is drained, or if other tasks make way. What is due later is read if the gate is drained.
func (s *shares) begin(now int64, fed Position, drained bool) (*reading, time.Duration) {
	soon, ahead := later(now, gateAhead/2), later(now, gateAhead)
	again := forever
	isDue := func(of *share) bool {
		if of.cut.at.Due > soon {
			again = min(again, time.Duration(of.cut.at.Due-soon))
			return false
		}
		return true
	}
	spare := s.hasAfter(ahead)
	var next, nextLater *share
	s.bySize.Ascend(func(of *share) bool {
		switch n := of.held.Len(); {
		case !of.cut.is:
		case s.rest.cut.is && !of.cut.at.before(s.rest.cut.at): // the rest is to be read first
		case !isDue(of):
			if nextLater == nil {
				nextLater = of
			}
		case next == nil && (drained || spare && n < mostQueued/4 || s.most() > max(1, 2*n)):
			next = of
		}
		return true
	})
	rest := s.rest.cut.is && isDue(&s.rest) && (drained || spare || s.most() > 1 && s.cuts < mostQueued)
	until := end(ahead)
	if drained && next == nil && !rest {
		next, rest, until = nextLater, s.rest.cut.is, fed
	}
	if s.restLast = rest && (next == nil || !s.restLast); s.restLast {
		next = &s.rest
	} else if s.rest.cut.before(until) {
		until = s.rest.cut.at
	}
	if next == nil {
		return nil, again
	}
	if fed.before(until) {
		until = fed
	}
	return s.beginFor(next, until), 0
}

// beginFor begins a reading for the share. What it meets of other groups that are cut no earlier is read, too.
func (s *shares) beginFor(of *share, until Position) *reading {
	r := &reading{of: of, from: of.cut.at, until: until}
	if of.cut.reading = true; of == &s.rest {
		return r
	}
	s.reads++
	s.change(of, func() { of.read = s.reads })
	for _, other := range s.of {
		other.cut.reading = other.cut.is && !other.cut.at.before(r.from)
	}
	return r
}

// admit reports whether the next task of a reading may be held.
func (s *shares) admit(r *reading, rec *record, now int64, room bool) bool {
	by, n := s.of[rec.group], 0
	if by != nil {
		n = by.held.Len()
	}
	if r.of == &s.rest {
		by = r.of
	}
	if at := rec.position(); by != nil && by.cut.reading && by.cut.before(at) {
		ahead := later(now, gateAhead)
		makeWay := s.hasAfter(ahead) || s.most() > n+1 || by == &s.rest && s.most() > 1
		if by.cut.reading = room || rec.due <= ahead && makeWay; by.cut.reading {
			by.cut.at = at
			return true
		}
	}
	return false
}

// end notes that a reading has come to the position, and lifts the cuts at the end of what the feed has passed.
func (s *shares) end(r *reading, at, fed Position) {
	if r.of == &s.rest {
		if r.of.cut.reading {
			r.of.cut = cut{is: at.before(fed), at: at}
		}
		return
	}
	for _, of := range s.of {
		if !of.cut.reading {
			continue
		}
		of.cut.reading = false
		if of.cut.at.before(at) {
			of.cut.at = at
		}
		if !at.before(fed) {
			s.lift(of)
		}
	}
}
