// SPDX-License-Identifier: MIT

package timewheeltest_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
	"github.com/seed581295f1/timewheel/timewheel/timewheeltest"
)

func TestExample(t *testing.T) { testOrder(t) }

func TestRunNext_runsTheTasksInTheOrderOfNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timewheel.NewTimeWheel(10*time.Millisecond, 60)
		tw.Start()
		defer tw.Stop()
		began := time.Now()
		var ran atomic.Int32
		job := func(*timewheel.Task) { ran.Add(1) }
		for key, delay := range map[string]time.Duration{
			"c": 3 * time.Hour, "a": time.Hour, "b": time.Hour, "paused": time.Minute, "far": 1000 * time.Hour,
		} {
			if err := tw.AddTask(&timewheel.Task{Key: key, Delay: delay, Job: job}); err != nil {
				t.Fatal(err)
			}
		}
		if err := tw.Pause("paused"); err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, info := range timewheeltest.Next(tw) {
			keys = append(keys, info.Key)
		}
		if want := []string{"a", "b", "c", "far"}; !slices.Equal(keys, want) {
			t.Errorf("Next is %q, want %q", keys, want)
		}
		for _, want := range []struct {
			key string
			ran int32
			at  time.Duration
		}{{"a", 2, time.Hour}, {"c", 3, 3 * time.Hour}, {"far", 4, 1000 * time.Hour}} {
			info, ok := timewheeltest.RunNext(tw)
			at := time.Since(began) - 10*time.Millisecond // a tick
			if !ok || info.Key != want.key || ran.Load() != want.ran || at != want.at {
				t.Errorf("RunNext is %+v, %v, after %v %d have run, want %+v", info, ok, at, ran.Load(), want)
			}
		}
		if info, ok := timewheeltest.RunNext(tw); ok {
			t.Errorf("RunNext of a wheel with a paused task is %+v", info)
		}
	})
}

func TestNext_tasksThatAreDueTogether_areInTheOrderOfTheirKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timewheel.NewTimeWheel(10*time.Millisecond, 60)
		defer tw.Stop()
		var want, keys []string
		for key := 'a'; key <= 'z'; key++ {
			want = append(want, string(key))
			task := &timewheel.Task{Key: string(key), Delay: time.Hour, Job: func(*timewheel.Task) {}}
			if err := tw.AddTask(task); err != nil {
				t.Fatal(err)
			}
		}
		for _, info := range timewheeltest.Next(tw) {
			keys = append(keys, info.Key)
		}
		if !slices.Equal(keys, want) {
			t.Errorf("Next is %q, want %q", keys, want)
		}
	})
}

// A loop over RunNext ends even if nothing will ever run.
func TestRunNext_onAWheelThatIsNotRunning_saysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timewheel.NewTimeWheel(10*time.Millisecond, 60)
		defer tw.Stop()
		job := func(*timewheel.Task) { t.Error("it runs") }
		if err := tw.AddTask(&timewheel.Task{Key: "k", Delay: time.Hour, Job: job}); err != nil {
			t.Fatal(err)
		}
		for _, turn := range []func(){func() {}, func() { tw.Start(); tw.Stop() }} {
			turn()
			began := time.Now()
			if info, ok := timewheeltest.RunNext(tw); ok || time.Since(began) != 0 {
				t.Errorf("RunNext is %+v after %v", info, time.Since(began))
			}
			if len(timewheeltest.Next(tw)) != 1 {
				t.Error("Next does not list the task")
			}
		}
	})
}
