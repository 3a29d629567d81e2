// SPDX-License-Identifier: MIT

package serve

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/durable"
)

// A taskResponse is an existing task. Durations are in seconds, and times in UTC.
type taskResponse struct {
	Key           string            `json:"key,omitempty"`
	KeyBase64     []byte            `json:"key_base64,omitempty"` // in place of key, if that is not UTF-8
	Kind          string            `json:"kind"`
	State         string            `json:"state"`
	Next          time.Time         `json:"next,omitzero"` // none if it is parked or paused
	Interval      float64           `json:"interval,omitempty"`
	Cron          string            `json:"cron,omitempty"`
	Times         int               `json:"times"` // -1: until it is removed
	Group         string            `json:"group,omitempty"`
	Token         string            `json:"token"` // of the next run, or of the running one, as in the header
	Attempts      int               `json:"attempts"`
	Missed        uint64            `json:"missed"`
	Failure       string            `json:"failure,omitempty"`
	GivenUp       int               `json:"given_up,omitempty"`
	Failed        []failed          `json:"failed,omitempty"`
	Until         time.Time         `json:"until,omitzero"`
	Expires       float64           `json:"expires,omitempty"`
	Deadline      time.Time         `json:"deadline,omitzero"`
	Started       time.Time         `json:"started,omitzero"`
	Headers       map[string]string `json:"headers,omitempty"`
	Payload       json.RawMessage   `json:"payload,omitempty"`
	PayloadBase64 []byte            `json:"payload_base64,omitempty"` // in place of payload, if that is not JSON
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
		Times: i.Times, Group: i.Group, Attempts: i.Attempts, Missed: i.Missed, Failure: forCallers(i.Failure), GivenUp: i.GivenUp,
		Token: escape(i.Token.String()),
		Until: i.Until.UTC(), Headers: headersOf(i.Meta), Expires: i.Expires.Seconds(), Deadline: i.Deadline.UTC(), Started: i.Started.UTC(),
	}
	for _, f := range i.Failed {
		t.Failed = append(t.Failed, failed{f.At.UTC(), forCallers(f.Text)})
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
