// SPDX-License-Identifier: MIT

package durable

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/node"
)

// Stats holds the statistics of a scheduler: first its current state, and then counters since New.
//
// On an own engine, Pending and Parked are exact, but Parked is too low until the tasks from before New have been read. On
// a shared engine they are as of the last call to [Scheduler.Counts]. The other numbers cover only this scheduler.
// Unhandled is 0 on a shared engine. On an own engine it is counted every ten seconds, or every minute if that
// takes long, and when a handler is registered. Counting takes at most a second, so the number may be too low.
//
// OldestWait covers the runs that are queued for a worker. It covers overdue tasks only if no worker takes them,
// because all workers are busy and the longest run has taken a second, or because no run has started for five seconds.
// Free overdue tasks are included as they were up to five seconds ago, or up to 15 s if the engine is slow. Tasks that are
// waiting for a handler on this scheduler, for a limit or for the end of a pause are not included, nor are any on a drained
// node. After a pause, a drain or a registration of their handler, tasks wait from then on.
type Stats struct {
	Pending   int // all tasks, including parked tasks
	Waiting   int // due runs that are waiting for a worker
	Limited   int // due runs in memory that a limit of their kind holds back; runs of paused kinds do not count
	Running   int // handlers that are running
	Workers   int // handlers that may run at the same time; see [WithPoolSize]
	Parked    int // parked tasks; like Pending, 0 after Shutdown
	Unhandled int // due tasks that are waiting because their kind has no handler

	OldestWait time.Duration // how long the first due run has waited for a worker; 0 if no run is waiting
	LongestRun time.Duration // the duration of the longest run in progress; 0 if there is none
	SinceStart time.Duration // time since a handler was last called; 0 if no handler has been called

	Added       uint64 // tasks added
	Removed     uint64 // tasks removed or replaced
	ParkedTotal uint64 // number of times that tasks were parked
	GivenUp     uint64 // runs of repeating tasks that were given up: see [WithRetry]
	Expired     uint64 // tasks removed because it was too late to start their runs: see [Task].Expires

	Started   uint64 // handler calls
	Retried   uint64 // handler calls that were not the first attempt of their run
	Succeeded uint64 // acknowledged calls that returned nil, in time or after a call to [Run.Complete]
	Failed    uint64 // calls that returned an error, panicked or ended their goroutine, while the task still existed
	Snoozed   uint64 // calls that returned an error from [Snooze]

	Commits Timing     // successful commits to the engine
	Changes uint64     // tasks added, changed or removed by these commits
	Disk    DiskStats  // of an [engine.Owned]; zero after Shutdown
	Node    *NodeStats // nil on an own engine
}

// DiskStats describes the disk of an own engine, in bytes. Each number is 0 if it is unknown.
type DiskStats struct {
	Store int64 // bytes that the engine stores there
	Free  int64 // free bytes
	Size  int64 // total bytes
}

// String returns the statistics as one line. It omits commit times and any rare numbers that are 0.
func (s Stats) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d tasks pending, %d of them parked", s.Pending, s.Parked)
	some := func(n int, what string) {
		if n > 0 {
			fmt.Fprintf(&b, ", %d %s", n, what)
		}
	}
	some(s.Unhandled, "due without a handler")
	fmt.Fprintf(&b, "; %d runs waiting", s.Waiting)
	some(s.Limited, "held back by a limit")
	fmt.Fprintf(&b, ", %d running on at most %d workers", s.Running, s.Workers)
	if s.OldestWait > 0 {
		fmt.Fprintf(&b, ", the oldest wait is %v", s.OldestWait)
	}
	if s.LongestRun > 0 {
		fmt.Fprintf(&b, ", the longest run has taken %v", s.LongestRun)
	}
	if s.SinceStart > 0 {
		fmt.Fprintf(&b, ", the last one started %v ago", s.SinceStart)
	}
	fmt.Fprintf(&b, "; tasks: %d added, %d removed, %d times parked", s.Added, s.Removed, s.ParkedTotal)
	some(int(s.Expired), "expired")
	fmt.Fprintf(&b, "; runs: %d started, %d retried, %d succeeded, %d failed", s.Started, s.Retried, s.Succeeded, s.Failed)
	some(int(s.GivenUp), "given up")
	some(int(s.Snoozed), "snoozed")
	fmt.Fprintf(&b, "; %d changes in %d commits", s.Changes, s.Commits.Count)
	if s.Disk.Store > 0 {
		fmt.Fprintf(&b, ", %d bytes on the disk", s.Disk.Store)
	}
	if n := s.Node; n != nil {
		fmt.Fprintf(&b, "; node: lease of %v, renewed %v ago, %d calls and %d failed, %d claimed, %d nodes taken over",
			n.Lease, n.LeaseAge, n.Calls.Count, n.CallsFailed, n.Claimed, n.TakenOver)
		some(int(n.StartsRefused), "starts refused")
		some(int(n.EndsRefused), "ends refused")
		if n.Unheard != "" {
			b.WriteString(", no signals: " + n.Unheard)
		}
		if n.Slow > 0 {
			fmt.Fprintf(&b, ", the engine takes %v to answer", n.Slow.Round(time.Millisecond))
		}
		if n.Away {
			fmt.Fprintf(&b, ", the engine is away for %v: %s", n.AwayFor.Round(time.Millisecond), n.AwayWhy)
		}
	}
	return b.String()
}

// NodeStats holds the statistics of a node's engine calls: first the current state, and then counters since New.
type NodeStats struct {
	Lease    time.Duration // length of the lease, which is renewed every quarter of that length; 0 after Connect
	LeaseAge time.Duration // time since the last answered renewal was sent; 0 after Shutdown or Connect
	Away     bool          // the engine does not do what the node needs in order to run tasks, although it may answer other calls
	AwayFor  time.Duration // how long the engine has not done it; 0 if the node is not away
	AwayWhy  string        // which calls fail, and why; empty if the node is not away
	Slow     time.Duration // how long the engine takes to answer on average, if that is 100 ms or more, until it is less than 50 ms; else 0
	Unheard  string        // why the node hears no signals, and looks for tasks ten times a second; empty if it hears them

	Calls       Timing // answered joins, renewals, claims and confirmations: round trips to the engine
	CallsFailed uint64 // failed calls of any type

	Claimed       uint64 // tasks returned by claims
	TakenOver     uint64 // expired nodes whose tasks this node has freed
	StartsRefused uint64 // starts not confirmed because the task was removed, moved, locked or taken over
	EndsRefused   uint64 // run ends that did not count because the task was removed, moved or taken over
}

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
func TimingBound(bucket int) time.Duration { return node.TimingBound(bucket) }

// Stats returns the statistics of the scheduler.
func (s *Scheduler) Stats() Stats {
	w := s.node.Work()
	all := Stats{
		Waiting: w.Waiting, Running: w.Running, Workers: w.Workers, OldestWait: w.OldestWait,
		LongestRun: w.Longest, SinceStart: w.SinceStart,
	}
	paused := s.kinds.Pauses()
	for _, k := range s.kinds.AllLimited() {
		if !paused.Has(k.Name) {
			all.Limited += k.Limiter.Waiting()
		}
	}
	if s.reads.Enter() {
		defer s.reads.Leave()
		all.Pending, all.Parked = s.node.Total()
		if own := s.node.Owned(); own != nil {
			all.Disk.Store = own.Size()
			all.Disk.Free, all.Disk.Size = own.Space()
		}
	}
	c := s.node.Stats() // includes the calls of Total
	all.Unhandled, all.Added, all.Removed, all.ParkedTotal, all.GivenUp, all.Expired = c.Unhandled, c.Added, c.Removed, c.Parked, c.GivenUp, c.Expired
	all.Started, all.Retried, all.Succeeded, all.Failed, all.Snoozed = c.Started, c.Retried, c.Succeeded, c.Failed, c.Snoozed
	all.Commits, all.Changes = Timing(c.Commits), c.Changes
	if s.node.Owned() == nil {
		all.Node = &NodeStats{
			Lease: c.Lease, LeaseAge: c.LeaseAge, Away: c.AwayWhy != nil, AwayFor: c.AwayFor, Slow: c.Slow, Unheard: c.Unheard, Calls: Timing(c.Calls), CallsFailed: c.CallsFailed,
			Claimed: c.Claimed, TakenOver: c.TakenOver, StartsRefused: c.StartsRefused, EndsRefused: c.EndsRefused,
		}
		if c.AwayWhy != nil {
			all.Node.AwayWhy = c.AwayWhy.Error()
		}
	}
	return all
}
