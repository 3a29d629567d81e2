// SPDX-License-Identifier: MIT

package node

import (
	"sync/atomic"

	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/task"
	"github.com/seed581295f1/timewheel/timewheel"
)

// A live represents a task that is in the wheel, in the backlog or running. The node owns every field but the atomic ones.
type live struct {
	limit.Task
	by        *Node
	state     atomic.Uint32 // leaves waits by compare-and-swap, so that either a run or a removal wins
	ran       atomic.Bool   // the handler was called; the worker sets it after Began of the run
	limited   bool          // the kind had a limit when the task was placed
	overdue   bool          // the task went to the backlog instead of the wheel
	cancelled bool          // the run is cancelled as soon as it begins; see handlings
	asked     atomic.Bool   // the engine was asked to confirm the start, and may have counted it
	begins    atomic.Int64  // the node's own time until which the run may begin; 0 before a confirmation, -1 if withdrawn
	claim     claim
	end       *change // the end of the run while it is being written
}

func newLive(rec *task.Record, by *Node) *live {
	l := &live{by: by}
	l.Task = limit.Task{Rec: rec, Runner: l}
	return l
}

// Waits reports whether the task is still waiting: its run has not begun, and the task has not been removed, replaced
// or moved.
func (l *live) Waits() bool { return l.state.Load() == waits }

// Run runs the task and reports whether its handler was called.
func (l *live) Run() (called bool) {
	l.by.runTask(l)
	return l.ran.Load()
}

// withdraw makes a start void that the engine was asked to confirm ahead, and reports whether it did. The run then does not begin
// in this state of the task, because a change of the task may say so to the engine, and be late.
func (l *live) withdraw() bool {
	if !l.asked.Load() || !l.Waits() {
		return false
	}
	l.begins.Store(-1)
	return l.Waits() // if not, a worker may have read begins before
}

const (
	waits uint32 = iota // the task waits until it is due, or for a worker
	begun               // the run has begun
	gone                // the task was removed, replaced or moved before its run began
)

// jobOf returns the job that the wheel runs when the task is due.
func jobOf(l *live, b *limit.Backlog) timewheel.Job {
	return func(*timewheel.Task) { b.Do(&l.Task) }
}
