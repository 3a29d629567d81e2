// SPDX-License-Identifier: MIT

package task

import "time"

// MostAhead is how far the clock may have been ahead when a due time was computed. A task whose due time was computed
// later than this after the present waits for the instant that the clock showed by mistake, which may be years away.
const MostAhead = time.Minute

// Righted returns the task with the due time that it would have if the clock had not been ahead when its due time was
// computed, or r if the clock was not ahead by more than MostAhead. A run that is due at an instant of the task's grid
// is due at the next one, a run that waits for another attempt waits as long as it did, and a run that was to start after
// a longer delay starts after that delay. A due time that a caller has chosen is kept, as is that of a task that runs once.
func (r *Record) Righted(now int64) *Record {
	due := r.Due
	if r.Paused != 0 {
		due = r.Paused
	}
	if !r.isAhead(now) || due <= now || due == Never {
		return r
	}
	next := *r
	next.Asof = now
	by := r.Asof - now
	switch {
	case r.HasFailed() || r.Snoozes > 0:
		next.Grid, due = r.realGrid(now), due-by
	case r.isNext(r.Grid, r.Asof):
		next.Grid = r.realGrid(now)
		next.Grid = next.onGrid(now)
		due = next.Grid
	default:
		next.Grid, due = max(r.Grid-by, 0), due-by
	}
	if due == Never { // this process cannot read the calendar
		return r
	}
	if due = max(due, now, 1); r.Paused != 0 {
		next.Paused = due
	} else {
		next.Due = due
	}
	return &next
}

// isAhead reports whether the task's due time was computed while the clock was ahead.
func (r *Record) isAhead(now int64) bool { return r.Asof-now > int64(MostAhead) }

// isNext reports whether the instant is at most the next one of the task's grid after t.
func (r *Record) isNext(instant, t int64) bool {
	if r.Cron != "" {
		return instant <= NextOf(r.Cron, t, r.Shift)
	}
	return instant-t <= int64(r.Interval)
}

// realGrid returns Grid, or the last instant of the task's grid until now if Grid was computed while the clock was ahead.
// The last instant of a calendar is not known, so now takes its place.
func (r *Record) realGrid(now int64) int64 {
	switch {
	case r.Grid <= now || !r.isAhead(now):
		return r.Grid
	case r.Interval == 0:
		return now
	}
	back := r.Grid - now + int64(r.Interval) - 1
	return max(r.Grid-back+back%int64(r.Interval), 0)
}
