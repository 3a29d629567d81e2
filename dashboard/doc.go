// SPDX-License-Identifier: MIT

// Package dashboard serves a web page that shows the state of timing wheels and durable schedulers. The page begins
// with the current problems: what is wrong, since when, and where to look. For a wheel, it shows the statistics of the
// last hour, the lateness of runs, running jobs, upcoming tasks, recent panics, and any task by key. For a durable
// scheduler, it shows the tasks by state and kind, why tasks fail, the nodes that share the engine, and each task with
// its failed attempts.
//
//	rec := dashboard.NewRecorder()
//	tw, err := timewheel.New(10*time.Millisecond, 1024, rec.Option())
//	...
//	attempts := dashboard.NewAttemptRecorder()
//	s, err := durable.New(ctx, engine, attempts.Option())
//	...
//	http.Handle("/debug/timewheel/", dashboard.Handler([]dashboard.Source{
//		dashboard.Wheel("sessions", tw, rec),
//		dashboard.Scheduler("orders", s, attempts),
//	}))
//
// The handler works under any path that ends with a slash, with or without [http.StripPrefix]. The page makes no
// requests to other hosts. With several sources, it starts with an overview of their health.
//
// Anyone who can open the page can read task keys, panic stacks and the errors of durable tasks. With [AllowPayloads],
// the page also shows task payloads. As with net/http/pprof, protect the handler in the same way as your other internal
// pages. The protection must cover every path below the handler's own. The handler refuses requests whose Host is not
// allowed; see [AllowHosts].
//
// # Health
//
// The page, the overview and the JSON report the same findings for a wheel, worst first:
//
//	stopped      the wheel is not running: it was never started, or it was stopped
//	overloaded   a run has been waiting for a worker for a second or more
//	panicked     a job has panicked in the last five minutes
//	missed       a run was missed in the last five minutes
//
// For a durable scheduler they report these findings, current problems before recent ones:
//
//	stopped      the scheduler was shut down
//	failed       the own engine has failed, for example because the disk is full
//	away         the engine does not do what the node needs in order to run tasks, although it may answer other calls:
//	             see durable.NodeStats.AwayWhy. The text says whether runs go on
//	drained      every node is drained, so nothing starts
//	unread       the page gets no answer from the engine, so its other data is old; the text says whether runs go on
//	unflushed    a crash of the engine's server can lose acknowledged tasks; requires Source.WithEngine
//	refused      a connection to an old primary, or to another cluster, was refused in the last minute; requires
//	             Source.WithEngine
//	lease        the lease of a node has expired, or the node has missed two renewals that the engine would have
//	             answered
//	overloaded   a due run has been waiting for a worker for a second or more, on this node or another. If other
//	             workers are free, the text names the slow kind that has its share of the workers
//	unhandled    no node handles the kind of some due tasks
//	failing      of the attempts of a kind in the last five minutes, or in any shorter period up to now, more than
//	             half, and at least three, have failed. Cancelled runs do not count as failures. The finding ends
//	             when fewer than a quarter of the attempts of a minute fail, or when the kind has no tasks left. It
//	             also ends when no attempt has failed for ten seconds and at least three have succeeded since
//	parked       some tasks are parked
//	paused       a kind, or all kinds, have been paused for an hour or longer, and tasks are due
//	taken        the lease of a node has expired in the last five minutes, and other nodes have taken over its tasks.
//	             The return of a node is reported for five seconds. A node that leaves through Shutdown is not
//	             reported
//	backlog      overdue tasks are left, and the oldest was due at least a second ago; not reported while no runs
//	             start
//	counting     the tasks have not been counted yet, or not since an outage. The last count stays, with its age
//
// Notes are not findings: a scheduler with nothing but notes is healthy. The page turns amber if due tasks have waited for
// the end of a pause for a minute, and after an hour the pause is a finding.
//
// Notes report each paused kind with its number
// of due tasks, who paused it and why, and the backlog of each kind with a limit. They also report a store whose
// disk is less than 5 % free, and an engine that takes 100 ms or longer to answer. Notes of the program itself follow:
// see [Source.WithNotes]. Below a kind whose runs are waiting because of its limit, the page names the group with the most
// due tasks. It shows how many due tasks the group has, how long they have been due, and how long the tasks of other
// groups have waited.
//
// Next to each finding are links to the affected tasks and, if control is allowed, buttons. The buttons unpark the
// tasks, pause the failing kind, or resume a paused kind.
//
// The failing finding covers the attempts of this scheduler only; everything else covers all nodes. An overloaded node
// reports its overload when it renews its lease.
//
// After an engine outage, the page judges only new readings. Data that is more than 15 s old is shown with its age, and
// no node counts as late because of an older reading.
//
// # Incidents
//
// README.md has a table of incidents: what the page shows, what it means, and what to do. Running "make incidents"
// replays all of them with real processes.
//
// # Cost
//
// The handler reads the statistics of each wheel every five seconds and keeps the readings of the last hour: 720, which
// take 0.12 MB per wheel. It stops reading once the wheel has been stopped and its last run has ended, or once the
// handler has been garbage-collected. A recorder takes at most 0.8 MB, and adds some 100 ns to each run.
//
// A durable scheduler is also read every five seconds. While any page shows it, it is read every second, once for all
// pages. An hour of readings takes 0.4 MB with 20 kinds and three nodes. No reading iterates over all tasks.
//
// The last hour, which survives a restart, comes from durable.Scheduler.LastHour. It is read while a page shows it, every
// 30 s, once for all pages.
//
// A reading calls Stats, Counts, Nodes, Kinds, Paused and CatchUp, and looks up one key. A page also asks for
// the groups of due tasks of up to five kinds whose runs are waiting because of a limit. Slow queries are spaced out so that they take at most 1 % of the time. They are
// still repeated at least every 15 s, unless that would take more than a tenth of the time.
//
// Lists and grouped errors are read when they are opened or refreshed. Each read examines tasks for at most 150 ms, and
// reports whether it was cut off. An open page rereads the errors when the number of failing tasks changes, which takes
// at most 0.4 % of the time.
//
// With no page open, the handler runs no goroutines. While pages are open, one goroutine for each displayed wheel reads
// the statistics three times a second. It sends the same text to every page that has read the previous one. The cost
// does not depend on the number of tasks; see bench/RESULTS.md.
//
// BenchmarkPage measures the CPU time of a process with a million tasks, including the reader, as a share of one core
// of an AMD EPYC. For a wheel it is 0.15 % with a page open, and 0.03 % without. For a durable scheduler it is 0.1 % to
// 0.3 % with a page open, and 0.1 % to 0.6 % without. An open page therefore adds less than the variation between
// measurements, even if all tasks are parked, or are overdue and have no handler.
//
// A page in a hidden tab is not open. A request for the state as JSON counts as an open page for ten seconds. A page
// that reads too slowly gets fewer updates, each of which includes everything it missed, and is eventually closed.
// Neither the wheel nor the other pages wait for it.
//
// An open page delays [http.Server.Shutdown] until the page is closed. Cancel the server's BaseContext first, as
// examples/dashboard does. A browser opens at most six connections to a server without TLS, and each visible page holds
// one, so a seventh window has to wait.
//
// # Control
//
// The page is read-only unless [AllowControl] is given. The function passed to [WithAudit] is called for every action,
// whether it was carried out or refused.
//
// # JSON
//
// The data of the page is also available as JSON, under the handler's path. Times are in RFC 3339 format, and durations
// are in seconds. A request names its wheel with wheel=, or its scheduler with scheduler=. Without a name, the first
// one is used. A request names a task by key or by id.
//
//	GET  api/sources              {"sources": [name, kind, health, stats], "control": whether this request may
//	                              make changes}; the kind is wheel or scheduler
//	GET  api/wheel?wheel=         the state of a wheel, as described below
//	GET  api/events?wheel=        the state of a wheel as server-sent events, three a second
//	GET  api/task?wheel=&key=     {"task": the live task with the key, or null, "runs": its runs in progress,
//	                              "panics": its panics among the recorder's last ten}
//	GET  api/search?wheel=&prefix=
//	                              {"tasks": the first 50 tasks, by key, whose keys begin with the prefix,
//	                              "matches": the number of tasks found, "looked": the number of tasks examined,
//	                              "whole": whether all tasks were examined}; a search stops after 0.2 s, but
//	                              always finds the task whose key equals the prefix
//	POST api/remove               form with wheel and key: RemoveTask
//	POST api/run                  form with wheel and key: runs the task at the next tick, with Reschedule(key, 0)
//	POST api/reschedule           form with wheel, key and delay, such as 90s: Reschedule
//	POST api/pause, resume        form with wheel and key: Pause or Resume
//
//	GET  api/scheduler?scheduler=&after=
//	                              the state of a scheduler, with the points of the history whose n is greater
//	                              than after, or with all points if after is missing or too great
//	GET  api/tasks?scheduler=     {"tasks": a page of the tasks that match the query, "looked", "next": the value
//	                              of after= for the next page, "cut": whether time ran out before the page was
//	                              full, "now"}. The query is that of durable.Query: state (scheduled, retrying,
//	                              waiting, running, parked or paused), repeating and failing (true), prefix, kind, group,
//	                              failure, after, limit (at most 1,000)
//	GET  api/failures?scheduler=  {"groups": the 100 largest groups of failing tasks, each with kind, text, tasks,
//	                              parked, given_up, example (a key) and last; "more": the number of groups not listed,
//	                              "looked", "cut", "now"}
//	GET  api/sets?scheduler=      {"sets": the declared sets, each with prefix, version (-1 if none was applied in
//	                              full), unfinished (a version that is not applied in full, or -1), at (when the
//	                              version was applied first, or null), by (the node that did so), tasks (at most
//	                              1,000; -1 if unknown) and of these failing and parked, due (of the next run, or
//	                              null) and next (its task), "now"}
//	GET  api/hour?scheduler=&node=
//	                              what the processes of a node, or of all nodes, have done in the last hour, also
//	                              before they were restarted: {"first": the beginning of the first of 60 minutes,
//	                              "nodes": the names of all nodes, "marks": the starts and ends of processes,
//	                              each with node, at and ended, "kinds": the busiest eight, and all others with
//	                              an empty kind, each with succeeded, failed and overdue for each minute, "now"}.
//	                              An overdue of -1 is unknown. See durable.Scheduler.LastHour
//	GET  api/history?scheduler=   {"past": the last 20 attempts in the history, newest first, each with its key,
//	                              kind, group, outcome, attempt, due, ended, late and took (in seconds), node,
//	                              token and text (the error or the note), "next": the value of after= for the
//	                              next page, "now"}. The query is that of durable.HistoryQuery: key, kind,
//	                              prefix, group, node, outcome (several with commas), from and before (times),
//	                              after, limit (at most 1,000)
//	GET  api/task?scheduler=&key= {"task": the task or null, "token", "attempts": the number of attempts before
//	                              the task is parked, or 0 if its kind has no handler here, "trace", "group",
//	                              "note", "shift", "deadline", "until", "meta", "expires" and "snoozes" of durable.Info, if set,
//	                              "failed": the last failed attempts of its run, each with at and text,
//	                              "payload": size, version, and either hidden, the reason why it is not shown,
//	                              or form (json, text or hex), text and cut}
//	POST api/remove, run, reschedule, pause, resume
//	                              as above, with scheduler; a parked task runs again, but a paused task stays
//	                              paused until it is resumed
//	POST api/cancel               form with scheduler and key: Cancel; 409 if no run is in progress
//	POST api/pause-kind, resume-kind
//	                              form with scheduler, kind and why, which may be empty: PauseKind or ResumeKind
//	POST api/pause-all, resume-all
//	                              form with scheduler and why: PauseAll or ResumeAll
//	POST api/drain-node, undrain-node
//	                              form with scheduler and node: Drain or Undrain
//	POST api/tune-limits          form with scheduler, kind, why, and any of concurrency, rate, cluster_concurrency and
//	                              cluster_rate: TuneLimits; the period and the burst of a rate stay as they are
//	POST api/tune-pool, tune-catchup
//	                              form with scheduler, why and n: TunePoolSize or TuneCatchUp. In these three, a
//	                              number that is missing is that of the code
//	POST api/bulk                 form with scheduler, a query and do: count, remove, run, pause, resume or
//	                              cancel, for all tasks that match the query. {"tasks": the number of tasks to
//	                              which the action was applied, "more": whether time ran out, "next"}; a request
//	                              takes at most two seconds, and the same request with after set to next
//	                              continues. For run, the state must be scheduled, retrying or parked. For
//	                              cancel, it must be running or unset, and "tasks" counts runs; such a request
//	                              takes at most five seconds
//
// The state of a wheel is one object:
//
//	wheel, now, running    the wheel's name; the time of the reading; whether the wheel was started and not stopped
//	health                 well, whether nothing is wrong; watch, whether nothing is wrong but due tasks have
//	                       waited for the end of a pause for a minute; text, a summary; findings, each with kind, since (null
//	                       if unknown) and text; notes, in the same form: paused, drained, leaving,
//	                       limited, slow, cpu, vacuum or disk, or program for a note of the program
//	dial                   tick, slots, layout; hand, the slot of the last tick; width and tasks, the numbers of
//	                       slots and of waiting tasks for each part of the wheel; see timewheel.Hand and
//	                       timewheel.Occupancy
//	stats                  the fields of timewheel.Stats, in lower case; oldest_wait is in seconds
//	lateness               runs, the number that ended in the last minute; tick, wait and run, each with p50, p99
//	                       and max: due until dispatched, until started, until ended. null without a recorder
//	upcoming               tasks waiting for a worker, and tasks due within a turn; see timewheel.Upcoming
//	runs                   the runs in progress, longest first: key, due, dispatched, and for, the time since the
//	                       run started (or was dispatched, if the wheel has no observer)
//	history                a point for each reading of the last hour: time, pending, waiting, running, and
//	                       started, missed and panicked per second, which are null for the first point
//	panics                 the recorder's last ten panics, newest first: time, key, value, stack
//	whole                  true if history and panics are complete. Each event after the first has only what is
//	                       new since the previous event, and a stack for the newest two panics at most
//
// The state of a scheduler is one object:
//
//	scheduler, now         the scheduler's name; the time of the reading
//	health                 as for a wheel; about is the kind of tasks that a finding or a note names, if it names
//	                       one
//	stats                  fields of durable.Stats, in lower case; oldest_wait, longest_run and since_start are in
//	                       seconds; on a node, pending and parked cover all nodes; overdue, the tasks that have been
//	                       due for a second and do not run, whatever they wait for, of all kinds; overdue_more, whether
//	                       there may be more; oldest, when the first of them was due, or null
//	counts                 at, when the tasks were counted (null before the first count); whole; tasks, failing,
//	                       parked; paused, the number of individually paused tasks
//	paused                 whether all kinds are paused
//	survival               whether acknowledged tasks survive the loss of the engine's server, in words; empty if
//	                       unknown, or without Source.WithEngine
//	unheard                why this node hears no signals of its engine, and looks for tasks ten times a second;
//	                       empty if it hears them
//	tuning                 what operators have set in place of the code: pool_size and catch_up, which are 0 if they are
//	                       that of the code, and by: who, why and at by "pool size", "catch-up" or "kind NAME"
//	kinds                  for each kind, at most 100: tasks, failing and parked of all nodes; paused, whether the
//	                       kind is individually paused; nodes, the number of nodes that handle it; overdue,
//	                       overdue_more and oldest, as in stats; and here, null if this scheduler has no handler
//	kinds.here             attempts, least and most of the retry policy; missed (once, skip or all); started,
//	                       succeeded, failed (without cancelled runs), cancelled, parked, given_up and interrupted since New; tuned, whether an
//	                       operator has set other limits than the code;
//	                       park_repeating, whether repeating tasks are parked too;
//	                       started_rate and failed_rate per second over the last ten seconds; failure, the last
//	                       error; last, the attempts of the last minute, with p50, p99 and max of late (due until
//	                       started) and run, or null without a recorder; limit and cluster, its limits on this
//	                       scheduler and on all nodes: null, or concurrency, rate, per and burst, where 0 means no
//	                       bound; waiting, the number of due runs waiting here for the limits; running, the number
//	                       of runs in progress; longest, the duration of the longest of these in seconds; largest
//	kinds.here.largest     the group with the most due tasks of the kind, while runs are waiting: group (empty for
//	                       tasks without one); exact, whether group is the whole name; tasks, its due tasks; of,
//	                       the due tasks of all groups; cut, whether there are more tasks, which became due later;
//	                       oldest; others, when the first task of another group was due, or null. null if no task
//	                       has a group
//	nodes                  name, id, self, lease, left (null while the engine does not answer, or if the answer is
//	                       old), late (whether the node has missed two renewals), held, version, kinds, waiting,
//	                       running, workers, started, drained, leaving, away (the engine did not do what the node
//	                       needs to run tasks); oldest_wait and since_start, in seconds; busiest, the kind with the
//	                       most runs in progress: kind, running and longest, or null
//	read                   when each part was read, by the clock of this process, or null: counts, catch_up, nodes,
//	                       kinds, paused and groups. The tasks of the kinds come from the counts
//	catch_up               left, cut, oldest, done (null if unknown); null if no overdue tasks are left
//	history                a point for each reading of the last hour: n, time, pending, waiting, overdue, running,
//	                       parked, and started and failed per second, which are null for the first point
//
// A task of a scheduler has these fields of durable.Info: key, kind, state, next (null if the task is parked or
// paused), interval and cron. It has the fields times (-1 means forever), attempts (the number of failed attempts) and
// missed. It also has failure, given_up (runs given up in a row), failed_at (null if unknown), node, started (null if the task is not running), generation
// (a string) and seq.
//
// A task of a wheel has key (empty for a timer), next, interval, times (-1 means forever), slot, circle, waiting and
// paused, as in timewheel.Info. In a list, a key is cut off after 256 bytes, and bytes that are not valid UTF-8 are
// replaced. For a key changed in this way, exact is false. Its id identifies the task in requests, unless the key is
// longer than 8 KiB. A request can contain any key, percent-encoded.
//
// An error is {"error": text}, with one of these statuses:
//
//	400  the key is missing, or the id or the delay is malformed
//	403  control is not allowed, or the Host is not allowed
//	404  there is no such wheel, scheduler or path, or no task with the key to change
//	405  the method is wrong
//	409  the wheel or the scheduler was stopped
//	415  the body is not a form
//	500  the handler's http.ResponseWriter cannot send events
//	503  1,000 pages are open, or the engine of a scheduler has failed
package dashboard
