// SPDX-License-Identifier: MIT

// Package timewheel schedules millions of keyed tasks and runs each at its due time: once, a fixed number of times, or
// until it is removed.
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
// In the repository, examples/basic shows more of the methods, and examples/orders is a shop with a million such tasks.
//
// # Accuracy
//
// A run never starts before it is due. Its due time is the time of the call plus the delay, measured by the monotonic
// clock. A run starts less than one tick late, not counting scheduling and any wait for a free worker. Setting the wall
// clock affects only tasks added with [TimeWheel.AddAt].
//
// Runs of a repeating task stay on a fixed grid: run k is due k-1 intervals after the first due time. Neither tick
// boundaries nor late runs shift the grid.
//
// After a stall (a garbage collection, a suspended process, an overloaded machine), overdue runs start at once, in tick
// order. The order of runs due at the same tick is unspecified. A repeating task runs once and rejoins its grid; the
// periods it missed are counted.
//
// # Wall-clock time
//
// Setting the wall clock does not affect Go's monotonic clock. On most systems the monotonic clock stops while the
// machine is suspended, so a delay of one hour counts only the time during which the machine is awake.
//
// A task added with [TimeWheel.AddAt] is due when the wall clock reaches its time. While the wheel has such tasks, it
// compares the two clocks once a second. If they have drifted apart by a tick or more, it updates the due times of
// these tasks, and overdue tasks start at once. So the due times are correct again within a second after the clock is
// set or the machine wakes up. By the wall clock, such a run can be early only if the clock was set back within the
// last second. While the wall clock is being slowed, the run can be early by less than a tick.
//
// Only the first run follows the wall clock. Later runs follow at the task's Interval, measured by the monotonic clock.
// A task that has been rescheduled, or paused and resumed, no longer follows the wall clock. A task that follows the
// wall clock takes about 60 bytes more than other tasks. When the clock is set, the loop moves all such tasks at once,
// which takes slightly less than a second for a million tasks. Without such tasks the loop never reads the wall clock.
//
// # Pausing, removing and waiting
//
// [TimeWheel.Pause] keeps a task from running until [TimeWheel.Resume], preserving its remaining delay.
// [TimeWheel.RemoveTask] does not wait for a run in progress; [TimeWheel.RemoveWait] does. [TimeWheel.RemovePrefix],
// [TimeWheel.ReschedulePrefix] and [TimeWheel.AllPrefix] operate on all keys with a common prefix, such as the keys of
// one customer. They walk over all tasks, which takes about 70 ms for a million and does not delay ticks.
//
// [TimeWheel.Reschedule] moves a task. examples/heartbeat postpones the end of a connection at each read.
//
// # Size
//
// The number of slots limits neither the number of tasks nor their delays; see [New]. A live task takes 64 bytes, plus
// about 65 bytes for its entries in the slot and the key map, plus the key itself. The cost of adding, removing and
// rescheduling does not depend on the number of tasks. The cost of a tick depends only on the tasks due at that tick. A
// wheel sleeps while nothing is due soon.
//
// The memory of a task can be reclaimed once the task has ended. The key map of a running wheel shrinks as well, a minute
// or two after the number of keys has fallen to a quarter of its maximum. A map of up to 8,192 keys, half a megabyte,
// keeps its memory.
//
// [WithLayout] selects how waiting tasks are stored. Both layouts run the same tasks at the same times and differ only
// in cost; see bench/RESULTS.md. Hashed, the default, takes 32 bytes per empty slot and about 1,100 bytes per slot in
// use. Hierarchical takes 64 bytes per slot on each level in use, with at most 4,096 slots per level, regardless of the
// number of tasks. It moves a task once per level. Choose Hierarchical for many wheels with few tasks each.
//
// Most programs need one wheel. Use a second one for a different tick or a separate limit on concurrent jobs.
//
// # Overload
//
// Jobs run on workers, never on the event loop, so a slow job delays no other task while a worker is free. When no
// worker is free, due runs wait in a first-in, first-out queue, with at most one waiting run per task. Nothing is
// dropped. If a repeating task is still waiting when its next period starts, it misses that period. A missed period
// does not count towards Times. [TimeWheel.Stats] counts waiting and missed runs, and [WithMaxPending] bounds the
// number of tasks.
//
// A job that panics or calls runtime.Goexit does not affect other tasks. The failure is logged, counted and reported to
// the handlers set with [WithPanicHandler], and a repeating task runs again. A function passed to [JobFunc] may return
// an error, which is reported to the handlers set with [WithErrorHandler].
//
// # Introspection
//
// The cost of [TimeWheel.Stats], [TimeWheel.Occupancy], [TimeWheel.Hand], [TimeWheel.Upcoming] and
// [TimeWheel.LongestRuns] does not grow with the number of tasks, so these methods can be called several times a
// second. Package dashboard shows their results on a web page, and package metrics exports them to Prometheus. See
// examples/dashboard.
//
// # Lifecycle
//
// All methods may be called at any time. Tasks can be added before Start; their delays count from the call to AddTask.
// After Stop, no run starts, and adding a task returns [ErrStopped], but the remaining tasks can still be inspected,
// removed or drained. examples/shutdown stops a program without losing tasks.
//
// # What is not promised
//
// Removing or pausing a task, or stopping the wheel, does not interrupt a run in progress. A run counts as started
// slightly before its job is called. Runs of one task may overlap; [SkipIfRunning] prevents that. Tasks do not survive
// the process; use package durable for tasks that must.
//
// # Testing
//
// A program that uses the wheel can be tested in a testing/synctest bubble, where half an hour passes in microseconds.
// The wheel must be created and stopped inside the bubble. Package timewheeltest provides helpers.
//
// # Internals
//
// The event loop is the only goroutine that touches a slot. The state of a task is one word, changed by
// compare-and-swap, so if a run and a removal compete, exactly one wins. The file docs/design.md in the repository
// explains the parts, the way of a task through them, and which file to read first.
package timewheel
