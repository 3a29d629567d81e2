// SPDX-License-Identifier: MIT

// Package dashboard shows a timing wheel in the browser: the hand on its way round, where the tasks wait, what
// runs, what is late, and any task by its key.
//
//	rec := dashboard.NewRecorder()
//	tw, err := timewheel.New(10*time.Millisecond, 1024,
//		timewheel.WithObserver(rec.Observe), timewheel.WithPanicHandler(rec.Panicked))
//	...
//	http.Handle("/debug/timewheel/", dashboard.Handler(tw, dashboard.WithRecorder(rec)))
//
// The handler works under any path that ends with a slash, with or without [http.StripPrefix]. The page asks no
// other host for anything. Who may open it sees the keys of the tasks and the stacks of panics: like
// net/http/pprof it belongs behind what guards your internal pages.
//
// # Cost
//
// With no page open it costs nothing: no goroutine is there, and the recorder looks at one flag for each run.
// While pages are open one goroutine for each wheel that is shown reads the accounts three times a second and
// sends one text to all pages, whatever the number of tasks; bench/RESULTS.md has what that takes. A page in a
// hidden tab is not open. A page that reads too slowly gets fewer updates, and in the end none: neither the wheel
// nor the other pages wait for it.
//
// A page that is open holds up [http.Server.Shutdown] until it is closed. Cancel the server's BaseContext
// first, as examples/dashboard does.
//
// # Control
//
// The page is for reading, unless [AllowControl] is given.
//
// # JSON
//
// What the page shows can be had as JSON, under the path of the handler. Times are in RFC 3339, durations in
// seconds. wheel is the name of a wheel and may be left out for the first.
//
//	GET  api/wheels                 {"wheels": [name…], "control": whether this request might change something}
//	GET  api/wheel?wheel=           the whole state: dial, stats, lateness, upcoming, running, history, panics
//	GET  api/events?wheel=          the same as server-sent events, three a second: the first is whole, those that
//	                                follow have in history and panics what has changed
//	GET  api/task?wheel=&key=       the live task of the key, or null: next, interval, times (-1 is for ever), slot,
//	                                circle
//	POST api/remove                 with wheel and key as a form: RemoveTask
//	POST api/run                    with wheel and key: runs at the next tick, by Reschedule(key, 0)
//	POST api/reschedule             with wheel, key and delay, such as 90s: Reschedule
//
// In a list a key that is longer than 256 bytes is cut off, and what is no UTF-8 in it is replaced; "exact" is
// false then. A request takes any key, percent-encoded.
//
// An error is {"error": text}: 400 for a key that is missing and a bad delay, 403 if control is not allowed, 404
// for an unknown wheel or path and if there is no task to control, 405 for another method, 409 if the wheel was stopped, and 503 if 1,000
// pages are open.
package dashboard
