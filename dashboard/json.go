// SPDX-License-Identifier: MIT

package dashboard

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/timewheel"
)

// The types of what is sent. The package documentation describes them to the user.

type wheelsJSON struct {
	Wheels  []string `json:"wheels"`
	Control bool     `json:"control"`
}

type stateJSON struct {
	Wheel    string        `json:"wheel"`
	Now      time.Time     `json:"now"`
	Running  bool          `json:"running"` // started and not stopped
	Dial     dialJSON      `json:"dial"`
	Stats    statsJSON     `json:"stats"`
	Lateness *latenessJSON `json:"lateness"` // null without a recorder, or before any page was open
	Upcoming []taskJSON    `json:"upcoming"`
	Runs     []runJSON     `json:"runs"`
	History  []point       `json:"history"`
	Panics   []panicJSON   `json:"panics"`
	Whole    bool          `json:"whole"` // history and panics are complete
}

type dialJSON struct {
	Tick   float64 `json:"tick"` // seconds
	Slots  int     `json:"slots"`
	Layout string  `json:"layout"`
	Hand   int     `json:"hand"`  // slot
	Width  []int   `json:"width"` // slots, by sector
	Tasks  []int   `json:"tasks"` // that wait, by sector
}

type statsJSON struct {
	Added     uint64 `json:"added"`
	Finished  uint64 `json:"finished"`
	Removed   uint64 `json:"removed"`
	Pending   int    `json:"pending"`
	Due       uint64 `json:"due"`
	Started   uint64 `json:"started"`
	Missed    uint64 `json:"missed"`
	Withdrawn uint64 `json:"withdrawn"`
	Panicked  uint64 `json:"panicked"`
	Waiting   int    `json:"waiting"`
	Running   int    `json:"running"`

	Workers    int     `json:"workers"`
	OldestWait float64 `json:"oldest_wait"` // seconds
}

func newStatsJSON(s timewheel.Stats) statsJSON {
	return statsJSON{
		Added: s.Added, Finished: s.Finished, Removed: s.Removed, Pending: s.Pending,
		Due: s.Due, Started: s.Started, Missed: s.Missed, Withdrawn: s.Withdrawn, Panicked: s.Panicked,
		Waiting: s.Waiting, Running: s.Running,
		Workers: s.Workers, OldestWait: s.OldestWait.Seconds(),
	}
}

type latenessJSON struct {
	Runs int64         `json:"runs"` // in the last minute
	Tick quantilesJSON `json:"tick"` // due until dispatched
	Wait quantilesJSON `json:"wait"` // dispatched until started
	Run  quantilesJSON `json:"run"`  // started until ended
}

type quantilesJSON struct { // seconds
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

type taskJSON struct {
	Key      string    `json:"key"` // empty for a timer
	Exact    bool      `json:"exact"`
	Next     time.Time `json:"next"`
	Interval float64   `json:"interval"` // seconds
	Times    int       `json:"times"`
	Slot     int       `json:"slot"`
	Circle   int       `json:"circle"`
	Waiting  bool      `json:"waiting"`
}

type runJSON struct {
	Key    string    `json:"key"`
	Exact  bool      `json:"exact"`
	Due    time.Time `json:"due"`
	Handed time.Time `json:"handed"`
	For    float64   `json:"for"` // seconds since it was started, or dispatched if the wheel has no observer
}

type panicJSON struct {
	Time  time.Time `json:"time"`
	Key   string    `json:"key"`
	Exact bool      `json:"exact"`
	Value string    `json:"value"`
	Stack string    `json:"stack"`
}

type errorJSON struct {
	Error string `json:"error"`
}

func newTaskJSON(info timewheel.Info) taskJSON {
	key, exact := keyText(info.Key)
	return taskJSON{
		Key:      key,
		Exact:    exact,
		Next:     info.Next,
		Interval: info.Interval.Seconds(),
		Times:    info.Times,
		Slot:     info.Slot,
		Circle:   info.Circle,
		Waiting:  info.Waiting,
	}
}

func newRunJSON(run timewheel.Run, now time.Time) runJSON {
	began := run.Started
	if began.IsZero() {
		began = run.Handed
	}
	key, exact := keyText(run.Key)
	return runJSON{Key: key, Exact: exact, Due: run.Due, Handed: run.Handed, For: max(now.Sub(began).Seconds(), 0)}
}

// maxKeyText is how much of a key is listed: keys may be of any length, and are sent three times a second.
const maxKeyText = 256

// keyText returns a text of the key, and whether it is the whole key.
func keyText(key string) (text string, exact bool) {
	text = cut(key, maxKeyText)
	return text, text == key
}

// cut returns the text as valid UTF-8, without what is beyond most bytes.
func cut(text string, most int) string {
	if len(text) > most {
		for most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
