// SPDX-License-Identifier: MIT

package task

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// Each transition depends only on the record and the arguments. It returns a record and modifies none.

// An Outcome is the result of an attempt of a run. The zero value is a success.
type Outcome struct {
	Failure string        // why the attempt failed, or empty
	Done    bool          // the handler called Complete
	Note    string        // the note passed to Complete
	Park    bool          // the attempt failed, and the task is parked without further attempts
	Snooze  bool          // the attempt did not fail, and the run is due again after Wait
	Wait    time.Duration // wait before the next attempt, if this one failed; negative means the kind's wait
}

// FailedFor returns the outcome of an attempt whose handler did not return.
func FailedFor(why string) Outcome { return Outcome{Failure: why, Wait: -1} }

// Late returns the outcome of an attempt that exceeded its kind's timeout.
func (o Outcome) Late(allowed, took time.Duration) Outcome {
	if o.Done || o.Snooze {
		return o
	}
	if o.Failure == "" {
		o = FailedFor("the handler returned nil")
	}
	o.Failure = Clip(fmt.Sprintf("timed out after %v, ended after %v: %s",
		allowed, took.Round(time.Millisecond), o.Failure))
	return o
}

// MaxFailure is the maximum size of a stored error, in bytes.
const MaxFailure = 256

// Clip truncates a text to MaxFailure.
func Clip(text string) string { return ClipTo(text, MaxFailure) }

// ClipTo truncates a text to at most the given number of bytes.
func ClipTo(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	for n := min(len(text), most); ; n-- {
		if n == len(text) || utf8.RuneStart(text[n]) {
			return text[:n]
		}
	}
}

// After returns the task after an attempt of its run, or nil if the task has ended. draw is a random number from 0 to
// 1, used for the wait.
//
//	succeeded, and repeats               the next run on the grid that is not over
//	succeeded                            nil
//	snoozed                              the same run, after a wait
//	failed, attempts left                the same run, after a wait
//	failed for the last time, repeats    the run is given up: the next run on the grid that is not over
//	failed for the last time             parked
//	Park                                 parked
func (r *Record) After(o Outcome, of *Policy, now int64, draw float64) *Record {
	next := *r
	next.Grid, next.Asof = r.realGrid(now), now
	switch {
	case o.Snooze:
		next.Snoozes, next.Deadline = next.Snoozes+1, 0
		next.Due = Later(now, o.Wait)
	case o.Failure == "" && !r.Repeats():
		return nil
	case o.Failure == "":
		next.Note = o.Note
		if next.proceed(of, now); next.IsLate(next.Grid) {
			return nil
		}
	default:
		next.fail(o.Failure, now)
		switch {
		case o.Park:
			next.Due = Never
		case next.Attempts >= of.Attempts:
			next.giveUp(of, now)
		case o.Wait >= 0:
			next.Due = Later(now, o.Wait)
		default:
			next.Due = Later(now, of.wait(next.Attempts, draw))
		}
	}
	return &next
}

// Interrupted returns the task as it is once that many starts of its run have ended in an unknown way: the process
// ended, or its lease expired. Each start counts as a failed attempt, so that a task that crashes its process is not
// retried forever. If no attempts are left, the run is given up or the task is parked, as in After. Otherwise, the due
// time is unchanged. now is the time at which the interruption was detected.
func (r *Record) Interrupted(starts int, of *Policy, now int64) *Record {
	if starts == 0 {
		return r
	}
	next := *r
	for range starts {
		next.fail("the process ended, or its lease expired, during the run", now)
	}
	if next.Attempts >= of.Attempts {
		next.Grid = r.realGrid(now)
		next.giveUp(of, now)
	}
	return &next
}

// proceed begins the next run on the grid that is not over. The runs in between count as missed.
func (r *Record) proceed(of *Policy, now int64) {
	if r.Times != Forever {
		r.Times--
	}
	grid := r.onGrid(r.Grid)
	if over := of.over(now); grid <= over {
		grid = r.onGrid(over)
		r.Missed += r.periods(grid) - 1
	}
	r.Grid = grid
	r.begin()
	r.Asof = now
}

// giveUp ends a run whose last attempt has failed. A repeating task proceeds to its next run and keeps the failures,
// unless its kind parks repeating tasks. Any other task is parked.
func (r *Record) giveUp(of *Policy, now int64) {
	if !r.Repeats() || of.ParkRepeating {
		r.Due = Never
		return
	}
	last, failed, givenUp := *r, r.Failed, r.GivenUp+1
	switch r.proceed(of, now); {
	case r.IsLate(r.Grid):
		*r = last
		r.Due = Never
	case r.Due != Never:
		r.Failed, r.GivenUp = failed, givenUp
	}
}

// IsLate reports whether a run that is not the first is due too late. A run that is due Never is not: the task is parked.
func (r *Record) IsLate(due int64) bool { return r.Until != 0 && due > r.Until && due != Never }

// HasGivenUp reports whether the run of was, an earlier state of the task, has been given up.
func (r *Record) HasGivenUp(was *Record) bool { return r.GivenUp > was.GivenUp }

// IsParked reports whether the task is parked.
func (r *Record) IsParked() bool { return r.Due == Never }

// SkipsTo returns the time up to which missed runs are skipped: to, or None if no run after it is due in time.
func (r *Record) SkipsTo(to int64) int64 {
	if r.Until != 0 && to != engine.None && r.IsLate(r.onGrid(to)) {
		return engine.None
	}
	return to
}

// Skipped returns the task with its next run after that time. The runs in between count as missed.
func (r *Record) Skipped(to, now int64) *Record {
	next := *r
	next.Grid, next.Asof = r.onGrid(to), now
	next.Missed += r.periods(next.Grid)
	next.await()
	return &next
}

// IsDefinedAs reports whether r, which repeats forever, has the same definition as another task. The state of both tasks
// and the times of their first runs do not matter.
func (r *Record) IsDefinedAs(as *Record) bool {
	return r.recurs(as) && r.Kind == as.Kind && bytes.Equal(r.Payload, as.Payload) && r.Times == as.Times &&
		r.Group == as.Group && r.Until == as.Until && r.Meta == as.Meta && max(r.Version, 1) == max(as.Version, 1)
}

// recurs reports whether both tasks repeat by the same interval or calendar.
func (r *Record) recurs(as *Record) bool {
	return r.Interval == as.Interval && r.Cron == as.Cron && r.Shift == as.Shift
}

// Redefined returns the task with the definition of another task. It keeps its due time if both repeat by the same
// interval or calendar, unless the task is parked. If it is running, it is due at the next instant of its grid.
func (r *Record) Redefined(as *Record, running bool, now int64) *Record {
	next := *r
	next.Kind, next.Payload, next.Times, next.Group, next.Version = as.Kind, as.Payload, as.Times, as.Group, as.Version
	next.Expires, next.Until, next.Meta = 0, as.Until, as.Meta
	asof := now
	switch {
	case !r.recurs(as) || r.Due == Never || r.Paused == Never:
		next.Interval, next.Cron, next.Shift, next.Grid = as.Interval, as.Cron, as.Shift, as.Grid
		asof = as.Asof
	case running:
		next.Grid = r.realGrid(now)
		next.Grid = next.onGrid(max(next.Grid, now))
	default:
		return &next
	}
	next.begin()
	next.Asof = asof
	return &next
}

// Moved returns the task with its next run due at that time. now is the time from which it was computed; 0 means that
// the caller chose it. The runs that were given up since the last complete one still count.
func (r *Record) Moved(to, now int64) *Record {
	next := *r
	next.Grid = to
	next.begin()
	if r.GivenUp > 0 {
		next.GivenUp, next.Failed = r.GivenUp, r.Failed
	}
	if next.Repeats() { // other tasks are many, and need no Asof
		next.Asof = now
	}
	return &next
}

// Following returns the task with which SetTask replaces old, which may be nil. If no run of old has started, the task
// is due no later than old's deadline.
func (r *Record) Following(old *Record, started bool, now int64) *Record {
	if old == nil || started || old.HasFailed() || old.Snoozes > 0 || r.Deadline == 0 || old.Deadline == 0 {
		return r
	}
	next := *r
	next.Deadline = min(r.Deadline, old.Deadline)
	next.Grid = min(r.Grid, next.Deadline)
	next.Due = max(next.Grid, now)
	return &next
}

// PutOff returns the task to store if earlier changes delayed SetTask by that long. Without the adjustment, the task
// would be due too soon after the runs of the earlier changes. A task without a deadline is returned unchanged.
func (r *Record) PutOff(by int64) *Record {
	if r.Deadline == 0 || by <= 0 {
		return r
	}
	next := *r
	next.Grid, next.Due = Later(r.Grid, time.Duration(by)), Later(r.Due, time.Duration(by))
	next.Deadline = Later(r.Deadline, time.Duration(by))
	return &next
}

// Held returns the task in its paused state.
func (r *Record) Held() *Record {
	if r.Paused != 0 {
		return r
	}
	next := *r
	next.Paused, next.Due = max(r.Due, 1), PausedDue
	return &next
}

// Resumed returns the task with the due time that it had before the pause, or with a later one if missed runs are
// skipped. of may be nil.
func (r *Record) Resumed(of *Policy, now int64) *Record {
	if r.Paused == 0 {
		return r
	}
	next := *r
	next.Due, next.Paused = r.Paused, 0
	if of == nil || !next.Skippable() {
		return &next
	}
	if to := next.SkipsTo(of.PassesOver(next.Due, now, next.Due <= now)); to != engine.None {
		return next.Skipped(to, now)
	}
	return &next
}

// begin starts a new run in the record, due at Grid.
func (r *Record) begin() {
	r.Seq++
	r.Attempts, r.Snoozes, r.Failed, r.GivenUp, r.Deadline, r.Asof = 0, 0, nil, 0, 0, 0
	r.await()
}

// await makes the task due at Grid, or parks it if Grid is Never. A paused task stays paused and becomes due at Grid
// after the pause.
func (r *Record) await() {
	switch r.Due = r.Grid; {
	case r.Paused != 0:
		r.Paused, r.Due = max(r.Grid, 1), PausedDue
	case r.Due == Never:
		r.fail(Clip("this process cannot read the schedule "+r.Cron), 0)
	}
}

// fail counts a failed attempt.
func (r *Record) fail(failure string, now int64) {
	r.Attempts++
	earlier := r.Failed[:min(len(r.Failed), mostFailed-1)]
	r.Failed = append([]Failure{{now, failure}}, earlier...)
}

// Repeats reports whether there is another run after the next one.
func (r *Record) Repeats() bool {
	if r.Times != Forever && r.Times <= 1 {
		return false
	}
	return r.Until == 0 || !r.IsLate(r.onGrid(r.Grid))
}

// onGrid returns the first instant of the task's grid after t, or Never if this process cannot parse its calendar.
func (r *Record) onGrid(t int64) int64 {
	if r.Grid > t {
		return r.Grid
	}
	if r.Cron != "" {
		return NextOf(r.Cron, t, r.Shift)
	}
	last := t - (t-r.Grid)%int64(r.Interval)
	return Later(last, r.Interval)
}

// periods returns the number of periods from the run to a later instant of the grid.
func (r *Record) periods(until int64) (n uint64) {
	if r.Cron == "" {
		return uint64((until - r.Grid) / int64(r.Interval))
	}
	calendar, err := ParseCalendar(r.Cron)
	if err != nil || until <= r.Grid {
		return 0
	}
	return 1 + calendar.between(time.Unix(0, r.Grid-int64(r.Shift)), time.Unix(0, until-int64(r.Shift)))
}

// NextOf returns the first instant after t that is an instant of the calendar plus shift. It returns Never if this
// process cannot parse the calendar.
func NextOf(cron string, t int64, shift time.Duration) int64 {
	calendar, err := ParseCalendar(cron)
	if err != nil {
		return Never
	}
	return calendar.after(t, shift)
}

// Skippable reports whether the next run may be skipped if it is overdue: it has not begun, and other runs follow it.
func (r *Record) Skippable() bool {
	return r.Repeats() && r.Attempts == 0 && r.Snoozes == 0
}

// LeastExpires is the shortest effective Expires, because a scheduler without a backlog may start a run that late.
const LeastExpires = time.Second

// IsExpired reports whether it is too late to start an attempt of the task's run. tick is that of the scheduler.
func (r *Record) IsExpired(now int64, tick time.Duration) bool {
	return r.Expires > 0 && now > Later(r.Grid, max(r.Expires, LeastExpires, 2*tick))
}
