// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// What a limit costs that three nodes share: they run what is due, with runs that do nothing, from the first run to
// the last. The limit is more than they need.
func BenchmarkLimit(b *testing.B) {
	for _, c := range []struct {
		name string
		opts []durable.KindOption
	}{{"none", nil}, {"all nodes", []durable.KindOption{durable.WithClusterConcurrency(3 * 2048)}}} {
		b.Run(c.name, func(b *testing.B) {
			in := schema()
			var ran, first, last atomic.Int64
			var nodes []*durable.Scheduler
			for range 3 {
				s, err := durable.Join(b.Context(), open(b, in), durable.WithLogger(testkit.Quiet()),
					durable.WithCatchUp(1_000_000), durable.WithLease(2*time.Second))
				check(b, err)
				nodes = append(nodes, s)
				check(b, s.Handle("kind", func(context.Context, durable.Run) error {
					n := ran.Add(1)
					if n == 1 {
						first.Store(time.Now().UnixNano())
					}
					if n == int64(b.N) {
						last.Store(time.Now().UnixNano())
					}
					return nil
				}, c.opts...))
			}
			tasks := make([]durable.Task, b.N)
			for i := range tasks {
				tasks[i] = durable.Task{Key: fmt.Sprint(i), Kind: "kind", Delay: time.Millisecond}
			}
			for some := range slices.Chunk(tasks, 1000) {
				check(b, nodes[0].AddTask(b.Context(), some...))
			}
			time.Sleep(5 * time.Second) // until all nodes take part
			for _, s := range nodes {
				check(b, s.Start())
			}
			for last.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			for _, s := range nodes {
				check(b, s.Shutdown(context.Background()))
			}
			if took := time.Duration(last.Load() - first.Load()); took > 0 {
				b.ReportMetric(float64(b.N)/took.Seconds(), "runs/s")
			}
		})
	}
}
