// SPDX-License-Identifier: MIT

package task

import "github.com/seed581295f1/timewheel/durable/engine"

// Completion returns the write that puts next in place of was when its run, which has begun, ends. next is nil if the task ends.
func Completion(next, was *Record, fence int64) engine.Write {
	w := engine.Write{Record: engine.Record{Key: was.Key}, If: engine.IfUnchanged, Revision: fence}
	if next != nil {
		w = next.Write(engine.IfUnchanged, fence)
	}
	w.Begun = fence
	return w
}

// generationBits is the number of low bits of a generation that are not part of the time. They distinguish tasks that
// are added at the same instant by several processes, or after a clock has been set back.
const generationBits = 10

// GenerationAt returns a generation for the given time, with its low bits taken from low.
func GenerationAt(now int64, low uint64) uint64 {
	const mask = 1<<generationBits - 1
	return uint64(now)&^mask | low&mask
}
