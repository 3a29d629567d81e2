// SPDX-License-Identifier: MIT

package serve

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// idle is a configuration with two kinds whose tasks are not due during a test.
const idle = `{"listen": "127.0.0.1:0", "kinds": {"k": {` + local + `}, "l": {"elsewhere": true}}}`

func TestTasks_areAddedReadMovedAndRemoved(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	before := time.Now()
	r.must(204, "PUT", "/tasks/a", `{"kind": "k", "delay": "1h30m", "payload": {"n": [1]}, "group": "g"}`)
	got := jsonOf(t, r.must(200, "GET", "/tasks/a", ""))
	next, err := time.Parse(time.RFC3339, fmt.Sprint(got["next"]))
	if late := next.Sub(before) - 90*time.Minute; err != nil || late < -time.Second || late > bound {
		t.Errorf("next is %v, %v", next, err)
	}
	info, _ := r.info("a")
	for name, want := range map[string]any{
		"key": "a", "kind": "k", "state": "scheduled", "times": 1.0, "group": "g", "attempts": 0.0, "missed": 0.0,
		"payload": map[string]any{"n": []any{1.0}}, "token": durable.Token{Key: "a", Generation: info.Generation}.String(),
	} {
		equal(t, name, fmt.Sprint(got[name]), fmt.Sprint(want))
	}
	r.must(412, "PUT", "/tasks/a", `{"kind": "k"}`, "If-None-Match", "*")
	r.must(201, "PUT", "/tasks/b", `{"kind": "l", "payload_base64": "AP8=", "interval": 0.5, "delay": 3600}`, "If-None-Match", "*")
	got = jsonOf(t, r.must(200, "GET", "/tasks/b", ""))
	for name, want := range map[string]any{"payload_base64": "AP8=", "times": -1.0, "interval": 0.5} {
		equal(t, name, got[name], want)
	}
	r.must(204, "PUT", "/tasks/b", `{"kind": "k", "cron": "0 9 * * MON", "times": 3}`)
	got = jsonOf(t, r.must(200, "GET", "/tasks/b", ""))
	for name, want := range map[string]any{"kind": "k", "times": 3.0, "cron": "0 9 * * MON"} {
		equal(t, name, got[name], want)
	}

	at := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
	r.must(204, "POST", "/tasks/a/reschedule", `{"at": "`+at.Format(time.RFC3339)+`"}`)
	if info, _ := r.info("a"); info.Next.Sub(at).Abs() > bound {
		t.Errorf("next is %v, want %v", info.Next, at)
	}
	r.must(204, "POST", "/tasks/a/reschedule", `{"delay": 7200}`)
	if info, _ := r.info("a"); time.Until(info.Next) > 2*time.Hour || time.Until(info.Next) < time.Hour {
		t.Errorf("next is %v", info.Next)
	}
	r.must(204, "DELETE", "/tasks/a", "")
	for _, c := range [][3]string{
		{"GET", "/tasks/a", ""}, {"DELETE", "/tasks/a", ""}, {"POST", "/tasks/a/reschedule", `{"delay": 1}`},
	} {
		r.must(404, c[0], c[1], c[2])
	}
}

func TestRequests_thatAreWrong_areProblems(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	for _, c := range []struct {
		status             int
		method, path, body string
		says               string
		headers            []string
	}{
		{404, "GET", "/", "", "/openapi.json", nil},
		{404, "GET", "/metrics", "", "", nil},
		{404, "GET", "/tasks/a/b", "", "", nil},
		{405, "POST", "/tasks/a", "{}", "GET or PUT or DELETE", nil},
		{405, "DELETE", "/tasks", "", "GET or POST", nil},
		{415, "PUT", "/tasks/a", `{"kind": "k"}`, "application/json", []string{"Content-Type", "text/plain"}},
		{415, "POST", "/tasks", `{"key": "a", "kind": "k"}`, "application/x-ndjson", []string{"Content-Type", "application/json"}},
		{415, "PUT", "/tasks/a", "\x1f\x8b", `the Content-Encoding "gzip" is unknown`, []string{"Content-Encoding", "gzip"}},
		{415, "POST", "/tasks", "\x1f\x8b", "Content-Encoding", []string{"Content-Encoding", "br"}},
		{415, "PUT", "/schedules/a", "\x1f\x8b", "Content-Encoding", []string{"Content-Encoding", "gzip"}},
		{415, "POST", "/tasks/unpark", "\x1f\x8b", "Content-Encoding", []string{"Content-Encoding", "identity, gzip"}},
		{400, "PUT", "/tasks/a", `[]`, "must be an object", []string{"Content-Encoding", "Identity"}},
		{400, "PUT", "/tasks/a", ``, "the text is empty", []string{"Content-Type", "application/json"}},
		{400, "PUT", "/tasks/a", `{`, "at byte 1: the text ends too early", nil},
		{400, "PUT", "/tasks/a", `{"kind": "k"}x`, "at byte 14: 'x' is in the place of the end", nil},
		{400, "PUT", "/tasks/a", "{\"kind\": \"k\xff\"}", "not UTF-8", nil},
		{400, "PUT", "/tasks/a", `{"kind": "k", "dealy": 1}`, "dealy: unknown field (did you mean delay?)", nil},
		{400, "PUT", "/tasks/a", `{"kind": "k", "delay": "soon"}`, `delay: "soon" must be a number of seconds or text`, nil},
		{400, "PUT", "/tasks/a", `{"kind": "k", "delay": -1}`, "negative", nil},
		{400, "PUT", "/tasks/a", `{"kind": "none"}`, `kind: "none" must be one of k, l`, nil},
		{400, "PUT", "/tasks/a", `{"kind": "k", "cron": "x"}`, `cron: "x" is not a calendar: 1 field`, nil},
		{400, "PUT", "/tasks/a", `{"kind": "k", "payload": 1, "payload_base64": ""}`, "payload_base64: is given together with payload", nil},
		{400, "PUT", "/tasks/a", `{"kind": "k"}`, "If-None-Match", []string{"If-None-Match", `"x"`}},
		{400, "PUT", "/tasks/a", `{"kind": "k"}`, "If-None-Match", []string{"If-Match", "*"}},
		{400, "PUT", "/tasks/" + strings.Repeat("x", durable.MaxKey+1), `{"kind": "k"}`, "key: has 1025 bytes; at most 1024", nil},
		{400, "PUT", "/tasks/%FF", `{"kind": "k"}`, "not UTF-8", nil},
		{400, "POST", "/tasks/a/reschedule", `{}`, "delay: is missing: one of delay and at", nil},
		{400, "POST", "/tasks/a/reschedule", `{"delay": 1, "at": "2200-01-01T00:00:00Z"}`, "at: is given together with delay", nil},
		{400, "POST", "/tasks/a/reschedule", `{"delay": -1}`, "negative", nil},
		{400, "GET", "/tasks?limit=1001", "", "1 to 1000", nil},
		{400, "GET", "/tasks?state=prked", "", `state: "prked" must be one of scheduled, retrying, waiting, running, parked, paused (did you mean parked?)`, nil},
		{400, "GET", "/tasks?prefxi=a", "", "prefxi: unknown parameter: it must be one of prefix, kind, state, group, limit, after (did you mean prefix?)", nil},
		{400, "GET", "/tasks?after=x", "", `after: "x" is not the next`, nil},
		{400, "GET", "/history?limit=1001", "", "1 to 1000", nil},
		{400, "GET", "/history?outcome=done", "", "succeeded, failed", nil},
		{400, "GET", "/history?state=parked", "", "must be one of prefix, kind, key, outcome, limit, after", nil},
		{400, "GET", "/history?after=x", "", `after: "x" is not the next`, nil},
		{400, "GET", "/history?key=%FF", "", "not UTF-8", nil},
		{403, "GET", "/tasks", "", "neither an IP address nor localhost", []string{"Host", "evil.example"}},
		{403, "PUT", "/tasks/a", `{"kind": "k"}`, "cross-origin", []string{"Sec-Fetch-Site", "cross-site"}},
	} {
		got := r.do(c.method, c.path, c.body, c.headers...)
		if got.status != c.status || got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s %s: %+v, want %d", c.method, c.path, c.body, got, c.status)
			continue
		}
		if p := jsonOf(t, got.body); p["status"] != float64(c.status) || p["title"] != http.StatusText(c.status) ||
			p["request"] != got.header.Get(requestID) || !strings.Contains(fmt.Sprint(p["detail"]), c.says) {
			t.Errorf("%s %s %s: %s", c.method, c.path, c.body, got.body)
		}
	}
	if got := r.do("PATCH", "/tasks/a", ""); got.header.Get("Allow") != "GET, PUT, DELETE" {
		t.Errorf("Allow is %v", got.header)
	}
	if n := r.srv.s.Len(); n != 0 {
		t.Errorf("there are %d tasks", n)
	}
}

// A token has rights for prefixes, for kinds, and for reading or writing.
func TestTokens_haveRights(t *testing.T) {
	cfg := config(t, "127.0.0.1:1", strings.Replace(idle, "{", `{"tokens": [
		{"name": "all", "token": "all all all all all", "prefixes": [""], "kinds": ["*"], "rights": ["read", "write"]},
		{"name": "k", "token": "kind k under a and b", "prefixes": ["a/", "b/"], "kinds": ["k"], "rights": ["read", "write"]},
		{"name": "reader", "token": "only reads everything", "prefixes": [""], "kinds": ["*"], "rights": ["read"]},
		{"name": "writer", "token": "only writes everything", "prefixes": [""], "kinds": ["*"], "rights": ["write"]}],`, 1))
	r := start(t, cfg)
	as := func(token string) { r.bearer = token }
	as("all all all all all")
	const later = `"delay": "1h"`
	for _, task := range [][2]string{{"a/1", "k"}, {"a/2", "l"}, {"c/1", "k"}} {
		r.must(204, "PUT", "/tasks/"+url.PathEscape(task[0]), `{"kind": "`+task[1]+`", `+later+`}`)
	}
	const limited = "kind k under a and b"
	for _, c := range []struct {
		token, method, path, body string
		status                    int
	}{
		{"", "GET", "/tasks/a%2F1", "", 401},
		{"all all all all", "GET", "/tasks/a%2F1", "", 401},
		{"all all all all all!", "GET", "/tasks", "", 401},
		{"", "GET", "/openapi.json", "", 200},
		{limited, "GET", "/tasks/a%2F1", "", 200},
		{limited, "GET", "/tasks/a%2F2", "", 404},
		{limited, "GET", "/tasks/c%2F1", "", 403},
		{limited, "GET", "/tasks/c%2Fnone", "", 403},
		{limited, "GET", "/tasks?prefix=a%2F", "", 200},
		{limited, "GET", "/tasks?prefix=a", "", 403},
		{limited, "GET", "/tasks", "", 403},
		{limited, "GET", "/tasks?prefix=a%2F&kind=l", "", 403},
		{limited, "GET", "/history?prefix=a%2F", "", 200},
		{limited, "GET", "/history?key=a%2Fgone", "", 200},
		{limited, "GET", "/history", "", 403},
		{limited, "GET", "/history?kind=k", "", 403},
		{limited, "GET", "/history?prefix=a", "", 403},
		{limited, "GET", "/history?key=c%2F1", "", 403},
		{limited, "GET", "/history?key=c%2F1&prefix=a%2F", "", 403},
		{limited, "GET", "/history?key=a%2F1&kind=l", "", 403},
		{limited, "PUT", "/tasks/b%2F1", `{"kind": "k", ` + later + `}`, 204},
		{limited, "PUT", "/tasks/b%2F2", `{"kind": "l", ` + later + `}`, 403},
		{limited, "PUT", "/tasks/c%2F2", `{"kind": "k", ` + later + `}`, 403},
		{limited, "PUT", "/tasks/a%2F2", `{"kind": "k", ` + later + `}`, 403}, // it would replace one of kind l
		{limited, "DELETE", "/tasks/a%2F2", "", 404},
		{limited, "DELETE", "/tasks/c%2F1", "", 403},
		{limited, "POST", "/tasks/a%2F2/reschedule", `{"delay": 1}`, 404},
		{limited, "POST", "/tasks/c%2F1/reschedule", `{"delay": 1}`, 403},
		{limited, "POST", "/tasks/a%2F1/reschedule", `{"delay": 7200}`, 204},
		{"only reads everything", "GET", "/tasks/a%2F2", "", 200},
		{"only reads everything", "PUT", "/tasks/x", `{"kind": "k", ` + later + `}`, 403},
		{"only reads everything", "DELETE", "/tasks/a%2F1", "", 403},
		{"only reads everything", "POST", "/tasks", `{"key": "x", "kind": "k"}`, 403},
		{"only reads everything", "POST", "/tasks/a%2F1/reschedule", `{"delay": 1}`, 403},
		{"only writes everything", "GET", "/tasks/a%2F1", "", 403},
		{"only writes everything", "GET", "/tasks", "", 403},
		{"only writes everything", "GET", "/history", "", 403},
		{"only writes everything", "PUT", "/tasks/x", `{"kind": "k", ` + later + `}`, 204},
	} {
		as(c.token)
		if got := r.do(c.method, c.path, c.body); got.status != c.status ||
			c.status == 401 && got.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%q: %s %s %s: %+v, want %d", c.token, c.method, c.path, c.body, got, c.status)
		}
	}
	as(limited)
	if got := r.must(200, "GET", "/tasks?prefix=a%2F", ""); strings.Contains(got, "a/2") || !strings.Contains(got, "a/1") {
		t.Errorf("the list is %s", got)
	}
	lines := jsonLines(t, r.must(200, "POST", "/tasks", strings.Join([]string{
		`{"key": "b/3", "kind": "k", "delay": "1h"}`, `{"op": "add", "key": "b/4", "kind": "k", "delay": "1h"}`,
		`{"op": "add", "key": "b/5", "kind": "l", "delay": "1h"}`, `{"key": "c/1", "kind": "k"}`, `{"key": "a/2", "kind": "k"}`,
		`{"op": "delete", "key": "a/2"}`, `{"op": "reschedule", "key": "c/1", "delay": 1}`,
	}, "\n")))
	for i, want := range []float64{204, 201, 403, 403, 403, 404, 403} {
		equal(t, fmt.Sprint("the status of ", lines[i]), lines[i]["status"], any(want))
	}
	if info, _ := r.info("a/2"); info.Kind != "l" {
		t.Errorf("the task is %v", info)
	}
}

// A caller whose batches take long does not hold up another, and learns that further ones had no effect.
func TestBatch_ofOneCaller_doesNotHoldUpAnother(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", strings.Replace(idle, "{", `{"tokens": [
		{"name": "slow", "token": "sends very slowly", "prefixes": ["a/"], "kinds": ["k"], "rights": ["write"]},
		{"name": "other", "token": "sends at once, as usual", "prefixes": ["b/"], "kinds": ["k"], "rights": ["write"]}],`, 1)))
	for range mostBatches {
		c, err := net.Dial("tcp", r.srv.Addr().String())
		check(t, err)
		defer c.Close()
		_, err = io.WriteString(c, "POST /tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sends very slowly\r\n"+
			"Content-Type: "+batchType+"\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n")
		check(t, err)
		answer := make([]byte, 100)
		if n, err := c.Read(answer); err != nil || !strings.Contains(string(answer[:n]), "100 Continue") { // it is being read
			t.Fatalf("the answer is %q, %v", answer[:n], err)
		}
	}
	r.bearer = "sends at once, as usual"
	lines := jsonLines(t, r.must(200, "POST", "/tasks", `{"op": "add", "key": "b/1", "kind": "k", "delay": "1h"}`))
	equal(t, "the outcome", lines[0]["status"], any(201.0))
	r.bearer = "sends very slowly"
	got := r.do("POST", "/tasks", `{"op": "add", "key": "a/1", "kind": "k", "delay": "1h"}`)
	if got.status != 503 || got.header.Get("Retry-After") == "" || !strings.Contains(got.body, `"effect":"none"`) {
		t.Errorf("one batch too many: %+v", got)
	}
	if _, is := r.info("a/1"); is {
		t.Error("it had an effect")
	}
}

func TestList_pages_followEachOther(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	var batch, want []string
	for i := range 25 {
		want = append(want, keyOf("a", i))
		batch = append(batch, fmt.Sprintf(`{"op": "add", "key": %q, "kind": %q, "delay": %d, "payload": 1}`,
			keyOf("a", i), []string{"k", "l"}[i%2], 7200-i))
	}
	batch = append(batch, `{"key": "b", "kind": "k", "delay": "1h"}`)
	r.must(200, "POST", "/tasks", strings.Join(batch, "\n"))
	for query, most := range map[string]int{"prefix=a": 25, "prefix=a&kind=k": 13, "prefix=a&state=parked": 0, "prefix=a&group=g": 0} {
		var got []string
		for after := ""; ; {
			page := jsonOf(t, r.must(200, "GET", "/tasks?limit=7&"+query+"&after="+after, ""))
			for _, one := range page["tasks"].([]any) {
				task := one.(map[string]any)
				if got = append(got, task["key"].(string)); task["payload"] != nil {
					t.Errorf("the task has a payload: %v", task)
				}
			}
			if page["next"] == nil {
				break
			}
			after = url.QueryEscape(page["next"].(string))
		}
		if len(got) != most || most == len(want) && strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: found %v", query, got)
		}
	}
}

// A batch has an outcome for each line, and the lines of one key take effect in order.
func TestBatch_hasAnOutcomeForEachLine(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	r.must(204, "PUT", "/tasks/used", `{"kind": "k", "delay": "1h"}`)
	lines := jsonLines(t, r.must(200, "POST", "/tasks", strings.Join([]string{
		`{"op": "add", "key": "a", "kind": "k", "delay": "1h"}`,
		`{"op": "add", "key": "used", "kind": "k", "delay": "1h"}`,
		``,
		`{"op": "add", "key": "none", "kind": "none"}`,
		`{"key": "a", "kind": "l", "delay": "1h", "payload": "second"}`,
		`{"op": "reschedule", "key": "a", "delay": "10h"}`,
		`{"op": "delete", "key": "used"}`,
		`{"op": "delete", "key": "used"}`,
		`{"op": "add", "key": "used", "kind": "k", "delay": "5h"}`,
		`{"op": "put", "key": "c", "kind": "k", "cron": "x"}`,
	}, "\n")))
	want := []struct {
		line, status int
		key          string
	}{{1, 201, "a"}, {2, 412, "used"}, {4, 400, "none"}, {5, 204, "a"}, {6, 204, "a"}, {7, 204, "used"}, {8, 404, "used"},
		{9, 201, "used"}, {10, 400, "c"}}
	if len(lines) != len(want) {
		t.Fatalf("the outcomes are %v", lines)
	}
	for i, w := range want {
		got := lines[i]
		if got["line"] != float64(w.line) || got["status"] != float64(w.status) || got["key"] != w.key ||
			(got["detail"] != nil) != (w.status >= 400) {
			t.Errorf("the outcome is %v, want %v", got, w)
		}
	}
	if info, is := r.info("a"); !is || info.Kind != "l" || string(info.Payload) != `"second"` || time.Until(info.Next) < 9*time.Hour {
		t.Errorf("the task is %v", info)
	}
	equal(t, "the number of tasks", r.srv.s.Len(), 2)
}

// A malformed line refuses the whole batch.
func TestBatch_withAMalformedLine_doesNothing(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	for _, bad := range []string{
		`{`, `[]`, `{"kind": "k"}`, `{"key": "b", "kind": "k", "x": 1}`, `{"op": "remove", "key": "b"}`,
		`{"op": "delete", "key": "b", "kind": "k"}`, `{"op": "reschedule", "key": "b"}`, `{"op": "reschedule", "key": "b", "kind": "k", "delay": 1}`,
		`{"key": "b", "kind": "k"} {}`, "{\"key\": \"\xff\", \"kind\": \"k\"}",
	} {
		got := r.must(400, "POST", "/tasks", `{"key": "a", "kind": "k", "delay": "1h"}`+"\n"+bad)
		if !strings.Contains(got, "line 2: ") {
			t.Errorf("%s: %s", bad, got)
		}
	}
	r.must(413, "POST", "/tasks", strings.Repeat(`{"key": "a", "kind": "k"}`+"\n", mostLines+1))
	equal(t, "the number of tasks", r.srv.s.Len(), 0)
}

// Adds of many tasks are a few commits, also if some keys are in use.
func TestBatch_ofAdds_isAFewCommits(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	var batch strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&batch, `{"op": "add", "key": %q, "kind": "k", "delay": "1h"}`+"\n", keyOf("a", i))
	}
	r.must(204, "PUT", "/tasks/"+keyOf("a", 1500), `{"kind": "k", "delay": "1h"}`)
	before := r.srv.s.Stats().Commits.Count
	lines := jsonLines(t, r.must(200, "POST", "/tasks", batch.String()))
	for i, got := range lines {
		want := any(201.0)
		if i == 1500 {
			want = 412.0
		}
		if got["status"] != want {
			t.Fatalf("the outcome is %v, want %v", got, want)
		}
	}
	if n := r.srv.s.Stats().Commits.Count - before; n > 10 {
		t.Errorf("it took %d commits", n)
	}
}

// An endless body, which counts the bytes that were read.
type endless struct {
	read atomic.Int64
	left int64
}

func (e *endless) Read(b []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	n := copy(b, strings.Repeat(" ", min(len(b), 1<<16)))
	e.left -= int64(n)
	e.read.Add(int64(n))
	return n, nil
}

func TestBody_ofAHundredMegabytes_isRefused(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	const size = 100 << 20
	for _, c := range [][2]string{{"PUT", "/tasks/a"}, {"POST", "/tasks"}, {"POST", "/tasks/a/reschedule"}} {
		for _, length := range []int64{size, -1} {
			body := &endless{left: size}
			req, err := http.NewRequest(c[0], r.url+c[1], body)
			check(t, err)
			req.ContentLength = length
			req.Header.Set("Content-Type", "application/json")
			if c[1] == "/tasks" {
				req.Header.Set("Content-Type", batchType)
			}
			resp, err := http.DefaultClient.Do(req)
			if err == nil { // otherwise the server has closed the connection while the body was written
				resp.Body.Close()
				equal(t, "the status", resp.StatusCode, http.StatusRequestEntityTooLarge)
			}
			if n := body.read.Load(); n > size/2 {
				t.Errorf("%s %s with length %d: %d bytes were sent", c[0], c[1], length, n)
			}
		}
	}
	equal(t, "the number of tasks", r.srv.s.Len(), 0)
	large := `"` + strings.Repeat("x", durable.MaxPayload-2) + `"`
	r.must(204, "PUT", "/tasks/a", `{"kind": "k", "delay": "1h", "payload": `+large+`}`)
	r.must(400, "PUT", "/tasks/a", `{"kind": "k", "delay": "1h", "payload": [`+large+`]}`)
}
