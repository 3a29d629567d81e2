// SPDX-License-Identifier: MIT

package durable

import (
	"bytes"
	"context"
	"fmt"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// Restore adds all of the tasks or none, each as its record says: with the run that is next, its failed
// attempts, its missed periods and its [Token]. A parked task stays parked, and a paused one paused. The records
// are those of a [engine.Store] or an [engine.Engine], maybe of another one than this scheduler has. A kind needs no handler.
//
// The error is as that of AddTask. It wraps ErrCorrupt or ErrVersion if a record cannot be read.
func (s *Scheduler) Restore(ctx context.Context, records ...engine.Record) error {
	recs := make([]*record, len(records))
	size := 0
	for i, r := range records {
		r.Data = bytes.Clone(r.Data)
		rec, err := decode(r)
		if err == nil {
			err = checkRecord(rec)
		}
		if err != nil {
			return err
		}
		recs[i] = rec
		if size += rec.size(); size > MaxBatch {
			return tooMuch()
		}
	}
	if len(recs) == 0 {
		return nil
	}
	return stopped(s.addRecords(ctx, recs, size, true), "Restore", "")
}

// checkRecord returns an error if no task can be what a whole record says.
func checkRecord(r *record) error {
	t := Task{Key: r.key, Kind: r.kind, Payload: r.payload, At: firstTime, Interval: r.interval,
		Cron: r.cron, Times: int(r.times), Trace: r.trace, Group: r.group}
	if err := t.validate(); err != nil {
		return err
	}
	if r.due < 0 {
		return fmt.Errorf("%w: %q is due before 1970", ErrInvalidTask, r.key)
	}
	return nil
}
