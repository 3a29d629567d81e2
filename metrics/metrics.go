// SPDX-License-Identifier: MIT

// Package metrics exports a timing wheel's accounts to Prometheus.
//
//	runs := metrics.NewRuns()
//	tw, err := timewheel.New(tick, slots, timewheel.WithObserver(runs.Observe))
//	...
//	err = prometheus.Register(metrics.NewCollector(tw, "sessions", metrics.WithRuns(runs)))
//
// The counters and gauges are read from [timewheel.TimeWheel.Stats] at each scrape and cost nothing in
// between. The histograms need the observer; each run costs them three observations.
//
// # The names
//
// Each has the label wheel. Units are base units, as is the custom in Prometheus:
//
//	timewheel_tasks_added_total, _finished_total, _removed_total       counters
//	timewheel_tasks_pending                                            gauge
//	timewheel_runs_due_total, _started_total, _missed_total,
//	    _withdrawn_total, _panicked_total                              counters
//	timewheel_runs_waiting, timewheel_runs_running                     gauges
//	timewheel_workers                                                  gauge: how many runs may run at once
//	timewheel_oldest_wait_seconds                                      gauge: of the run that has waited longest
//	timewheel_run_tick_delay_seconds                                   histogram: due until dispatched
//	timewheel_run_wait_seconds                                         histogram: dispatched until started
//	timewheel_run_duration_seconds                                     histogram: started until ended
//
// The first two histograms together are the lateness. All three have classic buckets, and native ones for a
// Prometheus that takes them. The folder grafana has a dashboard of all metrics.
//
// # OpenTelemetry
//
// Register the collector with a registry of its own, and read that registry with the bridge
// go.opentelemetry.io/contrib/bridges/prometheus:
//
//	metric.NewPeriodicReader(exporter,
//		metric.WithProducer(prometheus.NewMetricProducer(prometheus.WithGatherer(registry))))
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed581295f1/timewheel/timewheel"
)

// Runs are the histograms of the runs of one wheel.
type Runs struct{ tick, wait, duration prometheus.Histogram }

// NewRuns returns empty histograms.
func NewRuns() *Runs {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name,
			Help: help,
			// From a tenth of a millisecond to a minute and a half, each bucket three times as wide as the one before.
			Buckets:                         prometheus.ExponentialBucketsRange(100e-6, 100, 14),
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  160,
			NativeHistogramMinResetDuration: time.Hour,
		})
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

// Observe records the account of a run. Pass it to [timewheel.WithObserver].
func (r *Runs) Observe(run timewheel.Run) {
	r.tick.Observe(run.Handed.Sub(run.Due).Seconds())
	r.wait.Observe(run.Started.Sub(run.Handed).Seconds())
	r.duration.Observe(run.Ended.Sub(run.Started).Seconds())
}

// An Option adds to what a collector collects.
type Option func(*collector)

// WithRuns adds the histograms of r, whose Observe was given to the wheel. It panics if r is nil.
func WithRuns(r *Runs) Option {
	if r == nil {
		panic("metrics: the runs are nil")
	}
	return func(c *collector) { c.runs = []prometheus.Histogram{r.tick, r.wait, r.duration} }
}

// NewCollector returns a collector of the accounts of a wheel. The name is the value of the label wheel.
// Collectors of several wheels can be in one registry if their names differ. NewCollector panics if tw is nil.
func NewCollector(tw *timewheel.TimeWheel, name string, opts ...Option) prometheus.Collector {
	if tw == nil {
		panic("metrics: the wheel is nil") // now, and not on a goroutine of the registry at the first scrape
	}
	c := &collector{tw: tw}
	for _, o := range opts {
		o(c)
	}
	return prometheus.WrapCollectorWith(prometheus.Labels{"wheel": name}, c)
}

type collector struct {
	tw   *timewheel.TimeWheel
	runs []prometheus.Histogram
}

// An account is one number of the Stats.
type account struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(s timewheel.Stats) float64
}

func newAccount(name, help string, kind prometheus.ValueType, of func(s timewheel.Stats) float64) account {
	return account{prometheus.NewDesc("timewheel_"+name, help, nil, nil), kind, of}
}

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

var accounts = []account{
	newAccount("tasks_added_total", "Tasks that were added.",
		counter, func(s timewheel.Stats) float64 { return float64(s.Added) }),
	newAccount("tasks_finished_total", "Tasks whose last run has begun.",
		counter, func(s timewheel.Stats) float64 { return float64(s.Finished) }),
	newAccount("tasks_removed_total", "Tasks that were removed, replaced or drained before their last run.",
		counter, func(s timewheel.Stats) float64 { return float64(s.Removed) }),
	newAccount("tasks_pending", "Tasks that are live now.",
		gauge, func(s timewheel.Stats) float64 { return float64(s.Pending) }),
	newAccount("runs_due_total", "Runs that fell due.",
		counter, func(s timewheel.Stats) float64 { return float64(s.Due) }),
	newAccount("runs_started_total", "Runs that began.",
		counter, func(s timewheel.Stats) float64 { return float64(s.Started) }),
	newAccount("runs_missed_total",
		"Runs of a repeating task that fell due while an earlier one waited or was overdue.",
		counter, func(s timewheel.Stats) float64 { return float64(s.Missed) }),
	newAccount("runs_withdrawn_total", "Due runs whose task was removed, replaced or moved while they waited.",
		counter, func(s timewheel.Stats) float64 { return float64(s.Withdrawn) }),
	newAccount("runs_panicked_total", "Runs that ended with a panic or with runtime.Goexit.",
		counter, func(s timewheel.Stats) float64 { return float64(s.Panicked) }),
	newAccount("runs_waiting", "Due runs that wait for a worker now.",
		gauge, func(s timewheel.Stats) float64 { return float64(s.Waiting) }),
	newAccount("runs_running", "Runs that are running now.",
		gauge, func(s timewheel.Stats) float64 { return float64(s.Running) }),
	newAccount("workers", "Runs that may be running at once; 0 if an executor decides that.",
		gauge, func(s timewheel.Stats) float64 { return float64(s.Workers) }),
	newAccount("oldest_wait_seconds", "How long the run has waited that has waited longest for a worker.",
		gauge, func(s timewheel.Stats) float64 { return s.OldestWait.Seconds() }),
}

func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, a := range accounts {
		descs <- a.desc
	}
	for _, h := range c.runs {
		h.Describe(descs)
	}
}

func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	s := c.tw.Stats()
	for _, a := range accounts {
		metrics <- prometheus.MustNewConstMetric(a.desc, a.kind, a.of(s))
	}
	for _, h := range c.runs {
		metrics <- h
	}
}
