// SPDX-License-Identifier: MIT

package suite

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
)

// Millions returns the number of tasks, in millions, for a benchmark of queries. It reads the environment variable
// MILLIONS, and skips the benchmark if that is not set to a positive number.
func Millions(b *testing.B) int {
	n, err := strconv.Atoi(os.Getenv("MILLIONS"))
	if err != nil || n <= 0 {
		b.Skip("MILLIONS is not set")
	}
	return n
}

// AskedTask returns the record and kind of task i for BenchmarkQuestions, and reports whether the task is failing. One
// task in a hundred is failing, one in a thousand is parked, and one in fifty is overdue.
func AskedTask(i int, now int64) (r engine.Record, kind string, failing bool) {
	kind = fmt.Sprint("kind", i%10)
	r.Key = fmt.Sprintf("%c%d:order:%010d", 'a'+i%26, i%10, i)
	r.Due = now + int64(time.Hour) + int64(i)*1000
	attempts, failure := uint64(0), ""
	switch {
	case i%1000 == 7:
		r.Due = 1<<63 - 1
		attempts, failure = 10, fmt.Sprintf("dial 10.0.0.%d: connection refused", i%251)
	case i%100 == 7:
		attempts, failure = 3, fmt.Sprintf("order %d: no such customer", i)
	case i%50 == 1:
		r.Due = now - int64(time.Hour) + int64(i)
	}
	b := binary.AppendUvarint([]byte{1}, uint64(now)+uint64(i))
	b = append(b, 0, 2, 0)
	b = binary.AppendVarint(b, now)
	b = append(binary.AppendUvarint(b, attempts), 0)
	for _, s := range []string{kind, failure} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	r.Data = append(b, make([]byte, 50)...)
	return r, kind, attempts > 0
}

// BenchmarkQuestions measures each operator query on a scheduler whose tasks come from AskedTask. The tasks' kinds must
// have handlers, and the scheduler must not have been started.
func BenchmarkQuestions(b *testing.B, s *durable.Scheduler) {
	ctx := b.Context()
	find := func(q durable.Query) func() (string, error) {
		return func() (string, error) {
			f, err := s.Find(ctx, q)
			return fmt.Sprintf("%d found, %d looked at, cut %v", len(f.Tasks), f.Looked, f.Cut), err
		}
	}
	for _, c := range []struct {
		name string
		ask  func() (string, error)
	}{
		{"all", find(durable.Query{})},
		{"scheduled", find(durable.Query{State: durable.Scheduled})},
		{"waiting", find(durable.Query{State: durable.Waiting})},
		{"retrying", find(durable.Query{State: durable.Retrying})},
		{"running", find(durable.Query{State: durable.Running})},
		{"parked", find(durable.Query{State: durable.Parked})},
		{"repeating", find(durable.Query{Repeating: true})},
		{"prefix", find(durable.Query{Prefix: "r7:order:00004"})},
		{"kind", find(durable.Query{Kind: "kind7"})},
		{"kind-none", find(durable.Query{Kind: "none"})},
		{"failure", find(durable.Query{Failure: "order #: no such customer"})},
		{"failure-none", find(durable.Query{Failure: "no such failure"})},
		{"parked-prefix", find(durable.Query{State: durable.Parked, Prefix: "r"})},
		{"census", func() (string, error) {
			c, err := s.Counts(ctx)
			return fmt.Sprintf("%d kinds, whole %v", len(c.Kinds), c.Whole), err
		}},
		{"failures", func() (string, error) {
			f, err := s.Failures(ctx)
			return fmt.Sprintf("%d groups, %d looked at, cut %v", len(f.Groups), f.Looked, f.Cut), err
		}},
		{"catch-up", func() (string, error) {
			c, err := s.CatchUp(ctx)
			return fmt.Sprintf("%d left, cut %v", c.Left, c.Cut), err
		}},
		{"nodes", func() (string, error) {
			n, err := s.Nodes(ctx)
			return fmt.Sprintf("%d nodes", len(n)), err
		}},
		{"stats", func() (string, error) { return fmt.Sprintf("%d pending", s.Stats().Pending), nil }},
	} {
		b.Run(c.name, func(b *testing.B) {
			said := ""
			var most time.Duration
			for b.Loop() {
				began := time.Now()
				var err error
				if said, err = c.ask(); err != nil {
					b.Fatal(err)
				}
				most = max(most, time.Since(began))
			}
			b.ReportMetric(float64(most.Microseconds())/1000, "ms-most")
			b.Log(said)
		})
	}
	b.Run("bulk-remove", func(b *testing.B) { // each prefix can be removed only once
		n, i := 0, 0
		for b.Loop() {
			q := durable.Query{Prefix: fmt.Sprintf("%c%d:order:00000", 'a'+i%26, i%10)}
			done, err := s.Bulk(ctx, q, durable.DoRemove)
			if err != nil {
				b.Fatal(err)
			}
			n += done
			i++
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tasks/s")
	})
}
