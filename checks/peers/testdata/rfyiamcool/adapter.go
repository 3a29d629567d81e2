// SPDX-License-Identifier: MIT

// Package timewheel has the API of github.com/rfyiamcool/go-timewheel.
package timewheel

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

type TimeWheel struct {
	*timewheel.TimeWheel
	keys atomic.Int64
}

type Option struct{}

func TickSafeMode() Option { return Option{} }

func NewTimeWheel(tick time.Duration, buckets int, _ ...Option) (*TimeWheel, error) {
	tw, err := timewheel.New(tick, buckets)
	return &TimeWheel{TimeWheel: tw}, err
}

// A Task is a key.
type Task string

func (tw *TimeWheel) Add(d time.Duration, f func()) Task     { return tw.add(d, 1, f) }
func (tw *TimeWheel) AddCron(d time.Duration, f func()) Task { return tw.add(d, timewheel.Forever, f) }
func (tw *TimeWheel) Remove(task Task) error                 { return tw.RemoveTask(string(task)) }

func (tw *TimeWheel) add(d time.Duration, times int, f func()) Task {
	key := strconv.FormatInt(tw.keys.Add(1), 10)
	_ = tw.AddTask(&timewheel.Task{Key: key, Interval: d, Times: times, Job: func(*timewheel.Task) { f() }})
	return Task(key)
}

// A Timer calls a function, or sends on C.
type Timer struct {
	C     chan bool
	timer *timewheel.Timer
	stop  func()
}

func (tw *TimeWheel) AfterFunc(d time.Duration, f func()) *Timer {
	return &Timer{timer: tw.TimeWheel.AfterFunc(d, f)}
}

func (tw *TimeWheel) NewTimer(d time.Duration) *Timer {
	c := make(chan bool, 1)
	return &Timer{C: c, timer: tw.TimeWheel.AfterFunc(d, func() { send(c) })}
}

// NewTimer makes a timer on a new wheel, because there is no default wheel.
func NewTimer(d time.Duration) *Timer {
	tw, _ := NewTimeWheel(10*time.Millisecond, 1024)
	tw.Start()
	return tw.NewTimer(d)
}

func (t *Timer) Reset(d time.Duration) { t.timer.Reset(d) }

func (t *Timer) Stop() {
	t.timer.Stop()
	if t.stop != nil {
		t.stop()
	}
}

func (t *Timer) AddStopFunc(f func()) { t.stop = f }

func (tw *TimeWheel) After(d time.Duration) <-chan time.Time {
	c := make(chan time.Time, 1)
	tw.TimeWheel.AfterFunc(d, func() { c <- time.Now() })
	return c
}

type Ticker struct {
	C    chan bool
	Ctx  context.Context
	stop func()
}

func (tw *TimeWheel) NewTicker(d time.Duration) *Ticker {
	c := make(chan bool, 1)
	task := tw.AddCron(d, func() { send(c) })
	ctx, cancel := context.WithCancel(context.Background())
	return &Ticker{C: c, Ctx: ctx, stop: func() {
		_ = tw.Remove(task)
		cancel()
	}}
}

func (t *Ticker) Stop() { t.stop() }

func send(c chan bool) {
	select {
	case c <- true:
	default:
	}
}
