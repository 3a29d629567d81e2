// SPDX-License-Identifier: MIT

// Package dashboard shows a timing wheel in the browser: the hand on its way round, where the tasks wait,
// what runs, what is late, and any task by its key.
//
//	rec := dashboard.NewRecorder()
//	tw, err := timewheel.New(10*time.Millisecond, 1024,
//		timewheel.WithObserver(rec.Observe), timewheel.WithPanicHandler(rec.Panicked))
//	...
//	http.Handle("/debug/timewheel/", dashboard.Handler(tw, dashboard.WithRecorder(rec)))
//
// The handler works under any path that ends with a slash, with or without [http.StripPrefix]. The page asks
// no other host for anything. Who may open it sees the keys of the tasks and the stacks of panics: like
// net/http/pprof it belongs behind what guards your internal pages, and the guard must cover all paths below
// the handler's own.
//
// # Cost
//
// With no page open there is no goroutine and no timer, and the recorder looks at one flag for each run.
// While pages are open one goroutine for each wheel that is shown reads the accounts three times a second and
// sends one text to all pages that have read the last one, whatever the number of tasks; bench/RESULTS.md has
// what that takes. A page in a hidden tab is not open. Whoever asks for the state as JSON counts as a page for
// ten seconds. A page that reads too slowly gets fewer updates, each with what it missed, and in the end none:
// neither the wheel nor the other pages wait for it.
//
// A page that is open holds up [http.Server.Shutdown] until it is closed. Cancel the server's BaseContext
// first, as examples/dashboard does. A browser opens six connections to a server without TLS, and each page
// that can be seen keeps one: the seventh window has to wait.
//
// # Control
//
// The page is for reading, unless [AllowControl] is given.
//
// # JSON
//
// What the page shows can be had as JSON, under the path of the handler. Times are in RFC 3339, durations in
// seconds. The wheel is asked for by its name, which may be left out for the first.
//
//	GET  api/wheels               {"wheels": [names], "control": whether this request might change something}
//	GET  api/wheel?wheel=         the state, as below
//	GET  api/events?wheel=        the state as server-sent events, three a second
//	GET  api/task?wheel=&key=     the live task of the key, as below, or null
//	POST api/remove               form with wheel and key: RemoveTask
//	POST api/run                  form with wheel and key: runs at the next tick, by Reschedule(key, 0)
//	POST api/reschedule           form with wheel, key and delay, such as 90s: Reschedule
//
// The state is one object:
//
//	wheel, now, running    its name; the time of the look; whether it was started and not stopped
//	dial                   tick, slots, layout; hand, the slot of the last tick; width and tasks, which have for each
//	                       part of the wheel its number of slots and of the tasks that wait there; see
//	                       timewheel.Hand and timewheel.Occupancy
//	stats                  the fields of timewheel.Stats, in lower case; oldest_wait is in seconds
//	lateness               runs, the number of those in the last minute while somebody looked on; tick, wait and
//	                       run, each with p50, p99 and max: due until dispatched, until started, until ended.
//	                       null without a recorder, or if nobody looked before
//	upcoming               tasks that wait for a worker, and those due within a turn; see timewheel.Upcoming
//	runs                   runs that go on, the longest first: key, exact, due, handed, and for, the time since
//	                       it began (or was dispatched, if the wheel has no observer)
//	history                a point for each second of the last five minutes in which somebody looked on: time,
//	                       pending, waiting, running, and started, missed and panicked a second, which are null if
//	                       nobody looked the second before
//	panics                 the last ten that the recorder has, the last first: time, key, exact, value, stack
//	whole                  true if history and panics are all there is. The events after the first have what
//	                       came since the event before; of more than two panics the others have no stack then
//
// A task has key (empty for a timer), exact, next, interval, times (-1 is for ever), slot, circle and
// waiting, as in timewheel.Info. In the state a key that is longer than 256 bytes is cut off, and what is no
// UTF-8 in it is replaced; exact is false then. A request takes any key, percent-encoded.
//
// An error is {"error": text}: 400 for a key that is missing and a bad delay, 403 if control is not allowed,
// 404 for an unknown wheel or path and if there is no task to control, 405 for another method, 409 for a run
// or a reschedule if the wheel was stopped, 500 if events cannot be sent through what is around the handler,
// and 503 if 1,000 pages are open.
package dashboard
