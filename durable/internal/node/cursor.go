// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A cursor records how far overdue tasks have been claimed. The next claim continues from there, because the engine may
// have to skip many tasks before that position: deleted tasks, and tasks of kinds that are paused or have no handler
// here. Every scanEvery, or less often if such claims are slow, a claim starts from the beginning to find tasks that
// appeared behind the cursor.
type cursor struct {
	at    int64 // due time reached; None requests a claim from the beginning at once
	since int64 // when a claim last started from the beginning, by the node's own clock
	took  int64 // how long the last claim from the beginning took
	scan  int64 // how long such a claim takes: the shorter of the last two times, since a single answer may have hung
	quiet int64 // until this time, only claims from the beginning are made, because the last claim found everything
}

const (
	// beginning is the cursor's position during a claim from the beginning. The position None requests such a claim at
	// once.
	beginning = engine.None + 1

	// Claims from the beginning start at least scanEvery apart, and take at most 1/scanShare of the time.
	scanEvery = 250 * time.Millisecond
	scanShare = 10
)

// from returns the due time after which the next claim starts.
func (n *Node) from(c *cursor) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := n.own(); c.at == engine.None || now-c.since >= max(int64(scanEvery), scanShare*c.scan) {
		c.at, c.since = beginning, now
	}
	return c.at
}

// isAtEnd reports whether one claim can find both the tasks that are due soon and the overdue tasks. That is the case
// if few tasks are overdue, a claim from the beginning is quick, and no such claim is in progress.
func (n *Node) isAtEnd() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := &n.overdue
	return n.backlog.Len() == 0 && len(n.full) == 0 && c.at > beginning && c.quiet != 0 && scanShare*c.scan <= int64(scanEvery)
}

// to updates the cursor after a claim. ok is false if the claim got no answer, for example because it had too many rows
// to skip.
func (n *Node) to(c *cursor, after int64, got []engine.Stored, ok bool, most int, over int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if after == beginning {
		took := n.own() - c.since
		c.scan, c.took = min(took, c.took), took
	}
	if c.at != after || !ok && after != beginning {
		return // a claim from the beginning was requested, or this claim must be repeated
	}
	if c.at, c.quiet = over, 0; len(got) == most {
		c.at = min(over, got[most-1].Due-1) // there may be more with that due time
	} else {
		c.quiet = n.own() + int64(scanEvery) // the claim found everything
	}
}

// claimFrom claims overdue tasks, starting at a cursor, and reports whether it got as many as it may. The claim is
// cancelled when the lease expires or the node leaves.
func (n *Node) claimFrom(c *cursor, t *term, kinds []string, most int) (full bool) {
	if len(kinds) == 0 {
		return false
	}
	after, until := n.from(c), n.OverdueUntil()
	n.mu.Lock()
	lease, quiet := t.ctx, n.own() < c.quiet
	n.mu.Unlock()
	if after >= until || after != beginning && quiet {
		return false
	}
	ctx, cancel := context.WithTimeout(lease, claimTimeout)
	defer cancel()
	got, ok := n.claimed(ctx, t, engine.ClaimRequest{Kinds: kinds, After: after, Until: until, Most: most}, until)
	n.to(c, after, got.Tasks, ok, most, until)
	return len(got.Tasks) == most
}

// CaughtUp reports whether the node's last claims have found all free overdue tasks, and none of them waits here. The
// other nodes may still hold some.
func (n *Node) CaughtUp() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	more := (n.overdue.quiet == 0 || n.slow.quiet == 0) && len(n.kinds.unlimited()) > 0
	paused := n.kinds.Pauses()
	for _, k := range n.kinds.AllLimited() {
		more = more || k.claimed.quiet == 0 && !paused.Has(k.Name)
	}
	return !more && n.backlog.Len() == 0 && len(n.full) == 0
}

// rewindLocked makes the next claim of overdue tasks start from the beginning.
func (n *Node) rewindLocked() {
	n.overdue.at, n.slow.at = engine.None, engine.None
	for _, k := range n.kinds.AllLimited() {
		k.claimed.at = engine.None
	}
}

// returnedLocked is rewindLocked after many tasks may have become free. The groups of kinds with a limit take turns.
func (n *Node) returnedLocked() {
	n.rewindLocked()
	for _, k := range n.kinds.AllLimited() {
		k.crowded.Store(true)
	}
}
