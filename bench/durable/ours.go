// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/pebble"
)

var ctx = context.Background()

// open opens a scheduler on Pebble in the directory, with one kind whose runs are counted.
func open(dir string, opts ...durable.Option) (*durable.Scheduler, *counter, error) {
	e, err := pebble.Open(ctx, filepath.Join(dir, "tasks"))
	if err != nil {
		return nil, nil, err
	}
	s, c, err := counted(durable.New(ctx, e, opts...))
	if err != nil {
		return nil, nil, errors.Join(err, e.Close())
	}
	return s, c, nil
}

// counted gives the scheduler one kind whose runs are counted.
func counted(s *durable.Scheduler, err error) (*durable.Scheduler, *counter, error) {
	if err != nil {
		return nil, nil, err
	}
	c := &counter{}
	return s, c, s.Handle("k", c.run)
}

// A counter counts runs and records how late they are, if there is room.
type counter struct {
	n    atomic.Int64
	late []time.Duration
}

func (c *counter) run(_ context.Context, run durable.Run) error {
	if i := c.n.Add(1) - 1; i < int64(len(c.late)) {
		c.late[i] = time.Since(run.Due)
	}
	return nil
}

func task(i int, delay time.Duration) durable.Task {
	return durable.Task{Key: key(i), Kind: "k", Payload: payload, Delay: delay}
}

var payload = make([]byte, recordLen)

// fill adds tasks in batches.
func fill(s *durable.Scheduler, from, n int, delay func(i int) time.Duration) error {
	tasks := make([]durable.Task, 0, batch)
	for i := from; i < from+n; i++ {
		tasks = append(tasks, task(i, delay(i)))
		if len(tasks) == batch || i == from+n-1 {
			if err := s.AddTask(ctx, tasks...); err != nil {
				return err
			}
			tasks = tasks[:0]
		}
	}
	return nil
}

func far(i int) time.Duration { return 30*time.Minute + time.Duration(i%1_000_000)*time.Millisecond }

func oursAddOne(size sizes, dir string) (map[string]float64, error) {
	s, _, err := open(dir)
	if err != nil {
		return nil, err
	}
	n, began := 0, time.Now()
	for ; time.Since(began) < size.duration; n++ {
		if err := s.AddTask(ctx, task(n, far(n))); err != nil {
			return nil, err
		}
	}
	return map[string]float64{"ops": perSecond(n, time.Since(began))}, s.Shutdown(ctx)
}

func oursAddMany(size sizes, dir string) (map[string]float64, error) {
	return withLive(size, dir, func(s *durable.Scheduler) (float64, error) {
		return together(callers, size.adds, func(i int) error { return s.AddTask(ctx, task(size.live+i, far(i))) })
	})
}

func oursAddBatch(size sizes, dir string) (map[string]float64, error) {
	return withLive(size, dir, func(s *durable.Scheduler) (float64, error) {
		ops, err := together(batchers, size.adds/batch, func(i int) error {
			return fill(s, size.live+i*batch, batch, far)
		})
		return ops * batch, err
	})
}

func oursRemove(size sizes, dir string) (map[string]float64, error) {
	return withLive(size, dir, func(s *durable.Scheduler) (float64, error) {
		return together(callers, size.adds, func(i int) error { return s.RemoveTask(ctx, key(i*7919%size.live)) })
	})
}

// withLive measures calls per second on a started scheduler with far tasks.
func withLive(
	size sizes, dir string, measure func(s *durable.Scheduler) (float64, error),
) (map[string]float64, error) {
	return started(open, dir, size.live, func(s *durable.Scheduler) (map[string]float64, error) {
		ops, err := measure(s)
		return map[string]float64{"ops": ops}, err
	})
}

// started measures on a started scheduler with n far tasks.
func started(
	open opener, dir string, live int, measure func(s *durable.Scheduler) (map[string]float64, error),
) (map[string]float64, error) {
	s, _, err := open(dir)
	if err != nil {
		return nil, err
	}
	if err := s.Start(); err != nil {
		return nil, err
	}
	if err := fill(s, 0, live, far); err != nil {
		return nil, err
	}
	figures, err := measure(s)
	return figures, errors.Join(err, s.Shutdown(ctx))
}

// together calls f for every number below n from the given number of goroutines, and returns the calls per
// second.
func together(goroutines, n int, f func(i int) error) (float64, error) {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wait sync.WaitGroup
	began := time.Now()
	for range goroutines {
		wait.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || failed.Load() != nil {
					return
				}
				if err := f(i); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wait.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return perSecond(n, time.Since(began)), nil
}

func oursRun(size sizes, dir string) (map[string]float64, error) {
	s, _, err := open(dir, durable.WithCatchUp(math.MaxInt32))
	if err != nil {
		return nil, err
	}
	if err := fill(s, 0, size.due, func(int) time.Duration { return time.Millisecond }); err != nil {
		return nil, err
	}
	time.Sleep(2 * time.Second) // a task is overdue when it has been due for a second
	began := time.Now()
	if err := s.Start(); err != nil {
		return nil, err
	}
	for s.Stats().Succeeded < uint64(size.due) {
		time.Sleep(time.Millisecond)
	}
	return map[string]float64{"ops": perSecond(size.due, time.Since(began))}, s.Shutdown(ctx)
}

// oursOpen measures the open of an engine with far tasks, up to the first run of a new task, and the memory used some
// seconds later, after a garbage collection.
func oursOpen(size sizes, dir string) (map[string]float64, error) {
	s, _, err := open(dir)
	if err != nil {
		return nil, err
	}
	if err := fill(s, 0, size.far, far); err != nil {
		return nil, err
	}
	if err := s.Shutdown(ctx); err != nil {
		return nil, err
	}
	debug.FreeOSMemory()
	began := time.Now()
	s, c, err := open(dir)
	if err != nil {
		return nil, err
	}
	if err := s.Start(); err != nil {
		return nil, err
	}
	if err := s.AddTask(ctx, task(size.far, time.Millisecond)); err != nil {
		return nil, err
	}
	for c.n.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	ready := time.Since(began)
	time.Sleep(size.duration) // the fingerprints are read meanwhile
	debug.FreeOSMemory()
	mb, err := resident()
	if err != nil {
		return nil, err
	}
	if n := s.Len(); n != size.far {
		return nil, fmt.Errorf("%d of %d tasks are there", n, size.far)
	}
	return map[string]float64{"open_ms": float64(ready.Milliseconds()), "resident_mb": mb}, s.Shutdown(ctx)
}

func oursLateness(size sizes, dir string) (map[string]float64, error) {
	s, c, err := open(dir)
	if err != nil {
		return nil, err
	}
	if err := s.Start(); err != nil {
		return nil, err
	}
	n := int(size.duration.Seconds()) * size.rate
	c.late = make([]time.Duration, n)
	from := time.Now().Add(5 * time.Second)
	err = fill(s, 0, n, func(i int) time.Duration {
		return time.Until(from.Add(time.Duration(i) * time.Second / time.Duration(size.rate)))
	})
	if err != nil {
		return nil, err
	}
	for s.Len() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	slices.Sort(c.late)
	return map[string]float64{
		"least_ms": c.late[0].Seconds() * 1000,
		"p50_ms":   quantile(c.late, 0.5).Seconds() * 1000,
		"p99_ms":   quantile(c.late, 0.99).Seconds() * 1000,
		"most_ms":  c.late[n-1].Seconds() * 1000,
	}, s.Shutdown(ctx)
}
