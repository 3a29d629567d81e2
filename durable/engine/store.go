// SPDX-License-Identifier: MIT

package engine

import (
	"context"
	"io"
	"iter"
	"math"
)

// A Store keeps records by key and in the order of their due times. Package
// durable/pebble has one on disk, package memstore one in memory, and package storetest checks what is written here.
//
// One goroutine at a time calls Commit, with at most one change of each key. Any number of goroutines call the
// other methods, at the same time. A failed read is an error and never an absence: a store that has lost a
// record, or cannot read it, returns an error. The caller may keep and change the bytes that a store returns. A
// store copies the bytes it is given before the call returns.
type Store interface {
	// Commit makes all of the changes, in their order, or none. When it returns nil they are durable: the next
	// process finds them, whatever happens to this one. Reads may see them a moment earlier, but never some
	// without the others. After an error it is unknown whether the changes are durable. The scheduler then makes
	// no further commit, and reads must still work.
	Commit(changes []Change) error

	// Get returns the record of the key, and whether there is one. An error of this read or another that wraps
	// ErrCorrupt fails the scheduler; any other is only the caller's, unless the scheduler itself is reading.
	Get(key string) (r Record, ok bool, err error)

	// Due walks over the records after the position and up to the due time, that included, in order of due
	// time and key, as they are when the walk begins. An error ends it. Commits may happen during the walk.
	Due(after Position, until int64) iter.Seq2[Record, error]

	// ByKey walks over the records whose key is not less than from, in order of the key, as they are when the walk
	// begins. An error ends it. Commits may happen during the walk.
	ByKey(from string) iter.Seq2[Record, error]

	// Failing is ByKey for the records that were put with Failing alone. Its cost does not depend on how many
	// others there are. A store that was written before there was Failing finds its failing records when Keys has
	// been walked over once.
	Failing(from string) iter.Seq2[Record, error]

	// Keys walks over all keys, in any order, as they are when Keys is called. The caller must begin the walk,
	// but need not finish it. An error ends it. Commits may happen during the walk. A scheduler walks over all
	// keys once, in the background after New, and fails on an error. A store may use that walk to check what
	// only a walk over all keys shows.
	Keys() iter.Seq2[string, error]

	// Settings returns what SetSettings was given last, or nothing.
	Settings() ([]byte, error)

	// SetSettings keeps the bytes, which are not empty and at most MaxNote, in place of those before. It is
	// called as a Commit, which is never under way at the same time, and durable like one.
	SetSettings(settings []byte) error

	// Len returns the number of records.
	Len() int

	// Close releases what the store holds. Reads and commits must have ended. A second Close does nothing.
	Close() error
}

// A FailureReporter is a [Store] that can fail while no call is there to return the error: in the background,
// or while a call hangs. A scheduler on such a store fails as soon as the store does: Scheduler.Err returns
// the cause, waiting verbs return ErrBroken at once, and nothing runs any more.
type FailureReporter interface {
	// Failed returns a channel that is closed when the store has failed. It is always the same.
	Failed() <-chan struct{}

	// Err returns the cause. It is called only after the channel has been closed, and wraps ErrCorrupt if data
	// is damaged.
	Err() error
}

// A SizeReporter is a [Store] that knows how many bytes it takes on the disk. Stats.StoreSize has them.
type SizeReporter interface {
	Size() int64
}

// A SpaceReporter is a [Store] that knows how many bytes are free on its disk, for it, and how many the disk has. Both
// are 0 if that is unknown. Stats.DiskFree and Stats.DiskSize have them.
type SpaceReporter interface {
	Space() (free, size int64)
}

// A Backuper is a [Store] that can be copied while a scheduler uses it.
type Backuper interface {
	// Backup writes a copy of the store to w, as a tar of a directory. The copy has the records of one instant
	// between two commits: all commits that had returned before Backup was called, and no part of one. Commits
	// and reads may happen meanwhile. An error of w ends Backup, which returns it; what has been written is no
	// copy then.
	Backup(ctx context.Context, w io.Writer) error
}

// A Record is a task as a store keeps it.
type Record struct {
	Key  string
	Due  int64  // when the task is due, in nanoseconds since 1970; ParkedDue if it is parked
	Data []byte // everything else
}

// Position returns where the record is in the order.
func (r Record) Position() Position { return Position{r.Due, r.Key} }

// A Position is a place in the order of due time and key. It need not have a record.
type Position struct {
	Due int64
	Key string
}

// Before reports whether p comes before q.
func (p Position) Before(q Position) bool { return p.Due < q.Due || p.Due == q.Due && p.Key < q.Key }

// A Change adds, replaces or deletes the record of one key.
type Change struct {
	Key  string
	From int64 // the due time of the present record, or None
	Due  int64 // that of the new one, or None
	Data []byte

	WasFailing bool // the present record was put with Failing
	Failing    bool // the new one is failing: an attempt of its run has failed
}

// None is the due time where there is no record. It is less than any other.
const None = math.MinInt64

// The due times of tasks that do not run: they are behind all others.
const (
	PausedDue = math.MaxInt64 - 1
	ParkedDue = math.MaxInt64
)
