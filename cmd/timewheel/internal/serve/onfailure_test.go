// SPDX-License-Identifier: MIT

package serve

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/durable"
)

// The receiver of the other kind is called each time that a task is parked, with all that a caller can read of it.
func TestOnFailure_theReceiverIsCalledForEachFailure(t *testing.T) {
	told := make(chan string, 10)
	r := start(t, config(t, receiver(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.Header.Get("Timewheel-Kind") {
		case "bad":
			w.WriteHeader(http.StatusGone)
			_, _ = io.WriteString(w, "no such order")
		case "alarm":
			told <- r.Header.Get("Timewheel-Key") + "\n" + r.Header.Get("Traceparent") + "\n" + string(body)
		}
	}), `{"listen": "127.0.0.1:0", "kinds": {"bad": {`+local+`, "on_failure": "alarm"}, "alarm": {`+local+`}}}`))
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r.must(204, "PUT", "/tasks/a", `{"kind": "bad", "payload": {"n": 1}, "group": "acme"}`, "Traceparent", trace)
	for range 2 {
		parts := strings.SplitN(<-told, "\n", 3)
		var got taskResponse
		check(t, json.Unmarshal([]byte(parts[2]), &got))
		equal(t, "the trace", parts[1], trace)
		equal(t, "the payload", string(got.Payload), `{"n":1}`)
		if !strings.HasPrefix(parts[0], "failed/a/") || got.Key != "a" || got.Kind != "bad" || got.State != "parked" || got.Group != "acme" ||
			!strings.Contains(got.Failure, "410") || len(got.Failed) != 1 || !strings.Contains(got.Failed[0].Text, "no such order") {
			t.Errorf("told is %q", parts)
		}
		equal(t, "the token", got.Token, jsonOf(t, r.must(200, "GET", "/tasks/a", ""))["token"].(string))
		r.must(200, "POST", "/tasks/unpark", `{"kind": "bad"}`)
	}
}

// The key of a task about a failure is one that is allowed, and its payload fits, whatever the failed task has.
func TestOnFailure_ofTheLargestTask(t *testing.T) {
	of := &Kind{OnFailure: "alarm"}
	keys := make(map[string]bool)
	for n, size := range []int{10, durable.MaxPayload} {
		token := durable.Token{Key: strings.Repeat("\u00e9", durable.MaxKey/2), Generation: 1<<63 + 5, Seq: 1<<63 + uint64(n)}
		failed := durable.Info{Token: token, Kind: "k", Payload: make([]byte, size)}
		about := of.about(failed)
		var got taskResponse
		check(t, json.Unmarshal(about.Payload, &got))
		if len(about.Key) > durable.MaxKey || len(about.Payload) > durable.MaxPayload || keys[about.Key] || (got.PayloadBase64 == nil) != (size > 10) ||
			got.Key != failed.Key {
			t.Errorf("of a payload of %d bytes it is %.100v", size, about)
		}
		keys[about.Key] = true
	}
	text := `"` + strings.Repeat("<", 900_000) + `"` // each < has six characters in the JSON of package json
	var got taskResponse
	check(t, json.Unmarshal(of.about(durable.Info{Payload: []byte(text)}).Payload, &got))
	equal(t, "whether the payload is there", string(got.Payload) == text, true)
}
