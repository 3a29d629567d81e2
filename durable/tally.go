// SPDX-License-Identifier: MIT

package durable

import "github.com/seed581295f1/timewheel/durable/internal/task"

// A tally counts the effects of changes.
type tally struct{ added, removed, parked, givenUp, expired, succeeded, failed, snoozed uint64 }

// attempted returns the tally of an attempt, given its outcome and the task before and after the attempt.
func attempted(o task.Outcome, rec, next *task.Record) (t tally) {
	switch {
	case o.Snooze:
		t.snoozed = 1
	case o.Failure != "":
		t.failed = 1
	default:
		t.succeeded = 1
	}
	t.end(rec, next)
	return t
}

// end counts next if it is parked, or if the run of rec has been given up.
func (t *tally) end(rec, next *task.Record) {
	switch {
	case next == nil:
	case next.IsParked():
		t.parked = 1
	case next.HasGivenUp(rec):
		t.givenUp = 1
	}
}

// isLast reports whether the tally is of a task that is parked, or of a run that has been given up.
func (t *tally) isLast() bool { return t.parked+t.givenUp > 0 }
