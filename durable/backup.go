// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Backup writes a copy of the store to w. The scheduler may use the store meanwhile. The copy is itself a store. It
// contains exactly what was committed at one instant. [engine.Backuper] describes its form. If Shutdown interrupts a
// Backup, it returns ErrStopped. The error wraps [errors.ErrUnsupported] on a node, and if the store does not implement
// engine.Backuper.
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

// A backupWriter forwards a backup to w until the context is done or the scheduler shuts down.
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
