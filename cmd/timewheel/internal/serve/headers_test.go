// SPDX-License-Identifier: MIT

package serve

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// The headers of a task are sent with its webhook, if its kind names them, and are read back.
func TestHeaders_ofATask(t *testing.T) {
	got := make(chan http.Header, 10)
	r := start(t, config(t, receiver(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }),
		`{"listen": "127.0.0.1:0", "kinds": {"k": {`+local+`, "headers": {"X-Own": "own"}, "task_headers": ["x-tenant", "X-Two"]}, "none": {`+local+`}}}`))
	r.must(204, "PUT", "/tasks/a", `{"kind": "k", "delay": "1h", "headers": {"X-Tenant": "acme", "x-two": "2"}}`)
	if body := r.must(200, "GET", "/tasks/a", ""); !strings.Contains(body, `"headers":{"X-Tenant":"acme","x-two":"2"}`) {
		t.Errorf("the task is %s", body)
	}
	r.must(204, "POST", "/tasks/a/reschedule", `{"delay": 0}`)
	if h := <-got; h.Get("X-Tenant") != "acme" || h.Get("X-Two") != "2" || h.Get("X-Own") != "own" {
		t.Errorf("the headers are %v", h)
	}
	r.must(200, "POST", "/tasks", `{"key": "b", "kind": "k", "headers": {"X-Tenant": "of a batch"}}`)
	equal(t, "the header", (<-got).Get("X-Tenant"), "of a batch")
	r.must(200, "PUT", "/schedules/s:", `{"version": 1, "tasks": [{"key": "s:a", "kind": "k", "interval": "1h", "headers": {"X-Tenant": "of a schedule"}}]}`)
	r.must(204, "POST", "/tasks/s:a/reschedule", `{"delay": 0}`)
	equal(t, "the header", (<-got).Get("X-Tenant"), "of a schedule")

	long := strings.Repeat("x", durable.MaxMeta)
	for body, want := range map[string]string{
		`{"kind": "none", "headers": {"X-Tenant": "a"}}`:                   `headers.X-Tenant: is not allowed: the kind names no task_headers`,
		`{"kind": "k", "headers": {"X-Tennant": "a"}}`:                     `headers.X-Tennant: must be one of X-Tenant, X-Two (did you mean X-Tenant?)`,
		`{"kind": "k", "headers": {"x-tenant": "a", "X-Tenant": "a"}}`:     `headers.x-tenant: is given twice`,
		`{"kind": "k", "headers": {"X-Tenant": "a\r\nX-Own: b"}}`:          `headers.X-Tenant: is not printable ASCII`,
		`{"kind": "k", "headers": {"Authorization": "a"}}`:                 `headers.Authorization: must be one of`,
		`{"kind": "k", "headers": {"X-Tenant": 5}}`:                        `headers.X-Tenant: `,
		`{"kind": "k", "headers": {"X-Tenant": "` + long + `"}}`:           `headers: have`,
		`{"kind": "k", "headers": {"X-Tenant\r\n": "a"}}`:                  `must be one of`,
		`{"kind": "k", "until": "2200-01-01T00:00:00Z"}`:                   `until: needs interval or cron`,
		`{"kind": "k", "interval": "1h", "until": "1200-01-01T00:00:00Z"}`: `until: 1200-01-01T00:00:00Z must be between`,
	} {
		if got := r.do("PUT", "/tasks/wrong", body); got.status != 400 || !strings.Contains(strings.ReplaceAll(got.body, `\"`, `"`), want) {
			t.Errorf("%.100s: %d, want %s: %s", body, got.status, want, got.body)
		}
	}
}

// A header that the configuration no longer names is not sent, and neither is a Meta that is no header.
func TestHeaders_ofAnotherConfiguration(t *testing.T) {
	of := &Kind{TaskHeaders: []string{"X-A"}}
	for _, meta := range []string{"", "x", "[]", "null", `{"X-B": "b", "Host": "b"}`, `{"X-A": "a\nb"}`, `{"X-A": 5}`} {
		h := make(http.Header)
		if of.setHeaders(h, meta); len(h) > 0 {
			t.Errorf("of %s the headers are %v", meta, h)
		}
	}
}

// A header of the kind wins, also if a reload has taken its name from the tasks.
func TestHeaders_ofTheKind_winAfterAReload(t *testing.T) {
	got := make(chan string, 1)
	at := receiver(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Authorization") })
	text := func(more string) string {
		return strings.ReplaceAll(`{"listen": "127.0.0.1:0", "kinds": {"k": {`+local+`, `+more+`}}}`, "$R", at)
	}
	f := newFile(t, text(`"task_headers": ["Authorization"]`))
	r := start(t, f.load())
	const task = `{"kind": "k", "headers": {"authorization": "of the caller"}}`
	r.must(204, "PUT", "/tasks/a", task)
	equal(t, "the header", <-got, "of the caller")
	f.write(text(`"headers": {"Authorization": "of the operator"}`))
	r.reloads(readAgain)
	r.must(204, "PUT", "/tasks/b", task)
	equal(t, "the header", <-got, "of the operator")
	r.ends("b")
}

// A repeating task ends at its time.
func TestUntil(t *testing.T) {
	called := make(chan bool, 100)
	r := start(t, config(t, receiver(t, func(http.ResponseWriter, *http.Request) { called <- true }), simple))
	until := time.Now().UTC().Add(time.Hour).Format(time.RFC3339Nano)
	r.must(204, "PUT", "/tasks/a", `{"kind": "k", "interval": "40m", "until": "`+until+`"}`)
	if body := r.must(200, "GET", "/tasks/a", ""); !strings.Contains(body, `"until":"`+until+`"`) {
		t.Errorf("the task is %s", body)
	}
	r.must(204, "POST", "/tasks/a/reschedule", `{"at": "`+until+`"}`)
	r.must(204, "PUT", "/tasks/b", `{"kind": "k", "delay": 0.001, "interval": "2h", "until": "`+until+`"}`)
	<-called
	r.ends("b")
}
