// SPDX-License-Identifier: MIT

package timewheel

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"
	"time"
)

// AddTask adds a copy of the task. The first run is due after Delay, or after Interval if Delay is 0. It never starts
// early, and starts less than one tick late, not counting scheduling and any wait for a worker. Later runs are due at
// multiples of Interval after the first due time, regardless of tick boundaries, so lateness does not accumulate.
//
// When AddTask returns nil, the task is live: Exist reports true and RemoveTask can remove it. Otherwise nothing has
// changed, and the error wraps [ErrInvalidTask], [ErrDuplicateTaskKey], [ErrFull] or [ErrStopped]. If several
// goroutines add the same key at once, exactly one of them succeeds. AddTask may be called before Start; the delay is
// measured from the call.
func (tw *TimeWheel) AddTask(task *Task) error {
	e, err := tw.entryOf("AddTask", task)
	if err != nil {
		return err
	}
	return tw.add(e)
}

func (tw *TimeWheel) add(e *entry) error {
	due := e.due.Load() // the loop may change it once the entry is placed
	if err := tw.index.add(e); err != nil {
		return tw.refusal(err, e)
	}
	tw.loop.post(e, added, due)
	return nil
}

// SetTask adds a copy of the task as AddTask does, replacing any live task with the same key. The replaced task counts
// as removed and starts no new run once SetTask has returned. Exist never reports false in between. If SetTask fails,
// nothing has changed, and the error wraps [ErrInvalidTask], [ErrFull] or [ErrStopped].
func (tw *TimeWheel) SetTask(task *Task) error {
	e, err := tw.entryOf("SetTask", task)
	if err != nil {
		return err
	}
	return tw.set(e)
}

func (tw *TimeWheel) set(e *entry) error {
	due := e.due.Load()
	old, err := tw.index.set(e, tw.end)
	if err != nil {
		return tw.refusal(err, e)
	}
	if old != nil {
		tw.dates.drop(old)
		tw.loop.post(old, ended, noHurry)
	}
	tw.loop.post(e, added, due)
	return nil
}

// RemoveTask removes the live task with the given key. After RemoveTask returns nil, no new run of that task starts,
// not even a due run that was waiting for a worker. A run in progress is not interrupted. The garbage collector can
// reclaim the task and its job as soon as the loop has handled the removal. If there is no such task, or its last run
// has begun, the error wraps [ErrTaskKeyNotFound].
func (tw *TimeWheel) RemoveTask(key string) error {
	e := tw.index.remove(key, tw.end)
	if e == nil {
		return notFound(key)
	}
	tw.dates.drop(e)
	tw.index.leave()
	tw.loop.post(e, ended, noHurry)
	return nil
}

// Reschedule makes the next run of the task due d from now. Later runs follow at the task's Interval, and the number of
// remaining runs does not change. A due run that is waiting for a worker is withdrawn. A paused task stays paused, and
// is due d after it is resumed. A task added with AddAt no longer follows the wall clock. d must not be negative; 0
// means the next tick. Postponing is cheap: the task moves only when its old due time is reached. If Reschedule fails,
// nothing has changed, and the error wraps [ErrInvalidTask], [ErrTaskKeyNotFound] or [ErrStopped].
func (tw *TimeWheel) Reschedule(key string, d time.Duration) error {
	if err := checkDelay(key, d); err != nil {
		return err
	}
	if err := tw.accepts("Reschedule", key); err != nil {
		return err
	}
	due := later(tw.loop.now(), d)
	for e := tw.index.get(key); e != nil; e = tw.index.get(key) {
		tw.dates.drop(e)
		if e.load() == paused && e.setLeft(d) || e.load() != paused && tw.move(e, due) {
			return nil
		}
	}
	return notFound(key)
}

// checkDelay returns an error that names the key or prefix if the delay is negative.
func checkDelay(key string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("%w: delay %v of %q is negative", ErrInvalidTask, d, key)
	}
	return nil
}

func notFound(key string) error { return fmt.Errorf("%w: %q", ErrTaskKeyNotFound, key) }

// accepts returns an error that wraps ErrStopped and names the verb and key if the wheel has been stopped.
func (tw *TimeWheel) accepts(verb, key string) error {
	if tw.stopped.Load() {
		return fmt.Errorf("%w: %s of %q", ErrStopped, verb, key)
	}
	return nil
}

// entryOf returns an entry for the task, with its due time counted from now. It returns an error if the task is invalid
// or the wheel has been stopped.
func (tw *TimeWheel) entryOf(verb string, task *Task) (*entry, error) {
	if err := task.check(); err != nil {
		return nil, err
	}
	if err := tw.accepts(verb, task.Key); err != nil {
		return nil, err
	}
	due := later(tw.loop.now(), cmp.Or(task.Delay, task.Interval))
	return newEntry(task.Key, task.Job, task.Interval, due, cmp.Or(task.Times, 1)), nil
}

// refusal adds the key, and the limit for ErrFull, to an error from the index.
func (tw *TimeWheel) refusal(err error, e *entry) error {
	tw.dates.drop(e)
	if err == ErrFull {
		return fmt.Errorf("%w: %[2]d of %[2]d; %[3]q is not added", err, tw.maxPending, e.key)
	}
	return fmt.Errorf("%w: %q", err, e.key)
}

// end ends the task of e if it is live, and reports whether this call did so. The caller must update the index and the
// loop.
func (tw *TimeWheel) end(e *entry) bool {
	_, ok := tw.endDue(e)
	return ok
}

// endDue is like end, but also returns when the next run was due or, for a paused task, when the next run would be due
// if the task were resumed now.
func (tw *TimeWheel) endDue(e *entry) (due uint64, ok bool) {
	for {
		switch s := e.state.Load(); s & stateMask {
		case removed, done:
			return 0, false
		case waiting:
			if due, ok := tw.dispatch.withdraw(e, removed); ok {
				return due, true
			}
		case paused:
			if e.state.CompareAndSwap(s, removed) {
				tw.paused.Add(-1)
				return later(tw.loop.now(), time.Duration(e.due.Load())), true
			}
		default:
			if e.state.CompareAndSwap(s, removed) {
				return e.due.Load(), true
			}
		}
	}
}

// move changes the due time of a live entry that is not paused. It reports false if the entry is dead.
func (tw *TimeWheel) move(e *entry, due uint64) bool {
	for {
		by := due
		switch s := e.state.Load(); s & stateMask {
		case removed, done:
			return false
		case scheduled:
			if !e.state.CompareAndSwap(s, moving) {
				continue
			}
			if due >= e.due.Load() {
				by = never // the entry is in a slot or on its way to one, so the loop reaches it in time
			}
		case waiting:
			if _, ok := tw.dispatch.withdraw(e, moving); !ok {
				runtime.Gosched() // a worker is about to begin the run
				continue
			}
		case moving:
			runtime.Gosched() // another goroutine is about to finish its move
			continue
		}
		e.due.Store(due)
		if !e.state.CompareAndSwap(moving, scheduled) {
			return false // it was removed or paused in the meantime
		}
		if by != never {
			tw.loop.post(e, moved, by)
		}
		return true
	}
}

// Exist reports whether a live task has the key. A task is live from AddTask until its last run begins or it is
// removed. It stays live between runs and while it is paused.
func (tw *TimeWheel) Exist(key string) bool { return tw.index.get(key) != nil }

// GetTaskTimes returns how many runs of the task have not begun. It returns [Forever] if the task runs until it is
// removed, and 0 if no live task has the key.
func (tw *TimeWheel) GetTaskTimes(key string) int {
	e := tw.index.get(key)
	if e == nil {
		return 0
	}
	times, _, _ := tw.dispatch.times(e)
	return times
}

// Get returns a description of the live task with the given key, and reports whether there is one.
func (tw *TimeWheel) Get(key string) (Info, bool) { return tw.infoOf(key, tw.index.get(key)) }

// All returns an iterator over the live tasks that have a key, in no particular order. It holds no lock while it
// yields, so the body of the loop may call any method. A task that is added or removed during the walk may or may not
// be seen; every other task is seen once. The walk visits all tasks of the wheel and allocates 8 bytes for each of
// them.
func (tw *TimeWheel) All() iter.Seq[Info] { return tw.AllPrefix("") }

// Len returns the number of live tasks, timers included.
func (tw *TimeWheel) Len() int { return tw.Stats().Pending }

// Drain walks over all tasks of the wheel and removes every live task, including timers and paused tasks. It then calls
// fn for each removed task, in due order. The task passed to fn can be added to another wheel. Its Times is the number
// of runs that have not begun, and its Delay is the time until the next run, at least 1 ns. The task of a timer has an
// empty key. Drain returns the number of removed tasks; the error is always nil.
//
// Drain may miss a task that is being added, paused or resumed concurrently, or a timer that is being reset. It may be
// called before Start and after Stop. On a running wheel it delays the ticks, by about half a second with a million
// tasks. Drain panics if fn is nil.
func (tw *TimeWheel) Drain(fn func(task *Task)) (int, error) {
	if fn == nil {
		panic("timewheel: nil function for Drain")
	}
	type drained struct {
		e   *entry
		due uint64
	}
	var all []drained
	end := func(e *entry) {
		if due, ok := tw.endDue(e); ok {
			all = append(all, drained{e, due})
		}
	}
	tw.loop.do(func() { tw.loop.drainLoop(end) })
	// The remaining tasks were added in the meantime, or were in no slot because of a Reschedule.
	for _, e := range tw.index.entries() {
		end(e)
	}
	for _, d := range all {
		if d.e.key != "" {
			tw.dates.drop(d.e)
			tw.index.forget(d.e)
		}
		tw.index.leave()
		tw.loop.post(d.e, ended, noHurry)
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

// drainLoop removes everything from the layout and the queue, and calls end for each entry.
func (l *loop) drainLoop(end func(e *entry)) {
	l.layout.drain(end)
	clear(l.census.tasks)
	for _, e := range l.dispatch.queued(math.MaxInt) {
		end(e)
	}
}

// infoOf returns the info of e or, if e is dead or nil, the info of the key's live entry, if there is one.
func (tw *TimeWheel) infoOf(key string, e *entry) (Info, bool) {
	for ; e != nil; e = tw.index.get(key) {
		if info, live := tw.info(e); live {
			return info, true
		}
	}
	return Info{}, false
}

// info returns the info of e, and reports whether e is live.
func (tw *TimeWheel) info(e *entry) (info Info, live bool) {
	l := tw.loop
	info = Info{Key: e.key, Interval: e.interval, Paused: e.load() == paused}
	var due uint64
	switch info.Times, due, info.Waiting = tw.dispatch.times(e); {
	case info.Paused:
		due = later(l.now(), time.Duration(e.due.Load()))
	case !info.Waiting:
		due = e.due.Load()
		info.Slot, info.Circle = position(l.ticks.up(due), l.ticks.down(l.now()), l.layout.turn)
	}
	info.Next = l.ticks.time(l.clock, due)
	return info, e.live()
}
