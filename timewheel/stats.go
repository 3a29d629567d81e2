// SPDX-License-Identifier: MIT

package timewheel

import "time"

// Stats are the accounts of a wheel since [New]. At a quiet moment, when no verb is under way and no run
// begins or ends, they are one consistent reading and two sums hold:
//
//	Added = Finished + Removed + Pending
//	Due   = Started + Missed + Waiting + Withdrawn
//
// A [Timer] counts as a task, from AfterFunc or Reset until it fires or is stopped. A replaced or drained
// task counts as removed, and its replacement as added.
type Stats struct {
	Added    uint64 // tasks that were added
	Finished uint64 // tasks whose last run has begun
	Removed  uint64 // tasks that were removed before
	Pending  int    // tasks that are live
	Paused   int    // of these, the paused ones

	Due       uint64 // runs that fell due
	Started   uint64 // runs that began
	Missed    uint64 // runs of a repeating task that fell due while an earlier one waited or was overdue
	Withdrawn uint64 // due runs whose task was removed, replaced, moved or paused while they waited
	Panicked  uint64 // runs that ended with a panic or with runtime.Goexit
	Waiting   int    // due runs that wait for a worker now
	Running   int    // runs that are running now

	Workers    int           // how many runs may be running at once; 0 if an executor decides that
	OldestWait time.Duration // the wait of the run that has waited longest for a worker; 0 if none waits
}

// Info is one live task, as it was at the call.
type Info struct {
	Key      string
	Interval time.Duration
	Times    int       // runs that have not begun, as GetTaskTimes returns
	Next     time.Time // when the next run is due; was, if Waiting; would be if it was resumed now, if Paused
	Slot     int       // the slot of the wheel where it waits for that, and
	Circle   int       // how many revolutions more (of one wheel, whatever the layout); both 0 if one of these:
	Waiting  bool      // the run is due and waits for a free worker
	Paused   bool      // the task does not run until it is resumed
}

// Run is the account of one run, for [WithObserver]. Handed - Due is what the tick and the loop took, less
// than one tick unless the machine was busy. Started - Handed is the wait for a worker. Ended - Started is the
// job.
type Run struct {
	Key      string    // of the task; empty for a Timer
	Due      time.Time // when it was due
	Handed   time.Time // when the event loop dispatched it
	Started  time.Time // when a worker began it
	Ended    time.Time // when the job returned
	Panicked bool      // it ended with a panic or with runtime.Goexit
}
