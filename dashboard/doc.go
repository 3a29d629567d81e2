// SPDX-License-Identifier: MIT

// Package dashboard shows a timing wheel in the browser: its hand, where the tasks wait, which jobs are
// running, how late the runs are, and any task by its key.
//
//	rec := dashboard.NewRecorder()
//	tw, err := timewheel.New(10*time.Millisecond, 1024,
//		timewheel.WithObserver(rec.Observe), timewheel.WithPanicHandler(rec.Panicked))
//	...
//	http.Handle("/debug/timewheel/", dashboard.Handler(tw, dashboard.WithRecorder(rec)))
//
// The handler works under any path that ends with a slash, with or without [http.StripPrefix]. The page makes
// no request to any other host.
//
// Anyone who can open the page sees task keys and panic stacks. Like net/http/pprof it belongs behind whatever
// guards your internal pages, and the guard must cover all paths below the handler's own.
//
// # Cost
//
// With no page open there is no goroutine and no timer, and the recorder checks one flag for each run. While
// pages are open, one goroutine for each wheel shown reads the accounts three times a second. It sends one text
// to all pages that have read the last one, whatever the number of tasks; bench/RESULTS.md has the cost of
// that.
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
// durations in seconds. A request names its wheel; without a name it is about the first.
//
//	GET  api/wheels               {"wheels": [names], "control": whether this request may change something}
//	GET  api/wheel?wheel=         the state, as below
//	GET  api/events?wheel=        the state as server-sent events, three a second
//	GET  api/task?wheel=&key=     the live task of the key, as below, or null
//	POST api/remove               form with wheel and key: RemoveTask
//	POST api/run                  form with wheel and key: runs at the next tick, by Reschedule(key, 0)
//	POST api/reschedule           form with wheel, key and delay, such as 90s: Reschedule
//
// The state is one object:
//
//	wheel, now, running    its name; the time of the reading; whether it was started and not stopped
//	dial                   tick, slots, layout; hand, the slot of the last tick; width and tasks, the numbers of
//	                       slots and of waiting tasks for each part of the wheel; see timewheel.Hand and
//	                       timewheel.Occupancy
//	stats                  the fields of timewheel.Stats, in lower case; oldest_wait is in seconds
//	lateness               runs, the number in the last minute while a page was open; tick, wait and run, each
//	                       with p50, p99 and max: due until dispatched, until started, until ended. null
//	                       without a recorder, or if no page was open before
//	upcoming               tasks that wait for a worker, and those due within a turn; see timewheel.Upcoming
//	runs                   the runs in progress, the longest first: key, exact, due, handed, and for, the time
//	                       since it began (or was dispatched, if the wheel has no observer)
//	history                a point for each second of the last five minutes in which a page was open: time,
//	                       pending, waiting, running, and started, missed and panicked a second, which are null
//	                       if no page was open the second before
//	panics                 the last ten of the recorder, the newest first: time, key, exact, value, stack
//	whole                  true if history and panics are complete. Events after the first have what is new
//	                       since the event before; then only the newest two panics have a stack
//
// A task has key (empty for a timer), exact, next, interval, times (-1 is forever), slot, circle and waiting,
// as in timewheel.Info. In the state a key longer than 256 bytes is cut off, and bytes that are not UTF-8 are
// replaced; exact is false then. A request takes any key, percent-encoded.
//
// An error is {"error": text}, with one of these statuses:
//
//	400  the key is missing, or the delay is malformed
//	403  control is not allowed
//	404  unknown wheel or path, or no task to control
//	405  wrong method
//	409  a run or a reschedule on a wheel that was stopped
//	500  the handler's http.ResponseWriter cannot send events
//	503  1,000 pages are open
package dashboard
