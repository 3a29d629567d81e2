// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// withServer measures on a new server, with the tables of the peer.
func withServer(
	p peer, measure func(s *pgtest.Server) (figures, error), settings ...string,
) (f figures, err error) {
	if profiles != "" {
		settings = []string{"shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track_planning=on"}
	}
	s, err := pgtest.Start(settings...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := p.migrate(context.Background(), s.URL()); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	if profiles == "" {
		return measure(s)
	}
	const create = `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`
	if err := execute(context.Background(), s.URL(), create); err != nil {
		return nil, err
	}
	f, err = measure(s)
	return f, errors.Join(err, writeStatements(s.URL()))
}

// profileFrom resets the server's statistics, if it is profiled.
func profileFrom(s *pgtest.Server) error {
	if profiles == "" {
		return nil
	}
	return execute(context.Background(), s.URL(), `SELECT pg_stat_statements_reset()`)
}

// writeStatements writes a file with the statements on which the server spent its time.
func writeStatements(url string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	rows, err := conn.Query(ctx, `SELECT format('%s ms to run, %s ms to plan, %s calls, %s rows, %s buffers: %s',
		total_exec_time::int, total_plan_time::int, calls, rows, shared_blks_hit + shared_blks_read,
		left(regexp_replace(query, '\s+', ' ', 'g'), 200))
		FROM pg_stat_statements ORDER BY total_exec_time + total_plan_time DESC LIMIT 20`)
	if err != nil {
		return errors.Join(err, conn.Close(ctx))
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return errors.Join(err, conn.Close(ctx),
		os.WriteFile(profiles+"-statements.txt", []byte(strings.Join(lines, "\n")+"\n"), 0o644))
}

// withClient measures with a client of a peer on a new server, with far tasks.
func withClient(p peer, size sizes, measure func(c client) (figures, error)) (figures, error) {
	return withServer(p, func(s *pgtest.Server) (figures, error) {
		c, err := p.open(context.Background(), s.URL())
		if err != nil {
			return nil, err
		}
		defer c.close()
		if err := fill(c, 0, size.live, far); err != nil {
			return nil, err
		}
		if err := analyze(s); err != nil {
			return nil, err
		}
		return measure(c)
	})
}

// analyze makes the size of the tables known to the planner, as the server does on its own within a minute.
func analyze(s *pgtest.Server) error { return execute(context.Background(), s.URL(), `ANALYZE`) }

// counted adds the numbers of missing and extra tasks in the tables to the figures.
func counted(c client, want int, f figures) (figures, error) {
	n, err := c.live(context.Background())
	f["lost"], f["extra"] = float64(max(0, want-n)), float64(max(0, n-want))
	return f, err
}

func measureAdds(callers int) measurement {
	return func(p peer, _ string, size sizes) (figures, error) {
		return withClient(p, size, func(c client) (figures, error) {
			n, ops, err := together(callers, math.MaxInt, size.verbs, func(ctx context.Context, i int) error {
				return c.add(ctx, task{size.live + i, far(i)})
			})
			if err != nil {
				return nil, err
			}
			return counted(c, size.live+n, figures{"ops": ops})
		})
	}
}

func measureBatches(p peer, _ string, size sizes) (figures, error) {
	return withClient(p, size, func(c client) (figures, error) {
		n, ops, err := together(batchers, math.MaxInt, size.verbs, func(ctx context.Context, i int) error {
			return c.add(ctx, tasksFrom(size.live+i*batch, batch, far)...)
		})
		if err != nil {
			return nil, err
		}
		return counted(c, size.live+n*batch, figures{"ops": ops * batch})
	})
}

func measureRemoves(p peer, _ string, size sizes) (figures, error) {
	return withClient(p, size, func(c client) (figures, error) {
		n, ops, err := together(1024, size.live, size.verbs, func(ctx context.Context, i int) error {
			return c.remove(ctx, scattered(i, size.live))
		})
		if err != nil {
			return nil, err
		}
		return counted(c, size.live-n, figures{"ops": ops})
	})
}

// scattered is a permutation of the numbers below n, if n is not a multiple of the prime.
func scattered(i, n int) int { return i * 7919 % n }
