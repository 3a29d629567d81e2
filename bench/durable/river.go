// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverArgs is a job. Its key makes it unique.
type riverArgs struct {
	Key     string `json:"key" river:"unique"`
	Payload []byte `json:"payload"`
}

func (riverArgs) Kind() string { return "recheck" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	run func(args riverArgs) error
}

func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	return w.run(job.Args)
}

// withRiver measures on a new database. Each job calls run.
func withRiver(
	dir string, run func(riverArgs) error, measure func(c *river.Client[pgx.Tx]) (map[string]float64, error),
) (map[string]float64, error) {
	s, err := startPostgres(dir)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	c, err := pgxpool.ParseConfig("host=" + s.socket + " user=bench dbname=postgres")
	if err != nil {
		return nil, err
	}
	c.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{run: run})
	client, err := river.NewClient(driver, &river.Config{
		Logger:  slog.New(slog.NewTextHandler(io.Discard, nil)),
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 256}},
		Workers: workers,
	})
	if err != nil {
		return nil, err
	}
	return measure(client)
}

func riverParams(i int, at time.Time, load []byte) river.InsertManyParams {
	return river.InsertManyParams{
		Args:       riverArgs{key(i), load},
		InsertOpts: &river.InsertOpts{ScheduledAt: at, UniqueOpts: river.UniqueOpts{ByArgs: true}},
	}
}

// riverInsert inserts n jobs at once, and returns their ids.
func riverInsert(c *river.Client[pgx.Tx], from, n int, at func(i int) time.Time, load func(i int) []byte) ([]int64, error) {
	params := make([]river.InsertManyParams, n)
	for i := range params {
		params[i] = riverParams(from+i, at(from+i), load(from+i))
	}
	results, err := c.InsertMany(ctx, params)
	ids := make([]int64, 0, n)
	for _, r := range results {
		ids = append(ids, r.Job.ID)
	}
	return ids, err
}

func farTime(i int) time.Time { return time.Now().Add(far(i)) }
func samePayload(int) []byte  { return payload }

func riverAddMany(size sizes, dir string) (map[string]float64, error) {
	return withRiver(dir, nil, func(c *river.Client[pgx.Tx]) (map[string]float64, error) {
		ops, err := together(callers, size.adds/serverLive, func(i int) error {
			_, err := riverInsert(c, i, 1, farTime, samePayload)
			return err
		})
		return map[string]float64{"ops": ops}, err
	})
}

func riverAddBatch(size sizes, dir string) (map[string]float64, error) {
	return withRiver(dir, nil, func(c *river.Client[pgx.Tx]) (map[string]float64, error) {
		add := func(i int) error {
			_, err := riverInsert(c, i*batch, batch, farTime, samePayload)
			return err
		}
		before := size.live / serverLive / batch
		if _, err := together(batchers, before, add); err != nil {
			return nil, err
		}
		ops, err := together(batchers, size.adds/serverLive/batch, func(i int) error { return add(before + i) })
		return map[string]float64{"ops": ops * batch}, err
	})
}

func riverRemove(size sizes, dir string) (map[string]float64, error) {
	return withRiver(dir, nil, func(c *river.Client[pgx.Tx]) (map[string]float64, error) {
		var ids []int64
		for i := range size.live / serverLive / batch {
			more, err := riverInsert(c, i*batch, batch, farTime, samePayload)
			if err != nil {
				return nil, err
			}
			ids = append(ids, more...)
		}
		ops, err := together(callers, min(len(ids), 10*batch), func(i int) error {
			_, err := c.JobCancel(ctx, ids[i*7919%len(ids)])
			return err
		})
		return map[string]float64{"ops": ops}, err
	})
}

func riverLateness(size sizes, dir string) (map[string]float64, error) {
	var late *lateness
	run := func(a riverArgs) error { return late.ran(a.Payload) }
	return withRiver(dir, run, func(c *river.Client[pgx.Tx]) (map[string]float64, error) {
		late = newLateness(size)
		if err := c.Start(ctx); err != nil {
			return nil, err
		}
		defer func() { _ = c.Stop(ctx) }()
		for i := range late.n / batch {
			if _, err := riverInsert(c, i*batch, batch, late.due, late.payload); err != nil {
				return nil, err
			}
		}
		return late.figures(), nil
	})
}
