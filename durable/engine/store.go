// SPDX-License-Identifier: MIT

package engine

import (
	"context"
	"io"
	"iter"
	"math"
)

// A Store keeps records by key and in the order of their due times. Package durable/pebble has one on disk, package
// memstore one in memory, and package storetest checks this contract.
//
// One goroutine at a time calls Commit, with at most one change for each key. Any number of goroutines call the other
// methods at the same time. A failed read is an error and never an absence: a store that has lost a record, or cannot
// read it, returns an error. The caller may keep and change the bytes of results. A store copies its arguments' bytes
// before the call returns.
type Store interface {
	// Commit makes all of the changes, in their order, or none. When it returns nil they are durable: the next process
	// finds them, whatever happens to the present one. Reads may see them a moment earlier, but never some without the
	// others. After an error it is unknown whether the changes are durable. The scheduler then makes no further commit,
	// and reads must still work.
	Commit(changes []Change) error

	// Get returns the record of the key, and whether there is one. If a read fails with an error that wraps ErrCorrupt,
	// the scheduler fails. Any other error concerns only the caller, unless the scheduler itself is reading.
	Get(key string) (r Record, ok bool, err error)

	// Due walks over the records after the position and up to and including the due time, in order of due time and key,
	// as they are when the walk begins. An error ends it. Commits may happen during the walk.
	Due(after Position, until int64) iter.Seq2[Record, error]

	// ByKey walks over the records whose key is not less than from, in order of the key, as they are when the walk
	// begins. An error ends it. Commits may happen during the walk.
	ByKey(from string) iter.Seq2[Record, error]

	// Failing is ByKey for only the records that were put with Failing. Its cost does not depend on the number of other
	// records. A store written before Failing existed finds its failing records once Keys has been walked over.
	Failing(from string) iter.Seq2[Record, error]

	// Keys walks over all keys, in any order, as they are when Keys is called. The caller must begin the walk, but need
	// not finish it. An error ends it. Commits may happen during the walk. A scheduler walks over all keys once, in the
	// background after New, and fails on an error. A store may use that walk for checks that need all keys.
	Keys() iter.Seq2[string, error]

	// Settings returns the bytes of the last SetSettings, or none.
	Settings() ([]byte, error)

	// SetSettings stores the bytes, 1 to MaxNote of them, in place of the previous ones. It is durable like a Commit,
	// and never called during one.
	SetSettings(settings []byte) error

	// Len returns the number of records.
	Len() int

	// Close releases the resources of the store. Reads and commits must have ended. A second Close does nothing.
	Close() error
}

// A FailureReporter is a [Store] that can fail when no call can return the error: in the background, or while a call
// hangs. A scheduler on such a store fails as soon as the store does: Scheduler.Err returns the cause, waiting verbs
// return ErrBroken at once, and no further run starts.
type FailureReporter interface {
	// Failed returns a channel that is closed when the store has failed. It is always the same.
	Failed() <-chan struct{}

	// Err returns the cause. It is called only after the channel has been closed, and wraps ErrCorrupt if data
	// is damaged.
	Err() error
}

// A SizeReporter is a [Store] that reports how many bytes it takes on the disk, for Stats.StoreSize.
type SizeReporter interface {
	Size() int64
}

// A SpaceReporter is a [Store] that reports how many bytes of its disk are free for it, and the size of the disk. Both
// are 0 if unknown. They are Stats.DiskFree and Stats.DiskSize.
type SpaceReporter interface {
	Space() (free, size int64)
}

// A Backuper is a [Store] that can be copied while a scheduler uses it.
type Backuper interface {
	// Backup writes a copy of the store to w, as a tar of a directory. The copy has the records of one instant between
	// two commits: it includes all commits that had returned before Backup was called, and never a part of one. Commits
	// and reads may happen meanwhile. If w returns an error, Backup returns it, and the output is not a valid copy.
	Backup(ctx context.Context, w io.Writer) error
}

// A Record is a task as a store keeps it.
type Record struct {
	Key  string
	Due  int64  // when the task is due, in nanoseconds since 1970; ParkedDue if it is parked
	Data []byte // everything else
}

// Position returns the record's place in the order.
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
	Due  int64 // the due time of the new record, or None
	Data []byte

	WasFailing bool // the present record was put with Failing
	Failing    bool // the new one is failing: an attempt of its run has failed
}

// None is the due time of a record that does not exist. It is less than any other.
const None = math.MinInt64

// The due times of tasks that do not run. They come after all others.
const (
	PausedDue = math.MaxInt64 - 1
	ParkedDue = math.MaxInt64
)
