// SPDX-License-Identifier: MIT

// Package metrics exports the statistics of timing wheels and durable schedulers to Prometheus.
//
//	runs := metrics.NewRuns()
//	tw, err := timewheel.New(tick, slots, runs.Option())
//	...
//	err = prometheus.Register(metrics.NewCollector(tw, "sessions", metrics.WithRuns(runs)))
//
//	attempts := metrics.NewAttempts()
//	s, err := durable.New(store, attempts.Option())
//	...
//	err = prometheus.Register(metrics.NewSchedulerCollector(s, "orders", metrics.WithAttempts(attempts)))
//
//	engine, err := postgres.Open(ctx, url) // a cluster: one process collects the engine, and each its scheduler
//	...
//	err = prometheus.Register(metrics.NewEngineCollector(engine, "orders"))
//
// The counters and gauges are read at each scrape, from [timewheel.TimeWheel.Stats], [durable.Scheduler.Stats] and the
// counts that the scheduler keeps, and cost nothing in between. The histograms of runs need the observer; each run
// costs them two or three observations. No scrape walks over tasks for longer than a fraction of a second.
//
// # The names
//
// All values are in base units: seconds, bytes and counts. The README has a table of all metrics. Those of a wheel have
// the label wheel, and those of a durable scheduler the label scheduler. A histogram counts a run once it has ended;
// age gauges cover runs that are still waiting or in progress.
//
// A wheel has 15 series. With WithRuns it has 109 in a Prometheus with classic histograms, and 18 in one with native
// histograms. The number does not depend on the number of tasks. A scheduler on a store has 38 and a node 67, and each
// 15 more for each kind of its tasks. With WithAttempts a kind has 62 more with classic histograms, and 2 with native
// ones. After 100 kinds the number of series stays the same: further kinds share the label value other.
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
	"math"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// An account is one number in the reading S of a source. NaN means that the source does not have it; it is then left
// out.
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

	mu       sync.Mutex // protects greatest
	greatest []float64  // the last reported value of each counter
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

// values returns the value of each account. For a counter that is its greatest value so far, because Prometheus takes a
// falling counter as a restart of the process. Started and Finished of a wheel fall by one for an instant when a task
// is removed after a worker has taken its run and before the run begins. Also, if two scrapes overlap, the one that
// reports last may have read first.
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
