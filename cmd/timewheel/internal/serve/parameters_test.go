// SPDX-License-Identifier: MIT

package serve

import (
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

// A parameter is given once. One that cannot be read is not left out, because more tasks would match.
func TestParameters_areGivenOnce(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	for path, says := range map[string]string{
		"/tasks?prefix=a&prefix=b": "prefix: is given twice", "/tasks?limit=1&limit=1": "limit: is given twice",
		"/history?key=a&key=b": "key: is given twice", "/tasks?prefix=%zz": `the query is malformed: \"%zz\" is not a % and two`, "/tasks?prefix=a;kind=k": "the query is malformed: a ; in a value is %3B",
		"/history?key=%": `the query is malformed: \"%\" is not`, "/schedules?%zz": "the query is malformed",
		"/tasks?perfix=a": "did you mean prefix?", "/schedules?prefix=a": "there are none",
		"/tasks?prefix=a&kind=k": "", "/history?key=a&kind=k": "", "/schedules": "",
	} {
		got := r.do("GET", path, "")
		if want := map[bool]int{true: 200, false: 400}[says == ""]; got.status != want || !strings.Contains(got.body, says) {
			t.Errorf("%s: %d, want %d with %q: %s", path, got.status, want, says, got.body)
		}
	}
}
