// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"errors"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/need"
)

// outageAfter is how long a need of the node must not be met, in addition to the time that an answer takes, before that
// counts as an outage. One call may fail while others are answered.
const outageAfter = 500 * time.Millisecond

// outageLocked returns how long a need of the node must not be met until that counts as an outage.
func (n *Node) outageLocked() time.Duration {
	return outageAfter + n.renewing.allow(outageAfter, n.cfg.Lease)
}

// awayLocked returns how long one of the node's needs has not been met for, and why, if that counts as an outage.
// Otherwise the error is nil.
func (n *Node) awayLocked() (since time.Duration, err error) {
	if n.life.Err() != nil {
		return 0, nil
	}
	limit := n.outageLocked()
	return n.count.needs.Unmet(n.own(), func(what need.Need) time.Duration {
		if what == need.Settings { // a node that knows them starts runs
			return max(limit, settingsFor)
		}
		return limit
	})
}

// silent records an outage if the node is away.
func (n *Node) silent() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silence = nil
	if _, why := n.awayLocked(); why != nil {
		n.outage = true
		n.report.note(func(n *notices) { n.away = why })
	}
}

// submit commits the batches. A single one may wait for another transaction's lock, so it does not tell whether the engine
// takes commits.
func (n *Node) submit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	if len(batches) == 1 {
		return n.engine.Commit(ctx, by, batches)
	}
	n.count.needs.Asked(need.Commits, n.own())
	results, err := n.engine.Commit(ctx, by, batches)
	switch {
	case errors.Is(err, engine.ErrTooLarge):
		n.count.needs.Answered(need.Commits, n.own(), nil)
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		n.count.needs.Answered(need.Commits, n.own(), ctx.Err())
	default:
		n.count.needs.Answered(need.Commits, n.own(), err)
	}
	return results, err
}
