// SPDX-License-Identifier: MIT

package node

import (
	"fmt"
	"slices"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"
)

// errOld is the result of a change whose times have to be computed again, because the machine was suspended since they
// were computed. The change had no effect.
var errOld = fmt.Errorf("durable: the machine was suspended during the call: %w", engine.ErrNotDone)

// stamp sets the time at which the batches are sent.
func (n *Node) stamp(batches []engine.Batch) {
	now := n.Now() + n.transit.Load()
	for _, batch := range batches {
		for i := range batch {
			if batch[i].Data != nil {
				batch[i].Now = now
			}
		}
	}
}

// timely stamps the changes, and then ends those whose times are old. A suspension that is noticed only after that makes
// the stamp old too.
func (n *Node) timely(sent []*change, batches []engine.Batch) ([]*change, []engine.Batch) {
	n.stamp(batches)
	for i := 0; i < len(sent); {
		if c := sent[i]; c.asof != 0 && n.isWrong(c.asof) {
			sent, batches = slices.Delete(sent, i, i+1), slices.Delete(batches, i, i+1)
			c.end(engine.Result{}, errOld)
			continue
		}
		i++
	}
	return sent, batches
}

// isWrong reports whether a time from which a change was computed has to be computed again: the machine was suspended
// since, or its wall clock was set, and the time is, or was, too late.
func (n *Node) isWrong(asof int64) bool {
	return n.clock.IsOld(asof) || n.clock.IsUnsure() || asof > n.Now()+int64(clock.Slack)
}

// hasSlept reports whether the machine was suspended since that time of the node's own clock. A call since then did not
// take as long as it seems.
func (n *Node) hasSlept(since int64) bool { return n.clock.IsOld(n.clock.Latest(since)) }

// late learns from a batch that came too late. The next batches may be on their way for as long as this one.
func (n *Node) late(asked, now int64) {
	n.heard(asked, now)
	if !n.hasSlept(asked) {
		n.transit.Store(max(n.transit.Load(), n.own()-asked))
	}
}

// concludeAgain computes the result of a run again, and writes it.
func (n *Node) concludeAgain(c *change) {
	ctx, cancel := n.callContext()
	defer cancel()
	now, err := n.sureNow(ctx)
	if err != nil {
		n.keepUnsent(c)
		return
	}
	r := c.result
	r.asof, r.Next = now, r.at(now)
	n.conclude(c.of, r, c.completed)
}
