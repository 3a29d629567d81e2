// SPDX-License-Identifier: MIT

package dashboard

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/durable"
)

// The JSON types for durable schedulers. The package documentation describes them for users.

type schedulerJSON struct {
	Scheduler string         `json:"scheduler"`
	Now       time.Time      `json:"now"`
	Health    healthJSON     `json:"health"`
	Stats     tasksStatsJSON `json:"stats"`
	Counts    censusJSON     `json:"counts"`
	Paused    bool           `json:"paused"`   // all kinds are paused
	Survival  string         `json:"survival"` // whether acknowledged tasks survive the loss of the engine's server; empty if unknown
	Unheard   string         `json:"unheard"`  // why this node hears no signals of the engine; empty if it does
	Tuning    tuningJSON     `json:"tuning"`   // what operators have set in place of the code
	Kinds     []kindJSON     `json:"kinds"`
	Nodes     []nodeJSON     `json:"nodes"`
	Read      readJSON       `json:"read"`
	CatchUp   *catchUpJSON   `json:"catch_up"` // null if no overdue tasks are left
	History   []tasksPoint   `json:"history"`
}

// A readJSON holds the times at which the parts of the state were read. Null means never.
type readJSON struct {
	Counts  *time.Time `json:"counts"`
	CatchUp *time.Time `json:"catch_up"`
	Nodes   *time.Time `json:"nodes"`
	Kinds   time.Time  `json:"kinds"` // for the scheduler's own data; the numbers of tasks come from the counts
	Paused  *time.Time `json:"paused"`
	Groups  *time.Time `json:"groups"` // for the largest group of each kind
}

type tasksStatsJSON struct {
	Pending   int `json:"pending"`
	Waiting   int `json:"waiting"`
	Running   int `json:"running"`
	Workers   int `json:"workers"`
	Parked    int `json:"parked"`
	Unhandled int `json:"unhandled"`

	Overdue     int        `json:"overdue"`      // due tasks that do not run, of kinds that are handled here, or nowhere, or are paused
	OverdueMore bool       `json:"overdue_more"` // there may be more
	Oldest      *time.Time `json:"oldest"`       // when the first of them was due; null if there is none

	OldestWait float64 `json:"oldest_wait"` // seconds
	LongestRun float64 `json:"longest_run"` // seconds
	SinceStart float64 `json:"since_start"` // seconds; 0 if no handler has been called

	Added       uint64 `json:"added"`
	Removed     uint64 `json:"removed"`
	ParkedTotal uint64 `json:"parked_total"`
	Started     uint64 `json:"started"`
	Succeeded   uint64 `json:"succeeded"`
	Failed      uint64 `json:"failed"`
}

func newTasksStatsJSON(r reading) tasksStatsJSON {
	s, due := r.stats, r.overdue[""]
	return tasksStatsJSON{
		Overdue: due.Due, OverdueMore: due.More, Oldest: known(due.Oldest),
		Pending: s.Pending, Waiting: s.Waiting, Running: s.Running, Workers: r.Workers, Parked: s.Parked,
		Unhandled: s.Unhandled, OldestWait: s.OldestWait.Seconds(),
		LongestRun: s.LongestRun.Seconds(), SinceStart: s.SinceStart.Seconds(), Added: s.Added, Removed: s.Removed, ParkedTotal: s.ParkedTotal,
		Started: s.Started, Succeeded: s.Succeeded, Failed: s.Failed,
	}
}

type censusJSON struct {
	At      *time.Time `json:"at"`    // null before the first count
	Whole   bool       `json:"whole"` // all tasks were counted; false also while they are counted again after an outage
	Tasks   int        `json:"tasks"`
	Failing int        `json:"failing"`
	Parked  int        `json:"parked"`
	Paused  int        `json:"paused"` // paused individually
}

func newCensusJSON(c durable.Counts, whole bool) censusJSON {
	j := censusJSON{At: known(c.At), Whole: whole}
	for _, k := range c.Kinds {
		j.Tasks += k.Tasks
		j.Failing += k.Failing
		j.Parked += k.Parked
		j.Paused += k.Paused
	}
	return j
}

type kindJSON struct {
	Kind    string    `json:"kind"`
	Tasks   int       `json:"tasks"`
	Failing int       `json:"failing"`
	Parked  int       `json:"parked"`
	Paused  bool      `json:"paused"` // paused individually
	Nodes   int       `json:"nodes"`  // number of nodes with a handler
	Here    *hereJSON `json:"here"`   // null if this scheduler has no handler

	Overdue     int        `json:"overdue"`      // due tasks that do not run, of kinds that are handled here, or nowhere, or are paused
	OverdueMore bool       `json:"overdue_more"` // there may be more
	Oldest      *time.Time `json:"oldest"`       // when the first of them was due; null if there is none, or if that is unknown
}

// A hereJSON is this scheduler's own data about a kind.
type hereJSON struct {
	Attempts    int           `json:"attempts"`
	Least       float64       `json:"least"`
	Most        float64       `json:"most"`
	Missed      string        `json:"missed"`
	Started     uint64        `json:"started"`
	Succeeded   uint64        `json:"succeeded"`
	Failed      uint64        `json:"failed"`    // failed attempts, excluding cancelled ones
	Cancelled   uint64        `json:"cancelled"` // attempts that were cancelled and failed
	Parked      uint64        `json:"parked"`
	GivenUp     uint64        `json:"given_up"`
	Interrupted uint64        `json:"interrupted"` // attempts that were found cut off by the end of their process or lease
	Repeating   bool          `json:"park_repeating"`
	StartedRate *float64      `json:"started_rate"`
	FailedRate  *float64      `json:"failed_rate"`
	Failure     string        `json:"failure"`
	Last        *attemptsJSON `json:"last"`    // null if not recorded
	Limit       *limitJSON    `json:"limit"`   // limit on this scheduler; null if there is none
	Cluster     *limitJSON    `json:"cluster"` // limit on all nodes together; null if there is none
	Tuned       bool          `json:"tuned"`   // an operator has set other numbers in the limits than the code
	Waiting     int           `json:"waiting"` // due runs waiting here for the limits; 0 while the kind is paused
	Largest     *largestJSON  `json:"largest"` // null if no run is waiting, or if the tasks have no groups
	Running     int           `json:"running"`
	Longest     float64       `json:"longest"` // the duration of the longest run in progress, in seconds
}

// A largestJSON is the group with the most due tasks of a kind.
type largestJSON struct {
	Group  string     `json:"group"` // empty for tasks without a group
	Exact  bool       `json:"exact"` // Group is the whole name
	Tasks  int        `json:"tasks"` // due tasks of the group
	Of     int        `json:"of"`    // due tasks of all groups
	Cut    bool       `json:"cut"`   // there may be more due tasks, all due later than the counted ones
	Oldest time.Time  `json:"oldest"`
	Others *time.Time `json:"others"` // the earliest due time in the other groups; null if there is none
}

func newLargestJSON(g durable.Groups) *largestJSON {
	if len(g.Largest) == 0 || len(g.Largest) == 1 && g.Largest[0].Group == "" {
		return nil
	}
	first, others := g.Largest[0], append(slices.Clone(g.Largest[1:]), g.Others)
	j := &largestJSON{Tasks: first.Due, Of: first.Due, Cut: g.Cut, Oldest: first.Oldest}
	j.Group, j.Exact = keyText(first.Group)
	for _, o := range others {
		j.Of += o.Due
		if at := known(o.Oldest); j.Others == nil || at != nil && at.Before(*j.Others) {
			j.Others = at
		}
	}
	return j
}

// A tuningJSON holds the numbers that operators have set. A number of 0 is that of the code.
type tuningJSON struct {
	PoolSize int               `json:"pool_size"`
	CatchUp  int               `json:"catch_up"`
	By       map[string]byJSON `json:"by"` // who set what: pool size, catch-up, or kind and its name
}

// A byJSON says who did something, when and why.
type byJSON struct {
	At  time.Time `json:"at"`
	Who string    `json:"who"`
	Why string    `json:"why"`
}

func newTuningJSON(t durable.Tuning) tuningJSON {
	j := tuningJSON{t.PoolSize, t.CatchUp, make(map[string]byJSON)}
	for key, by := range t.By {
		if len(j.By) < maxKinds+2 {
			j.By[keyShown(key)] = byJSON{by.At, keyShown(by.Who), cut(by.Why, maxKeyText)}
		}
	}
	return j
}

// A limitJSON is a limit on the runs of a kind. A value of 0 means no bound.
type limitJSON struct {
	Concurrency int     `json:"concurrency"`
	Rate        int     `json:"rate"`
	Per         float64 `json:"per"`
	Burst       int     `json:"burst"`
}

func newLimitJSON(l durable.Limit) *limitJSON {
	if l == (durable.Limit{}) {
		return nil
	}
	return &limitJSON{l.Concurrency, l.Rate, l.Per.Seconds(), l.Burst}
}

type attemptsJSON struct {
	Attempts int64         `json:"attempts"` // number of attempts in the last minute
	Late     quantilesJSON `json:"late"`     // due until started
	Run      quantilesJSON `json:"run"`      // started until ended
}

type nodeJSON struct {
	Name    string     `json:"name"`
	ID      int64      `json:"id,string"` // scripts would round the number
	Self    bool       `json:"self"`
	Lease   float64    `json:"lease"`
	Left    *float64   `json:"left"` // null if unknown, because the engine does not answer or its last answer is old
	Late    bool       `json:"late"` // the node has missed two renewals
	Held    int        `json:"held"`
	Version string     `json:"version"`
	Kinds   []string   `json:"kinds"`
	Drained bool       `json:"drained"`
	Leaving bool       `json:"leaving"` // the node shuts down, and waits for the ends of its runs
	Away    bool       `json:"away"`    // the engine did not do what the node needs to run tasks, by its own report
	Waiting int        `json:"waiting"`
	Running int        `json:"running"`
	Workers int        `json:"workers"`
	Started *time.Time `json:"started"`

	// OldestWait and SinceStart are in seconds, at the time of the reading.
	OldestWait float64   `json:"oldest_wait"`
	SinceStart float64   `json:"since_start"`
	Busiest    *runsJSON `json:"busiest"` // null if no run is in progress
}

// A runsJSON describes the runs of one kind that are in progress.
type runsJSON struct {
	Kind    string  `json:"kind"`
	Running int     `json:"running"`
	Longest float64 `json:"longest"` // seconds
}

func newNodeJSON(n durable.NodeInfo, old, late bool) nodeJSON {
	j := nodeJSON{
		Name: keyShown(n.Name), ID: int64(n.ID), Self: n.Self, Lease: n.Lease.Seconds(),
		Held: n.Held, Late: late, Version: keyShown(n.Version), Kinds: []string{},
		Drained: n.Drained, Leaving: n.Leaving, Away: n.Away, Waiting: n.Waiting, Running: n.Running, Workers: n.Workers,
		Started: known(n.Started),
	}
	r := newNodeReading(n)
	j.OldestWait, j.SinceStart = r.OldestWait.Seconds(), r.SinceStart.Seconds()
	if b := r.Busiest; b.Running > 0 {
		j.Busiest = &runsJSON{b.Kind, b.Running, b.Longest.Seconds()}
	}
	if !old {
		left := n.Left.Seconds()
		j.Left = &left
	}
	for _, k := range n.Kinds[:min(len(n.Kinds), maxKinds)] {
		j.Kinds = append(j.Kinds, keyShown(k))
	}
	return j
}

type catchUpJSON struct {
	Left   int        `json:"left"`
	Cut    bool       `json:"cut"`
	Oldest time.Time  `json:"oldest"`
	Done   *time.Time `json:"done"` // null if unknown
}

// A tasksPoint is one reading in the history.
type tasksPoint struct {
	N       int64     `json:"n"` // the number of points before this one
	Time    time.Time `json:"time"`
	Pending int       `json:"pending"`
	Waiting int       `json:"waiting"`
	Overdue int       `json:"overdue"`
	Running int       `json:"running"`
	Parked  int       `json:"parked"`

	// The attempts per second since the previous reading; null if there is no previous reading.
	Started *float64 `json:"started"`
	Failed  *float64 `json:"failed"`

	total [2]uint64 // attempts started and failed so far
}

// newTasksPoint returns a point for the reading, which follows the given points.
func newTasksPoint(r reading, before []tasksPoint) tasksPoint {
	s := r.stats
	p := tasksPoint{
		Time: r.Time, Pending: s.Pending, Waiting: s.Waiting, Overdue: r.overdue[""].Due, Running: s.Running, Parked: s.Parked,
		total: [2]uint64{s.Started, s.Failed},
	}
	if len(before) > 0 {
		last := before[len(before)-1]
		p.N = last.N + 1
		if seconds := p.Time.Sub(last.Time).Seconds(); seconds > 0 {
			p.Started = perSecond(p.total[0]-last.total[0], seconds)
			p.Failed = perSecond(p.total[1]-last.total[1], seconds)
		}
	}
	return p
}

// perSecond returns n per second, rounded to two decimal places.
func perSecond(n uint64, seconds float64) *float64 {
	rate := math.Floor(float64(n)/seconds*100+0.5) / 100
	return &rate
}

// A listJSON is a page of tasks.
type listJSON struct {
	Now    time.Time    `json:"now"`
	Tasks  []storedJSON `json:"tasks"`
	Looked int          `json:"looked"`
	Next   string       `json:"next"`
	Cut    bool         `json:"cut"`
}

// A storedJSON is a task of a scheduler.
type storedJSON struct {
	keyJSON
	Kind       string     `json:"kind"`
	State      string     `json:"state"`
	Next       *time.Time `json:"next"`     // null if the task is parked or paused
	Interval   float64    `json:"interval"` // seconds
	Cron       string     `json:"cron"`     // set instead of interval
	Times      int        `json:"times"`
	Attempts   int        `json:"attempts"`
	Missed     uint64     `json:"missed"`
	Failure    string     `json:"failure"`
	GivenUp    int        `json:"given_up"`
	FailedAt   *time.Time `json:"failed_at"` // null if unknown
	Node       string     `json:"node"`
	Started    *time.Time `json:"started"` // null if the task is not running, or if unknown
	Generation uint64     `json:"generation,string"`
	Seq        uint64     `json:"seq"`
}

func newStoredJSON(i durable.Info) storedJSON {
	s := storedJSON{
		keyJSON: newKeyJSON(i.Key), Kind: i.Kind, State: i.State.String(), Next: known(i.Next),
		Interval: i.Interval.Seconds(), Cron: i.Cron, Times: i.Times, Attempts: i.Attempts, Missed: i.Missed,
		Failure: cut(i.Failure, maxValueText), GivenUp: i.GivenUp, Node: keyShown(i.Node), Started: known(i.Started), Generation: i.Generation, Seq: i.Seq,
	}
	if len(i.Failed) > 0 {
		s.FailedAt = known(i.Failed[0].At)
	}
	return s
}

// An aboutStoredJSON holds all data for one task.
type aboutStoredJSON struct {
	Now      time.Time    `json:"now"`
	Task     *storedJSON  `json:"task"` // null if there is no such task
	Token    string       `json:"token,omitempty"`
	Trace    string       `json:"trace,omitempty"`
	Group    string       `json:"group,omitempty"`
	Shift    float64      `json:"shift,omitempty"`    // seconds
	Deadline *time.Time   `json:"deadline,omitempty"` // null if the task has no deadline
	Until    *time.Time   `json:"until,omitempty"`    // null if the task has no end
	Meta     string       `json:"meta,omitempty"`
	Expires  float64      `json:"expires,omitempty"` // seconds
	Snoozes  int          `json:"snoozes,omitempty"`
	Note     string       `json:"note,omitempty"`
	Attempts int          `json:"attempts,omitempty"` // attempts before the task is parked or its run is given up; 0 without a handler here
	Failed   []failedJSON `json:"failed,omitempty"`
	Payload  *payloadJSON `json:"payload,omitempty"`
}

type failedJSON struct {
	At   *time.Time `json:"at"` // null if unknown
	Text string     `json:"text"`
}

type payloadJSON struct {
	Size    int    `json:"size"`    // bytes
	Version int    `json:"version"` // as in Info.PayloadVersion
	Hidden  string `json:"hidden"`  // why the payload is hidden; empty if it is not
	Form    string `json:"form"`    // json, text or hex
	Text    string `json:"text"`
	Cut     bool   `json:"cut"`
}

// maxPayload is the maximum length of a payload's displayed text, in bytes.
const maxPayload = 4 << 10

// newPayloadJSON returns the payload for display. A JSON object or array is indented, other text is unchanged, and
// anything else is in hexadecimal.
func newPayloadJSON(b []byte) payloadJSON {
	p := payloadJSON{Size: len(b)}
	var pretty bytes.Buffer
	trimmed := bytes.TrimSpace(b)
	switch {
	case len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') && utf8.Valid(trimmed) &&
		json.Indent(&pretty, trimmed, "", "  ") == nil:
		p.Form, p.Text = "json", pretty.String()
	case isText(b):
		p.Form, p.Text = "text", string(b)
	default:
		const bytesOfLine = 16
		shown := b[:min(len(b), maxPayload/3/bytesOfLine*bytesOfLine)] // a byte takes three characters
		p.Form, p.Cut = "hex", len(shown) < len(b)
		for i := 0; i < len(shown); i += bytesOfLine {
			for _, c := range shown[i:min(i+bytesOfLine, len(shown))] {
				p.Text += hex.EncodeToString([]byte{c}) + " "
			}
			p.Text = p.Text[:len(p.Text)-1] + "\n"
		}
		return p
	}
	if p.Cut = len(p.Text) > maxPayload; p.Cut {
		p.Text = cut(p.Text, maxPayload)
	}
	return p
}

// isText reports whether b is valid UTF-8 without control characters other than tabs and line endings.
func isText(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	for _, r := range string(b) {
		if unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' {
			return false
		}
	}
	return true
}

// A failuresJSON holds the groups of failing tasks.
type failuresJSON struct {
	Now    time.Time   `json:"now"`
	Groups []groupJSON `json:"groups"`
	More   int         `json:"more"` // number of groups not listed
	Looked int         `json:"looked"`
	Cut    bool        `json:"cut"`
}

type groupJSON struct {
	Kind    string     `json:"kind"`
	Text    string     `json:"text"`
	Tasks   int        `json:"tasks"`
	Parked  int        `json:"parked"`
	GivenUp int        `json:"given_up"`
	Example keyJSON    `json:"example"`
	Last    *time.Time `json:"last"` // null if unknown
}

// A setsJSON holds the declared sets.
type setsJSON struct {
	Now  time.Time `json:"now"`
	Sets []setJSON `json:"sets"`
}

type setJSON struct {
	Prefix     string     `json:"prefix"`
	Version    int64      `json:"version"`    // -1 if none was applied in full
	Unfinished int64      `json:"unfinished"` // a version that is not applied in full; -1 if there is none
	At         *time.Time `json:"at"`         // when the version was first applied; null if unknown
	By         string     `json:"by"`         // the node that did so
	Tasks      int        `json:"tasks"`      // its tasks, of which those below are counted; the first maxList; -1 if unknown
	Failing    int        `json:"failing"`    // whose last attempt failed
	Parked     int        `json:"parked"`     // that do not run again by themselves
	Due        *time.Time `json:"due"`        // of the next run; null if there is none
	Next       keyJSON    `json:"next"`       // its task
}

func newSetJSON(set durable.SetInfo) setJSON {
	return setJSON{
		Prefix: keyShown(set.Prefix), Version: set.Version, Unfinished: set.Unfinished, At: known(set.At), By: keyShown(set.By),
		Tasks: -1,
	}
}

// count counts the tasks of the set.
func (j *setJSON) count(tasks []durable.Info) {
	j.Tasks = len(tasks)
	for _, i := range tasks {
		switch {
		case i.State == durable.Parked:
			j.Parked++
		case i.Failure != "" || i.GivenUp > 0:
			j.Failing++
		}
		if due := known(i.Next); due != nil && (j.Due == nil || due.Before(*j.Due)) {
			j.Due, j.Next = due, newKeyJSON(i.Key)
		}
	}
}

// A historyJSON is a page of attempts that have ended, newest first.
type historyJSON struct {
	Now  time.Time  `json:"now"`
	Past []pastJSON `json:"past"`
	Next string     `json:"next"` // the value of after for the next page; empty if this is the last page
}

type pastJSON struct {
	keyJSON
	Kind    string    `json:"kind"`
	Outcome string    `json:"outcome"`
	Attempt int       `json:"attempt"`
	Group   string    `json:"group"`
	Due     time.Time `json:"due"`
	Ended   time.Time `json:"ended"`
	Late    float64   `json:"late"` // seconds from when it was due to its start
	Took    float64   `json:"took"` // seconds
	Node    string    `json:"node"`
	Token   string    `json:"token"`
	Text    string    `json:"text"` // the error or the note
}

func newPastJSON(r durable.PastRun) pastJSON {
	return pastJSON{
		keyJSON: newKeyJSON(r.Key), Kind: r.Kind, Outcome: r.Outcome(), Attempt: r.Attempt.Attempt, Group: keyShown(r.Group),
		Due: r.Due, Ended: r.Ended,
		Late: r.Started.Sub(r.Due).Seconds(), Took: r.Ended.Sub(r.Started).Seconds(), Node: keyShown(r.Node),
		Token: cut(r.Token.String(), maxKeyText), Text: cut(r.Failure+r.Note, maxValueText),
	}
}

type bulkJSON struct {
	Tasks int    `json:"tasks"`
	More  bool   `json:"more"` // time ran out; the same request with after set to Next continues
	Next  string `json:"next"`
}

// known returns the time, or nil if it is zero.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// keyShown returns a name for display.
func keyShown(name string) string { return cut(name, maxKeyText) }
