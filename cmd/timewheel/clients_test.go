// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The clients add, change and remove tasks and verify webhooks, although the answer to each first PUT is lost, and each other first
// request is refused. They wait as long as the answer asks for, up to a minute.
func TestClients(t *testing.T) {
	want := []string{
		"put True",                    // the first one was done
		`webhook a/1 {"n": 1} 3 True`, // which are wrong in three ways, and then right
		"put False True scheduled",    // without an idempotency key it replaces the task of the first one
		"get b None", "reschedule True False", "tasks ['b']", "count 1", "schedule 1",
		"error 412 None", "error 400 kind", "error 400 Idempotency-Key", "full 429 3600", "dots True", "remove True False", "webhooks 0",
	}
	for program, script := range map[string]string{"python3": "scenario.py", "node": "scenario.mjs"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") == "" {
				t.Skipf("%s is not installed: %v", program, err)
			}
			cmd := exec.CommandContext(t.Context(), program, filepath.Join("clients", "testdata", script))
			cmd.Env = append(os.Environ(), "PYTHONPATH=clients", "PYTHONDONTWRITEBYTECODE=1")
			in, err := cmd.StdinPipe()
			check(t, err)
			out, err := cmd.StdoutPipe()
			check(t, err)
			cmd.Stderr = os.Stderr
			check(t, cmd.Start())
			lines := bufio.NewScanner(out)
			if !lines.Scan() {
				t.Fatal("it prints no port")
			}
			s := startService(t, "-config", serveConfig(t, "127.0.0.1:"+lines.Text()), "-dir", filepath.Join(t.TempDir(), "tasks"))
			_, err = in.Write([]byte(lossy(t, s.url) + "\n"))
			check(t, err)
			var got []string
			for lines.Scan() {
				got = append(got, strings.ReplaceAll(lines.Text(), `{"n":1}`, `{"n": 1}`)) // as each language writes JSON
			}
			check(t, cmd.Wait())
			if !slices.Equal(got, want) {
				t.Errorf("it prints\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// lossy returns the URL of a proxy. It loses its first answer to each PUT of a path, and refuses each other first request. It asks
// for a second before the next count, and for an hour before the next request for the task full.
func lossy(t *testing.T, to string) string {
	target, err := url.Parse(to)
	check(t, err)
	forward := httputil.NewSingleHostReverseProxy(target)
	var mu sync.Mutex
	seen := make(map[string]bool)
	var refused time.Time // a count
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		name := r.Method + r.URL.Path
		first := !seen[name]
		seen[name] = true
		if r.URL.Path == "/tasks/count" {
			if !first && time.Since(refused) < time.Second {
				t.Error("a count is repeated before the time of Retry-After")
			}
			refused = time.Now()
		}
		mu.Unlock()
		switch {
		case r.URL.Path == "/tasks/full":
			if !first {
				t.Error("a request is repeated that was to wait for an hour")
			}
			w.Header().Set("Retry-After", "3600")
			http.Error(w, "full", http.StatusTooManyRequests)
		case first && r.URL.Path == "/tasks/count":
			w.Header().Set("Retry-After", "1")
			http.Error(w, "not yet", http.StatusTooManyRequests)
		case !first:
			forward.ServeHTTP(w, r)
		case r.Method == http.MethodPut:
			forward.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}
