// SPDX-License-Identifier: MIT

// Package timewheel keeps tasks by the million, each with a key, and runs each at its due time: once, a number of
// times, or until it is removed.
//
//	tw, err := timewheel.New(time.Second, 1024)
//	...
//	tw.Start()
//	defer tw.Stop()
//
//	err = tw.AddTask(&timewheel.Task{
//		Key:   "order-4711",
//		Delay: 30 * time.Minute,
//		Job:   func(task *timewheel.Task) { release(task.Key) },
//	})
//	...
//	err = tw.RemoveTask("order-4711") // it was paid
//
// # Accuracy
//
// A run never starts before it is due: due is the time of the call plus the delay, on the monotonic clock. It
// starts less than one tick late, plus scheduling, plus the wait for a free worker. Setting the wall clock
// moves nothing but the tasks of [TimeWheel.AddAt].
//
// The runs of a repeating task stay on a fixed grid: run k is due k-1 intervals after the first due time. Neither the
// ticks nor a late run shift the grid.
//
// After a stall (a garbage collection, a suspended process, an overloaded machine) overdue runs start at
// once, in the order of their ticks. Runs of one tick start in no promised order. A repeating task runs once
// and rejoins its grid, and the periods that it missed are counted.
//
// # Wall-clock time
//
// Go's monotonic clock does not notice when the wall clock is set, and on most systems it stands still while the
// machine is suspended. A delay of an hour is an hour during which the machine is awake.
//
// A task added with [TimeWheel.AddAt] is due when the wall clock reaches its time. While there is such a task, the
// wheel compares the two clocks once a second. If they have moved apart by a tick or more, it moves these tasks, and
// overdue ones start at once. So within a second after the clock was set, or the machine woke up, the tasks are correct
// again. By the wall clock, such a run can be early only if the clock was set back within the last second. While the
// clock is being slowed down, the run can be early by less than a tick.
//
// Only the first run is due by the wall clock. Later ones follow at Interval by the monotonic clock. A task that was
// rescheduled, or paused and resumed, no longer follows the wall clock. Such a task takes about 60 bytes more. When the
// clock was set, the loop moves all of them at once, which takes a little less than a second for a million. Without
// such tasks the wheel never reads the wall clock.
//
// # Pausing, removing and waiting
//
// [TimeWheel.Pause] keeps a task from running until [TimeWheel.Resume], and preserves the rest of its delay.
// [TimeWheel.RemoveTask] does not wait for a run in progress; [TimeWheel.RemoveWait] does. [TimeWheel.RemovePrefix],
// [TimeWheel.ReschedulePrefix] and [TimeWheel.AllPrefix] are for keys with a common beginning, such as those of one
// customer. They walk over all tasks, which takes some 70 ms for a million and holds up no tick.
//
// # Size
//
// The number of slots limits neither the number of tasks nor their delays; see [New]. A live task takes 64 bytes, some
// 65 more for its places in the slot and the key map, and the key itself. The cost of adding, removing and rescheduling
// does not depend on the number of tasks. The cost of a tick depends only on the tasks due at it. A wheel with nothing
// due soon sleeps.
//
// [WithLayout] chooses how waiting tasks are kept. Both layouts run the same tasks at the same times. They differ in
// cost; see bench/RESULTS.md. Hashed, the default, takes 32 bytes for an empty slot and about 1,100 for a slot in use.
// Hierarchical takes 64 bytes a slot on each level in use, 4,096 slots at most, however many tasks wait there, and
// moves a task once for each level. Choose Hierarchical for many wheels with few tasks each.
//
// Most programs need one wheel. Use a second for a different tick or a separate limit on concurrent jobs.
//
// # Overload
//
// Jobs run on workers, never on the event loop: a slow job delays no other task as long as a worker is free. When no
// worker is free, due runs wait, first in, first out, with at most one waiting run per task. Nothing is dropped. If a
// repeating task is still waiting when its next period starts, it misses that period. A missed period does not count
// towards Times. [TimeWheel.Stats] counts waiting and missed runs, and [WithMaxPending] bounds the number of tasks.
//
// A job that panics or calls runtime.Goexit harms nothing else: it is logged, counted and reported to the
// handlers of [WithPanicHandler], and a repeating task runs again. A job made by [JobFunc] may return an error,
// which is reported to the handlers of [WithErrorHandler].
//
// # Introspection
//
// The cost of [TimeWheel.Stats], [TimeWheel.Occupancy], [TimeWheel.Hand], [TimeWheel.Upcoming] and
// [TimeWheel.LongestRuns] does not grow with the number of tasks, so they can be called several times a
// second. Package dashboard shows them as a page, and package metrics exports them to Prometheus.
//
// # Lifecycle
//
// All methods work at any time. Tasks can be added before Start, and their delays count from AddTask. After Stop no run
// starts; adds return [ErrStopped], and the remaining tasks can still be inspected, removed or drained.
//
// # What is not promised
//
// Removing or pausing a task, or stopping the wheel, does not interrupt a run in progress. A run counts as
// started slightly before its job is called. Runs of one task may overlap; [SkipIfRunning] prevents that. The
// key map never shrinks. Nothing survives the process; use package durable for tasks that must.
//
// # Testing
//
// A program that uses the wheel can be tested in a testing/synctest bubble, where half an hour passes in
// microseconds. The wheel must be made and stopped inside the bubble. Package timewheeltest has helpers.
//
// # Inside
//
//	TimeWheel → index             which task a key means: a concurrent map
//	          → inbox → loop      one goroutine, the only one to touch a slot
//	                    → layout      what is due at which tick
//	                    → dispatcher  due runs, one queue of them, and the workers
//
// Arrows point one way: the layout knows neither clock nor goroutine, the dispatcher neither the loop nor the
// TimeWheel. A verb changes the index and the state of the entry at once, on the caller's goroutine. It then posts the
// entry to an inbox, and the loop puts it into its slot, or removes it. At a tick the loop passes the due entries to
// the dispatcher and takes back those with a further run. The state of an entry is one word, changed by
// compare-and-swap, so that exactly one of a run and a removal wins.
//
// The file entry.go describes the states, loop.go how the loop sleeps, layout.go the wheel itself, and dispatch.go the
// locks. internal/crew has the queue and the rule for the workers.
package timewheel
