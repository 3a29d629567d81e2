// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A ledger is a receiver that does the work of each token once, and apart from that each task about a failure, by the key of the failed
// task. It refuses the kind bad for good.
type ledger struct{ work, told *checker }

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Header.Get("Timewheel-Kind") {
	case "bad":
		w.WriteHeader(http.StatusGone)
	case "told":
		var failed struct{ Key string }
		if err := json.NewDecoder(r.Body).Decode(&failed); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		l.told.note(failed.Key, r.Header.Get("Timewheel-Token"))
	default:
		l.work.ServeHTTP(w, r)
	}
}

// Callers repeat each request until it is answered, and once more, while the service is killed again and again. The work of each
// request with an idempotency key is done once, there is one task about each parked task, and no declaration of a schedule moves the
// next run of a task that has not changed.
func TestServe_killedWhileCallersRepeat_doesEachOnce(t *testing.T) {
	const kills, each, callers = 20, 25, 8
	l := &ledger{newChecker(), newChecker()}
	receiver := httptest.NewServer(l)
	defer receiver.Close()
	config := filepath.Join(t.TempDir(), "serve.json")
	kind := `{"url": "http://` + receiver.Listener.Addr().String() + `/hook", "networks": ["127.0.0.1/32"], "secrets": ["a secret of the tests"],
		"retry": {"attempts": 100, "least": "10ms", "most": "100ms"}`
	check(t, os.WriteFile(config, []byte(`{"listen": "127.0.0.1:0", "grace": "0s",
		"kinds": {"k": `+kind+`}, "told": `+kind+`}, "bad": `+kind+`, "on_failure": "told"}}}`), 0o600))
	args := []string{"-config", config, "-dir", filepath.Join(t.TempDir(), "tasks")}
	s := startService(t, args...)
	var address atomic.Pointer[string]
	address.Store(&s.url)
	var repeated atomic.Int64
	put := func(path, body, name string) bool {
		req, err := http.NewRequest("PUT", *address.Load()+path, strings.NewReader(body))
		if err != nil {
			return false
		}
		req.Header.Set("Content-Type", "application/json")
		if name != "" {
			req.Header.Set("Idempotency-Key", name)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if strings.Contains(string(text), `"repeated":true`) {
			repeated.Add(1)
		}
		return err == nil && resp.StatusCode < 300
	}
	twice := func(path, body, name string) {
		for range 2 {
			for !put(path, body, name) {
				time.Sleep(5 * time.Millisecond)
			}
		}
	}
	answered, over := make(chan bool), make(chan bool)
	var next, version atomic.Int64
	var working sync.WaitGroup
	for range callers {
		working.Go(func() {
			for {
				n := next.Add(1)
				twice(fmt.Sprint("/tasks/order:", n), `{"kind": "k"}`, "the only one")
				twice(fmt.Sprint("/tasks/bad:", n), `{"kind": "bad"}`, "the only one")
				select {
				case answered <- true:
				case <-over:
					return
				}
			}
		})
	}
	deploy := func() {
		twice("/schedules/nightly:", fmt.Sprintf(`{"version": %d, "tasks": [{"key": "nightly:same", "kind": "k", "interval": "10h"},
			{"key": "nightly:other", "kind": "k", "interval": "10h", "payload": %[1]d}]}`, version.Add(1)), "")
	}
	deploy()
	due := func() string {
		var task struct{ Next string }
		check(t, json.Unmarshal([]byte(s.do("GET", "/tasks/nightly:same", "")), &task))
		return task.Next
	}
	first := due()
	working.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				deploy()
			}
		}
	})
	for range kills {
		for range each {
			<-answered
		}
		s.kill()
		s = startService(t, args...)
		address.Store(&s.url)
	}
	close(over)
	working.Wait()
	// Parking a task adds one, so first all must be parked, and then none be left.
	for end := time.After(2 * time.Minute); !strings.Contains(s.do("POST", "/tasks/count", `{"kind": "bad", "state": "parked"}`),
		fmt.Sprintf(`"tasks":%d`, next.Load())) || strings.Contains(s.do("GET", "/tasks?kind=told", ""), `"key"`) ||
		strings.Contains(s.do("GET", "/tasks?kind=k&prefix=order:", ""), `"key"`); {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-end:
			t.Fatal("tasks are left")
		}
	}
	for _, c := range []*checker{l.work, l.told} {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	for i := range next.Load() {
		if key := fmt.Sprint("order:", i+1); len(l.work.tokens[key]) != 1 {
			t.Errorf("%s was called with the tokens %v", key, l.work.tokens[key])
		}
		if key := fmt.Sprint("bad:", i+1); len(l.told.tokens[key]) != 1 {
			t.Errorf("of %s was told with the tokens %v", key, l.told.tokens[key])
		}
	}
	if n := repeated.Load(); n < 2*next.Load() {
		t.Errorf("%d answers are to repeated requests, of %d tasks", n, 2*next.Load())
	}
	if at := due(); at != first {
		t.Errorf("the next run of an unchanged task is due at %s, and was at %s", at, first)
	}
	last := fmt.Sprintf(`"payload":%d`, version.Load())
	if other := s.do("GET", "/tasks/nightly:other", ""); !strings.Contains(other, last) || version.Load() < kills {
		t.Errorf("after %d versions the changed task is %s", version.Load(), other)
	}
	t.Logf("%d requests, %d repeated, %d versions, %d webhooks called again", next.Load(), repeated.Load(), version.Load(), l.work.again+l.told.again)
}
