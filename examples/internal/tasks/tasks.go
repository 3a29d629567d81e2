// SPDX-License-Identifier: MIT

// Package tasks adapts the durable scheduler to the shop in examples/orders-durable. Each order that holds stock has
// one task, which is due when the order's window ends.
package tasks

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/pebble"
)

const kind = "order.expire"

// Tasks holds the tasks of the orders in a directory.
type Tasks struct{ scheduler *durable.Scheduler }

// Open opens the tasks in the directory. After Start, each task calls expire at least once when it is due.
func Open(dir string, expire func(id string) error) (*Tasks, error) {
	ctx := context.Background()
	e, err := pebble.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard) // errors are returned and end the program
	s, err := durable.New(ctx, e, durable.WithLogger(quiet))
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	err = s.Handle(kind, func(_ context.Context, run durable.Run) error { return expire(run.Key) })
	if err != nil {
		return nil, errors.Join(err, s.Shutdown(ctx))
	}
	return &Tasks{s}, nil
}

// Start starts running due tasks.
func (t *Tasks) Start() error { return t.scheduler.Start() }

// Add adds the task of an order, unless it already exists. The task is on disk when Add returns.
func (t *Tasks) Add(id string, delay time.Duration) error {
	err := t.scheduler.AddTask(context.Background(), durable.Task{Key: id, Kind: kind, Delay: delay})
	if errors.Is(err, durable.ErrDuplicateTaskKey) {
		return nil
	}
	return err
}

// Remove removes the task of an order, unless the task has already begun.
func (t *Tasks) Remove(id string) error {
	err := t.scheduler.RemoveTask(context.Background(), id)
	if errors.Is(err, durable.ErrTaskKeyNotFound) {
		return nil
	}
	return err
}

// Len returns the number of tasks.
func (t *Tasks) Len() int { return t.scheduler.Len() }

// Counts returns the number of tasks that this process has added, removed, run and parked.
func (t *Tasks) Counts() (added, removed, run, parked uint64) {
	s := t.scheduler.Stats()
	return uint64(s.Added), uint64(s.Removed), uint64(s.Succeeded), uint64(s.ParkedTotal)
}

// Close stops the scheduler and waits until the runs in progress have ended or ctx is done.
func (t *Tasks) Close(ctx context.Context) error { return t.scheduler.Shutdown(ctx) }
