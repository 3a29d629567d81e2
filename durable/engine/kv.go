// SPDX-License-Identifier: MIT

package engine

import (
	"context"
	"errors"
	"iter"
)

// A KV is an ordered map of bytes, from which package kv makes an [Engine]. Package memory has one in memory, and
// package kvtest checks this contract.
//
// A KV has no open transactions, and no clock unless it is a [Clock]. Every write names the versions that it relies on,
// because data read before may be out of date, and the KV decides.
//
// Keys are any bytes, ordered by bytes. They are not empty. A value may be any sequence of bytes. An empty value
// differs from an absent one.
//
// Versions. Each entry has a positive version, which belongs to the write that put it. It is greater than every earlier
// version of the key, even before a deletion, and than the version of any key committed before the call began. So a key
// and a version identify one state of one entry for ever. The entries of one call may have the same version.
//
// Any number of goroutines, in any number of processes, call the methods at the same time. A KV copies its arguments'
// bytes before the call returns. The caller may keep and change the bytes of results.
type KV interface {
	// Get returns the entries of the keys, in their order. Keys without an entry are left out. Each entry has its state
	// when the call began, or a later one; together they need not be of one instant. The keys are all different.
	Get(ctx context.Context, keys ...string) ([]Entry, error)

	// Scan walks over the entries with from <= Key < to in the order of their keys. An error ends the walk. Each entry
	// has its state when the walk began, or a later one. The walk yields every entry that exists from its beginning to
	// its end. It may or may not yield one that is put or deleted meanwhile, and need not show one instant. The caller
	// may call other methods during the walk, and may end it early.
	Scan(ctx context.Context, from, to string) iter.Seq2[Entry, error]

	// Commit executes each Tx entirely or not at all. It reports which of them are done: those whose checks all hold.
	// The Txs are independent and may be executed in any order, and another caller may see one before the other. No two
	// Txs of a call put or delete the same key. A Tx that is done is durable, and every later call sees it.
	//
	// Commit sets the Version of each entry that it has put, before it returns.
	//
	// After an error it is unknown which Txs are done, or will be done, unless the error wraps ErrNotDone: then none is
	// and none will be. A late Tx that its caller has given up does no harm: either its checks no longer hold, or the
	// caller wanted it. Commit need not retry: the caller reads and decides.
	Commit(ctx context.Context, txs ...Tx) (done []bool, err error)

	// Limits returns the limits of an entry and a Tx. They never change.
	Limits() Limits
}

// An Entry is a key with its value.
type Entry struct {
	Key     string
	Value   []byte
	Version int64 // of the write that put it; Commit sets it in a Tx and ignores its value there
}

// A Tx is a set of writes that are made if its checks hold.
type Tx struct {
	If     []Check  // each key at most once
	Put    []Entry  // they need no check,
	Delete []string // nor do these, and a key without an entry stays without one; no key is both put and deleted
}

// A Check holds if the key's entry has that version, or if there is none and Version is 0.
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

// A Clock is a [KV] with its own clock, the same for all callers. An Engine then decides by that clock which tasks are
// due and which leases have expired. On a KV without a clock, each process goes by its own clock.
type Clock interface {
	// Now returns the time in nanoseconds since 1970, and since when the KV has been answering without an interruption,
	// or 0 if that is unknown.
	Now(ctx context.Context) (now, up int64, err error)
}

// A Watcher is a [KV] that reports changes. Without it a caller polls.
type Watcher interface {
	// Watch returns a channel that receives after an entry whose key begins with the prefix was put or deleted. It may
	// receive once for several changes. The channel is closed when ctx is done or the watch has failed. It may miss a
	// change before Watch returns.
	Watch(ctx context.Context, prefix string) (changed <-chan struct{}, err error)
}

// An Exclusive is a [KV] that only one process uses at a time, through one Engine. Such an Engine keeps its members and
// their claims in memory, and does not rely on versions. It is an Exclusive as well: a node confirms each start at
// once, without waiting for others.
type Exclusive interface {
	// Exclusive does nothing. It marks the KV or the Engine.
	Exclusive()
}

// ErrTooLarge is the error of a write that exceeds the limits of an engine. It wraps [ErrNotDone].
var ErrTooLarge error = tooLarge{}

type tooLarge struct{}

func (tooLarge) Error() string        { return "durable: larger than the engine allows" }
func (tooLarge) Is(target error) bool { return errors.Is(ErrNotDone, target) }
