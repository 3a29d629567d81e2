// SPDX-License-Identifier: MIT

package limit

import (
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A Config configures a backlog and its limiters.
type Config struct {
	Kinds   Kinds
	Workers Workers
	Size    int             // number of workers; see Resize
	Tick    time.Duration   // resolution of the workers' timers
	Rate    int             // overdue runs that may begin per second on all nodes together; see SetRate
	Queue   int             // maximum number of overdue tasks in the backlog whose kinds have no limit; see Resize
	Wake    chan<- struct{} // receives a value when there is room again
}

// Kinds looks up kinds and limiters.
type Kinds interface {
	Kind(name string) *Kind          // nil if the kind has no handler
	Limiter(r *task.Record) *Limiter // nil if the task's kind has no limit or no handler for the payload
	Runs(r *task.Record) bool        // reports whether the task's payload has a handler and its kind is not paused
}

// Workers provides the workers that run tasks.
type Workers interface {
	After(d time.Duration, work func()) Timer // calls work on a worker once d has passed and a worker is free
	Load() (running, waiting int)             // busy workers, and due runs that wait for a worker
}

// A Timer is a pending call. Stop cancels the call, and reports false if it was too late.
type Timer interface{ Stop() bool }
