// SPDX-License-Identifier: MIT

package node

import (
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
)

// divideLocked sets this node's shares of the cluster limits. It divides each limit by the number of members that
// handle the kind. members is the result of the renewal that delivered this node's report. answered is when that result
// arrived, by this node's clock.
//
// Each node divides by the number of members that it sees. The shares are correct as long as all nodes with a share see
// each other. A node reads the members at each renewal, and its lease counts from before that renewal, so any node that
// starts a run has read the members within its lease. A node takes a share once its own report is as old as the longest
// lease. If it sees no other node, it takes a share at once, because any node that reads the members later sees this
// node. The node keeps its share for the rest of its term.
func (n *Node) divideLocked(limited []*Kind, members []engine.Membership, reports []Report, answered int64) {
	if limited == nil {
		return
	}
	var longest time.Duration
	for _, m := range members {
		longest = max(longest, m.Lease)
	}
	longest += longest / clock.DriftOf
	for _, k := range limited {
		if k.reported == 0 {
			k.reported = answered
		}
		p := limit.Part{Nodes: 1}
		for i, m := range members {
			if m.ID == n.term.id || !reports[i].has(k.Name) {
				continue
			}
			if p.Nodes++; m.ID < n.term.id {
				p.Rank++
			}
		}
		if p.Nodes == 1 || k.Limiter.HasPart() || answered-k.reported > int64(longest) {
			if k.Limiter.SetPart(p) {
				call(n.wake)
			}
		}
	}
}

// undivide gives up the node's shares of the cluster limits, if it is still drained. It is called before the report is
// sent, because the report may take effect even if its answer is lost.
func (n *Node) undivide() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.drained {
		n.undivideLocked()
	}
	return n.drained
}

// undivideLocked gives up the node's shares of the cluster limits.
func (n *Node) undivideLocked() {
	for _, k := range n.kinds.shared() {
		k.reported = 0
		k.Limiter.SetPart(limit.Part{})
	}
}
