// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/past"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A backend is the lower half of a [Scheduler]. There are two backends: the keeper, which is the only writer of an
// [engine.Store], and the node, which shares an [engine.Engine] with other nodes. Tasks and their changes are the same
// for both (package internal/task). The backends differ in how they store a change and in how they decide whether a run
// may start.
type backend interface {
	now() int64                                                     // the time from which delays are counted, in nanoseconds since 1970
	do(ctx context.Context, v *verb) error                          // returns when the verb is committed or refused
	declare(ctx context.Context, d *declaration) (SetResult, error) // returns when the set is stored or refused
	inquire(ctx context.Context, q question) (runs int, err error)  // asks about runs on all nodes
	start() error
	handled(kind string) // called when the kind has been given a handler
	limit(k *kind)       // sets the limiter of a new kind
	work() workload      // the workers' current load

	setAll(ctx context.Context, change func(*settings)) error // returns when the change is stored and in force, or refused
	paused(ctx context.Context) (Pauses, error)

	get(ctx context.Context, key string) (found view, ok bool, err error)
	getMany(ctx context.Context, keys []string) (found map[string]view, err error)
	walk(ctx context.Context, over stretch) iter.Seq2[view, error]
	len() int
	census(ctx context.Context) (Counts, error)
	nodes(ctx context.Context) ([]NodeInfo, error)
	era() uint64                       // the number of past outages; results from before the last outage are old
	nodeCount() int                    // the number of nodes that run tasks, including this node, as last read
	overdueUntil() int64               // tasks due by this time count as overdue in CatchUp
	mayBeOverdue() bool                // false if no task of a kind with a handler can be overdue
	caughtUp() bool                    // whether only other nodes may have overdue tasks left
	fill(s *Stats)                     // sets the backend's counters in s
	backuper() (engine.Backuper, bool) // the store, if it is a Backuper
	notebook() past.Notebook           // nil if the store has no notes
	space() (free, size int64)         // bytes on the store's disk, or 0 if unknown
	size() int64                       // bytes that the store uses, or 0 if unknown
	Err() error
	failing() <-chan struct{} // closed when Err is not nil; nil if the backend never fails

	// Shutdown calls these methods in this order.
	stop()                    // prevents further runs, except those that the wheel starts until it has stopped
	cancel()                  // cancels the contexts of the runs
	finish()                  // returns when the results of the runs are stored, or cannot be
	release() error           // closes the store, if there is one; nothing reads it any longer
	written() <-chan struct{} // closed when all notices have been passed to the logger
}

// A verb is a caller's request as data. A keeper applies it within a group, and a node within a batch.
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
