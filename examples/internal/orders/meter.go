// SPDX-License-Identifier: MIT

package orders

import (
	"runtime"
	"runtime/metrics"
	"time"
)

const (
	reading  = 20 * time.Millisecond // interval between two readings of a meter
	pastPeak = 0.98                  // a peak is past when less than this share of its tasks is live
	farBelow = 0.95                  // a heap measurement at less than this share of the peak is not representative
)

// A meter reads the number of live tasks and the memory in use at regular intervals, without delaying the orders.
//
// The size of the live heap is known only at the end of a garbage collection, so the meter starts a collection when a
// peak is past. This happens once in a generated sale. It seldom happens more often with other input, because the next
// peak must be higher. Memory allocated during the collection counts as live, but a task that ends during it does not,
// so the figure is never better than the true value.
type meter struct {
	live  func() int   // returns the number of live tasks
	added func() int64 // returns the number of added tasks

	samples []metrics.Sample
	base    uint64    // live heap in bytes before there were tasks
	second  time.Time // when the current second began
	before  int64     // number of tasks added before the current second
	figures measures
}

// A measures holds the results of a meter.
type measures struct {
	peak       int     // maximum number of live tasks
	busiest    float64 // maximum number of tasks added in a second; 0 if the run was shorter than a second
	goroutines int     // maximum number of goroutines
	heap       uint64  // heap bytes of the tasks and of everything that belongs to them
	heapTasks  int     // number of live tasks when heap was measured
}

// perTask returns the heap bytes per live task, or false if there were too few tasks.
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

// run takes readings until stop is closed.
func (m *meter) run(stop <-chan struct{}) {
	ticker := time.NewTicker(reading)
	defer ticker.Stop()
	m.second, m.before = time.Now(), m.added()
	for {
		select {
		case <-stop:
			m.measureHeap(m.live()) // measure with the remaining tasks if the peak was not past
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

// measureHeap measures the heap, unless an earlier measurement had at least as many live tasks, or almost as many as
// the peak.
func (m *meter) measureHeap(live int) {
	f := &m.figures
	if live <= f.heapTasks || float64(f.heapTasks) >= farBelow*float64(f.peak) {
		return
	}
	heap := m.heap()
	f.heap, f.heapTasks = heap-min(m.base, heap), min(live, m.live())
}

// heap runs a garbage collection and returns the number of live bytes in the heap.
func (m *meter) heap() uint64 {
	runtime.GC()
	metrics.Read(m.samples)
	return m.samples[1].Value.Uint64()
}
