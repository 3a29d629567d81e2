// SPDX-License-Identifier: MIT

package timewheel

import "runtime"

// newEntry returns the entry for a task that is right, due from now.
func (tw *TimeWheel) newEntry(task *Task) (*entry, error) {
	if err := task.check(); err != nil {
		return nil, err
	}
	if tw.stopped.Load() {
		return nil, ErrStopped
	}
	e := &entry{key: task.Key, job: task.Job, interval: task.Interval}
	delay := task.Delay
	if delay == 0 {
		delay = task.Interval
	}
	e.due.Store(later(tw.loop.now(), delay))
	times := task.Times
	if times == 0 {
		times = 1
	}
	e.times.Store(int64(times))
	return e, nil
}

// admit counts one more task as live, if the bound allows it. A task that has ended makes room, also if
// it is about to be counted out.
func (tw *TimeWheel) admit() bool {
	for tw.maxPending > 0 {
		leaving := tw.leaving.Load() // before admitted: when it is 0, those that have ended are counted out
		n := tw.admitted.Load()
		switch {
		case n < tw.maxPending:
			if tw.admitted.CompareAndSwap(n, n+1) {
				return true
			}
		case leaving == 0:
			return false
		default:
			runtime.Gosched()
		}
	}
	return true
}

// leave notes that a task is about to end (1), or was counted out or did not end (-1).
func (tw *TimeWheel) leave(n int64) {
	if tw.maxPending > 0 {
		tw.leaving.Add(n)
	}
}

// gone counts one task less, which was ended and not replaced.
func (tw *TimeWheel) gone(e *entry) {
	if tw.maxPending > 0 {
		tw.admitted.Add(-1)
	}
	if e.key == "" {
		tw.timers.Add(-1)
	}
}

// kill ends a live task and counts it out. It returns when its next run was due, and whether it was this call
// that ended it. The caller sees to the index and the loop.
func (tw *TimeWheel) kill(e *entry) (due uint64, ok bool) {
	tw.leave(1)
	defer tw.leave(-1)
	if due, ok = tw.end(e); ok {
		tw.gone(e)
	}
	return due, ok
}

func (tw *TimeWheel) kills(e *entry) bool {
	_, ok := tw.kill(e)
	return ok
}

// end ends a live task as kill does, and leaves it counted: another takes its place.
func (tw *TimeWheel) end(e *entry) (due uint64, ok bool) {
	for !ok {
		switch s := e.state.Load(); s {
		case removed, done:
			return 0, false
		case waiting:
			due, ok = tw.dispatch.withdraw(e, removed, func() {})
		default:
			ok = e.state.CompareAndSwap(s, removed)
			due = e.due.Load()
		}
	}
	return due, true
}

func (tw *TimeWheel) ends(e *entry) bool {
	_, ok := tw.end(e)
	return ok
}

// move gives a live entry another due time. It reports false if the entry is dead.
func (tw *TimeWheel) move(e *entry, due uint64) bool {
	for {
		switch e.state.Load() {
		case scheduled:
			if !e.state.CompareAndSwap(scheduled, moving) {
				continue
			}
			old := e.due.Load()
			e.due.Store(due)
			if e.state.CompareAndSwap(moving, scheduled) {
				if due < old {
					tw.post(e, toMove, due)
				}
			} else if e.state.CompareAndSwap(orphaned, scheduled) {
				tw.post(e, toMove, due)
			} // else it was removed since, after it was moved
			return true
		case moving, orphaned:
			runtime.Gosched() // another goroutine is between two of the lines above
		case waiting:
			if _, ok := tw.dispatch.withdraw(e, scheduled, func() { e.due.Store(due) }); ok {
				tw.post(e, toMove, due)
				return true
			}
		default:
			return false
		}
	}
}

// post has the loop look at the entry; by the instant by, if that matters.
func (tw *TimeWheel) post(e *entry, why post, by uint64) {
	tw.loop.posted(tw.index.mailbox(e).put(e, why), by)
}

// forget takes a dead entry out of the index.
func (tw *TimeWheel) forget(e *entry) {
	if e.key != "" {
		tw.index.forget(e)
	}
}
