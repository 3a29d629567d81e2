// SPDX-License-Identifier: MIT

// Package dashboard shows timing wheels in the browser: first what is wrong with them, in words, since when,
// and where to look; then the accounts of the last hour, how late the runs are, which jobs are running, what
// waits and is due next, the last panics, and any task by its key.
//
//	rec := dashboard.NewRecorder()
//	tw, err := timewheel.New(10*time.Millisecond, 1024, rec.Option())
//	...
//	http.Handle("/debug/timewheel/", dashboard.Handler([]dashboard.Source{dashboard.Wheel("orders", tw, rec)}))
//
// The handler works under any path that ends with a slash, with or without [http.StripPrefix]. The page makes
// no request to any other host. With several sources it begins with an overview of their health.
//
// Anyone who can open the page sees task keys and panic stacks. Like net/http/pprof it belongs behind whatever
// guards your internal pages, and the guard must cover all paths below the handler's own. A request by a name
// that is not allowed ([AllowHosts]) is refused.
//
// # Health
//
// The page, the overview and the JSON say the same about a wheel, the worst first:
//
//	stopped      it does not run, because it was not started or was stopped
//	overloaded   a run has waited for a worker for a second or more
//	panicked     a job has panicked in the last five minutes
//	missed       a run was missed in the last five minutes
//
// # Cost
//
// The handler reads the accounts of each wheel every five seconds and keeps the readings of an hour: 720, which
// take 0.12 MB a wheel. It stops when the wheel was stopped and its last run has ended, or when the handler is
// free for the garbage collector. A recorder takes 0.8 MB at most, and some 100 ns of each run.
//
// With no page open there is no goroutine. While pages are open, one goroutine for each wheel shown reads the
// accounts three times a second. It sends one text to all pages that have read the last one, whatever the
// number of tasks; bench/RESULTS.md has the cost of that.
//
// A page in a hidden tab is not open. A request for the state as JSON counts as a page for ten seconds. A page
// that reads too slowly gets fewer updates, each with what it missed, and is closed in the end: neither the
// wheel nor the other pages wait for it.
//
// An open page holds up [http.Server.Shutdown] until it is closed. Cancel the server's BaseContext first, as
// examples/dashboard does. A browser opens six connections to a server without TLS, and each visible page keeps
// one: the seventh window has to wait.
//
// # Control
//
// The page is read-only, unless [AllowControl] is given.
//
// # JSON
//
// The data of the page is also available as JSON, under the path of the handler. Times are in RFC 3339,
// durations in seconds. A request names its wheel; without a name it is about the first. It names a task by key
// or by id.
//
//	GET  api/sources              {"sources": [name, kind, health, stats], "control": whether this request may
//	                              change something}; the kind is "wheel"
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
//
// The state is one object:
//
//	wheel, now, running    its name; the time of the reading; whether it was started and not stopped
//	health                 well, whether nothing is wrong; text, in words; findings, each with kind, since (null
//	                       if unknown) and text
//	dial                   tick, slots, layout; hand, the slot of the last tick; width and tasks, the numbers of
//	                       slots and of waiting tasks for each part of the wheel; see timewheel.Hand and
//	                       timewheel.Occupancy
//	stats                  the fields of timewheel.Stats, in lower case; oldest_wait is in seconds
//	lateness               runs, the number that ended in the last minute; tick, wait and run, each with p50, p99
//	                       and max: due until dispatched, until started, until ended. null without a recorder
//	upcoming               tasks that wait for a worker, and those due within a turn; see timewheel.Upcoming
//	runs                   the runs in progress, the longest first: key, due, handed, and for, the time since it
//	                       began (or was dispatched, if the wheel has no observer)
//	history                a point for each reading of the last hour: time, pending, waiting, running, and
//	                       started, missed and panicked a second, which are null for the first
//	panics                 the last ten of the recorder, the newest first: time, key, value, stack
//	whole                  true if history and panics are complete. Events after the first have what is new
//	                       since the event before; then only the newest two panics have a stack
//
// A task has key (empty for a timer), next, interval, times (-1 is forever), slot, circle and waiting, as in
// timewheel.Info. Where a key is listed, bytes after the first 256 are cut off, and bytes that are not UTF-8
// are replaced. Then exact is false, and id is what to request the task by, unless the key is longer than
// 8 KiB. A request takes any key, percent-encoded.
//
// An error is {"error": text}, with one of these statuses:
//
//	400  the key is missing, or the id or the delay is malformed
//	403  control is not allowed, or the Host is not
//	404  unknown wheel or path, or no task to control
//	405  wrong method
//	409  a run or a reschedule on a wheel that was stopped
//	415  the body is not a form
//	500  the handler's http.ResponseWriter cannot send events
//	503  1,000 pages are open
package dashboard
