// SPDX-License-Identifier: MIT

package engine

import (
	"context"
	"errors"
	"iter"
)

// A KV is an ordered map of bytes on which package kv builds an [Engine]. Package memory provides a KV in memory.
// Package kvtest tests a KV against this contract.
//
// A KV has no interactive transactions, and no clock unless it is a [Clock]. Data that was read earlier may be out of
// date, so every write names the versions that it relies on, and the KV checks them.
//
// A key is any non-empty sequence of bytes. Keys are ordered bytewise. A value is any sequence of bytes. An empty value
// differs from an absent one.
//
// Versions. Each entry has a positive version, assigned by the write that put it. The version is greater than every
// earlier version of the key, including versions from before a deletion. It is also greater than the version of every
// entry committed before the call began. A key and a version together therefore identify one state of one entry for
// ever. Entries put by the same call may have the same version. A KV that is restored from a backup, or whose replica
// lacks the last commits, gives no version again: it continues above all earlier ones.
//
// The methods may be called concurrently by any number of goroutines in any number of processes. A KV does not retain
// byte slices from its arguments after a call returns. The caller may retain and modify byte slices in results.
type KV interface {
	// Get returns the entries with these keys, in the order of the keys. Keys without an entry are omitted. Each entry
	// is in its state when the call began, or in a later one. The result need not be a consistent snapshot. The keys
	// are distinct.
	Get(ctx context.Context, keys ...string) ([]Entry, error)

	// Scan iterates over the entries with from <= Key < to in key order. An error ends the iteration. Each entry is as
	// it was when the iteration began, or at some later time. Scan yields every entry that exists throughout the
	// iteration. It may or may not yield one that is put or deleted during the iteration, and need not show a
	// consistent snapshot. The caller may call other methods during the iteration, and may stop it early.
	Scan(ctx context.Context, from, to string) iter.Seq2[Entry, error]

	// Commit applies each Tx atomically if all its checks hold, and reports which were applied. The Txs are
	// independent: they may be applied in any order, and another caller may see the effect of one before that of
	// another. No two Txs of a call put or delete the same key. An applied Tx is durable and visible to every later
	// call.
	//
	// Before it returns, Commit sets the Version of each entry that it has put.
	//
	// If the error wraps ErrNotDone, no Tx has been or will be applied. After any other error, it is unknown which Txs
	// have been or will be applied. A Tx that is applied late, after its caller has abandoned it, is harmless: either
	// its checks no longer hold, or its effect is still wanted. Commit need not retry. The caller rereads the entries
	// and decides.
	Commit(ctx context.Context, txs ...Tx) (done []bool, err error)

	// Limits returns the limits for an entry and a Tx. They never change.
	Limits() Limits
}

// An Entry is a key with its value.
type Entry struct {
	Key     string
	Value   []byte
	Version int64 // version of the write that put the entry; set by Commit, which ignores the value in a Tx
}

// A Tx is a set of writes that is applied if all its checks hold.
type Tx struct {
	If     []Check  // checks, at most one per key
	Put    []Entry  // entries to put, with or without a check on their keys
	Delete []string // keys to delete, which need neither a check nor an entry; no key is both put and deleted
}

// A Check holds if the key's entry has this version. Version 0 means that the key must have no entry.
type Check struct {
	Key     string
	Version int64
}

// Limits are the size limits for an entry and a Tx. 0 means unlimited.
type Limits struct {
	Value      int // maximum size of a value, in bytes
	Operations int // maximum number of checks, puts and deletions in a Tx
	Bytes      int // maximum total size of the keys and values in a Tx, in bytes
}

// ErrTooLarge is returned for a write that exceeds an engine's limits. It wraps [ErrNotDone].
var ErrTooLarge error = tooLarge{}

type tooLarge struct{}

func (tooLarge) Error() string        { return "durable: larger than the engine allows" }
func (tooLarge) Is(target error) bool { return errors.Is(ErrNotDone, target) }
