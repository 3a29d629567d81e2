// SPDX-License-Identifier: MIT

package node

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/task"
	"github.com/seed581295f1/timewheel/timewheel"
)

// A live represents a task that is in the wheel, in the backlog or running. The node owns every field but the atomic ones.
type live struct {
	limit.Task
	by        *Node
	state     atomic.Uint32 // leaves waits by compare-and-swap, so that either a run or a removal wins
	ran       atomic.Bool   // the handler was called; the worker sets it after Began of the run
	limited   bool          // the kind had a limit when the task was placed
	overdue   bool          // the task went to the backlog instead of the wheel
	cancelled bool          // the run is cancelled as soon as it begins; see handlings
	asked     atomic.Bool   // the engine was asked to confirm the start, and may have counted it
	begins    atomic.Int64  // the node's own time until which the run may begin; 0 before a confirmation, -1 if withdrawn
	claim     claim
	end       *change // the end of the run while it is being written
}

func newLive(rec *task.Record, by *Node) *live {
	l := &live{by: by}
	l.Task = limit.Task{Rec: rec, Runner: l}
	return l
}

// Waits reports whether the task is still waiting: its run has not begun, and the task has not been removed, replaced
// or moved.
func (l *live) Waits() bool { return l.state.Load() == waits }

// Run runs the task and reports whether its handler was called.
func (l *live) Run() (called bool) {
	l.by.runTask(l)
	return l.ran.Load()
}

// withdraw makes a start void that the engine was asked to confirm ahead, and reports whether it did. The run then does not begin
// in this state of the task, because a change of the task may say so to the engine, and be late.
func (l *live) withdraw() bool {
	if !l.asked.Load() || !l.Waits() {
		return false
	}
	l.begins.Store(-1)
	return l.Waits() // if not, a worker may have read begins before
}

const (
	waits uint32 = iota // the task waits until it is due, or for a worker
	begun               // the run has begun
	gone                // the task was removed, replaced or moved before its run began
)

// jobOf returns the job that the wheel runs when the task is due.
func jobOf(l *live, b *limit.Backlog) timewheel.Job {
	return func(*timewheel.Task) { b.Do(&l.Task) }
}

// heldLocked returns the held tasks that satisfy the predicate.
func (n *Node) heldLocked(is func(l *live) bool) (some []*live) {
	for _, l := range n.held {
		if is(l) {
			some = append(some, l)
		}
	}
	return some
}

// giveUp releases the given tasks that are still waiting. If the engine may have counted the start of a task, giveUp
// writes the task's record, so that the start does not count as an attempt.
func (n *Node) giveUp(t *term, some []*live) {
	var claims []engine.Claim
	n.mu.Lock()
	for _, l := range some {
		switch {
		case n.term != t || !n.withdrawLocked(l, begun):
		case l.asked.Load():
			n.writes.Aside(func() { n.takeBack(l) })
		default:
			n.dropLocked(l)
			claims = append(claims, l.toRelease())
		}
	}
	n.mu.Unlock()
	n.giveBack(t, claims)
}

// toRelease returns the claim to pass to the engine's Release method.
func (l *live) toRelease() engine.Claim {
	return engine.Claim{Key: l.Rec.Key, Revision: l.claim.revision, Starts: l.claim.starts}
}

// giveBack releases claims whose tasks are not in memory.
func (n *Node) giveBack(t *term, claims []engine.Claim) {
	if len(claims) == 0 {
		return
	}
	ctx, cancel := n.callContext()
	defer cancel()
	if err := n.engine.Release(ctx, t.id, claims); err != nil {
		n.failed(t, err)
		return
	}
	if n.alone {
		return
	}
	n.mu.Lock()
	n.doubt = true // the member still holds tasks that a user's transaction has locked
	n.mu.Unlock()
	n.attend()
}

// placeLocked puts a claimed task in memory, unless a later claim of the same task is already there.
func (n *Node) placeLocked(rec *task.Record, c claim, overdue bool) {
	if n.term != c.term {
		return
	}
	if old := n.held[rec.Key]; old != nil {
		if old.claim.revision >= c.revision {
			return
		}
		n.dropLocked(old)
	}
	l := newLive(rec, n)
	l.overdue, l.claim = overdue, c
	n.held[rec.Key] = l
	if of := n.kinds.Limiter(rec); of != nil {
		l.limited = true
		of.Hold(&l.Task)
	} else {
		n.tasks, n.bytes = n.tasks+1, n.bytes+rec.Size()
	}
	if overdue {
		n.backlog.Add(&l.Task)
		call(n.hire)
		return
	}
	n.awaitLocked(l, 0)
	n.foreseeLocked(l)
}

// awaitLocked puts the live in the wheel until it is due, or for the given minimum delay if that is longer.
func (n *Node) awaitLocked(l *live, least time.Duration) {
	d := max(time.Duration(l.Rec.Due-n.clock.Earliest(n.own())), least, 1)
	// SetTask fails only if the wheel has stopped. In that case nothing runs here, and other nodes take over.
	_ = n.wheel.SetTask(&timewheel.Task{Key: l.Rec.Key, Interval: d, Job: jobOf(l, n.backlog)})
}

// dropLocked removes the live from memory. If its run has begun, the run continues.
func (n *Node) dropLocked(l *live) {
	if n.held[l.Rec.Key] != l {
		return
	}
	n.forgetLocked(l)
	if delete(n.held, l.Rec.Key); !l.limited {
		n.tasks, n.bytes = n.tasks-1, n.bytes-l.Rec.Size()
	}
	n.withdrawLocked(l, gone)
}

// withdrawLocked removes a waiting live from the wheel or the backlog, and sets its state. It reports whether the live
// was still waiting.
func (n *Node) withdrawLocked(l *live, state uint32) bool {
	if !l.state.CompareAndSwap(waits, state) {
		return false
	}
	if of := n.kinds.Limiter(l.Rec); of != nil {
		of.Remove(&l.Task)
	}
	if l.overdue {
		n.backlog.Remove(&l.Task)
	} else {
		_ = n.wheel.RemoveTask(l.Rec.Key) // fails if the task was just dispatched; its run then does nothing
	}
	return true
}

func (n *Node) drop(l *live) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropLocked(l)
}

// keepsLocked reports whether the node keeps a task that repeats. A node that holds more tasks than the average keeps only
// that many of them, chosen at random, so that others can claim the rest.
func (n *Node) keepsLocked() bool {
	return len(n.held) <= n.fair || rand.IntN(len(n.held)) < n.fair
}

// hold requests that the node hold the change's tasks that are due soon and have a handler on this node. It leaves tasks
// of a kind with a limit to the engine if there is no room for them, or earlier ones may be there. A task that is due
// before one that the limiter holds needs no room: it takes that one's place at the next claim.
func (n *Node) hold(c *change) {
	ahead := lookAhead
	if c.of != nil {
		ahead = keepAhead
	}
	now := n.clock.Earliest(n.own())
	soon := now + int64(ahead)
	if !slices.ContainsFunc(c.recs, func(rec *task.Record) bool { return rec != nil && rec.Due <= soon }) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.claimsLocked() {
		return
	}
	if c.of != nil && !n.keepsLocked() {
		soon -= int64(keepAhead - 2*claimEvery) // other nodes claim it, unless it is due before they can
	}
	for i, rec := range c.recs {
		if rec == nil || rec.Due > soon {
			continue
		}
		of := n.kinds.Of(rec)
		if of == nil {
			continue
		}
		room := n.roomLocked() > 0
		if of.Limiter != nil {
			free, _ := of.Limiter.Room()
			fits := of.Limiter.Takes(rec.Due, now) || !of.crowded.Load() && free > 0
			room = room && fits && len(c.recs) == 1 // there may not be room for several tasks
			of.crowded.CompareAndSwap(false, !room)
		}
		c.batch[i].Hold = room
	}
}
