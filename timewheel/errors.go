// SPDX-License-Identifier: MIT

package timewheel

import "errors"

// Methods return errors that wrap one of these errors and add details, so compare with [errors.Is].
var (
	// ErrInvalidTask means that an argument is invalid. The wrapping error names the argument and its value. Nothing
	// has changed.
	ErrInvalidTask = errors.New("timewheel: invalid task")
	// ErrDuplicateTaskKey means that a live task already has the key.
	ErrDuplicateTaskKey = errors.New("timewheel: duplicate task key")
	// ErrTaskKeyNotFound means that no live task has the key: there was no such task, its last run has begun, or it was
	// removed.
	ErrTaskKeyNotFound = errors.New("timewheel: task key not found")
	// ErrFull means that there are as many live tasks as [WithMaxPending] allows.
	ErrFull = errors.New("timewheel: too many pending tasks")
	// ErrStopped means that the wheel has been stopped by Stop or Shutdown.
	ErrStopped = errors.New("timewheel: stopped")
)
