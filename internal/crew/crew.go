// SPDX-License-Identifier: MIT

// Package crew helps to run items on a limited number of goroutines. It provides a queue from which items can be
// withdrawn, and the rule for the number of workers. Package pool queues functions, and the dispatcher of package
// timewheel queues due runs.
//
// # The rule
//
// While items are waiting, some workers are about to start: one for each waiting item, but at most [Starters], and no
// more than there is room for. When a worker starts, it takes an item, and the next worker is called. So short items
// are all run by the few workers that get a processor. With items that block, the crew grows as fast as processors
// become free. A worker that has finished an item takes the next one itself.
//
// Both types are passive: they have neither a lock nor a goroutine of their own. Their owner guards them with its lock
// and calls their methods.
package crew

import (
	"time"

	"github.com/panjf2000/ants/v2"
)

const (
	// Starters is the maximum number of workers that are about to start. One would be enough; with two, items that
	// block get more workers sooner. (With four, a burst of short items had more workers than processors and took
	// longer.)
	Starters = 2

	// rest is how long a crew without work retains its goroutines. It does not retain them longer, because ants wakes
	// up twice a second to update its clock, which an idle program should not have to pay for.
	rest = time.Second
)

// A Crew manages the workers, which run on a limited number of ants goroutines.
//
// The ants pool has no limit of its own: the Crew enforces the limit, under the owner's lock. ants counts a worker
// until it has returned to the pool, a moment after its last item has ended. With a limit of its own, ants could refuse
// a worker for which there is room.
type Crew struct {
	size     int
	work     func() // main function of a worker
	lock     func() // acquires the owner's lock
	unlock   func()
	ants     *ants.Pool  // nil while there are no goroutines
	idle     *time.Timer // releases the goroutines; nil until the crew is idle for the first time
	starting int         // workers that have been called but have not begun
	workers  int         // workers that have begun but not ended
	closed   bool
}

// New returns a crew of at most size workers. Each worker is a call of work on its own goroutine.
func New(size int, work, lock, unlock func()) Crew {
	return Crew{size: size, work: work, lock: lock, unlock: unlock}
}

// Call calls one more worker if more items are waiting than workers are about to start, and [Starters] and the size of
// the crew allow it.
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
		go c.work() // ants refuses only when it is full or closed, and this pool is neither
	}
}

// Resize sets the maximum number of workers, and calls a worker if there is room for one more of the waiting items. If
// there are more workers than the new size, each of them must end as soon as it has finished its item, until Over
// reports false.
func (c *Crew) Resize(size, waiting int) {
	c.size = size
	c.Call(waiting)
}

// Over reports whether there are more workers than the size of the crew. A worker must then end and take no item.
func (c *Crew) Over() bool { return c.workers > c.size }

// Starting returns the number of workers that have been called but have not begun.
func (c *Crew) Starting() int { return c.starting }

// Begin records that a worker begins.
func (c *Crew) Begin() {
	c.starting--
	c.workers++
}

// End records that a worker ends while the given number of items is waiting. If necessary, another worker takes its
// place. A worker whose item ends the goroutine must also call End.
func (c *Crew) End(waiting int) {
	c.workers--
	c.Call(waiting)
	c.rest()
}

// Close releases the goroutines as soon as no worker needs them.
func (c *Crew) Close() {
	c.closed = true
	c.rest()
}

// rest releases the goroutines if there are no workers: at once if the crew is closed, and after a delay if more work
// may arrive.
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

// rested releases the goroutines, unless new work has arrived.
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
