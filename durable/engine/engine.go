// SPDX-License-Identifier: MIT

// Package engine is the contract between package durable and what keeps its tasks: an [Engine] for many nodes, or a
// [Store] for one process. Package kv makes an Engine of any [KV], an ordered map of bytes. A program that only uses
// durable needs nothing of this package. Package enginetest checks an Engine, kvtest a KV, and storetest a Store.
//
// An engine whose users have transactions makes its writes with durable.NewWrite, durable.Rescheduled and
// durable.Run.Completion.
package engine

import (
	"context"
	"errors"
	"iter"
	"time"
)

// An Engine keeps tasks for many nodes, and decides which of them holds a task. durable.Join makes a scheduler of it.
// Package durable/postgres has one on PostgreSQL, package memengine one in memory, package kv makes one of any [KV], and
// package enginetest checks what is written here.
//
// What becomes of a task is decided by the nodes. The engine only has conditions: a write takes effect if its
// condition holds, a start is confirmed if the claim still holds.
//
// Members. A node joins as a member, with a lease. Renew prolongs the lease. A member whose lease has run out may
// still renew it, until another member reaps it. From then on its identity is gone for good, and its claims are
// free. A node that finds its member gone joins again as another.
//
// Revisions. There is one counter for the whole engine. Whatever is done to a task raises it and gives the task
// its next value: adding, changing, claiming, releasing, reaping. The tasks of one call may get the same one. So a key and
// a revision name one state of one task, for ever: it is the condition of a write, the fence of a start, and the fencing
// number of a run (Run.Fence). A counter for each task would begin again when a key is removed and added.
//
// Time. The engine's clock, in nanoseconds since 1970, decides what is due and which lease has run out. No node's does.
//
// Notes. A note is a few bytes under a name, which the nodes keep for themselves: what is paused, and the questions
// that one node asks the others. Commit writes notes and Walk reads them. The names of notes and the keys of tasks
// are apart: a note and a task may have the same. Each write of a note gives it a greater revision than any note of that
// name had before, whether or not it was deleted meanwhile.
//
// Late calls. A call that a node has given up may reach the engine after later ones of the node. It does no harm:
//
//   - A Commit and a Confirm at a revision, and a Release, do nothing if the task or the note has changed. A Confirm
//     of a claim that was confirmed counts nothing.
//   - A Claim, and a Commit with Hold, may give the member a task that the node does not know of. The node checks
//     its claims every four leases, and more often after an error.
//   - A Renew takes no report back. If the member is dead, its tasks are taken over later.
//   - A Join makes a member that is reaped after its lease.
//   - A Leave and a Reap end only what has ended for good.
//   - A Commit of a question leaves it for a day, and nothing waits for it. One of an answer does nothing if the
//     question is gone, and replaces no later answer.
//   - A Commit on another condition is a verb that takes effect late, as the error of the verb says:
//     durable.ErrUnavailable.
//
// Any number of goroutines, in any number of processes, call the methods at the same time. A method that returns
// an error may have taken effect: its answer may have been lost. A method returns an error that wraps ErrMemberGone
// if the member is not one any more, and has done nothing then. Every other error counts as a failure that may
// pass. An engine copies the bytes that it is given before the call returns. The caller may keep and change the
// bytes that it gets.
type Engine interface {
	// Commit makes the writes of each batch, all of them or none. It returns one result for each batch, in their
	// order. Batches are independent: one whose condition does not hold does not affect another. A batch has tasks
	// or notes, not both. No two batches of a call have the same key, and no two writes of a batch. A batch without
	// writes is done.
	//
	// by is the member that holds what is written with Hold, or 0. If it is gone or its lease has run out, the
	// tasks are written and no member holds them.
	//
	// A batch may meet a lock that somebody else's transaction holds. A call with several batches does not wait
	// long for it, a few milliseconds: that batch is not done, and its result says Busy. A call with one batch
	// waits until ctx is done. So a caller that does not want to wait adds a batch without writes.
	//
	// If one batch is larger than the engine takes, the error wraps ErrTooLarge, and no batch is done.
	Commit(ctx context.Context, by MemberID, batches []Batch) ([]Result, error)

	// Get returns the tasks of the keys as they were last committed, each once, in any order. A key that has none is
	// left out.
	Get(ctx context.Context, keys ...string) ([]Stored, error)

	// Walk walks over the tasks, or the notes, of the range in its order. An error ends it. It yields each one that is
	// there during the whole walk, and may or may not yield one that is added, changed or removed meanwhile. Each
	// is yielded as it was last committed when the walk began, or later.
	Walk(ctx context.Context, over Range) iter.Seq2[Stored, error]

	// Claim gives the member free tasks of some kinds. It leaves out tasks that another transaction has locked. It
	// gives nothing to a member whose lease has run out. Its cost does not depend on how many tasks of other kinds
	// there are.
	Claim(ctx context.Context, r ClaimRequest) (Claims, error)

	// Confirm is the start of runs. For each of the claims it reports whether the member still holds the task at
	// that revision, and its lease has not run out, and no transaction has it locked. Only then the run may
	// start. Confirm counts the start: it makes Stored.Starts one more than Claim.Starts, so that a task that ends
	// its process is not tried for ever. A claim that is confirmed again, because an answer was lost or came late,
	// counts once. It sets Stored.Started. The count and that are the only things that change without a new revision,
	// and that may be lost when the engine crashes.
	//
	// When RemoveTask has returned on any node, no later Confirm of that task succeeds.
	Confirm(ctx context.Context, by MemberID, claims []Claim) (held []bool, now int64, err error)

	// Release gives up the claims that the member still holds at those revisions, and of which no start was
	// confirmed since: Stored.Starts is Claim.Starts. Those tasks are free then. So a Release that arrives late
	// frees no run. It does not wait for a user's transaction: the member still holds what that has locked, as
	// a walk in the order Held shows.
	Release(ctx context.Context, by MemberID, claims []Claim) error

	// Join makes a new member with a lease of that length from now on. name is for people. now is the engine's time.
	Join(ctx context.Context, name string, lease time.Duration) (id MemberID, now int64, err error)

	// Renew prolongs the member's lease: it runs out a lease after the engine's time now. It returns that time and the
	// members, in any order. A member whose lease has run out is one until it is reaped. The members are those after the
	// renewal is committed: of two members that renew at the same time, one at least sees the report of the other.
	//
	// report is what the member says about itself: at most MaxReport bytes. The engine keeps the greatest, in the
	// order of [bytes.Compare]. A node puts a count first, so a Renew that arrives after a later one takes no report
	// back.
	//
	// A Renew by 0 prolongs nothing. It only returns the members and the time, needs no member and writes nothing.
	Renew(ctx context.Context, by MemberID, report []byte) (members []Membership, now int64, err error)

	// Leave ends the member. Its tasks are free. It returns nil if the member is gone already. Neither Leave nor
	// Reap waits for a user's transaction: what that has locked is freed by a later Reap.
	Leave(ctx context.Context, by MemberID) error

	// Reap ends the members whose lease has run out, as Leave does, and returns their names. It reaps no member
	// until the engine itself has been up for longer than that member's lease: no lease is renewed during an outage.
	Reap(ctx context.Context) (names []string, err error)
}

// A Counter is an [Engine] that counts its tasks faster than by a walk over all of them.
type Counter interface {
	// Count counts the tasks of each kind, in any order. It may take seconds. A task is parked if its due time is
	// ParkedDue, and paused if it is PausedDue. A paused task counts as no failing one, whatever Failing says.
	Count(ctx context.Context) ([]KindCount, error)
}

// Count counts the tasks of each kind, in any order, as [Counter] says: by that if the engine is one, and else by walks
// over the tasks.
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

// A Range is what [Engine].Walk walks over.
type Range struct {
	Order Order
	After Position // ByDue: the tasks after it,
	Until int64    // and up to this due time, that included
	From  string   // ByKey, Failing and Notes: the keys or names that are not less
	By    MemberID // Held: of this member; ErrMemberGone ends the walk if it is gone
}

// An Order is what a walk yields, and in which order.
type Order uint8

// The orders of a walk.
const (
	ByDue   Order = iota // the tasks by due time and key
	ByKey                // the tasks by key
	Failing              // those that were written with Failing, by key; the cost does not depend on how many others there are
	Held                 // those that the member holds, in any order
	Notes                // the notes, by name
)

// A ClaimRequest says which free tasks a member claims.
type ClaimRequest struct {
	By    MemberID
	Kinds []string
	After int64 // they are due after this time
	Until int64 // and not after this one
	Most  int   // at most that many, the earliest first

	// Readable is the greatest version of a record that the member can read. The version is the first byte of Data.
	// Records of later versions are left out.
	Readable byte

	// Fair makes the groups take turns, whatever After is. The claim continues after Group, in the order of the
	// groups' names; the tasks without a group are the last one. Of each group that has such a task it gives the
	// earliest, up to Most in all. If it has come from the beginning, where Group is empty, to the end, it gives
	// about the same number of each, as far as they have as many. It may look at a thousand groups only.
	Fair  bool
	Group string
}

// Claims are what a [Engine].Claim gives.
type Claims struct {
	Tasks []Stored
	Next  string // of a fair claim: the group that it has come to, or empty after the last
	Now   int64  // the engine's time
}

// A HealthReporter is an [Engine] that knows its own health. Package metrics exports that.
type HealthReporter interface {
	Health(ctx context.Context) (Health, error)
}

// Health is what may slow an engine down, and what an acknowledged task survives. A copy in the memory of a standby counts. If
// the role may not see the state of the standbys, any that is connected counts, also an asynchronous one.
type Health struct {
	OldestTransaction time.Duration // age of the oldest transaction that holds back vacuum; 0 if there is none
	DeadRows          int64         // rows of tasks that were changed or removed and wait for vacuum; an estimate
	Size              int64         // of the tasks and their indexes, in bytes
	Unflushed         bool          // a crash of the server may lose what it has acknowledged
	Replicated        bool          // what the server acknowledges survives the loss of its machine
	Standbys          int           // those that are connected and for which the server waits before it acknowledges
	Refused           uint64        // connections of this process to an old primary or to another cluster, which it refused
}

// A KindCount counts the tasks of a kind, as [Stored] has it.
type KindCount struct {
	Kind    string
	Tasks   int // all of them
	Failing int // those that were written with Failing, and are not paused
	Parked  int
	Paused  int
}

// A MemberID names a member of an engine for good. 0 is no member.
type MemberID int64

// A Stored is a task or a note as an engine keeps it. A note has a name as its Key, Data and a Revision.
type Stored struct {
	Record
	Kind     string   // by what it is claimed: the kind of the task, and the version of its payload from 2 on
	Group    string   // of the task, or empty
	Revision int64    // of this state of the task
	Owner    MemberID // the member that holds it, or 0
	Starts   int      // claims of which a start was confirmed since the record was written,
	Started  int64    // and when the last one was, by the engine's clock; 0 if none was, or if that is not known
}

// A Membership is a member as the engine's books have it.
type Membership struct {
	ID     MemberID
	Name   string
	Lease  time.Duration // its length
	Left   time.Duration // until it runs out, by the engine's clock; negative if it has
	Report []byte        // the greatest of its Renews
}

// MaxReport is the size of a member's report, in bytes.
const MaxReport = 4 << 10

// Limits of a note, in bytes.
const (
	MaxNoteName = 128
	MaxNote     = 64 << 10
)

// A Claim is what a member holds: a task at a revision.
type Claim struct {
	Key      string
	Revision int64
	Starts   int // Stored.Starts when it was claimed
}

// A Batch is a number of writes with different keys, of which all are done or none.
type Batch []Write

// A Write puts the record of a key, or deletes it. It may be the record of a note: its Key is the name, not empty and at
// most MaxNoteName bytes, its Data is at most MaxNote bytes, and it has nothing else but its condition.
type Write struct {
	Record        // Due and Data are those to put; nil Data deletes the record
	Kind   string // of the record to put, as in Stored,
	Group  string // and this
	Note   bool   // it is the record of a note

	If       Condition
	Revision int64 // for IfUnchanged and IfUnstarted
	Hold     bool  // the member that commits holds the task from then on; else it is free
	Failing  bool  // an attempt of the run of the record to put has failed
}

// Holds reports whether the condition of the write holds if the key has that task or note, or nothing if it is nil.
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

// A Condition says when a write is done.
type Condition uint8

const (
	IfAbsent    Condition = iota + 1 // there is no record of the key
	IfPresent                        // there is one
	IfUnchanged                      // there is one, at that revision
	Always
	IfUnstarted // there is one, at that revision, and its Starts is 0, as that of each note is
)

// A Result says what has become of a batch: done if Unmet is empty and Busy is false.
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

// ErrCorrupt and ErrVersion are the errors of data that cannot be read: it is damaged, or a later version wrote it. They are
// those of package durable with the same names.
var (
	ErrCorrupt = errors.New("durable: the store is corrupt")
	ErrVersion = errors.New("durable: the store has a format of another version")
)

// ErrMemberGone is the error of an engine for a member that has left or was reaped.
var ErrMemberGone = errors.New("durable: the member is gone: its lease ran out, or it left")

// ErrNotDone may be wrapped in the error of an engine's call that has certainly had no effect, for instance because
// there was no connection to send it on. A node may try such a call again. It does not try a verb again that may
// have taken effect.
var ErrNotDone = errors.New("durable: the call had no effect")
