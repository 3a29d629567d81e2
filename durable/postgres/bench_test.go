// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The cost of a group of commits, with and without named prepared statements.
func BenchmarkCommit(b *testing.B) {
	for _, mode := range []string{"cache_describe", "cache_statement"} {
		for _, n := range []int{1, 64, 1024} {
			b.Run(fmt.Sprint(mode, "/", n), func(b *testing.B) {
				e, err := postgres.Open(b.Context(), server(b)+"&default_query_exec_mode="+mode, schema())
				check(b, err)
				defer e.Close()
				i := 0
				for b.Loop() {
					var adds, removes []engine.Batch
					for range n {
						i++
						key := fmt.Sprint("order:", i)
						adds = append(adds, engine.Batch{add(key, 1<<62)})
						removes = append(removes, engine.Batch{remove(key)})
					}
					for _, batches := range [][]engine.Batch{adds, removes} {
						if _, err := e.Commit(b.Context(), 0, batches); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(2*i), "µs/write")
			})
		}
	}
}

// How many adds and removals a node does per second for concurrent callers.
func BenchmarkNode(b *testing.B) {
	for _, callers := range []int{64, 1024} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			e, err := postgres.Open(b.Context(), server(b), schema())
			check(b, err)
			defer e.Close()
			s, err := durable.New(b.Context(), e, durable.WithLogger(testkit.Quiet()))
			check(b, err)
			check(b, s.Handle("kind", func(context.Context, durable.Run) error { return nil }))
			run := func(verb func(key string) error) float64 {
				var next atomic.Int64
				begun := time.Now()
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
							if err := verb(fmt.Sprint("order:", i)); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				return float64(b.N) / time.Since(begun).Seconds()
			}
			b.ReportMetric(run(func(key string) error {
				return s.AddTask(context.Background(), durable.Task{Key: key, Kind: "kind", Delay: time.Hour})
			}), "adds/s")
			b.ReportMetric(run(func(key string) error { return s.RemoveTask(context.Background(), key) }), "removes/s")
			check(b, s.Shutdown(context.Background()))
		})
	}
}

// The extra cost of AddTaskTx in a user's transaction that inserts one row.
func BenchmarkAddTaskTx(b *testing.B) {
	pool, err := pgxpool.New(b.Context(), server(b))
	check(b, err)
	defer pool.Close()
	e, err := postgres.OpenPool(b.Context(), pool, schema())
	check(b, err)
	defer e.Close()
	s, err := durable.New(b.Context(), e, durable.WithLogger(testkit.Quiet()))
	check(b, err)
	defer func() { check(b, s.Shutdown(context.Background())) }()
	check(b, s.Handle("other", func(context.Context, durable.Run) error { return nil }))
	check(b, s.Start())
	_, err = pool.Exec(b.Context(), "DROP TABLE IF EXISTS orders; CREATE TABLE orders (id text)")
	check(b, err)
	var next atomic.Int64
	for _, with := range []string{"without", "with"} {
		b.Run(with, func(b *testing.B) {
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					key := fmt.Sprint(next.Add(1))
					err := pgx.BeginFunc(context.Background(), pool, func(tx pgx.Tx) error {
						if _, err := tx.Exec(context.Background(), "INSERT INTO orders VALUES ($1)", key); err != nil {
							return err
						}
						if with == "without" {
							return nil
						}
						return e.AddTaskTx(context.Background(), tx, task(key, time.Hour))
					})
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// The cost of reading 1,000 of 100,000 tasks: one by one, 16 at a time, and with one statement.
func BenchmarkGet(b *testing.B) {
	e, err := postgres.Open(b.Context(), server(b), schema())
	check(b, err)
	defer e.Close()
	var batch engine.Batch
	for i := range 100_000 {
		batch = append(batch, add(fmt.Sprint("order:", i), 1<<62))
	}
	commit(b, e, 0, batch...)
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("order:", i*97)
	}
	for _, c := range []struct {
		name   string
		atOnce int
	}{{"one-by-one", 1}, {"16-at-once", 16}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				var next atomic.Int64
				var all sync.WaitGroup
				for range c.atOnce {
					all.Go(func() {
						for i := next.Add(1); i <= int64(len(keys)); i = next.Add(1) {
							if got, err := e.Get(context.Background(), keys[i-1]); len(got) != 1 || err != nil {
								b.Error(len(got), err)
							}
						}
					})
				}
				all.Wait()
			}
		})
	}
	b.Run("one-statement", func(b *testing.B) {
		for b.Loop() {
			if got, err := e.Get(b.Context(), keys...); len(got) != len(keys) || err != nil {
				b.Fatal(len(got), err)
			}
		}
	})
}
