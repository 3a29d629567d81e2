// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/author"
	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The cost of a limit that three nodes share: they run due tasks with empty handlers, measured from the first run to
// the last. The limit is larger than they need.
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
				s, err := durable.New(b.Context(), open(b, in), durable.WithLogger(testkit.Quiet()),
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

// The lateness of the tasks of a kind while b.N tasks of another kind, which has a limit, are due at one instant. A
// program that is not a node adds 200 tasks per second, from two seconds before that instant to eight seconds after it,
// ten at a time and 0.3 s before they are due. go test -run xxx -bench Crowd -benchtime 300000x
func BenchmarkCrowd(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			if b.N == 1 {
				return // package testing first calls with b.N = 1
			}
			const others = 2000
			in := schema()
			e := open(b, in)
			at := time.Now().Add(10*time.Second + time.Duration(b.N)*70*time.Microsecond)
			write := func(task durable.Task) engine.Write {
				w, err := author.Add(task, time.Now().UnixNano())
				check(b, err)
				return w
			}
			for from := 0; from < b.N; from += 1000 {
				var batch engine.Batch
				for i := from; i < min(from+1000, b.N); i++ {
					batch = append(batch, write(durable.Task{Key: fmt.Sprint(i), Kind: "crowd", At: at}))
				}
				commit(b, e, 0, batch...)
			}
			late, crowd := make(chan time.Duration, others), atomic.Int64{}
			var all []*durable.Scheduler
			for range nodes {
				s, err := durable.New(b.Context(), open(b, in), durable.WithLogger(testkit.Quiet()),
					durable.WithLease(2*time.Second))
				check(b, err)
				check(b, s.Handle("other", func(_ context.Context, run durable.Run) error {
					late <- time.Since(run.Due)
					return nil
				}))
				check(b, s.Handle("crowd", func(context.Context, durable.Run) error {
					time.Sleep(time.Millisecond)
					crowd.Add(1)
					return nil
				}, durable.WithClusterConcurrency(100)))
				all = append(all, s)
			}
			if left := time.Until(at); left < 7*time.Second {
				b.Fatalf("to add the tasks took too long: they are due in %v", left)
			}
			time.Sleep(time.Until(at.Add(-7 * time.Second))) // until all nodes take part
			for _, s := range all {
				check(b, s.Start())
			}
			for i := 0; i < others; {
				var batch engine.Batch
				due := at.Add(time.Duration(i-others/5) * 5 * time.Millisecond)
				time.Sleep(time.Until(due.Add(-300 * time.Millisecond)))
				for ; len(batch) < 10; i++ {
					batch = append(batch, write(durable.Task{Key: fmt.Sprint("other", i), Kind: "other", At: due}))
				}
				if commit(b, e, 0, batch...); time.Now().After(due) {
					b.Log("the program that adds is late by ", time.Since(due))
				}
			}
			var ran []time.Duration
			for range others {
				ran = append(ran, <-late)
			}
			b.ReportMetric(float64(crowd.Load())/time.Since(at).Seconds(), "crowd/s")
			for _, s := range all {
				check(b, s.Shutdown(context.Background()))
			}
			slices.Sort(ran)
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(ms(ran[others/2]), "p50-ms")
			b.ReportMetric(ms(ran[others*99/100]), "p99-ms")
			b.ReportMetric(ms(ran[others-1]), "max-ms")
		})
	}
}
