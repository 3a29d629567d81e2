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
//	                                  second, [Scheduler.Err] returns the cause, and look-ups still work
//	a full disk at the start          everything; Open returns the cause
//	a directory that is removed       nothing; the next verb that writes returns an error
//	a step of the wall clock          every task. Tasks within the window keep their distance from now. Tasks
//	                                  beyond it follow the new time, up to half a window late. If the clock was
//	                                  set back, the window is larger by as much
//
// # Damage
//
// A damaged store is reported, never believed. Every error that means damage wraps [ErrCorrupt] and names the
// file. The store keeps its own record (INVENTORY and COMMITTED) of which files must exist and what they hold,
// because Pebble takes a file that lacks its end for one that a crash has cut off.
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
// A store that was reported damaged has every task again when the undamaged bytes are put back. If there is no
// copy of them, [Salvage] reads what can be read.
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
// is, and counts in [Stats].Unhandled; each such kind is logged once. It runs as an overdue task when its
// kind is handled, by a later [Scheduler.Handle] or by the next process. So a release that forgets a kind
// delays its tasks and changes nothing about them.
//
// No run of the old task starts after RemoveTask or SetTask has returned nil. A run in progress is not
// interrupted, nor is one whose handler is just about to be called. Its result no longer counts.
//
// # After downtime
//
// What fell due while no process ran is overdue. It runs oldest first, on workers that nothing else needs: a
// worker takes an overdue task only while no task that falls due now waits for one. The backlog drains at
// what is left of the capacity, and never faster than a bounded rate ([WithCatchUp]). If what falls due now
// needs all workers, overdue tasks wait. So a backlog delays what falls due now by one overdue run at most.
//
// An eighth of the workers, at least one, is left free while the next overdue task is of a slow kind: one
// whose runs take longer than 50 ms, or that has not run yet. A pool of one worker cannot leave any. A kind
// that turns from quick to slow may occupy all workers once.
//
// A repeating task runs once and rejoins its grid; the periods it missed are counted. [WithMissed] has a kind
// skip that run, or make up for all of them.
//
// # Time
//
// Due times are wall-clock times, because the next process must understand them. Within the window
// ([WithWindow]) the wheel measures on the monotonic clock. A run can be early only if the wall clock was set
// back or slowed down after the task entered the window, and by no more than that.
//
// # Inside
//
// The store holds every task, in due order. One goroutine, the keeper, decides every change. It takes the
// waiting operations as one group, commits them with one sync, and only then answers them and touches the
// wheel. Only the keeper knows up to which due time the tasks have been read from the store (feed.go). A task
// that has been read is in exactly one place: in the wheel, in the backlog if it is overdue (backlog.go), or
// set aside because its kind has no handler. Look-ups go straight to the store. The loop is in keeper.go, the
// group in group.go. [Store] says what a store promises.
//
// The keeper calls no handler and no logger, so both may call the scheduler and may be slow.
package durable
