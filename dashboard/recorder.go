// SPDX-License-Identifier: MIT

package dashboard

import (
	"errors"
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
	// 0.6 MB, allocated at the first run.
	maxMicros = int64(24 * time.Hour / time.Microsecond)
	digits    = 2

	// What is kept of panics.
	keepPanics   = 10
	maxValueText = 1 << 10
	maxStack     = 16 << 10
)

// A Recorder records how late the runs of one wheel are, and the wheel's last ten panics. Give it to the wheel
// by [Recorder.Option], and to the handler by [Wheel]. It takes 0.8 MB at most, and some 100 ns of each run.
type Recorder struct {
	wheels atomic.Int32 // that it was given to

	mu              sync.Mutex             // protects all below
	tick, wait, job *hdr.WindowedHistogram // nil before the first run
	part            time.Time              // when the present part of the window began
	panics          []panicRecord          // the newest first
	panicCount      int                    // how many there have been
}

// A panicRecord is what is kept of a panic.
type panicRecord struct {
	time         time.Time
	key          string
	value, stack string
}

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder { return new(Recorder) }

// Option returns the option that gives the recorder to a wheel. A recorder is for one wheel: with an option of
// a recorder that another wheel has, [timewheel.New] returns an error. The wheel may have further observers and
// panic handlers.
func (r *Recorder) Option() timewheel.Option {
	return both(timewheel.WithObserver(r.observe), timewheel.WithPanicHandler(r.panicked), func() error {
		if r.wheels.Add(1) > 1 {
			return errors.New("dashboard: the recorder was given to a wheel before; make one for each wheel")
		}
		return nil
	})
}

// both returns a and b as one option, which has no effect if the check fails. C is the configuration of a
// wheel, which has no name here.
func both[C any](a, b func(*C) error, check func() error) func(*C) error {
	return func(c *C) error {
		if err := check(); err != nil {
			return err
		}
		return errors.Join(a(c), b(c))
	}
}

// observe records the account of a run.
func (r *Recorder) observe(run timewheel.Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rotateLocked(run.Ended)
	record(r.tick, run.Handed.Sub(run.Due))
	record(r.wait, run.Started.Sub(run.Handed))
	record(r.job, run.Ended.Sub(run.Started))
}

func record(w *hdr.WindowedHistogram, d time.Duration) {
	// The only error is that of a value out of range, and this one is in range.
	_ = w.Current.RecordValue(min(max(d.Microseconds(), 0), maxMicros))
}

// rotateLocked begins new parts of the window for the time that has passed.
func (r *Recorder) rotateLocked(now time.Time) {
	if r.tick == nil {
		for _, w := range []**hdr.WindowedHistogram{&r.tick, &r.wait, &r.job} {
			*w = hdr.NewWindowed(windowParts, 1, maxMicros, digits)
		}
		r.part = now
	}
	for n := 0; now.Sub(r.part) >= windowPart; n++ {
		if n == windowParts { // nothing ran for long
			r.part = now
			break
		}
		r.part = r.part.Add(windowPart)
		r.tick.Rotate()
		r.wait.Rotate()
		r.job.Rotate()
	}
}

// panicked records a panic of a job.
func (r *Recorder) panicked(task *timewheel.Task, value any, stack []byte) {
	p := panicRecord{
		time:  time.Now(),
		key:   task.Key,
		value: cut(fmt.Sprint(value), maxValueText),
		stack: cut(string(stack[:min(len(stack), maxStack+1)]), maxStack),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.panicCount++
	r.panics = slices.Insert(r.panics, 0, p)
	r.panics = r.panics[:min(len(r.panics), keepPanics)]
}

// lateness returns what was recorded in the last minute.
func (r *Recorder) lateness(now time.Time) *latenessJSON {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tick == nil {
		return &latenessJSON{}
	}
	r.rotateLocked(now)
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
	all := []panicJSON{}
	for _, p := range r.panics {
		all = append(all, panicJSON{Time: p.time, keyJSON: newKeyJSON(p.key), Value: p.value, Stack: p.stack})
	}
	return all, r.panicCount
}

// panicsOf returns the panics that were kept of one key.
func (r *Recorder) panicsOf(key string) []panicJSON {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := []panicJSON{}
	for _, p := range r.panics {
		if p.key == key {
			all = append(all, panicJSON{Time: p.time, keyJSON: newKeyJSON(p.key), Value: p.value, Stack: p.stack})
		}
	}
	return all
}

// panicTimes returns the times of the panics that were kept, the newest first.
func (r *Recorder) panicTimes() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []time.Time
	for _, p := range r.panics {
		all = append(all, p.time)
	}
	return all
}
