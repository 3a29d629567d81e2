// SPDX-License-Identifier: MIT

package test

import (
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

// This is the right-hand column of MIGRATING.md, word for word and section by section, and it behaves as described.
var migrating = map[string]func(t *testing.T){
	"the classic ants + concurrent-map wheel": migrateClassic,
	"RussellLuo/timingwheel":                  migrateRussellLuo,
	"ouqiang/timewheel":                       migrateOuqiang,
	"rfyiamcool/go-timewheel":                 migrateRfyiamcool,
	"antlabs/timer":                           migrateAntlabs,
	"go-zero's TimingWheel":                   migrateGoZero,
	"time.AfterFunc with a map":               migrateAfterFunc,
}

// elsewhere lists the sections that are tested in the packages that they describe.
var elsewhere = map[string]bool{
	"go-zero's Cache": true, "River": true, "gocron": true, "a table that is polled with SKIP LOCKED": true, "a delayed queue in Redis": true,
}

func TestMigrating_rightHandColumn_compilesAndRuns(t *testing.T) {
	text, err := os.ReadFile("../MIGRATING.md")
	must(t, err)
	sections := strings.Split(string(text), "\n## From ")[1:]
	for _, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		run := migrating[title]
		if run == nil {
			if !elsewhere[title] {
				t.Errorf("section %q is not tested", title)
			}
			continue
		}
		t.Run(title, func(t *testing.T) {
			testkit.Migrating(t, "..", title, 5)
			inBubble(t, run)
		})
	}
}

func migrateClassic(t *testing.T) {
	var runs atomic.Int64
	job := func(*timewheel.Task) { runs.Add(1) }
	tw, err := timewheel.New(10*time.Millisecond, 1024)
	must(t, err)
	tw.Start()
	err = tw.AddTask(&timewheel.Task{Key: "k", Interval: time.Second, Times: 3, Job: job})
	must(t, err)
	err = tw.AddTask(&timewheel.Task{Key: "f", Interval: time.Second, Times: timewheel.Forever, Job: job})
	must(t, err)
	testkit.Settle(time.Second + 10*ms)
	ok := tw.Exist("k")
	left := tw.GetTaskTimes("k")
	if runs.Load() != 2 || !ok || left != 2 {
		t.Errorf("after a second: %d runs; Exist %v, %d left", runs.Load(), ok, left)
	}
	err = tw.RemoveTask("k")
	must(t, err)
	err = tw.Reschedule("f", time.Minute)
	must(t, err)
	testkit.Settle(time.Minute - ms)
	if runs.Load() != 2 {
		t.Errorf("%d runs of what was removed and what was moved", runs.Load()-2)
	}
	testkit.Settle(20 * ms)
	if runs.Load() != 3 {
		t.Errorf("%d runs after a minute, want 1", runs.Load()-2)
	}
	tw.Stop()
	testkit.Settle(time.Hour)
	if runs.Load() != 3 {
		t.Errorf("%d runs after Stop", runs.Load()-3)
	}
}

func migrateRussellLuo(t *testing.T) {
	var runs atomic.Int64
	job := func(*timewheel.Task) { runs.Add(1) }
	tw, err := timewheel.New(time.Millisecond, 20)
	must(t, err)
	tw.Stop()
	tw, err = timewheel.New(time.Millisecond, 20, timewheel.WithLayout(timewheel.Hierarchical))
	must(t, err)
	defer tw.Stop()
	tw.Start()
	timer := tw.AfterFunc(time.Second, func() { runs.Add(1) })
	stopped := timer.Stop()
	active := timer.Reset(time.Second)
	if !stopped || active {
		t.Errorf("Stop returns %v, and Reset after it %v", stopped, active)
	}
	err = tw.AddTask(&timewheel.Task{Key: "k", Interval: time.Second, Times: timewheel.Forever, Job: job})
	must(t, err)
	testkit.Settle(2*time.Second + ms)
	err = tw.RemoveTask("k")
	must(t, err)
	testkit.Settle(time.Minute)
	if runs.Load() != 3 {
		t.Errorf("%d runs, want one of the timer and two of the task", runs.Load())
	}
}

func migrateOuqiang(t *testing.T) {
	const data = 7
	var got atomic.Int64
	job := func(data int) { got.Add(int64(data)) }
	tw, err := timewheel.New(time.Second, 3600)
	must(t, err)
	err = tw.AddTask(&timewheel.Task{Key: "early", Delay: time.Second, Job: nothing}) // which waits forever there
	must(t, err)
	tw.Start()
	err = tw.AddTask(&timewheel.Task{Key: "k", Delay: 5 * time.Second, Job: func(*timewheel.Task) { job(data) }})
	must(t, err)
	err = tw.AddTask(&timewheel.Task{Key: "k", Delay: 5 * time.Second, Job: nothing})
	if !errors.Is(err, timewheel.ErrDuplicateTaskKey) {
		t.Errorf("a second task of a key: %v", err)
	}
	err = tw.SetTask(&timewheel.Task{Key: "k", Delay: 5 * time.Second, Job: func(*timewheel.Task) { job(data) }})
	must(t, err)
	testkit.Settle(5*time.Second - ms)
	if got.Load() != 0 {
		t.Error("it ran too early")
	}
	testkit.Settle(time.Second)
	if got.Load() != data {
		t.Errorf("the job got %d", got.Load())
	}
	err = tw.SetTask(&timewheel.Task{Key: "k", Delay: 5 * time.Second, Job: func(*timewheel.Task) { job(data) }})
	must(t, err)
	err = tw.RemoveTask("k")
	must(t, err)
	testkit.Settle(time.Minute)
	if got.Load() != data {
		t.Error("what was removed ran")
	}
	tw.Stop()
}

func migrateRfyiamcool(t *testing.T) {
	var runs atomic.Int64
	job := func(*timewheel.Task) { runs.Add(1) }
	c := make(chan time.Time, 1)
	tw, err := timewheel.New(10*time.Millisecond, 1024)
	must(t, err)
	tw.Start()
	err = tw.AddTask(&timewheel.Task{Key: "k", Delay: time.Second, Job: job})
	must(t, err)
	err = tw.AddTask(&timewheel.Task{Key: "f", Interval: time.Second, Times: timewheel.Forever, Job: job})
	must(t, err)
	err = tw.RemoveTask("k")
	must(t, err)
	timer := tw.AfterFunc(time.Second, func() { runs.Add(1) })
	active := timer.Reset(2 * time.Second)
	tw.AfterFunc(time.Second, func() { c <- time.Now() })
	testkit.Settle(time.Second + 10*ms)
	if len(c) != 1 || runs.Load() != 1 || !active {
		t.Errorf("after a second: %d from the channel, %d runs; Reset returns %v", len(c), runs.Load(), active)
	}
	stopped := timer.Stop()
	testkit.Settle(time.Second)
	if runs.Load() != 2 || !stopped {
		t.Errorf("after two: %d runs; Stop returns %v", runs.Load(), stopped)
	}
	tw.Stop()
	tw.Stop() // which waits forever there
}

func migrateAntlabs(t *testing.T) {
	var runs atomic.Int64
	job := func(*timewheel.Task) { runs.Add(1) }
	tw, err := timewheel.New(10*time.Millisecond, 1024)
	must(t, err)
	tw.Start()
	timer := tw.AfterFunc(time.Second, func() { runs.Add(1) })
	stopped := timer.Stop()
	active := timer.Reset(time.Second)
	if !stopped || active {
		t.Errorf("Stop returns %v, and Reset after it %v", stopped, active)
	}
	err = tw.AddTask(&timewheel.Task{Key: "k", Interval: time.Second, Times: timewheel.Forever, Job: job})
	must(t, err)
	testkit.Settle(2*time.Second + 10*ms)
	if runs.Load() != 3 {
		t.Errorf("%d runs, want one of the timer and two of the task", runs.Load())
	}
	err = tw.RemoveTask("k")
	must(t, err)
	testkit.Settle(time.Minute)
	if runs.Load() != 3 {
		t.Error("what was removed ran")
	}
	tw.Stop()
}

func migrateGoZero(t *testing.T) {
	const value = 7
	var mu sync.Mutex
	var got []any
	execute := func(key string, value any) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, key, value)
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(got)
	}
	tw, err := timewheel.New(time.Second, 300)
	must(t, err)
	tw.Start()
	err = tw.SetTask(&timewheel.Task{Key: "k", Interval: time.Minute, Job: func(task *timewheel.Task) { execute(task.Key, value) }})
	must(t, err)
	err = tw.Reschedule("k", 2*time.Minute)
	must(t, err)
	testkit.Settle(2*time.Minute - ms)
	if count() != 0 {
		t.Error("it ran too early")
	}
	testkit.Settle(time.Second)
	if count() != 2 || got[0] != "k" || got[1] != value {
		t.Errorf("execute got %v", got)
	}
	for range 2 {
		err = tw.SetTask(&timewheel.Task{Key: "k", Interval: time.Minute, Job: func(task *timewheel.Task) { execute(task.Key, value) }})
		must(t, err)
	}
	n, err := tw.Drain(func(task *timewheel.Task) { task.Job(task) })
	must(t, err)
	if n != 1 || count() != 4 {
		t.Errorf("Drain took out %d, and execute got %v", n, got)
	}
	err = tw.SetTask(&timewheel.Task{Key: "k", Interval: time.Minute, Job: nothing})
	must(t, err)
	err = tw.RemoveTask("k")
	must(t, err)
	err = tw.SetTask(&timewheel.Task{Key: "k", Interval: time.Minute, Job: nothing})
	must(t, err)
	tw.Stop()
	tw.Stop() // which panics there
	set := tw.SetTask(&timewheel.Task{Key: "k", Interval: time.Minute, Job: nothing})
	moved := tw.Reschedule("k", time.Minute)
	if !errors.Is(set, timewheel.ErrStopped) || !errors.Is(moved, timewheel.ErrStopped) {
		t.Errorf("after Stop SetTask returns %v and Reschedule %v", set, moved)
	}
	if err := tw.RemoveTask("k"); err != nil || tw.Len() != 0 {
		t.Errorf("after Stop RemoveTask returns %v, and %d tasks are left", err, tw.Len())
	}
}

func migrateAfterFunc(t *testing.T) {
	var runs atomic.Int64
	job := func(*timewheel.Task) { runs.Add(1) }
	tw := newWheel(t, 10*ms, 64)
	tw.Start()
	defer tw.Stop()
	var err error
	err = tw.AddTask(&timewheel.Task{Key: "k", Interval: time.Minute, Job: job})
	must(t, err)
	err = tw.SetTask(&timewheel.Task{Key: "k", Interval: time.Minute, Job: job})
	must(t, err)
	err = tw.Reschedule("k", 2*time.Minute)
	must(t, err)
	timer := tw.AfterFunc(time.Minute, func() { runs.Add(1) })
	ok := tw.Exist("k")
	n := tw.Len()
	if !ok || n != 2 || !timer.Reset(time.Minute) {
		t.Errorf("Exist returns %v, Len %d", ok, n)
	}
	testkit.Settle(90 * time.Second)
	if runs.Load() != 1 {
		t.Errorf("%d runs, want one of the timer", runs.Load())
	}
	err = tw.RemoveTask("k")
	must(t, err)
	testkit.Settle(time.Hour)
	if runs.Load() != 1 {
		t.Errorf("what was removed ran %d times", runs.Load()-1)
	}
}
