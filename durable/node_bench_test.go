// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/memengine"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// What a node costs, apart from its engine: an add and a removal, by one of a number of callers.
func BenchmarkNode(b *testing.B) {
	for _, callers := range []int{1, 64, 1024} {
		for name, delay := range map[string]time.Duration{"far": time.Hour, "near": 700 * time.Millisecond} {
			b.Run(fmt.Sprint(name, "/", callers, " callers"), func(b *testing.B) {
				s, err := durable.Join(ctx, memengine.New(), durable.WithLogger(testkit.Quiet()))
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
