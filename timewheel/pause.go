// SPDX-License-Identifier: MIT

package timewheel

import "time"

// Pause keeps the task from running until [TimeWheel.Resume]. After Pause returns nil, no run of the task starts; a due
// run that was waiting for a worker is withdrawn. A run in progress is not interrupted. Pausing a paused task does
// nothing. The error wraps [ErrTaskKeyNotFound] or [ErrStopped].
//
// A paused task is live: its key stays taken; Exist, GetTaskTimes, Get, All and Len include it; and [Info] and [Stats]
// report it as paused. It is in no slot, so it costs nothing but memory, and Upcoming omits it. Reschedule changes how
// long after Resume the task is due. SetTask replaces it with a task that is not paused. RemoveTask and Drain remove
// it.
func (tw *TimeWheel) Pause(key string) error {
	if err := tw.accepts("Pause", key); err != nil {
		return err
	}
	old, ok := tw.index.swap(key, func(e *entry) *entry {
		if e.load() == paused {
			return e
		}
		due, ok := tw.endDue(e)
		if !ok {
			return nil
		}
		tw.paused.Add(1)
		p := e.again(uint64(until(due, tw.loop.now())))
		p.state.Store(paused)
		return p
	})
	if !ok {
		return notFound(key)
	}
	if old != nil {
		tw.dates.drop(old)
		tw.loop.post(old, moved, noHurry)
	}
	return nil
}

// Resume lets a paused task run again. Its next run is due after the delay that remained when it was paused, or at the
// next tick if it was already due. Later runs follow at the task's Interval. Periods that pass during the pause do not
// count as missed. A task added with AddAt no longer follows the wall clock. Resuming a task that is not paused does
// nothing. The error wraps [ErrTaskKeyNotFound] or [ErrStopped].
func (tw *TimeWheel) Resume(key string) error {
	if err := tw.accepts("Resume", key); err != nil {
		return err
	}
	var e *entry
	var due uint64
	old, ok := tw.index.swap(key, func(p *entry) *entry {
		if p.load() != paused {
			if p.live() {
				return p
			}
			return nil
		}
		var ok bool
		if due, ok = tw.endDue(p); !ok {
			return nil
		}
		e = p.again(due)
		return e
	})
	if !ok {
		return notFound(key)
	}
	if old != nil {
		tw.loop.post(e, moved, due)
	}
	return nil
}

// setLeft changes the remaining delay of a paused entry. It reports false if the entry is dead.
func (e *entry) setLeft(d time.Duration) bool {
	e.due.Store(uint64(d))
	return e.load() == paused // if so, a verb that ends the entry later reads this due time
}

// again returns a new entry for the task of e, with the given due time. e must have ended.
func (e *entry) again(due uint64) *entry {
	return newEntry(e.key, e.job, e.interval, due, int(e.times.Load()))
}
