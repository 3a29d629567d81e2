// SPDX-License-Identifier: MIT

package durable

import (
	"fmt"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A verb is a caller's request as data.
type verb struct {
	what     what
	tasks    []Task          // the valid tasks to add or to set, which become records when the verb is timed
	records  []*task.Record  // the records to add, with different keys, or the record to set; without generations
	numbered bool            // the records already have generations and keep them
	twice    map[string]bool // keys to add that the caller gave more than once
	key      string          // key of the task to remove, move, pause or resume
	after    time.Duration   // how long after the call the task to move is due
	asof     int64           // the time of the call, from which all other times are computed; see timed
	kinds    *kinds          // the kinds of the tasks to add or to set, or of the task to resume
	size     int             // approximate number of bytes that the verb writes
	found    *view           // the task as it was when found; may be nil
	same     bool            // the task must still be at the same run; set for one of many tasks
}

type what uint8

const (
	toAdd    what = iota // adds all of the records or none
	toSet                // sets the record, whether or not the key is in use
	toRemove             // removes the task with the key
	toMove               // moves the next run of the task with the key
	toPause              // pauses the task with the key
	toResume             // resumes the task with the key
	toRight              // gives the task with the key the due time that it has by the clock of today
)

// timed computes the times of the verb from the time of the call. If the time turns out to be wrong, because the machine
// was suspended, the verb is timed once more.
func (v *verb) timed(now int64) {
	v.asof = now
	if v.numbered {
		for i, rec := range v.records {
			v.records[i] = rec.Righted(now)
		}
	}
	if v.tasks == nil {
		return
	}
	v.records = recordsOf(v.tasks, v.kinds, now)
	if v.what == toAdd {
		v.records, v.twice = distinct(v.records)
	}
}

// recordsOf returns the records of valid tasks that are added at the given time, without generations.
func recordsOf(tasks []Task, kinds *kinds, now int64) []*task.Record {
	recs := make([]*task.Record, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		recs[i] = t.record(now)
		if t.PayloadVersion == 0 {
			recs[i].Version, _ = kinds.version(t.Kind)
		}
	}
	return recs
}

// change returns the task after a verb that moves, pauses or resumes it.
func (v *verb) change(old *task.Record) *task.Record {
	switch v.what {
	case toPause:
		return old.Held()
	case toResume:
		return old.Resumed(v.kinds.policy(old), v.asof)
	case toRight:
		return old.Righted(v.asof)
	}
	return old.Moved(task.Later(v.asof, v.after), v.asof)
}

// fits reports whether the verb applies to the task, which may be nil. If the verb is for one of many tasks, the task
// must still be at the same run, and a paused task can only be removed or resumed.
func (v *verb) fits(old *task.Record) bool {
	if old == nil || !v.same {
		return old != nil
	}
	return v.found.rec.Token() == old.Token() &&
		(v.what == toRemove || v.what == toRight || (old.Paused != 0) == (v.what == toResume))
}

// number assigns consecutive generations to the records, unless they already have generations.
func (v *verb) number(first uint64) {
	if v.numbered {
		return
	}
	for i, rec := range v.records {
		rec.Generation = first + uint64(i)
	}
}

func notFound(key string) error { return fmt.Errorf("%w: %q", ErrTaskKeyNotFound, key) }
