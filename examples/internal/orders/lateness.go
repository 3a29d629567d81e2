// SPDX-License-Identifier: MIT

package orders

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A lateness collects the lateness of runs: the real time from the due time of a run until its start.
type lateness struct {
	mu    sync.Mutex // protects the fields below
	hist  *hdrhistogram.Histogram
	early int64 // number of runs that started before their due time, which must not happen
}

// newLateness returns an empty lateness. Its resolution is one microsecond up to a millisecond, and three significant
// digits above that.
func newLateness() *lateness {
	return &lateness{hist: hdrhistogram.New(1, time.Hour.Microseconds(), 3)}
}

// observe records a run. It is the wheel's observer, so the workers call it concurrently.
func (l *lateness) observe(run timewheel.Run) {
	late := run.Started.Sub(run.Due)
	l.mu.Lock()
	defer l.mu.Unlock()
	if late < 0 {
		l.early++
	}
	late = min(max(late, 0), time.Hour)
	// Round up to whole microseconds, so that no figure is better than the true value.
	_ = l.hist.RecordValue((late + time.Microsecond - 1).Microseconds())
}

// A spread is the distribution of the runs' lateness.
type spread struct {
	runs, early   int64
	p50, p99, max time.Duration
	bands         []band
}

// A band counts the runs that were late by at most upTo, and by more than the previous band's upTo.
type band struct {
	upTo time.Duration
	runs int64
}

// spread returns the distribution. Its bands grow in steps of 1, 2, 5, and range from the first to the last non-empty
// one.
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

// nextStep returns the next bound of the sequence 1, 2, 5, 10, and the next step.
func nextStep(upTo time.Duration, step int) (time.Duration, int) {
	if step == 1 {
		return upTo * 5 / 2, 2
	}
	return upTo * 2, (step + 1) % 3
}
