// SPDX-License-Identifier: MIT

package orders

import (
	"runtime"
	"testing"
	"time"
)

func TestMeter_heapPerTask_isMeasuredWhenThePeakIsPast(t *testing.T) {
	const tasks, bytes = 20_000, 1024
	var live int
	m := newMeter(func() int { return live }, func() int64 { return int64(live) })
	if _, ok := m.figures.perTask(); ok {
		t.Error("there is a figure without a task")
	}
	kept := make([][]byte, 0, tasks)
	for range tasks {
		kept = append(kept, make([]byte, bytes))
	}
	live = tasks
	m.read(time.Now())
	if m.figures.heapTasks > 0 {
		t.Error("the heap was measured before the peak was past")
	}
	live = tasks * 97 / 100
	m.read(time.Now())
	measured := m.figures
	live = tasks * 96 / 100
	m.read(time.Now())
	if m.figures != measured {
		t.Errorf("got %+v, and then %+v at the same peak", measured, m.figures)
	}
	runtime.KeepAlive(kept)
	got, ok := measured.perTask()
	if !ok || got < bytes || got > bytes*3/2 {
		t.Errorf("got %d bytes for each task, %v, want about %d", got, ok, bytes)
	}
	if measured.peak != tasks || measured.heapTasks != tasks*97/100 || measured.goroutines == 0 {
		t.Errorf("got %+v", measured)
	}
}
