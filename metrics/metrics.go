// SPDX-License-Identifier: MIT

// Package metrics exports the statistics of timing wheels and durable schedulers to Prometheus.
//
//	runs := metrics.NewRuns()
//	tw, err := timewheel.New(tick, slots, runs.Option())
//	...
//	err = prometheus.Register(metrics.NewCollector(tw, "sessions", metrics.WithRuns(runs)))
//
//	engine, err := postgres.Open(ctx, url)
//	...
//	attempts := metrics.NewAttempts()
//	s, err := durable.New(ctx, engine, attempts.Option())
//	...
//	err = prometheus.Register(metrics.NewSchedulerCollector(s, "orders", metrics.WithAttempts(attempts)))
//
//	// In a cluster, each process collects its scheduler, and only one collects the engine.
//	err = prometheus.Register(metrics.NewEngineCollector(engine, "orders"))
//
// The counters and gauges are read at each scrape from [timewheel.TimeWheel.Stats], [durable.Scheduler.Stats] and the
// counts that the scheduler maintains. They cost nothing between scrapes. The histograms of runs require the observer,
// and each run adds two or three observations to them. No scrape walks over tasks for more than a fraction of a second.
//
// # Names
//
// The README has a table of all metrics. The metrics of a wheel have the label wheel, and the metrics of a durable
// scheduler have the label scheduler. A histogram counts a run when it ends. Age gauges cover runs that are still waiting or in progress.
//
// A wheel has 15 series. With WithRuns, it has 109 series if Prometheus stores classic histograms, or 18 with native
// histograms. These numbers do not depend on the number of tasks. A scheduler on an own engine has 41 series, and a node
// has 70. Each kind of task adds 17 to either. WithAttempts adds 62 series per kind with classic histograms, or 2 with
// native ones. Beyond 100 kinds, the number of series no longer grows: further kinds share the label value "other".
//
// A counter never decreases during the lifetime of its collector.
//
// # Alerts and dashboard
//
// The directory prometheus contains alert rules, and the directory grafana contains a dashboard of all metrics. This
// module's README explains how to install both.
//
// # OpenTelemetry
//
// Register the collector with a separate registry, and read that registry through the bridge
// go.opentelemetry.io/contrib/bridges/prometheus:
//
//	metric.NewPeriodicReader(exporter,
//		metric.WithProducer(prometheus.NewMetricProducer(prometheus.WithGatherer(registry))))
package metrics

import (
	"math"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// An account is one number in the reading S of a source. A number that the source does not have is NaN, and is not
// exported.
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
	histograms []prometheus.Collector

	mu       sync.Mutex // protects the field below
	greatest []float64  // the greatest value so far of each counter
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
	c.collect(c.read(), metrics)
}

func (c *collector[S]) collect(s S, metrics chan<- prometheus.Metric) {
	for i, value := range c.values(s) {
		if !math.IsNaN(value) {
			metrics <- prometheus.MustNewConstMetric(c.accounts[i].desc, c.accounts[i].kind, value)
		}
	}
	for _, h := range c.histograms {
		h.Collect(metrics)
	}
}

// values returns the value of each account. For a counter, it returns the greatest value so far, because Prometheus
// interprets a decrease as a restart of the process. There are two causes of a decrease. A wheel's Started and Finished
// drop by one for an instant if a task is removed after a worker has taken its run but before the run starts. And of
// two overlapping scrapes, the one that reports last may have read first.
func (c *collector[S]) values(s S) []float64 {
	all := make([]float64, len(c.accounts))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, a := range c.accounts {
		all[i] = a.of(s)
		if a.kind == prometheus.CounterValue && !math.IsNaN(all[i]) {
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
