// SPDX-License-Identifier: MIT

// Package timewheeltest provides helpers for testing programs that use package timewheel. They are for a
// testing/synctest bubble, where time stands still while any goroutine runs. A test that spans half an hour takes
// microseconds, with the same outcome every time. The wheel must also be created and stopped inside the bubble.
//
// [Advance] works with every scheduler in this module: a wheel, a durable scheduler with its own engine in
// memory, or several nodes that share one (durable/engine/memory). The other functions operate on a wheel that has been
// started. The All method of a durable scheduler lists its tasks in due order, with parked and paused tasks
// last. To run the due tasks of a durable scheduler, call Advance with its tick, which is 1 ms by default; see
// durable.WithTick. A task added on another node may take 100 ms longer. A simulated day takes about half a second with
// an own engine, and more than ten seconds with a shared one, which each node asks ten times a second.
package timewheeltest

import (
	"cmp"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// Advance lets d pass in the bubble. When it returns, every run that has begun either has ended or is blocked. A run
// that is due in the last tick of d may not have begun; see [RunDue]. Data that a run writes and the test reads must be
// synchronized as usual, or the race detector reports a race.
func Advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// RunDue runs all due tasks. One tick of the wheel passes. If the wheel is not running, nothing runs.
func RunDue(tw *timewheel.TimeWheel) { Advance(tw.Hand().Tick) }

// RunNext lets time pass until the first task of [Next] is due, and runs all tasks that are due then. It returns the
// first task as it was before its run. It returns false if there is no such task or the wheel is not running.
func RunNext(tw *timewheel.TimeWheel) (timewheel.Info, bool) {
	next := Next(tw)
	if len(next) == 0 || !tw.IsRunning() {
		return timewheel.Info{}, false
	}
	Advance(time.Until(next[0].Next))
	RunDue(tw)
	return next[0], true
}

// Next returns the live tasks that are not paused, ordered by due time and then by key. It omits timers, which have no
// key.
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
