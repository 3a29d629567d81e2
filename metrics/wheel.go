// SPDX-License-Identifier: MIT

package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed581295f1/timewheel/timewheel"
)

// Runs holds histograms of the runs of one wheel.
type Runs struct{ tick, wait, duration prometheus.Histogram }

// buckets holds the bounds of the classic buckets, in seconds. Between 1 ms and 1 s, each bound is at most 1.5 times
// the previous one, so that a quantile close to a tick is meaningful. Outside this range the buckets are wider.
var buckets = []float64{
	100e-6, 220e-6, 470e-6,
	1e-3, 1.5e-3, 2.2e-3, 3.3e-3, 4.7e-3, 6.8e-3,
	10e-3, 15e-3, 22e-3, 33e-3, 47e-3, 68e-3,
	100e-3, 150e-3, 220e-3, 330e-3, 470e-3, 680e-3,
	1, 2.2, 4.7, 10, 22, 47, 100,
}

// NewRuns returns empty histograms.
func NewRuns() *Runs {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(histogramOf(name, help))
	}
	return &Runs{
		tick: histogram("timewheel_run_tick_delay_seconds",
			"Time from when a run was due until the event loop dispatched it: "+
				"less than a tick unless the machine was busy."),
		wait: histogram("timewheel_run_wait_seconds",
			"Time from when the event loop dispatched a run until a worker began it."),
		duration: histogram("timewheel_run_duration_seconds",
			"Time from when a job began until it returned."),
	}
}

// histogramOf returns the options for a histogram of durations, with both classic and native buckets.
func histogramOf(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name:                            name,
		Help:                            help,
		Buckets:                         buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}
}

// Option returns a wheel option that makes the wheel record its runs in r.
func (r *Runs) Option() timewheel.Option { return timewheel.WithObserver(r.Observe) }

// Observe records a run.
func (r *Runs) Observe(run timewheel.Run) {
	r.tick.Observe(run.Dispatched.Sub(run.Due).Seconds())
	r.wait.Observe(run.Started.Sub(run.Dispatched).Seconds())
	r.duration.Observe(run.Ended.Sub(run.Started).Seconds())
}

// An Option adds metrics to the collector of a wheel.
type Option func(*collector[reading])

// WithRuns adds the histograms of r and the age of the longest run in progress. The wheel must have the option of r,
// because a wheel without an observer does not record that age. WithRuns panics if r is nil.
func WithRuns(r *Runs) Option {
	if r == nil {
		panic("metrics: the runs are nil")
	}
	return func(c *collector[reading]) {
		c.histograms = []prometheus.Collector{r.tick, r.wait, r.duration}
		c.accounts = append(slices.Clip(wheelAccounts), longestRun)
		c.greatest = make([]float64, len(c.accounts))
	}
}

// NewCollector returns a collector for the statistics of a wheel. The name is the value of the label wheel. One
// registry can hold the collectors of several wheels if their names differ. NewCollector panics if tw is nil.
func NewCollector(tw *timewheel.TimeWheel, name string, opts ...Option) prometheus.Collector {
	if tw == nil {
		panic("metrics: the wheel is nil") // panic here, not in one of the registry's goroutines at the first scrape
	}
	return newWheelCollector(tw, name, opts...)
}

// A wheel is a *timewheel.TimeWheel, or a fake in tests.
type wheel interface {
	Stats() timewheel.Stats
	IsRunning() bool
	LongestRuns(n int) []timewheel.Run
}

// A reading holds the values from one reading of a wheel.
type reading struct {
	timewheel.Stats
	of wheel
}

func newWheelCollector(tw wheel, name string, opts ...Option) prometheus.Collector {
	c := newCollector(func() reading { return reading{tw.Stats(), tw} }, wheelAccounts)
	for _, o := range opts {
		o(c)
	}
	return prometheus.WrapCollectorWith(prometheus.Labels{"wheel": name}, c)
}

var wheelAccounts = []account[reading]{
	newCounter("timewheel_tasks_added_total", "Tasks that were added.",
		func(r reading) float64 { return float64(r.Added) }),
	newCounter("timewheel_tasks_finished_total", "Tasks whose last run has begun.",
		func(r reading) float64 { return float64(r.Finished) }),
	newCounter("timewheel_tasks_removed_total",
		"Tasks that were removed, replaced or drained before their last run.",
		func(r reading) float64 { return float64(r.Removed) }),
	newGauge("timewheel_tasks_pending", "Tasks that are live now.",
		func(r reading) float64 { return float64(r.Pending) }),
	newGauge("timewheel_tasks_paused", "Tasks that are paused now. They are among the pending.",
		func(r reading) float64 { return float64(r.Paused) }),
	newCounter("timewheel_runs_due_total", "Runs that fell due.",
		func(r reading) float64 { return float64(r.Due) }),
	newCounter("timewheel_runs_started_total", "Runs that began.",
		func(r reading) float64 { return float64(r.Started) }),
	newCounter("timewheel_runs_missed_total",
		"Runs of a repeating task that fell due while an earlier one waited or was overdue.",
		func(r reading) float64 { return float64(r.Missed) }),
	newCounter("timewheel_runs_withdrawn_total",
		"Due runs whose task was removed, replaced or moved while they waited.",
		func(r reading) float64 { return float64(r.Withdrawn) }),
	newCounter("timewheel_runs_panicked_total", "Runs that ended with a panic or with runtime.Goexit.",
		func(r reading) float64 { return float64(r.Panicked) }),
	newGauge("timewheel_runs_waiting", "Due runs that wait for a worker now.",
		func(r reading) float64 { return float64(r.Waiting) }),
	newGauge("timewheel_runs_running", "Runs that are running now.",
		func(r reading) float64 { return float64(r.Running) }),
	newGauge("timewheel_workers", "Runs that may be running at once; 0 if an executor decides that.",
		func(r reading) float64 { return float64(r.Workers) }),
	newGauge("timewheel_oldest_wait_seconds",
		"How long the run has waited that has waited longest for a worker; 0 if none waits.",
		func(r reading) float64 { return r.OldestWait.Seconds() }),
	newGauge("timewheel_stopped", "1 if the wheel was stopped or not started, 0 if it is running.",
		func(r reading) float64 { return oneIf(!r.of.IsRunning()) }),
}

var longestRun = newGauge("timewheel_longest_run_seconds",
	"How long the run has been running that has run longest; 0 if none runs.",
	func(r reading) float64 {
		runs := r.of.LongestRuns(1)
		if len(runs) == 0 || runs[0].Started.IsZero() { // a worker has taken the run and is about to start it
			return 0
		}
		return max(time.Since(runs[0].Started).Seconds(), 0)
	})
