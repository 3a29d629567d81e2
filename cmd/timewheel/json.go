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

// A text is a key, a kind, a group or a trace context in JSON. If it is not UTF-8, which JSON cannot hold, it is
// {"base64": …}.
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

// Seconds is a duration in JSON: a decimal number, exact to the nanosecond.
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

// A taskJSON is a task in JSON. Times are in UTC, in the form of RFC 3339.
type taskJSON struct {
	Key        text      `json:"key"`
	Kind       text      `json:"kind"`
	Interval   seconds   `json:"interval"`
	Cron       string    `json:"cron,omitempty"`    // in place of interval
	Times      int       `json:"times"`             // -1: until it is removed
	Next       time.Time `json:"next,omitzero"`     // none if it is parked or paused
	Parked     bool      `json:"parked"`            //
	Attempts   int       `json:"attempts"`          // failed attempts
	Missed     uint64    `json:"missed"`            // periods
	Failure    string    `json:"failure"`           // the error of the last attempt
	Generation uint64    `json:"generation"`        // of the token
	Seq        uint64    `json:"seq"`               // of the token
	Payload    []byte    `json:"payload"`           // in base64
	Version    int       `json:"version,omitempty"` // of the payload; none if it is 1
	Trace      text      `json:"trace,omitempty"`   // the trace context of its add
	Group      text      `json:"group,omitempty"`
	Shift      seconds   `json:"shift,omitempty"`   // the delay of the runs after the instants of cron
	Deadline   time.Time `json:"deadline,omitzero"` // the latest due time of the first run
	Note       string    `json:"note,omitempty"`    // of the last complete run
	State      string    `json:"state,omitempty"`
	Node       string    `json:"node,omitempty"`   // that holds it
	Started    time.Time `json:"started,omitzero"` // none if it is not running, or if unknown

	Failed []failureJSON `json:"failed,omitempty"` // the last failed attempts, the newest first
}

type failureJSON struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// recordJSON returns the JSON form of a task in an export, without anything that depends on the time or on a node.
func recordJSON(i durable.Info) taskJSON {
	t := taskJSON{
		Key: text(i.Key), Kind: text(i.Kind), Interval: seconds(i.Interval), Cron: i.Cron, Times: i.Times,
		Parked: i.Parked, Attempts: i.Attempts, Missed: i.Missed, Failure: i.Failure,
		Generation: i.Generation, Seq: i.Seq, Payload: i.Payload, Trace: text(i.Trace),
		Group: text(i.Group), Shift: seconds(i.Shift), Deadline: utc(i.Deadline), Note: i.Note,
	}
	if i.PayloadVersion > 1 {
		t.Version = i.PayloadVersion
	}
	t.Next = utc(i.Next)
	return t
}

// infoJSON returns the JSON form of a task, as in a list.
func infoJSON(i durable.Info) taskJSON {
	t := recordJSON(i)
	t.State, t.Node, t.Started = i.State.String(), i.Node, utc(i.Started)
	for _, f := range i.Failed {
		t.Failed = append(t.Failed, failureJSON{f.At.UTC(), f.Text})
	}
	return t
}

// writeJSON writes a value as a line.
func writeJSON(to io.Writer, v any) error {
	e := json.NewEncoder(to)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
