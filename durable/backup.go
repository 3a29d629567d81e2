// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Backup writes a copy of the scheduler's own engine to w. The scheduler continues during the backup. The copy contains
// exactly the data that had been committed at one instant. See [engine.Backuper] for its format. Backup returns
// ErrStopped if Shutdown interrupts it. On a shared engine, or one that cannot be copied, such as one in memory, it
// returns an error that wraps [errors.ErrUnsupported].
func (s *Scheduler) Backup(ctx context.Context, w io.Writer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !s.reads.Enter() {
		return failed(ErrStopped, "Backup", "")
	}
	defer s.reads.Leave()
	own := s.node.Owned()
	if own == nil {
		return fmt.Errorf("durable: a shared engine is not copied by a scheduler: %w", errors.ErrUnsupported)
	}
	return own.Backup(ctx, backupWriter{ctx, s, w})
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
	if w.s.reads.Stopped() {
		return 0, ErrStopped
	}
	return w.to.Write(b)
}
