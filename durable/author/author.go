// SPDX-License-Identifier: MIT

// Package author is for those who write an engine that lets its users change tasks in their own transactions, as
// package durable/postgres does. Its functions return the writes to commit. [durable.Run.Completion] returns the write
// that completes a run.
package author

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// Add returns a write that adds the task if its key is free, as [durable.Scheduler.AddTask] does. Delays count from now,
// the engine's time. The kind does not need a handler in this process, and a payload without a version has version 1. The
// error wraps [durable.ErrInvalidTask].
func Add(t durable.Task, now int64) (engine.Write, error) {
	spec := task.Spec(t)
	if err := spec.Validate(); err != nil {
		return engine.Write{}, err
	}
	if t.Once != "" || spec.IsOnce() {
		return engine.Write{}, fmt.Errorf("%w: %q: a transaction adds no task with Once, and none that remembers one", durable.ErrInvalidTask, t.Key)
	}
	rec := spec.Record(now)
	rec.Generation = task.GenerationAt(now, rand.Uint64())
	return rec.Write(engine.IfAbsent, 0), nil
}

// Reschedule returns a write that, like [durable.Scheduler.Reschedule], makes the task's next run due d from now, the
// engine's time. A negative d counts as 0. The write takes effect only if the task is unchanged. The error wraps
// [durable.ErrCorrupt] or [durable.ErrVersion].
func Reschedule(s engine.Stored, d time.Duration, now int64) (engine.Write, error) {
	rec, err := task.Decode(s.Record)
	if err != nil {
		return engine.Write{}, err
	}
	return rec.Moved(task.Later(now, max(d, 0)), now).Write(engine.IfUnchanged, s.Revision), nil
}
