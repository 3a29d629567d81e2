// SPDX-License-Identifier: MIT

package durable

import (
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// stateOfView returns the state of the task at the given time.
func stateOfView(v node.View, now int64) State {
	if v.Running {
		return Running
	}
	return stateOf(v.Rec, now)
}

// infoOfView returns the Info of the task at the given time.
func infoOfView(v node.View, now int64) Info {
	i := infoOf(v.Rec, now)
	i.State, i.Node = stateOfView(v, now), v.Node
	if v.Running && v.Started > 0 {
		i.Started = time.Unix(0, v.Started)
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
		Token: Token(r.Token), Kind: r.Kind, Payload: r.Payload, Interval: r.Interval, Cron: r.Cron, Times: int(r.Times),
		State: stateOf(r, now), Attempts: int(r.Attempts), Missed: r.Missed, Failure: r.Failure(), GivenUp: r.GivenUp,
		Snoozes: r.Snoozes, Trace: r.Trace, Group: r.Group, Meta: r.Meta, Note: r.Note, PayloadVersion: max(r.Version, 1),
		Shift: r.Shift, Expires: r.Expires,
	}
	if r.Until != 0 {
		i.Until = time.Unix(0, r.Until)
	}
	if r.Deadline != 0 {
		i.Deadline = time.Unix(0, r.Deadline)
	}
	if !r.IsParked() && r.Paused == 0 {
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
