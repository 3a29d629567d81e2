// SPDX-License-Identifier: MIT

// Serve puts a load on `timewheel serve` over loopback: it adds tasks at a rate, receives their webhooks, and reports how
// late these are.
//
//	go run ./checks/serve -rate 10000 -for 20s
//
// The service is one process on an embedded store. The load and the receiver are this process, on the same cores. A task
// is due a lead after its add, and due times are spread evenly. The lateness of a webhook is the time from when its run
// was due until the receiver has read the request.
//
// The exit code is 1 if a task was lost or called twice, or if the 99th percentile of the lateness is above the bound.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed581295f1/timewheel/checks/internal/library"
)

func main() {
	var l load
	flag.IntVar(&l.rate, "rate", 10_000, "tasks that are added, and fall due, in a second")
	flag.DurationVar(&l.time, "for", 20*time.Second, "how long tasks are added")
	flag.IntVar(&l.batch, "batch", 500, "tasks of a request; 1: each is a PUT")
	flag.IntVar(&l.callers, "callers", 8, "requests at the same time, at most")
	flag.DurationVar(&l.lead, "lead", 2*time.Second, "time from the add of a task until it is due")
	flag.DurationVar(&l.bound, "p99", 50*time.Millisecond, "the greatest 99th percentile of the lateness")
	flag.IntVar(&l.payload, "payload", 100, "bytes of a payload")
	flag.StringVar(&l.dir, "dir", "", "where the store is made; by default a temporary directory")
	flag.Parse()
	debug.SetGCPercent(400) // takes less of the cores that the service uses as well
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := l.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A load is one run of the program.
type load struct {
	rate, batch, callers, payload int

	time, lead, bound time.Duration
	dir               string
	url               string

	mu       sync.Mutex // protects below
	late     []time.Duration
	called   []time.Time
	twice    []string  // the tasks that were called again
	complete chan bool // closed when each task was called
	left     int
	addLate  time.Duration // how far the adds were behind their time
}

func (l *load) run(ctx context.Context) error {
	temp, err := os.MkdirTemp(l.dir, "serve")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	command, err := build(ctx, temp)
	if err != nil {
		return err
	}
	return l.measure(ctx, command, temp)
}

// build builds the command in the directory.
func build(ctx context.Context, dir string) (command string, err error) {
	root, err := library.Root()
	if err != nil {
		return "", err
	}
	command = filepath.Join(dir, "timewheel")
	build := exec.CommandContext(ctx, "go", "build", "-o", command, "./cmd/timewheel")
	build.Dir, build.Stderr = root, os.Stderr
	return command, build.Run()
}

// measure puts the load on the command, which has its store in the directory.
func (l *load) measure(ctx context.Context, command, dir string) error {
	n := int(float64(l.rate) * l.time.Seconds())
	n -= n % l.batch
	l.late, l.called, l.left = make([]time.Duration, 0, n), make([]time.Time, n), n
	l.complete = make(chan bool)
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	receiver := &http.Server{Handler: l}
	go func() { _ = receiver.Serve(at) }()
	defer receiver.Close()
	service, err := l.start(command, dir, at.Addr().String(), "a secret of the load")
	if err != nil {
		return err
	}
	defer func() {
		_ = service.Process.Signal(syscall.SIGTERM)
		_ = service.Wait()
	}()
	begin := time.Now()
	if err := l.add(ctx, n); err != nil {
		return err
	}
	added := time.Since(begin)
	select {
	case <-l.complete:
	case <-time.After(l.lead + time.Minute):
	case <-ctx.Done():
		return ctx.Err()
	}
	_ = service.Process.Signal(syscall.SIGTERM)
	_ = service.Wait()
	return l.report(n, added, service.ProcessState)
}

// start starts the service. Its webhooks are signed with the secrets.
func (l *load) start(command, dir, receiver string, secrets ...string) (*exec.Cmd, error) {
	config := filepath.Join(dir, "serve.json")
	text := `{"listen": "127.0.0.1:0", "grace": "0s", "kinds": {"k": {"url": "http://` + receiver + `/", "networks": ["127.0.0.1/32"],
		"secrets": ["` + strings.Join(secrets, `", "`) + `"], "concurrency": 256}}}`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(command, "serve", "-config", config, "-dir", filepath.Join(dir, "tasks"))
	log, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if _, at, is := strings.Cut(lines.Text(), "msg=serving listen="); is {
			l.url = "http://" + strings.Fields(at)[0] + "/tasks"
			go func() { _, _ = io.Copy(os.Stderr, log) }()
			return cmd, nil
		}
		fmt.Fprintln(os.Stderr, lines.Text())
	}
	return nil, errors.Join(errors.New("the service does not start"), cmd.Wait())
}

// add adds n tasks at the rate.
func (l *load) add(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: l.callers}}
	payload := `"` + strings.Repeat("x", max(l.payload-2, 0)) + `"`
	begin := time.Now()
	next := make(chan int)
	var callers sync.WaitGroup
	for range l.callers {
		callers.Go(func() {
			for i := range next {
				l.noteLate(time.Since(begin) - l.at(i))
				if err := l.send(ctx, client, begin, i, payload); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i += l.batch {
		time.Sleep(l.at(i) - time.Since(begin))
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	callers.Wait()
	return context.Cause(ctx)
}

// at returns when a task is added, from the beginning.
func (l *load) at(i int) time.Duration { return time.Duration(i) * time.Second / time.Duration(l.rate) }

func (l *load) noteLate(d time.Duration) {
	l.mu.Lock()
	l.addLate = max(l.addLate, d)
	l.mu.Unlock()
}

// send adds the tasks of a request, from number i on.
func (l *load) send(ctx context.Context, client *http.Client, begin time.Time, i int, payload string) error {
	var body bytes.Buffer
	method, url, contentType, want := http.MethodPost, l.url, "application/x-ndjson", http.StatusOK
	due := func(i int) string { return begin.Add(l.at(i) + l.lead).UTC().Format(time.RFC3339Nano) }
	if l.batch == 1 {
		method, url, contentType, want = http.MethodPut, fmt.Sprint(l.url, "/", i), "application/json", http.StatusNoContent
		fmt.Fprintf(&body, `{"kind":"k","at":%q,"payload":%s}`, due(i), payload)
	} else {
		for j := i; j < i+l.batch; j++ {
			fmt.Fprintf(&body, `{"op":"add","key":"%d","kind":"k","at":%q,"payload":%s}`+"\n", j, due(j), payload)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, url, &body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Prefer", "return=minimal")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != want || l.batch > 1 && bytes.Count(text, []byte(`"status":201`)) != l.batch {
		return fmt.Errorf("%s %s: %d %.200s", method, url, resp.StatusCode, text)
	}
	return nil
}

// ServeHTTP receives a webhook.
func (l *load) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	now := time.Now()
	due, err := time.Parse(time.RFC3339Nano, r.Header.Get("Timewheel-Due"))
	var i int
	if err == nil {
		err = json.Unmarshal([]byte(r.Header.Get("Timewheel-Key")), &i)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := l.called[i]; !first.IsZero() {
		l.twice = append(l.twice, fmt.Sprintf("task %d after %v, in attempt %s", i, now.Sub(first).Round(time.Millisecond), r.Header.Get("Timewheel-Attempt")))
		return
	}
	l.called[i] = now
	l.late = append(l.late, now.Sub(due))
	if l.left--; l.left == 0 {
		close(l.complete)
	}
}

func (l *load) report(n int, added time.Duration, of *os.ProcessState) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.late)
	if len(l.late) == 0 {
		return errors.New("no webhook was called")
	}
	at := func(q float64) time.Duration {
		return l.late[int(q*float64(len(l.late)-1))].Round(100 * time.Microsecond)
	}
	fmt.Printf("%d tasks in %v, %.0f a second, by %d a request, on %d cores\n", n, added.Round(time.Millisecond),
		float64(n)/added.Seconds(), l.batch, runtime.GOMAXPROCS(0))
	fmt.Printf("lateness: p50 %v, p99 %v, p99.9 %v, max %v, least %v\n", at(0.5), at(0.99), at(0.999), at(1), at(0))
	fmt.Printf("adds were at most %v behind; processor time of the service: %v user, %v system\n",
		l.addLate.Round(time.Millisecond), of.UserTime().Round(10*time.Millisecond), of.SystemTime().Round(10*time.Millisecond))
	switch {
	case l.left > 0:
		return fmt.Errorf("%d tasks were not called", l.left)
	case len(l.twice) > 0:
		return fmt.Errorf("%d tasks were called twice: %s", len(l.twice), strings.Join(l.twice[:min(len(l.twice), 5)], "; "))
	case l.late[0] < 0:
		return fmt.Errorf("a task was called %v early", -l.late[0])
	case at(0.99) > l.bound:
		return fmt.Errorf("the 99th percentile is above %v", l.bound)
	}
	return nil
}
