// SPDX-License-Identifier: MIT

// Package crew is for running items on a bounded number of goroutines. It has a queue from which an item can be
// withdrawn, and the rule for how many workers there are. Package pool queues functions, and the dispatcher of
// package timewheel queues due runs.
//
// # The rule
//
// While items wait, some workers are about to start: as many as there are waiting items, but at most
// [Starters], and no more than there is room for. A worker that starts takes an item, and the next worker is
// called. So short items are all done by the few workers that get a processor. With items that block, the crew
// grows as fast as processors come free. A worker that has ended an item takes the next one itself.
//
// Both types are passive: they have no lock and no goroutine of their own. Their owner guards them with its
// lock and calls their methods.
package crew

import (
	"time"

	"github.com/panjf2000/ants/v2"
)

const (
	// Starters is how many workers may be about to start. One would do; with two, items that block get more
	// workers sooner. (With four a burst of short items had more workers than processors, and took longer.)
	Starters = 2

	// rest is how long a crew without work keeps its goroutines. They are not kept for longer because ants
	// wakes up twice a second to keep the time, which an idle program should not have to pay for.
	rest = time.Second
)

// A Crew is the workers: a bounded number of goroutines of ants.
//
// The ants pool has no limit of its own: the bound is kept here, under the owner's lock. ants counts a worker
// until it has returned to the pool, a moment after its last item has ended. With a limit it would refuse a
// worker for which there is room.
type Crew struct {
	size     int
	work     func() // the life of a worker
	lock     func() // locks the owner's lock
	unlock   func()
	ants     *ants.Pool  // nil while there is no goroutine
	idle     *time.Timer // releases the goroutines; nil until the crew is first at rest
	starting int         // workers called that have not begun
	workers  int         // workers that have begun and not ended
	closed   bool
}

// New returns a crew of at most size workers. Each is a call of work on its own goroutine.
func New(size int, work, lock, unlock func()) Crew {
	return Crew{size: size, work: work, lock: lock, unlock: unlock}
}

// Call calls a worker if more items wait than workers were called, and there is room.
func (c *Crew) Call(waiting int) {
	if waiting <= c.starting || c.starting >= Starters || c.workers+c.starting >= c.size {
		return
	}
	c.starting++
	if c.ants == nil {
		// NewPool cannot fail for a pool without a limit and without options.
		c.ants, _ = ants.NewPool(-1)
	}
	if err := c.ants.Submit(c.work); err != nil {
		go c.work() // ants refuses when it is full or closed, and this one is neither
	}
}

// Starting returns the number of workers that have been called but have not begun.
func (c *Crew) Starting() int { return c.starting }

// Begin notes that a worker begins.
func (c *Crew) Begin() {
	c.starting--
	c.workers++
}

// End notes that a worker ends, while that many items wait. A worker whose item ends the goroutine must call it as
// well. Another worker takes its place.
func (c *Crew) End(waiting int) {
	c.workers--
	c.Call(waiting)
	c.rest()
}

// Close makes the goroutines end as soon as no worker needs one.
func (c *Crew) Close() {
	c.closed = true
	c.rest()
}

// rest releases the goroutines if there is no worker: after a while if more work may come, at once if not.
func (c *Crew) rest() {
	switch {
	case c.workers+c.starting > 0:
	case c.closed:
		if c.idle != nil {
			c.idle.Stop()
		}
		c.release()
	case c.idle == nil:
		c.idle = time.AfterFunc(rest, c.rested)
	default:
		c.idle.Reset(rest)
	}
}

// rested releases the goroutines, unless there is work again.
func (c *Crew) rested() {
	c.lock()
	defer c.unlock()
	if c.workers+c.starting == 0 {
		c.release()
	}
}

func (c *Crew) release() {
	if c.ants != nil {
		c.ants.Release()
		c.ants = nil
	}
}
