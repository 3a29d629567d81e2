// SPDX-License-Identifier: MIT

package durable

import (
	"iter"
	"math"
)

// A Store keeps records by key and in the order of their due times. [OpenPebble] is the one on disk, package
// memstore has one in memory, and package storetest checks what is written here.
//
// Commit is called by one goroutine at a time, and changes a key once; all else is called by any number, at
// the same time. A failed read is an error and never an absence: a store that has lost or cannot read a record
// says so. The bytes that a store gives out are the caller's; those it is given it has copied when the call
// returns.
type Store interface {
	// Commit makes all of the changes, in their order, or none. When it returns nil they are durable: they are
	// found by the next process, whatever happens to this one. They may be seen by reads a moment earlier, but
	// never some without the others. After an error the store is not written to any more, for nobody knows
	// whether the changes will be there; reads go on.
	Commit(changes []Change) error

	// Get returns the record of the key, and whether there is one. An error of this read or another that wraps
	// ErrCorrupt fails the scheduler; any other is only the caller's, unless the scheduler itself is reading.
	Get(key string) (r Record, ok bool, err error)

	// Due walks over the records after the position and up to the due time, that included, in order of due
	// time and key, as they are when the walk begins. An error ends it. Commits go on meanwhile.
	Due(after Position, until int64) iter.Seq2[Record, error]

	// Keys walks over all keys, in any order, as they are when Keys is called. It must be walked over once, if
	// only to its first step. An error ends it. Commits go on meanwhile. A scheduler walks over it once, in the
	// background after New, so a store may check there what only a walk over all shows. It fails on any error.
	Keys() iter.Seq2[string, error]

	// Len returns the number of records.
	Len() int

	// Close gives everything back; reads and commits must have ended. The second Close does nothing.
	Close() error
}

// A FailureReporter is a [Store] that can fail when no call is there to return the error: while it writes its
// tables or removes its logs in the background, or while a call hangs. A scheduler on such a store fails as soon
// as the store does. Err names the cause, waiting verbs return ErrBroken at once, and nothing runs any more.
type FailureReporter interface {
	// Failed returns a channel that is closed when the store has failed. It is always the same.
	Failed() <-chan struct{}

	// Err returns the cause after that, and is not called before. It wraps ErrCorrupt if data is damaged.
	Err() error
}

// A Record is a task as a store keeps it.
type Record struct {
	Key  string
	Due  int64  // when it is to be looked at, in nanoseconds since 1970; above None, and Never if it is parked
	Data []byte // everything else
}

// Position returns where the record is in the order.
func (r Record) Position() Position { return Position{r.Due, r.Key} }

// A Position is a place in the order of due time and key. There need not be a record.
type Position struct {
	Due int64
	Key string
}

// A Change is what becomes of one key: a record is added, replaced or deleted.
type Change struct {
	Key  string
	From int64 // the due time of the record that there is, or None
	Due  int64 // that of the new one, or None
	Data []byte
}

const (
	// None is the due time where there is no record.
	None = math.MinInt64

	// Never is the due time of what does not run by itself.
	Never = math.MaxInt64
)
