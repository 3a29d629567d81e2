// SPDX-License-Identifier: MIT

// Package timer has the API of github.com/antlabs/timer.
package timer

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

type Timer interface {
	AfterFunc(expire time.Duration, callback func()) TimeNoder
	ScheduleFunc(expire time.Duration, callback func()) TimeNoder
	CustomFunc(n Next, callback func()) TimeNoder
	Run()
	Stop()
}

type TimeNoder interface {
	Stop() bool
	Reset(expire time.Duration) bool
}

type Next interface{ Next(time.Time) time.Time }

type Option func()

func WithTimeWheel() Option { return nil }
func WithMinHeap() Option   { return nil }

type wheel struct {
	*timewheel.TimeWheel
	keys    atomic.Int64
	stopped chan struct{}
}

// NewTimer uses a tick that is finer than the precision of the heap's tests.
func NewTimer(...Option) Timer {
	return &wheel{TimeWheel: timewheel.NewTimeWheel(100*time.Microsecond, 1024), stopped: make(chan struct{})}
}

func (w *wheel) Run() {
	w.Start()
	<-w.stopped
}

func (w *wheel) Stop() {
	w.TimeWheel.Stop()
	close(w.stopped)
}

func (w *wheel) AfterFunc(d time.Duration, f func()) TimeNoder { return w.TimeWheel.AfterFunc(d, f) }

func (w *wheel) ScheduleFunc(d time.Duration, f func()) TimeNoder {
	n := node{w, strconv.FormatInt(w.keys.Add(1), 10)}
	_ = w.AddTask(&timewheel.Task{
		Key: n.key, Interval: d, Times: timewheel.Forever, Job: func(*timewheel.Task) { f() },
	})
	return n
}

// CustomFunc sets the timer for the next run, and then calls f.
func (w *wheel) CustomFunc(n Next, f func()) TimeNoder {
	var timer *timewheel.Timer
	made := make(chan struct{})
	timer = w.TimeWheel.AfterFunc(time.Until(n.Next(time.Now())), func() {
		<-made
		timer.Reset(time.Until(n.Next(time.Now())))
		f()
	})
	close(made)
	return timer
}

// A node is a repeating task.
type node struct {
	w   *wheel
	key string
}

func (n node) Stop() bool                 { return n.w.RemoveTask(n.key) == nil }
func (n node) Reset(d time.Duration) bool { return n.w.Reschedule(n.key, d) == nil }
