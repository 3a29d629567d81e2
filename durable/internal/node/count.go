// SPDX-License-Identifier: MIT

package node

import (
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/need"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A Timing counts calls and their durations.
type Timing struct {
	Count   uint64
	Total   time.Duration
	Buckets [TimingBuckets]uint64 // calls that took longer than the previous bound and at most TimingBound(index)
}

// TimingBuckets is the number of buckets of a Timing. Calls longer than the last bound are counted in Count but in no
// bucket.
const TimingBuckets = 18

// TimingBound returns the upper bound of a bucket: 100 µs for the first bucket, doubling with each further bucket.
func TimingBound(bucket int) time.Duration { return 100 * time.Microsecond << bucket }

// A timing accumulates a Timing.
type timing struct {
	total   atomic.Int64
	buckets [TimingBuckets + 1]atomic.Uint64 // the last bucket is for longer calls
}

func (t *timing) add(d time.Duration) {
	i := 0
	for i < TimingBuckets && d > TimingBound(i) {
		i++
	}
	t.buckets[i].Add(1)
	t.total.Add(int64(d))
}

func (t *timing) read() Timing {
	r := Timing{Total: time.Duration(t.total.Load())}
	for i := range t.buckets {
		n := t.buckets[i].Load()
		if r.Count += n; i < TimingBuckets {
			r.Buckets[i] = n
		}
	}
	return r
}

// A counter holds a node's counters.
type counter struct {
	added, removed, parked, givenUp, started, succeeded, failed atomic.Uint64
	unhandled                                                   atomic.Int64
	retried, changes, expired, snoozed                          atomic.Uint64
	commits                                                     timing
	lastStart                                                   atomic.Int64 // the node's age at the last start; 0 before the first start

	needs                                                   need.Record
	calls                                                   timing
	callsFailed, claimed, taken, startsRefused, endsRefused atomic.Uint64
	renewed, confirm                                        atomic.Int64 // when the last answered renewal was sent; how long the last confirmation took
}

// start counts a handler call at the given age of the node.
func (c *counter) start(rec *task.Record, age int64) {
	c.lastStart.Store(max(age, 1))
	c.started.Add(1)
	if rec.Attempts > 0 {
		c.retried.Add(1)
	}
}

func (c *counter) commit(changes int, took time.Duration) {
	c.changes.Add(uint64(changes))
	c.commits.add(took)
}

func (c *counter) add(t Tally) {
	c.parked.Add(t.Parked)
	c.givenUp.Add(t.GivenUp)
	c.expired.Add(t.Expired)
	c.succeeded.Add(t.Succeeded)
	c.failed.Add(t.Failed)
	c.snoozed.Add(t.Snoozed)
}

// sinceStart returns how long ago a handler was last called, or 0 if no handler has been called.
func (c *counter) sinceStart(age int64) time.Duration {
	if last := c.lastStart.Load(); last > 0 {
		return time.Duration(max(age-last, 1))
	}
	return 0
}

// Stats are a node's counters, as in the types Stats and NodeStats of package durable.
type Stats struct {
	Tally
	Added, Removed   uint64
	Unhandled        int
	Started, Retried uint64
	Commits          Timing
	Changes          uint64

	Lease, LeaseAge                                             time.Duration
	AwayFor, Slow                                               time.Duration
	AwayWhy                                                     error
	Unheard                                                     string
	Calls                                                       Timing
	CallsFailed, Claimed, TakenOver, StartsRefused, EndsRefused uint64
}

// Stats returns the node's counters.
func (n *Node) Stats() Stats {
	n.mu.Lock()
	awayFor, why := n.awayLocked()
	slow := time.Duration(0)
	if n.far {
		slow = n.renewing.mean
	}
	n.mu.Unlock()
	c := &n.count
	lease, age := n.cfg.Lease, time.Duration(n.own()-c.renewed.Load())
	if n.client {
		lease, age = 0, 0
	}
	if n.life.Err() != nil { // the node has left
		age = 0
	}
	unheard := ""
	if err := n.Unheard(); err != nil && !n.client && n.life.Err() == nil {
		unheard = err.Error()
	}
	return Stats{
		Tally: Tally{
			Parked: c.parked.Load(), GivenUp: c.givenUp.Load(), Expired: c.expired.Load(),
			Succeeded: c.succeeded.Load(), Failed: c.failed.Load(), Snoozed: c.snoozed.Load(),
		},
		Added: c.added.Load(), Removed: c.removed.Load(),
		Unhandled: int(c.unhandled.Load()), Started: c.started.Load(), Retried: c.retried.Load(),
		Commits: c.commits.read(), Changes: c.changes.Load(),
		Lease: lease, LeaseAge: age, AwayFor: awayFor, AwayWhy: why, Slow: slow, Unheard: unheard,
		Calls: c.calls.read(), CallsFailed: c.callsFailed.Load(), Claimed: c.claimed.Load(), TakenOver: c.taken.Load(),
		StartsRefused: c.startsRefused.Load(), EndsRefused: c.endsRefused.Load(),
	}
}
