// SPDX-License-Identifier: MIT

package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

const (
	bound  = 30 * time.Second // for all that should happen at once
	secret = "a secret of the tests"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits until the condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	end := time.After(bound)
	for poll := time.NewTicker(5 * time.Millisecond); !holds(); {
		select {
		case <-poll.C:
		case <-end:
			t.Fatalf("in %v not: %s", bound, what)
		}
	}
}

// config returns a configuration, from text in which $R is the address of a receiver.
func config(t *testing.T, receiver, text string) *Config {
	t.Helper()
	c := &Config{dir: t.TempDir()}
	text = strings.ReplaceAll(strings.ReplaceAll(text, "$R", receiver), "$S", secret)
	check(t, c.parse([]byte(text), func(string) string { return "" }))
	return c
}

// local is the part of a kind that calls a receiver of the test.
const local = `"url": "http://$R/hook", "networks": ["127.0.0.1/32"], "secrets": ["$S"], ` +
	`"retry": {"attempts": 20, "least": "1ms", "most": "1ms"}`

// simple is a configuration with one kind and without tokens.
const simple = `{"listen": "127.0.0.1:0", "kinds": {"k": {` + local + `}}}`

// A rig is a service of a test.
type rig struct {
	*testing.T
	srv    *Server
	url    string
	stop   func() error // drains it, and returns the error of Run
	bearer string       // token of the requests
	log    *lines
	reload chan<- os.Signal
	term   chan<- os.Signal
}

// lines are a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// line returns the first line with the text.
func (l *lines) line(text string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for one := range strings.Lines(l.text.String()) {
		if strings.Contains(one, text) {
			return one
		}
	}
	return ""
}

// start runs a service until the end of the test.
func start(t *testing.T, cfg *Config) *rig {
	t.Helper()
	return startIn(t, cfg, t.TempDir())
}

func startIn(t *testing.T, cfg *Config, dir string) *rig {
	t.Helper()
	return startOn(t, cfg, Place{Dir: dir})
}

func startOn(t *testing.T, cfg *Config, place Place) *rig {
	t.Helper()
	log := new(lines)
	srv, err := Open(t.Context(), cfg, place, slog.New(slog.NewTextHandler(log, nil)))
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	reload, term := make(chan os.Signal), make(chan os.Signal)
	go func() { ended <- srv.Run(ctx, reload, term) }()
	r := &rig{T: t, srv: srv, url: "http://" + srv.Addr().String(), log: log, reload: reload, term: term}
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// An answer is that of a request.
type answered struct {
	status int
	header http.Header
	body   string
}

// do sends a request. The headers are names and values.
func (r *rig) do(method, path, body string, headers ...string) answered {
	r.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	check(r.T, err)
	return r.send(req, headers...)
}

func (r *rig) send(req *http.Request, headers ...string) answered {
	r.Helper()
	if req.Body != http.NoBody {
		req.Header.Set("Content-Type", "application/json")
		if req.URL.Path == "/tasks" {
			req.Header.Set("Content-Type", "application/x-ndjson")
		}
	}
	if r.bearer != "" {
		req.Header.Set("Authorization", "Bearer "+r.bearer)
	}
	if req.Method == http.MethodPut {
		req.Header.Set("Prefer", "return=minimal") // most tests are about something else than the answer
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	resp, err := http.DefaultClient.Do(req)
	check(r.T, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	check(r.T, err)
	return answered{resp.StatusCode, resp.Header, string(text)}
}

// must sends a request, which must have the status.
func (r *rig) must(status int, method, path, body string, headers ...string) string {
	r.Helper()
	got := r.do(method, path, body, headers...)
	if got.status != status {
		r.Fatalf("%s %s %s: %d, want %d: %s", method, path, body, got.status, status, got.body)
	}
	return got.body
}

// info returns a task, and whether there is one.
func (r *rig) info(key string) (durable.Info, bool) {
	r.Helper()
	info, is, err := r.srv.s.Get(context.Background(), key)
	check(r.T, err)
	return info, is
}

// ends waits until no task has the key.
func (r *rig) ends(key string) {
	r.Helper()
	until(r.T, "the task "+key+" has ended", func() bool { _, is := r.info(key); return !is })
}

// receiver starts a receiver, and returns its address.
func receiver(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.Listener.Addr().String()
}

// rawReceiver answers each connection with f, after the headers of a request.
func rawReceiver(t *testing.T, f func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var head []byte
				for b := make([]byte, 4096); !bytes.Contains(head, []byte("\r\n\r\n")); {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					head = append(head, b[:n]...)
				}
				f(c)
			}()
		}
	}()
	return l.Addr().String()
}

func jsonOf(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func jsonLines(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for l := range strings.Lines(text) {
		all = append(all, jsonOf(t, l))
	}
	return all
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func fail(t *testing.T) http.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) { t.Error("the receiver was called") }
}

func keyOf(key string, n int) string { return fmt.Sprintf("%s%04d", key, n) }
