// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Backup writes a copy of the store to w. The scheduler can keep using the store during the backup. The copy is itself
// a store and contains exactly the data that had been committed at one instant. See [engine.Backuper] for its format.
// Backup returns ErrStopped if Shutdown interrupts it. On a shared engine, or if the store does not implement
// engine.Backuper, it returns an error that wraps [errors.ErrUnsupported].
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
		return fmt.Errorf("durable: a store of this type cannot be copied while in use: %w", errors.ErrUnsupported)
	}
	return store.Backup(ctx, backupWriter{ctx, s, w})
}

// A backupWriter forwards a backup to an io.Writer until the context is done or the scheduler shuts down.
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
