// SPDX-License-Identifier: MIT

package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed581295f1/timewheel/durable"
)

// put puts a task, and returns the answer.
func (r *rig) put(status int, key, body string, headers ...string) (p putResponse) {
	r.Helper()
	text := r.must(status, "PUT", "/tasks/"+key, body, append([]string{"Prefer", ""}, headers...)...)
	check(r.T, json.Unmarshal([]byte(text), &p))
	return p
}

// counting is a receiver that counts its calls.
func counting(t *testing.T) (at string, calls *atomic.Int64) {
	calls = new(atomic.Int64)
	return receiver(t, func(http.ResponseWriter, *http.Request) { calls.Add(1) }), calls
}

// A put answers with the task as it was stored: the token is that of the webhook.
func TestPut_answersWithTheTask(t *testing.T) {
	tokens := make(chan string, 1)
	r := start(t, config(t, receiver(t, func(_ http.ResponseWriter, r *http.Request) { tokens <- r.Header.Get(headerToken) }), simple))
	first := r.put(201, "a", `{"kind": "k", "delay": "1h", "payload": {"to": "ann"}, "group": "g"}`)
	if got := first.Task; got.Key != "a" || got.State != "scheduled" || got.Next.IsZero() || got.Group != "g" || got.Payload != nil || first.Replaced || first.Repeated {
		t.Errorf("a new task is answered with %+v", first)
	}
	second := r.put(200, "a", `{"kind": "k"}`)
	if !second.Replaced || second.Task.Token == first.Task.Token {
		t.Errorf("a task that replaces another is answered with %+v", second)
	}
	equal(t, "the token of the webhook", <-tokens, second.Task.Token)
	only := r.put(201, "b", `{"kind": "k", "delay": 3600}`, "If-None-Match", "*")
	if only.Task.Key != "b" || only.Replaced {
		t.Errorf("a task that was only to be added is answered with %+v", only)
	}
	for _, c := range []struct {
		status  int
		headers []string
	}{{204, nil}, {412, []string{"If-None-Match", "*"}}} {
		got := r.do("PUT", "/tasks/b", `{"kind": "k", "delay": 3600}`, append([]string{"Prefer", "respond-async, return=minimal"}, c.headers...)...)
		if got.status != c.status || c.status == 204 && (got.body != "" || got.header.Get("Preference-Applied") != "return=minimal") {
			t.Errorf("with a preference: %+v", got)
		}
	}
	for preference, is := range map[string]bool{
		"return=minimal": true, `return="minimal"`: true, "Return=minimal": true, "return=minimal; x=1": true, `RETURN = "minimal" ;x="a, b"`: true,
		`x="a, return=minimal", y`: false, `x="a, \", b", return=minimal`: true, "wait=10,return=minimal": true, "x;return=minimal": false,
		"return=representation": false, "return=representation, return=minimal": false, "return=minimal, return=representation": true,
		"return": false, "return=Minimal": false, "returns=minimal": false, "": false, ",,return=minimal": true, "return=": false,
	} {
		got := r.do("PUT", "/tasks/b", `{"kind": "k", "delay": 3600}`, "Prefer", preference)
		if want := map[bool]int{true: 204, false: 200}[is]; got.status != want {
			t.Errorf("Prefer: %s: %d, want %d", preference, got.status, want)
		}
	}
}

// A put with the idempotency key of an earlier one has no effect, before and after the task has run.
func TestPut_repeated_hasNoEffect(t *testing.T) {
	at, calls := counting(t)
	r := start(t, config(t, at, strings.Replace(simple, `"k": {`, `"there": {"elsewhere": true}, "k": {"history": {}, `, 1)))
	const body, key = `{"kind": "k", "delay": "1h"}`, "Idempotency-Key"
	first := r.put(201, "a", body, key, "1")
	for name, headers := range map[string][]string{"a put": nil, "a put that only adds": {"If-None-Match", "*"}} {
		again := r.put(200, "a", body, append([]string{key, "1"}, headers...)...)
		if !again.Repeated || again.Replaced || again.Task == nil || again.Task.Token != first.Task.Token {
			t.Errorf("%s before the run is answered with %+v", name, again)
		}
	}
	equal(t, "the status of a minimal answer", r.do("PUT", "/tasks/a", body, key, "1").status, 204)
	if other := r.put(200, "a", body, key, "2"); !other.Replaced || other.Repeated {
		t.Errorf("another idempotency key is answered with %+v", other)
	}
	if other := r.put(201, "b", `{"kind": "k", "idempotency_key": "2"}`); other.Repeated {
		t.Errorf("the idempotency key of another task is answered with %+v", other)
	}
	r.ends("b")
	until(t, "the history has the attempt", func() bool { return r.put(200, "b", `{"kind": "k"}`, key, "2").Last != nil })
	ended := r.put(200, "b", `{"kind": "k"}`, key, "2")
	if !ended.Repeated || ended.Task != nil || ended.Last.Outcome != "succeeded" || ended.Last.Key != "b" {
		t.Errorf("after the run it is answered with %+v", ended)
	}
	r.must(204, "PUT", "/tasks/b", `{"kind": "there", "delay": "1h"}`)
	if again := r.put(200, "b", `{"kind": "k"}`, key, "2"); !again.Repeated || again.Task != nil || again.Last != nil {
		t.Errorf("after a task of another kind took the key it is answered with %+v", again)
	}
	r.must(204, "DELETE", "/tasks/b", "")
	r.must(204, "DELETE", "/tasks/a", "")
	if removed := r.put(200, "a", body, key, "2"); !removed.Repeated || removed.Task != nil || removed.Last != nil {
		t.Errorf("after a removal it is answered with %+v", removed)
	}
	lines := jsonLines(t, r.must(200, "POST", "/tasks", strings.Join([]string{
		`{"op": "add", "key": "c", "kind": "k", "idempotency_key": "3"}`, `{"op": "add", "key": "b", "kind": "k", "idempotency_key": "2"}`,
		`{"key": "b", "kind": "k", "idempotency_key": "2"}`, `{"key": "d", "kind": "k", "idempotency_key": "3"}`,
	}, "\n")))
	for i, want := range []string{"201 <nil>", "200 true", "200 true", "204 <nil>"} {
		equal(t, fmt.Sprint("line ", i+1), fmt.Sprint(lines[i]["status"], " ", lines[i]["repeated"]), want)
	}
	r.ends("c")
	r.ends("d")
	equal(t, "the webhooks", calls.Load(), int64(3))
}

// With dedupe_key a task's own key is its idempotency key.
func TestPut_ofAKindWithDedupeKey(t *testing.T) {
	at, calls := counting(t)
	r := start(t, config(t, at, strings.Replace(simple, `"k": {`, `"k": {"dedupe": "10m", "dedupe_key": true, `, 1)))
	r.put(201, "a", `{"kind": "k"}`)
	r.ends("a")
	if again := r.put(200, "a", `{"kind": "k"}`); !again.Repeated {
		t.Errorf("a repeated put is answered with %+v", again)
	}
	for i := range 2 { // clients give each call an idempotency key of its own
		if again := r.put(200, "a", `{"kind": "k"}`, "Idempotency-Key", fmt.Sprint(i)); !again.Repeated {
			t.Errorf("a put that is repeated with a new idempotency key is answered with %+v", again)
		}
	}
	r.put(201, "b", `{"kind": "k"}`, "Idempotency-Key", "1")
	r.ends("b")
	lines := jsonLines(t, r.must(200, "POST", "/tasks", `{"op": "add", "key": "b", "kind": "k", "idempotency_key": "2"}`))
	equal(t, "the line of a used key", fmt.Sprint(lines[0]["repeated"]), "true")
	equal(t, "the webhooks", calls.Load(), int64(2))
	remembered, err := r.srv.s.Find(t.Context(), durable.Query{Kind: durable.OnceKind})
	check(t, err)
	equal(t, "the remembered keys", len(remembered.Tasks), 2)
}

// A repeated put is answered with the task that the first one added, and with no other task of the key. A token that may
// not read the task gets neither it nor its last attempt.
func TestPut_repeated_isAnsweredToReadersOnly(t *testing.T) {
	at, _ := counting(t)
	cfg := config(t, at, strings.Replace(simple, `"k": {`, `"l": {`+local+`}, "k": {"history": {}, `, 1))
	all := []string{""}
	cfg.Tokens = []*Token{
		{Name: "writes", Token: "aaaaaaaaaaaaaaaaaaaa", Prefixes: all, Kinds: []string{"k"}, Rights: []string{mayWrite}},
		{Name: "both", Token: "bbbbbbbbbbbbbbbbbbbb", Prefixes: all, Kinds: []string{"k"}, Rights: []string{mayRead, mayWrite}},
		{Name: "other", Token: "cccccccccccccccccccc", Prefixes: all, Kinds: []string{"l"}, Rights: []string{mayRead, mayWrite}},
	}
	r := start(t, cfg)
	const later, key = `{"kind": "k", "delay": "1h"}`, "Idempotency-Key"
	repeat := func(token, name string) putResponse {
		r.bearer = token
		again := r.put(200, "a", later, key, name)
		equal(t, "repeated", again.Repeated, true)
		return again
	}
	r.bearer = "aaaaaaaaaaaaaaaaaaaa"
	first := r.put(201, "a", later, key, "1").Task
	if got := repeat("aaaaaaaaaaaaaaaaaaaa", "1"); got.Task != nil || got.Last != nil {
		t.Errorf("a token without the right to read gets %+v", got)
	}
	if got := repeat("bbbbbbbbbbbbbbbbbbbb", "1"); got.Task == nil || got.Task.Token != first.Token || got.Last != nil {
		t.Errorf("a token with the right to read gets %+v", got)
	}
	r.bearer = "cccccccccccccccccccc"
	if got := r.put(200, "a", `{"kind": "l"}`, key, "1", "If-None-Match", "*"); !got.Repeated || got.Task != nil {
		t.Errorf("a token with the right to another kind gets %+v", got)
	}
	r.bearer = "aaaaaaaaaaaaaaaaaaaa"
	r.put(200, "a", later, key, "2")
	for _, token := range []string{"aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb"} {
		if got := repeat(token, "1"); got.Task != nil || got.Last != nil {
			t.Errorf("after another task has taken the key, %s gets %+v", token[:1], got)
		}
	}
	r.must(204, "POST", "/tasks/a/reschedule", `{"delay": 0}`)
	r.ends("a")
	until(t, "the history has the attempt", func() bool { return repeat("bbbbbbbbbbbbbbbbbbbb", "2").Last != nil })
	if got := repeat("aaaaaaaaaaaaaaaaaaaa", "2"); got.Task != nil || got.Last != nil {
		t.Errorf("after the run, a token without the right to read gets %+v", got)
	}
	if got := repeat("bbbbbbbbbbbbbbbbbbbb", "1"); got.Task != nil || got.Last != nil {
		t.Errorf("the attempt of another task is answered: %+v", got)
	}
}

// The header of a put has no meaning for a batch, whose lines have idempotency keys of their own.
func TestBatch_withAnIdempotencyKey_isRefused(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	const body = `{"key": "a", "kind": "k", "delay": 3600, "idempotency_key": "1"}`
	if got := r.do("POST", "/tasks", body, "Idempotency-Key", "1"); got.status != 400 || !strings.Contains(got.body, "each line has an idempotency_key") {
		t.Errorf("%d %s", got.status, got.body)
	}
	for range 2 {
		r.must(200, "POST", "/tasks", body)
	}
	equal(t, "the tasks with the remembered key", r.srv.s.Len(), 2)
}

func TestPut_ofAWrongIdempotencyKey_isRefused(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", strings.Replace(idle, `"k": {`, `"there": {"elsewhere": true}, "k": {`, 1)))
	long := strings.Repeat("k", mostIdempotencyKey)
	r.put(201, "a", `{"kind": "k", "delay": 3600}`, "Idempotency-Key", long)
	r.put(200, "a", `{"kind": "k", "delay": 3600, "idempotency_key": "1"}`, "Idempotency-Key", "1")
	const header, field = "Idempotency-Key", "idempotency_key"
	for _, c := range []struct {
		key, body, header, field, says string
	}{
		{"a", `{"kind": "k"}`, long + "k", header, "has 256 bytes"},
		{"a", `{"kind": "none"}`, long + "k", "kind " + header, "has 256 bytes"},
		{"a", `{"kind": "k", "idempotency_key": "1"}`, "2", field, "is not that of the header"},
		{"a", `{"kind": "k", "idempotency_key": ""}`, "2", field, "is not that of the header"},
		{"a", `{"kind": "there"}`, "1", header, "other nodes run"},
		{"timewheel%2Fonce%2Fx", `{"kind": "k"}`, "1", "key", "must not begin with timewheel/once/"},
		{"a", `{"kind": "k"}`, "", header, "must be one text that is not empty"},

		{"a", `{"kind": "k", "idempotency_key": ""}`, "none", field, "must not be empty"},
		{"a", `{"kind": "there", "idempotency_key": ""}`, "none", field, "must not be empty"},
		{"a", `{"kind": "k", "idempotency_key": "k` + long + `"}`, "none", field, "has 256 bytes"},
		{"a", `{"kind": "there", "idempotency_key": "1"}`, "none", field, "other nodes run"},
	} {
		headers := []string{header, c.header}
		if c.header == "none" {
			headers = nil
			line := fmt.Sprintf(`{"key": %q, %s`, c.key, strings.TrimPrefix(c.body, "{"))
			for _, op := range []string{"", `"op": "add", `} {
				got := r.must(200, "POST", "/tasks", "{"+op+line[1:])
				if !strings.Contains(got, `"status":400`) || !strings.Contains(got, c.says) {
					t.Errorf("%s: %s", line, got)
				}
			}
		}
		got := r.do("PUT", "/tasks/"+c.key, c.body, headers...)
		if r.speaks(got, strings.Fields(c.field)...); got.status != 400 || !strings.Contains(got.body, c.says) {
			t.Errorf("%s with %q: %d %s", c.body, c.header, got.status, got.body)
		}
	}
	got := r.do("PUT", "/schedules/s", `{"tasks": [{"key": "s", "kind": "k", "interval": 1, "idempotency_key": ""}]}`)
	r.speaks(got, "tasks[0].idempotency_key")
	r.put(200, "a", `{"kind": "k", "delay": 3600, "idempotency_key": null}`)
	equal(t, "the tasks and the remembered keys", r.srv.s.Len(), 3)
}
