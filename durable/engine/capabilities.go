// SPDX-License-Identifier: MIT

package engine

import (
	"context"
	"io"
	"time"
)

// A Clock is a [KV] that has its own clock, shared by all callers. An Engine on such a KV uses that clock to decide
// which tasks are due and which leases have expired. On a KV without a clock, each process uses its own clock.
// Then [Result].Wait is right only if these agree.
type Clock interface {
	// Now returns the current time, and the time since which the KV has been available without interruption. Both are
	// in nanoseconds since 1970. up is 0 if unknown.
	Now(ctx context.Context) (now, up int64, err error)
}

// A Watcher is a [KV] that reports changes. Callers of any other KV must poll.
type Watcher interface {
	// Watch returns a channel that delivers a value after an entry whose key has the prefix is put or deleted. Several
	// changes may be combined into one value. The channel is closed when ctx is done or the watch fails. Changes made
	// before Watch returns may be missed.
	Watch(ctx context.Context, prefix string) (changed <-chan struct{}, err error)
}

// An Exclusive is a [KV] that only one process uses at a time, through one Engine. That Engine holds its members and
// their claims in memory. It relies on neither checks nor versions, so such a KV need not have them: it may refuse a Tx
// with checks with an error that wraps ErrNotDone, and then the versions of its entries are 0. The Engine is an [Owned].
//
// A Commit of an exclusive KV is atomic as a whole: if the process ends during the call, all of its Txs have been applied
// or none.
//
// The KV may be a [FailureReporter], an [io.Closer], a [Backuper], a [SizeReporter], a [SpaceReporter] and a [Verifier].
// The Engine fails when the KV does, and its Close closes the KV. It belongs to one scheduler, which fails when the Engine
// does, and closes it in Shutdown.
type Exclusive interface {
	// Exclusive does nothing. It marks the KV or the Engine.
	Exclusive()
}

// An Owned is an Engine on an [Exclusive] KV. Backup returns an error if the KV cannot be copied. Size and Space return 0 if
// the KV does not know them.
type Owned interface {
	Engine
	Exclusive
	FailureReporter
	Backuper
	SizeReporter
	SpaceReporter
	io.Closer

	// Len returns the number of tasks.
	Len() int

	// Counted returns the counts of each kind, in any order, of the tasks that have been read since the engine was
	// opened. It reports whether these are all tasks. It reads nothing.
	Counted() (kinds []KindCount, whole bool)
}

// A Waker is an [Owned] that wakes its only node, which then need not look for tasks again and again.
type Waker interface {
	// Wake returns the earliest due time of the free tasks of the kinds that are due after after and at or before until,
	// or None if there are none. After the call has begun, wake receives a value whenever a task of any kind becomes
	// free that is due at or before until, unless wake is full. A later call replaces an earlier one.
	Wake(ctx context.Context, kinds []string, after, until int64, wake chan<- struct{}) (due int64, err error)
}

// A Listener is a shared Engine that wakes its nodes when others have made tasks free. A node that hears its signals and has
// nothing to claim calls Look once a second, and nothing else. No promise depends on a signal: it may be lost, come late or
// early, or mean nothing.
type Listener interface {
	// Listen calls wake after a task has become free that is due within SignalAhead. freed is set if a member has left, was
	// reaped or has released tasks, which may be many. Listen calls heard with nil when it hears signals, and with the reason
	// when it does not. It returns when ctx is done, or if it can hear none.
	Listen(ctx context.Context, wake func(freed bool), heard func(error))

	// Look is [Engine].Renew with all that a node at rest asks, in one request.
	Look(ctx context.Context, by MemberID, report []byte, r LookRequest) (Looked, error)
}

// A LookRequest says what [Listener].Look reads besides the members.
type LookRequest struct {
	Notes string   // all notes from this name on
	Kinds []string // as in ClaimRequest
	Until int64    // as in ClaimRequest
}

// Looked is the result of a call to [Listener].Look. Everything in it was read after the renewal.
type Looked struct {
	Members []Membership
	Notes   []Stored // by name
	Due     bool     // free tasks of the kinds may be due at or before Until; if not set, none are
	Now     int64    // the engine's time, when the new lease began
}

// SignalAhead is how long before a free task is due a [Listener] sends a signal. It exceeds the second after which a node
// looks for tasks without one.
const SignalAhead = 2 * time.Second

// A Starter is an [Owned] that confirms most starts without a write.
type Starter interface {
	// Start is [Engine].Confirm for one claim. ok is false if the caller must use Confirm.
	Start(by MemberID, claim Claim, within time.Duration) (held bool, now int64, ok bool)
}

// A Verifier is an [Exclusive] whose Engine calls it when the tasks have been verified. Then all of them have been read,
// and they agree with the committed ones.
type Verifier interface {
	// VerifyFirst reports whether the tasks must be verified before the Engine is used.
	VerifyFirst() bool

	// Verified is called once the tasks have been verified.
	Verified()
}

// A FailureReporter is an [Exclusive] that can fail while no call is able to return the error: in the background, or while
// a call hangs. When it fails, so does its scheduler: Scheduler.Err returns the cause, waiting verbs return ErrBroken at
// once, and no further run starts.
type FailureReporter interface {
	// Failed returns a channel that is closed when it fails. Every call returns the same channel.
	Failed() <-chan struct{}

	// Err returns the cause of the failure, which wraps ErrCorrupt if data is damaged. It is called only after the
	// channel has been closed.
	Err() error
}

// A SizeReporter is an [Exclusive] that reports its size on disk, in bytes, for Stats.Disk.
type SizeReporter interface {
	Size() int64
}

// A SpaceReporter is an [Exclusive] that reports the free space available to it on its disk and the size of the disk, in
// bytes, for Stats.Disk. Both are 0 if unknown.
type SpaceReporter interface {
	Space() (free, size int64)
}

// A Backuper is an [Exclusive] that can be copied while a scheduler is using it.
type Backuper interface {
	// Backup writes a copy of the data to w, as a tar archive of a directory. The copy is a snapshot taken between two
	// commits: it includes every commit that returned before Backup was called, and never part of a commit. Commits and
	// reads may happen during the backup. If w returns an error, Backup returns that error, and the output is not a
	// valid copy.
	Backup(ctx context.Context, w io.Writer) error
}
