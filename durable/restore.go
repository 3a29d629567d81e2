// SPDX-License-Identifier: MIT

package durable

import (
	"bytes"
	"context"
	"fmt"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// Restore adds all of the tasks or none of them. Each task is added in the state given by its record, including its
// next run, failed attempts, missed periods and [Token]. A parked task stays parked, and a paused task stays paused.
// The records may come from any [engine.Engine]. The kinds do not need handlers. If a repeating task is
// due too late because the clock was ahead, by more than a minute, when its due time was computed, it is due at the next
// instant of its own grid.
//
// Restore returns the same errors as AddTask. If a record cannot be read, the error wraps ErrCorrupt or ErrVersion.
func (s *Scheduler) Restore(ctx context.Context, records ...engine.Record) error {
	recs := make([]*task.Record, len(records))
	size := 0
	for i, r := range records {
		r.Data = bytes.Clone(r.Data)
		rec, err := task.Decode(r)
		if err == nil {
			err = checkRecord(rec)
		}
		if err != nil {
			return err
		}
		recs[i] = rec
		if size += rec.Size(); size > MaxBatch {
			return tooMuch()
		}
	}
	if len(recs) == 0 {
		return nil
	}
	recs, twice := node.Distinct(recs)
	return failed(s.node.Do(ctx, &node.Verb{What: node.ToAdd, Records: recs, Numbered: true, Twice: twice, Size: size}), "Restore", "")
}

// checkRecord returns an error if a decoded record describes an impossible task.
func checkRecord(r *task.Record) error {
	t := Task{Key: r.Key, Kind: r.Kind, Payload: r.Payload, At: task.FirstTime, Interval: r.Interval,
		Cron: r.Cron, Times: int(r.Times), Trace: r.Trace, Meta: r.Meta, Group: r.Group, Expires: r.Expires}
	if err := t.spec().Validate(); err != nil {
		return err
	}
	if r.Due < 0 {
		return fmt.Errorf("%w: %q is due before 1970", ErrInvalidTask, r.Key)
	}
	return nil
}
