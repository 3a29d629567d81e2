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
	// The lateness is that of the last minute: of so many parts, the last of which is not over.
	windowParts = 6
	windowPart  = 10 * time.Second

	// The histograms tell microseconds from one to a day's, to two digits: 21 of them take 0.6 MB, which
	// is allocated when the first page is opened.
	maxMicros = int64(24 * time.Hour / time.Microsecond)
	digits    = 2

	// What is kept of panics.
	keepPanics   = 10
	maxValueText = 1 << 10
	maxStack     = 16 << 10
)

// A Recorder takes down how late the runs of one wheel are, while a page is open, and its last panics. It is
// for [WithRecorder]; its methods may be called by any goroutine.
type Recorder struct {
	watchers atomic.Int32 // pages that are open

	mu              sync.Mutex // protects all below
	tick, wait, job *hdr.WindowedHistogram
	part            time.Time // when the present part of the window began
	panics          []panicJSON
	panicked        int // how many there were ever
}

// NewRecorder returns a recorder with nothing in it.
func NewRecorder() *Recorder { return new(Recorder) }

// Observe takes the account of a run. It is for [timewheel.WithObserver], by itself or called by an observer
// of yours.
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
	_ = w.Current.RecordValue(min(max(d.Microseconds(), 0), maxMicros)) // the error is for what is out of range
}

// Panicked takes a panic of a job. It is for [timewheel.WithPanicHandler], by itself or called by a handler
// of yours. The last ten are kept, with a text of the value and the stack.
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
		if n == windowParts { // nobody looked for long
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

// lastPanics returns those that were kept, the last first, and how many there were ever.
func (r *Recorder) lastPanics() ([]panicJSON, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]panicJSON{}, r.panics...), r.panicked
}
