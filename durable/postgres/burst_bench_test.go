// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// How many SetTask calls of a burst three nodes do per second, for ten callers each: with one key that all change at
// the same time, and with one key per caller. The latency of a call is computed from all calls.
func BenchmarkBurst(b *testing.B) {
	for _, keys := range []string{"one key", "30 keys"} {
		b.Run(keys, func(b *testing.B) {
			in := schema()
			var next atomic.Int64
			var all sync.WaitGroup
			var mu sync.Mutex
			var took []time.Duration
			var nodes []*durable.Scheduler
			for range 3 {
				s, err := durable.New(b.Context(), open(b, in), durable.WithLogger(testkit.Quiet()))
				check(b, err)
				nodes = append(nodes, s)
				check(b, s.Handle("kind", func(context.Context, durable.Run) error { return nil }))
			}
			b.ResetTimer()
			for caller := range 30 {
				task := durable.Task{Key: "a", Kind: "kind", Delay: time.Hour, MaxDelay: time.Hour}
				if keys != "one key" {
					task.Key = fmt.Sprint(caller)
				}
				all.Go(func() {
					for next.Add(1) <= int64(b.N) {
						begun := time.Now()
						if err := nodes[caller%3].SetTask(context.Background(), task); err != nil {
							b.Error(err)
							return
						}
						mu.Lock()
						took = append(took, time.Since(begun))
						mu.Unlock()
					}
				})
			}
			all.Wait()
			b.StopTimer()
			slices.Sort(took)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sets/s")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			for _, s := range nodes {
				check(b, s.Shutdown(context.Background()))
			}
		})
	}
}
