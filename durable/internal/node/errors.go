// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
	"github.com/seed581295f1/timewheel/timewheel"
)

// The errors that verbs wrap. Package durable has them with the same names, and documents them.
var (
	ErrInvalidTask            = task.ErrInvalidTask
	ErrDuplicateTaskKey error = task.LikeOfWheel{Text: "durable: duplicate task key", Of: timewheel.ErrDuplicateTaskKey}
	ErrTaskKeyNotFound  error = task.LikeOfWheel{Text: "durable: task key not found", Of: timewheel.ErrTaskKeyNotFound}
	ErrStopped          error = task.LikeOfWheel{Text: "durable: stopped", Of: timewheel.ErrStopped}

	ErrBroken      = errors.New("durable: the store has failed")
	ErrVersion     = engine.ErrVersion
	ErrCorrupt     = engine.ErrCorrupt
	ErrUnavailable = errors.New("durable: the engine is unavailable")
	ErrFenced      = errors.New("durable: this node no longer holds the run")
	ErrCancelled   = errors.New("durable: the run was cancelled")
)

// A DuplicateKeysError wraps ErrDuplicateTaskKey. It has all keys that were already in use or that the caller gave more
// than once.
type DuplicateKeysError struct{ Keys []string }

func (e *DuplicateKeysError) Error() string { return AboutKeys(ErrDuplicateTaskKey, e.Keys) }

// AboutKeys returns the text of an error with the first of the keys that it is about.
func AboutKeys(err error, keys []string) string {
	const most = 8
	var b strings.Builder
	fmt.Fprint(&b, err, ": ")
	for i, key := range keys {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(keys)-most)
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

// A RunningError says that a run has not ended in time. It wraps the context's error or ErrStopped.
type RunningError struct {
	task.Token
	Node string // the node on which the run is in progress
	Err  error
}

func (e *RunningError) Error() string {
	if e.Node == "" {
		return fmt.Sprintf("durable: %q is removed and still running: %v", e.Key, e.Err)
	}
	return fmt.Sprintf("durable: %q is removed and still running on node %q: %v", e.Key, e.Node, e.Err)
}

func (e *RunningError) Unwrap() error { return e.Err }

func notFound(key string) error { return fmt.Errorf("%w: %q", ErrTaskKeyNotFound, key) }

// unavailable returns the error of a verb whose engine call has failed. A read of the node's own engine that fails
// without damage fails only the verb.
func (n *Node) unavailable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if broken := n.brokenBy(err); broken != nil {
		return broken
	}
	if !n.alone {
		n.trouble(err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
