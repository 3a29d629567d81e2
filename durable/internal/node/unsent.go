// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"errors"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// keepUnsent keeps the end of a run, which is sent again as soon as the node has its lease.
func (n *Node) keepUnsent(c *change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c.doubt = c.doubt || c.err != nil && !errors.Is(c.err, engine.ErrNotDone)
	if n.held[c.of.Rec.Key] == c.of {
		n.unsent = append(n.unsent, c)
		n.attend()
	} else {
		n.lose(c)
	}
}

// lose records that the end of a run does not count. If the answer to an earlier commit was lost, lose reads the task back,
// so that a parked task, or a run that was given up, is reported as such.
func (n *Node) lose(c *change) {
	if c.doubt && c.result.Tally.IsLast() {
		c.doubt = false
		n.writes.Aside(func() {
			if !n.hasStored(c.result.Next) {
				n.lose(c)
				return
			}
			n.accept(c.result)
		})
		return
	}
	n.count.endsRefused.Add(1)
	c.result.Settled.call(false)
}

// hasStored reports whether the task is still as it was to be stored after its last run.
func (n *Node) hasStored(next *task.Record) bool {
	ctx, cancel := context.WithTimeout(n.sends, commitTimeout)
	defer cancel()
	stored, ok, err := n.stored(ctx, next.Key)
	if err != nil || !ok {
		return false
	}
	found, err := task.Decode(stored.Record)
	return err == nil && found.Token == next.Token && found.IsParked() == next.IsParked() && found.GivenUp == next.GivenUp
}

// sendUnsent sends the unsent ends of runs, if the lease has not expired.
func (n *Node) sendUnsent() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.leasedLocked() {
		n.writes.Post(n.unsent...)
		n.unsent = nil
	}
}

// settleUnsent waits until the ends of all runs are written, the lease has expired, the node has failed, or the commits
// are taking too long.
func (n *Node) settleUnsent() {
	for {
		n.writes.Wait()
		n.mu.Lock()
		over := len(n.unsent) == 0 || !n.leasedLocked() || n.sends.Err() != nil || n.Err() != nil
		n.mu.Unlock()
		if over {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
