// SPDX-License-Identifier: MIT

// Package suite runs the contract that every scheduler of this repository keeps on durable schedulers, whatever
// their store.
package suite

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/test/contract"
)

var ctx = context.Background()

// Test runs the suite that all schedulers share on a scheduler of package durable. It calls open for each test,
// inside a bubble of virtual time. What the durable scheduler does otherwise than the wheel is not in the suite:
// a key is free and a run counted when the run has been acknowledged, not when it begins.
func Test(t *testing.T, open func(t *testing.T) durable.Store) {
	for name, opts := range map[string][]durable.Option{
		"fingerprints": nil, "none": {durable.WithoutFingerprints()},
	} {
		t.Run(name, func(t *testing.T) {
			contract.Test(t, func(t *testing.T, c contract.Config) contract.Subject {
				s, err := durable.New(open(t), append(opts,
					durable.WithTick(c.Tick), durable.WithPoolSize(c.PoolSize), durable.WithLogger(testkit.Quiet()))...)
				if err != nil {
					t.Fatal(err)
				}
				return newSubject(t, s)
			})
		})
	}
}

// A subject keeps the jobs, which are no data, under a number in the payload.
type subject struct {
	t    *testing.T
	s    *durable.Scheduler
	jobs sync.Map
}

func newSubject(t *testing.T, s *durable.Scheduler) *subject {
	sub := &subject{t: t, s: s}
	err := s.Handle("job", func(_ context.Context, run durable.Run) error {
		job, _ := sub.jobs.Load(string(run.Payload))
		job.(func())()
		return nil
	}, durable.WithRetry(1, time.Second, time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

func (s *subject) task(t contract.Task) durable.Task {
	id := strconv.FormatInt(time.Now().UnixNano(), 36) + t.Key + strconv.Itoa(int(t.Interval))
	s.jobs.Store(id, t.Job)
	return durable.Task{
		Key: t.Key, Kind: "job", Payload: []byte(id), Interval: t.Interval, Delay: t.Delay, Times: t.Times,
	}
}

func (s *subject) Add(t contract.Task) error { return s.s.AddTask(ctx, s.task(t)) }
func (s *subject) Set(t contract.Task) error { return s.s.SetTask(ctx, s.task(t)) }
func (s *subject) Remove(key string) error   { return s.s.RemoveTask(ctx, key) }
func (s *subject) Reschedule(key string, d time.Duration) error {
	return s.s.Reschedule(ctx, key, d)
}
func (s *subject) Exist(key string) bool { ok, _ := s.s.Exist(ctx, key); return ok }
func (s *subject) Times(key string) int  { n, _ := s.s.GetTaskTimes(ctx, key); return n }
func (s *subject) Len() int              { return s.s.Len() }

func (s *subject) Start() {
	if err := s.s.Start(); err != nil && !errors.Is(err, durable.ErrStopped) {
		s.t.Errorf("start: %v", err)
	}
}

func (s *subject) Stop() {
	if err := s.s.Shutdown(ctx); err != nil {
		s.t.Errorf("shutdown: %v", err)
	}
}
