// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/internal/clock"
)

// AddAt adds a copy of the task as [TimeWheel.AddTask] does, but the first run is due when the wall clock reaches the
// given time. If that time has passed, the run is due at once. Delay must be 0; Interval is the time between runs, and
// may be 0 if the task runs only once. AddAt also returns an error that wraps [ErrInvalidTask] if the year of that time
// is not between 1970 and 2261. The section on wall-clock time in the package documentation describes what happens when
// the clock is set.
func (tw *TimeWheel) AddAt(at time.Time, task *Task) error {
	e, err := tw.entryAt("AddAt", at, task)
	if err != nil {
		return err
	}
	return tw.add(e)
}

// SetAt is like [TimeWheel.AddAt], but replaces any live task with the same key, as [TimeWheel.SetTask] does.
func (tw *TimeWheel) SetAt(at time.Time, task *Task) error {
	e, err := tw.entryAt("SetAt", at, task)
	if err != nil {
		return err
	}
	return tw.set(e)
}

// entryAt returns an entry for the task, due at the given wall-clock time. It returns an error if the task or the time
// is invalid, or if the wheel has been stopped.
func (tw *TimeWheel) entryAt(verb string, at time.Time, task *Task) (*entry, error) {
	if task != nil {
		if year := at.Year(); year < 1970 || year > 2261 {
			return nil, fmt.Errorf("%w: at %v of %q is not in the years 1970 to 2261", ErrInvalidTask, at, task.Key)
		}
		if task.Delay != 0 {
			return nil, fmt.Errorf("%w: delay %v of %q is not 0, and it has a time", ErrInvalidTask, task.Delay, task.Key)
		}
		delayed := *task
		delayed.Delay = 1 // any positive delay will do: add replaces the due time
		task = &delayed
	}
	e, err := tw.entryOf(verb, task)
	if err == nil {
		tw.dates.add(e, at)
	}
	return e, err
}

// dates holds the tasks added with AddAt or SetAt whose first run has not fallen due. Like all tasks, they wait in a
// slot for a due time on the monotonic clock. That clock is not affected when the wall clock is set, and may stop while
// the machine is suspended. So the loop compares the two clocks regularly, and moves these tasks if the clocks have
// drifted apart by a tick or more.
//
// A method that ends or moves a task drops its date. So does a worker after the last run of a task.
//
// Nothing else in the loop reads the wall clock. Methods that return times, such as Get, also read it.
type dates struct {
	clock clock.Clock
	ticks ticks
	every time.Duration // time between two checks of the wall clock
	next  uint64        // when to look again; owned by the loop

	count atomic.Int64 // len(all), readable without the lock: usually 0

	mu     sync.Mutex // protects the fields below
	all    map[*entry]date
	offset int64 // wall clock minus monotonic clock, used to compute due times
	stale  bool  // whether some due times were computed with an earlier offset
}

// A date is the time at which a task is due: by the wall clock, and as an instant computed with the offset. If the
// entry now has a different due time, its first run has fallen due.
type date struct {
	wall int64 // nanoseconds since 1970
	due  uint64
}

// glance is how often the loop compares the clocks while there are dates.
const glance = time.Second

func newDates(c clock.Clock, t ticks) *dates {
	return &dates{clock: c, ticks: t, every: glance, all: make(map[*entry]date)}
}

// add makes the entry due at the given wall-clock time, or at once if that time has passed. Nothing else may refer to
// the entry yet.
func (d *dates) add(e *entry, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readLocked()
	wall := at.UnixNano()
	due := max(d.dueLocked(wall), d.ticks.now(d.clock))
	e.due.Store(due)
	d.all[e] = date{wall, due}
	d.count.Store(int64(len(d.all)))
}

// drop forgets the date of the entry, if it has one.
func (d *dates) drop(e *entry) {
	if d.count.Load() == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, e)
	d.count.Store(int64(len(d.all)))
}

// passed forgets the date of the entry if its first run has fallen due. The loop calls it for entries that it places
// again.
func (d *dates) passed(e *entry) {
	if d.count.Load() == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if at, ok := d.all[e]; ok && e.due.Load() != at.due {
		delete(d.all, e)
		d.count.Store(int64(len(d.all)))
	}
}

// look compares the clocks and updates due times if necessary. It returns the entries whose due time it has changed,
// and when it must be called again. Only the loop calls it.
func (d *dates) look(now uint64) (moved []*entry, next uint64) {
	if d.count.Load() == 0 {
		return nil, never
	}
	if now < d.next {
		return nil, d.next
	}
	d.next = later(now, d.every)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.readLocked(); !d.stale {
		return nil, d.next
	}
	d.stale = false
	for e, at := range d.all {
		to := d.dueLocked(at.wall)
		if to = max(to, now); to == now && at.due <= now {
			to = at.due // it was already due
		}
		if !e.follow(at.due, to) {
			delete(d.all, e)
			continue
		}
		d.all[e] = date{at.wall, to}
		if e.placed() { // an entry in no slot has not been posted yet, and may still be refused
			moved = append(moved, e)
		}
	}
	d.count.Store(int64(len(d.all)))
	return moved, d.next
}

// readLocked compares the clocks, and updates the offset if they have drifted apart by a tick or more.
func (d *dates) readLocked() {
	offset := d.clock.Time(0).UnixNano()
	if moved := offset - d.offset; moved >= int64(d.ticks) || moved <= -int64(d.ticks) {
		d.offset, d.stale = offset, len(d.all) > 0
	}
}

// dueLocked returns the instant of that wall-clock time, or 0 if it was before the clock's origin.
func (d *dates) dueLocked(wall int64) uint64 {
	if wall < d.offset {
		return 0
	}
	return later(uint64(wall)-uint64(d.offset), time.Duration(d.ticks)) // now is also one tick ahead of the clock
}

// follow changes the due time of the entry from one instant to another. It reports false if the entry was due at a
// different instant or has changed its state.
func (e *entry) follow(from, to uint64) bool {
	if !e.state.CompareAndSwap(scheduled, moving) {
		return false
	}
	first := e.due.Load() == from
	if first {
		e.due.Store(to)
	}
	return e.state.CompareAndSwap(moving, scheduled) && first
}
