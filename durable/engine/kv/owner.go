// SPDX-License-Identifier: MIT

package kv

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// fail records the first failure.
func (e *alone) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broken == nil {
		e.broken = err
		close(e.failed)
	}
}

// Failed implements [engine.FailureReporter]. The engine fails if a Commit may or may not have had an effect, if the KV
// fails, or if the tasks in the KV differ from the committed ones.
func (e *alone) Failed() <-chan struct{} { return e.failed }

// Len returns the number of tasks.
func (e *alone) Len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return int(e.stored.tasks)
}

// Err implements [engine.FailureReporter].
func (e *alone) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.broken
}

// Close waits for the engine's goroutines and closes the KV if it is an [io.Closer].
func (e *alone) Close() error {
	e.stop()
	e.running.Wait()
	if c, ok := e.kv.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Backup implements [engine.Backuper], if the KV does.
func (e *alone) Backup(ctx context.Context, w io.Writer) error {
	if b, ok := e.kv.(engine.Backuper); ok {
		return b.Backup(ctx, w)
	}
	return fmt.Errorf("kv: this KV cannot be copied while in use: %w", errors.ErrUnsupported)
}

// Size implements [engine.SizeReporter]. It is 0 if the KV reports none.
func (e *alone) Size() int64 {
	if r, ok := e.kv.(engine.SizeReporter); ok {
		return r.Size()
	}
	return 0
}

// Space implements [engine.SpaceReporter], if the KV does.
func (e *alone) Space() (free, size int64) {
	if r, ok := e.kv.(engine.SpaceReporter); ok {
		return r.Space()
	}
	return 0, 0
}
