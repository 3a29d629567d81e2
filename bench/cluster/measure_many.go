// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// tenMillion is the name of the case, which is measured only for durable/postgres.
const tenMillion = "ten-million"

const (
	manyRate   = 1000          // tasks due per second
	manySlices = 10            // slices of the time for adds
	farFrom    = 1_000_000_000 // number of the first far task; tasks run by nodes are numbered from 0
	takeFrom   = 2_000_000_000 // number of the first task that is claimed without a node
	farSpan    = 1_000_000     // far tasks fall due within this many ms, whatever their number
	backlog    = 20_000        // maximal number of added tasks that have not yet run, during the cycles
)

// manyRatios are the figures for which the value with many far tasks is divided by the value with few.
var manyRatios = []string{"add_us", "claim_p50_ms", "p50_ms", "p99_ms", "server_us", "count_ms"}

// measureMany measures the same with few far tasks in the table and with many. Each has a server of its own. Short
// measurements alternate between them, so that foreign load hits both. Then nodes run other tasks next to the many.
func measureMany(p peer, peerName string, size sizes) (figures, error) {
	return withCrowd(p, size.few, func(few *crowd) (figures, error) {
		return withCrowd(p, size.many, func(many *crowd) (figures, error) {
			both := []*crowd{few, many}
			if err := measureBoth(both, size); err != nil {
				return nil, err
			}
			all := figures{}
			for i, name := range []string{"few", "many"} {
				if err := both[i].run(peerName, size, i*size.cycles); err != nil {
					return nil, fmt.Errorf("%d far tasks: %w", both[i].waiting, err)
				}
				for figure, v := range both[i].figures {
					all[name+"_"+figure] = v
				}
			}
			for _, figure := range manyRatios {
				all[figure+"_ratio"] = all["many_"+figure] / all["few_"+figure]
			}
			return all, nil
		})
	})
}

// measureBoth measures counts, claims and adds on each server in turn, repeatedly.
func measureBoth(both []*crowd, size sizes) error {
	for range 3 {
		for _, w := range both {
			if err := w.count(); err != nil {
				return err
			}
		}
	}
	for range claims {
		for _, w := range both {
			d, err := w.taker.take()
			if err != nil {
				return err
			}
			w.claims = append(w.claims, d)
		}
	}
	for range manySlices {
		for _, w := range both {
			if err := w.add(size.verbs / manySlices); err != nil {
				return err
			}
		}
	}
	for _, w := range both {
		slices.Sort(w.counts)
		slices.Sort(w.claims)
		w.figures["count_ms"], w.figures["claim_p50_ms"] = ms(quantile(w.counts, 0.5)), ms(quantile(w.claims, 0.5))
		w.figures["add_ops"] = float64(w.added) / w.adding.Seconds()
		w.figures["add_us"] = 1e6 / w.figures["add_ops"]
	}
	return nil
}

// A crowd is a server with far tasks, and its measurements.
type crowd struct {
	s       *pgtest.Server
	c       client
	taker   taker
	waiting int // copied far tasks

	added          int // far tasks added since
	adding         time.Duration
	counts, claims []time.Duration
	figures        figures
}

// withCrowd measures on a new server with a number of far tasks.
func withCrowd(p peer, waiting int, measure func(w *crowd) (figures, error)) (figures, error) {
	return withServer(p, func(s *pgtest.Server) (figures, error) {
		ctx := context.Background()
		filler, ok := p.(interface {
			copyIn(ctx context.Context, url string, from, n int, due func(id int) time.Time) error
		})
		if !ok {
			return nil, errors.New("the tasks of this peer cannot be copied in")
		}
		step := max(farSpan/waiting, 1)
		due := func(id int) time.Time { return far((id - farFrom) * step) }
		if err := filler.copyIn(ctx, s.URL(), farFrom, waiting, due); err != nil {
			return nil, err
		}
		for _, statement := range []string{`VACUUM ANALYZE`, `CHECKPOINT`} { // as the server would do later
			if err := execute(ctx, s.URL(), statement); err != nil {
				return nil, err
			}
		}
		is, err := readSpace(ctx, s.URL())
		if err != nil {
			return nil, err
		}
		c, err := p.open(ctx, s.URL())
		if err != nil {
			return nil, err
		}
		defer c.close()
		claimer, err := p.claims(ctx, s.URL())
		if err != nil {
			return nil, err
		}
		defer claimer.close()
		return measure(&crowd{
			s: s, c: c, taker: taker{claimer, takeFrom}, waiting: waiting, figures: is.bytesOf(waiting),
		})
	})
}

func (w *crowd) count() error {
	began := time.Now()
	n, err := w.c.live(context.Background())
	if err == nil && n != w.waiting {
		err = fmt.Errorf("%d of %d tasks were counted", n, w.waiting)
	}
	w.counts = append(w.counts, time.Since(began))
	return err
}

// add adds far tasks for a while.
func (w *crowd) add(during time.Duration) error {
	began, from := time.Now(), w.added
	n, _, err := together(64, math.MaxInt, during, func(ctx context.Context, i int) error {
		return w.c.add(ctx, task{farFrom + w.waiting + from + i, far(from + i)})
	})
	w.added += n
	w.adding += time.Since(began)
	return err
}

// run lets nodes run tasks that are due at a rate, and then a number of others as fast as they can.
func (w *crowd) run(peerName string, size sizes, cycles int) (err error) {
	nodes, err := startCluster(2, peerName, w.s.URL(), lease, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nodes.close()) }()
	l := load{w.s, w.c, nodes, size.patience}
	n := int(size.sustain.Seconds()) * manyRate
	runs, err := l.run(0, n, manyRate)
	if err != nil {
		return err
	}
	maps.Copy(w.figures, runs)
	if cycles > 0 {
		err = l.cycle(context.Background(), n, cycles, size.vacuum, w.figures)
	}
	return err
}

// cycle adds tasks that are due at once, as fast as the nodes run them, until n have run. Tasks before the first have
// run. In the middle it waits for autovacuum, unless that has already run. The figures describe the space that the
// tasks take.
func (l load) cycle(ctx context.Context, first, n int, vacuum time.Duration, f figures) error {
	before, err := readSpace(ctx, l.s.URL())
	if err != nil {
		return err
	}
	most, began, looked := before, time.Now(), time.Now()
	var waited time.Duration
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
		case added == n/2 && most.vacuums == before.vacuums && waited < vacuum:
			time.Sleep(time.Second)
			waited += time.Second
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
	took := time.Since(began) - waited
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
	for _, relation := range []string{"task", "task_pkey", "task_free"} { // the others are empty at first
		f["grown"] = max(f["grown"], f["most_"+relation]/f["before_"+relation])
	}
	return a.check()
}

// A space is the space that the tasks take.
type space struct {
	bytes   map[string]int64 // bytes of the table, of each index, and of all of them as "total"
	vacuums int64            // autovacuums so far
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

// orMore returns the larger size of each relation.
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
