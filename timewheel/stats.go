// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"strings"
	"time"
)

// Stats contains the statistics of a wheel since [New]. While no method call is in progress and no run begins or ends,
// they are consistent and satisfy two equations:
//
//	Added = Finished + Removed + Pending
//	Due   = Started + Missed + Waiting + Withdrawn
//
// A [Timer] counts as a task, from AfterFunc or Reset until it fires or is stopped. A replaced or drained task counts
// as removed, and its replacement counts as added.
type Stats struct {
	Added    uint64 // tasks added
	Finished uint64 // tasks whose last run has begun
	Removed  uint64 // tasks removed before their last run began
	Pending  int    // live tasks
	Paused   int    // live tasks that are paused

	Due       uint64 // runs that fell due
	Started   uint64 // runs that began
	Missed    uint64 // runs that fell due while an earlier run of the same task was waiting or overdue
	Withdrawn uint64 // due runs withdrawn because their task was removed, replaced, rescheduled or paused
	Panicked  uint64 // runs that ended with a panic or runtime.Goexit
	Waiting   int    // due runs waiting for a worker now
	Running   int    // runs in progress now

	Workers    int           // maximum number of runs in progress at once; 0 if an executor decides
	OldestWait time.Duration // how long the oldest waiting run has waited for a worker; 0 if no run is waiting
}

// String returns all fields on one line.
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
	Times    int       // number of runs that have not begun, as returned by GetTaskTimes
	Next     time.Time // when the next run is due, was due (if Waiting) or would be due if resumed now (if Paused)
	Slot     int       // slot in which the task waits, with either layout; 0 if Waiting or Paused
	Circle   int       // number of further circles to wait, with either layout; 0 if Waiting or Paused
	Waiting  bool      // whether the next run is due and waiting for a worker
	Paused   bool      // whether the task is paused
}

// String returns the fields on one line.
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
		b.WriteString(", forever")
	} else {
		fmt.Fprintf(&b, ", runs left: %d", i.Times)
	}
	return b.String()
}

// Run describes one run of a task; see [WithObserver]. Dispatched - Due is the delay added by the tick and the loop:
// less than one tick unless the machine was busy. Started - Dispatched is the wait for a worker. Ended - Started is the
// duration of the job.
type Run struct {
	Key        string    // key of the task; empty for a Timer
	Due        time.Time // when the run was due
	Dispatched time.Time // when the event loop dispatched the run
	Started    time.Time // when a worker began the run
	Ended      time.Time // when the job ended
	Panicked   bool      // whether the job panicked or called runtime.Goexit
}
