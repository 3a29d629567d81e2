// SPDX-License-Identifier: MIT

// Package durable runs tasks that survive a process crash. It combines a [timewheel] with an engine that stores them.
//
// A task is data, not a closure: it has a key, the name of its kind, a payload and a due time. Each kind has a handler,
// a function that is called when a task of that kind is due, in this process or a later one.
//
//	e, err := pebble.Open(ctx, "/var/lib/shop/tasks") // package durable/pebble
//	...
//	s, err := durable.New(ctx, e)
//	...
//	err = s.Handle("order.recheck", func(ctx context.Context, run durable.Run) error {
//		return recheck(ctx, run.Key, run.Token)
//	})
//	err = s.Start()
//	...
//	err = s.AddTask(ctx, durable.Task{Key: "order:42", Kind: "order.recheck", Delay: 30 * time.Minute})
//	...
//	err = s.Shutdown(ctx) // closes the engine
//
// The package example is a complete program. An engine stores the tasks in one of the following:
//
//   - a directory, for one process: package durable/pebble
//   - PostgreSQL, for any number of processes: package durable/postgres
//   - memory, for tests: package durable/engine/memory. See the examples TestOnAnOwnEngine and TestOfACluster
//
// The engine of one process is the scheduler's own engine: see [engine.Owned]. Every other engine is shared.
//
// # Promises
//
//   - Durable. When a method returns nil, its effect is stored permanently. With package durable/pebble, it is on disk.
//   - At least once. A run is retried until its handler returns nil, it is given up, or its task is parked or
//     removed.
//   - Never early. No run starts before its due time. If a worker is free, the run starts less than one tick
//     ([WithTick]) late.
//   - Removed is removed. No run of a task starts after [Scheduler.RemoveTask] has returned nil.
//   - No flood. After downtime, overdue tasks start at a bounded rate on spare workers.
//   - No kind is forgotten. A task whose kind has no handler waits unchanged until a process handles the kind.
//
// This package's README.md gives the exact bounds and names the test for each promise. What a task survives depends on
// the engine: packages durable/pebble and durable/postgres say it. An engine never returns data that it knows to be
// damaged, but an error that wraps [ErrCorrupt]. If its own engine fails, a scheduler writes and runs nothing more, and
// look-ups still work: see [Scheduler.Err].
//
// # At least once
//
// A run is acknowledged after its handler returns nil. If the process ends first, the run is repeated. On a shared engine
// a node gathers acknowledgements for up to 50 ms, and until then the run is in progress for other nodes. [Run].Token is
// the same for every attempt of a run and different for every other run, so a handler can recognize work that is already
// done. See the examples of [Scheduler.Handle] and [Park].
//
//   - After an error or a panic, the handler is called again after a delay ([WithRetry], [RetryAfter]).
//   - After the last attempt of a run, a task with further runs gives the run up and continues with its next run.
//     [WithParkRepeating] parks the task instead. See its example.
//   - After the last attempt of its last run, or after [Park], a task is parked. A parked task remains stored with its
//     error, and does not run until [Scheduler.Reschedule] or [Scheduler.SetTask] is called for it.
//     [WithOnFailure] adds a task when that happens, or when a run is given up. See its example.
//   - A handler postpones a run that cannot be done yet with [Snooze], which is no failure.
//   - [WithTimeout] bounds the duration of an attempt. [Run.Complete] completes the run before its handler returns.
//   - A run with [Task].Expires is dropped once it is too late to start it.
//
// If the process ends during a run, the attempt counts as failed, so a run that crashes its process is eventually
// given up, or its task is parked. Other runs in progress at that moment also use up an attempt, on a shared engine also
// runs that were due in the next 75 ms. On an own engine, only attempts of runs that were overdue when it was opened are
// counted in this way, so a run is started once or twice more.
//
// # Removing and cancelling
//
// Once [Scheduler.RemoveTask] or [Scheduler.SetTask] has returned nil, no run of the old task starts. A run in progress is
// not interrupted, but its result no longer counts. [Scheduler.RemoveTaskWait] also waits for it to end, on any node, and
// [Scheduler.Cancel] cancels its context. See the example of RemoveTaskWait.
//
// # Many tasks
//
// [Scheduler.Find] lists tasks, [Scheduler.Failures] groups failing tasks by error, and [Scheduler.Bulk] changes many
// tasks at once. [Scheduler.Counts], [Scheduler.CatchUp] and [Scheduler.Nodes] report the overall state. The timewheel
// command and package dashboard display the same. See the Operate example. A kind with [WithHistory] keeps its last
// attempts: see its example. [Scheduler.LastHour] returns what all processes have done in the last hour, by minute.
//
// [Scheduler.Schedule] declares the repeating tasks of a program. It adds, changes and removes tasks until exactly the
// declared ones exist, even during a rolling deployment. See its example, and examples/nightly.
//
// # Payloads
//
// A [Kind] has a Go type for its payloads, and versions of them. See the examples of [KindOf] and [WithPayloadVersion]. A
// [Middleware] wraps handlers, for example to decrypt payloads. See the examples of [WithMiddleware].
//
// # After downtime
//
// A task that fell due while no process was running is overdue. A worker takes an overdue task only while no task that
// falls due now is waiting for a worker. So that one is delayed by at most one run from the backlog. The exception is a
// kind whose runs change from quick to slow: it may occupy all workers, but only once.
//
// [WithCatchUp] bounds how many overdue tasks start per second. The kinds take turns, and the tasks of a kind run
// oldest first. A kind whose runs take longer than 50 ms, or that has not run yet, gets at most half the workers for
// its overdue tasks. A repeating task runs once and then resumes its regular schedule, unless its kind says otherwise: see
// the example of [WithMissed].
//
// # Limits
//
// [WithConcurrency] and [WithRate] bound the runs of a kind in a scheduler, and [WithClusterConcurrency] and
// [WithClusterRate] those of all nodes together. A task held back by a limit occupies no worker and delays no other kind.
// Groups of its tasks take turns ([Task].Group). So a tenant with a million due tasks delays each other one by one run,
// unless runs of all kinds occupy all workers ([WithPoolSize]). See the example of WithConcurrency.
//
// # Time
//
// A task repeats at an interval, or on a calendar in a time zone with Cron: see examples/nightly, and the examples of
// [Next] and [Scheduler.SetTask]. With Task.MaxDelay, many SetTask calls for one key result in one run (debounce or
// throttle). [Scheduler.Pause] keeps a task from running, [Scheduler.PauseKind] a kind: see the example of PauseKind.
// [Scheduler.TuneLimits] replaces the limits of a kind while the programs run: see its example.
//
// Due times are wall-clock times, so that the next process can interpret them. The engine's clock decides when a task is
// due: for an own engine, that of the process. No task is lost when it is set. A delay that is given just after the
// machine was suspended may be too short, by a quarter of a second and the time that the engine takes to answer.
//
// If the clock was ahead by more than a minute and is set back, a repeating task may be due much too late, because its
// next run was computed meanwhile. Such tasks are found within two minutes, or when the next process starts. Each is
// then due at the next instant of its own interval or calendar, or after the rest of its wait, and a warning is logged
// once. A task that runs only once keeps its due time, as does one whose due time was chosen with At.
//
// # Many machines
//
// The schedulers that share an engine are its nodes. Every verb works on every node, and each task runs on one node at a
// time. See the examples of New for a cluster and for an unavailable engine. A program that runs no tasks calls [Connect].
// The promises hold across all nodes, with these differences:
//
//   - Removal. No run of the old task begins after RemoveTask, SetTask, Reschedule or Pause has returned nil on any node.
//     If another node is about to begin a run, the verb first waits for up to 100 ms, or twice the engine's response
//     time if that is longer. The run may have begun by then.
//   - Leases. When a node dies, other nodes take over its tasks within its lease ([WithLease]) plus half a second. As
//     soon as a node's Shutdown begins, other nodes take over every task that is not running.
//   - Fences. A node that loses its lease starts no runs, and the contexts of its runs in progress are cancelled with
//     [ErrFenced] as the cause. [Run].Fence increases with each attempt, so that another system can reject the effects
//     of an older attempt.
//   - Pauses. Once PauseKind or PauseAll has returned nil, no paused task starts on that node, and after two seconds no
//     paused task starts on any node. Tasks of a resumed kind can start again within two seconds.
//   - Outages. An unavailable engine does not stop the scheduler. During an outage, verbs return [ErrUnavailable] and
//     no run starts. A verb that returned ErrUnavailable may or may not have taken effect.
//   - Transactions. If the engine supports transactions, a handler can complete its run in the same transaction as its
//     own changes. The effects in that database then happen exactly once. Package durable/postgres has an example.
//
// Package [engine] defines the interfaces that a custom engine must implement. The file docs/design.md in the repository
// explains how the scheduler works.
package durable
