// SPDX-License-Identifier: MIT

package pebble_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/suite"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The duration of an operator's queries: MILLIONS=10 go test -run none -bench Questions -benchtime 5x -v -timeout 2h
func BenchmarkQuestions(b *testing.B) {
	tasks := suite.Millions(b) * 1_000_000
	on, err := openIn(filepath.Join(b.TempDir(), "store"))
	must(b, err)
	now := time.Now().UnixNano()
	const atOnce = 10_000
	for from := 0; from < tasks; from += atOnce {
		changes := make([]change, atOnce)
		for i := range changes {
			r, kind, failing := suite.AskedTask(from+i, now)
			changes[i] = change{Key: r.Key, From: engine.None, Due: r.Due, Data: r.Data, Kind: kind, Failing: failing}
		}
		if err := on.Commit(changes); err != nil {
			b.Fatal(err)
		}
	}
	b.Logf("filled in %v", time.Since(time.Unix(0, now)).Round(time.Second))
	s, err := durable.New(ctx, on.Owned, durable.WithLogger(testkit.Quiet()))
	if err != nil {
		b.Fatal(err)
	}
	for i := range 10 {
		err := s.Handle(fmt.Sprint("kind", i), func(context.Context, durable.Run) error { return nil })
		if err != nil {
			b.Fatal(err)
		}
	}
	began := time.Now()
	for {
		c, err := s.Counts(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if c.Whole {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.Logf("the census is whole after %v", time.Since(began).Round(time.Second))
	suite.BenchmarkQuestions(b, s)
	if err := s.Shutdown(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// The cost of Scheduler.LastHour: go test -run none -bench LastHour
func BenchmarkLastHour(b *testing.B) {
	on, err := openIn(filepath.Join(b.TempDir(), "store"))
	must(b, err)
	suite.BenchmarkLastHour(b, on.Owned)
	must(b, on.Close())
}
