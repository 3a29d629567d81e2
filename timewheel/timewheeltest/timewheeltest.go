// SPDX-License-Identifier: MIT

// Package timewheeltest helps to test programs that use package timewheel. It is for tests inside a testing/synctest
// bubble, where time stands still while anything is running. So a test of half an hour takes microseconds and has the
// same outcome each time. The wheel must be made and stopped inside the bubble, too.
//
// [Advance] serves any scheduler of this module: a wheel, a durable scheduler on a store in memory (durable/memstore),
// or several nodes of a cluster (durable/memengine). The other functions are for a wheel, which must have been started.
// A durable scheduler lists its tasks in due order itself, with All: those that are parked or paused are last. What is
// due on it by now has run after Advance of its tick, which is 10 ms unless durable.WithTick was given. A task that was
// added on another node may take 100 ms more. A day passes in milliseconds on a store, and in seconds on a node, which
// asks its engine ten times a second.
package timewheeltest

import (
	"cmp"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// Advance lets d pass in the bubble. When it returns, every run that has begun has ended, or is blocked. A run that is
// due in the last tick of d may not have begun; see [RunDue]. Data that a run writes and the test reads must be guarded
// as usual, or the race detector complains.
func Advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// RunDue runs everything that is due by now. One tick of the wheel passes. If the wheel is not running, nothing runs.
func RunDue(tw *timewheel.TimeWheel) { Advance(tw.Hand().Tick) }

// RunNext lets time pass until the first task of [Next] is due, and runs everything that is due then. It returns that
// task as it was before. It returns false if there is no such task or the wheel is not running.
func RunNext(tw *timewheel.TimeWheel) (timewheel.Info, bool) {
	next := Next(tw)
	if len(next) == 0 || !tw.IsRunning() {
		return timewheel.Info{}, false
	}
	Advance(time.Until(next[0].Next))
	RunDue(tw)
	return next[0], true
}

// Next returns the live tasks that are not paused, in the order of their due times, and of their keys if these are
// equal. It leaves out timers, which have no key.
func Next(tw *timewheel.TimeWheel) []timewheel.Info {
	var next []timewheel.Info
	for info := range tw.All() {
		if !info.Paused {
			next = append(next, info)
		}
	}
	slices.SortFunc(next, func(a, b timewheel.Info) int {
		return cmp.Or(a.Next.Compare(b.Next), strings.Compare(a.Key, b.Key))
	})
	return next
}
