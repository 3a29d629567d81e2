// SPDX-License-Identifier: MIT

package timewheel

import (
	"cmp"
	"slices"
	"time"
)

// The functions in this file query the loop or the dispatcher. Their cost does not grow with the number of tasks.

// maxSectors is the maximum number of sectors that Occupancy returns.
const maxSectors = 1024

// A Sector is a range of adjacent slots, together with the number of tasks in them that are waiting for the current
// circle or a later one. A task postponed by Reschedule stays in its slot until its old due time. A task whose last run
// is waiting for a worker is in no slot.
type Sector struct{ Slots, Tasks int }

// Occupancy divides the wheel into the given number of sectors of about equal size, starting at slot 0, and returns
// them. It returns at least one sector, and at most 1,024 or one per slot, whichever is less. The task counts are
// exact.
func (tw *TimeWheel) Occupancy(sectors int) []Sector {
	l := tw.loop
	all := make([]Sector, min(max(sectors, 1), maxSectors, len(l.census.tasks)))
	l.do(func() {
		for i := range all {
			blocks := len(l.census.tasks)
			all[i] = l.census.sector(i*blocks/len(all), (i+1)*blocks/len(all))
		}
	})
	return all
}

// A Hand is the position of a wheel's hand, together with the wheel's size, tick and layout.
type Hand struct {
	Slot   int           // slot of the last tick that has passed
	Slots  int           // number of slots in the wheel
	Tick   time.Duration // time from one slot to the next
	Layout Layout
}

// Hand returns the position of the wheel's hand. The hand does not move before Start or after Stop.
func (tw *TimeWheel) Hand() Hand {
	l := tw.loop
	h := Hand{Slots: int(l.layout.turn), Tick: time.Duration(l.ticks), Layout: tw.layout}
	l.do(func() { h.Slot = int(l.layout.now % l.layout.turn) })
	return h
}

// Upcoming returns up to n live tasks, but no more than 8,192. Tasks waiting for a worker come first, longest wait
// first, followed by tasks due within one circle of the wheel, in due order. Timers are included, with an empty key;
// paused tasks are not. If the tasks due at the same tick do not all fit, it may return any of them. Upcoming examines
// at most 8,192 tasks in the slots, including tasks postponed by Reschedule.
func (tw *TimeWheel) Upcoming(n int) []Info {
	n = min(n, maxVisit)
	if n <= 0 {
		return nil
	}
	type dueEntry struct {
		e   *entry
		due uint64
	}
	var queued []*entry
	var soonest []dueEntry
	tw.loop.do(func() {
		l := tw.loop
		queued = tw.dispatch.queued(n)
		waits := make(map[*entry]bool) // a repeating task is also in a slot
		for _, e := range queued {
			waits[e] = true
		}
		looked, last := 0, l.ticks.instant(l.layout.now+min(l.layout.turn, never-1-l.layout.now))
		l.layout.upcoming(func(e *entry) bool {
			looked++
			if due := e.due.Load(); e.live() && !waits[e] && due <= last {
				soonest = append(soonest, dueEntry{e, due})
			}
			return len(queued)+len(soonest) < n && looked < maxVisit
		})
	})
	slices.SortStableFunc(soonest, func(a, b dueEntry) int { return cmp.Compare(a.due, b.due) })
	for _, d := range soonest {
		queued = append(queued, d.e)
	}
	var infos []Info
	for _, e := range queued[:min(n, len(queued))] {
		if info, live := tw.info(e); live {
			infos = append(infos, info)
		}
	}
	return infos
}

// queued returns the first n entries waiting for a worker.
func (d *dispatcher) queued(n int) []*entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*entry, 0, min(n, d.queue.Len()))
	for r := range d.queue.All {
		if len(all) == n {
			break
		}
		all = append(all, r.e)
	}
	return all
}

// LongestRuns returns up to n runs in progress, longest first. Their Ended field is zero. Their Started field is zero
// unless the wheel has an observer (see [WithObserver]), because only then does the wheel read the clock when a run
// begins.
func (tw *TimeWheel) LongestRuns(n int) []Run {
	d := tw.dispatch
	type running struct {
		number, began uint64
		run           dueRun
	}
	var all []running
	d.mu.Lock()
	for _, w := range d.workers {
		if w.number != 0 {
			all = append(all, running{w.number, w.began.Load(), w.run})
		}
	}
	d.mu.Unlock()
	slices.SortFunc(all, func(a, b running) int { return cmp.Compare(a.number, b.number) })
	runs := make([]Run, min(max(n, 0), len(all)))
	for i := range runs {
		r := &all[i]
		runs[i] = Run{
			Key: r.run.e.key, Due: d.ticks.time(d.clock, r.run.due),
			Dispatched: d.ticks.time(d.clock, r.run.dispatched),
		}
		if r.began > 0 {
			runs[i].Started = d.ticks.time(d.clock, r.began)
		}
	}
	return runs
}
