// SPDX-License-Identifier: MIT

package timewheel

import (
	"container/heap"
	"slices"
	"sort"
	"time"
)

// What is in this file is for those who look on: it has the loop, or the dispatcher, tell of itself in time
// that is bounded, whatever the number of tasks.

const (
	// maxSectors bounds a Dial's sectors, and maxBlocks the numbers that the loop keeps for it.
	maxSectors = 1024
	maxBlocks  = 4096

	// maxMoves bounds the tasks that are moved for a Dial to what they take: some 100 µs. See layout.near.
	maxMoves = 1024

	// maxUpcoming bounds what Upcoming returns, and maxSteps the tasks and parts of the wheel that it looks
	// at: some 300 µs if nothing of them is in the processor's cache.
	maxUpcoming = 256
	maxSteps    = 2048

	// maxRunning bounds what Running returns, and maxWorkers the workers that it looks at: as much.
	maxRunning = 256
	maxWorkers = 1024
)

// A Dial is a wheel at a glance: where its hand is, and where the tasks wait.
type Dial struct {
	Tick    time.Duration // of the wheel
	Slots   int           // of the wheel
	Layout  Layout        // of the wheel
	Hand    int           // the slot of the last tick that was passed
	Sectors []Sector      // from slot 0 on
}

// A Sector is a part of the wheel. A task that was put off by a Reschedule waits where it did before, until
// the hand gets there; a task that waits for a worker, and has no further run, is in no slot.
type Sector struct {
	Slots int // how many
	Near  int // tasks that the hand meets on its next way round
	Far   int // tasks that wait for a later turn
}

// Dial returns the wheel divided into so many sectors of about the same width, at least one, at most 1,024 or
// one for each slot. It takes the wheel a fraction of a millisecond, whatever the number of tasks.
//
// Near and Far together are exact. Some tasks that should be in Near may still be in Far, as far as the wheel
// has not sorted them in: with [Hashed] those that were added more than 63 turns before, if they are very
// many; with [Hierarchical] those that have not come down to the first level, and for up to a turn as many
// more as were removed before they had, if others were due at the same tick. With more than 4,096 slots what
// Near and Far are of their sum is an estimate, from a look at one slot in several.
func (tw *TimeWheel) Dial(sectors int) Dial {
	l := tw.loop
	d := Dial{Tick: time.Duration(l.ticks), Slots: int(l.slots), Layout: tw.layout}
	d.Sectors = make([]Sector, min(max(sectors, 1), maxSectors, len(l.counts)))
	l.do(func() {
		l.catchUpLoop()
		d.Hand = int(l.passed % l.slots)
		n, blocks, moves := len(d.Sectors), len(l.counts), maxMoves
		for i := range n {
			d.Sectors[i] = l.sectorLoop(i*blocks/n, (i+1)*blocks/n, &moves)
		}
	})
	return d
}

// sectorLoop counts what waits in the blocks from first to before end.
func (l *loop) sectorLoop(first, end int, moves *int) (s Sector) {
	var all, near uint64
	for b := first; b < end; b++ {
		slot, next := uint64(b)<<l.blockBits, min(uint64(b+1)<<l.blockBits, l.slots)
		width := next - slot
		s.Slots += int(width)
		if l.counts[b] == 0 {
			continue
		}
		all += uint64(l.counts[b])
		// Which slot of a block is looked at goes by no pattern (Fibonacci hashing, Knuth, "The Art of
		// Computer Programming" 3, 6.4): all delays may be whole numbers of ticks, and all hit it or all miss
		// it.
		look := slot + uint64(b)*0x9E3779B97F4A7C15>>32%width
		near += uint64(l.layout.near(look, moves)) * width
	}
	near = min(near, all)
	s.Near, s.Far = int(near), int(all-near)
	return s
}

// Upcoming returns up to n of the tasks that wait for their due time, at most 256, those that are due next,
// the soonest first; timers too, whose key is empty. It takes the wheel a fraction of a millisecond, whatever
// the number of tasks, since it looks at some 2,000 at most. So it may tell of later ones in the place of
// some if very many are due at one tick, or were put off by a Reschedule; and, with [Hashed], as long as
// nothing is due in this turn or the next few, for what waits for many more is not in finer order than by 64
// turns.
func (tw *TimeWheel) Upcoming(n int) []Info {
	if n <= 0 {
		return nil
	}
	soonest := make([]dueEntry, 0, min(n, maxUpcoming))
	tw.loop.do(func() {
		tw.loop.catchUpLoop()
		soonest = tw.loop.searchLoop(&search{steps: maxSteps}, soonest)
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

// searchLoop fills up the slice with the entries that are due next.
func (l *loop) searchLoop(s *search, soonest []dueEntry) []dueEntry {
	l.layout.search(s)
	for s.Len() > 0 {
		p := heap.Pop(s).(part)
		if n := len(soonest); n == cap(soonest) && soonest[n-1].due <= l.ticks.instant(p.from-1) {
			break // what is in this part, and in all that follow, is due later
		}
		entries := l.layout.open(s, p)
		for e := range entries.all() {
			if s.steps == 0 {
				return soonest
			}
			s.steps--
			if e.state.Load() < waiting { // a repeating task that waits for a worker is in its next slot as well
				soonest = keepLeast(soonest, dueEntry{e.due.Load(), e}, byDue)
			}
		}
	}
	return soonest
}

// keepLeast puts v into its place in the sorted slice, if that is before the end of its room.
func keepLeast[T any](sorted []T, v T, compare func(a, b T) int) []T {
	i := sort.Search(len(sorted), func(i int) bool { return compare(sorted[i], v) > 0 })
	if i == cap(sorted) {
		return sorted
	}
	if len(sorted) == cap(sorted) {
		sorted = sorted[:len(sorted)-1]
	}
	return slices.Insert(sorted, i, v)
}

// A search goes through a layout in the order of the ticks, best first, as far as it is followed. It is the
// border of what was seen, as a heap (container/heap).
type search struct {
	parts []part
	steps int // how many parts may be added, and entries looked at
}

// A part of a layout is a group of slots, or a list of entries with, in a ring, what follows on it in its
// slot.
type part struct {
	from   uint64 // no entry in it has an earlier tick
	number int    // of the minima, for a layout that has several
	level  int    // of the minima; on level 0 it is a slot
	i      int    // its number on that level

	in *level // in a ring: the list d of in, and what follows on it
	d  int
}

// add adds the part, if the search may go on.
func (s *search) add(p part) {
	if s.steps > 0 {
		s.steps--
		heap.Push(s, p)
	}
}

func (s *search) Len() int           { return len(s.parts) }
func (s *search) Less(i, j int) bool { return s.parts[i].from < s.parts[j].from }
func (s *search) Swap(i, j int)      { s.parts[i], s.parts[j] = s.parts[j], s.parts[i] }
func (s *search) Push(p any)         { s.parts = append(s.parts, p.(part)) }

func (s *search) Pop() any {
	last := len(s.parts) - 1
	p := s.parts[last]
	s.parts = s.parts[:last]
	return p
}

// Running returns up to n of the runs that go on, the longest first. Ended is zero, and so is Started unless
// the wheel has an observer ([WithObserver]), for the sake of which it reads the clock as a run begins. It
// returns 256 at most, of 1,024 that it looks at: with more workers it may miss some.
func (tw *TimeWheel) Running(n int) []Run { return tw.dispatch.runs(min(n, maxRunning)) }
