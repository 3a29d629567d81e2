// SPDX-License-Identifier: MIT

package node

import (
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
)

// A rest is the state of a node whose engine wakes it ([engine.Waker]). Such a node looks for tasks only when there may
// be some. The goroutine that claims owns it.
//
// When a claim has found nothing to do, the node does not rest at once, because a task may have become free that the
// claim did not look at, or has passed. It first asks to be woken, and claims once more from the beginning. If that
// finds nothing either, the node rests until the next task is almost due, or until it is woken: by the engine, or because
// the machine was suspended or its clock set forward.
type rest struct {
	waker engine.Waker // nil if the engine does not wake its node
	asked bool         // the node has asked to be woken, and has found nothing to do just before
}

// restMost is the longest rest. It bounds the tasks whose due times wake the node.
const restMost = time.Minute

// claim claims tasks, and returns how long to wait before the next call.
func (n *Node) claim() time.Duration {
	r := &n.rest
	pause := claimEvery
	if r.asked {
		pause = n.askToBeWoken()
	}
	again, whole := n.claimAll()
	if r.waker == nil || !whole || again < claimEvery || !n.CaughtUp() {
		r.asked = false
		return again
	}
	if r.asked = !r.asked; !r.asked {
		return pause
	}
	n.mu.Lock()
	n.rewindLocked()
	n.mu.Unlock()
	return limit.HireEvery
}

// askToBeWoken returns how long the node may rest if it finds nothing to do.
func (n *Node) askToBeWoken() time.Duration {
	var kinds []string
	for _, k := range n.kinds.AllLimited() {
		kinds = append(kinds, k.Policy.Classes(k.Name)...)
	}
	for name, k := range n.kinds.unlimited() {
		kinds = append(kinds, k.Policy.Classes(name)...)
	}
	ctx, cancel := n.callContext()
	defer cancel()
	now := n.Now()
	after, until := n.clock.Earliest(n.own())+int64(lookAhead), now+int64(lookAhead+restMost)
	due, err := n.waker.Wake(ctx, kinds, after, until, n.wake)
	switch {
	case err != nil:
		n.trouble(err)
		return claimEvery
	case due == engine.None:
		return restMost
	}
	return min(time.Duration(due-now)-lookAhead, restMost)
}

// wakeAfterJump wakes the node if more time has passed than the membership goroutine has waited.
func (n *Node) wakeAfterJump() {
	now := n.own()
	if n.alone && now-n.tended > int64(n.cfg.Lease/2) {
		call(n.wake)
	}
	n.tended = now
}

// needsNothing reports whether the membership goroutine has nothing to do but to keep the lease.
func (n *Node) needsNothing() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.alone && !n.away && !n.doubt && n.unsent == nil && n.own() >= n.recheck && !n.leavesLocked()
}

// attend makes the membership goroutine look at a change, if it rests; see needsNothing.
func (n *Node) attend() {
	if n.alone {
		call(n.look)
	}
}
