// SPDX-License-Identifier: MIT

// Package durable runs tasks that survive a crash of the process: a [timewheel] on top of a store.
//
// A task is data, not a closure: a key, the name of its kind, a payload and a due time. Each kind has a handler,
// a function that is called when a task of the kind is due, in this process or in the next.
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
// The example of the package is a whole program.
//
// This package imports no database. The tasks are in one of these:
//
//   - a directory, for one process: package durable/pebble with [New]
//   - PostgreSQL, for any number of processes: package durable/postgres with [Join]
//   - memory, for tests: packages memstore and memengine. See the examples TestOnAStore and TestOfACluster
//
// # Promises
//
//   - Durable. When a method returns nil, its effect is stored for good. With package durable/pebble that means on disk.
//   - At least once. A run is repeated until its handler has returned nil, or its task is parked or removed.
//   - Never early. No run starts before its due time. With a free worker it starts less than one tick late ([WithTick]).
//   - Removed is removed. No run of a task starts after [Scheduler.RemoveTask] has returned nil.
//   - No flood. After downtime, overdue tasks start at a bounded rate on spare workers.
//   - No kind is forgotten. A task whose kind has no handler waits unchanged until a process handles the kind.
//
// The sections below have the limits of each promise. README.md of this package has the exact bounds, and names the test
// of each promise.
//
// # What survives what
//
// The store decides: see the list of crashes, power cuts, full disks and damage in package durable/pebble. A store
// that fails ends the scheduler: it stops writing and running, [Scheduler.Err] returns the cause, and look-ups
// still work. A store never returns data that it knows to be damaged: it returns an error that wraps [ErrCorrupt].
//
// # At least once
//
// A run is acknowledged after its handler has returned nil. If the process ends first, the next process runs
// it again. [Run].Token is the same on every attempt of a run and different for every other run. With it a
// handler recognizes work that is already done. See the examples of [Scheduler.Handle] and [Park].
//
//   - After an error or a panic the handler is called again. The delay roughly doubles each time, up to a bound
//     ([WithRetry]). A handler can choose the delay with [RetryAfter].
//   - [Snooze] puts a run off that cannot be done yet. That is no failed attempt.
//   - After the last attempt, or after [Park], the task is parked: it stays, shows its error ([Info.Failure]), and
//     does not run until [Scheduler.Reschedule] or [Scheduler.SetTask] is called for it.
//   - A run with [Task].Expires is dropped if it is too late to start it.
//   - [WithTimeout] bounds an attempt. After the timeout, nil completes the run only if the handler has called
//     [Run.Complete]. Complete also records a note, such as "nothing to do".
//
// A run whose process ends is a failed attempt, so a task that crashes its process is eventually parked. Tasks running
// at the same time use up an attempt as well, and may be parked too. On a store only overdue runs count in this way, so
// a task is started once or twice more before it is parked.
//
// A due task whose kind has no handler in this process is not parked. [Stats].Unhandled counts it, and the log names
// the kind once. The task runs as an overdue task when a later [Scheduler.Handle], or the next process, handles
// the kind.
//
// # Removing and cancelling
//
// After [Scheduler.RemoveTask] or [Scheduler.SetTask] has returned nil, no run of the old task starts. A run counts
// as started slightly before its handler is called. A run in progress is not interrupted, but its result no longer
// counts.
//
//   - [Scheduler.RemoveTaskWait] also waits for the end of the run, on any node. It has an example.
//   - [Scheduler.Cancel] cancels the context of the run. [Scheduler.Bulk] with [DoCancel] cancels all runs that a
//     query finds.
//   - [Scheduler.RemovePrefix] removes all tasks whose keys have a prefix.
//
// # Middleware
//
// A [Middleware] wraps handlers, for tracing, log fields or encrypted payloads, for instance. [WithMiddleware] wraps
// those of all kinds, and [WithKindMiddleware] those of one. WithMiddleware has examples.
//
// # Payloads
//
// A payload is bytes. A [Kind] has a Go type for its payloads, and stores them as JSON. [KindOf] makes one, and has an
// example. A payload that does not fit its type parks its task at once, with an error that says why.
//
// To change the form of a kind's payloads, give the new form a version and a function that upgrades older payloads.
// During a deployment, new processes run every payload, and old processes leave new payloads alone. [WithPayloadVersion]
// has an example.
//
//	orders, err := durable.KindOf(s, "order.recheck", recheck, durable.WithPayloadVersion(2, upgrade))
//	...
//	err = orders.Add(ctx, "order:42", Order{Amount: 30}, durable.In(30*time.Minute))
//
// # After downtime
//
// A task that fell due while no process was running is overdue. Overdue tasks run on spare workers: a worker takes one
// only while no task that falls due now is waiting for a worker. So the backlog delays such a task by one overdue
// run at most. The exception is a kind that turns from quick to slow: it may occupy all workers once.
//
// [WithCatchUp] bounds how many overdue tasks start per second. The kinds take turns, and the tasks of a kind run
// oldest first. A kind whose runs take longer than 50 ms, or that has not run yet, gets at most half of the workers for
// its overdue tasks.
//
// A repeating task runs once and rejoins its grid. The periods it missed are counted. With [WithMissed] a
// kind can skip that run, or run every missed period. [WithMissedAge] bounds how old a missed run may be.
// See the example of WithMissed.
//
// # Limits
//
// [WithConcurrency] bounds how many runs of a kind are running at the same time in a scheduler, and [WithRate]
// how many start within a time. [WithClusterConcurrency] and [WithClusterRate] bound the runs of all nodes
// together. A task that waits for a limit uses no worker and delays no other kind. WithConcurrency has an example.
//
//	err = s.Handle("mail.send", send, durable.WithConcurrency(50), durable.WithRate(100, time.Second, 20))
//
// In a kind with a limit, groups of tasks take turns. A [Task].Group is a tenant, for instance. Tasks without a group
// form one as well. A group with a million due tasks delays the others by one run each, unless the runs of all kinds
// take all workers ([WithPoolSize]). [Scheduler.Groups] counts the tasks of each group.
//
// # Calendars
//
// A task repeats at an interval, or by a calendar in a time zone:
//
//	err = s.AddTask(ctx, durable.Task{Key: "report", Kind: "report",
//		Cron: "CRON_TZ=Europe/Berlin 30 2 * * *"})
//
// A daily task runs once on each day. When Berlin sets its clocks forward there is no 2:30, and the task runs at 3:00.
// When the clocks are set back, it runs at the first 2:30 alone. A task whose hour is a * follows the clock instead:
// "30 * * * *" runs at both. [Task] has the rules, and [Next] shows when a task is due. After downtime a calendar is
// treated as an interval is.
//
// Many tasks with one calendar fall due at one instant. Task.Jitter spreads them: with a Jitter of 10 minutes each task
// runs at its own instant within the 10 minutes after 2:30, the same on each day. See the Jitter example of
// [Scheduler.SetTask].
//
// # Pausing
//
// [Scheduler.Pause] keeps a task from running until [Scheduler.Resume], or until SetTask replaces it.
// [Scheduler.PauseKind] does so for the tasks of a kind, and [Scheduler.PauseAll] for all tasks. Pauses outlive the
// process. Tasks that fell due during a pause are treated as after downtime. See the example of PauseKind.
//
// # Bursts
//
// With Task.MaxDelay, many calls of SetTask for one key result in one run: after the last call (debounce), or one in
// each Delay (throttle). The run has the last payload. [Scheduler.SetTask] has an example of each.
//
//	err = s.SetTask(ctx, durable.Task{Key: "doc:7", Kind: "index", Delay: time.Second, MaxDelay: time.Minute})
//
// # Time
//
// Due times are wall-clock times, because the next process must understand them. Within the window
// ([WithLookAhead]) the wheel measures on the monotonic clock. A run can be early only if the wall clock was set
// back or slowed down after the task entered the window, and by no more than that.
//
// No task is lost when the wall clock is set. A task within the window keeps its distance from now. A task
// beyond it follows the new time, and may be up to half a window late.
//
// # Many machines
//
// [Join] makes a scheduler one node of many, on any number of machines. They share an [engine.Engine], such as the one
// of package durable/postgres. Every verb works on every node, and each task runs on one node at a time. Join has
// examples of a cluster and of an unavailable engine.
//
// A program that runs no tasks can [Connect] instead: every verb works, and it is not a node. Before it adds tasks, it
// declares their kinds, with [KindOf] or [Scheduler.Declare].
//
// The promises hold for all nodes together, with these differences:
//
//   - Time. The clock of the engine decides when a task is due. No run starts before it is due by that clock.
//   - Removal. No node decides to start the old run after RemoveTask, SetTask or Reschedule has returned nil on any
//     node. A run that had started just before may still enter its handler: after at most 100 ms, or as long as
//     the engine takes to answer.
//   - Leases. When a node dies, other nodes take over its tasks within its lease ([WithLease]) and half a second. When
//     its Shutdown begins, they take over at once every task that is not running.
//   - Fences. A node that loses its lease starts nothing, and the contexts of its runs are cancelled with [ErrFenced] as
//     the cause. [Run].Fence increases with each attempt, so that another system can refuse the effect of an older one.
//   - Pauses. When PauseKind or PauseAll has returned nil, no run starts on that node, and after two seconds none on any
//     other. The runs of a resumed kind begin within two seconds.
//   - Kinds. A node runs only the kinds that it handles, and other nodes run the others.
//   - Outages. An unavailable engine ends nothing. Verbs return [ErrUnavailable], no run starts, and work continues
//     when the engine is back. A verb that returned ErrUnavailable may or may not have taken effect.
//   - Transactions. If the engine has transactions, a handler can complete its run together with its own rows. Then its
//     effects there happen exactly once. Package durable/postgres has an example.
//
// # Operating
//
// [Scheduler.Find] lists tasks, [Scheduler.Failures] groups the failing ones by error, and [Scheduler.Bulk] changes
// many at once. [Scheduler.Counts], [Scheduler.CatchUp] and [Scheduler.Nodes] report the overall state. See the example
// Operate. The command timewheel and package dashboard show the same to people.
//
// # Inside
//
// Package [engine] is the contract for a store or an engine of your own. docs/design.md of the repository explains
// how the scheduler works.
package durable
