// SPDX-License-Identifier: MIT

// Package timewheel keeps tasks by the million, each known by a key, and runs each at its due time: once, a
// number of times, or until it is removed.
//
//	tw := timewheel.NewTimeWheel(10*time.Millisecond, 1024)
//	tw.Start()
//	defer tw.Stop()
//
//	err := tw.AddTask(&timewheel.Task{
//		Key:      "order-4711",
//		Interval: 30 * time.Minute,
//		Job:      func(task *timewheel.Task) { release(task.Key) },
//	})
//	...
//	err = tw.RemoveTask("order-4711") // it was paid
//
// # Accuracy
//
// A run never starts before it is due: due is the time of the call plus the delay, on the monotonic clock. It
// starts less than one tick after, plus what the machine's scheduler takes, plus the wait for a free worker.
// A finer tick is more exact and costs nothing while nothing is due. The runs of a repeating task keep their
// grid: run k is due at the first due time plus k-1 intervals, wherever the ticks fall and however late a run
// was. Setting the wall clock moves nothing.
//
// After a stall (a collection, a suspended process, a machine under load) what is overdue runs at once, in
// due order. A repeating task runs once and rejoins its grid, and the periods that it missed are counted.
//
// # Size
//
// The number of slots bounds nothing; see [New]. A live task takes 80 bytes, some 50 more for its place in
// the key map, and the key itself. Adding, removing and rescheduling take the same time whatever is there
// already, and a tick takes time for what is due at it and nothing else. A wheel with nothing due soon
// sleeps.
//
// # Layouts
//
// [WithLayout] chooses how the tasks that wait are kept. [Hashed], the default, is one wheel of slots, each
// of which groups its tasks by how many more turns they wait. [Hierarchical] is several wheels, each of which
// turns once while the next one moves on a slot; tasks move down a wheel as they near. With either the same
// runs happen at the same time. They differ in cost, and in most of it hardly: with a million live tasks on 2
// cores an add takes 1.05 of the time with Hierarchical, an add and a removal 1.01, a move 0.86, adding and
// firing a million 1.01, and a task has 136 bytes with both (bench/RESULTS.md). Five million tasks were added
// in 0.88 of the time, for a collection costs 0.71. Hierarchical takes 4 bytes for a slot and 16 more on each
// level, in use or not, and keeps a level once it was needed, where Hashed takes 24 for an empty slot and
// some 900 for one in use; it touches a task once more for each level the task comes down. Choose it for many
// wheels with few tasks each, or for many millions of tasks; choose Hashed for a wheel of very many slots, or
// if in doubt.
//
// # One wheel is enough
//
// A wheel has one goroutine of its own while it runs (two with [WithExecutor]) and a pool that bounds how
// many jobs run at once. A program needs one wheel for one tick, or one for each such bound.
//
// # Overload
//
// Jobs run on the pool, never on the event loop: a slow job delays no other task as long as a worker is free.
// When none is, due runs wait, first in, first out, each task once at most; nothing is dropped. A repeating
// task that still waits when its next period comes has missed that period, which does not use up its Times.
// [TimeWheel.Stats] tells what waits and what was missed, and [WithMaxPending] bounds the tasks.
//
// A job that panics or calls runtime.Goexit harms nothing else: that is logged, counted, and told to the
// handler of [WithPanicHandler], and a repeating task goes on.
//
// # Looking on
//
// [TimeWheel.Stats], [TimeWheel.Dial], [TimeWheel.Upcoming] and [TimeWheel.Running] tell what the wheel is
// doing, at a cost that does not grow with the number of tasks, and may be asked several times a second. The
// module timewheel/dashboard shows them as a page, the module metrics gives them to Prometheus.
//
// # Lifecycle
//
// All methods work at any time. Before Start tasks can be added and count from their AddTask. After Stop no
// run starts; adds return [ErrStopped], and what is left can still be asked for, removed or drained.
//
// # What is not promised
//
// Removing a task does not interrupt a run that goes on, and neither does stopping the wheel; a run that has
// begun by then may not have come to the first statement of its job. Runs of tasks that are due at the same
// time start in no promised order, and runs of one task may overlap; [SkipIfRunning] prevents that. The key
// map keeps the room of the most keys that it ever had. Nothing survives the process.
//
// # Testing
//
// A program that uses the wheel can be tested in a testing/synctest bubble, where half an hour passes in
// microseconds. The wheel must be made and stopped inside the bubble.
//
// # Inside
//
// Two authorities share the work and do not overlap. The index, a concurrent map, tells which task a key
// means; the event loop, one goroutine, owns every slot and tells when a task is due. Verbs act on the index
// and on the state of the entry at once, on the caller's goroutine, and send the entry to the loop, which
// then makes its place in the wheel fit. The state is one word, changed by compare-and-swap, so that of a run
// and a removal exactly one wins. The file entry.go has the states, loop.go how the loop sleeps, ring.go and
// hierarchy.go the wheel itself.
package timewheel
