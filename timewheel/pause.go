// SPDX-License-Identifier: MIT

package timewheel

import "time"

// Pause keeps the task from running until [TimeWheel.Resume]. When Pause returns nil no run of it starts: a
// run that was due and waited for a worker is withdrawn. A run in progress is not interrupted. A task that is
// paused already stays so. The error wraps [ErrTaskKeyNotFound] or [ErrStopped].
//
// A paused task is live: Exist, GetTaskTimes, Get, All and Len count it, [Info] and [Stats] say that it is
// paused, and its key is taken. It waits in no slot, so it costs its memory alone, and Upcoming leaves it
// out. Reschedule changes how long after Resume it is due. SetTask replaces it with a task that is not
// paused. RemoveTask and Drain take it out.
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

// Resume lets a paused task run again. Its next run is due after the time that was left when it was paused,
// or at the next tick if it was due by then. Later ones follow at Interval from there; the periods in between
// are not missed, they did not fall due. A task of AddAt no longer follows the wall clock. A task that is not
// paused stays as it is. The error wraps [ErrTaskKeyNotFound] or [ErrStopped].
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

// setLeft changes how long it is until the next run of a paused entry. It reports false if the entry is dead.
func (e *entry) setLeft(d time.Duration) bool {
	e.due.Store(uint64(d))
	return e.load() == paused // then what ends it reads the due time after this
}

// again returns an entry for the task of e, which has ended, with another due time.
func (e *entry) again(due uint64) *entry {
	return newEntry(e.key, e.job, e.interval, due, int(e.times.Load()))
}
