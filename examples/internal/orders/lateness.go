// SPDX-License-Identifier: MIT

package orders

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A lateness collects how long after its due time each run began, in real time.
type lateness struct {
	mu    sync.Mutex // protects all below
	hist  *hdrhistogram.Histogram
	early int64 // runs that began before their due time, which must not happen
}

// newLateness returns a lateness with a resolution of one microsecond, or of three digits above a millisecond.
func newLateness() *lateness {
	return &lateness{hist: hdrhistogram.New(1, time.Hour.Microseconds(), 3)}
}

// observe is the wheel's observer. The workers call it.
func (l *lateness) observe(run timewheel.Run) {
	late := run.Started.Sub(run.Due)
	l.mu.Lock()
	defer l.mu.Unlock()
	if late < 0 {
		l.early++
	}
	late = min(max(late, 0), time.Hour)
	// A part of a microsecond counts as a whole one: a figure is never better than the truth.
	_ = l.hist.RecordValue((late + time.Microsecond - 1).Microseconds())
}

// A spread is the distribution of the lateness of the runs.
type spread struct {
	runs, early   int64
	p50, p99, max time.Duration
	bands         []band
}

// A band contains the runs that were late by at most upTo and by more than the upTo of the previous band.
type band struct {
	upTo time.Duration
	runs int64
}

// spread returns the distribution, in bands of the steps 1, 2, 5 from the first to the last non-empty one.
func (l *lateness) spread() spread {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := func(percent float64) time.Duration {
		return time.Duration(l.hist.ValueAtQuantile(percent)) * time.Microsecond
	}
	s := spread{
		runs: l.hist.TotalCount(), early: l.early,
		p50: at(50), p99: at(99), max: time.Duration(l.hist.Max()) * time.Microsecond,
	}
	upTo, step := 10*time.Microsecond, 0
	var b band
	for _, bar := range l.hist.Distribution() {
		if bar.Count == 0 {
			continue
		}
		for time.Duration(bar.From)*time.Microsecond > upTo {
			if b.runs > 0 || len(s.bands) > 0 {
				s.bands = append(s.bands, band{upTo, b.runs})
			}
			b.runs = 0
			upTo, step = nextStep(upTo, step)
		}
		b.runs += bar.Count
	}
	if b.runs > 0 {
		s.bands = append(s.bands, band{upTo, b.runs})
	}
	return s
}

// nextStep advances from 1 to 2 to 5 to 10.
func nextStep(upTo time.Duration, step int) (time.Duration, int) {
	if step == 1 {
		return upTo * 5 / 2, 2
	}
	return upTo * 2, (step + 1) % 3
}
