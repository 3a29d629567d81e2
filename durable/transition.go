// SPDX-License-Identifier: MIT

package durable

import (
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// What becomes of a task is decided here: each transition is a function of the record and the time, and changes
// nothing.

// after returns what becomes of the task after an attempt of its run, or nil if that was the end of it. draw,
// from 0 to 1, is drawn at random for the wait.
//
//	succeeded, and repeats               the next run on the grid that is not over
//	succeeded                            nil
//	failed, attempts left                the same run, after a wait
//	failed for the last time, or [Park]  parked
func (r *record) after(o outcome, of *policy, now int64, draw float64) *record {
	if o.failure == "" && !r.repeats() {
		return nil
	}
	next := *r
	switch o.failure {
	case "":
		next.note = o.note
		if next.times != timesForever {
			next.times--
		}
		next.grid = r.onGrid(r.grid)
		if over := of.over(now); next.grid <= over {
			next.grid = r.onGrid(over)
			next.missed += r.periods(next.grid) - 1
		}
		next.begin()
	default:
		next.fail(o.failure, now)
		switch {
		case o.park || next.attempts >= of.attempts:
			next.due = never
		case o.wait >= 0:
			next.due = later(now, o.wait)
		default:
			next.due = later(now, of.wait(next.attempts, draw))
		}
	}
	return &next
}

// interrupted returns the task after a number of starts of its run whose end is unknown: the process ended, or
// its lease ran out. Each counts as a failed attempt. If that leaves no attempt, the task is parked, or else it
// is due as before. A task that ends its process is not tried for ever in this way. now is when that was found.
func (r *record) interrupted(starts int, of *policy, now int64) *record {
	if starts == 0 {
		return r
	}
	next := *r
	next.starts = 0
	for range starts {
		next.fail("the process ended, or its lease ran out, during the run", now)
	}
	if next.attempts >= of.attempts {
		next.due = never
	}
	return &next
}

// skipped returns the task with its next run after that time, and those before it missed.
func (r *record) skipped(to int64) *record {
	next := *r
	next.grid = r.onGrid(to)
	next.missed += r.periods(next.grid)
	next.await()
	return &next
}

// moved returns the task with its next run at that time.
func (r *record) moved(to int64) *record {
	next := *r
	next.grid = to
	next.begin()
	return &next
}

// following returns the task as SetTask puts it in place of old, which may be nil: as it is, or due by the
// deadline of old if no run of that has started.
func (r *record) following(old *record, started bool, now int64) *record {
	if old == nil || started || old.failing() || r.deadline == 0 || old.deadline == 0 {
		return r
	}
	next := *r
	next.deadline = min(r.deadline, old.deadline)
	next.grid = min(r.grid, next.deadline)
	next.due = max(next.grid, now)
	return &next
}

// putOff returns the task as SetTask puts it that long after its call, because others have changed the task
// meanwhile: else it would be due too soon after their runs. It returns a task without a deadline as it is.
func (r *record) putOff(by int64) *record {
	if r.deadline == 0 || by <= 0 {
		return r
	}
	next := *r
	next.grid, next.due = later(r.grid, time.Duration(by)), later(r.due, time.Duration(by))
	next.deadline = later(r.deadline, time.Duration(by))
	return &next
}

// held returns the task paused.
func (r *record) held() *record {
	if r.paused != 0 {
		return r
	}
	next := *r
	next.paused, next.due = max(r.due, 1), pausedDue
	return &next
}

// resumed returns the task due as before it was paused. of may be nil.
func (r *record) resumed(of *policy, now int64) *record {
	if r.paused == 0 {
		return r
	}
	next := *r
	next.due, next.paused = r.paused, 0
	if of == nil || !next.skippable() {
		return &next
	}
	if to := of.passesOver(next.due, now, next.due <= now); to != engine.None {
		return next.skipped(to)
	}
	return &next
}

// begin makes the record one of a new run, which is due on its grid.
func (r *record) begin() {
	r.seq++
	r.attempts, r.starts, r.failed, r.deadline = 0, 0, nil, 0
	r.await()
}

// await makes the task due on its grid, or parks it if that is not known. A paused task will be due then.
func (r *record) await() {
	switch r.due = r.grid; {
	case r.paused != 0:
		r.paused, r.due = max(r.grid, 1), pausedDue
	case r.due == never:
		r.fail(clip("this process cannot read the schedule "+r.cron), 0)
	}
}

// fail counts a failed attempt.
func (r *record) fail(failure string, now int64) {
	r.attempts++
	earlier := r.failed[:min(len(r.failed), mostFailed-1)]
	r.failed = append([]failed{{now, failure}}, earlier...)
}

// repeats reports whether there is a run after the next.
func (r *record) repeats() bool { return r.times == timesForever || r.times > 1 }

// onGrid returns the first instant of the task's grid after t, or never if this process cannot read its
// calendar.
func (r *record) onGrid(t int64) int64 {
	if r.grid > t {
		return r.grid
	}
	if r.cron != "" {
		return nextOf(r.cron, t, r.shift)
	}
	last := t - (t-r.grid)%int64(r.interval)
	return later(last, r.interval)
}

// periods returns how many periods there are from the run to a later instant of the grid.
func (r *record) periods(until int64) (n uint64) {
	if r.cron == "" {
		return uint64((until - r.grid) / int64(r.interval))
	}
	calendar, err := parseCalendar(r.cron)
	if err != nil || until <= r.grid {
		return 0
	}
	return 1 + calendar.between(time.Unix(0, r.grid-int64(r.shift)), time.Unix(0, until-int64(r.shift)))
}

// nextOf returns the first instant of the calendar, shifted, after t, or never if this process cannot read it.
func nextOf(cron string, t int64, shift time.Duration) int64 {
	calendar, err := parseCalendar(cron)
	if err != nil {
		return never
	}
	return calendar.shifted(t, shift)
}

// skippable reports whether the next run may be passed over when it is overdue: there are others, and it has
// not begun.
func (r *record) skippable() bool { return r.repeats() && r.attempts == 0 && r.starts == 0 }
