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

// Each transition is a function of the record and its arguments. It returns another record, and changes none.

// An Outcome is the result of an attempt of a run. The zero value is a success.
type Outcome struct {
	Failure string        // why it failed, or empty
	Done    bool          // the handler has called Complete,
	Note    string        // with this note
	Park    bool          // it failed, and there is no further attempt
	Snooze  bool          // it did not fail, and the run is due again after Wait
	Wait    time.Duration // it failed, and is retried after this; negative: after the kind's wait
}

// FailedFor returns the outcome of an attempt whose handler did not return.
func FailedFor(why string) Outcome { return Outcome{Failure: why, Wait: -1} }

// Late returns the outcome of an attempt that took longer than its kind allows.
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

// MaxFailure is the greatest size of a stored error, in bytes.
const MaxFailure = 256

// Clip cuts a text to the size that is stored.
func Clip(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	for n := min(len(text), MaxFailure); ; n-- {
		if n == len(text) || utf8.RuneStart(text[n]) {
			return text[:n]
		}
	}
}

// After returns the task after an attempt of its run, or nil if the task has ended. draw is a random number from 0 to
// 1, for the wait.
//
//	succeeded, and repeats               the next run on the grid that is not over
//	succeeded                            nil
//	snoozed                              the same run, after a wait
//	failed, attempts left                the same run, after a wait
//	failed for the last time, or Park    parked
func (r *Record) After(o Outcome, of *Policy, now int64, draw float64) *Record {
	next := *r
	switch {
	case o.Snooze:
		next.Snoozes, next.Starts, next.Deadline = next.Snoozes+1, 0, 0
		next.Due = Later(now, o.Wait)
	case o.Failure == "" && !r.Repeats():
		return nil
	case o.Failure == "":
		next.Note = o.Note
		if next.Times != Forever {
			next.Times--
		}
		next.Grid = r.onGrid(r.Grid)
		if over := of.over(now); next.Grid <= over {
			next.Grid = r.onGrid(over)
			next.Missed += r.periods(next.Grid) - 1
		}
		next.begin()
	default:
		next.fail(o.Failure, now)
		switch {
		case o.Park || next.Attempts >= of.Attempts:
			next.Due = Never
		case o.Wait >= 0:
			next.Due = Later(now, o.Wait)
		default:
			next.Due = Later(now, of.wait(next.Attempts, draw))
		}
	}
	return &next
}

// Interrupted returns the task after a number of starts of its run with an unknown end: the process ended, or its lease
// expired. Each counts as a failed attempt, so that a task that ends its process is not retried for ever. If no
// attempts are left, the task is parked; otherwise its due time is unchanged. The argument now is the time of this
// finding.
func (r *Record) Interrupted(starts int, of *Policy, now int64) *Record {
	if starts == 0 {
		return r
	}
	next := *r
	next.Starts = 0
	for range starts {
		next.fail("the process ended, or its lease expired, during the run", now)
	}
	if next.Attempts >= of.Attempts {
		next.Due = Never
	}
	return &next
}

// Skipped returns the task with its next run after that time, and the runs before it missed.
func (r *Record) Skipped(to int64) *Record {
	next := *r
	next.Grid = r.onGrid(to)
	next.Missed += r.periods(next.Grid)
	next.await()
	return &next
}

// IsDefinedAs reports whether the task, which repeats without end, has the definition of another one: all but its state
// and the time of its first run.
func (r *Record) IsDefinedAs(as *Record) bool {
	return r.recurs(as) && r.Kind == as.Kind && bytes.Equal(r.Payload, as.Payload) && r.Times == as.Times &&
		r.Group == as.Group && max(r.Version, 1) == max(as.Version, 1)
}

// recurs reports whether the runs of both tasks recur in the same way.
func (r *Record) recurs(as *Record) bool {
	return r.Interval == as.Interval && r.Cron == as.Cron && r.Shift == as.Shift
}

// Redefined returns the task with the definition of another one. It keeps the due time if both recur in the same way,
// unless the task is parked.
func (r *Record) Redefined(as *Record) *Record {
	next := *r
	next.Kind, next.Payload, next.Times, next.Group, next.Version = as.Kind, as.Payload, as.Times, as.Group, as.Version
	next.Expires = 0
	if r.recurs(as) && r.Due != Never {
		return &next
	}
	next.Interval, next.Cron, next.Shift, next.Grid = as.Interval, as.Cron, as.Shift, as.Grid
	next.begin()
	return &next
}

// Moved returns the task with its next run at that time.
func (r *Record) Moved(to int64) *Record {
	next := *r
	next.Grid = to
	next.begin()
	return &next
}

// Following returns the task that SetTask puts in place of old, which may be nil. If no run of old has started, the
// task is due at the deadline of old at the latest.
func (r *Record) Following(old *Record, started bool, now int64) *Record {
	if old == nil || started || old.Failing() || old.Snoozes > 0 || r.Deadline == 0 || old.Deadline == 0 {
		return r
	}
	next := *r
	next.Deadline = min(r.Deadline, old.Deadline)
	next.Grid = min(r.Grid, next.Deadline)
	next.Due = max(next.Grid, now)
	return &next
}

// PutOff returns the task that SetTask puts that long after its call, because other changes came first: otherwise it
// would be due too soon after their runs. A task without a deadline is unchanged.
func (r *Record) PutOff(by int64) *Record {
	if r.Deadline == 0 || by <= 0 {
		return r
	}
	next := *r
	next.Grid, next.Due = Later(r.Grid, time.Duration(by)), Later(r.Due, time.Duration(by))
	next.Deadline = Later(r.Deadline, time.Duration(by))
	return &next
}

// Held returns the task paused.
func (r *Record) Held() *Record {
	if r.Paused != 0 {
		return r
	}
	next := *r
	next.Paused, next.Due = max(r.Due, 1), PausedDue
	return &next
}

// Resumed returns the task with its due time before the pause. of may be nil.
func (r *Record) Resumed(of *Policy, now int64) *Record {
	if r.Paused == 0 {
		return r
	}
	next := *r
	next.Due, next.Paused = r.Paused, 0
	if of == nil || !next.Skippable() {
		return &next
	}
	if to := of.PassesOver(next.Due, now, next.Due <= now); to != engine.None {
		return next.Skipped(to)
	}
	return &next
}

// begin sets the record to a new run, which is due on its grid.
func (r *Record) begin() {
	r.Seq++
	r.Attempts, r.Starts, r.Snoozes, r.Failed, r.Deadline = 0, 0, 0, nil, 0
	r.await()
}

// await makes the task due on its grid, or parks it if the grid is unknown. A paused task will be due then.
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

// Repeats reports whether there is a run after the next.
func (r *Record) Repeats() bool { return r.Times == Forever || r.Times > 1 }

// onGrid returns the first instant of the task's grid after t, or Never if this process cannot read its
// calendar.
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

// periods returns how many periods there are from the run to a later instant of the grid.
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

// NextOf returns the first instant of the calendar, shifted, after t, or Never if this process cannot read it.
func NextOf(cron string, t int64, shift time.Duration) int64 {
	calendar, err := ParseCalendar(cron)
	if err != nil {
		return Never
	}
	return calendar.after(t, shift)
}

// Skippable reports whether the next run may be skipped when it is overdue: there are others, and it has not begun.
func (r *Record) Skippable() bool {
	return r.Repeats() && r.Attempts == 0 && r.Starts == 0 && r.Snoozes == 0
}

// IsExpired reports whether it is too late to start the task's run.
func (r *Record) IsExpired(now int64) bool { return r.Expires > 0 && now > Later(r.Grid, r.Expires) }
