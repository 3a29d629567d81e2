// SPDX-License-Identifier: MIT

package timewheel

import (
	"slices"
	"sort"
	"time"
)

// What is in this file is for those who look on: it has the loop, or the dispatcher, tell of itself in time
// that is bounded, whatever the number of tasks.

const (
	// maxSectors bounds a Dial's sectors, and maxLooks the slots that are looked at for it: some 10 µs in all.
	maxSectors = 1024
	maxLooks   = 4096

	// maxMoves bounds the tasks that are moved for a Dial to what they take: some 100 µs. See layout.near.
	maxMoves = 1024

	// maxSteps bounds the tasks that Upcoming looks at, and the runs that Running does: some 100 µs.
	maxSteps = 4096
)

// A Dial is a wheel at a glance: where its hand is, and where the tasks wait.
type Dial struct {
	Tick    time.Duration // of the wheel
	Slots   int           // of the wheel
	Layout  Layout        // of the wheel
	Hand    int           // the slot of the last tick that was passed
	Sectors []Sector      // of as many slots each as the others or, at most, one more
}

// A Sector is a part of the wheel. A task that was put off by a Reschedule waits where it did before, until the
// hand gets there; a task that waits for a worker, and has no further run, is in no slot.
type Sector struct {
	// Near is how many tasks the hand meets on its next way round. Some that should be among them may be
	// counted in Far still, if the wheel has not sorted them in yet: with Hashed some of those that were added
	// more than 63 turns before, with Hierarchical those that have not come down to the first level.
	Near int
	// Far is how many tasks wait for a later turn.
	Far int
}

// Dial returns the wheel divided into so many sectors, at least one, at most 1,024 or one for each slot. It
// costs the wheel about as much as a few hundred adds, whatever the number of tasks. If it has more than 4,096
// slots the counts are estimates, made from as many of them.
func (tw *TimeWheel) Dial(sectors int) Dial {
	l := tw.loop
	d := Dial{Tick: time.Duration(l.ticks), Slots: int(l.slots), Layout: tw.layout}
	d.Sectors = make([]Sector, min(max(sectors, 1), maxSectors, d.Slots))
	l.do(func() {
		l.catchUpLoop()
		d.Hand = int(l.passed % l.slots)
		n, moves := uint64(len(d.Sectors)), maxMoves
		for i := range n {
			d.Sectors[i] = l.sectorLoop(i*l.slots/n, (i+1)*l.slots/n, &moves)
		}
	})
	return d
}

// sectorLoop counts what waits in the slots from first to before end.
func (l *loop) sectorLoop(first, end uint64, moves *int) Sector {
	width := end - first
	looks := max(width*min(l.slots, maxLooks)/l.slots, 1)
	var near, far uint64
	for i := range looks {
		slot := first + i*width/looks
		if all := uint64(l.counts[slot]); all > 0 {
			n := min(uint64(l.layout.near(slot, moves)), all)
			near += n
			far += all - n
		}
	}
	return Sector{Near: int(near * width / looks), Far: int(far * width / looks)}
}

// Upcoming returns up to n of the tasks that wait for their due time, those that are due next, the soonest
// first; timers too, whose key is empty. It looks at 4,096 tasks at most, so it may miss some of those if
// very many are due at once, or were put off by a Reschedule.
func (tw *TimeWheel) Upcoming(n int) []Info {
	if n <= 0 {
		return nil
	}
	soonest := make([]dueEntry, 0, min(n, maxSteps))
	tw.loop.do(func() {
		tw.loop.catchUpLoop()
		soonest = tw.loop.soonestLoop(soonest)
	})
	infos := make([]Info, 0, len(soonest))
	for _, e := range soonest {
		if info := tw.info(e.entry); e.live() && !info.Waiting {
			infos = append(infos, info)
		}
	}
	return infos
}

// catchUpLoop passes the ticks that have come, as the loop will do next.
func (l *loop) catchUpLoop() {
	if l.running.Load() {
		l.advanceLoop(l.now())
	}
}

// soonestLoop fills up the slice with the entries that are due next.
func (l *loop) soonestLoop(soonest []dueEntry) []dueEntry {
	var s search
	l.layout.search(&s)
	for steps := maxSteps; len(s) > 0; {
		p := s.next()
		if n := len(soonest); n == cap(soonest) && soonest[n-1].due <= l.ticks.instant(p.from-1) {
			break // what is in this part, and in all that follow, is due later
		}
		for e := range p.list.all() {
			if steps == 0 {
				return soonest
			}
			steps--
			if e.state.Load() < waiting { // a repeating task that waits for a worker is in its next slot as well
				soonest = insertSoonest(soonest, dueEntry{e.due.Load(), e})
			}
		}
		if p.open != nil {
			p.open()
		}
	}
	return soonest
}

// insertSoonest puts e into its place in the sorted slice, if that is before the end of its room.
func insertSoonest(sorted []dueEntry, e dueEntry) []dueEntry {
	i := sort.Search(len(sorted), func(i int) bool { return sorted[i].due > e.due })
	if i == cap(sorted) {
		return sorted
	}
	if len(sorted) == cap(sorted) {
		sorted = sorted[:len(sorted)-1]
	}
	return slices.Insert(sorted, i, e)
}

// A search goes through a layout in the order of the ticks, best first, as far as it is followed. It is the
// border of what was seen; the last part is the next one.
type search []part

// A part of a layout has a list of entries, or more parts, or both. Nothing in it is due before the tick from.
type part struct {
	from uint64
	list list
	open func() // adds what else is in the part, to the same search; may be nil
}

func (s *search) add(p part) {
	i := sort.Search(len(*s), func(i int) bool { return (*s)[i].from <= p.from })
	*s = slices.Insert(*s, i, p)
}

func (s *search) next() part {
	last := len(*s) - 1
	p := (*s)[last]
	*s = (*s)[:last]
	return p
}

// Running returns up to n of the runs that go on, the longest first. Ended is zero, and so is Started unless
// the wheel has an observer ([WithObserver]), for the sake of which it reads the clock as a run begins. It
// looks at 4,096 runs at most.
func (tw *TimeWheel) Running(n int) []Run { return tw.dispatch.runs(n, maxSteps) }
