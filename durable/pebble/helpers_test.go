// SPDX-License-Identifier: MIT

package pebble_test

import (
	"context"
	"errors"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/memstore"
	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

var ctx = context.Background()

var errFail = errors.New("it fails")

// newScheduler returns a scheduler on the store in a directory.
func newScheduler(dir string) (*durable.Scheduler, error) {
	store, err := pebble.Open(dir)
	if err != nil {
		return nil, err
	}
	return durable.New(store, durable.WithLogger(testkit.Quiet()))
}

// recordOf returns the record of a task, as a scheduler writes it.
func recordOf(t *testing.T, task durable.Task) engine.Record {
	t.Helper()
	store := memstore.New()
	s, err := durable.New(store, durable.WithLogger(testkit.Quiet()))
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		s.Handle(task.Kind, func(context.Context, durable.Run) error { return nil }),
		s.AddTask(ctx, task))
	if err != nil {
		t.Fatal(err)
	}
	r, ok, err := store.Get(task.Key)
	if !ok || err != nil {
		t.Fatalf("the record of %q: %v, %v", task.Key, ok, err)
	}
	if err := s.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	return r
}
