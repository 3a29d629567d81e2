// SPDX-License-Identifier: MIT

package durable

import (
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A view is a task in the result of a look-up.
type view struct {
	rec      *task.Record
	running  bool
	starts   int    // as in engine.Stored
	started  int64  // when the running handler was called, or its start was confirmed; 0 if unknown
	node     string // the node that holds the task; empty if the task is free
	revision int64  // the record's revision in the engine
}

func (v view) state(now int64) State {
	if v.running {
		return Running
	}
	return stateOf(v.rec, now)
}

func (v view) info(now int64) Info {
	i := infoOf(v.rec, now)
	i.State, i.Node = v.state(now), v.node
	if v.running && v.started > 0 {
		i.Started = time.Unix(0, v.started)
	}
	return i
}

// stateOf returns the state of the task at the given time, if the task is not running.
func stateOf(r *task.Record, now int64) State {
	switch {
	case r.IsParked():
		return Parked
	case r.Paused != 0:
		return Paused
	case r.Due <= now:
		return Waiting
	case r.HasFailed():
		return Retrying
	}
	return Scheduled
}

// infoOf returns the Info of the task at the given time, if the task is not running.
func infoOf(r *task.Record, now int64) Info {
	i := Info{
		Key: r.Key, Kind: r.Kind, Payload: r.Payload, Interval: r.Interval, Cron: r.Cron, Times: int(r.Times),
		Generation: r.Generation, Seq: r.Seq, Attempts: int(r.Attempts), Missed: r.Missed,
		Parked: r.IsParked(), Failure: r.Failure(), GivenUp: r.GivenUp, Trace: r.Trace, Group: r.Group, State: stateOf(r, now),
		PayloadVersion: max(r.Version, 1), Note: r.Note, Shift: r.Shift, Snoozes: r.Snoozes, Expires: r.Expires,
	}
	if r.Deadline != 0 {
		i.Deadline = time.Unix(0, r.Deadline)
	}
	if !i.Parked && r.Paused == 0 {
		i.Next = time.Unix(0, r.Due)
	}
	for _, f := range r.Failed {
		failure := Failure{Text: f.Text}
		if f.At != 0 {
			failure.At = time.Unix(0, f.At)
		}
		i.Failed = append(i.Failed, failure)
	}
	return i
}

// InfoOf decodes a record into the Info that [Scheduler.Get] would return. It is for programs that repair a store. The
// payload shares memory with r.Data. The error wraps ErrCorrupt if r.Data cannot be read, and ErrVersion if r.Data was
// written by a later version of this package.
func InfoOf(r engine.Record) (Info, error) {
	rec, err := task.Decode(r)
	if err != nil {
		return Info{}, err
	}
	return infoOf(rec, time.Now().UnixNano()), nil
}

// A stretch is a range of tasks in one of the orders in which tasks are stored.
type stretch struct {
	order order
	after engine.Position // in order byDue: the position after which the stretch begins
	until int64           // in order byDue: the due time at which the stretch ends, inclusive
	from  string          // in other orders: the key at which the stretch begins, inclusive
}

// end returns the position after all tasks due at or before the given time.
func end(due int64) engine.Position { return engine.Position{Due: due, Key: beyondKeys} }

// beyondKeys is longer than any key, and therefore sorts after all keys.
var beyondKeys = strings.Repeat("\xff", MaxKey+1)

type order uint8

const (
	byDue     order = iota // by due time and key
	byKey                  // by key
	byFailing              // tasks with a failed attempt, by key
	byRunning              // running tasks, by key
)

// yieldFrom yields the tasks whose keys are not less than from, in key order.
func yieldFrom(all []view, from string, yield func(view, error) bool) {
	slices.SortFunc(all, func(a, b view) int { return strings.Compare(a.rec.Key, b.rec.Key) })
	for _, v := range all {
		if v.rec.Key >= from && !yield(v, nil) {
			return
		}
	}
}
