// SPDX-License-Identifier: MIT

// Package engine defines the contract between package durable and its task storage: an [Engine], for many nodes or for one
// process. Package kv builds an Engine on any [KV], an ordered map of bytes. Programs that only use durable do not need
// this package. Package enginetest tests an Engine, and package kvtest a KV.
//
// An engine that lets users change tasks in their own transactions builds those writes with package
// durable/author and durable.Run.Completion.
package engine

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"time"
)

// An Engine stores tasks for many nodes and decides which node holds each task. durable.New returns a scheduler that
// uses it. Package durable/postgres provides an Engine on PostgreSQL, package kv builds one on any [KV],
// and package memory provides one in memory. Package enginetest tests an Engine against this contract.
//
// The nodes decide how a task changes. The engine only checks conditions: a write takes effect if its condition holds,
// and a start is confirmed if the claim is still valid.
//
// Members. A node joins as a member, with a lease. Renew extends the lease. A member may still renew an expired lease
// until the member is reaped. Once reaped, the member is gone for good and its tasks are free. The node then joins
// again as a new member.
//
// Revisions. The whole engine shares one revision counter. Adding, changing, claiming, releasing or reaping a task
// increments the counter and assigns the new value to the task. Tasks changed by the same call may get the same value.
// A key and a revision together therefore identify one state of one task permanently. A revision is the condition of a
// write, the fence of a start, and the fencing number of a run (Run.Fence). A counter per task would start over when a
// key is removed and added again.
//
// Restored data. The data may be replaced by an older state while nodes are running: by a backup, or by a replica that
// lacks the last commits. The members that have joined since are gone, and no ID of theirs is given again. The counter
// continues above every revision that it has given before. A node finds out at its next call.
//
// Time. The engine's clock, in nanoseconds since 1970, decides which tasks are due and which leases have expired. The
// nodes' clocks have no influence on either.
//
// Notes. A note is a small value stored under a name. Nodes use notes internally, for pauses, for questions to other
// nodes, for the history of runs, and for the last hour of each process. Commit writes notes and Walk reads them. Note names and task keys are separate
// namespaces, so a note's name may equal a task's key. Each write of a note assigns a revision greater than that of any
// earlier note with the same name, even a deleted one.
//
// Late calls. A call that a node has abandoned may reach the engine after later calls from the same node. Such late
// calls are harmless:
//
//   - A Commit at a revision, a Confirm or a Release has no effect if the task or note has changed. Confirming a claim
//     twice counts one start.
//   - A Claim or a Commit with Hold may assign a task to the member without its node receiving the result. The node
//     checks for such tasks every four lease lengths, and more often after an error.
//   - A Renew does not replace a newer report. If the node is dead, a late Renew delays the takeover of its tasks.
//   - A Join creates a member that is reaped once its lease expires.
//   - A Leave or a Reap removes only members that were due to be removed.
//   - A Commit of a question leaves the question in place for a day, but no node waits for its answer. A Commit of an
//     answer has no effect if the question is gone, and does not replace a newer answer.
//   - A Commit with any other condition may take effect late. The verb that caused it has returned
//     durable.ErrUnavailable, which covers this case.
//
// The methods may be called concurrently by any number of goroutines in any number of processes. A method that returns
// an error may still have taken effect, because the response may have been lost. If the member is gone, a method has no
// effect and returns an error that wraps ErrMemberGone. The caller treats every other error as temporary. An engine
// does not retain byte slices from its arguments after a call returns. The caller may retain and modify byte slices in
// results.
type Engine interface {
	// Commit applies the writes of each batch atomically. It returns one result per batch, in order. Batches are
	// independent: an unmet condition in one batch does not affect the others. A batch contains either tasks or notes,
	// not both. Each key occurs at most once in a call. An empty batch succeeds.
	//
	// by is the member that is to hold the tasks written with Hold, or 0. If that member is gone or its lease has
	// expired, the tasks are still written, but they are free.
	//
	// A batch may need a row that another transaction has locked. A call with several batches waits only a few
	// milliseconds for the lock, then skips the batch and sets Busy in its result. A call with a single batch waits
	// until ctx is done. A caller that does not want to wait adds an empty batch.
	//
	// If the engine's clock is more than MaxStale past the Now of a write when the call arrives, Commit does not apply
	// its batch, and sets Late in the batch's result. The writer's machine may have been suspended since it computed the
	// times in the record. Commit may treat the other batches of the call in the same way.
	//
	// If a batch is larger than the engine allows, Commit applies no batch and returns an error that wraps ErrTooLarge.
	Commit(ctx context.Context, by MemberID, batches []Batch) ([]Result, error)

	// Get returns the last committed state of the tasks with these keys, each once, in any order. Keys without a task
	// are omitted.
	Get(ctx context.Context, keys ...string) ([]Stored, error)

	// Walk iterates over the tasks or notes in the range, in the range's order. An error ends the iteration. Walk
	// yields every task or note that exists, unchanged, throughout the iteration. It may or may not yield one that is
	// added, changed or removed during the iteration. Each is yielded in the state that was last committed when the
	// iteration began, or in a later one.
	Walk(ctx context.Context, over Range) iter.Seq2[Stored, error]

	// Claim assigns free tasks of the given kinds to the member. It skips tasks that another transaction has locked. A
	// member whose lease has expired gets no tasks. The cost of a claim does not depend on the number of tasks of other
	// kinds.
	Claim(ctx context.Context, r ClaimRequest) (Claims, error)

	// Confirm starts runs. For each claim, it reports whether the run may start: the member must still hold the task at
	// that revision, its lease must not have expired, and no transaction may have locked the task. Confirm sets
	// Stored.Starts to Claim.Starts + 1, so that a task that crashes its process is not retried forever. A claim that
	// is confirmed twice, because a response was lost or late, counts as one start. Confirm also sets Stored.Started.
	// Only these two fields change without a new revision, and only they, with [Result].Wait, may be lost when the engine
	// crashes. The Engine of an [Exclusive] KV loses them with its process, but not for tasks that the process has found
	// overdue: if it crashes because of a task, the task is overdue for the next process, and its starts are counted from
	// then on.
	//
	// A run begins within the given time of its confirmation, or not at all. Until that time is over, no one but the
	// member changes the task, see [Result].Wait. A second confirmation with a shorter time does not end the first one's.
	//
	// Once RemoveTask has returned on any node, no later Confirm of that task succeeds.
	Confirm(ctx context.Context, by MemberID, claims []Claim, within time.Duration) (held []bool, now int64, err error)

	// Release frees the tasks that the member still holds at those revisions and whose Stored.Starts equals
	// Claim.Starts. A late Release therefore does not free a task whose start was confirmed in the meantime. Release
	// does not wait for a user's transaction. Tasks that such a transaction has locked remain held, and a walk in the
	// order Held still yields them.
	Release(ctx context.Context, by MemberID, claims []Claim) error

	// Join adds a member with a lease of the given length, starting now. The name is only for display. now is the
	// engine's time.
	Join(ctx context.Context, name string, lease time.Duration) (id MemberID, now int64, err error)

	// Renew extends the member's lease, so that it expires one lease length after now, the engine's time. It returns
	// that time and the members, in any order. A member whose lease has expired is included until it is reaped. Renew
	// reads the members after it has committed the renewal, so if two members renew at the same time, at least one of
	// them sees the other's report.
	//
	// report is the member's report about itself, at most MaxReport bytes long. The engine keeps the member's greatest
	// report in the order of [bytes.Compare]. Each report begins with a counter, so a late Renew does not replace a
	// newer report.
	//
	// If by is 0, Renew writes nothing and only returns the members and the time.
	Renew(ctx context.Context, by MemberID, report []byte) (members []Membership, now int64, err error)

	// Leave removes the member and frees its tasks. It returns nil if the member is already gone. Neither Leave nor
	// Reap waits for a user's transaction. Tasks that such a transaction has locked are freed by a later Reap.
	Leave(ctx context.Context, by MemberID) error

	// Reap removes the members whose leases have expired, as Leave does, and returns their names. It reaps a member
	// only if the engine has been up for longer than that member's lease, because leases cannot be renewed during an
	// outage. If the engine's clock was ahead when a lease was last renewed, the lease expires one lease after a Reap.
	Reap(ctx context.Context) (names []string, err error)
}

// A Counter is an [Engine] that can count its tasks faster than by walking over all of them.
type Counter interface {
	// Count returns the task counts of each kind, in any order. It may take seconds. A task is parked if its due time
	// is ParkedDue, and paused if its due time is PausedDue. A paused task does not count as failing, even if it was
	// written with Failing.
	Count(ctx context.Context) ([]KindCount, error)
}

// Count returns the task counts of each kind, in any order. It uses the engine's own Count if the engine is a
// [Counter], and otherwise walks over the tasks.
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

// A Range selects the tasks or notes that [Engine].Walk yields.
type Range struct {
	Order Order
	After Position // ByDue: only tasks after this position
	Until int64    // ByDue: only tasks due at or before this time
	From  string   // ByKey, Failing, Notes: only keys or names not less than this one
	To    string   // Notes: only names less than this one, unless it is empty
	Bare  bool     // Notes: without Data
	By    MemberID // Held: the member; if it is gone, the walk ends with ErrMemberGone
}

// An Order specifies what a walk yields, and in which order.
type Order uint8

// The orders of a walk.
const (
	ByDue   Order = iota // tasks by due time and key
	ByKey                // tasks by key
	Failing              // tasks written with Failing, by key; the cost does not depend on the number of other tasks
	Held                 // tasks that the member holds, in any order
	Notes                // notes by name
)

// A ClaimRequest selects the free tasks that a member claims.
type ClaimRequest struct {
	By    MemberID
	Kinds []string
	After int64 // only tasks due after this time
	Until int64 // only tasks due at or before this time
	Most  int   // maximum number of tasks; the earliest are claimed first

	// Readable is the latest record version that the member can read. The version is the first byte of Data. Records
	// with later versions are skipped.
	Readable byte

	// If Fair is set, groups take turns and After is ignored. The claim visits the groups after Group in order of their
	// names; tasks without a group form the last group. It claims the earliest task of each group, up to Most tasks in
	// total. A claim that covers all groups, from the beginning (an empty Group) to the end, claims about the same
	// number of tasks from each group that has enough. A claim may stop after a thousand groups.
	Fair  bool
	Group string
}

// Claims is the result of a call to [Engine].Claim.
type Claims struct {
	Tasks []Stored
	Next  string // for a fair claim, the last group visited; empty if it was the last of all
	Now   int64  // the engine's time
}

// A HealthReporter is an [Engine] that reports its [Health], which package metrics exports.
type HealthReporter interface {
	Health(ctx context.Context) (Health, error)
}

// Health describes conditions that may slow an engine down, and the failures that an acknowledged task survives. A copy
// in a standby's memory counts as a replica. If the database role may not read the state of the standbys, every
// connected standby counts, even an asynchronous one.
type Health struct {
	OldestTransaction time.Duration // age of the oldest transaction that holds back vacuum; 0 if no transaction does
	DeadRows          int64         // estimated number of dead task rows waiting for vacuum
	NoVacuum          string        // where autovacuum is off, for instance "on this server"; empty if it is on or unknown
	Size              int64         // size of the tasks and their indexes, in bytes
	Unflushed         bool          // a server crash may lose acknowledged tasks
	Replicated        bool          // acknowledged tasks survive the loss of the server's machine
	Standbys          int           // connected standbys that the server waits for before it acknowledges a commit
	Refused           uint64        // connections that this process refused, to former primaries or other clusters
	Unheard           string        // why a node of this process hears no signals, see [Listener]; empty if all hear them
}

// A KindCount holds the task counts of one kind. Kind is as in [Stored].
type KindCount struct {
	Kind    string
	Tasks   int // all tasks of the kind
	Failing int // tasks written with Failing that are not paused
	Parked  int
	Paused  int
}

// A MemberID identifies a member of an engine. It is never reused, even after the engine's data was restored from an
// older backup. 0 means no member.
type MemberID int64

// NewMemberID returns a new ID for a member that joins at the given engine time. A member that joins a second later has
// a greater ID, because nodes divide limits in the order of their IDs. The 31 low bits are random, so that an engine
// that has lost its last members gives none of their IDs again.
func NewMemberID(now int64) MemberID {
	second := max(now, 0) / int64(time.Second) % (1 << 32)
	return MemberID(second<<31 | rand.Int64N(1<<31-1) + 1)
}

// A Stored is a task or note stored in an engine. A note has only a Key (its name), Data and a Revision.
type Stored struct {
	Record
	Kind     string   // the kind for claims: the task's kind plus its payload version if that is 2 or more
	Group    string   // the task's group, or empty
	Revision int64    // the revision of this state
	Owner    MemberID // the member that holds the task, or 0
	Starts   int      // number of starts confirmed since the record was written
	Started  int64    // time of the last confirmed start, by the engine's clock; 0 if there was none or it is unknown
}

// A Membership describes a member.
type Membership struct {
	ID     MemberID
	Name   string
	Lease  time.Duration // length of the lease
	Left   time.Duration // time until the lease expires, by the engine's clock; negative once expired
	Report []byte        // the greatest report that the member has passed to Renew
}

// MaxReport is the maximum size of a member's report, in bytes.
const MaxReport = 4 << 10

// Size limits for a note, in bytes.
const (
	MaxNoteName = 128
	MaxNote     = 64 << 10
)

// A Claim identifies a task that a member holds at a revision.
type Claim struct {
	Key      string
	Revision int64
	Starts   int // Stored.Starts when the task was claimed
}

// A Batch is a set of writes with different keys that is applied atomically.
type Batch []Write

// A Write puts or deletes the record with a key. For a note, Key is its name, 1 to MaxNoteName bytes long, and Data is
// at most MaxNote bytes long. Besides these, a note's write sets only Note and the condition.
type Write struct {
	Record        // Due and Data are the new values; nil Data deletes the record
	Kind   string // the record's kind, as in Stored
	Group  string // the record's group, as in Stored
	Note   bool   // the record is a note

	If       Condition
	Revision int64 // the expected revision, for IfUnchanged and IfUnstarted
	Now      int64 // the engine's time when the write was sent, as the writer estimates it; 0 if the record depends on no time; not for notes
	Hold     bool  // the committing member holds the task after the write; if not set, the task is free
	Failing  bool  // the last attempt of the task failed

	// Begun is the revision at which the committing member holds the task and has begun its run, or will not begin it. It
	// is 0 if there is none. See [Result].Wait.
	Begun int64
}

// Holds reports whether the write's condition holds for s, the current task or note with the key. s is nil if there is
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

// A Condition specifies when a write takes effect.
type Condition uint8

const (
	IfAbsent    Condition = iota + 1 // no record with the key exists
	IfPresent                        // a record exists
	IfUnchanged                      // a record exists at Write.Revision
	Always
	IfUnstarted // a record exists at Write.Revision, and its Starts is 0; a note's Starts is always 0
)

// MaxStale is how long a write may be on its way to the engine. See [Write].Now.
const MaxStale = 250 * time.Millisecond

// IsLate reports whether a write of the batch was sent more than MaxStale before now, the engine's time.
func (b Batch) IsLate(now int64) bool {
	for _, w := range b {
		if w.Now != 0 && now-w.Now > int64(MaxStale) {
			return true
		}
	}
	return false
}

// A Result is the outcome of a batch. The batch was applied if Unmet is empty, Busy is false, and Late and Wait are 0.
type Result struct {
	Unmet   []string  // the keys whose conditions do not hold
	Busy    bool      // the batch encountered a lock; commit it again in a separate call
	Late    int64     // the engine's time if the batch came too late; see [Write].Now
	Written []Written // one element per write if the batch was applied

	// Wait is how long a run of a task that the batch changes may still begin, because its start was confirmed; see
	// [Engine].Confirm. Commit the batch again when this time is over. So no run of a former state begins after a commit,
	// also after one whose answer was lost. Wait is 0 if Write.Begun is the revision of the task, or if the engine's clock
	// was set back by more than a second since the confirmation.
	Wait time.Duration
}

// Written describes the effect of a write.
type Written struct {
	Revision int64 // revision of the record that was put
	Held     bool  // the member holds the task
	Replaced bool  // a record with the key existed before
}

// ErrCorrupt and ErrVersion report unreadable data: ErrCorrupt means that it is damaged, ErrVersion that a later
// version wrote it. Package durable exports both under the same names.
var (
	ErrCorrupt = errors.New("durable: the store is corrupt")
	ErrVersion = errors.New("durable: the store has a format of another version")
)

// ErrMemberGone is returned by an engine if the member has left or has been reaped.
var ErrMemberGone = errors.New("durable: the member is gone: its lease expired, or it left")

// ErrNotDone means that a call certainly had no effect, for instance because there was no connection. An engine's
// methods may return errors that wrap it. A node may repeat such a call, but never repeats a verb that may have taken
// effect.
var ErrNotDone = errors.New("durable: the call had no effect")
