// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/sirupsen/logrus"
)

const (
	rechecks  = 20_000           // number of tasks added at the start
	spread    = 10 * time.Minute // period over which the rechecks are due
	nodeLease = 2 * time.Second
	awayFor   = 20 * time.Second
	forgotten = "sms.send" // kind that only a node of an old release handles
	forgets   = 12
	rush      = 500 // number of mails due at once
	oneTask   = "report:stock"
)

var errGateway = errors.New("dial 10.0.0.7:443: connection refused")

// A cluster consists of two durable scheduler nodes in this process, on an engine in memory. A real cluster uses
// PostgreSQL.
type cluster struct {
	engine  engine.Engine
	ways    [2]*enginetest.Link // links from the nodes to the engine
	nodes   [2]*durable.Scheduler
	rec     *dashboard.AttemptRecorder // recorder of the first node
	log     *logrus.Logger
	failing atomic.Bool // payments fail

	mu sync.Mutex // protects the field below
	n  int        // number of tasks added by trouble
}

// startCluster starts the nodes with a simulated load.
func startCluster(ctx context.Context) (*cluster, error) {
	c := &cluster{engine: memory.New().Shared(), rec: dashboard.NewAttemptRecorder(), log: logrus.New()}
	c.log.SetOutput(io.Discard) // the page shows the problems
	for i := range c.nodes {
		c.ways[i] = enginetest.NewLink(c.engine)
		var opts []durable.Option
		if i == 0 {
			opts = append(opts, c.rec.Option())
		}
		node, err := c.join(ctx, c.ways[i], fmt.Sprint("web-", i+1), opts...)
		if err != nil {
			return nil, err
		}
		c.nodes[i] = node
		err = errors.Join(
			node.Handle("order.recheck", quick),
			node.Handle("payment.capture", c.capture, durable.WithRetry(3, time.Second, 4*time.Second), durable.WithParkRepeating(),
				durable.WithHistory(1000, time.Hour)),
			node.Handle("report.write", slow),
			node.Handle("mail.send", quick, durable.WithConcurrency(4), durable.WithClusterRate(10, time.Second, 4)),
			node.Start())
		if err != nil {
			return nil, err
		}
	}
	var tasks []durable.Task
	for i := range rechecks {
		tasks = append(tasks, durable.Task{
			Key: fmt.Sprintf("order:%06d", i), Kind: "order.recheck", Delay: rand.N(spread),
			Payload: fmt.Appendf(nil, `{"order": %d, "units": %d}`, i, 1+rand.IntN(3)),
		})
	}
	for i := range 40 {
		tasks = append(tasks, durable.Task{Key: fmt.Sprintf("capture:%02d", i), Kind: "payment.capture",
			Delay: rand.N(2 * time.Second), Interval: 2 * time.Second, Times: durable.Forever})
	}
	for _, name := range []string{"takings", "returns", "stock"} {
		tasks = append(tasks, durable.Task{Key: "report:" + name, Kind: "report.write", Interval: 20 * time.Second,
			Times: durable.Forever})
	}
	return c, c.nodes[0].AddTask(ctx, tasks...)
}

func (c *cluster) join(ctx context.Context, engine engine.Engine, name string, opts ...durable.Option,
) (*durable.Scheduler, error) {
	return durable.New(ctx, engine, append(opts, durable.WithNodeName(name), durable.WithLease(nodeLease),
		durable.WithPoolSize(workers), durable.WithCatchUp(100), durable.WithLogger(c.log))...)
}

func (c *cluster) shutdown(ctx context.Context) {
	for _, link := range c.ways {
		link.SetDown(false)
	}
	for _, node := range c.nodes {
		_ = node.Shutdown(ctx)
	}
}

func (c *cluster) capture(context.Context, durable.Run) error {
	if c.failing.Load() {
		return errGateway
	}
	return nil
}

func quick(context.Context, durable.Run) error {
	time.Sleep(rand.N(4 * time.Millisecond))
	return nil
}

func slow(ctx context.Context, _ durable.Run) error {
	select {
	case <-time.After(3*time.Second + rand.N(5*time.Second)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// make causes trouble of the given kind, and reports whether it knows that kind.
func (c *cluster) make(what string) (known bool, err error) {
	switch what {
	case "fail":
		c.failing.Store(true)
	case "mend":
		c.failing.Store(false)
	case "forget":
		err = c.forget()
	case "pause":
		err = c.nodes[0].PauseKind(context.Background(), "payment.capture")
	case "resume":
		err = c.nodes[0].ResumeKind(context.Background(), "payment.capture")
	case "pause one":
		err = c.nodes[0].Pause(context.Background(), oneTask)
	case "resume one":
		err = c.nodes[0].Resume(context.Background(), oneTask)
	case "rush":
		err = c.rush()
	case "kill":
		c.ways[1].SetDown(true)
	case "revive":
		c.ways[1].SetDown(false)
	case "away":
		for _, link := range c.ways {
			link.SetDown(true)
			time.AfterFunc(awayFor, func() { link.SetDown(false) })
		}
	default:
		return false, nil
	}
	return true, err
}

// rush adds many tasks of a kind with a limit, all due at once.
func (c *cluster) rush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	tasks := make([]durable.Task, rush)
	for i := range tasks {
		c.n++
		tasks[i] = durable.Task{Key: fmt.Sprintf("mail:%05d", c.n), Kind: "mail.send", Delay: time.Millisecond,
			Group: []string{"acme", "globex"}[i%2]}
	}
	return c.nodes[0].AddTask(context.Background(), tasks...)
}

// forget starts a node of an old release, which adds tasks of a kind that no other node handles, and stops the node.
func (c *cluster) forget() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx := context.Background()
	old, err := c.join(ctx, c.engine, "old-release")
	if err != nil {
		return err
	}
	err = old.Handle(forgotten, quick)
	for range forgets {
		c.n++
		task := durable.Task{Key: fmt.Sprintf("sms:%04d", c.n), Kind: forgotten, Delay: time.Millisecond}
		err = errors.Join(err, old.AddTask(ctx, task))
	}
	return errors.Join(err, old.Shutdown(ctx))
}
