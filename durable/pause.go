// SPDX-License-Identifier: MIT

package durable

import "context"

// Pause keeps the task from running until [Scheduler.Resume]. The pause is stored with the task and survives the
// process. No run of the task starts after Pause has returned nil. A run in progress is not interrupted, but its result
// no longer counts: it runs again, with the same token, when the task is resumed, even if the first run is still in
// progress then. Pausing a paused task does nothing.
//
// Reschedule sets the due time of the paused task, and leaves it paused. SetTask replaces it with a task that is not
// paused.
func (s *Scheduler) Pause(ctx context.Context, key string) error {
	return stopped(s.below.do(ctx, &verb{what: toPause, key: key, size: MaxKey}), "Pause", key)
}

// Resume restores the due time of a paused task; if that has passed, the task is due at once. Missed runs of a
// repeating task are treated as they are after downtime: by default, one of them takes place and the others are only
// counted ([WithMissed]). A node that does not handle the kind, and [Connect], cannot know that the kind skips missed
// runs ([MissedSkip]), so one run is made. Resuming a task that is not paused does nothing.
func (s *Scheduler) Resume(ctx context.Context, key string) error {
	v := &verb{what: toResume, key: key, to: s.below.now(), kinds: &s.kinds, size: MaxKey}
	return stopped(s.below.do(ctx, v), "Resume", key)
}
