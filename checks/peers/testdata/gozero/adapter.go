// SPDX-License-Identifier: MIT

// Package collection has the API of the TimingWheel of github.com/zeromicro/go-zero/core/collection.
package collection

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zeromicro/go-zero/core/timex"

	"github.com/seed581295f1/timewheel/internal/clock"
	"github.com/seed581295f1/timewheel/timewheel"
)

var (
	ErrClosed   = errors.New("closed")
	ErrArgument = errors.New("wrong argument")
)

type Execute func(key, value any)

type TimingWheel struct {
	tw      *timewheel.TimeWheel
	execute Execute
	entries sync.Map // entries by key of the wheel, for Drain
}

type entry struct{ key, value any }

func NewTimingWheel(interval time.Duration, numSlots int, execute Execute) (*TimingWheel, error) {
	return start(interval, numSlots, execute)
}

// NewTimingWheelWithTicker returns a wheel on a clock that each tick of the ticker advances by one interval.
func NewTimingWheelWithTicker(interval time.Duration, numSlots int, execute Execute, ticker timex.Ticker) (
	*TimingWheel, error) {
	fake := clock.NewFake(0)
	go func() {
		for range ticker.Chan() {
			fake.Advance(interval)
		}
	}()
	return start(interval, numSlots, execute, timewheel.WithClock(fake))
}

func start(interval time.Duration, slots int, execute Execute, opts ...timewheel.Option) (*TimingWheel, error) {
	tw, err := timewheel.New(interval, slots, opts...)
	if err != nil {
		return nil, err
	}
	tw.Start()
	return &TimingWheel{tw: tw, execute: execute}, nil
}

func (w *TimingWheel) SetTimer(key, value any, delay time.Duration) error {
	if key == nil {
		return ErrArgument
	}
	name := fmt.Sprintf("%T %v", key, key)
	w.entries.Store(name, entry{key, value})
	return translate(w.tw.SetTask(&timewheel.Task{
		Key: name, Interval: delay, Job: func(*timewheel.Task) { w.execute(key, value) },
	}))
}

func (w *TimingWheel) MoveTimer(key any, delay time.Duration) error {
	return translate(w.tw.Reschedule(fmt.Sprintf("%T %v", key, key), delay))
}

func (w *TimingWheel) RemoveTimer(key any) error {
	return translate(w.tw.RemoveTask(fmt.Sprintf("%T %v", key, key)))
}

func (w *TimingWheel) Drain(fn func(key, value any)) error {
	_, err := w.tw.Drain(func(task *timewheel.Task) {
		e, _ := w.entries.Load(task.Key)
		fn(e.(entry).key, e.(entry).value)
	})
	return translate(err)
}

func (w *TimingWheel) Stop() { w.tw.Stop() }

// translate returns the corresponding error of that library. A missing key is not an error there.
func translate(err error) error {
	switch {
	case errors.Is(err, timewheel.ErrStopped):
		return ErrClosed
	case errors.Is(err, timewheel.ErrInvalidTask):
		return ErrArgument
	default:
		return nil
	}
}
