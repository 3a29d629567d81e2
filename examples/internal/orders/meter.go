// SPDX-License-Identifier: MIT

package orders

import (
	"runtime"
	"runtime/metrics"
	"time"
)

const (
	reading  = 20 * time.Millisecond // time between two readings of a meter
	pastPeak = 0.98                  // a peak is past when fewer than this part of it are live
	farBelow = 0.95                  // a heap measured at less than this part of the peak says too little
)

// A meter reads now and then how many tasks are live and how much memory there is, off the path of the
// orders.
//
// What is live in the heap is known only as a collection of garbage ends. So the meter asks for one when a
// peak is past; that is once in a sale, and seldom more often in other input, since the next peak must be
// higher. What is allocated during the collection counts as live, and what ends during it does not count as a
// task: the figure is never better than the truth.
type meter struct {
	live  func() int   // how many tasks are live
	added func() int64 // how many were added

	samples []metrics.Sample
	base    uint64    // live in the heap before there were tasks
	second  time.Time // when the second that is being counted began, and
	before  int64     // how many tasks had been added then
	figures measures
}

// A measures is what a meter found.
type measures struct {
	peak       int     // the most tasks that were live at once
	busiest    float64 // the most tasks that were added in a second, or 0 if it was over before
	goroutines int     // the most goroutines there were
	heap       uint64  // bytes of heap that the tasks and all that belongs to them took when
	heapTasks  int     // this number of tasks was live
}

// perTask returns the bytes of heap for each live task, or false if there were too few to tell.
func (m measures) perTask() (uint64, bool) {
	if m.heapTasks < 1000 {
		return 0, false
	}
	return m.heap / uint64(m.heapTasks), true
}

func newMeter(live func() int, added func() int64) *meter {
	m := &meter{live: live, added: added, samples: []metrics.Sample{
		{Name: "/sched/goroutines:goroutines"},
		{Name: "/gc/heap/live:bytes"},
	}}
	m.base = m.heap()
	return m
}

// run reads until stop is closed.
func (m *meter) run(stop <-chan struct{}) {
	ticker := time.NewTicker(reading)
	defer ticker.Stop()
	m.second, m.before = time.Now(), m.added()
	for {
		select {
		case <-stop:
			m.measureHeap(m.live()) // if the peak was not past: of tasks that are left
			return
		case <-ticker.C:
			m.read(time.Now())
		}
	}
}

func (m *meter) read(now time.Time) {
	f := &m.figures
	if d := now.Sub(m.second); d >= time.Second {
		added := m.added()
		f.busiest = max(f.busiest, float64(added-m.before)/d.Seconds())
		m.second, m.before = now, added
	}
	metrics.Read(m.samples)
	f.goroutines = max(f.goroutines, int(m.samples[0].Value.Uint64()))
	live := m.live()
	f.peak = max(f.peak, live)
	if float64(live) < pastPeak*float64(f.peak) {
		m.measureHeap(live)
	}
}

// measureHeap measures the heap, unless it was measured with more live tasks, or about as many as there can
// be.
func (m *meter) measureHeap(live int) {
	f := &m.figures
	if live <= f.heapTasks || float64(f.heapTasks) >= farBelow*float64(f.peak) {
		return
	}
	heap := m.heap()
	f.heap, f.heapTasks = heap-min(m.base, heap), min(live, m.live())
}

// heap returns what is live in the heap, after a collection.
func (m *meter) heap() uint64 {
	runtime.GC()
	metrics.Read(m.samples)
	return m.samples[1].Value.Uint64()
}
