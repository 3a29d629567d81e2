// SPDX-License-Identifier: MIT

package durable

import (
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A cursor says how far overdue tasks have been claimed. Claims continue there, because an engine may have to pass over
// many tasks before it: deleted ones, and those of kinds that are paused or have no handler here. Every scanEvery, or
// less often if that takes long, a claim starts from the beginning, to find late tasks.
type cursor struct {
	at    int64 // the due time reached; None to start from the beginning at once
	since int64 // when it was last at the beginning, by the node's own clock
	scan  int64 // how long the claim from the beginning took
	quiet int64 // until then claims start from the beginning only: the last one found everything
}

const (
	// beginning is the cursor during a claim from the beginning. The value None requests such a claim immediately.
	beginning = engine.None + 1

	// scanShare bounds the time of claims from the beginning: one part in scanShare.
	scanEvery = 250 * time.Millisecond
	scanShare = 10
)

// from returns the due time after which to claim.
func (n *node) from(c *cursor) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := n.own(); c.at == engine.None || now-c.since >= max(int64(scanEvery), scanShare*c.scan) {
		c.at, c.since = beginning, now
	}
	return c.at
}

// isAtEnd reports whether one claim can find both the tasks that are due soon and the overdue ones: few are overdue, a
// claim from the beginning is quick, and none is in progress.
func (n *node) isAtEnd() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := &n.overdue
	return n.backlog.Len() == 0 && len(n.full) == 0 && c.at > beginning && c.quiet != 0 && scanShare*c.scan <= int64(scanEvery)
}

// to notes the result of a claim, or that a claim with too many rows to pass over got no answer.
func (n *node) to(c *cursor, after int64, got []engine.Stored, ok bool, most int, over int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if after == beginning {
		c.scan = n.own() - c.since
	}
	if c.at != after || !ok && after != beginning {
		return // a claim from the beginning was requested, or this one is to be repeated
	}
	c.at, c.quiet = over, n.own()+int64(scanEvery) // it found everything
	if len(got) == most {
		c.at, c.quiet = min(over, got[most-1].Due-1), 0 // there may be more with that due time
	}
}

// rewindLocked makes the next claim of overdue tasks start from the beginning.
func (n *node) rewindLocked() {
	n.overdue.at, n.slow.at = engine.None, engine.None
	for _, k := range n.kinds.allLimited() {
		k.claimed.at = engine.None
	}
}
