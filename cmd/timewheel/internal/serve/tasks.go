// SPDX-License-Identifier: MIT

package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/durable"
)

// A taskRequest is a task to be added.
type taskRequest struct {
	Kind          string          `json:"kind"`
	Payload       json.RawMessage `json:"payload"`        // any JSON, sent as it was written
	PayloadBase64 []byte          `json:"payload_base64"` // in place of payload
	Delay         Duration        `json:"delay"`
	At            time.Time       `json:"at"` // in place of delay
	Interval      Duration        `json:"interval"`
	Cron          string          `json:"cron"`  // in place of interval
	Times         int             `json:"times"` // -1: until it is removed
	MaxDelay      Duration        `json:"max_delay"`
	Jitter        Duration        `json:"jitter"`
	Expires       Duration        `json:"expires"`
	Group         string          `json:"group"`
}

// task returns the task. A task with an interval but no times runs until it is removed, like a task with a calendar.
func (t *taskRequest) task(key, trace string) (durable.Task, error) {
	payload := []byte(t.Payload)
	if t.PayloadBase64 != nil {
		if payload != nil {
			return durable.Task{}, problemf(http.StatusBadRequest, "both payload and payload_base64 are given")
		}
		payload = t.PayloadBase64
	}
	task := durable.Task{
		Key: key, Kind: t.Kind, Payload: payload, Delay: time.Duration(t.Delay), At: t.At,
		Interval: time.Duration(t.Interval), Cron: t.Cron, Times: t.Times, MaxDelay: time.Duration(t.MaxDelay),
		Jitter: time.Duration(t.Jitter), Expires: time.Duration(t.Expires), Group: t.Group, Trace: trace,
	}
	if task.Times == 0 && task.Interval > 0 {
		task.Times = durable.Forever
	}
	return task, nil
}

// A rescheduleRequest has either a delay or a time.
type rescheduleRequest struct {
	Delay *Duration  `json:"delay"`
	At    *time.Time `json:"at"`
}

func (t *rescheduleRequest) after(now time.Time) (time.Duration, error) {
	switch {
	case (t.Delay == nil) == (t.At == nil):
		return 0, problemf(http.StatusBadRequest, "one of delay and at must be given")
	case t.At != nil:
		return t.At.Sub(now), nil
	case *t.Delay < 0:
		return 0, problemf(http.StatusBadRequest, "delay %v is negative", time.Duration(*t.Delay))
	}
	return time.Duration(*t.Delay), nil
}

// A taskResponse is an existing task. Durations are in seconds, and times in UTC.
type taskResponse struct {
	Key           string          `json:"key,omitempty"`
	KeyBase64     []byte          `json:"key_base64,omitempty"` // in place of key, if that is not UTF-8
	Kind          string          `json:"kind"`
	State         string          `json:"state"`
	Next          time.Time       `json:"next,omitzero"` // none if it is parked or paused
	Interval      float64         `json:"interval,omitempty"`
	Cron          string          `json:"cron,omitempty"`
	Times         int             `json:"times"` // -1: until it is removed
	Group         string          `json:"group,omitempty"`
	Token         string          `json:"token"` // of the next run, or of the running one, as in the header
	Attempts      int             `json:"attempts"`
	Missed        uint64          `json:"missed"`
	Failure       string          `json:"failure,omitempty"`
	GivenUp       int             `json:"given_up,omitempty"`
	Failed        []failed        `json:"failed,omitempty"`
	Expires       float64         `json:"expires,omitempty"`
	Deadline      time.Time       `json:"deadline,omitzero"`
	Started       time.Time       `json:"started,omitzero"`
	Node          string          `json:"node,omitempty"`
	Payload       json.RawMessage `json:"payload,omitempty"`
	PayloadBase64 []byte          `json:"payload_base64,omitempty"` // in place of payload, if that is not JSON
}

type failed struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// keyFields returns a key as text, or as bytes if it is not UTF-8.
func keyFields(key string) (text string, bytes []byte) {
	if !utf8.ValidString(key) {
		return "", []byte(key)
	}
	return key, nil
}

func newTaskResponse(i durable.Info, payload bool) taskResponse {
	t := taskResponse{
		Kind: i.Kind, State: i.State.String(), Next: i.Next.UTC(), Interval: i.Interval.Seconds(), Cron: i.Cron,
		Times: i.Times, Group: i.Group, Attempts: i.Attempts, Missed: i.Missed, Failure: i.Failure, GivenUp: i.GivenUp,
		Token:   escape(durable.Token{Key: i.Key, Generation: i.Generation, Seq: i.Seq}.String()),
		Expires: i.Expires.Seconds(), Deadline: i.Deadline.UTC(), Started: i.Started.UTC(), Node: i.Node,
	}
	for _, f := range i.Failed {
		t.Failed = append(t.Failed, failed{f.At.UTC(), f.Text})
	}
	t.Key, t.KeyBase64 = keyFields(i.Key)
	switch {
	case !payload:
	case utf8.Valid(i.Payload) && json.Valid(i.Payload):
		t.Payload = i.Payload
	default:
		t.PayloadBase64 = i.Payload
	}
	return t
}

// decode decodes a single JSON value and refuses unknown fields.
func decode(text []byte, into any) error {
	if !utf8.Valid(text) {
		return problemf(http.StatusBadRequest, "the body is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if errors.Is(err, io.EOF) {
		return problemf(http.StatusBadRequest, "the body is empty")
	}
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is text after the JSON value")
		}
	}
	if err != nil {
		return problemf(http.StatusBadRequest, "%v", err)
	}
	return nil
}
