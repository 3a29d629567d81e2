// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

// riverPeer is River. A node has enough workers, and fetches often enough, for 5,000 jobs a second: the default of one
// fetch every 100 ms would not suffice.
type riverPeer struct{}

const (
	riverWorkers  = 1000
	riverCooldown = 10 * time.Millisecond
)

// riverArgs is a job. Its key makes it unique.
type riverArgs struct {
	Key     string `json:"key" river:"unique"`
	Payload []byte `json:"payload"`
}

func (riverArgs) Kind() string { return "recheck" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	run func(payload []byte)
}

func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	w.run(job.Args.Payload)
	return nil
}

func (riverPeer) migrate(ctx context.Context, url string) error {
	pool, err := openPool(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func (riverPeer) open(ctx context.Context, url string) (client, error) {
	return openRiver(ctx, url)
}

func openRiver(ctx context.Context, url string) (*riverClient, error) {
	pool, err := openPool(ctx, url)
	if err != nil {
		return nil, err
	}
	c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: silent()})
	return &riverClient{pool: pool, client: c, ids: map[int]int64{}}, err
}

func silent() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

type riverClient struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]

	mu  sync.Mutex
	ids map[int]int64 // ids of the jobs by task number; protected by mu
}

// riverOpts returns the options of a job. A due job without a time is available at once.
func riverOpts(t task) *river.InsertOpts {
	o := &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
	if t.due.After(time.Now()) {
		o.ScheduledAt = t.due
	}
	return o
}

func (c *riverClient) add(ctx context.Context, tasks ...task) error {
	if len(tasks) == 1 {
		t := tasks[0]
		r, err := c.client.Insert(ctx, riverArgs{t.key(), t.payload()}, riverOpts(t))
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ids[t.id] = r.Job.ID
		return nil
	}
	params := make([]river.InsertManyParams, len(tasks))
	for i, t := range tasks {
		params[i] = river.InsertManyParams{Args: riverArgs{t.key(), t.payload()}, InsertOpts: riverOpts(t)}
	}
	results, err := c.client.InsertMany(ctx, params)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range results {
		c.ids[tasks[i].id] = r.Job.ID
	}
	return err
}

func (c *riverClient) addTx(ctx context.Context, tx pgx.Tx, t task) error {
	_, err := c.client.InsertTx(ctx, tx, riverArgs{t.key(), t.payload()}, riverOpts(t))
	return err
}

func (c *riverClient) remove(ctx context.Context, id int) error {
	c.mu.Lock()
	job := c.ids[id]
	c.mu.Unlock()
	_, err := c.client.JobCancel(ctx, job)
	return err
}

func (c *riverClient) live(ctx context.Context) (n int, err error) {
	err = c.pool.QueryRow(ctx, `SELECT count(*) FROM river_job WHERE state IN
		('available', 'pending', 'retryable', 'running', 'scheduled')`).Scan(&n)
	return n, err
}

func (c *riverClient) close() { c.pool.Close() }

func (riverPeer) start(
	ctx context.Context, url, name string, _ time.Duration, run func([]byte),
) (func() error, error) {
	pool, err := openPool(ctx, url)
	if err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{run: run})
	c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		ID: name, Logger: silent(), Workers: workers,
		FetchCooldown: riverCooldown, FetchPollInterval: 10 * riverCooldown,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
	})
	if err != nil {
		return nil, err
	}
	return func() error {
		defer pool.Close()
		return c.Stop(context.Background())
	}, c.Start(context.WithoutCancel(ctx))
}

// leader returns the name of the node that makes jobs available when they are due.
func (riverPeer) leader(ctx context.Context, url string) (name string, err error) {
	pool, err := openPool(ctx, url)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	err = pool.QueryRow(ctx, `SELECT leader_id FROM river_leader`).Scan(&name)
	return name, err
}

// riverClaimer calls the statements of River's producer and completer.
type riverClaimer struct {
	*riverClient
	executor riverdriver.Executor
	held     []int64 // ids of the running jobs
}

func (riverPeer) claims(ctx context.Context, url string) (claimer, error) {
	c, err := openRiver(ctx, url)
	if err != nil {
		return nil, err
	}
	return &riverClaimer{c, riverpgxv5.New(c.pool).GetExecutor(), nil}, nil
}

func (c *riverClaimer) put(ctx context.Context, tasks []task) error { return c.add(ctx, tasks...) }

func (c *riverClaimer) claim(ctx context.Context, most int) (int, error) {
	jobs, err := c.executor.JobGetAvailable(ctx, &riverdriver.JobGetAvailableParams{
		ClientID: "bench", MaxAttemptedBy: 100, MaxToLock: most, Queue: river.QueueDefault,
	})
	for _, j := range jobs {
		c.held = append(c.held, j.ID)
	}
	return len(jobs), err
}

func (c *riverClaimer) finish(ctx context.Context) error {
	n := len(c.held)
	if n == 0 {
		return nil
	}
	now := time.Now()
	p := &riverdriver.JobSetStateIfRunningManyParams{
		ID: c.held, Attempt: make([]*int, n), ErrData: make([][]byte, n), FinalizedAt: make([]*time.Time, n),
		MetadataDoMerge: make([]bool, n), MetadataUpdates: make([][]byte, n), ScheduledAt: make([]*time.Time, n),
		State: slices.Repeat([]rivertype.JobState{rivertype.JobStateCompleted}, n),
	}
	for i := range n {
		p.FinalizedAt[i] = &now
	}
	_, err := c.executor.JobSetStateIfRunningMany(ctx, p)
	c.held = nil
	return err
}
