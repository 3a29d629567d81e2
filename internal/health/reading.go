// SPDX-License-Identifier: MIT

package health

import (
	"time"
)

// A SchedulerReading is the state of a durable scheduler at one moment.
type SchedulerReading struct {
	Time    time.Time
	Stopped bool
	Broken  string // why the store has failed, or empty
	Full    bool   // whether the cause is a full disk

	Away    string        // why the node cannot run tasks, by its own account, or empty
	AwayFor time.Duration // for how long
	Slow    time.Duration // how long the engine takes to answer on average, if that is long
	Started uint64        // attempts started here so far

	Unread      string    // why the reader got no answer from the engine, or empty; the answers below are then old
	UnreadSince time.Time // since when

	CPUWait time.Duration // how long this process waits for a processor, if that is long

	NoVacuum string // why no autovacuum removes dead rows, or empty
	DeadRows int64  // how many there are

	Unflushed bool // whether a crash of the engine's server may lose acknowledged tasks
	Refused   int  // connections to an old primary or another cluster refused so far; negative if unknown

	Counting                  bool      // whether the tasks are being counted, for the first time or again since an outage
	Counted                   time.Time // when the tasks were last counted; zero if never
	Tasks, Parked             int
	Waiting, Running, Workers int
	OldestWait                time.Duration // how long the oldest due task has waited for a worker
	SinceStart                time.Duration // time since a handler was last called here; 0 if none was called
	Busiest                   KindRuns      // the kind with the most runs in progress here

	DiskFree, DiskSize int64 // bytes on the store's disk; 0 if unknown

	Kinds    []KindReading
	Orphans  []DueReading  // due tasks of kinds without a handler
	Paused   []DueReading  // paused kinds; an unnamed kind comes first if all kinds are paused
	Nodes    []NodeReading // empty for a store
	NodesOld bool          // whether the node reports are from before an outage, or too old to judge by
	Lost     []LostNode    // the nodes most recently taken over by other nodes
	Left     Backlog       // backlog of the kinds without a limit
	Limited  []LimitedReading
	LeftMore bool      // whether the backlogs are larger than counted
	LeftAt   time.Time // when the backlogs were counted; zero if unknown
	Done     time.Time // when all tasks of the backlogs will have started; zero if unknown
}

// A Backlog describes overdue tasks.
type Backlog struct {
	Tasks  int
	Oldest time.Time // when the oldest task was due
}

// A LimitedReading describes the overdue tasks of a kind with a limit, on all nodes.
type LimitedReading struct {
	Kind, Limit string // Limit is as in "1 at once on all nodes"
	Backlog
}

// KindRuns describes the runs in progress of a kind.
type KindRuns struct {
	Kind    string
	Running int
	Longest time.Duration // how long the longest run has been in progress
	Waiting int           // overdue tasks of the kind; 0 if unknown
}

// A KindReading describes the tasks of a kind.
type KindReading struct {
	Kind                       string
	Tasks, Parked              int
	Started, Succeeded, Failed uint64 // attempts here since New; a cancelled run does not count as failed
	Interrupted                uint64 // attempts that were found cut off by the end of their process or lease
	Failure                    string // the last error, if known
	Failing                    bool   // as FailingKinds says of this reading
}

func (r SchedulerReading) kind(name string) KindReading {
	for _, k := range r.Kinds {
		if k.Kind == name {
			return k
		}
	}
	return KindReading{}
}

// A DueReading describes the waiting due tasks of a kind.
type DueReading struct {
	Kind   string
	Due    int // number of due tasks
	More   bool
	Oldest time.Time // when the oldest task was due; zero if unknown

	Paused   time.Time // when the kind was paused; zero if unknown
	Who, Why string    // who paused it, and why; empty if unknown
}

// A NodeReading describes a member of the engine.
type NodeReading struct {
	Name    string
	ID      int64
	Started time.Time // zero if unknown
	Lease   time.Duration
	Left    time.Duration // remaining time of the lease; negative if the lease has expired

	// The node's report about itself, as in SchedulerReading. The report of this scheduler's own node is not used.
	Self             bool
	Drained          bool
	Leaving          bool
	Away             bool     // the engine did not serve it, so that it cannot run tasks
	Kinds            []string // kinds with a handler
	AllKinds         bool     // whether these are all
	Held             int      // tasks that it holds
	Running, Workers int
	OldestWait       time.Duration
	SinceStart       time.Duration
	Busiest          KindRuns
}

// A LostNode is a node whose lease expired and whose tasks another node has taken over.
type LostNode struct {
	Name string
	At   time.Time // when its tasks were taken over
}
