// SPDX-License-Identifier: MIT

// Package timingwheel has the API of github.com/RussellLuo/timingwheel.
package timingwheel

import (
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

type TimingWheel struct{ *timewheel.TimeWheel }

type Timer = timewheel.Timer

type Scheduler interface{ Next(time.Time) time.Time }

func NewTimingWheel(tick time.Duration, wheelSize int64) *TimingWheel {
	return &TimingWheel{timewheel.NewTimeWheel(tick, int(wheelSize), timewheel.WithLayout(timewheel.Hierarchical))}
}

// ScheduleFunc sets the timer for the next run, and then calls f.
func (tw *TimingWheel) ScheduleFunc(s Scheduler, f func()) *Timer {
	due := s.Next(time.Now().UTC())
	if due.IsZero() {
		return nil
	}
	var timer *Timer
	made := make(chan struct{})
	timer = tw.AfterFunc(time.Until(due), func() {
		<-made
		if due = s.Next(due); !due.IsZero() {
			timer.Reset(time.Until(due))
		}
		f()
	})
	close(made)
	return timer
}
