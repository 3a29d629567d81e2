// SPDX-License-Identifier: MIT

package durable

import "context"

// Pause keeps the task from running until [Scheduler.Resume]. It stays as it is, and in the store, whatever
// becomes of the process. No run of it starts after Pause has returned nil. A run in progress is not
// interrupted, but its result no longer counts: the run is made again, with the same token, when the task is
// resumed, even if the first is still in progress then. To pause a task that is paused does nothing.
//
// Reschedule sets when the task will be due, and leaves it paused. SetTask replaces it by a task that is not
// paused.
func (s *Scheduler) Pause(ctx context.Context, key string) error {
	return stopped(s.below.do(ctx, &verb{what: toPause, key: key, size: MaxKey}), "Pause", key)
}

// Resume makes a paused task due when it was due before, or at once if that is over. What a repeating task
// has missed is treated as after downtime: by default one of those runs is made, and the others are counted
// ([WithMissed]). A node that does not handle the kind, and [Connect], cannot know that the kind skips those
// runs ([MissedSkip]): one of them is made. To resume a task that is not paused does nothing.
func (s *Scheduler) Resume(ctx context.Context, key string) error {
	v := &verb{what: toResume, key: key, to: s.below.now(), kinds: &s.kinds, size: MaxKey}
	return stopped(s.below.do(ctx, v), "Resume", key)
}
