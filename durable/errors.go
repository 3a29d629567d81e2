// SPDX-License-Identifier: MIT

package durable

import (
	"errors"
	"fmt"
	"strings"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/timewheel"
)

// Verbs return errors that wrap one of these values; test for them with errors.Is. The first four values wrap the
// errors with the same names in package timewheel.
var (
	ErrInvalidTask      error = likeOfWheel{"durable: invalid task", timewheel.ErrInvalidTask}
	ErrDuplicateTaskKey error = likeOfWheel{"durable: duplicate task key", timewheel.ErrDuplicateTaskKey}
	ErrTaskKeyNotFound  error = likeOfWheel{"durable: task key not found", timewheel.ErrTaskKeyNotFound}
	ErrStopped          error = likeOfWheel{"durable: stopped", timewheel.ErrStopped}

	ErrUnknownKind = errors.New("durable: unknown kind")
	ErrUnknownNode = errors.New("durable: no node has the name")
	ErrBroken      = errors.New("durable: the store has failed")
	ErrVersion     = engine.ErrVersion
	ErrCorrupt     = engine.ErrCorrupt

	// ErrUnavailable is returned by a verb whose shared engine does not answer or returns an error. The verb may or
	// may not have taken effect. While its call is in flight, it may still take effect, even after a later verb for the
	// same key. The same applies if a verb's context is done. The scheduler continues when the engine is back.
	ErrUnavailable = errors.New("durable: the engine is unavailable")

	// ErrFenced is returned when a run cannot be completed because the node no longer holds it: the task was removed,
	// moved, replaced or completed, or another node has taken it over.
	ErrFenced = errors.New("durable: this node no longer holds the run")
)

// A likeOfWheel is an error that also matches the corresponding error of package timewheel.
type likeOfWheel struct {
	text string
	of   error
}

func (e likeOfWheel) Error() string { return e.text }
func (e likeOfWheel) Unwrap() error { return e.of }

// stopped adds the verb, and its key or kind if it has one, to a bare ErrStopped.
func stopped(err error, verb, key string) error {
	if err != ErrStopped {
		return err
	}
	if key == "" {
		return fmt.Errorf("%w: %s", err, verb)
	}
	return fmt.Errorf("%w: %s of %q", err, verb, key)
}

// A DuplicateKeysError wraps ErrDuplicateTaskKey. AddTask returns it with all keys that were already in use or that the
// caller gave more than once.
type DuplicateKeysError struct{ Keys []string }

func (e *DuplicateKeysError) Error() string {
	const most = 8
	var b strings.Builder
	fmt.Fprint(&b, ErrDuplicateTaskKey, ": ")
	for i, key := range e.Keys {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(e.Keys)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", key)
	}
	return b.String()
}

func (e *DuplicateKeysError) Unwrap() error { return ErrDuplicateTaskKey }
