// SPDX-License-Identifier: MIT

package durable

import (
	"math/rand/v2"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// NewWrite returns the write that adds the task as [Scheduler.AddTask] does, if its key is free. It is for engines
// whose users have transactions. Delays count from now, the engine's time. The kind needs no handler in this process.
// The error wraps ErrInvalidTask.
func NewWrite(t Task, now int64) (engine.Write, error) {
	if err := t.validate(); err != nil {
		return engine.Write{}, err
	}
	rec := t.record(now)
	rec.Generation = generationAt(now, rand.Uint64())
	return rec.Write(engine.IfAbsent, 0), nil
}

// Rescheduled returns the write that makes the next run of the task due at that time of the engine, as
// [Scheduler.Reschedule] does. It takes effect if the task is unchanged. A time before 1970
// counts as 1970. The error wraps ErrCorrupt or ErrVersion.
func Rescheduled(s engine.Stored, to int64) (engine.Write, error) {
	rec, err := task.Decode(s.Record)
	if err != nil {
		return engine.Write{}, err
	}
	return rec.Moved(min(max(to, 0), task.Latest)).Write(engine.IfUnchanged, s.Revision), nil
}

// Completion returns the write that completes the run at the engine's time now, as if its handler had returned nil,
// with the note of [Run.Complete]. It takes effect if the node still holds the run. The node then finds the run
// complete, and writes nothing further. A run on an [engine.Store] has no fence, so its write never takes effect.
func (r Run) Completion(now int64) engine.Write {
	if r.rec == nil {
		return engine.Write{Record: engine.Record{Key: r.Key}, If: engine.IfUnchanged, Revision: r.Fence}
	}
	r.ends.written.Store(true)
	return completion(r.rec.After(r.ends.judge(nil), &r.of.policy, now, 0), r.rec, r.Fence)
}

// completion returns the write of the task after its run. next is nil if that run was the last.
func completion(next, was *task.Record, fence int64) engine.Write {
	if next == nil {
		return engine.Write{Record: engine.Record{Key: was.Key}, If: engine.IfUnchanged, Revision: fence}
	}
	return next.Write(engine.IfUnchanged, fence)
}

// generationBits is how many low bits of a generation are not time. They distinguish tasks that are added at the same
// instant, by several processes or after a clock was set back.
const generationBits = 10

// generationAt returns a generation of that time, with the low bits of low.
func generationAt(now int64, low uint64) uint64 {
	const mask = 1<<generationBits - 1
	return uint64(now)&^mask | low&mask
}
