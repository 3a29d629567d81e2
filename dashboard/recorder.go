// SPDX-License-Identifier: MIT

package dashboard

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/seed581295f1/timewheel/timewheel"
)

const (
	// The lateness is that of the last minute: windowParts parts, the last of which is not over.
	windowParts = 6
	windowPart  = 10 * time.Second

	// The histograms count in microseconds, from one up to a day, with two digits. There are 21, which take
	// 0.6 MB, allocated when the first page is opened.
	maxMicros = int64(24 * time.Hour / time.Microsecond)
	digits    = 2

	// What is kept of panics.
	keepPanics   = 10
	maxValueText = 1 << 10
	maxStack     = 16 << 10
)

// A Recorder records how late the runs of one wheel are, while a page is open, and the wheel's last panics. It
// is for [WithRecorder]; its methods may be called by any goroutine.
type Recorder struct {
	watchers atomic.Int32 // pages that are open

	mu              sync.Mutex // protects all below
	tick, wait, job *hdr.WindowedHistogram
	part            time.Time // when the present part of the window began
	panics          []panicJSON
	panicked        int // how many there have been
}

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder { return new(Recorder) }

// Observe records the account of a run. Pass it to [timewheel.WithObserver], or call it from an observer of
// yours.
func (r *Recorder) Observe(run timewheel.Run) {
	if r.watchers.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	record(r.tick, run.Handed.Sub(run.Due))
	record(r.wait, run.Started.Sub(run.Handed))
	record(r.job, run.Ended.Sub(run.Started))
}

func record(w *hdr.WindowedHistogram, d time.Duration) {
	// The only error is that of a value out of range, and this one is in range.
	_ = w.Current.RecordValue(min(max(d.Microseconds(), 0), maxMicros))
}

// Panicked records a panic of a job. Pass it to [timewheel.WithPanicHandler], or call it from a handler of
// yours. The last ten are kept, with the value as text and the stack.
func (r *Recorder) Panicked(task *timewheel.Task, value any, stack []byte) {
	key, exact := keyText(task.Key)
	p := panicJSON{
		Time:  time.Now(),
		Key:   key,
		Exact: exact,
		Value: cut(fmt.Sprint(value), maxValueText),
		Stack: cut(string(stack[:min(len(stack), maxStack+1)]), maxStack),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.panicked++
	r.panics = slices.Insert(r.panics, 0, p)
	r.panics = r.panics[:min(len(r.panics), keepPanics)]
}

// watch notes that a page was opened.
func (r *Recorder) watch(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tick == nil {
		for _, w := range []**hdr.WindowedHistogram{&r.tick, &r.wait, &r.job} {
			*w = hdr.NewWindowed(windowParts, 1, maxMicros, digits)
		}
		r.part = now
	}
	r.watchers.Add(1)
}

// leave notes that a page was closed.
func (r *Recorder) leave() { r.watchers.Add(-1) }

// lateness returns what was recorded in the last minute, or nil if no page was opened yet.
func (r *Recorder) lateness(now time.Time) *latenessJSON {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tick == nil {
		return nil
	}
	for n := 0; now.Sub(r.part) >= windowPart; n++ {
		if n == windowParts { // no page was open for long
			r.part = now
			break
		}
		r.part = r.part.Add(windowPart)
		r.tick.Rotate()
		r.wait.Rotate()
		r.job.Rotate()
	}
	tick := r.tick.Merge()
	return &latenessJSON{
		Runs: tick.TotalCount(),
		Tick: quantilesOf(tick),
		Wait: quantilesOf(r.wait.Merge()),
		Run:  quantilesOf(r.job.Merge()),
	}
}

func quantilesOf(h *hdr.Histogram) quantilesJSON {
	s := func(micros int64) float64 { return float64(micros) / 1e6 }
	q := h.ValueAtPercentilesSlice([]float64{50, 99})
	return quantilesJSON{P50: s(q[0]), P99: s(q[1]), Max: s(h.Max())}
}

// lastPanics returns the panics that were kept, the newest first, and how many there have been.
func (r *Recorder) lastPanics() ([]panicJSON, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]panicJSON{}, r.panics...), r.panicked
}
