// SPDX-License-Identifier: MIT

package engine

import (
	"context"
	"errors"
	"iter"
)

// A KV is an ordered map of bytes, from which package kv makes an [Engine]. Package memory has one in memory, and package
// kvtest checks what is written here.
//
// A KV has no transactions that stay open, and no clock unless it is a [Clock]. Every write names the versions that it
// relies on, and the KV decides: what a caller has read may be out of date by then.
//
// Keys are any bytes, ordered by bytes. They are not empty. Values are any bytes, and an empty value is not an absent one.
//
// Versions. Each entry has a version, which is positive and belongs to the write that put it. It is greater than every
// version that the key has had before, also before a deletion, and than any version that was committed before the call
// began, of whatever key. So a key and a version name one state of one entry for ever. The entries that one call puts
// may have the same version.
//
// Any number of goroutines, in any number of processes, call the methods at the same time. A KV copies the bytes that
// it is given before the call returns. The caller may keep and change the bytes that it gets.
type KV interface {
	// Get returns the entries of the keys, in their order. Keys that have none are left out. Each entry is as it was
	// when the call began, or later; together they need not be of one instant. No key is given twice.
	Get(ctx context.Context, keys ...string) ([]Entry, error)

	// Scan walks over the entries with from <= Key < to in the order of their keys. An error ends the walk. Each entry is
	// as it was when the walk began, or later. The walk yields every entry that is there from its beginning to its end. It
	// may or may not yield one that is put or deleted meanwhile, and need not show one instant. The caller may call other
	// methods during the walk, and may end it early.
	Scan(ctx context.Context, from, to string) iter.Seq2[Entry, error]

	// Commit does each Tx whole or not at all. It reports which of them are done: those whose checks all hold. The Txs
	// are independent and may be done in any order, and another caller may see one before the other. No two Txs of a
	// call put or delete the same key. What is done is durable, and every later call sees it.
	//
	// Commit sets the Version of each entry that it has put, before it returns.
	//
	// After an error it is unknown which Txs are done, or will be done, unless the error wraps ErrNotDone: then none is
	// and none will be. A Tx that a caller has given up does no harm when it arrives late, because its checks no longer
	// hold, or because the caller wanted it. Commit need not try again: the caller reads and decides.
	Commit(ctx context.Context, txs ...Tx) (done []bool, err error)

	// Limits returns what fits into an entry and a Tx. It is always the same.
	Limits() Limits
}

// An Entry is a key with its value.
type Entry struct {
	Key     string
	Value   []byte
	Version int64 // of the write that put it; Commit sets it in a Tx and ignores what it was
}

// A Tx is a number of writes that are done if its checks hold.
type Tx struct {
	If     []Check  // each key at most once
	Put    []Entry  // they need no check,
	Delete []string // nor do these, and a key without an entry stays without one; no key is both put and deleted
}

// A Check holds if the entry of the key has that version, or if there is none and Version is 0.
type Check struct {
	Key     string
	Version int64
}

// Limits bound an entry and a Tx. 0 is no bound.
type Limits struct {
	Value      int // bytes of a value
	Operations int // checks, puts and deletions of a Tx
	Bytes      int // keys and values of a Tx
}

// A Clock is a [KV] that has a clock of its own, the same for all of its callers. An Engine then decides by that clock what
// is due and which lease has run out. On a KV without a clock, each process decides by its own.
type Clock interface {
	// Now returns the time in nanoseconds since 1970, and since when the KV has been answering without an interruption,
	// or 0 if that is not known.
	Now(ctx context.Context) (now, up int64, err error)
}

// A Watcher is a [KV] that says when something has changed. Without it a caller polls.
type Watcher interface {
	// Watch returns a channel that receives after an entry whose key begins with the prefix was put or deleted. Several
	// changes may be one. The channel is closed when ctx is done or the watch has failed. A change before Watch
	// returns may be left out.
	Watch(ctx context.Context, prefix string) (changed <-chan struct{}, err error)
}

// An Exclusive is a [KV] that only one process uses at a time, through one Engine. Such an Engine keeps its members and
// what they hold in memory, and relies on no versions. It is an Exclusive as well: a node has it confirm each start at once,
// without waiting for others.
type Exclusive interface {
	// Exclusive does nothing. It marks the KV or the Engine.
	Exclusive()
}

// ErrTooLarge is the error of a write that does not fit into the limits of an engine. It wraps [ErrNotDone].
var ErrTooLarge error = tooLarge{}

type tooLarge struct{}

func (tooLarge) Error() string        { return "durable: larger than the engine allows" }
func (tooLarge) Is(target error) bool { return errors.Is(ErrNotDone, target) }
