// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/metrics"
	"github.com/seed581295f1/timewheel/timewheel"
)

var quiet = slog.New(slog.DiscardHandler) // the page shows the problems
const workers = 64                        // maximum number of running jobs of a wheel or a node

// newWheel returns a wheel and its source for the page, and registers its metrics.
func newWheel(registry *prometheus.Registry, name string, tick time.Duration, slots int,
) (*timewheel.TimeWheel, dashboard.Source, error) {
	rec, runs := dashboard.NewRecorder(), metrics.NewRuns()
	tw, err := timewheel.New(tick, slots, timewheel.WithPoolSize(workers), timewheel.WithSlog(quiet),
		rec.Option(), runs.Option())
	if err != nil {
		return nil, dashboard.Source{}, err
	}
	err = registry.Register(metrics.NewCollector(tw, name, metrics.WithRuns(runs)))
	return tw, dashboard.Wheel(name, tw, rec), err
}

// openShop fills a wheel with the timers of a shop. One task adds orders, and pays most of them.
func openShop(tw *timewheel.TimeWheel) {
	const open, window = 60_000, 2 * time.Minute
	n := 0
	order := func(due time.Duration) {
		n++
		add(tw, fmt.Sprintf("order-%07d", n), due, 1, work(4*time.Millisecond))
	}
	for range open {
		order(time.Second + rand.N(window))
	}
	for i := range 200 {
		add(tw, fmt.Sprintf("shelf-%03d", i), time.Second+rand.N(4*time.Second), timewheel.Forever, work(30*time.Millisecond))
	}
	for _, name := range []string{"takings", "returns", "stock"} {
		add(tw, "report-"+name, 40*time.Second, timewheel.Forever, work(20*time.Second))
	}
	add(tw, "sell", 50*time.Millisecond, timewheel.Forever, timewheel.SkipIfRunning(func(*timewheel.Task) {
		for range 60 {
			order(window/2 + rand.N(window/2))
		}
		for range 45 {
			_ = tw.RemoveTask(fmt.Sprintf("order-%07d", max(n-rand.IntN(open), 1))) // it may have run
		}
	}))
}

// openSessions fills a wheel with the sessions of a server. One task touches some of them, which postpones their end.
func openSessions(tw *timewheel.TimeWheel) {
	const open, idle = 20_000, time.Minute
	key := func(i int) string { return fmt.Sprintf("session-%05d", i) }
	begin := func(i int) { add(tw, key(i), time.Second+rand.N(idle), 1, work(time.Millisecond)) }
	for i := range open {
		begin(i)
	}
	add(tw, "touch", 100*time.Millisecond, timewheel.Forever, timewheel.SkipIfRunning(func(*timewheel.Task) {
		for range 40 {
			if i := rand.IntN(open); tw.Reschedule(key(i), idle) != nil {
				begin(i) // the session has ended, so another begins
			}
		}
	}))
}

// add adds a task. It fails only once a button has stopped the wheel.
func add(tw *timewheel.TimeWheel, key string, interval time.Duration, times int, job timewheel.Job) {
	_ = tw.AddTask(&timewheel.Task{Key: key, Interval: interval, Times: times, Job: job})
}

// work returns a job that takes up to the given time, unless its wheel stops.
func work(most time.Duration) timewheel.Job {
	return func(task *timewheel.Task) { _ = wait(task.Context(), most) }
}

func wait(ctx context.Context, most time.Duration) error {
	select {
	case <-time.After(rand.N(most)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A cluster is a durable scheduler of two nodes, here in one process and in memory. A real cluster uses PostgreSQL.
type cluster struct {
	links   [2]*enginetest.Link // from the nodes to the engine
	nodes   [2]*durable.Scheduler
	failing atomic.Bool // payments fail
}

func newCluster(ctx context.Context) (*cluster, dashboard.Source, error) {
	var c cluster
	var sources [2]dashboard.Source
	shared := memory.New().Shared()
	for i := range c.nodes {
		c.links[i] = enginetest.NewLink(shared)
		node, source, err := newNode(ctx, c.links[i], "payments", fmt.Sprint("web-", i+1))
		if err == nil {
			err = errors.Join(
				node.Handle("order.recheck", handler(4*time.Millisecond)),
				node.Handle("payment.capture", c.capture, durable.WithRetry(3, time.Second, 4*time.Second),
					durable.WithParkRepeating(), durable.WithHistory(1000, time.Hour)),
				node.Handle("report.write", handler(8*time.Second)),
				node.Handle("mail.send", handler(4*time.Millisecond), durable.WithConcurrency(4),
					durable.WithClusterRate(10, time.Second, 4)),
				node.Start())
		}
		if err != nil {
			return nil, source, err
		}
		c.nodes[i], sources[i] = node, source
	}
	tasks := batch("order", "order.recheck", 20_000, 0)
	for i := range tasks {
		tasks[i].Delay = rand.N(10 * time.Minute)
		tasks[i].Payload = fmt.Appendf(nil, `{"order": %d, "units": %d}`, i, 1+rand.IntN(3))
	}
	tasks = append(tasks, batch("capture", "payment.capture", 40, 2*time.Second)...)
	tasks = append(tasks, batch("report", "report.write", 3, 20*time.Second)...)
	return &c, sources[0], c.nodes[0].AddTask(ctx, tasks...)
}

func (c *cluster) capture(context.Context, durable.Run) error {
	if c.failing.Load() {
		return errors.New("dial 10.0.0.7:443: connection refused")
	}
	return nil
}

// newMails returns a durable scheduler on an own engine in memory. A real one is in a directory.
func newMails(ctx context.Context, disk *memory.KV) (*durable.Scheduler, dashboard.Source, error) {
	s, source, err := newNode(ctx, disk.Engine(), "mails", "mails")
	if err == nil {
		err = errors.Join(s.Handle("newsletter.send", handler(4*time.Millisecond)), s.Start(),
			s.AddTask(ctx, batch("newsletter", "newsletter.send", 50, 3*time.Second)...))
	}
	return s, source, err
}

// newNode returns a scheduler and its source for the page.
func newNode(ctx context.Context, e engine.Engine, title, name string) (*durable.Scheduler, dashboard.Source, error) {
	rec := dashboard.NewAttemptRecorder()
	s, err := durable.New(ctx, e, rec.Option(), durable.WithNodeName(name), durable.WithLease(2*time.Second),
		durable.WithPoolSize(workers), durable.WithCatchUp(100), durable.WithSlog(quiet))
	return s, dashboard.Scheduler(title, s, rec), err
}

// batch returns tasks of a kind, which repeat at the interval unless it is 0.
func batch(prefix, kind string, n int, interval time.Duration) []durable.Task {
	tasks := make([]durable.Task, n)
	for i := range tasks {
		tasks[i] = durable.Task{Key: fmt.Sprintf("%s:%02d", prefix, i), Kind: kind, Interval: interval}
		if interval > 0 {
			tasks[i].Delay, tasks[i].Times = 1+rand.N(interval), durable.Forever
		}
	}
	return tasks
}

// handler returns a handler that takes up to the given time.
func handler(most time.Duration) durable.Handler {
	return func(ctx context.Context, _ durable.Run) error { return wait(ctx, most) }
}
