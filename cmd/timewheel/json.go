// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/durable"
)

// A text is a key, a kind, a group or a trace context in JSON. JSON strings must be UTF-8, so any other text is encoded
// as {"base64": …}.
type text string

type bytesJSON struct {
	Base64 []byte `json:"base64"`
}

func (t text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(bytesJSON{[]byte(t)})
}

func (t *text) UnmarshalJSON(b []byte) error {
	if strings.HasPrefix(string(b), "{") {
		var is bytesJSON
		err := json.Unmarshal(b, &is)
		*t = text(is.Base64)
		return err
	}
	return json.Unmarshal(b, (*string)(t))
}

// A seconds is a duration in JSON: a decimal number of seconds, exact to the nanosecond.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	sign, n := "", uint64(s)
	if s < 0 {
		sign, n = "-", -n
	}
	whole, rest := n/1e9, n%1e9
	if rest == 0 {
		return fmt.Appendf(nil, "%s%d", sign, whole), nil
	}
	return []byte(strings.TrimRight(fmt.Sprintf("%s%d.%09d", sign, whole, rest), "0")), nil
}

func (s *seconds) UnmarshalJSON(b []byte) error {
	d, err := time.ParseDuration(string(b) + "s")
	if err != nil {
		return fmt.Errorf("%s is not a number of seconds", b)
	}
	*s = seconds(d)
	return nil
}

// A taskJSON is a task in JSON. Times are in UTC and in RFC 3339 format.
type taskJSON struct {
	Key        text      `json:"key"`
	Kind       text      `json:"kind"`
	Interval   seconds   `json:"interval"`
	Cron       string    `json:"cron,omitempty"`     // set instead of interval
	Times      int       `json:"times"`              // number of runs left; -1 means until the task is removed
	Next       time.Time `json:"next,omitzero"`      // omitted if the task is parked or paused
	Parked     bool      `json:"parked"`             //
	Attempts   int       `json:"attempts"`           // number of failed attempts
	Missed     uint64    `json:"missed"`             // number of missed periods
	Failure    string    `json:"failure"`            // the error of the last failed attempt
	GivenUp    int       `json:"given_up,omitempty"` // number of runs in a row that were given up
	Generation uint64    `json:"generation"`         // the generation in the token
	Seq        uint64    `json:"seq"`                // the sequence number in the token
	Payload    []byte    `json:"payload"`            // in base64
	Version    int       `json:"version,omitempty"`  // the version of the payload; omitted if it is 1
	Trace      text      `json:"trace,omitempty"`    // the trace context of the call that added the task
	Group      text      `json:"group,omitempty"`
	Shift      seconds   `json:"shift,omitempty"`   // how long each run is delayed after its cron time
	Deadline   time.Time `json:"deadline,omitzero"` // the latest due time of the first run
	Expires    seconds   `json:"expires,omitempty"` // how late an attempt may start
	Until      time.Time `json:"until,omitzero"`    // no run after the first is due later
	Meta       text      `json:"meta,omitempty"`
	Snoozes    int       `json:"snoozes,omitempty"` // how often a handler has postponed the run
	Note       string    `json:"note,omitempty"`    // the note of the last completed run
	State      string    `json:"state,omitempty"`
	Node       string    `json:"node,omitempty"`   // the node that holds the task
	Started    time.Time `json:"started,omitzero"` // omitted if the task is not running, or if unknown

	Failed []failureJSON `json:"failed,omitempty"` // the last failed attempts, newest first
}

type failureJSON struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// recordJSON returns the JSON form of a task for an export. It omits everything that depends on the current time or on
// a node.
func recordJSON(i durable.Info) taskJSON {
	t := taskJSON{
		Key: text(i.Key), Kind: text(i.Kind), Interval: seconds(i.Interval), Cron: i.Cron, Times: i.Times,
		Parked: i.State == durable.Parked, Attempts: i.Attempts, Missed: i.Missed, Failure: i.Failure, GivenUp: i.GivenUp,
		Generation: i.Generation, Seq: i.Seq, Payload: i.Payload, Trace: text(i.Trace),
		Group: text(i.Group), Shift: seconds(i.Shift), Deadline: i.Deadline.UTC(), Note: i.Note,
		Expires: seconds(i.Expires), Snoozes: i.Snoozes, Until: i.Until.UTC(), Meta: text(i.Meta),
	}
	if i.PayloadVersion > 1 {
		t.Version = i.PayloadVersion
	}
	t.Next = i.Next.UTC()
	return t
}

// infoJSON returns the JSON form of a task for a list.
func infoJSON(i durable.Info) taskJSON {
	t := recordJSON(i)
	t.State, t.Node, t.Started = i.State.String(), i.Node, i.Started.UTC()
	for _, f := range i.Failed {
		t.Failed = append(t.Failed, failureJSON{f.At.UTC(), f.Text})
	}
	return t
}

// writeJSON writes a value as one line of JSON.
func writeJSON(to io.Writer, v any) error {
	e := json.NewEncoder(to)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
