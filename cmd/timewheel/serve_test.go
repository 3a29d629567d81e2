// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A service is a process of `timewheel serve`.
type service struct {
	*testing.T
	cmd *exec.Cmd
	url string
	log logged // after the line with the address
}

// logged is the log of a process.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// startService starts a process. The place and the configuration are flags.
func startService(t *testing.T, args ...string) *service {
	t.Helper()
	return startServiceWith(t, func(*exec.Cmd) {}, args...)
}

// startServiceWith is startService of a command that change may change.
func startServiceWith(t *testing.T, change func(*exec.Cmd), args ...string) *service {
	t.Helper()
	self, err := os.Executable()
	check(t, err)
	s := &service{T: t, cmd: exec.Command(self, append([]string{"serve"}, args...)...)}
	s.cmd.Env = append(os.Environ(), "TIMEWHEEL_TEST_MAIN=1")
	change(s.cmd)
	log, err := s.cmd.StderrPipe()
	check(t, err)
	check(t, s.cmd.Start())
	t.Cleanup(func() { s.kill() })
	lines := bufio.NewScanner(log)
	var all strings.Builder
	for lines.Scan() {
		fmt.Fprintln(&all, lines.Text())
		if _, at, is := strings.Cut(lines.Text(), "msg=serving listen="); is {
			s.url = "http://" + strings.Fields(at)[0]
			go io.Copy(&s.log, log)
			return s
		}
	}
	t.Fatalf("it does not serve:\n%s", &all)
	return nil
}

func (s *service) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// do sends a request, which must succeed, and returns the answer.
func (s *service) do(method, path, body string) string {
	s.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	check(s.T, err)
	req.Header.Set("Content-Type", "application/json")
	if path == "/tasks" {
		req.Header.Set("Content-Type", "application/x-ndjson")
	}
	resp, err := http.DefaultClient.Do(req)
	check(s.T, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	check(s.T, err)
	if resp.StatusCode >= 300 {
		s.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	return string(text)
}

// left reports whether tasks are left.
func (s *service) left() bool {
	s.Helper()
	var page struct{ Tasks []any }
	check(s.T, json.Unmarshal([]byte(s.do("GET", "/tasks?limit=1", "")), &page))
	return len(page.Tasks) > 0
}

// serveConfig writes a configuration with a kind k whose receiver is at the address.
func serveConfig(t *testing.T, receiver string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "serve.json")
	check(t, os.WriteFile(path, []byte(`{"listen": "127.0.0.1:0", "grace": "0s", "kinds": {"k": {"url": "http://`+receiver+`/hook",
		"networks": ["127.0.0.1/32"], "secrets": ["a secret of the tests"], "concurrency": 200,
		"retry": {"attempts": 100, "least": "10ms", "most": "100ms"}}}}`), 0o600))
	return path
}

// A checker is a receiver that does the work of each token once.
type checker struct {
	mu      sync.Mutex
	tokens  map[string]map[string]int // requests of each token, by key
	done    map[string]int            // how often the work of a key was done
	again   int                       // requests for work that was done before
	killsAt []int                     // at these numbers of done keys
	kill    chan bool                 // is sent to then, before the answer
}

func newChecker() *checker {
	return &checker{tokens: make(map[string]map[string]int), done: make(map[string]int)}
}

func (c *checker) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	c.note(r.Header.Get("Timewheel-Key"), r.Header.Get("Timewheel-Token"))
}

// note does the work of a key, unless it was done with the token.
func (c *checker) note(key, token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens[key] == nil {
		c.tokens[key] = make(map[string]int)
	}
	c.tokens[key][token]++
	if c.tokens[key][token] > 1 {
		c.again++
		return
	}
	c.done[key]++
	if len(c.killsAt) > 0 && len(c.done) >= c.killsAt[0] {
		c.killsAt = c.killsAt[1:]
		c.kill <- true
		<-c.kill // the process is dead, so it never has the answer
	}
}

// Killed among 10,000 webhooks, the service calls each that it has no answer of again, with the same token. A receiver
// that checks tokens does no work twice.
func TestServe_killedAmongTenThousandWebhooks_losesNone(t *testing.T) {
	const n, kills = 10_000, 4
	c := newChecker()
	c.kill, c.killsAt = make(chan bool), []int{500, 3000, 6000, 9000}
	receiver := httptest.NewServer(c)
	defer receiver.Close()
	args := []string{"-config", serveConfig(t, receiver.Listener.Addr().String()), "-dir", filepath.Join(t.TempDir(), "tasks")}
	s := startService(t, args...)
	var batch strings.Builder
	for i := range n {
		fmt.Fprintf(&batch, `{"op": "add", "key": "order:%d", "kind": "k", "delay": "%dms", "payload": %[1]d}`+"\n", i, 1000+i/5)
	}
	if got := s.do("POST", "/tasks", batch.String()); strings.Count(got, `"status":201`) != n {
		t.Fatalf("the outcomes are %.1000s", got)
	}
	for range kills {
		select {
		case <-c.kill:
		case <-time.After(2 * time.Minute):
			t.Fatal("the webhooks are not called")
		}
		s.kill()
		c.kill <- true
		s = startService(t, args...)
	}
	for end := time.After(2 * time.Minute); s.left(); {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-end:
			t.Fatal("tasks are left")
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range n {
		key := fmt.Sprint("order:", i)
		if len(c.tokens[key]) != 1 || c.done[key] != 1 {
			t.Errorf("%s was called with the tokens %v, and done %d times", key, c.tokens[key], c.done[key])
		}
	}
	if c.again < kills {
		t.Errorf("only %d webhooks were called again", c.again)
	}
	t.Logf("%d webhooks were called again", c.again)
}

// The tasks are in either place. Callers are answered after the first SIGTERM, and the second one waits for the runs in
// progress.
func TestServe_untilSIGTERM_drains(t *testing.T) {
	everywhere(t, func(r *rig) {
		begun, end := make(chan bool, 1), make(chan bool)
		receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			begun <- true
			<-end
		}))
		defer receiver.Close()
		config := serveConfig(r.T, receiver.Listener.Addr().String())
		text, err := os.ReadFile(config)
		check(r.T, err)
		check(r.T, os.WriteFile(config, []byte(strings.Replace(string(text), `"0s"`, `"1h"`, 1)), 0o600))
		s := startService(r.T, append([]string{"-config", config}, r.place...)...)
		s.do("PUT", "/tasks/later", `{"kind": "k", "delay": "10h"}`)
		s.do("PUT", "/tasks/now", `{"kind": "k"}`)
		<-begun
		check(r.T, s.cmd.Process.Signal(syscall.SIGTERM))
		for end := time.After(time.Minute); !s.log.has("unready, and stopping soon"); {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-end:
				r.Fatal("the signal is not in the log")
			}
		}
		s.do("GET", "/tasks", "")
		check(r.T, s.cmd.Process.Signal(syscall.SIGTERM))
		for refused := time.After(time.Minute); ; {
			if _, err := http.Get(s.url + "/openapi.json"); errors.Is(err, syscall.ECONNREFUSED) {
				break
			}
			select {
			case <-time.After(5 * time.Millisecond):
			case <-refused:
				r.Fatal("callers are not refused")
			}
		}
		close(end)
		if err := s.cmd.Wait(); err != nil {
			r.Errorf("it ends with %v", err)
		}
		if got := strings.Join(r.keys(), " "); got != "later" {
			r.Errorf("the tasks are %s", got)
		}
	})
}

// SIGHUP does not end the service, which reads its configuration again. Package serve tests the fields.
func TestServe_onSIGHUP_readsTheConfigurationAgain(t *testing.T) {
	config := serveConfig(t, "127.0.0.1:1")
	s := startService(t, "-config", config, "-dir", filepath.Join(t.TempDir(), "tasks"))
	text, err := os.ReadFile(config)
	check(t, err)
	check(t, os.WriteFile(config, []byte(strings.Replace(string(text), "200", "201", 1)), 0o600))
	for end := time.After(time.Minute); !s.log.has("need a restart\" fields=kinds.k.concurrency"); {
		check(t, s.cmd.Process.Signal(syscall.SIGHUP))
		select {
		case <-time.After(5 * time.Millisecond):
		case <-end:
			t.Fatal("the signal is not in the log")
		}
	}
	s.do("PUT", "/tasks/a", `{"kind": "k", "delay": "10h"}`)
	check(t, s.cmd.Process.Signal(syscall.SIGTERM))
	check(t, s.cmd.Wait())
}

func TestServe_flags(t *testing.T) {
	r := inDirectory(t)
	config := serveConfig(t, "127.0.0.1:1")
	wrong := filepath.Join(t.TempDir(), "wrong.json")
	check(t, os.WriteFile(wrong, []byte(`{"listen": ":80", "kinds": {}}`), 0o600))
	shared, copies := filepath.Join(t.TempDir(), "shared.json"), filepath.Join(t.TempDir(), "copies.json")
	check(t, os.WriteFile(shared, []byte(`{"listen": "127.0.0.1:0", "kinds": {"k": {"elsewhere": true}}}`), 0o600))
	check(t, os.WriteFile(copies, []byte(`{"listen": "127.0.0.1:0", "kinds": {"k": {"elsewhere": true}}, "admin": {"listen": "127.0.0.1:0", "backup": true}}`), 0o600))
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"serve", "-config", config, "-check"}, done, "The configuration is valid.\n"},
		{[]string{"serve", "-config", config, "-check", "-dir", "a"}, done, "The configuration is valid.\n"},
		{[]string{"serve", "-config", config, "-check", "-dir", "a", "-db", "b"}, usage, "two places"},
		{[]string{"serve", "-config", config, "-check", "-db", "not a url"}, failed, "not a url"},
		{[]string{"serve", "-config", shared, "-check", "-db", "postgres:///"}, done, "The configuration is valid.\n"},
		{[]string{"serve", "-config", shared, "-check", "-dir", "a"}, failed, "kinds.k.elsewhere: no other process runs"},
		{[]string{"serve", "-config", shared, "-dir", "a"}, failed, "kinds.k.elsewhere: no other process runs"},
		{[]string{"serve", "-config", copies, "-check", "-db", "postgres:///"}, failed, "admin.backup: a database is copied by its own tools"},
		{[]string{"serve", "-config", wrong, "-check"}, failed, "kinds: none are given"},
		{[]string{"serve", "-config", wrong + "x", "-check"}, failed, "no such file"},
		{[]string{"serve"}, usage, "Give -config"},
		{[]string{"serve", "-config", config}, usage, "Give -db or -dir"},
		{[]string{"serve", "-config", config, "-dir", "a", "-db", "b"}, usage, "two places"},
		{[]string{"serve", "-config", config, "-connections", "3"}, usage, "-connections 3 is less than 4"},
		{[]string{"serve", "x"}, usage, "one argument too many"},
		{[]string{"__complete", "serve", "-config", ""}, done, ":files\n"},
	} {
		if got := r.run(c.args...); got.code != c.code || !strings.Contains(got.out+got.err, c.says) {
			t.Errorf("%q: %+v, want %d with %q", c.args, got, c.code, c.says)
		}
	}
	t.Setenv("PGPORT", "none") // which a directory has nothing to do with
	if got := r.run("serve", "-config", config, "-check", "-dir", "a"); got.code != done {
		t.Errorf("with an environment for another database: %+v", got)
	}
}

// With few file descriptors, hanging receivers and strangers that send half a request do not end the store. -check says
// that the descriptors do not suffice.
func TestServe_fewDescriptors_areKeptForTheStore(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no such limit")
	}
	hang := make(chan bool)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer receiver.Close()
	defer close(hang)
	config := serveConfig(t, receiver.Listener.Addr().String())
	limit := func(limit string, cmd *exec.Cmd) {
		cmd.Args = append([]string{"sh", "-c", "ulimit -n " + limit + `; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
	}
	for n, says := range map[string]string{"256": "Raise the limit to ", "100": "needs at least "} {
		self, err := os.Executable()
		check(t, err)
		cmd := exec.Command(self, "serve", "-config", config, "-check")
		cmd.Env = append(os.Environ(), "TIMEWHEEL_TEST_MAIN=1", "TIMEWHEEL_DB=")
		limit(n, cmd)
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), says) || (err != nil) != (n == "100") {
			t.Errorf("with %s descriptors: %v: %s", n, err, out)
		}
	}
	s := startServiceWith(t, func(cmd *exec.Cmd) { limit("256", cmd) }, "-config", config, "-dir", filepath.Join(t.TempDir(), "tasks"))
	var tasks strings.Builder
	for i := range 300 {
		fmt.Fprintf(&tasks, `{"key": "a%d", "kind": "k"}`+"\n", i)
	}
	s.do("POST", "/tasks", tasks.String())
	address := strings.TrimPrefix(s.url, "http://")
	var strangers []net.Conn
	for range 300 {
		c, err := net.DialTimeout("tcp", address, 10*time.Second)
		check(t, err)
		defer c.Close()
		strangers = append(strangers, c)
		_, err = io.WriteString(c, "GET /tasks HTTP/1.1\r\nHost: x\r\n")
		check(t, err)
	}
	refused := false
	for range 20 {
		resp, err := http.Get(s.url + "/tasks/a1")
		if err != nil {
			continue
		}
		resp.Body.Close()
		refused = refused || resp.StatusCode == 503 && resp.Header.Get("Retry-After") != ""
	}
	if !refused {
		t.Error("no caller gets 503")
	}
	for _, c := range strangers {
		check(t, c.Close())
	}
	added := false
	for end := time.Now().Add(30 * time.Second); !added && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		req, err := http.NewRequest("PUT", s.url+"/tasks/later", strings.NewReader(`{"kind": "k", "delay": "1h"}`))
		check(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		check(t, err)
		resp.Body.Close()
		added = resp.StatusCode == 201 || resp.StatusCode == 200
	}
	if !added || s.log.has("too many open files") {
		t.Errorf("added: %v; the log: %s", added, s.log.text.String())
	}
}
