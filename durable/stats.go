// SPDX-License-Identifier: MIT

package durable

import "sync/atomic"

// Stats are the accounts of a scheduler: first the present numbers, and then what it has counted since New.
//
// Parked is exact when the tasks that were there before New have been read once, in the background. Until then it
// lacks those that have not been read.
//
// On a node, Pending and Parked are those of the whole engine, as old as [Scheduler.Census] says. The other numbers
// are the node's own, and Unhandled is 0.
type Stats struct {
	Pending   int // tasks, parked ones included
	Waiting   int // due runs that wait for a worker
	Running   int // handlers that are running
	Parked    int // tasks that are parked
	Unhandled int // due tasks that have been read and wait because their kind has no handler

	Added       uint64 // tasks that were added
	Removed     uint64 // tasks that were removed or replaced
	ParkedTotal uint64 // how often a task was parked

	Started   uint64 // calls of handlers
	Succeeded uint64 // calls that returned nil and were acknowledged
	Failed    uint64 // calls that returned an error, panicked or ended their goroutine, with the task still there
}

// A counter counts for the Stats of a scheduler.
type counter struct {
	added, removed, parkedTotal, started, succeeded, failed atomic.Uint64
	unhandled                                               atomic.Int64
}

func (c *counter) add(t tally) {
	c.added.Add(t.added)
	c.removed.Add(t.removed)
	c.parkedTotal.Add(t.parked)
	c.succeeded.Add(t.succeeded)
	c.failed.Add(t.failed)
}

// fill puts in what was counted.
func (c *counter) fill(s *Stats) {
	s.Unhandled = int(c.unhandled.Load())
	s.Added = c.added.Load()
	s.Removed = c.removed.Load()
	s.ParkedTotal = c.parkedTotal.Load()
	s.Started = c.started.Load()
	s.Succeeded = c.succeeded.Load()
	s.Failed = c.failed.Load()
}

// Stats returns the accounts of the scheduler.
func (s *Scheduler) Stats() Stats {
	w := s.wheel.Stats()
	all := Stats{Pending: s.Len(), Waiting: w.Waiting, Running: w.Running}
	s.below.fill(&all) // what Len has counted, too
	return all
}
