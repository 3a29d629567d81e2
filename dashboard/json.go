// SPDX-License-Identifier: MIT

package dashboard

import (
	"encoding/base64"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/internal/health"
	"github.com/seed581295f1/timewheel/timewheel"
)

// The JSON types for the overview and for wheels. The package documentation describes them for users.

type sourcesJSON struct {
	Sources []sourceJSON `json:"sources"`
	Control bool         `json:"control"`
}

type sourceJSON struct {
	Name   string     `json:"name"`
	Kind   string     `json:"kind"` // "wheel" or "scheduler"
	Health healthJSON `json:"health"`
	Stats  any        `json:"stats"` // a statsJSON or a tasksStatsJSON
}

type healthJSON struct {
	Well     bool          `json:"well"`  // there are no findings
	Watch    bool          `json:"watch"` // nothing is wrong, but due tasks have waited for the end of a pause for a minute
	Text     string        `json:"text"`  // the text of the worst finding, or a summary if there are none
	Findings []findingJSON `json:"findings"`
	Notes    []findingJSON `json:"notes"` // intended reasons why tasks do not run
}

type findingJSON struct {
	Kind  health.Kind `json:"kind"`
	Since *time.Time  `json:"since"` // null if unknown
	Text  string      `json:"text"`
	About string      `json:"about,omitempty"` // the kind of tasks that the text names, if any
}

// aboutKinds sets About in the findings about a scheduler.
func (h healthJSON) aboutKinds(now health.SchedulerReading) healthJSON {
	for _, all := range [][]findingJSON{h.Findings, h.Notes} {
		for i, f := range all {
			all[i].About = health.About(health.Finding{Kind: f.Kind, Text: f.Text}, now)
		}
	}
	return h
}

// newHealthJSON returns the JSON form of the findings and the notes. well is the summary if there are no findings.
func newHealthJSON(findings []health.Finding, well string, notes ...health.Finding) healthJSON {
	h := healthJSON{Findings: newFindingsJSON(findings), Notes: newFindingsJSON(notes)}
	if h.Well = len(h.Findings) == 0; h.Well {
		h.Text = well
	} else {
		h.Text = h.Findings[0].Text
	}
	return h
}

func newFindingsJSON(findings []health.Finding) []findingJSON {
	all := []findingJSON{}
	for _, f := range findings {
		all = append(all, findingJSON{Kind: f.Kind, Since: known(f.Since), Text: f.Text})
	}
	return all
}

type stateJSON struct {
	Wheel    string        `json:"wheel"`
	Now      time.Time     `json:"now"`
	Running  bool          `json:"running"` // started and not stopped
	Health   healthJSON    `json:"health"`
	Dial     dialJSON      `json:"dial"`
	Stats    statsJSON     `json:"stats"`
	Lateness *latenessJSON `json:"lateness"` // null without a recorder
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
	Hand   int     `json:"hand"`  // slot of the last tick
	Width  []int   `json:"width"` // number of slots in each sector
	Tasks  []int   `json:"tasks"` // number of waiting tasks in each sector
}

type statsJSON struct {
	Added     uint64 `json:"added"`
	Finished  uint64 `json:"finished"`
	Removed   uint64 `json:"removed"`
	Pending   int    `json:"pending"`
	Paused    int    `json:"paused"`
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
		Added: s.Added, Finished: s.Finished, Removed: s.Removed, Pending: s.Pending, Paused: s.Paused,
		Due: s.Due, Started: s.Started, Missed: s.Missed, Withdrawn: s.Withdrawn, Panicked: s.Panicked,
		Waiting: s.Waiting, Running: s.Running,
		Workers: s.Workers, OldestWait: s.OldestWait.Seconds(),
	}
}

type latenessJSON struct {
	Runs int64         `json:"runs"` // number of runs in the last minute
	Tick quantilesJSON `json:"tick"` // due until dispatched
	Wait quantilesJSON `json:"wait"` // dispatched until started
	Run  quantilesJSON `json:"run"`  // started until ended
}

type quantilesJSON struct { // seconds
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// A keyJSON is a key in a list. If Key is not the whole key, ID identifies it in requests.
type keyJSON struct {
	Key   string `json:"key"` // empty for a timer
	Exact bool   `json:"exact"`
	ID    string `json:"id,omitempty"` // the bytes of an inexact key in base64; empty if the key is too long
}

type taskJSON struct {
	keyJSON
	Next     time.Time `json:"next"`
	Interval float64   `json:"interval"` // seconds
	Times    int       `json:"times"`
	Slot     int       `json:"slot"`
	Circle   int       `json:"circle"`
	Waiting  bool      `json:"waiting"`
	Paused   bool      `json:"paused"`
}

// An aboutJSON holds all data for one key.
type aboutJSON struct {
	Task   *taskJSON   `json:"task"` // null if there is no live task
	Runs   []runJSON   `json:"runs"`
	Panics []panicJSON `json:"panics"`
}

// A foundJSON is the result of a search.
type foundJSON struct {
	Tasks   []taskJSON `json:"tasks"`
	Matches int        `json:"matches"`
	Looked  int        `json:"looked"` // number of tasks examined
	Whole   bool       `json:"whole"`  // the search examined every task
}

type runJSON struct {
	keyJSON
	Due        time.Time `json:"due"`
	Dispatched time.Time `json:"dispatched"`
	For        float64   `json:"for"` // seconds since the start, or since the dispatch if the wheel has no observer
}

type panicJSON struct {
	Time time.Time `json:"time"`
	keyJSON
	Value string `json:"value"`
	Stack string `json:"stack"`
}

type errorJSON struct {
	Error string `json:"error"`
}

func newTaskJSON(info timewheel.Info) taskJSON {
	return taskJSON{
		keyJSON:  newKeyJSON(info.Key),
		Next:     info.Next,
		Interval: info.Interval.Seconds(),
		Times:    info.Times,
		Slot:     info.Slot,
		Circle:   info.Circle,
		Waiting:  info.Waiting,
		Paused:   info.Paused,
	}
}

func newRunJSON(run timewheel.Run, now time.Time) runJSON {
	began := run.Started
	if began.IsZero() {
		began = run.Dispatched
	}
	return runJSON{
		keyJSON:    newKeyJSON(run.Key),
		Due:        run.Due,
		Dispatched: run.Dispatched,
		For:        max(now.Sub(began).Seconds(), 0),
	}
}

// Keys may have any length and are sent three times a second, so they are cut.
const (
	maxKeyText = 256     // maximum number of bytes of a key in a list
	maxID      = 8 << 10 // maximum number of bytes of a key that has an id
)

func newKeyJSON(key string) keyJSON {
	text, exact := keyText(key)
	k := keyJSON{Key: text, Exact: exact}
	if !exact && len(key) <= maxID {
		k.ID = base64.RawURLEncoding.EncodeToString([]byte(key))
	}
	return k
}

// keyText returns the key for display, and reports whether that is the whole key.
func keyText(key string) (text string, exact bool) {
	text = cut(key, maxKeyText)
	return text, text == key
}

// cut returns the text as valid UTF-8. A text longer than the given number of bytes is truncated and ends with an
// ellipsis.
func cut(text string, most int) string {
	if len(text) > most {
		for most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
