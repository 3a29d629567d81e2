// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/metrics"
	"github.com/seed581295f1/timewheel/timewheel"
	"github.com/sirupsen/logrus"
)

// The program runs as a process of the service if the environment has its settings.
const nodeEnv = "TIMEWHEEL_INCIDENTS_NODE"

// A node contains the settings of a process of the service: a wheel, a scheduler on an embedded store if Dir is set, or a node on
// PostgreSQL if URL is set.
type node struct {
	Name             string
	Dir, URL, Schema string
	Kinds            []string // kinds that it handles
	Idle             bool     // it adds tasks but runs none
}

const (
	workers = 8
	catchUp = 2000 // overdue tasks started per second, so that 200,000 take a while
	lease   = 4 * time.Second
	source  = "shop" // the name of the scheduler, or of the wheel
	page    = "/debug/timewheel/"

	mostLife = 10 * time.Minute // maximal life of a process whose driver does not end it
	grace    = 8 * time.Second  // time limit of a Shutdown
	slowTime = 3 * time.Second
	batch    = 1000
)

// The kinds of tasks.
const (
	quick   = "quick"
	slow    = "slow"  // takes slowTime
	hang    = "hang"  // ignores its context until it is released
	fails   = "fails" // fails until it is mended
	limited = "limited"
	sms     = "sms" // quick; only some processes handle it
)

var kinds = []string{quick, slow, hang, fails, limited}

// A service is a process of the service.
type service struct {
	node
	tw    *timewheel.TimeWheel // or nil
	tasks *durable.Scheduler   // or nil

	mu       sync.Mutex // protects below
	released chan struct{}
	mended   bool
	counts   counts
}

// counts are the counts of a process's runs.
type counts struct {
	Runs  map[string]int // by kind
	Late  float64        // the maximal lateness of a quick run in seconds
	Began int            // all of them, also from before a reset
}

// serve is the process. It prints the address of its page, and ends at the end of its input.
func serve(text string) (status int) {
	s := &service{released: make(chan struct{}), counts: counts{Runs: make(map[string]int)}}
	err := json.Unmarshal([]byte(text), &s.node)
	if err == nil {
		err = s.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, s.Name, err)
		return 1
	}
	return 0
}

func (s *service) run() error {
	time.AfterFunc(mostLife, func() { os.Exit(1) })
	registry := prometheus.NewRegistry()
	shown, err := s.open(registry)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle(page, dashboard.Handler([]dashboard.Source{shown}))
	mux.HandleFunc("POST /do/{what}", s.do)
	mux.HandleFunc("GET /counts", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(s.counts)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	fmt.Println(listener.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return s.close()
}

// open creates and starts the wheel or the scheduler.
func (s *service) open(registry *prometheus.Registry) (dashboard.Source, error) {
	log := logrus.New() // to the standard error, which the driver keeps
	if s.Dir == "" && s.URL == "" {
		rec, runs := dashboard.NewRecorder(), metrics.NewRuns()
		s.tw = timewheel.NewTimeWheel(10*time.Millisecond, 512, timewheel.WithPoolSize(workers),
			timewheel.WithLogger(log), rec.Option(), runs.Option())
		s.tw.Start()
		return dashboard.Wheel(source, s.tw, rec), registry.Register(
			metrics.NewCollector(s.tw, source, metrics.WithRuns(runs)))
	}
	rec, attempts := dashboard.NewAttemptRecorder(), metrics.NewAttempts()
	opts := []durable.Option{
		durable.WithNodeName(s.Name), durable.WithLease(lease), durable.WithPoolSize(workers), durable.WithLogger(log),
		durable.WithCatchUp(catchUp), rec.Option(), attempts.Option(),
	}
	if err := s.openTasks(registry, opts); err != nil {
		return dashboard.Source{}, err
	}
	err := registry.Register(metrics.NewSchedulerCollector(s.tasks, source, metrics.WithAttempts(attempts)))
	for _, kind := range s.Kinds {
		opts := []durable.KindOption{durable.WithRetry(3, 100*time.Millisecond, 200*time.Millisecond)}
		if kind == limited {
			opts = append(opts, durable.WithConcurrency(1))
		}
		err = errors.Join(err, s.tasks.Handle(kind, s.handle, opts...))
	}
	if err == nil && !s.Idle {
		err = s.tasks.Start()
	}
	return dashboard.Scheduler(source, s.tasks, rec), err
}

func (s *service) openTasks(registry *prometheus.Registry, opts []durable.Option) error {
	ctx := context.Background()
	if s.Dir != "" {
		e, err := pebble.Open(ctx, s.Dir)
		if err != nil {
			return err
		}
		s.tasks, err = durable.New(ctx, e, opts...)
		return err
	}
	engine, err := postgres.Open(ctx, s.URL, postgres.WithSchema(s.Schema))
	if err != nil {
		return err
	}
	if s.tasks, err = durable.New(ctx, engine, opts...); err != nil {
		return err
	}
	return registry.Register(metrics.NewEngineCollector(engine, source))
}

// close ends the runs, and stops the wheel or the scheduler.
func (s *service) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if s.tw != nil {
		s.release()
		return s.tw.Shutdown(ctx)
	}
	time.AfterFunc(grace/2, s.release)
	err := s.tasks.Shutdown(ctx)
	if errors.Is(err, durable.ErrBroken) || errors.Is(err, durable.ErrUnavailable) {
		return nil // the incident has broken it
	}
	return err
}

func (s *service) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.released)
	s.released = make(chan struct{})
}

var errGateway = errors.New("dial 10.0.0.7:443: connection refused")

// work does the work of a task of the kind.
func (s *service) work(ctx context.Context, kind string, late time.Duration) error {
	s.mu.Lock()
	s.counts.Runs[kind]++
	s.counts.Began++
	if kind == quick {
		s.counts.Late = max(s.counts.Late, late.Seconds())
	}
	released, mended := s.released, s.mended
	s.mu.Unlock()
	takes := map[string]time.Duration{slow: slowTime, limited: slowTime / 10}[kind]
	switch {
	case kind == hang:
		<-released
	case kind == fails && !mended:
		return errGateway
	case takes > 0:
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *service) handle(ctx context.Context, run durable.Run) error {
	return s.work(ctx, run.Kind, time.Since(run.Due))
}

// do executes an order of the driver.
func (s *service) do(w http.ResponseWriter, r *http.Request) {
	var err error
	switch what := r.PathValue("what"); what {
	case "release":
		s.release()
	case "mend":
		s.mu.Lock()
		s.mended = true
		s.mu.Unlock()
	case "reset":
		s.mu.Lock()
		s.counts = counts{Runs: make(map[string]int), Began: s.counts.Began}
		s.mu.Unlock()
	case "add":
		err = s.add(r)
	case "unpark":
		_, err = s.tasks.Bulk(r.Context(), durable.Query{State: durable.Parked}, durable.DoRunNow)
	case "clear":
		_, err = s.tasks.Bulk(r.Context(), durable.Query{Kind: r.FormValue("kind")}, durable.DoRemove)
	default:
		err = fmt.Errorf("it cannot %s", what)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// add adds n tasks of a kind that are due after a delay, and repeat at the interval if there is one.
func (s *service) add(r *http.Request) error {
	kind, group := r.FormValue("kind"), r.FormValue("group")
	n, _ := strconv.Atoi(r.FormValue("n"))
	in, _ := time.ParseDuration(r.FormValue("in"))
	interval, _ := time.ParseDuration(r.FormValue("each"))
	in = max(in, time.Nanosecond)
	prefix := fmt.Sprintf("%s%s-%s-", kind, group, s.Name)
	if s.tw != nil {
		for i := range n {
			err := s.tw.AddTask(&timewheel.Task{Key: prefix + strconv.Itoa(i), Delay: in, Job: func(task *timewheel.Task) {
				if err := s.work(task.Context(), kind, 0); err != nil {
					panic(err)
				}
			}})
			if err != nil {
				return err
			}
		}
		return nil
	}
	var tasks []durable.Task
	for i := range n {
		t := durable.Task{Key: prefix + strconv.Itoa(i), Kind: kind, Delay: in, Group: group, Interval: interval}
		if interval > 0 {
			t.Times = durable.Forever
		}
		tasks = append(tasks, t)
		if len(tasks) == batch || i == n-1 {
			if err := s.tasks.AddTask(r.Context(), tasks...); err != nil {
				return err
			}
			tasks = tasks[:0]
		}
	}
	return nil
}
