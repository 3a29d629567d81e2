// SPDX-License-Identifier: MIT

package node

import "github.com/seed581295f1/timewheel/durable/internal/task"

// A Result is the end of a run on its way to the engine.
type Result struct {
	Next    *task.Record // the task after the run; nil if the task ends
	Tally   Tally        // counts to add once the result is stored
	Settled Settled

	// Also returns a task that is added in the same commit, without a generation, as of the given time. It replaces a task with its
	// key. A nil Also adds none.
	Also func(now int64) *task.Record

	asof  int64                        // the time from which Next was computed; 0 if it depends on no time
	run   *Run                         // the run whose attempt has ended, or nil
	again func(now int64) *task.Record // computes Next once more, if run is nil
}

// at computes Next once more.
func (r *Result) at(now int64) *task.Record {
	if r.run != nil {
		return r.run.after(now)
	}
	return r.again(now)
}

// A Settled is called once with whether a result was stored. It must not block. A result is not stored if the task was
// removed, moved, replaced, paused or taken over during the run. A nil Settled does nothing.
type Settled func(stored bool)

func (s Settled) call(stored bool) {
	if s != nil {
		s(stored)
	}
}

// A Tally counts the effects of runs.
type Tally struct{ Parked, GivenUp, Expired, Succeeded, Failed, Snoozed uint64 }

// attempted returns the tally of an attempt, given its outcome and the task before and after the attempt.
func attempted(o task.Outcome, rec, next *task.Record) (t Tally) {
	switch {
	case o.Snooze:
		t.Snoozed = 1
	case o.Failure != "":
		t.Failed = 1
	default:
		t.Succeeded = 1
	}
	t.End(rec, next)
	return t
}

// End counts next if it is parked, or if the run of rec has been given up.
func (t *Tally) End(rec, next *task.Record) {
	switch {
	case next == nil:
	case next.IsParked():
		t.Parked = 1
	case next.HasGivenUp(rec):
		t.GivenUp = 1
	}
}

// IsLast reports whether the tally is of a task that is parked, or of a run that has been given up.
func (t *Tally) IsLast() bool { return t.Parked+t.GivenUp > 0 }

// accept counts a result that is stored, and says so.
func (n *Node) accept(r Result) {
	if r.Also != nil {
		n.count.added.Add(1)
	}
	n.count.add(r.Tally)
	r.Settled.call(true)
}
