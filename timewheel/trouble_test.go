// SPDX-License-Identifier: MIT

package timewheel

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A caller that saw the loop running may change the alarm after the loop has ended.
func TestLoop_calledAsItEnds_leavesNothingInTheInboxes(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.once("k", time.Hour)
		w.Stop()
		w.loop.alarm.Store(0)
		if err := w.RemoveTask("k"); err != nil {
			t.Fatal(err)
		}
		if n := w.posted(); n != 0 {
			t.Errorf("%d entries are left in the inboxes", n)
		}
	})
}

func TestShutdown_lastRunEndsWithTheContext_isNoError(t *testing.T) {
	for range 50 { // select picks one of two ready cases at random
		plan{}.in(t, func(t *testing.T, w *rig) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			w.Start()
			if err := w.Shutdown(ctx); err != nil {
				t.Errorf("nothing ran, and Shutdown returns %v", err)
			}
		})
	}
}

func TestShutdown_nilContext_waits(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		ended := false
		w.add(&Task{Key: "k", Interval: 1, Job: func(*Task) {
			time.Sleep(time.Hour)
			ended = true
		}})
		w.Start()
		w.advance(time.Second)
		var none context.Context
		if err := w.Shutdown(none); err != nil || !ended {
			t.Errorf("Shutdown returns %v; the run has ended: %v", err, ended)
		}
	})
}

// fickle is an executor whose Submit ends its goroutine a few times before it works.
type fickle struct{ left int }

func (f *fickle) Submit(work func()) error {
	if f.left > 0 {
		f.left--
		runtime.Goexit()
	}
	go work()
	return nil
}

func TestExecutor_thatEndsItsCaller_isAskedAgain(t *testing.T) {
	plan{opts: []Option{WithExecutor(&fickle{left: 4})}}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.once("k", time.Second)
		w.advance(time.Second)
		w.wantRuns("k")
	})
}

func TestObserver_isToldOfARun_whosePanicHandlerEndsTheGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []Run
		tw := NewTimeWheel(time.Millisecond, 8, WithLogger(testkit.Quiet()),
			WithPanicHandler(func(*Task, any, []byte) { runtime.Goexit() }),
			WithObserver(func(r Run) { told = append(told, r) }))
		tw.Start()
		job := func(*Task) { panic(errors.New("trouble")) }
		if err := tw.AddTask(&Task{Key: "k", Interval: time.Second, Job: job}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		tw.Stop()
		synctest.Wait()
		if len(told) != 1 || !told[0].Panicked {
			t.Errorf("the observer was told of %+v", told)
		}
		if s := tw.Stats(); s.Panicked != 1 || s.Running != 0 {
			t.Errorf("after a panic %+v", s)
		}
	})
}

func TestAddTask_allocatesTheEntryAlone(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 64)
	tw.Start()
	defer tw.Stop()
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("task ", i)
	}
	task := &Task{Interval: time.Hour, Job: ignore}
	next := 0
	perRun := testing.AllocsPerRun(len(keys)-1, func() {
		task.Key = keys[next]
		next++
		if err := tw.AddTask(task); err != nil {
			t.Fatal(err)
		}
	})
	if perRun > 1 { // growing the map takes less than one allocation per run, and AllocsPerRun rounds down
		t.Errorf("AddTask allocates %v times", perRun)
	}
}
