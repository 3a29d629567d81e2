// SPDX-License-Identifier: MIT

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed581295f1/timewheel/durable"
)

// NewSchedulerCollector returns a collector of the accounts of a durable scheduler. The name is the value of
// the label scheduler. Collectors of several schedulers can be in one registry if their names differ. After
// Shutdown the scheduler has no pending tasks. NewSchedulerCollector panics if s is nil.
func NewSchedulerCollector(s *durable.Scheduler, name string) prometheus.Collector {
	if s == nil {
		panic("metrics: the scheduler is nil")
	}
	return newSchedulerCollector(s, name)
}

// A scheduler is a *durable.Scheduler, or stands for one in a test.
type scheduler interface {
	Stats() durable.Stats
	Err() error
}

// A durableReading is what a scrape reads from a scheduler.
type durableReading struct {
	durable.Stats
	failed bool
}

func newSchedulerCollector(s scheduler, name string) prometheus.Collector {
	read := func() durableReading { return durableReading{s.Stats(), s.Err() != nil} }
	c := newCollector(read, schedulerAccounts)
	return prometheus.WrapCollectorWith(prometheus.Labels{"scheduler": name}, c)
}

// The counter of parked tasks is one of runs: with the name of the gauge, and _total, it would be the same
// metric in the format of OpenMetrics.
var schedulerAccounts = []account[durableReading]{
	newGauge("timewheel_durable_tasks_pending", "Tasks in the store, parked ones included.",
		func(r durableReading) float64 { return float64(r.Pending) }),
	newGauge("timewheel_durable_tasks_parked", "Tasks that are parked: all attempts of a run have failed.",
		func(r durableReading) float64 { return float64(r.Parked) }),
	newGauge("timewheel_durable_tasks_unhandled", "Due tasks that wait because their kind has no handler.",
		func(r durableReading) float64 { return float64(r.Unhandled) }),
	newCounter("timewheel_durable_tasks_added_total", "Tasks that were added.",
		func(r durableReading) float64 { return float64(r.Added) }),
	newCounter("timewheel_durable_tasks_removed_total", "Tasks that were removed or replaced.",
		func(r durableReading) float64 { return float64(r.Removed) }),
	newGauge("timewheel_durable_runs_waiting", "Due runs that wait for a worker now.",
		func(r durableReading) float64 { return float64(r.Waiting) }),
	newGauge("timewheel_durable_runs_running", "Handlers that are running now.",
		func(r durableReading) float64 { return float64(r.Running) }),
	newCounter("timewheel_durable_runs_started_total", "Calls of handlers.",
		func(r durableReading) float64 { return float64(r.Started) }),
	newCounter("timewheel_durable_runs_succeeded_total",
		"Calls of handlers that returned nil and were acknowledged.",
		func(r durableReading) float64 { return float64(r.Succeeded) }),
	newCounter("timewheel_durable_runs_failed_total",
		"Calls of handlers that returned an error, panicked or ended their goroutine, with the task still there.",
		func(r durableReading) float64 { return float64(r.Failed) }),
	newCounter("timewheel_durable_runs_parked_total", "Calls of handlers that failed and parked their task.",
		func(r durableReading) float64 { return float64(r.ParkedTotal) }),
	newGauge("timewheel_durable_store_failed", "1 if the store has failed and the scheduler has ended, or 0.",
		func(r durableReading) float64 { return oneIf(r.failed) }),
}
