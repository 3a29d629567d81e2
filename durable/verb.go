// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"fmt"
	"iter"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A backend is the lower half of a [Scheduler]. There are two: the keeper, the only writer of an [engine.Store], and
// the node, one of many over an [engine.Engine]. Tasks and their changes are the same for both (package internal/task).
// The backends differ in how a change is stored, and in who may start a run.
type backend interface {
	now() int64                            // the time that delays count from, in nanoseconds since 1970
	do(ctx context.Context, v *verb) error // returns when the verb is committed or refused
	declare(ctx context.Context, d *declaration) (SetResult, error)
	inquire(ctx context.Context, q question) (runs int, err error) // about runs, everywhere
	start() error
	handled(kind string) // the kind has a handler from now on
	limit(k *kind)       // gives a new kind the limiter that it needs
	work() workload      // of the workers, now

	setAll(ctx context.Context, change func(*settings)) error // returns when the change is stored and in force, or refused
	paused(ctx context.Context) (Pauses, error)

	get(ctx context.Context, key string) (found view, ok bool, err error)
	getMany(ctx context.Context, keys []string) (found map[string]view, err error)
	walk(ctx context.Context, over stretch) iter.Seq2[view, error]
	len() int
	census(ctx context.Context) (Counts, error)
	nodes(ctx context.Context) ([]NodeInfo, error)
	era() uint64                       // the number of past outages: results from before the last one are old
	nodeCount() int                    // nodes that run tasks, this one included, as last read
	overdueUntil() int64               // tasks due by then count as overdue in CatchUp
	mayBeOverdue() bool                // false if no task of a kind handled here can be overdue
	fill(s *Stats)                     // with its counters
	backuper() (engine.Backuper, bool) // the store, if it is one
	space() (free, size int64)         // bytes of the disk of the store, or 0 if unknown
	size() int64                       // bytes that the store takes, or 0 if unknown
	Err() error
	failing() <-chan struct{} // closed when Err is not nil; nil if it never fails

	// A shutdown calls these in this order.
	stop()                    // no further run begins, except those that the wheel starts until it has stopped
	cancel()                  // ends the contexts of the runs
	finish()                  // returns when the results of the runs are stored, or cannot be
	release() error           // closes the store or leaves the engine; nothing reads it any longer
	written() <-chan struct{} // closed when the logger has been given all notices
}

// A verb is a caller's request, as data. The keeper applies it within a group, a node within a batch.
type verb struct {
	what     what
	records  []*task.Record  // to add, with different keys, or the one to set; without generations
	numbered bool            // the records have generations, and keep them
	twice    map[string]bool // keys to add that the caller gave more than once
	key      string          // of the task to remove or to move
	to       int64           // the due time of the task to move, or the time of the resumption
	kinds    *kinds          // of the task to resume
	size     int             // roughly how many bytes it writes
	found    *view           // the task when it was found; may be nil
	same     bool            // it must still be the same run: one of many
}

type what uint8

const (
	toAdd    what = iota // all of the records, or none
	toSet                // the record, whether or not the key is in use
	toRemove             // the task of the key
	toMove               // the next run of the task of the key
	toPause              // the task of the key
	toResume             // the task of the key
)

// change returns the task after a verb that moves, pauses or resumes it.
func (v *verb) change(old *task.Record) *task.Record {
	switch v.what {
	case toPause:
		return old.Held()
	case toResume:
		return old.Resumed(v.kinds.policy(old), v.to)
	}
	return old.Moved(v.to)
}

// fits reports whether the task, which may be nil, is the one that the verb is for. For one of many tasks it must still
// be the same run. A paused task is only removed or resumed.
func (v *verb) fits(old *task.Record) bool {
	if old == nil || !v.same {
		return old != nil
	}
	return v.found.rec.Token() == old.Token() && (v.what == toRemove || (old.Paused != 0) == (v.what == toResume))
}

// number gives the records consecutive generations, unless they have some.
func (v *verb) number(first uint64) {
	if v.numbered {
		return
	}
	for i, rec := range v.records {
		rec.Generation = first + uint64(i)
	}
}

func notFound(key string) error { return fmt.Errorf("%w: %q", ErrTaskKeyNotFound, key) }
