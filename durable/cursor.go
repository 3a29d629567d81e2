// SPDX-License-Identifier: MIT

package durable

import (
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A cursor says how far overdue tasks have been claimed. They are claimed from there, and not from the beginning, where
// an engine may have to pass over deleted tasks, and over kinds that are paused or have no handler here. Each scanEvery,
// or less often if that takes long, it is from the beginning, to find what was committed or given back late.
type cursor struct {
	at    int64 // up to which due time; None to begin at once
	since int64 // when it was at the beginning, by the node's own time
	scan  int64 // how long it took to claim from there
	quiet int64 // until then it is claimed from the beginning only: that was all
}

const (
	// beginning is the cursor while a claim from the beginning is made. It is None if such a claim is wanted at once.
	beginning = engine.None + 1

	// scanShare bounds what claims from the beginning take: one part of the time in this many.
	scanEvery = 250 * time.Millisecond
	scanShare = 10
)

// from returns after which due time to claim.
func (n *node) from(c *cursor) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := n.own(); c.at == engine.None || now-c.since >= max(int64(scanEvery), scanShare*c.scan) {
		c.at, c.since = beginning, now
	}
	return c.at
}

// isAtEnd reports whether hardly anything is overdue, and a claim from the beginning takes little and is not being made: the
// claim of what is due soon then finds what is overdue as well.
func (n *node) isAtEnd() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := &n.overdue
	return n.backlog.Len() == 0 && len(n.full) == 0 && c.at > beginning && c.quiet != 0 && scanShare*c.scan <= int64(scanEvery)
}

// to notes what a claim has given, or that the engine has not answered to one that has too much to pass over.
func (n *node) to(c *cursor, after int64, got []engine.Stored, ok bool, most int, over int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if after == beginning {
		c.scan = n.own() - c.since
	}
	if c.at != after || !ok && after != beginning {
		return // another is wanted from the beginning, or the same again
	}
	c.at, c.quiet = over, n.own()+int64(scanEvery) // that was all
	if len(got) == most {
		c.at, c.quiet = min(over, got[most-1].Due-1), 0 // there may be more of that time
	}
}

// rewindLocked has everything overdue claimed from the beginning.
func (n *node) rewindLocked() {
	n.overdue.at, n.slow.at = engine.None, engine.None
	for _, k := range n.kinds.allLimited() {
		k.claimed.at = engine.None
	}
}
