// SPDX-License-Identifier: MIT

package durable

import (
	"context"

	"github.com/seed581295f1/timewheel/durable/internal/node"
)

// Pause prevents the task from running until [Scheduler.Resume] is called. The pause is stored with the task and
// survives a restart of the process. No run of the task starts after Pause has returned nil. A run in progress is not
// interrupted, but its result no longer counts. When the task is resumed, it runs again with the same token, even if
// the first run is still in progress at that time. Pausing a paused task has no effect.
//
// Reschedule sets the due time of a paused task and leaves the task paused. SetTask replaces a paused task with a task
// that is not paused.
func (s *Scheduler) Pause(ctx context.Context, key string) error {
	return failed(s.node.Do(ctx, &node.Verb{What: node.ToPause, Key: key, Size: MaxKey}), "Pause", key)
}

// Resume restores the due time of a paused task. If that time has passed, the task is due at once. Missed runs of a
// repeating task are treated as they are after downtime: by default, one missed run takes place and the others are only
// counted ([WithMissed]). If Resume is called on a node without a handler for the kind, or on a scheduler made by
// [Connect], one run takes place even if the kind skips missed runs ([MissedSkip]), because the scheduler does not have
// that setting. Resuming a task that is not paused has no effect.
func (s *Scheduler) Resume(ctx context.Context, key string) error {
	v := &node.Verb{What: node.ToResume, Key: key, Size: MaxKey}
	return failed(s.node.Do(ctx, v), "Resume", key)
}
