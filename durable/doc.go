// SPDX-License-Identifier: MIT

// Package durable runs tasks that survive the process: a [timewheel] on top of a store.
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
// When a method returns nil, its effect is in the store for good. With package durable/pebble that means on
// disk.
//
// # What survives what
//
// The [engine.Store] decides. The documentation of package durable/pebble, the store on disk, lists what it
// survives, crashes and power cuts included. Package memstore, the store in memory, is for tests. This
// package imports no database.
//
// A store that fails, whatever the cause, ends the scheduler: it stops writing and running, [Scheduler.Err]
// returns the cause, and look-ups still work. A store never returns data that it knows to be damaged. It
// returns an error that wraps [ErrCorrupt].
//
// # At least once
//
// A run is acknowledged after its handler has returned nil. If the process ends first, the next process runs
// it again. [Run.Token] is the same on every attempt of a run and different for every other run. A handler
// can use it to recognize work that is already done.
//
// If a handler returns an error or panics, it is called again after a delay that roughly doubles each time,
// up to a bound ([WithRetry]). Then the task is parked: it stays, shows its error ([Info.Failure]), and does
// not run until [Scheduler.Reschedule] or [Scheduler.SetTask] is called for it. A handler that knows better
// returns [Park], for an error that no further attempt can change, or [RetryAfter]. Both are found in an
// error that wraps them. One that has found nothing to do, or has more to say, calls [Run.Complete] with a note
// before it returns nil.
//
// [WithTimeout] bounds an attempt. After that nil completes the run only if Complete was called.
//
// A run whose process ends is a failed attempt, too, so that a task which ends its process is parked. On a
// [engine.Store] that holds for overdue runs, and of those for the first thousands after each start. What falls due
// while the process is running has its start counted only on an [engine.Engine]. So on a store a task is started once
// or twice more before it is parked, and a repeating task of a kind with [MissedSkip] is not parked for it.
// What is running while another task ends the process uses up an attempt as well, and is parked after as many
// such crashes as it has attempts, though it did not cause them. [Scheduler.Reschedule] gives it all of its
// attempts again.
//
// A due task whose kind has no handler in this process is not parked. It stays in the store unchanged and is
// counted in [Stats].Unhandled; each such kind is logged once. Once a later [Scheduler.Handle], or the next
// process, handles the kind, the task runs as an overdue task. So a release that forgets a handler delays its
// tasks but does not change them.
//
// After RemoveTask or SetTask has returned nil, no run of the old task starts. A run counts as started
// slightly before its handler is called. A run that has started is not interrupted, but its result no longer
// counts. [Scheduler.RemoveTaskWait] waits for its end, on whatever node, and [Scheduler.Cancel] cancels its context.
// [Scheduler.Bulk] with [DoCancel] cancels all runs that a search finds.
//
// # Payloads
//
// A payload is bytes. [HandleJSON], [Scheduler.AddJSON] and [Scheduler.SetJSON] make it JSON. A payload that
// does not fit its type parks its task at once, with an error that says why.
//
// To change the form of the payloads of a kind, give the new form a version, and say how an old payload
// becomes one of that version ([WithPayloadVersion]):
//
//	err = durable.HandleJSON(s, "order.recheck", recheck, durable.WithPayloadVersion(2, upgrade))
//
// While a deploy is under way, processes of both versions run. Those of the new version run everything. Those
// of the old version leave payloads of the new one alone, as they leave kinds alone that they do not handle.
//
// # After downtime
//
// Tasks that fell due while no process ran are overdue. Their kinds take turns, and the tasks of a kind run
// oldest first. They run on spare workers: a worker takes one only while no task that falls due now is waiting
// for a worker. The backlog uses only spare capacity, and never drains faster than a bounded rate
// ([WithCatchUp]). If tasks that fall due now need all workers, overdue tasks wait. So the backlog delays such
// a task by one overdue run at most, except for a kind that turns from quick to slow, which may occupy all
// workers once.
//
// A kind is slow if its runs take longer than 50 ms, or if it has not run yet. So a kind that hangs is slow. Its
// overdue tasks get at most half of the workers. Slow kinds together leave one eighth of the workers free, and at
// least one, for what falls due now and for overdue tasks of the other kinds. A pool of one worker cannot leave any
// free. Of a kind that has more overdue tasks than are in memory, others are read past these when it is known to be
// slow, or has not ended a run for two seconds.
//
// A repeating task runs once and rejoins its grid; the periods it missed are counted. With [WithMissed] a
// kind can skip that run, or run every missed period. [WithMissedAge] bounds how old a missed run may be.
//
// # Limits
//
// [WithConcurrency] bounds how many runs of a kind are running at the same time in a scheduler, and [WithRate]
// how many start within a time. [WithClusterConcurrency] and [WithClusterRate] bound those of all nodes of an
// engine together. What waits for a limit has no worker, and little of it is in memory, so that other kinds
// are not delayed, whatever is due:
//
//	err = s.Handle("mail.send", send, durable.WithConcurrency(50), durable.WithRate(100, time.Second, 20))
//
// Tasks that have a [Task].Group, such as a tenant, take turns: when a run of the kind may begin, it is that
// of the next group, and in that the task that is due first. Tasks without one are a group, too. So a group
// that has a million due delays the others by one run each. The limit must be what they wait for: if the runs
// of all kinds take all workers ([WithPoolSize]), what falls due waits for a worker, whatever its group.
// [Scheduler.Groups] counts the due tasks of each group, and a [Query] finds those of one.
//
// On a store 2,048 tasks of the kind are in memory. The rest is read as these run, first for the groups that
// have fewest in memory. A group of which nothing has been read yet misses its turns: to pass over a million
// tasks of another takes some seconds. If more than 2,048 groups have something due, those that are due first
// take turns, and others join when half of them have run.
//
// On an engine each node claims in turns what is due. It continues where it has come to, and looks at a thousand
// groups at a time, also of those that have nothing due.
//
// # Calendars
//
// A task repeats at an interval, or by a calendar in a time zone:
//
//	err = s.AddTask(ctx, durable.Task{Key: "report", Kind: "report",
//		Cron: "CRON_TZ=Europe/Berlin 30 2 * * *"})
//
// On the day on which the clocks of Berlin are set forward there is no 2:30, and it runs at 3:00, when they
// are set. On the day on which they are set back it runs at the first 2:30. So it runs once on each day. A
// task whose hour is a * follows what the clock shows instead: "30 * * * *" runs at both. [Task] has the
// rules, and [Next] shows when a task is due. After downtime a calendar is a grid as any other.
//
// Many tasks with one calendar fall due at one instant. Task.Jitter spreads them: with a Jitter of 10 minutes
// each runs at an instant of its own within the 10 minutes after 2:30, the same on each day.
//
// [Scheduler.Pause] keeps a task from running until [Scheduler.Resume], or until SetTask replaces it. What it
// has missed until then is treated in the same way. [Scheduler.PauseKind] does so for all tasks of a kind,
// and [Scheduler.PauseAll] for all tasks: what falls due meanwhile is overdue when it is resumed.
//
// # Bursts
//
// With Task.MaxDelay, many SetTask of one key are one run, after the last of them (debounce), or one in each
// Delay (throttle):
//
//	err = s.SetTask(ctx, durable.Task{Key: "doc:7", Kind: "index", Delay: time.Second, MaxDelay: time.Minute})
//
// The run has the payload of the last SetTask. [Scheduler.SetJSON] is the same for a payload that is JSON.
//
// AddTask with a Delay, where ErrDuplicateTaskKey is no error, is a throttle as well, but what happens during the
// run is lost: the key is taken until the run has ended.
//
// # Time
//
// Due times are wall-clock times, because the next process must understand them. Within the window
// ([WithLookAhead]) the wheel measures on the monotonic clock. A run can be early only if the wall clock was set
// back or slowed down after the task entered the window, and by no more than that.
//
// No task is lost when the wall clock is set. A task within the window keeps its distance from now. A task
// beyond it follows the new time, and may be up to half a window late. If the clock was set back, the window
// grows by that amount.
//
// # Many machines
//
// [New] makes a scheduler of an [engine.Store], for one process. [Join] makes one node of many, on any number of
// machines, over an [engine.Engine], such as the one on PostgreSQL in package durable/postgres. Every node does
// every verb, and each task runs on one node at a time. A program that runs no tasks can [Connect] instead:
// it does every verb and is no node. To add tasks it gives their kinds to Handle, with handlers that are
// never called. What is written above holds for all nodes together, with these differences:
//
//   - The engine's clock decides when a task is due, and no clock of a node does. No run starts before it is
//     due by that clock.
//   - After RemoveTask, SetTask or Reschedule has returned nil on any node, no node decides to start the old
//     run. A run that was confirmed just before may still enter its handler: after at most 100 ms, or as long
//     as the engine takes to answer.
//   - A node has a lease ([WithLease]) and renews it. When a node dies, other nodes take its tasks over within the lease
//     and half a second. When Shutdown begins they do so at once with all that is not running. When the lease of a living
//     node runs out, for it was suspended or cut off, it starts nothing, and the contexts of its runs are cancelled with
//     [ErrFenced] as the cause. While a machine is suspended its own clock stands. So afterwards a run may still enter
//     its handler that was confirmed in the 100 ms before, and it is cancelled within half a lease. [Run].Fence is
//     greater on each later attempt, so that an effect elsewhere can refuse an older one.
//   - A run is acknowledged some milliseconds after its handler has returned. No verb and no Shutdown waits for that.
//   - An attempt counts from its start, whenever it is due. So a task that ends its process is parked after its attempts.
//   - A node runs only the kinds that it handles, and leaves the others to nodes that handle them. Stats.Unhandled is 0.
//   - When PauseKind or PauseAll has returned nil on a node, no run starts there. The other nodes start none
//     after two seconds: each reads every half second what is paused, and starts nothing while it does not
//     know it.
//     The runs of a kind that is resumed begin within two seconds.
//   - An engine that is away ends nothing. Verbs return [ErrUnavailable], nothing starts, and all continues
//     when the engine is back. A verb whose answer was lost returns nil if the node can tell that it has taken
//     effect. If not, its error is ErrUnavailable, and the verb may or may not have taken effect. The node does
//     not try it again by itself: another node may have removed the task in the meantime.
//   - The backlog after an outage drains at the rate of WithCatchUp divided by the nodes, on spare workers.
//   - A handler can complete its run in a transaction together with its own rows, if the engine has
//     transactions. Then its effects there happen exactly once. [Run.Completion] is what such an engine uses.
//   - Stats counts what this node has done, apart from Pending and Parked, which are those of the engine.
//     These are as old as [Scheduler.Counts] says.
//
// # Inside
//
// docs/design.md of the repository has the parts, who owns what, and the way of a task through them.
package durable
