// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed581295f1/timewheel/durable"
)

// A handler that panics is answered with a problem, unless its answer has begun, and the log has the stack.
func TestRecovered(t *testing.T) {
	for name, c := range map[string]struct {
		do     http.HandlerFunc
		status int // 0: the connection is closed
		logged bool
	}{
		"before the answer": {func(http.ResponseWriter, *http.Request) { panic("a fault of the test") }, 500, true},
		"in the answer": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "a part")
			panic("a fault of the test")
		}, 0, true},
		"after the header was sent": {func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			panic("a fault of the test")
		}, 0, true},
		"to close the connection": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0, false},
		"none":                    {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "whole") }, 200, false},
	} {
		t.Run(name, func(t *testing.T) {
			text := new(lines)
			log := slog.New(slog.NewTextHandler(text, nil))
			counts := prometheus.NewCounterVec(prometheus.CounterOpts{}, []string{"method", "code"})
			a := newAPI(nil, &Config{}, log, counts)
			server := httptest.NewServer(begin(recovered(log, a.answer, c.do)))
			defer server.Close()
			resp, err := http.Post(server.URL+"/x", "text/plain", strings.NewReader("a body"))
			body := []byte(nil)
			if err == nil {
				defer resp.Body.Close()
				body, err = io.ReadAll(resp.Body)
			}
			line := text.line("a handler has panicked")
			if (line != "") != c.logged || c.logged && (!strings.Contains(line, "level=ERROR") ||
				!strings.Contains(line, "a fault of the test") || !strings.Contains(line, "recover_test.go") ||
				!strings.Contains(line, "path=/x")) {
				t.Errorf("the log is %q", line)
			}
			if c.status == 0 {
				if err == nil {
					t.Errorf("the answer is %d: %s", resp.StatusCode, body)
				}
				return
			}
			check(t, err)
			equal(t, "the status", resp.StatusCode, c.status)
			if c.status == 500 {
				p := jsonOf(t, string(body))
				id := resp.Header.Get(requestID)
				if p["request"] != id || p["effect"] != "unknown" || !strings.Contains(line, "request="+id) ||
					strings.Contains(string(body), "fault") {
					t.Errorf("the problem is %s, and the log has %q", body, line)
				}
				equal(t, "the count", testutil.ToFloat64(counts.WithLabelValues("POST", "500")), 1)
			}
		})
	}
}

// The routes of callers and of operators are covered.
func TestRecovered_isOnBothAddresses(t *testing.T) {
	r := startCommands(t, "", func(_ context.Context, _ *durable.Scheduler, c Call) int { panic("a fault of the test") })
	resp, err := http.Post(r.url+CommandPath, "application/json", strings.NewReader(commandLine))
	check(t, err)
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the answer is whole: %s", body)
	}
	r.url = "http://" + r.srv.Addr().String()
	was := r.srv.callers.s
	r.srv.callers.s = nil
	r.must(500, "GET", "/tasks/a", "")
	r.must(500, "POST", "/tasks", `{"op": "delete", "key": "a"}`)
	r.srv.callers.s = was
	r.must(404, "GET", "/tasks/a", "")
	equal(t, "the panics in the log", r.log.count("a handler has panicked"), 3)
}
