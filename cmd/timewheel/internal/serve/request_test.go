// SPDX-License-Identifier: MIT

package serve

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// internal are words of the program that a caller does not know: of Go, of its packages, and of the machine.
var internal = regexp.MustCompile(`\b(Delay|At|MaxDelay|Interval|Cron|Times|Jitter|Expires|Group|Kind|Key|Payload|Limit|After|Task|Forever|` +
	`With[A-Z]\w*)\b|durable|json:|time: |time\.|netip|pebble|postgres|pgx|Unmarshal|EOF|goroutine|127\.0\.0\.1|/usr/|/tmp/|no such file|directory|` +
	`invalid character|looking for|top-level|literal|JSON input|max depth`)

// speaks checks that an answer has a mistake for each of the fields, in order, and none of the program's own words.
func (r *rig) speaks(got answered, fields ...string) {
	r.Helper()
	p := jsonOf(r.T, got.body)
	var names []string
	for _, one := range p["errors"].([]any) {
		m := one.(map[string]any)
		names = append(names, m["field"].(string))
		if word := internal.FindString(fmt.Sprint(m["detail"])); word != "" {
			r.Errorf("the detail has %q: %v", word, m["detail"])
		}
	}
	equal(r.T, "the fields of "+got.body, strings.Join(names, " "), strings.Join(fields, " "))
}

// A task that package durable refuses is refused with the field as it is in JSON.
func TestTask_thatIsWrong_namesTheFieldOfJSON(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	long := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	const five = `"delay": 1, "kind": "k", `
	for _, c := range []struct{ wrong, fields, right string }{
		{`{}`, "kind", `{"kind": "k"}`},
		{`{"kind": null}`, "kind", `{"kind": "l"}`},
		{`{"kind": "K"}`, "kind", `{"kind": "k"}`},
		{`{"kind": ` + long(durable.MaxKind+1) + `}`, "kind", `{"kind": "k"}`},
		{`{"kind": "k\u001fa"}`, "kind", `{"kind": "k"}`},
		{`{"kind": "k", "payload": ` + long(durable.MaxPayload) + `}`, "payload", `{"kind": "k", "payload": ` + long(durable.MaxPayload-2) + `}`},
		{`{"kind": "k", "payload_base64": "` + base64.StdEncoding.EncodeToString(make([]byte, durable.MaxPayload+1)) + `"}`, "payload_base64",
			`{"kind": "k", "payload_base64": "` + base64.StdEncoding.EncodeToString(make([]byte, durable.MaxPayload)) + `"}`},
		{`{` + five + `"payload": null, "payload_base64": ""}`, "payload_base64", `{` + five + `"payload": null}`},
		{`{` + five + `"group": ` + long(durable.MaxGroup+1) + `}`, "group", `{` + five + `"group": ` + long(durable.MaxGroup) + `}`},
		{`{"kind": "k", "delay": "-1ns"}`, "delay", `{"kind": "k", "delay": -0.0}`},
		{`{` + five + `"interval": -1}`, "interval", `{` + five + `"interval": 1}`},
		{`{` + five + `"max_delay": -1}`, "max_delay", `{` + five + `"max_delay": 1}`},
		{`{` + five + `"max_delay": 0.9}`, "max_delay", `{` + five + `"max_delay": 1.1}`},
		{`{"kind": "k", "max_delay": 1}`, "max_delay", `{"kind": "k", "max_delay": 0}`},
		{`{` + five + `"jitter": -1}`, "jitter", `{` + five + `"jitter": 1}`},
		{`{` + five + `"expires": -1}`, "expires", `{` + five + `"expires": 1}`},
		{`{` + five + `"expires": 1, "interval": 1}`, "expires", `{` + five + `"expires": 0, "interval": 1}`},
		{`{` + five + `"expires": 1, "cron": "@daily"}`, "expires", `{` + five + `"expires": null, "cron": "@daily"}`},
		{`{` + five + `"times": -2, "interval": 1}`, "times", `{` + five + `"times": -1, "interval": 1}`},
		{`{` + five + `"times": 2}`, "times", `{` + five + `"times": 1}`},
		{`{` + five + `"times": -1}`, "times", `{` + five + `"times": 3e0, "cron": "@daily"}`},
		{`{` + five + `"at": "2200-01-01T00:00:00Z"}`, "at", `{"kind": "k", "at": "2200-01-01T00:00:00Z"}`},
		{`{"kind": "k", "at": "1969-12-31T23:59:59Z"}`, "at", `{"kind": "k", "at": "1970-01-01T00:00:00Z"}`},
		{`{"kind": "k", "at": "0001-01-01T00:00:00Z"}`, "at", `{"kind": "k", "at": "2261-12-31T23:59:59+01:00"}`},
		{`{"kind": "k", "at": "9999-01-01T00:00:00Z"}`, "at", `{"kind": "k", "at": null}`},
		{`{"kind": "k", "at": "2100-01-01"}`, "at", `{"kind": "k", "at": "2100-01-01T00:00:00Z"}`},
		{`{"kind": "k", "delay": "2540400h"}`, "delay", `{"kind": "k", "delay": "2000000h"}`},
		{`{` + five + `"interval": 1, "cron": "@daily"}`, "cron", `{` + five + `"cron": "@daily"}`},
		{`{` + five + `"cron": "@every 5m"}`, "cron", `{` + five + `"cron": "@hourly"}`},
		{`{` + five + `"cron": "@reboot"}`, "cron", `{` + five + `"cron": "@weekly"}`},
		{`{` + five + `"cron": "*/5 * * * * *"}`, "cron", `{` + five + `"cron": "*/5 * * * *"}`},
		{`{` + five + `"cron": "1 2 3 4 5 6 7"}`, "cron", `{` + five + `"cron": "1 2 3 4 5"}`},
		{`{` + five + `"cron": "0 30 9 * * MON"}`, "cron", `{` + five + `"cron": "30 9 * * MON"}`},
		{`{` + five + `"cron": "0 0 31 2 *"}`, "cron", `{` + five + `"cron": "0 0 29 2 *"}`},
		{`{` + five + `"cron": "61 0 * * *"}`, "cron", `{` + five + `"cron": "59 0 * * *"}`},
		{`{` + five + `"cron": ` + long(durable.MaxCron+1) + `}`, "cron", `{` + five + `"cron": "* * * * *` + strings.Repeat(" ", durable.MaxCron-9) + `"}`},
		{`{` + five + `"cron": "CRON_TZ=Europe 0 0 * * *"}`, "cron", `{` + five + `"cron": "CRON_TZ=Europe/Berlin 0 0 * * *"}`},
		{`{` + five + `"cron": "CRON_TZ=../../etc/passwd 0 0 * * *"}`, "cron", `{` + five + `"cron": "CRON_TZ=UTC\t0 0 * * *"}`},
		{`{` + five + `"cron": "CRON_TZ=None\t0 0 * * *"}`, "cron", `{` + five + `"cron": "  @yearly"}`},
		{`{` + five + `"cron": "CRON_TZ=Local 0 0 * * *"}`, "cron", `{` + five + `"cron": ""}`},
		{`{` + five + `"cron": " "}`, "cron", `{` + five + `"cron": "? ? ? ? ?"}`},
		{`{"kind": 5, "delay": -1, "times": 7, "jitter": "x", "gruop": "", "cron": "x"}`, "kind jitter gruop delay cron",
			`{"kind": "k", "delay": 1, "times": 7, "jitter": 1, "group": "", "cron": "@daily"}`},
		{`{"kind": "m", "delay": "-1s", "interval": 0.1, "expires": 3, "max_delay": 1}`, "kind delay expires",
			`{"kind": "k", "delay": "1s", "interval": 0.1, "max_delay": 1}`},
	} {
		got := r.do("PUT", "/tasks/a", c.wrong)
		equal(t, fmt.Sprintf("the status of %.200s", c.wrong), got.status, 400)
		r.speaks(got, strings.Fields(c.fields)...)
		r.must(204, "PUT", "/tasks/a", c.right)
		if got := jsonLines(t, r.must(200, "POST", "/tasks", `{"key": "b", `+strings.TrimPrefix(c.right, "{")))[0]; got["status"] != 204.0 {
			t.Errorf("%s: %v", c.right, got)
		}
	}
	got := r.do("PUT", "/tasks/"+strings.Repeat("x", durable.MaxKey+1), `{"kind": "k", "times": "1"}`)
	r.speaks(got, "times", "key")
	r.must(204, "PUT", "/tasks/"+strings.Repeat("x", durable.MaxKey), `{"kind": "k", "delay": 3600}`)
	got = r.do("PUT", "/tasks/a", `{"kind": "none", "dealy": 1}`, "If-None-Match", "x", "If-Match", "*")
	r.speaks(got, "If-None-Match", "If-Match", "dealy", "kind")
	r.speaks(r.do("POST", "/tasks/unpark", `{"kin": "k", "state": "prked"}`), "kin", "state")
	for body, fields := range map[string]string{
		`{}`: "delay", `{"delay": -1}`: "delay", `{"delay": "x", "ta": 1}`: "delay ta", `{"delay": -1, "at": "2200-01-01T00:00:00Z"}`: "delay at",
		`{"at": "9999-01-01T00:00:00Z"}`: "at", `{"at": "0001-01-01T00:00:00Z"}`: "at", `{"delay": "2540400h"}`: "delay",
		`{"at": "now"}`: "at", ``: "", `[]`: "", `{"delay": 1, "delay": 1}`: "delay",
	} {
		r.speaks(r.do("POST", "/tasks/a/reschedule", body, "Content-Type", "application/json"), strings.Split(fields, " ")...)
	}
}

// The check of a task accepts exactly the tasks that package durable accepts, so that its errors never reach a caller.
func TestTask_check_agreesWithPackageDurable(t *testing.T) {
	r := startOn(t, config(t, "127.0.0.1:1", idle), on(&failing{KV: memory.New()}))
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	accepted, refused := 0, 0
	for i := range 3000 {
		body := "{" + strings.Join([]string{
			`"kind": ` + pick(`"k"`, `"k"`, `"k"`, `"k"`, `"l"`, `""`, `"x"`), `"delay": ` + pick(`0`, `3600`, `3600`, `-1`, `null`, `1e9`),
			`"at": ` + pick(`null`, `null`, `null`, `"2200-01-01T00:00:00Z"`, `"1960-01-01T00:00:00Z"`, `"2300-01-01T00:00:00Z"`),
			`"interval": ` + pick(`0`, `0`, `3600`, `-1`), `"cron": ` + pick(`""`, `""`, `"@daily"`, `"x"`),
			`"times": ` + pick(`0`, `1`, `2`, `-1`, `-2`), `"max_delay": ` + pick(`0`, `0`, `0`, `3600`, `1`, `-1`), `"jitter": ` + pick(`0`, `1`, `-1`),
			`"expires": ` + pick(`0`, `0`, `1`, `-1`), `"group": ` + pick(`""`, `"g"`),
		}, ", ") + "}"
		var req taskRequest
		wrong := decode([]byte(body), &req)
		if wrong != nil {
			t.Fatalf("%s: %v", body, wrong)
		}
		req.check(&wrong, "key", []string{"k", "l"})
		err := r.srv.s.SetTask(t.Context(), req.task(fmt.Sprint("key", i%100), "", new(Kind)))
		if (err != nil) != (wrong != nil) {
			t.Errorf("%s: %v, and package durable says %v", body, wrong, err)
		}
		if err == nil {
			accepted++
		} else {
			refused++
		}
	}
	if accepted < 20 || refused < 20 {
		t.Errorf("%d were accepted, and %d refused", accepted, refused)
	}
}

// A missing kind is a mistake of the request. A token that may use some kinds learns only of these.
func TestKind_thatIsMissingOrUnknown(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", strings.Replace(idle, "{", `{"tokens": [
		{"name": "all", "token": "has a right to all kinds", "prefixes": [""], "kinds": ["*"], "rights": ["write"]},
		{"name": "some", "token": "has a right to one kind", "prefixes": [""], "kinds": ["k"], "rights": ["write"]}],`, 1)))
	for _, c := range []struct {
		token, body string
		status      int
		says        string
	}{
		{"all", `{}`, 400, "must be one of k, l"}, {"one", `{}`, 400, `must be one of k"`},
		{"all", `{"kind": "L"}`, 400, "(did you mean l?)"}, {"one", `{"kind": "K"}`, 403, "must be one of k (did you mean k?)"},
		{"one", `{"kind": "l"}`, 403, `no right to tasks of kind \"l\": it must be one of k"`},
		{"one", `{"kind": "m"}`, 403, `no right to tasks of kind \"m\": it must be one of k"`},
		{"one", `{"kind": "l", "delay": -1, "x": 1}`, 403, "no right"},
	} {
		if r.bearer = "has a right to all kinds"; c.token == "one" {
			r.bearer = "has a right to one kind"
		}
		if got := r.do("PUT", "/tasks/a", c.body); got.status != c.status || !strings.Contains(got.body, c.says) {
			t.Errorf("%s: %s: %+v", c.token, c.body, got)
		}
		fields := strings.TrimPrefix(strings.Replace(strings.Replace(c.body, `, "x": 1`, "", 1), "{}", `{"delay": 1}`, 1), "{")
		got := jsonLines(t, r.must(200, "POST", "/tasks", `{"key": "a", `+fields))
		if got[0]["status"] != float64(c.status) {
			t.Errorf("%s: %s: %v", c.token, c.body, got)
		}
	}
}

// All malformed lines of a batch are named at once.
func TestBatch_withMalformedLines_namesThemAll(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	p := jsonOf(t, r.must(400, "POST", "/tasks", strings.Join([]string{
		`{"op": "putt", "keyy": "a"}`, ``, `{"key": "a", "kind": "k"}`, `{"op": "delete", "key": 1, "kind": "k"}`, `{`,
		`{"key": "b", "kind": "none", "dealy": 1}`, `{"key": "c", "kind": "k", "times": -2}`, `{"op": 1, "key": "d"}`, `{"op": "add", "key": "e", "delay": true}`,
	}, "\n")))
	var got []string
	for _, one := range p["errors"].([]any) {
		m := one.(map[string]any)
		got = append(got, fmt.Sprint(m["line"], " ", m["field"], ": ", m["detail"]))
	}
	want := `1 keyy: unknown field (did you mean key?)
1 op: must be one of put, add, delete, reschedule (did you mean put?)
1 key: is missing
4 key: must be text
4 kind: unknown field
5 : the JSON is malformed at byte 2: the text ends too early
6 dealy: unknown field (did you mean delay?)
8 op: must be text
9 delay: must be a number of seconds or text such as "1h30m", up to 292 years
6 kind: must be one of k, l
7 times: must be -1 or more; -1 is until the task is removed
9 kind: is missing: it must be one of k, l`
	equal(t, "the mistakes", strings.Join(got, "\n"), want)
	p = jsonOf(t, r.must(400, "POST", "/tasks", strings.Repeat("{}\n", mostLines)))
	equal(t, "the number of mistakes", len(p["errors"].([]any)), mostMistakes)
	equal(t, "the number of tasks", r.srv.s.Len(), 0)
}

// Each request has an id of its own, whatever its caller sends. A caller's id is in the log if it cannot confuse it.
func TestRequest_hasAnID(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	seen := make(map[string]bool)
	for _, path := range []string{"/tasks", "/tasks", "/none", "/openapi.json", "/tasks?limit=0"} {
		id := r.do("GET", path, "", requestID, "of the caller").header.Get(requestID)
		if seen[id] || !regexp.MustCompile(`^[A-Z2-7]{20}$`).MatchString(id) {
			t.Errorf("the id of %s is %q", path, id)
		}
		seen[id] = true
	}
	check(t, r.srv.s.Shutdown(t.Context()))
	for id, logged := range map[string]string{
		"": "", "01234-abc": "caller_request=01234-abc", "a b": "", "ä": "", strings.Repeat("x", 65): "", `a"b`: `caller_request="a\"b"`,
	} {
		got := r.do("GET", "/tasks", "", requestID, id)
		line := r.log.line("request=" + got.header.Get(requestID))
		if !strings.Contains(line, "status=503") || !strings.Contains(line, logged) || logged == "" && strings.Contains(line, "caller_request") {
			t.Errorf("%q: the log has %s", id, line)
		}
	}
}

// brokenOff is a body whose error names addresses.
type brokenOff struct{}

func (brokenOff) Read([]byte) (int, error) {
	return 0, errors.New("read tcp 10.0.0.1:8470->10.0.0.2:999: i/o timeout")
}

func TestBody_thatBreaksOff_isAnsweredWithoutAddresses(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	req := httptest.NewRequest("PUT", "/tasks/a", io.MultiReader(strings.NewReader(`{"kind": "k"`), brokenOff{}))
	req.Host = "localhost"
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	r.srv.api.Handler.ServeHTTP(w, req)
	if w.Code != 400 || strings.Contains(w.Body.String(), "10.0") || !strings.Contains(w.Body.String(), "the body ended too early") {
		t.Errorf("the answer is %d %s", w.Code, w.Body)
	}
}

// Errors that no caller can have caused are answered in general, and only the log has their text.
func TestProblem_neverHasTheTextOfAnError(t *testing.T) {
	secret := errors.New("pgx: dial tcp db.internal:5432 as user ann: /etc/secret")
	for err, want := range map[error]effect{
		secret: effectUnknown, fmt.Errorf("%w: %w", durable.ErrUnavailable, secret): effectUnknown, unchanged{secret}: effectNone,
		fmt.Errorf("%w: %w", durable.ErrBroken, secret): effectUnknown, fmt.Errorf("%w: %w", durable.ErrInvalidTask, secret): "",
		fmt.Errorf("%w: %w", durable.ErrStopped, secret): effectNone, fmt.Errorf("%w: %w", durable.ErrTaskKeyNotFound, secret): "",
		fmt.Errorf("%w: %w", durable.ErrUnknownKind, secret): effectUnknown, &durable.DuplicateKeysError{Keys: []string{"a"}}: "",
	} {
		p := problemOf(err)
		w := httptest.NewRecorder()
		p.write(w)
		if word := internal.FindString(w.Body.String()); word != "" || strings.Contains(w.Body.String(), "secret") || p.Effect != want {
			t.Errorf("%v: %s", err, w.Body)
		}
		if errors.Is(err, secret) && p.Status >= http.StatusInternalServerError && !errors.Is(err, durable.ErrStopped) && !errors.Is(p.cause, secret) {
			t.Errorf("%v: the cause is %v", err, p.cause)
		}
	}
}

// Each mistake in the parameters of a list names its parameter.
func TestParameters_thatAreWrong_areNamed(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	for query, field := range map[string]string{
		"/tasks?limit=x": "limit", "/tasks?state=Parked": "state", "/tasks?after=x": "after", "/tasks?x=1": "x", "/history?outcome=succeeded,done": "outcome",
		"/tasks?limit=0&perfix=a&state=x&group=a&group=b&kind=none":    "group perfix limit state",
		"/history?outcome=done,succeeded,x&limit=x&state=parked&x=%zz": " state limit outcome outcome", "/schedules?a=1&b=2": "a b",
		"/history?after=" + url.QueryEscape(strings.Repeat("\x00", 300)): "after", "/tasks?prefix=%FF": "key",
	} {
		r.speaks(r.do("GET", query, ""), strings.Split(field, " ")...)
	}
	r.must(200, "GET", "/tasks?limit=1&state=parked&kind=none&group=g", "")
	r.must(200, "GET", "/history?outcome=succeeded,failed", "")
}

// The example of HTTP.md is what the service answers.
func TestProblem_ofTheDocument(t *testing.T) {
	text, err := os.ReadFile("../../HTTP.md")
	check(t, err)
	example := regexp.MustCompile("(?s)So\n`([^`]+)` is answered with:\n\n```json\n(.*?)```").FindSubmatch(text)
	if example == nil {
		t.Fatal("there is no example")
	}
	r := start(t, config(t, "127.0.0.1:1", strings.Replace(simple, `"k"`, `"mail"`, 1)))
	got, want := jsonOf(t, r.must(400, "PUT", "/tasks/a", string(example[1]))), jsonOf(t, string(example[2]))
	got["request"] = want["request"]
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the answer is %v, want %v", got, want)
	}
}
