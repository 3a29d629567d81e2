// SPDX-License-Identifier: MIT

package timewheel

import "errors"

// Verbs return errors that wrap one of these with the details, so compare with [errors.Is].
var (
	// ErrInvalidTask means that an argument is wrong. The error names it and its value, and nothing was
	// changed.
	ErrInvalidTask = errors.New("timewheel: invalid task")
	// ErrDuplicateTaskKey means that a live task already has the key.
	ErrDuplicateTaskKey = errors.New("timewheel: duplicate task key")
	// ErrTaskKeyNotFound means that no live task has the key: there was none, its last run has begun, or it
	// was removed.
	ErrTaskKeyNotFound = errors.New("timewheel: task key not found")
	// ErrFull means that there are as many live tasks as [WithMaxPending] allows.
	ErrFull = errors.New("timewheel: too many pending tasks")
	// ErrStopped means that the wheel was stopped, by Stop or Shutdown.
	ErrStopped = errors.New("timewheel: stopped")
)
