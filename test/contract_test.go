// SPDX-License-Identifier: MIT

package test

import (
	"context"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/test/contract"
	"github.com/seed581295f1/timewheel/timewheel"
)

// TestContract_ofEveryScheduler runs the suite that the durable scheduler also passes.
func TestContract_ofEveryScheduler(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		contract.Test(t, func(t *testing.T, c contract.Config) contract.Subject {
			return subject{newWheel(t, c.Tick, 64, timewheel.WithPoolSize(c.PoolSize), quiet())}
		})
	})
}

type subject struct{ tw *timewheel.TimeWheel }

func task(t contract.Task) *timewheel.Task {
	return &timewheel.Task{
		Key: t.Key, Interval: t.Interval, Delay: t.Delay, Times: t.Times, Job: func(*timewheel.Task) { t.Job() },
	}
}

func (s subject) Add(t contract.Task) error                    { return s.tw.AddTask(task(t)) }
func (s subject) Set(t contract.Task) error                    { return s.tw.SetTask(task(t)) }
func (s subject) Remove(key string) error                      { return s.tw.RemoveTask(key) }
func (s subject) Reschedule(key string, d time.Duration) error { return s.tw.Reschedule(key, d) }
func (s subject) Exist(key string) bool                        { return s.tw.Exist(key) }
func (s subject) Times(key string) int                         { return s.tw.GetTaskTimes(key) }
func (s subject) Len() int                                     { return s.tw.Len() }
func (s subject) Start()                                       { s.tw.Start() }
func (s subject) Stop()                                        { _ = s.tw.Shutdown(context.Background()) }
