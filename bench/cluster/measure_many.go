// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// tenMillion is the name of the case, which is measured for durable/postgres only.
const tenMillion = "ten-million"

const (
	manyRate = 1000          // tasks that fall due in a second
	farFrom  = 1_000_000_000 // number of the first far task; tasks that nodes run are numbered from 0
	takeFrom = 2_000_000_000 // number of the first task that is claimed without a node
	backlog  = 20_000        // tasks that have been added and have not run yet, at most, during the cycles
)

// manyRatios are the figures with many far tasks that are divided by those with few.
var manyRatios = []string{"add_us", "claim_p50_ms", "p50_ms", "p99_ms", "server_us", "count_ms"}

// measureMany measures the same with few far tasks in the table and with many. Then nodes run other tasks among the many.
func measureMany(p peer, name string, size sizes) (figures, error) {
	all := figures{}
	for _, phase := range []struct {
		name            string
		waiting, cycles int
	}{{"few", size.few, 0}, {"many", size.many, size.cycles}} {
		f, err := measureAmong(p, name, size, phase.waiting, phase.cycles)
		if err != nil {
			return nil, fmt.Errorf("%d far tasks: %w", phase.waiting, err)
		}
		for figure, v := range f {
			all[phase.name+"_"+figure] = v
		}
	}
	for _, figure := range manyRatios {
		all[figure+"_ratio"] = all["many_"+figure] / all["few_"+figure]
	}
	return all, nil
}

// measureAmong measures with a number of far tasks in the table, and then has nodes run a number of others.
func measureAmong(p peer, name string, size sizes, waiting, cycles int) (figures, error) {
	return withServer(p, func(s *pgtest.Server) (f figures, err error) {
		ctx := context.Background()
		filler, ok := p.(interface {
			copyIn(ctx context.Context, url string, from, n int, due func(id int) time.Time) error
		})
		if !ok {
			return nil, fmt.Errorf("the tasks of %s cannot be copied in", name)
		}
		if err := filler.copyIn(ctx, s.URL(), farFrom, waiting, far); err != nil {
			return nil, err
		}
		for _, statement := range []string{`VACUUM ANALYZE`, `CHECKPOINT`} { // as the server does by itself, but later
			if err := execute(ctx, s.URL(), statement); err != nil {
				return nil, err
			}
		}
		c, err := p.open(ctx, s.URL())
		if err != nil {
			return nil, err
		}
		defer c.close()
		before, err := readSpace(ctx, s.URL())
		if err != nil {
			return nil, err
		}
		f = before.bytesOf(waiting)

		counted, err := repeat(3, func() (time.Duration, error) {
			began := time.Now()
			n, err := c.live(ctx)
			if err == nil && n != waiting {
				err = fmt.Errorf("%d of %d tasks were counted", n, waiting)
			}
			return time.Since(began), err
		})
		if err != nil {
			return nil, err
		}
		f["count_ms"] = ms(quantile(counted, 0.5))

		claimer, err := p.claims(ctx, s.URL())
		if err != nil {
			return nil, err
		}
		took, err := repeat(claims, (&taker{claimer, takeFrom}).take)
		claimer.close()
		if err != nil {
			return nil, err
		}
		f["claim_p50_ms"], f["claim_p99_ms"] = ms(quantile(took, 0.5)), ms(quantile(took, 0.99))

		_, ops, err := together(64, math.MaxInt, size.verbs, func(ctx context.Context, i int) error {
			return c.add(ctx, task{farFrom + waiting + i, far(waiting + i)})
		})
		if err != nil {
			return nil, err
		}
		f["add_ops"], f["add_us"] = ops, 1e6/ops

		nodes, err := startCluster(2, name, s.URL(), lease, 0)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, nodes.close()) }()
		l := load{s, c, nodes, size.patience}
		n := int(size.sustain.Seconds()) * manyRate
		runs, err := l.run(0, n, manyRate)
		if err != nil {
			return nil, err
		}
		for figure, v := range runs {
			f[figure] = v
		}
		if cycles > 0 {
			err = l.cycle(ctx, n, cycles, f)
		}
		return f, err
	})
}

// cycle adds tasks that are due at once, as fast as the nodes run them, until n have run. Those before the first have
// run. The figures are those of the space that the tasks take.
func (l load) cycle(ctx context.Context, first, n int, f figures) error {
	before, err := readSpace(ctx, l.s.URL())
	if err != nil {
		return err
	}
	most, began, looked := before, time.Now(), time.Now()
	for added := 0; added < n; {
		ran, err := l.nodes.events()
		switch {
		case err != nil:
			return err
		case time.Since(began) > limit/2:
			return fmt.Errorf("%d of %d tasks ran within %v", ran/2-first, n, limit/2)
		case time.Since(looked) > time.Second:
			now, err := readSpace(ctx, l.s.URL())
			if err != nil {
				return err
			}
			most, looked = most.orMore(now), time.Now()
		case first+added-ran/2 > backlog:
			time.Sleep(20 * time.Millisecond)
		default:
			some := min(batch, n-added)
			due := time.Now()
			if err := l.c.add(ctx, tasksFrom(first+added, some, func(int) time.Time { return due })...); err != nil {
				return err
			}
			added += some
		}
	}
	if err := l.nodes.await(first+n, time.Now().Add(l.patience)); err != nil {
		return err
	}
	took := time.Since(began)
	events, err := readLedgers(l.nodes.ledgers())
	if err != nil {
		return err
	}
	a := settle(tasksFrom(first, n, func(int) time.Time { return began }), events)
	f["cycle_lost"], f["cycle_duplicates"] = float64(a.lost), float64(a.duplicates)
	f["cycle_ops"] = float64(n) / took.Seconds()
	after, err := readSpace(ctx, l.s.URL())
	if err != nil {
		return err
	}
	most = most.orMore(after)
	f["vacuums"] = float64(after.vacuums - before.vacuums)
	for relation := range after.bytes {
		f["before_"+relation] = float64(before.bytes[relation]) / 1e6
		f["most_"+relation] = float64(most.bytes[relation]) / 1e6
		f["after_"+relation] = float64(after.bytes[relation]) / 1e6
	}
	for _, relation := range []string{"task", "task_pkey", "task_free"} { // the others are empty before
		f["grown"] = max(f["grown"], f["most_"+relation]/f["before_"+relation])
	}
	return a.check()
}

// A space is what the tasks take.
type space struct {
	bytes   map[string]int64 // of the table, of each of its indexes, and of all of them as "total"
	vacuums int64            // by autovacuum, so far
}

func readSpace(ctx context.Context, url string) (s space, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return space{}, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	const of = `'timewheel.task'::regclass`
	s.bytes = map[string]int64{}
	var relation string
	var n int64
	rows, err := conn.Query(ctx, `SELECT 'total', pg_total_relation_size(`+of+`) UNION ALL
		SELECT 'task', pg_table_size(`+of+`) UNION ALL
		SELECT c.relname, pg_relation_size(c.oid) FROM pg_index JOIN pg_class c ON c.oid = indexrelid
		WHERE indrelid = `+of)
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&relation, &n}, func() error {
			s.bytes[relation] = n
			return nil
		})
	}
	if err == nil {
		err = conn.QueryRow(ctx, `SELECT autovacuum_count FROM pg_stat_all_tables WHERE relid = `+of).Scan(&s.vacuums)
	}
	return s, err
}

// orMore returns the greater size of each relation.
func (s space) orMore(than space) space {
	most := space{map[string]int64{}, than.vacuums}
	for relation, n := range than.bytes {
		most.bytes[relation] = max(n, s.bytes[relation])
	}
	return most
}

// bytesOf returns the bytes that each of n tasks takes.
func (s space) bytesOf(n int) figures {
	f := figures{}
	for relation, size := range s.bytes {
		f["bytes_"+relation] = float64(size) / float64(n)
	}
	return f
}
