// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// An ownership is what a node keeps about an engine that belongs to this process alone ([engine.Owned]). Such an
// engine can fail for good, and its failure is the node's: the node then changes no task and starts no run. The node
// closes the engine when it ends. Nothing but this process can take its tasks over, so its lease has no end.
//
// A shared engine is only ever unavailable, and closed by the caller.
type ownership struct {
	owned   engine.Owned          // nil if the engine is shared
	alone   bool                  // the engine belongs to this process alone, and answers at once
	starter engine.Starter        // the engine, if it is one
	failure atomic.Pointer[error] // why the node has failed
	broken  chan struct{}         // closed when failure is set; nil if the engine is shared
}

// possess makes the node the owner of its engine if the engine belongs to this process alone.
func (n *Node) possess() {
	if n.owned, n.alone = n.engine.(engine.Owned); n.alone {
		n.broken = make(chan struct{})
		n.waker, _ = n.engine.(engine.Waker)
		n.starter, _ = n.engine.(engine.Starter)
	}
}

// Err returns the error that made the node fail, or nil.
func (o *ownership) Err() error {
	if err := o.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Failing returns a channel that is closed when the node fails, or nil if the engine is shared.
func (o *ownership) Failing() <-chan struct{} { return o.broken }

// Owned returns the engine if it belongs to this process alone, and nil otherwise.
func (n *Node) Owned() engine.Owned { return n.owned }

// watchFailure fails the node when its engine fails while no call is able to say so.
func (n *Node) watchFailure() {
	if !n.alone {
		return
	}
	n.helper.Go(func() {
		select {
		case <-n.owned.Failed():
			n.fail(n.owned.Err())
		case <-n.life.Done():
		}
	})
}

// fail fails the node, and returns the error for callers. Any goroutine may call it, except with n.mu held.
func (n *Node) fail(err error) error {
	err = fmt.Errorf("%w: %w", ErrBroken, err)
	if !n.failure.CompareAndSwap(nil, &err) {
		return n.Err()
	}
	close(n.broken)
	n.backlog.Stop()
	n.report.note(func(n *notices) { n.failure = err })
	go n.wheel.Stop() // in its own goroutine, because Stop calls the logger
	return err
}

// brokenBy returns why the node has failed, or nil. An error of its own engine that means damage fails the node.
func (n *Node) brokenBy(err error) error {
	if !n.alone {
		return nil
	}
	select {
	case <-n.owned.Failed():
		return n.fail(n.owned.Err())
	default:
	}
	if errors.Is(err, ErrCorrupt) {
		return n.fail(err)
	}
	return n.Err()
}

// breaks fails the node if its own engine has failed a call of the node itself. A call that had no effect, or was given
// up, breaks nothing. It reports whether the node has failed.
func (n *Node) breaks(err error) bool {
	switch {
	case !n.alone:
		return false
	case n.brokenBy(err) != nil:
		return true
	case errors.Is(err, engine.ErrNotDone), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	}
	return n.fail(err) != nil
}

// enter begins a verb, which n.verbs.Leave ends. It returns why no verb may begin.
func (n *Node) enter() error {
	if !n.verbs.Enter() {
		return ErrStopped
	}
	if err := n.Err(); err != nil {
		n.verbs.Leave()
		return err
	}
	return nil
}

// Release closes the engine if it belongs to this process alone.
func (n *Node) Release() error {
	if n.alone {
		return n.owned.Close()
	}
	return nil
}
