// SPDX-License-Identifier: MIT

// Package metrics exports the accounts of timing wheels and durable schedulers to Prometheus.
//
//	runs := metrics.NewRuns()
//	tw, err := timewheel.New(tick, slots, timewheel.WithObserver(runs.Observe))
//	...
//	err = prometheus.Register(metrics.NewCollector(tw, "sessions", metrics.WithRuns(runs)))
//
//	s, err := durable.New(store)
//	...
//	err = prometheus.Register(metrics.NewSchedulerCollector(s, "orders"))
//
// The counters and gauges are read at each scrape, from [timewheel.TimeWheel.Stats] and
// [durable.Scheduler.Stats], and cost nothing in between. The histograms need the observer; each run costs
// them three observations.
//
// # The names
//
// All values are in base units: seconds and counts. The metrics of a wheel have the label wheel:
//
//	timewheel_tasks_added_total       counter    tasks that were added
//	timewheel_tasks_finished_total    counter    tasks whose last run has begun
//	timewheel_tasks_removed_total     counter    tasks that were removed, replaced or drained
//	timewheel_tasks_pending           gauge      live tasks
//	timewheel_runs_due_total          counter    runs that fell due
//	timewheel_runs_started_total      counter    runs that began
//	timewheel_runs_missed_total       counter    periods that passed while an earlier run waited
//	timewheel_runs_withdrawn_total    counter    due runs whose task was removed, replaced or moved
//	timewheel_runs_panicked_total     counter    runs that ended with a panic or runtime.Goexit
//	timewheel_runs_waiting            gauge      due runs that wait for a worker
//	timewheel_runs_running            gauge      runs that are running
//	timewheel_workers                 gauge      how many runs may run at once; 0 with an executor
//	timewheel_oldest_wait_seconds     gauge      age of the due run that has waited longest
//	timewheel_longest_run_seconds     gauge      age of the run that has run longest
//	timewheel_stopped                 gauge      1 if the wheel was stopped or not started, or 0
//	timewheel_run_tick_delay_seconds  histogram  from due until dispatched
//	timewheel_run_wait_seconds        histogram  from dispatched until started
//	timewheel_run_duration_seconds    histogram  from started until ended
//
// The first two histograms together are the lateness. A histogram counts a run when the run has ended. The
// two gauges of age show the runs that still wait or run. The histograms and timewheel_longest_run_seconds
// are there only with [WithRuns].
//
// The metrics of a durable scheduler have the label scheduler:
//
//	timewheel_durable_tasks_pending         gauge    tasks in the store, parked ones included
//	timewheel_durable_tasks_parked          gauge    parked tasks
//	timewheel_durable_tasks_unhandled       gauge    due tasks whose kind has no handler
//	timewheel_durable_tasks_added_total     counter  tasks that were added
//	timewheel_durable_tasks_removed_total   counter  tasks that were removed or replaced
//	timewheel_durable_runs_waiting          gauge    due runs that wait for a worker
//	timewheel_durable_runs_running          gauge    handlers that are running
//	timewheel_durable_runs_started_total    counter  calls of handlers
//	timewheel_durable_runs_succeeded_total  counter  calls that returned nil and were acknowledged
//	timewheel_durable_runs_failed_total     counter  calls that failed
//	timewheel_durable_runs_parked_total     counter  calls that failed and parked their task
//	timewheel_durable_store_failed          gauge    1 if the store has failed, or 0
//
// A wheel has 14 series. With WithRuns it has 108 in a Prometheus that takes classic histograms, and 18 in
// one that takes native histograms. A scheduler has 12. The number does not depend on the number of tasks.
//
// A counter never falls while its collector lives.
//
// # Alerts and dashboard
//
// The folder prometheus has alert rules, and the folder grafana has a dashboard of all metrics. The README
// of this module says how to install both.
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
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// An account is one number of the reading S of a source.
type account[S any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(s S) float64
}

func newCounter[S any](name, help string, of func(s S) float64) account[S] {
	return account[S]{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, of}
}

func newGauge[S any](name, help string, of func(s S) float64) account[S] {
	return account[S]{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, of}
}

// A collector collects the accounts of one source.
type collector[S any] struct {
	read       func() S
	accounts   []account[S]
	histograms []prometheus.Histogram

	mu       sync.Mutex // protects greatest
	greatest []float64  // what each account that is a counter has reported
}

func newCollector[S any](read func() S, accounts []account[S]) *collector[S] {
	return &collector[S]{read: read, accounts: accounts, greatest: make([]float64, len(accounts))}
}

func (c *collector[S]) Describe(descs chan<- *prometheus.Desc) {
	for _, a := range c.accounts {
		descs <- a.desc
	}
	for _, h := range c.histograms {
		h.Describe(descs)
	}
}

func (c *collector[S]) Collect(metrics chan<- prometheus.Metric) {
	for i, value := range c.values() {
		metrics <- prometheus.MustNewConstMetric(c.accounts[i].desc, c.accounts[i].kind, value)
	}
	for _, h := range c.histograms {
		metrics <- h
	}
}

// values returns the value of each account. For a counter that is the greatest it has had, because
// Prometheus takes a counter that falls for a process that has started again. Started and Finished of a
// wheel fall by one for an instant when a task is removed after a worker has taken its run and before the
// run begins. And of two scrapes at the same time the later to report may be the earlier to read.
func (c *collector[S]) values() []float64 {
	s := c.read()
	all := make([]float64, len(c.accounts))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, a := range c.accounts {
		all[i] = a.of(s)
		if a.kind == prometheus.CounterValue {
			c.greatest[i] = max(c.greatest[i], all[i])
			all[i] = c.greatest[i]
		}
	}
	return all
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
