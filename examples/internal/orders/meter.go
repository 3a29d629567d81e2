// SPDX-License-Identifier: MIT

package orders

import (
	"runtime"
	"runtime/metrics"
	"time"
)

const (
	reading  = 20 * time.Millisecond // time between two readings of a meter
	pastPeak = 0.98                  // a peak is past when less than this share of it is live
	farBelow = 0.95                  // a heap measured below this share of the peak is not representative
)

// A meter regularly reads the number of live tasks and the memory in use, without delaying the orders.
//
// The live part of the heap is known only at the end of a garbage collection. So the meter starts one when a peak is
// past. That happens once in a sale, and seldom more often in other input, because the next peak must be higher. Memory
// allocated during the collection counts as live, and a task that ends during it does not count: the figure is never
// better than the truth.
type meter struct {
	live  func() int   // number of live tasks
	added func() int64 // number of added tasks

	samples []metrics.Sample
	base    uint64    // live heap before there were tasks
	second  time.Time // when the current second began, and
	before  int64     // number of added tasks at that time
	figures measures
}

// A measures contains the results of a meter.
type measures struct {
	peak       int     // the most tasks live at once
	busiest    float64 // the most tasks added in a second, or 0 if the run was shorter
	goroutines int     // the maximal number of goroutines
	heap       uint64  // heap bytes of the tasks and everything that belongs to them when
	heapTasks  int     // this number of tasks was live
}

// perTask returns the bytes of heap per live task, or false if there were too few tasks.
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
			m.measureHeap(m.live()) // if the peak was not past: for the remaining tasks
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

// measureHeap measures the heap, unless it was already measured with more live tasks, or with nearly as many as
// possible.
func (m *meter) measureHeap(live int) {
	f := &m.figures
	if live <= f.heapTasks || float64(f.heapTasks) >= farBelow*float64(f.peak) {
		return
	}
	heap := m.heap()
	f.heap, f.heapTasks = heap-min(m.base, heap), min(live, m.live())
}

// heap returns the live bytes in the heap, after a collection.
func (m *meter) heap() uint64 {
	runtime.GC()
	metrics.Read(m.samples)
	return m.samples[1].Value.Uint64()
}
