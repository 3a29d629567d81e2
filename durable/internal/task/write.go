// SPDX-License-Identifier: MIT

package task

import "github.com/seed581295f1/timewheel/durable/engine"

// Completion returns the write that puts next in place of was, at its revision. next is nil if the task ends.
func Completion(next, was *Record, fence int64) engine.Write {
	if next == nil {
		return engine.Write{Record: engine.Record{Key: was.Key}, If: engine.IfUnchanged, Revision: fence}
	}
	return next.Write(engine.IfUnchanged, fence)
}

// generationBits is the number of low bits of a generation that are not part of the time. They distinguish tasks that
// are added at the same instant by several processes, or after a clock has been set back.
const generationBits = 10

// GenerationAt returns a generation for the given time, with its low bits taken from low.
func GenerationAt(now int64, low uint64) uint64 {
	const mask = 1<<generationBits - 1
	return uint64(now)&^mask | low&mask
}
