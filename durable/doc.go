// SPDX-License-Identifier: MIT

// Package durable keeps tasks that survive the process: [timewheel] with an embedded store under it.
//
// A task is data, not a closure: a key, the name of its kind, some bytes, and when it is due. A function is
// registered for each kind, and called when a task of that kind is due, in this process or in the next.
//
//	s, err := durable.Open("/var/lib/shop/tasks")
//	...
//	err = s.Handle("order.recheck", func(ctx context.Context, run durable.Run) error {
//		return recheck(ctx, run.Key, run.Token)
//	})
//	err = s.Start()
//	...
//	err = s.AddTask(ctx, durable.Task{Key: "order:42", Kind: "order.recheck", Delay: 30 * time.Minute})
//
// When a verb returns nil, what it did is on the disk.
//
// # What survives what
//
//	a crash of the process, kill -9   everything that a verb has returned nil for
//	a crash of the system             the same
//	a power cut                       the same, if the disk keeps what it reports as synced
//	loss of the disk                  nothing: the store is one directory on one disk
//	a full or failing disk            what was acknowledged. The scheduler stops writing and running within a
//	                                  second, [Scheduler.Err] returns the cause, and look-ups go on
//	a full disk at the start          everything; Open returns the cause
//	a directory that is removed       nothing; the next verb that writes returns an error
//	a step of the wall clock          every task; those in the window keep their distance, those beyond it
//	                                  follow the new time, up to half a window late. The window is as much
//	                                  larger as the clock was set back
//
// # Damage
//
// A damaged store is reported, never believed. Every error that means a damage wraps [ErrCorrupt] and names the
// file. The store keeps a record of its own (INVENTORY and COMMITTED) of which files there must be and what they
// hold, because Pebble takes a file that lacks its end for one that a crash has cut off.
//
//	MANIFEST, OPTIONS, markers, logs:
//	a changed, missing or shorter     Open reports it, before it writes or deletes anything
//	file, an older copy of it
//	tables: missing, shorter, older   Open reports it as well
//	tables: a changed block           the read, or the work in the background, that meets the block reports
//	                                  it; Err returns it, and the scheduler stops
//	tasks missing from the whole      the walk over all keys after Open reports it; nothing that the store
//	                                  believes obsolete is deleted before the end of that walk
//	a power cut, and a damaged log    Open reports it, unless only the last commit is damaged: that looks like
//	                                  a commit that the power cut has torn
//	an older copy of the whole        not noticed: it is a store, of that time
//	directory
//
// With the undamaged bytes put back a store that was reported damaged has every task. If there are none,
// [Salvage] reads what can be read.
//
// # At least once
//
// A run is acknowledged after its handler has returned nil. If the process ends before that, it runs again in
// the next one. [Run.Token] is the same on every attempt, and different for every other run, so that a handler
// can tell that it has done the work before. A handler that returns an error, or panics, is called again
// later, each time about twice as late, up to a bound ([WithRetry]); then the task is parked: it stays, shows
// its error ([Info.Failure]) and does not run until [Scheduler.Reschedule] or [Scheduler.SetTask] says so.
//
// A task that is due and whose kind has no handler in this process is not parked. It waits in the store as it
// is, and counts in [Stats].Unhandled; each such kind is logged once. It runs as an overdue task when its kind is
// handled, by a later [Scheduler.Handle] or by the next process. So a release that forgets a kind delays its
// tasks and changes nothing about them.
//
// RemoveTask and SetTask, once they have returned nil, let no run of the old task start. A run in progress, or
// one that a worker has taken and whose handler is about to be called, is not interrupted; what comes of it no
// longer counts.
//
// # After downtime
//
// What fell due while no process ran is overdue. It runs oldest first, on workers that nothing else needs: a
// worker takes an overdue task only while no task that falls due now waits for one. The backlog drains at what
// is left of the capacity, and never faster than a bounded rate ([WithCatchUp]). If what falls due now needs all
// workers, overdue tasks wait. So a backlog delays what falls due now by one overdue run at most.
//
// That is short if the runs are. As long as the next overdue task is of a kind whose runs take longer than
// 50 ms, or that has not run yet, an eighth of the workers, at least one, is left free. Only a pool of one worker
// has none to leave. A kind that turns from quick to slow may have taken all workers by then, once.
//
// A repeating task runs once and rejoins its grid; the periods it missed are counted. [WithMissed] has a kind
// skip that run, or make up for all of them.
//
// # Time
//
// Due times are wall-clock times, for they must mean something to the next process. The wheel takes over
// within the window ([WithWindow]) and measures on the monotonic clock. No run starts early, but by as much as
// the wall clock was set back, or slowed down, since it was taken into the window.
//
// # Inside
//
// The store holds every task, in the order of the due times. One goroutine, the keeper, decides about
// everything that changes: it takes the operations that wait as one group, commits them with one sync, and
// only then answers and touches the wheel. It alone knows up to which due time the store's tasks have been read
// (feed.go). What has been read is in the wheel, or in the backlog if it is overdue (backlog.go), or set aside
// because its kind has no handler; it is in one of them. Look-ups go straight to the store. The file keeper.go
// has the loop, group.go what a group is, [Store] what a store promises.
//
// The keeper calls no handler and no logger, so both may call the scheduler and take their time.
package durable
