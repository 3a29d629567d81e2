// SPDX-License-Identifier: MIT

// Package dashboard shows timing wheels and durable schedulers in the browser: first what is wrong with them, in words,
// since when, and where to look. For a wheel it shows the statistics of the last hour, the lateness of runs, running
// jobs, the next due tasks, the last panics, and any task by its key. For a durable scheduler it shows its tasks by
// state and kind, why tasks fail, the nodes that share the engine, and each task with its failed attempts.
//
//	rec := dashboard.NewRecorder()
//	tw, err := timewheel.New(10*time.Millisecond, 1024, rec.Option())
//	...
//	attempts := dashboard.NewAttemptRecorder()
//	s, err := durable.New(store, attempts.Option()) // or durable.Join
//	...
//	http.Handle("/debug/timewheel/", dashboard.Handler([]dashboard.Source{
//		dashboard.Wheel("sessions", tw, rec),
//		dashboard.Scheduler("orders", s, attempts),
//	}))
//
// The handler works under any path that ends with a slash, with or without [http.StripPrefix]. The page makes
// no request to any other host. With several sources it begins with an overview of their health.
//
// Anyone who can open the page sees task keys, panic stacks and the errors of durable tasks, and with [AllowPayloads]
// their payloads. Like net/http/pprof it belongs behind whatever guards your internal pages, and the guard must cover
// all paths below the handler's own. Requests for a Host that is not allowed ([AllowHosts]) are refused.
//
// # Health
//
// The page, the overview and the JSON report the same findings about a wheel, the worst first:
//
//	stopped      it does not run, because it was not started or was stopped
//	overloaded   a run has waited for a worker for a second or more
//	panicked     a job has panicked in the last five minutes
//	missed       a run was missed in the last five minutes
//
// And about a durable scheduler, present problems before recent ones:
//
//	stopped      it was shut down
//	failed       the store has failed, for example because the disk is full
//	away         the engine does not answer
//	unflushed    a crash of the engine's server can lose acknowledged tasks; with Source.WithEngine
//	refused      a connection to an old primary, or to another cluster, was refused in the last minute; with
//	             Source.WithEngine
//	lease        a node has missed two renewals of its lease that the engine would have answered, or it has run out
//	overloaded   a due run has waited for a worker for a second or more, here or on another node
//	unhandled    due tasks have a kind that no node handles
//	failing      more than half of the attempts of a kind have failed in the last five minutes, or in some shorter
//	             time up to now, and three or more.
//	             It is over when no task of the kind is left, or none has failed for ten seconds and three or more
//	             have succeeded since. Runs that were cancelled are no failures
//	parked       tasks are parked
//	taken        the lease of a node has run out in the last five minutes, and others took its tasks over. That a
//	             node is back is reported for five seconds. A node that leaves by Shutdown is not lost
//	backlog      overdue tasks are left, and the oldest was due a second ago or more; not while nothing starts
//
// Notes are not findings: a scheduler with only notes is well. They report paused kinds with the number of their due
// tasks, and the backlog of kinds whose runs wait for their limit. They also report a store whose disk is less than 5 %
// free. Below a kind whose runs wait for its limit the page names the group with the most due tasks. It shows how many
// it has, since when, and how long the tasks of other groups have waited.
//
// Next to a finding are links to the tasks concerned and, if control is allowed, buttons: unpark the tasks, pause the
// failing kind, resume a paused kind.
//
// Failing kinds are those of the present scheduler; everything else is about all nodes. An overloaded node reports that
// when it renews its lease.
//
// After an outage of the engine the page judges only new readings. Data that is more than 15 s old is shown with its
// age, and no node counts as late because of an older reading.
//
// # Incidents
//
// README.md has a table of incidents: what the page shows, what it means, and what to do. make incidents replays all of
// them with real processes.
//
// # Cost
//
// The handler reads the statistics of each wheel every five seconds and keeps the readings of an hour: 720, which take
// 0.12 MB a wheel. It stops when the wheel was stopped and its last run has ended, or when the handler is garbage. A
// recorder takes at most 0.8 MB, and adds some 100 ns to each run.
//
// A durable scheduler is also read every five seconds, and every second while a page shows it, once for all pages. The
// readings of an hour take 0.4 MB with 20 kinds and three nodes. No reading walks over the tasks. It asks for Stats,
// Counts, Nodes, Kinds, Paused, CatchUp and one key, and for due tasks of kinds that are paused or have no handler. A
// page also asks for the groups of due tasks of up to five kinds that wait for their limit. Slow questions take at most
// 1 % of the time. They are asked at least every 15 s if that takes at most a tenth of the time.
//
// Lists and grouped errors are read when they are opened or refreshed; each reads tasks for 150 ms at most, and says if
// it was cut. A page rereads the errors when the number of failing tasks has changed, for at most 0.4 % of the time.
//
// With no page open there is no goroutine. While pages are open, one goroutine for each displayed wheel reads the
// statistics three times a second. It sends one text to all pages that have read the last one. The number of tasks does
// not matter; bench/RESULTS.md has the cost.
//
// BenchmarkPage measures the processor time of a process with a million tasks, including the reader, as a share of one
// core of an AMD EPYC. For a wheel it is 0.15 % with a page open, and 0.03 % without. For a durable scheduler it is 0.1
// % to 0.3 %, and 0.1 % to 0.6 % without a page. So an open page adds less than the measurements vary, even if all
// tasks are parked, or overdue and without a handler.
//
// A page in a hidden tab is not open. A request for the state as JSON counts as a page for ten seconds. A page that
// reads too slowly gets fewer updates, each with everything it missed, and is eventually closed: neither the wheel nor
// the other pages wait for it.
//
// An open page holds up [http.Server.Shutdown] until it is closed. Cancel the server's BaseContext first, as
// examples/dashboard does. A browser opens six connections to a server without TLS, and each visible page keeps
// one: the seventh window has to wait.
//
// # Control
//
// The page is read-only, unless [AllowControl] is given. The function of [WithAudit] is called with every action, done
// or refused.
//
// # JSON
//
// The data of the page is also available as JSON, under the path of the handler. Times are in RFC 3339, durations in
// seconds. A request names its wheel with wheel=, or its scheduler with scheduler=. Without a name it is about the
// first. It names a task by key or by id.
//
//	GET  api/sources              {"sources": [name, kind, health, stats], "control": whether this request may
//	                              change something}; the kind is wheel or scheduler
//	GET  api/wheel?wheel=         the state, as below
//	GET  api/events?wheel=        the state as server-sent events, three a second
//	GET  api/task?wheel=&key=     {"task": the live task of the key, or null, "runs": its runs in progress,
//	                              "panics": its panics among the last ten of the recorder}
//	GET  api/search?wheel=&prefix=
//	                              {"tasks": the first 50 by key of those whose key begins with the prefix,
//	                              "matches": how many were found, "looked": how many were looked at, "whole":
//	                              whether that is all}; a search stops after 0.2 s, and then has found the task
//	                              whose key is the prefix nevertheless
//	POST api/remove               form with wheel and key: RemoveTask
//	POST api/run                  form with wheel and key: runs at the next tick, by Reschedule(key, 0)
//	POST api/reschedule           form with wheel, key and delay, such as 90s: Reschedule
//	POST api/pause, resume        form with wheel and key: Pause or Resume
//
//	GET  api/scheduler?scheduler=&after=
//	                              the state of a scheduler, with the points of the history after the one
//	                              with that n, or all if none has it
//	GET  api/tasks?scheduler=     {"tasks": a page of those that the query finds, "looked", "next": after= for
//	                              the next page, "cut": whether the time was up before the page was full, "now"}.
//	                              The query is that of durable.Query: state (scheduled, retrying, waiting,
//	                              running, parked or paused), repeating (true), prefix, kind, group, failure,
//	                              after, limit (1,000 at most)
//	GET  api/failures?scheduler=  {"groups": the 100 largest of the failing tasks: kind, text, tasks, parked,
//	                              example (a key), last; "more": groups that are not listed, "looked", "cut",
//	                              "now"}
//	GET  api/task?scheduler=&key= {"task": the task or null, "token", "attempts": before it is parked, or 0 if
//	                              its kind has no handler here, "trace", "group", "note", "shift" and
//	                              "deadline" of durable.Info, if it has them,
//	                              "failed": the last attempts of its run that failed, each with at and text,
//	                              "payload": size, version, and hidden: why it is not shown, or form (json, text
//	                              or hex), text and cut}
//	POST api/remove, run, reschedule, pause, resume
//	                              as above, with scheduler; a parked task runs again, and a paused one stays
//	                              paused until it is resumed
//	POST api/cancel               form with scheduler and key: Cancel; 409 if no run is in progress
//	POST api/pause-kind, resume-kind
//	                              form with scheduler and kind: PauseKind or ResumeKind
//	POST api/pause-all, resume-all
//	                              form with scheduler: PauseAll or ResumeAll
//	POST api/bulk                 form with scheduler, a query and do: count, remove, run, pause, resume or
//	                              cancel, for all tasks that the query finds. {"tasks": to how many it was done,
//	                              "more": whether the time was up, "next"}; a request takes two seconds at most,
//	                              and the same again, with next as after, does the rest. To run, the state must
//	                              be scheduled, retrying or parked. To cancel, it must be running or any, and
//	                              "tasks" counts runs; such a request takes five seconds at most
//
// The state of a wheel is one object:
//
//	wheel, now, running    its name; the time of the reading; whether it was started and not stopped
//	health                 well, whether nothing is wrong; text, in words; findings, each with kind, since (null
//	                       if unknown) and text; notes, in the same form: paused, backlog, or disk
//	dial                   tick, slots, layout; hand, the slot of the last tick; width and tasks, the numbers of
//	                       slots and of waiting tasks for each part of the wheel; see timewheel.Hand and
//	                       timewheel.Occupancy
//	stats                  the fields of timewheel.Stats, in lower case; oldest_wait is in seconds
//	lateness               runs, the number that ended in the last minute; tick, wait and run, each with p50, p99
//	                       and max: due until dispatched, until started, until ended. null without a recorder
//	upcoming               tasks that wait for a worker, and those due within a turn; see timewheel.Upcoming
//	runs                   the runs in progress, the longest first: key, due, dispatched, and for, the time since
//	                       it began (or was dispatched, if the wheel has no observer)
//	history                a point for each reading of the last hour: time, pending, waiting, running, and
//	                       started, missed and panicked a second, which are null for the first
//	panics                 the last ten of the recorder, the newest first: time, key, value, stack
//	whole                  true if history and panics are complete. Events after the first have what is new
//	                       since the event before; then only the newest two panics have a stack
//
// The state of a scheduler is one object:
//
//	scheduler, now         its name; the time of the reading
//	health                 as above; a finding or a note that names one kind of tasks has it as about
//	stats                  fields of durable.Stats, in lower case; oldest_wait, longest_run and since_start are in
//	                       seconds; on a node, pending and parked are those of all nodes
//	counts                 at, when the tasks were counted (null before the first count); whole; tasks, failing,
//	                       parked; paused, those that are by themselves
//	paused                 whether all kinds are paused
//	survival               whether acknowledged tasks survive the loss of the engine's server, in words; empty if
//	                       unknown, or without Source.WithEngine
//	kinds                  for each kind, at most 100: tasks, failing and parked of all nodes; paused, whether it
//	                       is by itself; nodes, how many handle it; and here, null if this scheduler has no
//	                       handler: attempts, least and most of the retry policy, missed (once, skip or all),
//	                       started, succeeded, failed, cancelled (which are not in failed) and parked since New,
//	                       started_rate and failed_rate a second over the last ten seconds, failure, the last error,
//	                       and last: the attempts of the last minute, with p50, p99 and max of late (due until
//	                       started) and run. last is null without a recorder; limit and cluster, its limits on this scheduler and on all nodes, null or
//	                       concurrency, rate, per and burst, of which 0 is no bound; waiting, the due runs that
//	                       wait here for them; largest, the group with most due tasks of the kind, while runs wait: group
//	                       (empty for tasks without one), exact, whether that is the whole name, tasks that are due of
//	                       it, of those of all groups, cut, whether there are more, which were due later, oldest, and
//	                       others, when the first of other groups was due, or null; largest is null if no task has a
//	                       group; running, the runs in progress, and longest, the seconds that the
//	                       longest of these has taken
//	nodes                  name, id, self, lease and left (null while the engine does not answer, or the answer is
//	                       old), late, whether it has missed two renewals, held, version, kinds, waiting, running,
//	                       workers, started; oldest_wait and since_start, in seconds; busiest, the kind with most runs
//	                       in progress: kind, running and longest, or null
//	read                   when each part was read, by the clock of this process, or null: counts, catch_up, nodes,
//	                       kinds, paused and groups. The tasks of the kinds are those of the counts
//	catch_up               left, cut, oldest, done (null if unknown); null if no overdue task is left
//	history                a point for each reading of the last hour: n, time, pending, waiting, running, parked,
//	                       and started and failed a second, which are null for the first
//
// A task of a scheduler has fields of durable.Info: key, kind, state, next (null if parked or paused), interval, cron,
// times (-1 is forever), attempts that have failed, and missed. It also has failure, failed_at (null if unknown), node,
// started (null if it is not running), generation (a string) and seq.
//
// A task of a wheel has key (empty for a timer), next, interval, times (-1 is forever), slot, circle, waiting
// and paused, as in timewheel.Info. Where a key is listed, bytes after the first 256 are cut off, and bytes that
// are not UTF-8 are replaced. Then exact is false, and id is what to request the task by, unless the key is
// longer than 8 KiB. A request takes any key, percent-encoded.
//
// An error is {"error": text}, with one of these statuses:
//
//	400  the key is missing, or the id or the delay is malformed
//	403  control is not allowed, or the Host is not
//	404  unknown wheel, scheduler or path, or no task to control
//	405  wrong method
//	409  a request to a wheel or a scheduler that was stopped
//	415  the body is not a form
//	500  the handler's http.ResponseWriter cannot send events
//	503  1,000 pages are open, or the store or the engine of a scheduler has failed
package dashboard
