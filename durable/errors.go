// SPDX-License-Identifier: MIT

package durable

import (
	"errors"
	"fmt"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/node"
)

// Verbs return errors that wrap one of these values; test for them with errors.Is. The first four values wrap the
// errors with the same names in package timewheel.
var (
	ErrInvalidTask      = node.ErrInvalidTask
	ErrDuplicateTaskKey = node.ErrDuplicateTaskKey
	ErrTaskKeyNotFound  = node.ErrTaskKeyNotFound
	ErrStopped          = node.ErrStopped

	ErrUnknownKind = errors.New("durable: unknown kind")
	ErrUnknownNode = errors.New("durable: no node has the name")
	ErrBroken      = node.ErrBroken
	ErrVersion     = engine.ErrVersion
	ErrCorrupt     = engine.ErrCorrupt

	// ErrUnavailable is returned by a verb whose shared engine does not answer or returns an error. The verb may or
	// may not have taken effect. While its call is in flight, it may still take effect, even after a later verb for the
	// same key. The same applies if a verb's context is done. The scheduler continues when the engine is back.
	ErrUnavailable = node.ErrUnavailable

	// ErrFenced is returned when a run cannot be completed because the node no longer holds it: the task was removed,
	// moved, replaced or completed, or another node has taken it over.
	ErrFenced = node.ErrFenced
)

// failed returns the error of a verb for its caller. It adds the verb, and its key or kind if it has one, to a bare
// ErrStopped.
func failed(err error, verb, key string) error {
	switch e := err.(type) {
	case nil:
		return nil
	case *node.DuplicateKeysError:
		return (*DuplicateKeysError)(e)
	case *node.RunningError:
		return &RunningError{Token: Token(e.Token), Node: e.Node, err: e.Err}
	}
	switch {
	case err != ErrStopped:
		return err
	case key == "":
		return fmt.Errorf("%w: %s", err, verb)
	}
	return fmt.Errorf("%w: %s of %q", err, verb, key)
}

// A DuplicateKeysError wraps ErrDuplicateTaskKey. AddTask returns it with all keys that were already in use or that the
// caller gave more than once.
type DuplicateKeysError struct{ Keys []string }

func (e *DuplicateKeysError) Error() string { return (*node.DuplicateKeysError)(e).Error() }

func (e *DuplicateKeysError) Unwrap() error { return ErrDuplicateTaskKey }
