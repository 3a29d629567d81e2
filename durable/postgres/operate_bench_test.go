// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/suite"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The duration of an operator's queries: MILLIONS=10 go test -run none -bench Questions -benchtime 5x -v -timeout 2h
func BenchmarkQuestions(b *testing.B) {
	tasks := suite.Millions(b) * 1_000_000
	at := schema()
	e := open(b, at)
	conn := connect(b, shared.URL())
	now := time.Now().UnixNano()
	i := 0
	rows := pgx.CopyFromFunc(func() ([]any, error) {
		if i == tasks {
			return nil, nil
		}
		r, kind, failing := suite.AskedTask(i, now)
		i++
		var at *int64
		if failing {
			at = &r.Due
		}
		return []any{[]byte(r.Key), r.Due, int64(i), []byte(kind), r.Data, at}, nil
	})
	exec(b, conn, e.Text("SELECT set_config('search_path', $1, false)"), e.Text("$schema"))
	_, err := conn.CopyFrom(b.Context(), pgx.Identifier{"task"},
		[]string{"key", "due", "revision", "kind", "data", "failing"}, rows)
	check(b, err)
	exec(b, conn, "SELECT setval('revision', $1)", tasks)
	exec(b, conn, "VACUUM ANALYZE task")
	b.Logf("filled in %v", time.Since(time.Unix(0, now)).Round(time.Second))
	s, err := durable.New(b.Context(), e, durable.WithLogger(testkit.Quiet()))
	check(b, err)
	for i := range 10 {
		check(b, s.Handle(fmt.Sprint("kind", i), func(context.Context, durable.Run) error { return nil }))
	}
	began := time.Now()
	for {
		c, err := s.Counts(b.Context())
		check(b, err)
		if c.Whole {
			break
		}
	}
	b.Logf("the census is whole after %v", time.Since(began).Round(time.Millisecond))
	suite.BenchmarkQuestions(b, s)
	check(b, s.Shutdown(context.Background()))
}

// The cost of Scheduler.LastHour: go test -run none -bench LastHour
func BenchmarkLastHour(b *testing.B) { suite.BenchmarkLastHour(b, open(b, schema())) }
