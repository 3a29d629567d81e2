// SPDX-License-Identifier: MIT

package engine

import (
	"context"
	"io"
	"iter"
	"math"
)

// A Store holds records, ordered by key and by due time. Package durable/pebble provides a Store on disk, and package
// memstore provides one in memory. Package storetest tests a Store against this contract.
//
// Only one goroutine at a time calls Commit, with at most one change per key. The other methods may be called
// concurrently by any number of goroutines. A store that has lost a record or cannot read it must return an error; it
// must never report the record as absent. The caller may retain and modify byte slices in results. A store does not
// retain byte slices from its arguments after a call returns.
type Store interface {
	// Commit applies the changes atomically and in order. Once it returns nil, they are durable: the next process sees
	// them, whatever happens to the current one. Reads may see the changes slightly earlier, but never only some of
	// them. After an error, it is unknown whether the changes are durable. The scheduler then makes no further commits,
	// but reads must still work.
	Commit(changes []Change) error

	// Get returns the record with the key and reports whether it exists. If a read returns an error that wraps
	// ErrCorrupt, the scheduler fails. Any other error fails only the verb that caused the read, unless the scheduler
	// itself is reading.
	Get(key string) (r Record, ok bool, err error)

	// Due iterates over the records after the given position that are due at or before until, in order of due time and
	// key, as they are when the iteration begins. An error ends the iteration. Commits may happen during the iteration.
	Due(after Position, until int64) iter.Seq2[Record, error]

	// ByKey iterates over the records whose keys are not less than from, in key order, as they are when the iteration
	// begins. An error ends the iteration. Commits may happen during the iteration.
	ByKey(from string) iter.Seq2[Record, error]

	// Failing is like ByKey, but yields only records that were put with Failing. Its cost does not depend on the number
	// of other records. In a store written before Failing existed, it yields the failing records only after a complete
	// iteration over Keys.
	Failing(from string) iter.Seq2[Record, error]

	// Keys iterates over all keys, in any order, as they are when Keys is called. The caller must begin the iteration,
	// but need not finish it. An error ends the iteration. Commits may happen during the iteration. A scheduler
	// iterates over all keys once, in the background after New, and fails on an error. A store may use that iteration
	// for checks that need all keys.
	Keys() iter.Seq2[string, error]

	// Settings returns the bytes stored by the last SetSettings, or no bytes if there was none.
	Settings() ([]byte, error)

	// SetSettings replaces the stored settings, which are 1 to MaxNote bytes long. Like a Commit, it is durable once it
	// returns nil. It is never called during a Commit.
	SetSettings(settings []byte) error

	// Len returns the number of records.
	Len() int

	// Close releases the store's resources. All reads and commits must have ended. A second Close does nothing.
	Close() error
}

// A FailureReporter is a [Store], or an [Exclusive] KV or Engine, that can fail while no call is able to return the
// error: in the background, or while a call hangs. When it fails, so does its scheduler: Scheduler.Err returns the cause, waiting verbs return ErrBroken at
// once, and no further run starts.
type FailureReporter interface {
	// Failed returns a channel that is closed when the store fails. Every call returns the same channel.
	Failed() <-chan struct{}

	// Err returns the cause of the failure, which wraps ErrCorrupt if data is damaged. It is called only after the
	// channel has been closed.
	Err() error
}

// A SizeReporter is a [Store] that reports its size on disk, in bytes, for Stats.StoreSize.
type SizeReporter interface {
	Size() int64
}

// A SpaceReporter is a [Store] that reports the free space available to it on its disk and the size of the disk, in
// bytes, for Stats.DiskFree and Stats.DiskSize. Both are 0 if unknown.
type SpaceReporter interface {
	Space() (free, size int64)
}

// A Backuper is a [Store] that can be copied while a scheduler is using it.
type Backuper interface {
	// Backup writes a copy of the store to w, as a tar archive of a directory. The copy is a snapshot taken between two
	// commits: it includes every commit that returned before Backup was called, and never part of a commit. Commits and
	// reads may happen during the backup. If w returns an error, Backup returns that error, and the output is not a
	// valid copy.
	Backup(ctx context.Context, w io.Writer) error
}

// A Noter is a [Store] that also holds notes, which are values stored under names, as in an [Engine]. The scheduler
// keeps the history of runs in notes. Without a Noter, durable.WithHistory is not available. A name has 1 to
// MaxNoteName bytes, and its data at most MaxNote bytes. Notes are independent of the records and of the settings.
type Noter interface {
	// SetNotes puts the notes, and deletes those whose Data is nil, atomically. Like a Commit, it is durable once it
	// returns nil. It may be called during a Commit, but only by one goroutine at a time, and with each name at most
	// once. Due is ignored.
	SetNotes(notes []Record) error

	// Notes iterates over the notes in the range in order of their names, as they are when the iteration begins. Only
	// From, To and Bare of the range are used. An error ends the iteration.
	Notes(over Range) iter.Seq2[Record, error]
}

// A Record is the stored form of a task.
type Record struct {
	Key  string
	Due  int64  // when the task is due, in nanoseconds since 1970; ParkedDue if it is parked
	Data []byte // everything else
}

// Position returns the record's position in the order of due time and key.
func (r Record) Position() Position { return Position{r.Due, r.Key} }

// A Position is a position in the order of due time and key. There may be no record there.
type Position struct {
	Due int64
	Key string
}

// Before reports whether p comes before q.
func (p Position) Before(q Position) bool { return p.Due < q.Due || p.Due == q.Due && p.Key < q.Key }

// A Change adds, replaces or deletes the record with a key.
type Change struct {
	Key  string
	From int64 // the due time of the current record, or None
	Due  int64 // the due time of the new record, or None
	Data []byte

	WasFailing bool // the current record was put with Failing set
	Failing    bool // the new record is failing: the last attempt of the task failed
}

// None is the due time of a record that does not exist. It is less than any other due time.
const None = math.MinInt64

// The due times of paused and parked tasks, which do not run. They are greater than all other due times.
const (
	PausedDue = math.MaxInt64 - 1
	ParkedDue = math.MaxInt64
)
