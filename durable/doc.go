// SPDX-License-Identifier: MIT

// Package durable runs tasks that survive a process crash. It combines a [timewheel] with a store.
//
// A task is data, not a closure: it has a key, the name of its kind, a payload and a due time. Each kind has a handler,
// a function that is called when a task of that kind is due, in this process or a later one.
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
//	...
//	err = s.Shutdown(ctx) // closes the store
//
// The package example is a complete program. The examples are on pkg.go.dev, and in the files example*_test.go of this
// package.
//
// This package itself does not depend on a database. Tasks are stored in one of the following:
//
//   - a directory, for one process: package durable/pebble with [New]
//   - PostgreSQL, for any number of processes: package durable/postgres with [Join]
//   - memory, for tests: packages memstore and memengine. See the examples TestOnAStore and TestOfACluster
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
// The sections below describe the limits of each promise. This package's README.md gives the exact bounds and names the
// test for each promise.
//
// # What survives what
//
// What a task survives depends on the store. Package durable/pebble lists the effects of crashes, power failures, full
// disks and damage. If the store fails, the scheduler stops writing and running tasks, and [Scheduler.Err] returns the
// cause. Look-ups still work. A store never returns data that it knows to be damaged. It returns an error that wraps
// [ErrCorrupt] instead.
//
// # At least once
//
// A run is acknowledged after its handler returns nil. If the process ends first, the next process runs it again.
// [Run].Token is the same for every attempt of a run and different for every other run. A handler can use it to
// recognize work that is already done. See the examples of [Scheduler.Handle] and [Park].
//
//   - After an error or a panic, the handler is called again after a delay. The delay roughly doubles each time, up to
//     a bound ([WithRetry]). A handler can choose its own delay with [RetryAfter].
//   - After the last attempt of a run, a task with further runs gives the run up and continues with its next run.
//     [Info.GivenUp] counts such runs in a row, and [Info.Failure] has the last error until a run is complete.
//     [WithParkRepeating] parks the task instead.
//   - After the last attempt of its last run, or after [Park], a task is parked. A parked task remains stored with its
//     error, and does not run until [Scheduler.Reschedule] or [Scheduler.SetTask] is called for it. It then begins a
//     new run, with another token.
//   - A handler postpones a run that cannot be done yet with [Snooze]. The attempt does not count as failed.
//   - [WithTimeout] bounds the duration of an attempt. After the timeout, returning nil completes the run only if the
//     handler has called [Run.Complete]. Complete also records a note, such as "nothing to do".
//   - A run with [Task].Expires is dropped once it is too late to start it.
//
// If the process ends during a run, the attempt counts as failed, so a run that crashes its process is eventually
// given up, or its task is parked. Other runs in progress at that moment also use up an attempt. On a store, only
// attempts of overdue runs are counted in this way, so a run is started once or twice more.
//
// A due task whose kind has no handler in this process is not parked. [Stats].Unhandled counts it, and the log names
// the kind once. On a shared engine the log names a kind that no node handles. The task runs as an overdue task once a
// later call of [Scheduler.Handle], or the next process, registers a handler for the kind.
//
// # Removing and cancelling
//
// Once [Scheduler.RemoveTask] or [Scheduler.SetTask] has returned nil, no run of the old task starts. A run counts as
// started slightly before its handler is called. A run in progress is not interrupted, but its result no longer counts.
//
//   - [Scheduler.RemoveTaskWait] also waits for a run in progress to end, on any node. See its example.
//   - [Scheduler.Cancel] cancels the run's context. [Scheduler.Bulk] with [DoCancel] cancels all runs that match a
//     query.
//   - [Scheduler.RemovePrefix] removes all tasks whose keys have a given prefix.
//
// # Middleware
//
// A [Middleware] wraps handlers, for example to trace runs or to decrypt payloads. [WithMiddleware] applies to all
// kinds, [WithKindMiddleware] to one kind. See the examples of WithMiddleware.
//
// # Declared schedules
//
// [Scheduler.Schedule] declares the repeating tasks of a program. It adds, changes and removes tasks until exactly the
// declared ones exist, even during a rolling deployment. See the example of Schedule. A declared task whose run has
// failed for the last time continues with its next run. One that is parked stays parked until its declaration changes
// or it is rescheduled.
//
// # History
//
// A task is gone once its last run is complete. A kind with [WithHistory] keeps its last attempts, even if their tasks
// are gone. [Scheduler.History] finds them by kind, key, outcome and other fields. See the example of WithHistory.
//
// # Payloads
//
// A payload is a byte slice. A [Kind] has a Go type for its payloads and stores them as JSON. See the example of
// [KindOf]. An empty payload is the zero value of that type. If a payload does not fit its Go type, the task is parked at
// once, with an error that says where, but contains no part of the payload. [Kind.Payload] decodes the payload of a task
// that a look-up has returned.
//
// To change the format of a kind's payloads, give the new format a version number and provide a function that upgrades
// older payloads. During a deployment, new processes handle payloads of every version, and old processes skip payloads
// of a newer version. See the example of [WithPayloadVersion].
//
//	orders, err := durable.KindOf(s, "order.recheck", recheck, durable.WithPayloadVersion(2, upgrade))
//	...
//	err = orders.Add(ctx, "order:42", Order{Amount: 30}, durable.In(30*time.Minute))
//
// # After downtime
//
// A task that fell due while no process was running is overdue. Overdue tasks run on spare workers. A worker takes an
// overdue task only while no task that falls due now is waiting for a worker. So a task that falls due now is delayed
// by at most one run from the backlog. The exception is a kind whose runs change from quick to slow: it may occupy all
// workers, but only once.
//
// [WithCatchUp] bounds how many overdue tasks start per second. The kinds take turns, and the tasks of a kind run
// oldest first. A kind whose runs take longer than 50 ms, or that has not run yet, gets at most half the workers for
// its overdue tasks.
//
// After downtime, a repeating task runs once and then resumes its regular schedule. The missed periods are counted.
// With [WithMissed], a kind can skip that run or make up for every missed period. [WithMissedAge] bounds the age of a
// missed run. See the example of WithMissed.
//
// # Limits
//
// [WithConcurrency] bounds how many runs of a kind are in progress at the same time in a scheduler, and [WithRate]
// bounds how often runs start. [WithClusterConcurrency] and [WithClusterRate] bound the runs of all nodes together. A
// task held back by a limit occupies no worker and delays no other kind. See the example of WithConcurrency.
//
//	err = s.Handle("mail.send", send, durable.WithConcurrency(50), durable.WithRate(100, time.Second, 20))
//
// If a kind has a limit, groups of its tasks take turns. A [Task].Group can be a tenant, for example. All tasks without
// a group form one group. A group with a million due tasks delays each of the other groups by one run, unless runs of
// all kinds together occupy all workers ([WithPoolSize]). [Scheduler.Groups] counts the tasks in each group.
//
// # Calendars
//
// A task can repeat at an interval, or on a calendar schedule in a time zone:
//
//	err = s.AddTask(ctx, durable.Task{Key: "report", Kind: "report",
//		Cron: "CRON_TZ=Europe/Berlin 30 2 * * *"})
//
// A daily task runs once each day. When Berlin sets its clocks forward, 2:30 does not exist, and the task runs at 3:00.
// When the clocks are set back, it runs only at the first 2:30. A task that runs every hour, or more than once an hour,
// follows the clock instead: "30 * * * *" runs both times.
//
// Expressions follow the rules of cron(8). 7 is Sunday, and a day field that begins with a * restricts nothing.
// L is the last day of a month and LW its last workday, 15W the workday nearest to the 15th, MON#1 the first Monday, and
// 5L the last Friday. [Task] has the rules, and [Next] computes due times.
//
//	47 6 * * 7             every Sunday, as on every Debian machine
//	30 2 * * SAT-SUN       every Saturday and Sunday
//	5 12 */100,1-7 * 1     the first Monday of each month, also for cron(8)
//	5 12 * * MON#1         the same
//	0 18 LW * *            the last day of each month from Monday to Friday
//
// After downtime, a calendar schedule is treated like an interval. A run that fails for the last time is given up, and
// the task runs again at the next instant of its calendar.
//
// Tasks with the same calendar schedule fall due at the same instant. Task.Jitter spreads them out. With a Jitter of 10
// minutes, each task runs at its own time within the 10 minutes after 2:30, and at the same time every day. See the
// Jitter example of [Scheduler.SetTask].
//
// # Pausing
//
// [Scheduler.Pause] keeps a task from running until [Scheduler.Resume] is called or SetTask replaces the task.
// [Scheduler.PauseKind] pauses all tasks of a kind, and [Scheduler.PauseAll] pauses all tasks. Pauses survive a
// restart. Tasks that fell due during a pause are treated as if they had fallen due during downtime. See the example of
// PauseKind.
//
// # Bursts
//
// With Task.MaxDelay, many SetTask calls for one key result in one run after the last call (debounce), or in one run
// per Delay (throttle). The run receives the last payload. [Scheduler.SetTask] has an example of each.
//
//	err = s.SetTask(ctx, durable.Task{Key: "doc:7", Kind: "index", Delay: time.Second, MaxDelay: time.Minute})
//
// # Time
//
// Due times are wall-clock times, so that the next process can interpret them. Within the window ([WithLookAhead]), the
// wheel uses the monotonic clock. A run can be early only if the wall clock was set back or slowed down after the task
// entered the window. It is early by no more than the time that the clock lost.
//
// No task is lost when the wall clock is set. A task within the window keeps its remaining delay. A task beyond the
// window follows the new time, and may run up to half a window late.
//
// If the clock was ahead by more than a minute and is set back, a repeating task may be due much too late, because its
// next run was computed meanwhile. Such tasks are found within two minutes, or when the next process starts. Each is
// then due at the next instant of its own interval or calendar, or after the rest of its wait, and a warning is logged
// once. A task that runs only once keeps its due time, as does one whose due time was chosen with At.
//
// # Many machines
//
// [Join] returns a scheduler that is one of many nodes, on any number of machines. The nodes share an [engine.Engine],
// such as the one in package durable/postgres. Every verb works on every node, and each task runs on one node at a
// time. See the examples of Join for a cluster and for an unavailable engine.
//
// A program that runs no tasks can call [Connect] instead. Every verb works, but the program is not a node. Before the
// program adds tasks, it must declare their kinds with [KindOf] or [Scheduler.Declare].
//
// The promises hold across all nodes, with these differences:
//
//   - Time. The engine's clock decides when a task is due. No run starts before it is due by that clock. A
//     delay that is given just after the machine was suspended may be too short, by a quarter of a second and the time
//     that the engine takes to answer.
//   - Removal. No node decides to start the old run after RemoveTask, SetTask or Reschedule has returned nil on any
//     node. A run that started just before may still enter its handler, within 100 ms or within the engine's response
//     time if that is longer.
//   - Leases. When a node dies, other nodes take over its tasks within its lease ([WithLease]) plus half a second. As
//     soon as a node's Shutdown begins, other nodes take over every task that is not running.
//   - Fences. A node that loses its lease starts no runs, and the contexts of its runs in progress are cancelled with
//     [ErrFenced] as the cause. [Run].Fence increases with each attempt, so that another system can reject the effects
//     of an older attempt.
//   - Pauses. Once PauseKind or PauseAll has returned nil, no paused task starts on that node, and after two seconds no
//     paused task starts on any node. Tasks of a resumed kind can start again within two seconds.
//   - Kinds. A node runs only the kinds that it handles, and leaves other kinds to other nodes.
//   - Outages. An unavailable engine does not stop the scheduler. During an outage, verbs return [ErrUnavailable] and
//     no run starts. Work continues when the engine is back. A verb that returned ErrUnavailable may or may not have
//     taken effect.
//   - Transactions. If the engine supports transactions, a handler can complete its run in the same transaction as its
//     own changes. The effects in that database then happen exactly once. Package durable/postgres has an example.
//
// # Operating
//
// [Scheduler.Find] lists tasks, [Scheduler.Failures] groups failing tasks by error, and [Scheduler.Bulk] changes many
// tasks at once. [Scheduler.Counts], [Scheduler.CatchUp] and [Scheduler.Nodes] report the overall state. See the
// Operate example. The timewheel command and package dashboard display the same information.
//
// # Inside
//
// Package [engine] defines the interfaces that a custom store or engine must implement. The file docs/design.md in the
// repository explains how the scheduler works.
package durable
