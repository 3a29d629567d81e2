// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The cost of a node without its engine: an add and a removal, by one of several callers.
func BenchmarkNode(b *testing.B) {
	for _, callers := range []int{1, 64, 1024} {
		for name, delay := range map[string]time.Duration{"far": time.Hour, "near": 700 * time.Millisecond} {
			b.Run(fmt.Sprint(name, "/", callers, " callers"), func(b *testing.B) {
				s, err := durable.New(ctx, memory.New().Shared(), durable.WithLogger(testkit.Quiet()))
				if err != nil {
					b.Fatal(err)
				}
				if err := s.Handle("note", func(context.Context, durable.Run) error { return nil }); err != nil {
					b.Fatal(err)
				}
				if err := s.Start(); err != nil {
					b.Fatal(err)
				}
				var next atomic.Int64
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
							key := fmt.Sprint(i)
							if err := s.AddTask(ctx, durable.Task{Key: key, Kind: "note", Delay: delay}); err != nil {
								b.Error(err)
							}
							if err := s.RemoveTask(ctx, key); err != nil {
								b.Error(err)
							}
						}
					})
				}
				all.Wait()
				b.StopTimer()
				if err := s.Shutdown(ctx); err != nil {
					b.Error(err)
				}
			})
		}
	}
}

// The cost of a limit: three nodes run due tasks with empty handlers, measured from the first run to the last. The
// limit is larger than they need.
func BenchmarkNode_limit(b *testing.B) {
	for _, c := range []struct {
		name string
		opts []durable.KindOption
	}{
		{"none", nil},
		{"each node", []durable.KindOption{durable.WithConcurrency(2048)}},
		{"all nodes", []durable.KindOption{durable.WithClusterConcurrency(3 * 2048)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			engine := memory.New().Shared()
			var ran, first, last atomic.Int64
			h := func(context.Context, durable.Run) error {
				n := ran.Add(1)
				if n == 1 {
					first.Store(time.Now().UnixNano())
				}
				if n == int64(b.N) {
					last.Store(time.Now().UnixNano())
				}
				return nil
			}
			var nodes []*durable.Scheduler
			for range 3 {
				s, err := durable.New(ctx, engine, durable.WithLogger(testkit.Quiet()), durable.WithCatchUp(1_000_000),
					durable.WithLease(2*time.Second))
				if err != nil {
					b.Fatal(err)
				}
				nodes = append(nodes, s)
				if err := s.Handle("note", h, c.opts...); err != nil {
					b.Fatal(err)
				}
			}
			tasks := make([]durable.Task, b.N)
			for i := range tasks {
				tasks[i] = durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: time.Millisecond}
			}
			for some := range slices.Chunk(tasks, 1000) {
				if err := nodes[0].AddTask(ctx, some...); err != nil {
					b.Fatal(err)
				}
			}
			time.Sleep(5 * time.Second) // until all nodes take part
			for _, s := range nodes {
				if err := s.Start(); err != nil {
					b.Fatal(err)
				}
			}
			for last.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			for _, s := range nodes {
				if err := s.Shutdown(ctx); err != nil {
					b.Error(err)
				}
			}
			if took := time.Duration(last.Load() - first.Load()); took > 0 {
				b.ReportMetric(float64(b.N)/took.Seconds(), "runs/s")
			}
		})
	}
}

// The cost of a run: overdue tasks with empty handlers, from Start on, in one process.
func BenchmarkOwned_overdue(b *testing.B) {
	opts := []durable.Option{durable.WithLogger(testkit.Quiet()), durable.WithCatchUp(1_000_000)}
	for _, c := range []struct {
		name string
		open func() (*durable.Scheduler, error)
	}{
		{"store", func() (*durable.Scheduler, error) { return durable.New(ctx, memory.New().Engine(), opts...) }},
		{"engine", func() (*durable.Scheduler, error) {
			e, err := kv.New(ctx, memory.Exclusive(memory.New()))
			if err != nil {
				return nil, err
			}
			return durable.New(ctx, e, opts...)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, err := c.open()
			if err != nil {
				b.Fatal(err)
			}
			var ran atomic.Int64
			all := make(chan struct{})
			h := func(context.Context, durable.Run) error {
				if ran.Add(1) == int64(b.N) {
					close(all)
				}
				return nil
			}
			if err := s.Handle("note", h); err != nil {
				b.Fatal(err)
			}
			tasks := make([]durable.Task, b.N)
			for i := range tasks {
				tasks[i] = durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: time.Millisecond}
			}
			for some := range slices.Chunk(tasks, 1000) {
				if err := s.AddTask(ctx, some...); err != nil {
					b.Fatal(err)
				}
			}
			time.Sleep(2 * time.Second) // until all are overdue
			b.ReportAllocs()
			b.ResetTimer()
			if err := s.Start(); err != nil {
				b.Fatal(err)
			}
			<-all
			if err := s.Shutdown(ctx); err != nil {
				b.Error(err)
			}
		})
	}
}
