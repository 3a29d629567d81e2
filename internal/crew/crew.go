// SPDX-License-Identifier: MIT

// Package crew is what runs on many goroutines with a bound: a queue from which an item can be withdrawn, and
// the rule for how many workers there are. Package pool puts functions into it, the dispatcher of package
// timewheel due runs.
//
// # The rule
//
// While something waits, some workers are about to take it: as many as wait, but no more than a handful
// ([Starters]), and no more than there is room for. A worker that was called takes an item and has the next
// one called. So short items are all done by the few workers that get a processor, and with items that block,
// the crew grows as fast as processors come free. A worker that has ended an item takes the next one itself.
//
// Both types are passive: they have no lock and no goroutine of their own. Their owner has a lock that guards
// them, and calls what is named here.
package crew

import (
	"time"

	"github.com/panjf2000/ants/v2"
)

const (
	// Starters is how many workers may be about to start. One would do; two let items that block have more
	// workers sooner. (With four a burst of short items had more workers than processors, and took longer.)
	Starters = 2

	// rest is how long a crew without work keeps its goroutines. ants wakes up twice a second to keep the
	// time, which an idle program should not have to pay.
	rest = time.Second
)

// A Crew is the workers: goroutines of ants, at most so many of them.
//
// The ants pool has no limit of its own: the bound is kept here, under the owner's lock. ants counts a worker
// until it has gone back, a moment after its last item has ended, and would refuse one for which there is
// room.
type Crew struct {
	size     int
	work     func() // the life of a worker
	lock     func() // of the owner, and
	unlock   func()
	ants     *ants.Pool  // nil while there is no goroutine
	idle     *time.Timer // gives the goroutines back; nil until the crew was first at rest
	starting int         // workers that were called and have not begun
	workers  int         // those that have begun and not ended
	closed   bool
}

// New returns a crew of at most size workers, each of which is a call of work on a goroutine of its own.
func New(size int, work, lock, unlock func()) Crew {
	return Crew{size: size, work: work, lock: lock, unlock: unlock}
}

// Call calls a worker if one is of use: something waits for which none was called, and there is room.
func (c *Crew) Call(waiting int) {
	if waiting <= c.starting || c.starting >= Starters || c.workers+c.starting >= c.size {
		return
	}
	c.starting++
	if c.ants == nil {
		// A pool without a limit and with no option set has nothing that it could refuse.
		c.ants, _ = ants.NewPool(-1)
	}
	if err := c.ants.Submit(c.work); err != nil {
		go c.work() // ants refuses when it is full or closed, and this one is neither
	}
}

// Starting returns how many workers were called and have not begun.
func (c *Crew) Starting() int { return c.starting }

// Begin notes that a worker begins, and End that one ends, with so many items waiting.
func (c *Crew) Begin() {
	c.starting--
	c.workers++
}

// End is to be called also by a worker whose item ends the goroutine. Its place is given to another.
func (c *Crew) End(waiting int) {
	c.workers--
	c.Call(waiting)
	c.rest()
}

// Close has the goroutines end as soon as no worker needs one.
func (c *Crew) Close() {
	c.closed = true
	c.rest()
}

// rest sends the goroutines home if nothing is to be done: soon if work may yet come, at once if not.
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

// rested gives the goroutines back, unless there is work again.
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
