// SPDX-License-Identifier: MIT

package test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

func TestClassicUse_runsAsAlways(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var first, second atomic.Int64
		tw := timewheel.NewTimeWheel(time.Second, 60)
		tw.Start()
		err := tw.AddTask(&timewheel.Task{Key: "test1", Interval: time.Second * 5, Times: -1,
			Job: func(task *timewheel.Task) { first.Add(1) }})
		if err != nil {
			t.Fatal(err)
		}
		err = tw.AddTask(&timewheel.Task{Key: "test2", Interval: time.Second, Times: 10,
			Job: func(task *timewheel.Task) { second.Add(1) }})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if first.Load() != 6 || second.Load() != 10 {
			t.Errorf("in 30 s the tasks ran %d and %d times, want 6 and 10", first.Load(), second.Load())
		}
		tw.Stop()
	})
}
