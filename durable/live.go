// SPDX-License-Identifier: MIT

package durable

import (
	"sync/atomic"

	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/task"
	"github.com/seed581295f1/timewheel/timewheel"
)

// A live is a task in the wheel or the backlog, or a running one. The backend owns all of it but the state.
type live struct {
	limit.Task
	by        interface{ runTask(l *live) }
	state     atomic.Uint32 // changed from waits by compare-and-swap: exactly one of a run and a removal wins
	ran       atomic.Bool   // its handler was called; set by its worker, after began
	overdue   bool          // it was put in the backlog, and not in the wheel
	over      bool          // it is no longer running; see running
	cancelled bool          // its run is cancelled whenever it begins; see handlings
	asked     bool          // the engine was asked to confirm it, and may have counted its start
	began     int64         // when its handler was called, by the wall clock
	claim     claim         // of a node
}

func newLive(rec *task.Record, by interface{ runTask(l *live) }) *live {
	l := &live{by: by}
	l.Task = limit.Task{Rec: rec, Runner: l}
	return l
}

// Waits reports whether the task still waits: its run has not begun, and it was not removed, replaced or moved.
func (l *live) Waits() bool { return l.state.Load() == waits }

// Run runs the task, and reports whether its handler was called.
func (l *live) Run() (called bool) {
	l.by.runTask(l)
	return l.ran.Load()
}

// started returns when its handler was called, by the wall clock, or 0 if it was not.
func (l *live) started() int64 {
	if l.ran.Load() {
		return l.began
	}
	return 0
}

const (
	waits uint32 = iota // until it is due, or for a worker
	begun               // its run has begun
	gone                // it was removed, replaced or moved before that
)

// jobOf returns the job that the wheel runs at the due time.
func jobOf(l *live, b *limit.Backlog) timewheel.Job {
	return func(*timewheel.Task) { b.Do(&l.Task) }
}
