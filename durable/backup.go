// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Backup writes a copy of the store to w, while the scheduler uses it. The copy is a store, with exactly what
// was committed at one instant. [engine.Backuper] says what it consists of. Shutdown ends a Backup, which then returns
// ErrStopped. The error wraps [errors.ErrUnsupported] if the store is no Backuper, and on a node.
func (s *Scheduler) Backup(ctx context.Context, w io.Writer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !s.reads.enter() {
		return stopped(ErrStopped, "Backup", "")
	}
	defer s.reads.leave()
	store, ok := s.below.backuper()
	if !ok {
		return fmt.Errorf("durable: a store of this type has no backup while it is in use: %w", errors.ErrUnsupported)
	}
	return store.Backup(ctx, backupWriter{ctx, s, w})
}

// A backupWriter passes on a backup, until the context is done or the scheduler is shut down.
type backupWriter struct {
	ctx context.Context
	s   *Scheduler
	to  io.Writer
}

func (w backupWriter) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	if w.s.reads.stopped() {
		return 0, ErrStopped
	}
	return w.to.Write(b)
}
