// SPDX-License-Identifier: MIT

// Package suite tests durable schedulers against the contract of all schedulers in this repository, with any
// engine.
package suite

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/test/contract"
)

var ctx = context.Background()

// Test runs the suite shared by all schedulers on the given number of schedulers of package durable that share an engine.
// Each verb goes to the next scheduler in rotation, and all of them run due tasks. Test calls open for each test, inside a
// bubble of virtual time or with real timers. The suite does not test where a durable scheduler differs from the wheel: a
// key becomes free and a run is counted when the run is acknowledged, not when it begins.
func Test(t *testing.T, schedulers int, open func(t *testing.T) engine.Engine, opts ...durable.Option) {
	contract.Test(t, func(t *testing.T, c contract.Config) contract.Subject {
		e := open(t)
		s := newSubject(t, start(t, e, schedulers, append(opts, durable.WithTick(c.Tick), durable.WithPoolSize(c.PoolSize))...)...)
		if isOwn(e) {
			return s
		}
		return cluster{s}
	})
	testPromises(t, func(t *testing.T, more ...durable.Option) []*durable.Scheduler {
		return start(t, open(t), schedulers, slices.Concat(opts, more, []durable.Option{durable.WithTick(contract.Tick)})...)
	})
	t.Run("a declared set whose process dies", func(t *testing.T) {
		kit.In(t, func(t *testing.T, k *kit.Kit) {
			if e := open(t); isOwn(e) {
				k.Use(start(t, e, 1)[0], nil) // which closes it
			} else {
				diesHalfway(t, k, e, opts...)
			}
		})
	})
}

// isOwn reports whether only one scheduler uses the engine.
func isOwn(e engine.Engine) bool {
	_, own := e.(engine.Exclusive)
	return own
}

// start returns the given number of schedulers on the engine.
func start(t *testing.T, engine engine.Engine, schedulers int, opts ...durable.Option) (all []*durable.Scheduler) {
	for range schedulers {
		s, err := durable.New(ctx, engine, append(opts, durable.WithLogger(testkit.Quiet()))...)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// A cluster is a subject with several nodes.
type cluster struct{ *subject }

func (c cluster) Nodes() int { return len(c.all) }

// A subject is a scheduler, or several nodes that execute verbs in rotation. Jobs cannot be stored as data, so each
// payload is the number of a job in the subject.
type subject struct {
	t    *testing.T
	all  []*durable.Scheduler
	turn atomic.Uint32
	jobs sync.Map
}

func newSubject(t *testing.T, all ...*durable.Scheduler) *subject {
	sub := &subject{t: t, all: all}
	for _, s := range all {
		err := s.Handle("job", func(_ context.Context, run durable.Run) error {
			job, _ := sub.jobs.Load(string(run.Payload))
			job.(func())()
			return nil
		}, durable.WithRetry(1, time.Second, time.Second))
		if err != nil {
			t.Fatal(err)
		}
	}
	return sub
}

// next returns the next scheduler, in rotation.
func (s *subject) next() *durable.Scheduler { return s.all[int(s.turn.Add(1))%len(s.all)] }

func (s *subject) task(t contract.Task) durable.Task {
	id := strconv.FormatInt(time.Now().UnixNano(), 36) + t.Key + strconv.Itoa(int(t.Interval))
	s.jobs.Store(id, t.Job)
	return durable.Task{
		Key: t.Key, Kind: "job", Payload: []byte(id), Interval: t.Interval, Delay: t.Delay, Times: t.Times,
	}
}

func (s *subject) Add(t contract.Task) error { return s.next().AddTask(ctx, s.task(t)) }
func (s *subject) Set(t contract.Task) error { return s.next().SetTask(ctx, s.task(t)) }
func (s *subject) Remove(key string) error   { return s.next().RemoveTask(ctx, key) }
func (s *subject) Reschedule(key string, d time.Duration) error {
	return s.next().Reschedule(ctx, key, d)
}
func (s *subject) Exist(key string) bool { ok, _ := s.next().Exist(ctx, key); return ok }
func (s *subject) Times(key string) int  { n, _ := s.next().GetTaskTimes(ctx, key); return n }
func (s *subject) Len() int              { return s.next().Len() }

func (s *subject) Start() {
	for _, one := range s.all {
		if err := one.Start(); err != nil && !errors.Is(err, durable.ErrStopped) {
			s.t.Errorf("start: %v", err)
		}
	}
}

func (s *subject) Stop() {
	for _, one := range s.all {
		if err := one.Shutdown(ctx); err != nil {
			s.t.Errorf("shutdown: %v", err)
		}
	}
}
