// SPDX-License-Identifier: MIT

package pebble

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// A compactor lets Pebble compact one group of tables at a time, and none before the store is open. Pebble's own
// scheduler starts a compaction as soon as the log has been read, and Pebble is not open before that ends: with five
// million new tasks after 0.8 s in place of 0.2. It also wakes ten times a second, in case more compactions are allowed at
// a time than before.
//
// Pebble asks TrySchedule for permission. If refused, it waits until Schedule is called.
type compactor struct {
	db    pebble.DBForCompaction
	calls sync.WaitGroup // calls of db

	mu      sync.Mutex // not held during calls of db
	isOpen  bool
	running int // compactions
	gone    bool
}

// Register implements [pebble.CompactionScheduler], as do the other exported methods with CompactionGrantHandle.
func (c *compactor) Register(_ int, db pebble.DBForCompaction) { c.db = db }

// Unregister is called when Pebble closes, and returns when no call of db is in progress.
func (c *compactor) Unregister() {
	c.mu.Lock()
	c.gone = true
	c.mu.Unlock()
	c.calls.Wait()
}

func (c *compactor) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mayStart() {
		return false, nil
	}
	c.running++
	return true, c
}

func (c *compactor) mayStart() bool { return c.isOpen && !c.gone && c.running <= 0 }

// open lets compactions start. It is called once Pebble is open.
func (c *compactor) open() {
	c.mu.Lock()
	c.isOpen = true
	c.mu.Unlock()
	c.schedule()
}

// Done is called when a compaction has ended.
func (c *compactor) Done() {
	c.mu.Lock()
	c.running--
	c.mu.Unlock()
	c.schedule()
}

// schedule starts a compaction that waits. If TrySchedule is called at the same time, more than one may start: were the
// call refused because of one that does not wait after all, Pebble would wait forever.
func (c *compactor) schedule() {
	c.mu.Lock()
	mayStart := c.mayStart()
	if mayStart {
		c.calls.Add(1)
	}
	c.mu.Unlock()
	if !mayStart {
		return
	}
	defer c.calls.Done()
	if c.db.Schedule(c) {
		c.mu.Lock()
		c.running++ // it may have ended already
		c.mu.Unlock()
	}
}

func (c *compactor) UpdateGetAllowedWithoutPermission()                {}
func (c *compactor) Started()                                          {}
func (c *compactor) MeasureCPU(pebble.CompactionGoroutineKind)         {}
func (c *compactor) CumulativeStats(pebble.CompactionGrantHandleStats) {}
