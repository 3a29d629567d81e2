// SPDX-License-Identifier: MIT

package test

import (
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// The right-hand column of MIGRATING.md is here word for word, section by section, and does what it says.
// What the cache has in place of it is tested beside the cache.
var migrating = map[string]func(t *testing.T){
	"the classic ants + concurrent-map wheel": migrateClassic,
	"RussellLuo/timingwheel":                  migrateRussellLuo,
	"go-zero's TimingWheel":                   migrateGoZero,
	"time.AfterFunc with a map":               migrateAfterFunc,
}

func TestMigrating_rightHandColumn_compilesAndRuns(t *testing.T) {
	source, err := os.ReadFile("migrating_test.go")
	must(t, err)
	text, err := os.ReadFile("../MIGRATING.md")
	must(t, err)
	sections := strings.Split(string(text), "\n## From ")[1:]
	for _, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		run := migrating[title]
		if run == nil {
			if title != "go-zero's Cache" {
				t.Errorf("section %q is not tested", title)
			}
			continue
		}
		t.Run(title, func(t *testing.T) {
			rows := regexp.MustCompile("(?m)^\\| .* \\| `(.*)` \\|$").FindAllStringSubmatch(section, -1)
			if len(rows) < 5 {
				t.Errorf("the table has %d rows", len(rows))
			}
			for _, row := range rows {
				if !strings.Contains(string(source), "\t"+row[1]+"\n") {
					t.Errorf("not compiled: %s", row[1])
				}
			}
			synctest.Test(t, run)
		})
	}
}

func migrateClassic(t *testing.T) {
	var runs atomic.Int64
	job := func(*timewheel.Task) { runs.Add(1) }
	tw, err := timewheel.New(10*time.Millisecond, 1024)
	must(t, err)
	defer tw.Stop()
	tw.Start()
	err = tw.AddTask(&timewheel.Task{Key: "k", Interval: time.Second, Times: 3, Job: job})
	must(t, err)
	err = tw.AddTask(&timewheel.Task{Key: "f", Interval: time.Second, Times: timewheel.Forever, Job: job})
	must(t, err)
	settle(time.Second + 10*ms)
	ok := tw.Exist("k")
	left := tw.GetTaskTimes("k")
	if runs.Load() != 2 || !ok || left != 2 {
		t.Errorf("after a second: %d runs; Exist %v, %d left", runs.Load(), ok, left)
	}
	err = tw.RemoveTask("k")
	must(t, err)
	err = tw.Reschedule("f", time.Minute)
	must(t, err)
	settle(time.Minute - ms)
	if runs.Load() != 2 {
		t.Errorf("%d runs of what was removed and what was moved", runs.Load()-2)
	}
	settle(20 * ms)
	if runs.Load() != 3 {
		t.Errorf("%d runs after a minute, want 1", runs.Load()-2)
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
	settle(2*time.Second + ms)
	err = tw.RemoveTask("k")
	must(t, err)
	settle(time.Minute)
	if runs.Load() != 3 {
		t.Errorf("%d runs, want one of the timer and two of the task", runs.Load())
	}
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
	settle(2*time.Minute - ms)
	if count() != 0 {
		t.Error("it ran too early")
	}
	settle(time.Second)
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
	tw.Stop()
	if tw.Len() != 0 {
		t.Error("a task is left")
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
	settle(90 * time.Second)
	if runs.Load() != 1 {
		t.Errorf("%d runs, want one of the timer", runs.Load())
	}
	err = tw.RemoveTask("k")
	must(t, err)
	settle(time.Hour)
	if runs.Load() != 1 {
		t.Errorf("what was removed ran %d times", runs.Load()-1)
	}
}
