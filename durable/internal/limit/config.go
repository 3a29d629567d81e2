// SPDX-License-Identifier: MIT

package limit

import (
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A Config is the input of a backlog and its limiters. It does not change.
type Config struct {
	Kinds   Kinds
	Workers Workers
	Size    int             // number of workers
	Tick    time.Duration   // how exact their timers are
	Rate    int             // overdue runs that begin within a second, on all nodes together
	Queue   int             // greatest number of overdue tasks of kinds without a limit in the backlog
	Held    int             // tasks that a limiter holds, however few may run: 0 if another node can run them
	Wake    chan<- struct{} // gets a value when there is room again
}

// Kinds knows the kinds by the names and records of tasks.
type Kinds interface {
	Kind(name string) *Kind          // nil if it has no handler
	Limiter(r *task.Record) *Limiter // nil if the task's kind has no limit, or no handler for the payload
	Runs(r *task.Record) bool        // the task has a handler for its payload, and its kind is not paused
}

// Workers provide the workers for the runs.
type Workers interface {
	After(d time.Duration, work func()) Timer // calls work on a worker, when d has passed and one is free
	Load() (running, waiting int)             // busy workers, and due runs that wait for one
}

// A Timer can be stopped. Stop reports whether it was in time.
type Timer interface{ Stop() bool }
