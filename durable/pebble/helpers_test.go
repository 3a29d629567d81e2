// SPDX-License-Identifier: MIT

package pebble_test

import (
	"context"
	"errors"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

var ctx = context.Background()

var errFail = errors.New("it fails")

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newScheduler returns a scheduler on the store in a directory.
func newScheduler(dir string, opts ...durable.Option) (*durable.Scheduler, error) {
	e, err := pebble.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	s, err := durable.New(ctx, e, append(opts, durable.WithLogger(testkit.Quiet()))...)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return s, nil
}

// recordOf returns the record of a task, as a scheduler writes it.
func recordOf(t *testing.T, task durable.Task) engine.Record {
	t.Helper()
	e := memory.New().Engine()
	s, err := durable.New(ctx, e, durable.WithLogger(testkit.Quiet()))
	must(t, err)
	must(t, s.Handle(task.Kind, func(context.Context, durable.Run) error { return nil }))
	must(t, s.AddTask(ctx, task))
	found, err := e.Get(ctx, task.Key)
	if len(found) != 1 || err != nil {
		t.Fatalf("the record of %q: %v, %v", task.Key, found, err)
	}
	must(t, s.Shutdown(ctx))
	return found[0].Record
}
