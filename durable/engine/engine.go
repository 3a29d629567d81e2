// SPDX-License-Identifier: MIT

// Package engine is the contract between package durable and the storage of its tasks: an [Engine] for many nodes, or a
// [Store] for one process. Package kv makes an Engine from any [KV], an ordered map of bytes. A program that only uses
// durable does not need this package. Package enginetest checks an Engine, kvtest a KV, and storetest a Store.
//
// An engine that lets users write tasks in their own transactions makes these writes with durable.NewWrite,
// durable.Rescheduled and durable.Run.Completion.
package engine

import (
	"context"
	"errors"
	"iter"
	"time"
)

// An Engine keeps tasks for many nodes, and decides which of them holds a task. durable.Join makes a scheduler from it.
// Package durable/postgres has an Engine on PostgreSQL, package memengine one in memory, and package kv makes one from
// any [KV]. Package enginetest checks this contract.
//
// The nodes decide how a task changes. The engine only checks conditions: a write takes effect if its condition holds,
// and a start is confirmed if the claim still holds.
//
// Members. A node joins as a member, with a lease. Renew extends the lease. A member whose lease has expired may still
// renew it, until another member reaps it. From then on the member is gone for good, and its tasks are free. A node
// that finds its member gone joins again as a new one.
//
// Revisions. There is one counter for the whole engine. Every change to a task increments it and assigns the new value
// to the task: adding, changing, claiming, releasing and reaping. The tasks of one call may get the same value. So a
// key and a revision identify one state of one task for ever. A revision is the condition of a write, the fence of a
// start, and the fencing number of a run (Run.Fence). A counter for each task would start again when a key is removed
// and added.
//
// Time. The engine's clock, in nanoseconds since 1970, decides which tasks are due and which leases have expired.
// Clocks of nodes never decide.
//
// Notes. A note is a few bytes stored under a name. The nodes use notes among themselves, for pauses and for questions
// to other nodes. Commit writes notes and Walk reads them. The names of notes are separate from the keys of tasks: a
// note and a task may have the same. Each write of a note gives it a greater revision than any earlier note of that
// name had, even if that was deleted.
//
// Late calls. A call that a node has given up may reach the engine after later calls of the node. It does no harm:
//
//   - A Commit or a Confirm at a revision, and a Release, have no effect if the task or the note has changed.
//     Confirming a confirmed claim again counts nothing.
//   - A Claim, and a Commit with Hold, may give the member a task that the node does not know about. The node checks
//     its claims every four leases, and more often after an error.
//   - A Renew does not replace a later report. If the member is dead, its tasks are taken over later.
//   - A Join makes a member that is reaped after its lease.
//   - A Leave and a Reap end only members that have ended for good.
//   - A Commit of a question leaves it for a day, and nothing waits for it. A Commit of an answer has no effect if the
//     question is gone, and replaces no later answer.
//   - A Commit on another condition is a verb that takes effect late, as the error of the verb says:
//     durable.ErrUnavailable.
//
// Any number of goroutines, in any number of processes, call the methods at the same time. A method that returns an
// error may have taken effect: its answer may have been lost. If the member is gone, a method returns an error that
// wraps ErrMemberGone, and has no effect. Every other error counts as a temporary failure. An engine copies its
// arguments' bytes before the call returns. The caller may keep and change the bytes of results.
type Engine interface {
	// Commit makes the writes of each batch, all of them or none. It returns one result for each batch, in their order.
	// Batches are independent: if the condition of one does not hold, the others are not affected. A batch has tasks or
	// notes, not both. All keys of a call are different. A batch without writes succeeds.
	//
	// by is the member that holds the tasks written with Hold, or 0. If it is gone or its lease has expired, the tasks
	// are written and are free.
	//
	// A batch may meet a lock of another transaction. A call with several batches waits only a few milliseconds for it.
	// After that, the batch is not applied, and its result is Busy. A call with one batch waits until ctx is done. A
	// caller that does not want to wait adds a batch without writes.
	//
	// If a batch is larger than the engine allows, the error wraps ErrTooLarge, and no batch is done.
	Commit(ctx context.Context, by MemberID, batches []Batch) ([]Result, error)

	// Get returns the last committed state of the keys' tasks, each once, in any order. Keys without a task are left
	// out.
	Get(ctx context.Context, keys ...string) ([]Stored, error)

	// Walk walks over the tasks, or the notes, of the range in its order. An error ends it. It yields each one that
	// exists during the whole walk, and may or may not yield one that is added, changed or removed meanwhile. Each has
	// the state last committed when the walk began, or a later one.
	Walk(ctx context.Context, over Range) iter.Seq2[Stored, error]

	// Claim gives the member free tasks of some kinds. It leaves out tasks that another transaction has locked. A
	// member whose lease has expired gets none. Its cost does not depend on the number of tasks of other kinds.
	Claim(ctx context.Context, r ClaimRequest) (Claims, error)

	// Confirm is the start of runs. For each claim it reports whether the member still holds the task at that revision,
	// the lease has not expired, and no transaction has locked the task. Only then may the run start. Confirm counts
	// the start: it sets Stored.Starts to Claim.Starts + 1, so that a task that ends its process is not retried for
	// ever. A claim that is confirmed again, because an answer was lost or late, counts once. Confirm also sets
	// Stored.Started. These two fields are the only ones that change without a new revision, and that may be lost when
	// the engine crashes.
	//
	// When RemoveTask has returned on any node, no later Confirm of that task succeeds.
	Confirm(ctx context.Context, by MemberID, claims []Claim) (held []bool, now int64, err error)

	// Release frees the tasks that the member still holds at those revisions, unless a start was confirmed since:
	// Stored.Starts is Claim.Starts. So a late Release does not free a running task. It does not wait for a user's
	// transaction: the member still holds the tasks that one has locked, as a walk in the order Held shows.
	Release(ctx context.Context, by MemberID, claims []Claim) error

	// Join adds a member with a lease of that length, which starts now. name is for people. now is the engine's time.
	Join(ctx context.Context, name string, lease time.Duration) (id MemberID, now int64, err error)

	// Renew extends the member's lease, which then expires one lease after the engine's time now. It returns that time
	// and the members, in any order. A member whose lease has expired remains one until it is reaped. The members are
	// read after the renewal is committed: if two members renew at the same time, at least one of them sees the other's
	// report.
	//
	// report is the member's report about itself, of at most MaxReport bytes. The engine keeps the greatest, in the
	// order of [bytes.Compare]. A node puts a count first, so a late Renew does not replace a later report.
	//
	// A Renew by 0 extends nothing. It only returns the members and the time, and writes nothing.
	Renew(ctx context.Context, by MemberID, report []byte) (members []Membership, now int64, err error)

	// Leave ends the member and frees its tasks. It returns nil if the member is already gone. Neither Leave nor Reap
	// waits for a user's transaction: a later Reap frees the tasks that one has locked.
	Leave(ctx context.Context, by MemberID) error

	// Reap ends the members whose leases have expired, as Leave does, and returns their names. It reaps a member only
	// after the engine itself has been up for longer than that member's lease, because no lease is renewed during an
	// outage.
	Reap(ctx context.Context) (names []string, err error)
}

// A Counter is an [Engine] that counts its tasks faster than by a walk over all of them.
type Counter interface {
	// Count counts the tasks of each kind, in any order. It may take seconds. A task is parked if its due time is
	// ParkedDue, and paused if it is PausedDue. A paused task does not count as failing, whatever Failing says.
	Count(ctx context.Context) ([]KindCount, error)
}

// Count counts the tasks of each kind, in any order. It uses [Counter] if the engine is one, and otherwise walks over
// the tasks.
func Count(ctx context.Context, e Engine) ([]KindCount, error) {
	if c, ok := e.(Counter); ok {
		return c.Count(ctx)
	}
	counts := make(Tally)
	for s, err := range e.Walk(ctx, Range{After: Position{Due: None}, Until: ParkedDue}) {
		if err != nil {
			return nil, err
		}
		counts.Add(s.Kind, s.Due, false, 1)
	}
	for s, err := range e.Walk(ctx, Range{Order: Failing}) {
		if err != nil {
			return nil, err
		}
		if k := counts[s.Kind]; k != nil && s.Due != PausedDue {
			k.Failing++
		}
	}
	return counts.Kinds(), nil
}

// A Range selects what [Engine].Walk yields.
type Range struct {
	Order Order
	After Position // ByDue: the tasks after it,
	Until int64    // up to and including this due time
	From  string   // ByKey, Failing and Notes: keys or names that are not less
	By    MemberID // Held: of this member; ErrMemberGone ends the walk if it is gone
}

// An Order says what a walk yields, and in which order.
type Order uint8

// The orders of a walk.
const (
	ByDue   Order = iota // the tasks by due time and key
	ByKey                // the tasks by key
	Failing              // the tasks written with Failing, by key; the cost does not depend on the number of others
	Held                 // the tasks that the member holds, in any order
	Notes                // the notes, by name
)

// A ClaimRequest selects the free tasks that a member claims.
type ClaimRequest struct {
	By    MemberID
	Kinds []string
	After int64 // due after this time
	Until int64 // and not after this one
	Most  int   // the number of tasks at most, the earliest first

	// Readable is the greatest version of a record that the member can read. The version is the first byte of Data.
	// Records of later versions are left out.
	Readable byte

	// Fair makes the groups take turns, and ignores After. The claim continues after Group, in the order of the groups'
	// names; tasks without a group form the last group. It gives the earliest task of each group, up to Most in all. If
	// it covers all groups, from the beginning (Group is empty) to the end, it gives about the same number of tasks of
	// each, as far as a group has them. It may stop after a thousand groups.
	Fair  bool
	Group string
}

// Claims are the result of an [Engine].Claim.
type Claims struct {
	Tasks []Stored
	Next  string // of a fair claim: the last group it reached, or empty after the last of all
	Now   int64  // the engine's time
}

// A HealthReporter is an [Engine] that reports its health. Package metrics exports it.
type HealthReporter interface {
	Health(ctx context.Context) (Health, error)
}

// Health shows what may slow an engine down, and what an acknowledged task survives. A copy in the memory of a standby
// counts. If the role is not allowed to see the state of the standbys, every connected standby counts, even an
// asynchronous one.
type Health struct {
	OldestTransaction time.Duration // age of the oldest transaction that holds back vacuum; 0 if there is none
	DeadRows          int64         // old versions of tasks' rows that wait for vacuum; an estimate
	Size              int64         // of the tasks and their indexes, in bytes
	Unflushed         bool          // a crash of the server may lose acknowledged tasks
	Replicated        bool          // acknowledged tasks survive the loss of the server's machine
	Standbys          int           // connected standbys that the server waits for before it acknowledges
	Refused           uint64        // connections that this process refused because they led to an old primary or another cluster
}

// A KindCount counts the tasks of a kind, as in [Stored].
type KindCount struct {
	Kind    string
	Tasks   int // all of them
	Failing int // tasks written with Failing that are not paused
	Parked  int
	Paused  int
}

// A MemberID names a member of an engine for good. 0 is no member.
type MemberID int64

// A Stored is a task or a note as an engine keeps it. A note has its name as the Key, Data and a Revision.
type Stored struct {
	Record
	Kind     string   // the class for claims: the kind of the task, and the version of its payload from 2 on
	Group    string   // of the task, or empty
	Revision int64    // of this state of the task
	Owner    MemberID // the member that holds it, or 0
	Starts   int      // confirmed starts since the record was written,
	Started  int64    // and when the last one was, by the engine's clock; 0 if there was none, or if unknown
}

// A Membership describes a member.
type Membership struct {
	ID     MemberID
	Name   string
	Lease  time.Duration // its length
	Left   time.Duration // until it expires, by the engine's clock; negative if it has
	Report []byte        // the greatest one of its Renews
}

// MaxReport is the size of a member's report, in bytes.
const MaxReport = 4 << 10

// Limits of a note, in bytes.
const (
	MaxNoteName = 128
	MaxNote     = 64 << 10
)

// A Claim is a task at a revision that a member holds.
type Claim struct {
	Key      string
	Revision int64
	Starts   int // Stored.Starts when it was claimed
}

// A Batch is a set of writes with different keys, which are made all or none.
type Batch []Write

// A Write puts the record of a key, or deletes it. For a note the Key is the name, of 1 to MaxNoteName bytes, Data is
// at most MaxNote bytes, and only the condition is set besides.
type Write struct {
	Record        // Due and Data to put; nil Data deletes the record
	Kind   string // of the record to put, as in Stored,
	Group  string // and this
	Note   bool   // it is the record of a note

	If       Condition
	Revision int64 // for IfUnchanged and IfUnstarted
	Hold     bool  // the committing member holds the task afterwards; otherwise the task is free
	Failing  bool  // an attempt of the record's run has failed
}

// Holds reports whether the condition of the write holds for the key's current task or note, which is nil if there is
// none.
func (w Write) Holds(s *Stored) bool {
	switch w.If {
	case IfAbsent:
		return s == nil
	case IfPresent:
		return s != nil
	case IfUnchanged:
		return s != nil && s.Revision == w.Revision
	case IfUnstarted:
		return s != nil && s.Revision == w.Revision && s.Starts == 0
	}
	return true
}

// A Condition says when a write takes effect.
type Condition uint8

const (
	IfAbsent    Condition = iota + 1 // there is no record of the key
	IfPresent                        // there is one
	IfUnchanged                      // there is one, at that revision
	Always
	IfUnstarted // there is one, at that revision, and its Starts is 0, as for every note
)

// A Result is the outcome of a batch, which is done if Unmet is empty and Busy is false.
type Result struct {
	Unmet   []string  // the keys whose condition does not hold
	Busy    bool      // a lock was in the way; try the batch by itself
	Written []Written // if it was done, one for each write
}

// Written says what a write has done.
type Written struct {
	Revision int64 // of the record that was put
	Held     bool  // the member holds it
	Replaced bool  // there was a record before
}

// ErrCorrupt and ErrVersion are the errors of unreadable data: it is damaged, or a later version wrote it. Package
// durable exports them under the same names.
var (
	ErrCorrupt = errors.New("durable: the store is corrupt")
	ErrVersion = errors.New("durable: the store has a format of another version")
)

// ErrMemberGone is returned by an engine if the member has left or been reaped.
var ErrMemberGone = errors.New("durable: the member is gone: its lease expired, or it left")

// A method of an engine may return an error that wraps ErrNotDone if the call certainly had no effect, for instance
// because there was no connection. A node may repeat such a call. It does not repeat a verb that may have taken effect.
var ErrNotDone = errors.New("durable: the call had no effect")
