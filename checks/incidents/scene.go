// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// A backend names the place of the tasks, and the number of processes that run them.
type backend string

const (
	wheel backend = "wheel"
	store backend = "store"
	one   backend = "one node"
	two   backend = "two nodes"
	stuck backend = "one of two nodes" // the second does not handle the kind hang
)

func (b backend) onPostgres() bool { return b == one || b == two || b == stuck }

// A process is a process of the service. Its log is read after its end.
type process struct {
	node
	addr  string
	cmd   *exec.Cmd
	in    io.Closer // closing it stops the process
	log   bytes.Buffer
	ended chan struct{} // closed when it has ended
}

// A scene is one incident on one backend.
type scene struct {
	*world
	on     backend
	dir    string
	tasks  string // the directory of the store
	url    string // URL of the server through the proxy
	schema string
	proxy  *pgtest.Proxy
	http   *http.Client
	past   *scraper
	prom   *promServer // nil if the alerts need not fire
	undo   []func()    // ends effects of the incident, even after a failure
	steady atomic.Bool // tasks fall due all the time on each process

	unmount func() error // called after the end of the processes; nil if nothing was mounted

	mu   sync.Mutex // protects below
	live []*process
	made int
}

// patience is the time limit of every step that is not part of the measurement.
const patience = time.Minute

// open prepares the resources that every incident needs.
func (w *world) open(ctx context.Context) (err error) {
	if w.dir, err = os.MkdirTemp("", "incidents"); err != nil {
		return err
	}
	root, err := root(ctx)
	if err != nil {
		return err
	}
	w.within, w.gone = trueWithin, goneWithin
	w.rulesFile = filepath.Join(root, "metrics", "prometheus", "timewheel.yml")
	w.rules, err = readRules(w.rulesFile)
	return err
}

// needCommand builds the command unless it has been built.
func (w *world) needCommand(ctx context.Context) (err error) {
	if w.command == "" {
		w.command, err = w.build(ctx, "timewheel", "./cmd/timewheel")
	}
	return err
}

// close ends the server and deletes all files.
func (w *world) close() error {
	var err error
	if w.server != nil {
		err = w.server.Close()
	}
	return errors.Join(err, os.RemoveAll(w.dir))
}

// root returns the folder of the repository.
func root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOWORK").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOWORK: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// build builds a program of the repository with the arguments, and returns its path, or "" after an error.
func (w *world) build(ctx context.Context, name string, args ...string) (path string, err error) {
	root, err := root(ctx)
	if err != nil {
		return "", err
	}
	path = filepath.Join(w.dir, name)
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", path}, args...)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// postgres starts the server unless it is running.
func (w *world) postgres() error {
	if w.server == nil && w.noPG == nil {
		w.server, w.noPG = pgtest.Start()
	}
	return w.noPG
}

// stage makes a scene. The caller must call strike.
func (w *world) stage(ctx context.Context, on backend) (s *scene, err error) {
	name := fmt.Sprint("incident", w.scenes.Add(1))
	s = &scene{
		world: w, on: on, dir: filepath.Join(w.dir, name), schema: name,
		http: &http.Client{Timeout: 3 * patience}, // 200,000 tasks are removed by one request
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	if on.onPostgres() {
		if err := errors.Join(w.needCommand(ctx), w.postgres()); err != nil {
			return nil, err
		}
		if s.proxy, err = pgtest.NewProxy(w.server); err != nil {
			return nil, err
		}
		s.url = s.proxy.URL()
	}
	s.tasks = filepath.Join(s.dir, "tasks")
	if s.past, err = newScraper(filepath.Join(s.dir, "scrapes"), w.rules); err != nil || w.prometheus == "" {
		return s, err
	}
	s.prom, err = startPrometheus(w.prometheus, filepath.Join(s.dir, "prometheus"), w.rulesFile)
	return s, err
}

// strike ends all processes and the remaining effects of the incident.
func (s *scene) strike() error {
	for _, undo := range slices.Backward(s.undo) {
		undo()
	}
	err := s.stopAll()
	s.http.CloseIdleConnections()
	if s.prom != nil {
		s.prom.stop()
	}
	if s.proxy != nil {
		s.proxy.Close()
	}
	if s.unmount != nil {
		err = errors.Join(err, s.unmount())
	}
	return errors.Join(err, s.past.db.Close(), os.RemoveAll(s.dir))
}

// later registers f to be called at the end, and returns a function that calls it earlier.
func (s *scene) later(f func()) func() {
	once := sync.OnceFunc(f)
	s.undo = append(s.undo, once)
	return once
}

// start starts the processes of the backend.
func (s *scene) start() error {
	n := 1
	if s.on == two || s.on == stuck {
		n = 2
	}
	for i := range n {
		handles := slices.Clone(kinds)
		if i == 1 && s.on == stuck {
			handles = slices.DeleteFunc(handles, func(kind string) bool { return kind == hang })
		}
		if _, err := s.join(node{Kinds: handles}); err != nil {
			return err
		}
	}
	return nil
}

// join starts a process with the settings, and returns when it serves its page.
func (s *scene) join(n node) (*process, error) { return s.joinAs("", n) }

// joinAs is join for a process with a clock that is wrong in the given way, or right if clock is empty.
func (s *scene) joinAs(clock string, n node) (*process, error) {
	s.mu.Lock()
	s.made++
	n.Name = fmt.Sprint("web-", s.made)
	s.mu.Unlock()
	if s.on == store {
		n.Dir = s.tasks
	}
	n.URL, n.Schema = s.url, s.schema
	text, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if clock != "" {
		program = s.skewed
	}
	p := &process{node: n, cmd: exec.Command(program), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), nodeEnv+"="+string(text), clockEnv+"="+clock)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C does not reach it; it exits when its standard input ends
	p.cmd.Stderr = &p.log
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	if err != nil {
		<-p.ended
		return nil, fmt.Errorf("%s does not start: %s", n.Name, p.log.String())
	}
	p.addr = strings.TrimSpace(line)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = append(s.live, p)
	return p, nil
}

// all returns the living processes.
func (s *scene) all() []*process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.live)
}

// leave excludes the page and the metrics of the process from the checks.
func (s *scene) leave(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = slices.DeleteFunc(s.live, func(q *process) bool { return p == q })
}

// kill ends the process like kill -9.
func (s *scene) kill(p *process) {
	s.leave(p)
	_ = p.cmd.Process.Kill()
	<-p.ended
	_ = p.in.Close()
}

// stop shuts the process down, and returns when it has ended.
func (s *scene) stop(p *process) error {
	s.leave(p)
	_ = p.in.Close()
	select {
	case <-p.ended:
	case <-time.After(grace + patience):
		s.kill(p)
		return fmt.Errorf("%s did not end: %s", p.Name, p.log.String())
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("%s: %v: %.2000s", p.Name, p.cmd.ProcessState, p.log.String())
	}
	return nil
}

// stopAll stops all processes. It kills them if that takes too long.
func (s *scene) stopAll() error {
	var all sync.WaitGroup
	errs := make([]error, len(s.all()))
	for i, p := range s.all() {
		all.Go(func() { errs[i] = s.stop(p) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// suspend stops the process like SIGSTOP, until the returned function is called or a minute has passed, even if this
// program has ended by then.
func (s *scene) suspend(p *process) (resume func(), err error) {
	s.leave(p)
	pid := strconv.Itoa(p.cmd.Process.Pid)
	watch := exec.Command("bash", "-c", "kill -STOP $0; read -t 60; kill -CONT $0", pid)
	in, err := watch.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := watch.Start(); err != nil {
		return nil, err
	}
	return s.later(func() {
		_ = in.Close()
		_ = watch.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.live = append(s.live, p)
	}), nil
}

// order sends an order to a process, such as "add" with kind=quick&n=5.
func (s *scene) order(p *process, what, values string) error {
	form, err := url.ParseQuery(values)
	if err != nil {
		return err
	}
	resp, err := s.http.PostForm("http://"+p.addr+"/do/"+what, form)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s %s: %s", p.Name, what, values, text)
	}
	return nil
}

// orderAll sends an order to all living processes.
func (s *scene) orderAll(what, values string) error {
	var errs []error
	for _, p := range s.all() {
		errs = append(errs, s.order(p, what, values))
	}
	return errors.Join(errs...)
}

// seed starts a process that adds tasks without running them, and waits until it has ended and they are overdue: to a
// node, a task due less than a second ago is due now.
func (s *scene) seed(values ...string) error {
	p, err := s.join(node{Kinds: append([]string{sms}, kinds...), Idle: true})
	if err != nil {
		return err
	}
	for _, v := range values {
		if err := s.order(p, "add", v); err != nil {
			return err
		}
	}
	err = s.stop(p)
	time.Sleep(2 * time.Second)
	return err
}

// ran returns how many runs of the kind began on the living processes, and the maximal lateness of a quick run.
func (s *scene) ran(kind string) (n int, late time.Duration, err error) {
	for _, p := range s.all() {
		var c counts
		if err := s.get(context.Background(), "http://"+p.addr+"/counts", &c); err != nil {
			return 0, 0, err
		}
		n += c.Runs[kind]
		late = max(late, time.Duration(c.Late*float64(time.Second)))
	}
	return n, late, nil
}

// get requests JSON.
func (s *scene) get(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s: %s", url, resp.Status, text)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// ask calls the command with the arguments, on the tasks of the scene, and returns its output.
func (s *scene) ask(ctx context.Context, args ...string) (out string, status int) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	args = slices.Concat(args[:1], []string{"-db", s.url, "-schema", s.schema}, args[1:])
	cmd := exec.CommandContext(ctx, s.command, args...)
	text, _ := cmd.CombinedOutput()
	return string(text), cmd.ProcessState.ExitCode()
}

// commandTime is the time limit of a command: slightly longer than it waits for a server that does not answer.
const commandTime = 13 * time.Second
