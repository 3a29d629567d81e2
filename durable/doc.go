// SPDX-License-Identifier: MIT

// Package durable keeps tasks that survive the process: [timewheel] with a store under it.
//
// A task is data, not a closure: a key, the name of its kind, some bytes, and when it is due. A function is
// registered for each kind, and called when a task of that kind is due, in this process or in the next.
//
//	store, err := pebble.Open("/var/lib/shop/tasks") // package durable/pebble
//	...
//	s, err := durable.New(store)
//	...
//	err = s.Handle("order.recheck", func(ctx context.Context, run durable.Run) error {
//		return recheck(ctx, run.Key, run.Token)
//	})
//	err = s.Start()
//	...
//	err = s.AddTask(ctx, durable.Task{Key: "order:42", Kind: "order.recheck", Delay: 30 * time.Minute})
//
// When a verb returns nil, what it did is in the store for good: with package durable/pebble, on the disk.
//
// # What survives what
//
// That is up to the [Store]. Package durable/pebble, the one on the disk, says what it survives: crashes and power
// cuts among others. Package memstore, the one in memory, is for tests. This package imports no database.
//
// A store that fails, whatever the cause, ends the scheduler: it stops writing and running, [Scheduler.Err]
// returns the cause, and look-ups still work. A store never returns what it knows to be damaged: the error wraps
// [ErrCorrupt].
//
// A step of the wall clock loses no task. Tasks within the window keep their distance from now. Tasks beyond it
// follow the new time, up to half a window late. If the clock was set back, the window is larger by as much.
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
