// SPDX-License-Identifier: MIT

package durable

import (
	"math/rand/v2"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// NewWrite returns a write that adds the task if its key is free, as [Scheduler.AddTask] does. It is for engines that
// offer transactions to their users. Delays count from now, the engine's time. The kind does not need a handler in this
// process. The error wraps ErrInvalidTask.
func NewWrite(t Task, now int64) (engine.Write, error) {
	if err := t.validate(); err != nil {
		return engine.Write{}, err
	}
	rec := t.record(now)
	rec.Generation = task.GenerationAt(now, rand.Uint64())
	return rec.Write(engine.IfAbsent, 0), nil
}

// Rescheduled returns a write that, like [Scheduler.Reschedule], makes the task's next run due d from now, the engine's
// time. A negative d counts as 0. The write takes effect only if the task is unchanged. The error wraps ErrCorrupt or
// ErrVersion.
func Rescheduled(s engine.Stored, d time.Duration, now int64) (engine.Write, error) {
	rec, err := task.Decode(s.Record)
	if err != nil {
		return engine.Write{}, err
	}
	return rec.Moved(task.Later(now, max(d, 0)), now).Write(engine.IfUnchanged, s.Revision), nil
}

// Completion returns a write that completes the run with the note from [Run.Complete], as if its handler had returned
// nil. now is the engine's time. The write takes effect only if the node still holds the run. If the write takes
// effect, the node later detects that the run is complete and writes nothing further.
func (r Run) Completion(now int64) engine.Write {
	if r.rec == nil {
		return engine.Write{Record: engine.Record{Key: r.Key}, If: engine.IfUnchanged, Revision: r.Fence}
	}
	r.ends.Written.Store(true)
	return task.Completion(r.rec.After(judge(r.ends, nil), &r.of.Policy, now, 0), r.rec, r.Fence)
}
