// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed581295f1/timewheel/internal/pgtest"
)

const (
	claims    = 100 // measured claims
	claimSize = 50  // tasks found by each
)

// measureClaims measures claims of due tasks, before and after many tasks have come and gone while an open transaction
// prevents vacuum from deleting their rows.
func measureClaims(p peer, _ string, size sizes) (figures, error) {
	return withServer(p, func(s *pgtest.Server) (f figures, err error) {
		ctx := context.Background()
		if err := execute(ctx, s.URL(), `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`); err != nil {
			return nil, err
		}
		c, err := p.claims(ctx, s.URL())
		if err != nil {
			return nil, err
		}
		defer c.close()
		t := &taker{claimer: c}
		f = figures{}
		// phase measures calls, and the buffers that their statements read.
		phase := func(name string, call func() (time.Duration, error)) error {
			if err := execute(ctx, s.URL(), `SELECT pg_stat_statements_reset()`); err != nil {
				return err
			}
			took, err := repeat(claims, call)
			if err != nil {
				return err
			}
			f[name+"_p50_ms"], f[name+"_p99_ms"] = ms(quantile(took, 0.5)), ms(quantile(took, 0.99))
			buffers, err := claimBuffers(ctx, s.URL())
			f[name+"_buffers"] = buffers / claims
			return err
		}
		if err := errors.Join(t.add(size.live, far), analyze(s)); err != nil {
			return nil, err
		}
		if err := phase("fresh", t.take); err != nil {
			return nil, err
		}
		release, err := holdOpen(ctx, s.URL())
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, release()) }()
		old := time.Now().Add(-time.Minute) // tasks that ran in the last minute
		err = t.add(size.dead, func(id int) time.Time { return old.Add(time.Duration(id%50_000) * time.Millisecond) })
		if err != nil {
			return nil, err
		}
		for found := 0; found < size.dead; {
			n, err := c.claim(ctx, batch)
			if err != nil {
				return nil, err
			}
			if n == 0 {
				return nil, fmt.Errorf("%d of %d old tasks were claimed", found, size.dead)
			}
			found += n
			if err := c.finish(ctx); err != nil {
				return nil, err
			}
		}
		if err := phase("dead", t.take); err != nil {
			return nil, err
		}
		if o, ok := c.(interface {
			overdue(ctx context.Context) error
		}); ok {
			if err := phase("overdue", func() (time.Duration, error) {
				began := time.Now()
				err := o.overdue(ctx)
				return time.Since(began), err
			}); err != nil {
				return nil, err
			}
		}
		f["ratio"] = f["dead_p50_ms"] / f["fresh_p50_ms"]
		return f, nil
	}, "shared_preload_libraries=pg_stat_statements")
}

// A taker adds and claims due tasks.
type taker struct {
	claimer
	next int // number of the next task
}

// add adds n tasks.
func (t *taker) add(n int, due func(id int) time.Time) error {
	for end := t.next + n; t.next < end; {
		some := min(batch, end-t.next)
		if err := t.put(context.Background(), tasksFrom(t.next, some, due)); err != nil {
			return err
		}
		t.next += some
	}
	return nil
}

// take adds due tasks, claims and ends them, and returns how long the claim took.
func (t *taker) take() (time.Duration, error) {
	ctx := context.Background()
	if err := t.add(claimSize, func(int) time.Time { return time.Now() }); err != nil {
		return 0, err
	}
	began := time.Now()
	n, err := t.claim(ctx, claimSize)
	took := time.Since(began)
	if err == nil && n != claimSize {
		err = fmt.Errorf("%d of %d due tasks were claimed", n, claimSize)
	}
	return took, errors.Join(err, t.finish(ctx))
}

// repeat makes n calls and returns their durations, sorted.
func repeat(n int, call func() (time.Duration, error)) (took []time.Duration, err error) {
	for range n {
		d, err := call()
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	slices.Sort(took)
	return took, nil
}

// claimBuffers returns how many buffers claims have read since the last reset, in memory or from the disk.
func claimBuffers(ctx context.Context, url string) (float64, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	var n float64
	err = conn.QueryRow(ctx, `SELECT coalesce(sum(shared_blks_hit + shared_blks_read), 0)::float8
		FROM pg_stat_statements WHERE query ILIKE '%skip locked%' AND query NOT ILIKE '%pg_stat_%'`).Scan(&n)
	return n, errors.Join(err, conn.Close(ctx))
}

// holdOpen opens a transaction that keeps its snapshot of the tables until release is called.
func holdOpen(ctx context.Context, url string) (release func() error, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class`)
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return func() error { return conn.Close(ctx) }, nil
}
