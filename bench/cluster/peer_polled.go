// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// polled is a table as many programs create it themselves, with an index on the due time. Each node polls it. A node
// deletes due rows and runs them in one transaction. So another node takes them as soon as the server notices that the
// connection of a killed node is gone.
type polled struct{}

const polledSchema = `
CREATE TABLE polled (key text PRIMARY KEY, due timestamptz NOT NULL, payload bytea NOT NULL);
CREATE INDEX ON polled (due)`

const polledAdd = `
INSERT INTO polled SELECT * FROM unnest($1::text[], $2::timestamptz[], $3::bytea[]) ON CONFLICT DO NOTHING`

const polledAddTx = `INSERT INTO polled VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`

const polledTake = `
DELETE FROM polled WHERE key = ANY(ARRAY(
	SELECT key FROM polled WHERE due <= clock_timestamp() ORDER BY due LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING payload`

const (
	pollers  = 4 // polling goroutines of a node
	pollSize = 500
	pollRest = 100 * time.Millisecond // pause after a poll that found fewer
)

func openPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	c.MaxConns = connections
	return pgxpool.NewWithConfig(ctx, c)
}

func (polled) migrate(ctx context.Context, url string) error { return execute(ctx, url, polledSchema) }

// execute executes statements on a new connection.
func execute(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

func (polled) open(ctx context.Context, url string) (client, error) {
	pool, err := openPool(ctx, url)
	return &polledClient{pool}, err
}

type polledClient struct{ pool *pgxpool.Pool }

func polledArgs(tasks []task) []any {
	keys, dues := make([]string, len(tasks)), make([]time.Time, len(tasks))
	payloads := make([][]byte, len(tasks))
	for i, t := range tasks {
		keys[i], dues[i], payloads[i] = t.key(), t.due, t.payload()
	}
	return []any{keys, dues, payloads}
}

func (c *polledClient) add(ctx context.Context, tasks ...task) error {
	done, err := c.pool.Exec(ctx, polledAdd, polledArgs(tasks)...)
	if err == nil && done.RowsAffected() != int64(len(tasks)) {
		err = errors.New("a key is there")
	}
	return err
}

func (c *polledClient) addTx(ctx context.Context, tx pgx.Tx, t task) error {
	_, err := tx.Exec(ctx, polledAddTx, t.key(), t.due, t.payload())
	return err
}

func (c *polledClient) remove(ctx context.Context, id int) error {
	done, err := c.pool.Exec(ctx, `DELETE FROM polled WHERE key = $1`, task{id: id}.key())
	if err == nil && done.RowsAffected() != 1 {
		err = errors.New("the key is not there")
	}
	return err
}

func (c *polledClient) live(ctx context.Context) (n int, err error) {
	err = c.pool.QueryRow(ctx, `SELECT count(*) FROM polled`).Scan(&n)
	return n, err
}

func (c *polledClient) close() { c.pool.Close() }

func (polled) start(
	ctx context.Context, url, _ string, _ time.Duration, run func([]byte),
) (func() error, error) {
	pool, err := openPool(ctx, url)
	if err != nil {
		return nil, err
	}
	polling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wait sync.WaitGroup
	failed := make([]error, pollers)
	for i := range pollers {
		wait.Go(func() {
			for polling.Err() == nil && failed[i] == nil {
				n, err := pollOnce(context.WithoutCancel(ctx), pool, run)
				failed[i] = err
				if n < pollSize {
					select {
					case <-time.After(pollRest):
					case <-polling.Done():
					}
				}
			}
		})
	}
	return func() error {
		cancel()
		wait.Wait()
		pool.Close()
		return errors.Join(failed...)
	}, nil
}

// pollOnce takes due tasks, runs them concurrently, and commits.
func pollOnce(ctx context.Context, pool *pgxpool.Pool, run func([]byte)) (n int, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, polledTake, pollSize)
		if err != nil {
			return err
		}
		payloads, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		if err != nil {
			return err
		}
		var wait sync.WaitGroup
		for _, p := range payloads {
			wait.Go(func() { run(p) })
		}
		wait.Wait()
		n = len(payloads)
		return nil
	})
	return n, err
}

// polledClaimer keeps no state between claim and finish: it commits at once.
type polledClaimer struct{ *polledClient }

func (p polled) claims(ctx context.Context, url string) (claimer, error) {
	pool, err := openPool(ctx, url)
	return polledClaimer{&polledClient{pool}}, err
}

func (c polledClaimer) put(ctx context.Context, tasks []task) error { return c.add(ctx, tasks...) }

func (c polledClaimer) claim(ctx context.Context, most int) (int, error) {
	done, err := c.pool.Exec(ctx, polledTake, most)
	return int(done.RowsAffected()), err
}

func (c polledClaimer) finish(context.Context) error { return nil }
