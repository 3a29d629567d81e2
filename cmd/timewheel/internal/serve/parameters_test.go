// SPDX-License-Identifier: MIT

package serve

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// A key that is not percent-encoded is never taken for another one, and encoded it can be any text.
func TestKey_thatIsNotEncoded_isRefused(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	const task = `{"kind": "k", "delay": "1h"}`
	for path, key := range map[string]string{
		"/tasks/a//b": "", "/tasks//a": "", "/tasks//": "", "/tasks/..": "", "/tasks/.": "", "/tasks/../tasks/a": "", "/tasks/a/../b": "",
		"/tasks/a/./reschedule": "", "//tasks/a": "", "/tasks/../schedules/a": "", "/tasks/%2F": "", "/tasks/%2f": "", "/tasks/%2F/reschedule": "",
		"/tasks/a%2F%2Fb": "a//b", "/tasks/%2E%2E": "..", "/tasks/%2e": ".", "/tasks/a..b": "a..b", "/tasks/...": "...",
		"/tasks/a%2F..%2Fb": "a/../b",
	} {
		req, err := http.NewRequest("PUT", r.url, strings.NewReader(task))
		check(t, err)
		req.URL.Opaque = "//" + req.URL.Host + path // as it is
		got := r.send(req)
		if key == "" {
			if got.status != 400 || got.header.Get("Content-Type") != "application/problem+json" || !strings.Contains(got.body, "in a ") {
				t.Errorf("%s: %+v", path, got)
			}
			continue
		}
		if _, is := r.info(key); got.status != 204 || !is {
			t.Errorf("%s: %d, and whether there is %q: %v", path, got.status, key, is)
		}
	}
	r.must(200, "POST", "/tasks", `{"key": "/", "kind": "k", "delay": "1h"}`)
	equal(t, "the tasks", r.srv.s.Len(), 7)
	r.must(404, "GET", "/", "")
	r.must(404, "GET", "/tasks/", "")
}

// A parameter is known, and given once. One that cannot be read is not left out, because more tasks would match.
func TestParameters_areGivenOnce(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	for path, says := range map[string]string{
		"/tasks?prefix=a&prefix=b": "prefix: is given twice", "/tasks?limit=1&limit=1": "limit: is given twice",
		"/history?key=a&key=b": "key: is given twice", "/tasks?prefix=%zz": `the query is malformed: \"%zz\" is not a % and two`, "/tasks?prefix=a;kind=k": "the query is malformed: a ; in a value is %3B",
		"/history?key=%": `the query is malformed: \"%\" is not`, "/schedules?%zz": "the query is malformed",
		"/tasks?perfix=a": "did you mean prefix?", "/schedules?prefix=a": "there are none",
		`PUT /tasks/a?if-none-match=* {"kind":"k"}`: "if-none-match: unknown parameter: there are none", "/tasks/a?x=1": "there are none",
		"DELETE /tasks/a?if-match=* ": "there are none", `POST /tasks/a/reschedule?delay=1 {"delay":1}`: "there are none",
		`POST /tasks?dry=1 {"key":"a","kind":"k"}`: "there are none", `POST /tasks/remove?kind=k {"kind":"k"}`: "there are none",
		`PUT /schedules/a?version=1 {"tasks":[]}`: "there are none", "/openapi.json?x": "there are none", "PUT /tasks/a?%zz {}": "the query is malformed",
		"/tasks?prefix=a&kind=k": "", "/history?key=a&kind=k": "", "/schedules": "",
	} {
		method, path, body := "GET", path, ""
		if parts := strings.Split(path, " "); len(parts) == 3 {
			method, path, body = parts[0], parts[1], parts[2]
		}
		got := r.do(method, path, body)
		if want := map[bool]int{true: 200, false: 400}[says == ""]; got.status != want || !strings.Contains(got.body, says) {
			t.Errorf("%s: %d, want %d with %q: %s", path, got.status, want, says, got.body)
		}
	}
	r.speaks(r.do("PUT", "/tasks/a?x=1", `{"kind": "none", "dealy": 1}`, "If-None-Match", "x"), "x", "If-None-Match", "dealy", "kind")
	r.speaks(r.do("POST", "/tasks?x=1", `{"key": 1}`, "Idempotency-Key", "1"), "x", "Idempotency-Key", "key", "kind")
	r.speaks(r.do("PUT", "/schedules/a?x=1", `{"taks": []}`), "x", "taks", "tasks")
	r.speaks(r.do("POST", "/tasks/run?x=1", `{"kin": "k"}`), "x", "kin")
	r.speaks(r.do("POST", "/tasks/a/reschedule?x=1", `{"at": 1}`), "x", "at")
	equal(t, "the tasks", r.srv.s.Len(), 0)
}

// A request that package http does not understand is answered by that alone, as HTTP.md says.
func TestRequest_thatCannotBeRead_isAnsweredWithText(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	for request, status := range map[string]string{
		"GET /tasks/%zz HTTP/1.1\r\nHost: a\r\n\r\n":                                                           "400 Bad Request",
		fmt.Sprintf("GET /tasks HTTP/1.1\r\nHost: a\r\nX-A: %s\r\n\r\n", strings.Repeat("a", mostFields+4096)): "431 Request Header Fields Too Large",
	} {
		conn, err := net.Dial("tcp", r.srv.Addr().String())
		check(t, err)
		_, err = io.WriteString(conn, request)
		check(t, err)
		answer := make([]byte, 1024)
		n, err := io.ReadAtLeast(conn, answer, len("HTTP/1.1 ")+len(status))
		check(t, err)
		if got := string(answer[:n]); !strings.HasPrefix(got, "HTTP/1.1 "+status) || strings.Contains(got, requestID) {
			t.Errorf("the answer is %s", got)
		}
		check(t, conn.Close())
	}
}
