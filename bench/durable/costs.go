// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// An opener opens a scheduler as open does.
type opener func(dir string, opts ...durable.Option) (*durable.Scheduler, *counter, error)

func openOwn(_ string, opts ...durable.Option) (*durable.Scheduler, *counter, error) {
	return counted(durable.New(ctx, memory.New().Engine(), opts...))
}

func openShared(_ string, opts ...durable.Option) (*durable.Scheduler, *counter, error) {
	return counted(durable.New(ctx, memory.New().Shared(), opts...))
}

// onEach returns the measurement with a scheduler on Pebble, on an engine of its own in memory, and on a shared engine
// in memory.
func onEach(measure func(size sizes, dir string, open opener) (map[string]float64, error)) map[string]measurement {
	with := func(open opener) measurement {
		return func(size sizes, dir string) (map[string]float64, error) { return measure(size, dir, open) }
	}
	return map[string]measurement{ours: with(open), own: with(openOwn), shared: with(openShared)}
}

// setOne lets many callers set the task of one key again and again.
func setOne(size sizes, dir string, open opener) (map[string]float64, error) {
	return started(open, dir, 0, func(s *durable.Scheduler) (map[string]float64, error) {
		var n atomic.Int64
		began := time.Now()
		_, err := together(callers, callers, func(int) error {
			for time.Since(began) < size.duration {
				if err := s.SetTask(ctx, task(0, far(0))); err != nil {
					return err
				}
				n.Add(1)
			}
			return nil
		})
		took := time.Since(began)
		return map[string]float64{
			"ops":         perSecond(int(n.Load()), took),
			"commits_ops": perSecond(int(s.Stats().Commits.Count), took),
		}, err
	})
}

// idle counts how often the process wakes up while no task is due and no call is made.
func idle(size sizes, dir string, open opener) (map[string]float64, error) {
	return started(open, dir, size.live, func(*durable.Scheduler) (map[string]float64, error) {
		runtime.GC()
		time.Sleep(size.duration) // the background work after the adds has ended
		before, err := switches()
		if err != nil {
			return nil, err
		}
		began := time.Now()
		time.Sleep(size.duration)
		after, err := switches()
		return map[string]float64{"wakeups_ops": perSecond(after-before, time.Since(began))}, err
	})
}

// switches returns how often a thread of this process gave up its processor to wait, which is also the number of
// wake-ups.
func switches() (int, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return int(u.Nvcsw), err
}

// addAllocs counts the allocations of many callers that make one add at a time.
func addAllocs(size sizes, dir string, open opener) (map[string]float64, error) {
	tasks := make([]durable.Task, size.adds)
	for i := range tasks {
		tasks[i] = task(i, far(i))
	}
	return started(open, dir, 0, func(s *durable.Scheduler) (map[string]float64, error) {
		return allocations(size.adds, func() error {
			_, err := together(callers, size.adds, func(i int) error { return s.AddTask(ctx, tasks[i]) })
			return err
		})
	})
}

// runAllocs counts the allocations from the start of overdue runs to their acknowledgement.
func runAllocs(size sizes, dir string, open opener) (map[string]float64, error) {
	s, _, err := open(dir, durable.WithCatchUp(math.MaxInt32))
	if err != nil {
		return nil, err
	}
	if err := fill(s, 0, size.due, func(int) time.Duration { return time.Millisecond }); err != nil {
		return nil, err
	}
	figures, err := allocations(size.due, func() error {
		if err := s.Start(); err != nil {
			return err
		}
		for s.Stats().Succeeded < uint64(size.due) {
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	})
	return figures, errors.Join(err, s.Shutdown(ctx))
}

// allocations returns the allocations of the process on the Go heap per operation while f does n operations.
func allocations(n int, f func() error) (map[string]float64, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := f(); err != nil {
		return nil, err
	}
	runtime.ReadMemStats(&after)
	return map[string]float64{
		"allocs": float64(after.Mallocs-before.Mallocs) / float64(n),
		"bytes":  float64(after.TotalAlloc-before.TotalAlloc) / float64(n),
	}, nil
}
