// SPDX-License-Identifier: MIT

package timewheel

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

// AddTask adds a copy of the task. Its first run is due Delay (or, if that is 0, Interval) from now, and
// starts not before, and less than a tick after, plus what the machine and the wait for a free worker take.
// The next ones are due at Interval from there, wherever the ticks fall: lateness does not add up.
//
// When it returns nil the task is live: Exist tells so and RemoveTask finds it. Otherwise nothing was
// changed, and the error wraps [ErrInvalidTask], [ErrDuplicateTaskKey], [ErrFull] or [ErrStopped]. Of several
// adds of one key at the same time one wins. AddTask works before Start, too, and the delay counts from the
// call.
func (tw *TimeWheel) AddTask(task *Task) error {
	e, err := tw.newEntry(task)
	if err != nil {
		return err
	}
	return tw.add(e)
}

// add puts the entry into the index and has the loop place it.
func (tw *TimeWheel) add(e *entry) error {
	due := e.due.Load()
	r, err := tw.index.add(e, tw.admit)
	if errors.Is(err, ErrFull) {
		return fmt.Errorf("%w: %d tasks are pending", err, tw.maxPending)
	}
	if err != nil {
		return fmt.Errorf("%w: %q", err, e.key)
	}
	tw.loop.posted(r, due)
	return nil
}

// SetTask adds a copy of the task as AddTask does, but takes the place of the live task of that key if there
// is one: that counts as removed, and no new run of it starts after SetTask returns. The key is there all the
// while. The error wraps [ErrInvalidTask], [ErrFull] or [ErrStopped]; nothing was changed then.
func (tw *TimeWheel) SetTask(task *Task) error {
	e, err := tw.newEntry(task)
	if err != nil {
		return err
	}
	due := e.due.Load()
	for {
		old := tw.index.get(e.key)
		if old == nil {
			if err := tw.add(e); !errors.Is(err, ErrDuplicateTaskKey) {
				return err
			}
			continue
		}
		if tw.index.replace(old, e, tw.ends) {
			tw.post(old, toRemove, never-1)
			tw.post(e, toAdd, due)
			return nil
		}
	}
}

// RemoveTask removes the live task of the key. When it returns nil no new run of that task starts, not even
// one that was due and waited for a worker; a run that goes on is not interrupted. What the task held, its
// job included, is free for the collector as soon as the loop has heard of it. If there is no such task, or
// its last run has begun, the error wraps [ErrTaskKeyNotFound].
func (tw *TimeWheel) RemoveTask(key string) error {
	r := tw.index.remove(key, tw.kills)
	if r.n == 0 {
		return fmt.Errorf("%w: %q", ErrTaskKeyNotFound, key)
	}
	tw.loop.posted(r, never-1)
	return nil
}

// Reschedule makes the next run of the task due d from now; later ones follow at its Interval from there, and
// their number stays. A run that was due and waits for a worker is withdrawn. d must not be negative; 0 means
// the next tick. To push a deadline back is cheap, however often: the task is moved when the old one comes.
// The error wraps [ErrInvalidTask], [ErrTaskKeyNotFound] or [ErrStopped]; nothing was changed then.
func (tw *TimeWheel) Reschedule(key string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("%w: delay %v is negative", ErrInvalidTask, d)
	}
	if tw.stopped.Load() {
		return ErrStopped
	}
	due := later(tw.loop.now(), d)
	for e := tw.index.get(key); e != nil; e = tw.index.get(key) {
		if tw.move(e, due) {
			return nil
		}
	}
	return fmt.Errorf("%w: %q", ErrTaskKeyNotFound, key)
}

// Exist reports whether a live task has the key. A task is live from its AddTask until its last run begins or
// it is removed, without a gap between two runs.
func (tw *TimeWheel) Exist(key string) bool { return tw.index.get(key) != nil }

// GetTaskTimes returns how many runs of the task have not begun: a number, [Forever], or 0 if no live task
// has the key.
func (tw *TimeWheel) GetTaskTimes(key string) int {
	e := tw.index.get(key)
	if e == nil {
		return 0
	}
	return int(e.times.Load())
}

// Get returns what is known of the live task of the key, and whether there is one.
func (tw *TimeWheel) Get(key string) (Info, bool) {
	e := tw.index.get(key)
	if e == nil {
		return Info{}, false
	}
	return tw.info(e), true
}

// All returns an iterator over the live tasks that have a key, in no particular order. No lock is held while
// it yields, so the loop may call every method; a task that comes or goes meanwhile may or may not be seen,
// any other is seen once. The walk needs 8 bytes for each task.
func (tw *TimeWheel) All() iter.Seq[Info] {
	return func(yield func(Info) bool) {
		for _, e := range tw.index.entries() {
			if e.live() && !yield(tw.info(e)) {
				return
			}
		}
	}
}

// Len returns the number of live tasks, timers included.
func (tw *TimeWheel) Len() int {
	if tw.maxPending > 0 {
		return int(tw.admitted.Load())
	}
	return tw.index.len() + int(tw.timers.Load())
}

// Drain removes every task that is pending, timers included, and then calls fn for each, in due order. What
// fn is given is enough to add the task again elsewhere: Times is the number of runs that have not begun, and
// Delay the time to the next run, at least 1 ns. (A timer has no key.) The number of tasks is returned. A
// task that is added, or a timer that is reset, at the same time may be left. Drain works before Start and
// after Stop, too. While the wheel runs it holds up the ticks, some half a second for a million tasks. If fn
// is nil the error wraps [ErrInvalidTask], and nothing is removed.
func (tw *TimeWheel) Drain(fn func(task *Task)) (int, error) {
	if fn == nil {
		return 0, fmt.Errorf("%w: drain: fn is nil", ErrInvalidTask)
	}
	type drained struct {
		e   *entry
		due uint64
	}
	var all []drained
	take := func(e *entry) {
		if due, ok := tw.kill(e); ok {
			all = append(all, drained{e, due})
		}
	}
	tw.loop.do(func() { tw.loop.drainLoop(take) })
	for _, d := range all {
		tw.forget(d.e)
	}
	// What is left was added since, or was in no slot, since a Reschedule was at work on it.
	for _, e := range tw.index.entries() {
		take(e)
		tw.index.forget(e)
	}
	for _, d := range all {
		tw.post(d.e, toRemove, never-1)
	}
	slices.SortStableFunc(all, func(a, b drained) int { return cmp.Compare(a.due, b.due) })
	now := tw.loop.now()
	for _, d := range all {
		fn(&Task{
			Key:      d.e.key,
			Interval: d.e.interval,
			Delay:    max(until(d.due, now), 1),
			Times:    int(d.e.times.Load()),
			Job:      d.e.job,
		})
	}
	return len(all), nil
}

func (tw *TimeWheel) info(e *entry) Info {
	info := Info{Key: e.key, Interval: e.interval, Times: int(e.times.Load())}
	due, ok := tw.dispatch.waitingSince(e)
	if ok {
		info.Waiting = true
	} else {
		due = e.due.Load()
		l := tw.loop
		info.Slot, info.Circle = position(l.ticks.up(due), l.ticks.down(l.now()), l.slots)
	}
	info.Next = tw.loop.time(due)
	return info
}
