// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"strings"
	"time"
)

// Stats are the statistics of a wheel since [New]. While no verb is in progress and no run begins or ends, they are
// consistent and two sums hold:
//
//	Added = Finished + Removed + Pending
//	Due   = Started + Missed + Waiting + Withdrawn
//
// A [Timer] counts as a task, from AfterFunc or Reset until it fires or is stopped. A replaced or drained
// task counts as removed, and its replacement as added.
type Stats struct {
	Added    uint64 // tasks added
	Finished uint64 // tasks whose last run has begun
	Removed  uint64 // tasks removed before their last run began
	Pending  int    // live tasks
	Paused   int    // paused tasks, which are live

	Due       uint64 // runs that fell due
	Started   uint64 // runs that began
	Missed    uint64 // runs of a repeating task that fell due while an earlier one waited or was overdue
	Withdrawn uint64 // due runs whose task was removed, replaced, moved or paused while they waited
	Panicked  uint64 // runs that ended with a panic or with runtime.Goexit
	Waiting   int    // due runs waiting for a worker now
	Running   int    // runs in progress now

	Workers    int           // how many runs may be in progress at once; 0 if an executor decides that
	OldestWait time.Duration // how long the first waiting run has waited for a worker; 0 if none waits
}

// String returns all fields in one line.
func (s Stats) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d tasks pending", s.Pending)
	if s.Paused > 0 {
		fmt.Fprintf(&b, ", %d of them paused", s.Paused)
	}
	fmt.Fprintf(&b, "; %d runs waiting, %d running", s.Waiting, s.Running)
	if s.Workers > 0 {
		fmt.Fprintf(&b, " on at most %d workers", s.Workers)
	}
	if s.OldestWait > 0 {
		fmt.Fprintf(&b, ", the oldest wait is %v", s.OldestWait)
	}
	fmt.Fprintf(&b, "; tasks: %d added, %d finished, %d removed", s.Added, s.Finished, s.Removed)
	fmt.Fprintf(&b, "; runs: %d due, %d started, %d missed, %d withdrawn, %d panicked",
		s.Due, s.Started, s.Missed, s.Withdrawn, s.Panicked)
	return b.String()
}

// Info describes a live task at the time of the call.
type Info struct {
	Key      string
	Interval time.Duration
	Times    int       // runs that have not begun, as GetTaskTimes returns
	Next     time.Time // when the next run is due; if Waiting, was due; if Paused, would be due if resumed now
	Slot     int       // the slot of the wheel where it waits, and
	Circle   int       // for how many more circles (with either layout); both are 0 in these states:
	Waiting  bool      // the run is due and waits for a free worker
	Paused   bool      // the task does not run until it is resumed
}

// String returns the fields in one line.
func (i Info) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q: ", i.Key)
	next := i.Next.Format(time.RFC3339Nano)
	switch {
	case i.Paused:
		fmt.Fprintf(&b, "paused, due %s if it was resumed now", next)
	case i.Waiting:
		fmt.Fprintf(&b, "due since %s, waiting for a worker", next)
	default:
		fmt.Fprintf(&b, "due %s, in slot %d after %d more circles", next, i.Slot, i.Circle)
	}
	if i.Interval > 0 {
		fmt.Fprintf(&b, ", every %v", i.Interval)
	}
	if i.Times == Forever {
		b.WriteString(", for ever")
	} else {
		fmt.Fprintf(&b, ", runs left: %d", i.Times)
	}
	return b.String()
}

// Run describes one run, for [WithObserver]. Dispatched - Due is the delay added by the tick and the loop, less than
// one tick unless the machine was busy. Started - Dispatched is the wait for a worker. Ended - Started is the duration
// of the job.
type Run struct {
	Key        string    // of the task; empty for a Timer
	Due        time.Time // when it was due
	Dispatched time.Time // when the event loop dispatched it
	Started    time.Time // when a worker began it
	Ended      time.Time // when the job returned
	Panicked   bool      // it ended with a panic or with runtime.Goexit
}
