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

const workers = 64 // maximum number of running jobs of a wheel or a node

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

// openShop fills a wheel with the timers of a shop. The function that it returns adds orders and pays most of them. The
// stock of the others is returned.
func openShop(tw *timewheel.TimeWheel) (sell func()) {
	const open, window = 60_000, 2 * time.Minute
	n, rounds := 0, 0
	order := func(due time.Duration) {
		n++
		add(tw, timewheel.Task{Key: fmt.Sprintf("order-%07d", n), Interval: due, Job: giveBack})
	}
	for range open {
		order(time.Second + rand.N(window))
	}
	for i := range 200 {
		add(tw, timewheel.Task{Key: fmt.Sprintf("shelf-%03d", i), Interval: time.Second + rand.N(4*time.Second),
			Times: timewheel.Forever, Job: count})
	}
	for i, name := range []string{"takings", "returns", "stock"} {
		add(tw, timewheel.Task{Key: "report-" + name, Delay: time.Duration(2+3*i) * time.Second,
			Interval: 40 * time.Second, Times: timewheel.Forever,
			Job: func(task *timewheel.Task) { wait(task.Context(), 5*time.Second+rand.N(15*time.Second)) }})
	}
	add(tw, timewheel.Task{Key: "mirror", Interval: 300 * time.Millisecond, Times: timewheel.Forever,
		Job: timewheel.SkipIfRunning(count)})
	return func() {
		rounds++
		for range 60 {
			order(window/2 + rand.N(window/2))
		}
		for range 45 {
			_ = tw.RemoveTask(fmt.Sprintf("order-%07d", max(n-rand.IntN(open), 1))) // may have run
		}
		if rounds%300 == 0 {
			for range 1000 {
				order(2 * time.Second) // a sale: the offer ends for all of these orders at the same instant
			}
		}
	}
}

// openSessions fills a wheel with the sessions of a server. The function that it returns touches some of them. A session
// ends after a minute without a touch, and then another begins.
func openSessions(tw *timewheel.TimeWheel) (touch func()) {
	const open, idle = 20_000, time.Minute
	key := func(i int) string { return fmt.Sprintf("session/%08x", uint32(i)*2654435761) }
	n := 0
	begin := func() {
		add(tw, timewheel.Task{Key: key(n), Interval: time.Second + rand.N(idle), Job: func(*timewheel.Task) {}})
		n++
	}
	for range open {
		begin()
	}
	return func() {
		for range 40 {
			if tw.Reschedule(key(n-1-rand.IntN(open)), idle) != nil {
				begin()
			}
		}
	}
}

// add adds a task. It fails only once a button has stopped the wheel.
func add(tw *timewheel.TimeWheel, task timewheel.Task) { _ = tw.AddTask(&task) }

// giveBack returns the stock of an order. It takes a few milliseconds, and occasionally much longer.
func giveBack(*timewheel.Task) {
	if rand.IntN(1000) == 0 {
		time.Sleep(200 * time.Millisecond)
	}
	time.Sleep(rand.N(4 * time.Millisecond))
}

func count(*timewheel.Task) { time.Sleep(rand.N(30 * time.Millisecond)) }

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// A payments is a durable scheduler of two nodes. Here both are in one process and on an engine in memory. Those of a
// real cluster are on PostgreSQL.
type payments struct {
	engine  engine.Engine
	links   [2]*enginetest.Link // from the nodes to the engine
	nodes   [2]*durable.Scheduler
	failing atomic.Bool
}

const (
	capture = "payment.capture"
	oneTask = "report:stock"
)

func newPayments(ctx context.Context) (*payments, dashboard.Source, error) {
	p := &payments{engine: memory.New().Shared()}
	rec := [2]*dashboard.AttemptRecorder{dashboard.NewAttemptRecorder(), dashboard.NewAttemptRecorder()}
	for i := range p.nodes {
		p.links[i] = enginetest.NewLink(p.engine)
		node, err := newNode(ctx, p.links[i], fmt.Sprint("web-", i+1), rec[i])
		if err != nil {
			return nil, dashboard.Source{}, err
		}
		p.nodes[i] = node
		err = errors.Join(
			node.Handle("order.recheck", quick),
			node.Handle(capture, p.capture, durable.WithRetry(3, time.Second, 4*time.Second),
				durable.WithParkRepeating(), durable.WithHistory(1000, time.Hour)),
			node.Handle("report.write", slow),
			node.Handle("mail.send", quick, durable.WithConcurrency(4), durable.WithClusterRate(10, time.Second, 4)),
			node.Start())
		if err != nil {
			return nil, dashboard.Source{}, err
		}
	}
	var tasks []durable.Task
	for i := range 20_000 {
		tasks = append(tasks, durable.Task{Key: fmt.Sprintf("order:%06d", i), Kind: "order.recheck",
			Delay: rand.N(10 * time.Minute), Payload: fmt.Appendf(nil, `{"order": %d, "units": %d}`, i, 1+rand.IntN(3))})
	}
	for i := range 40 {
		tasks = append(tasks, durable.Task{Key: fmt.Sprintf("capture:%02d", i), Kind: capture,
			Delay: rand.N(2 * time.Second), Interval: 2 * time.Second, Times: durable.Forever})
	}
	for _, name := range []string{"takings", "returns", "stock"} {
		tasks = append(tasks, durable.Task{Key: "report:" + name, Kind: "report.write", Interval: 20 * time.Second,
			Times: durable.Forever})
	}
	return p, dashboard.Scheduler("payments", p.nodes[0], rec[0]), p.nodes[0].AddTask(ctx, tasks...)
}

func newNode(ctx context.Context, e engine.Engine, name string, rec *dashboard.AttemptRecorder) (*durable.Scheduler, error) {
	return durable.New(ctx, e, rec.Option(), durable.WithNodeName(name), durable.WithLease(2*time.Second),
		durable.WithPoolSize(workers), durable.WithCatchUp(100), durable.WithSlog(quiet))
}

func (p *payments) capture(context.Context, durable.Run) error {
	if p.failing.Load() {
		return errors.New("dial 10.0.0.7:443: connection refused")
	}
	return nil
}

func quick(context.Context, durable.Run) error {
	time.Sleep(rand.N(4 * time.Millisecond))
	return nil
}

func slow(ctx context.Context, _ durable.Run) error {
	wait(ctx, 3*time.Second+rand.N(5*time.Second))
	return ctx.Err()
}

// A mails is a durable scheduler on an own engine in memory. A real one is in a directory.
type mails struct {
	disk  *memory.KV
	tasks *durable.Scheduler
}

func newMails(ctx context.Context) (*mails, dashboard.Source, error) {
	m, rec := &mails{disk: memory.New()}, dashboard.NewAttemptRecorder()
	var err error
	if m.tasks, err = newNode(ctx, m.disk.Engine(), "mails", rec); err != nil {
		return nil, dashboard.Source{}, err
	}
	err = errors.Join(m.tasks.Handle("newsletter.send", quick), m.tasks.Start())
	for i := range 50 {
		err = errors.Join(err, m.tasks.AddTask(ctx, durable.Task{Key: fmt.Sprintf("newsletter:%02d", i),
			Kind: "newsletter.send", Interval: time.Duration(1+i%5) * time.Second, Times: durable.Forever}))
	}
	return m, dashboard.Scheduler("mails", m.tasks, rec), err
}
