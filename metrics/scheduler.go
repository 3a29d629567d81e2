// SPDX-License-Identifier: MIT

package metrics

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed581295f1/timewheel/durable"
)

// patience is how long a scrape waits for an engine. It omits numbers that are still unknown after that
// time.
const patience = 2 * time.Second

// A SchedulerOption adds metrics to the collector of a scheduler.
type SchedulerOption func(*schedulerCollector)

// WithAttempts adds the histograms of a. The scheduler must have a.Observe as an observer. WithAttempts panics if a is
// nil.
func WithAttempts(a *Attempts) SchedulerOption {
	if a == nil {
		panic("metrics: the attempts are nil")
	}
	return func(c *schedulerCollector) {
		c.accounts.histograms = []prometheus.Collector{a.duration, a.lateness}
	}
}

// NewSchedulerCollector returns a collector for the statistics of a durable scheduler. The name is the value of the
// label scheduler. One registry can hold the collectors of several schedulers if their names differ. The nodes of a
// cluster use the same name in the registries of their processes. After Shutdown, the scheduler reports no pending
// tasks. NewSchedulerCollector panics if s is nil.
//
// A scrape reads counts that the scheduler maintains or has read within the last few seconds. On a node, a scrape waits
// at most four seconds for the engine and omits numbers that are still unknown after that time.
func NewSchedulerCollector(s *durable.Scheduler, name string, opts ...SchedulerOption) prometheus.Collector {
	if s == nil {
		panic("metrics: the scheduler is nil")
	}
	return newSchedulerCollector(s, name, opts...)
}

// A scheduler is a *durable.Scheduler, or a fake in tests.
type scheduler interface {
	Stats() durable.Stats
	Err() error
	Kinds() []durable.KindInfo
	Counts(ctx context.Context) (durable.Counts, error)
	CatchUp(ctx context.Context) (durable.CatchUp, error)
	Nodes(ctx context.Context) ([]durable.NodeInfo, error)
	Paused(ctx context.Context) (durable.Pauses, error)
}

// A durableReading holds the values from one reading of a scheduler.
type durableReading struct {
	durable.Stats
	failed bool
}

// A schedulerCollector collects all metrics of one scheduler.
type schedulerCollector struct {
	of       scheduler
	accounts *collector[durableReading]
	kinds    byKind[string]
}

func newSchedulerCollector(s scheduler, name string, opts ...SchedulerOption) prometheus.Collector {
	c := &schedulerCollector{of: s, accounts: newCollector(nil, schedulerAccounts)}
	c.kinds.make = func(label string) string { return label }
	for _, o := range opts {
		o(c)
	}
	return prometheus.WrapCollectorWith(prometheus.Labels{"scheduler": name}, c)
}

func (c *schedulerCollector) Describe(descs chan<- *prometheus.Desc) {
	c.accounts.Describe(descs)
	for _, d := range append([]*prometheus.Desc{commitDuration, callDuration}, kindDescs...) {
		descs <- d
	}
}

func (c *schedulerCollector) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c.collectKinds(ctx, metrics)
	r := durableReading{Stats: c.of.Stats(), failed: c.of.Err() != nil} // afterwards, because an engine that hangs delays the others
	c.accounts.collect(r, metrics)
	metrics <- histogram(commitDuration, r.Commits)
	if r.Node != nil {
		metrics <- histogram(callDuration, r.Node.Calls)
	}
}

var (
	commitDuration = prometheus.NewDesc("timewheel_durable_commit_duration_seconds",
		"Time that a commit to the engine took.", nil, nil)
	callDuration = prometheus.NewDesc("timewheel_durable_engine_call_duration_seconds",
		"Time from a question to the engine until its answer: joins, renewals, claims and confirmations.", nil, nil)
)

// histogram returns a timing as a histogram metric.
func histogram(desc *prometheus.Desc, t durable.Timing) prometheus.Metric {
	upTo := make(map[float64]uint64, len(t.Buckets)) // each bucket includes all lower ones
	n := uint64(0)
	for i, in := range t.Buckets {
		n += in
		upTo[durable.TimingBound(i).Seconds()] = n
	}
	return prometheus.MustNewConstHistogram(desc, t.Count, t.Total.Seconds(), upTo)
}

// ofNode turns a function of a node's statistics into a function of a reading. Without a node, as on an own engine, the
// number is unknown.
func ofNode(of func(n durable.NodeStats) float64) func(r durableReading) float64 {
	value := known(of)
	return func(r durableReading) float64 { return value(r.Node) }
}

// leased returns d in seconds, or NaN if the node has no lease, as with [durable.Connect].
func leased(n durable.NodeStats, d time.Duration) float64 {
	if n.Lease == 0 {
		return math.NaN()
	}
	return d.Seconds()
}

// The name of the counter of parked tasks contains "runs", because in the OpenMetrics format the gauge's name with the
// suffix _total would denote the same metric.
var schedulerAccounts = []account[durableReading]{
	newGauge("timewheel_durable_tasks_pending", "Tasks in the engine, parked and paused ones included.",
		func(r durableReading) float64 { return float64(r.Pending) }),
	newGauge("timewheel_durable_tasks_parked", "Tasks that are parked, until they are rescheduled or replaced.",
		func(r durableReading) float64 { return float64(r.Parked) }),
	newGauge("timewheel_durable_tasks_unhandled", "Due tasks that wait because their kind has no handler.",
		func(r durableReading) float64 { return float64(r.Unhandled) }),
	newCounter("timewheel_durable_tasks_added_total", "Tasks that were added.",
		func(r durableReading) float64 { return float64(r.Added) }),
	newCounter("timewheel_durable_tasks_removed_total", "Tasks that were removed or replaced.",
		func(r durableReading) float64 { return float64(r.Removed) }),
	newCounter("timewheel_durable_tasks_expired_total", "Tasks that were removed because it was too late to start their run.",
		func(r durableReading) float64 { return float64(r.Expired) }),
	newGauge("timewheel_durable_runs_waiting", "Due runs that wait for a worker now.",
		func(r durableReading) float64 { return float64(r.Waiting) }),
	newGauge("timewheel_durable_oldest_wait_seconds",
		"How long the oldest due run has waited for a worker, here or while no node holds it; 0 if none waits.",
		func(r durableReading) float64 { return r.OldestWait.Seconds() }),
	newGauge("timewheel_durable_workers", "Handlers that may run at the same time.",
		func(r durableReading) float64 { return float64(r.Workers) }),
	newGauge("timewheel_durable_runs_running", "Handlers that are running now.",
		func(r durableReading) float64 { return float64(r.Running) }),
	newCounter("timewheel_durable_runs_started_total", "Calls of handlers.",
		func(r durableReading) float64 { return float64(r.Started) }),
	newCounter("timewheel_durable_runs_retried_total", "Calls of handlers that were not the first attempt of a run.",
		func(r durableReading) float64 { return float64(r.Retried) }),
	newCounter("timewheel_durable_runs_succeeded_total",
		"Calls of handlers that returned nil and were acknowledged.",
		func(r durableReading) float64 { return float64(r.Succeeded) }),
	newCounter("timewheel_durable_runs_failed_total",
		"Calls of handlers that returned an error, panicked or ended their goroutine, with the task still there.",
		func(r durableReading) float64 { return float64(r.Failed) }),
	newCounter("timewheel_durable_runs_snoozed_total", "Calls of handlers that postponed their run.",
		func(r durableReading) float64 { return float64(r.Snoozed) }),
	newCounter("timewheel_durable_runs_parked_total", "Runs that ended with their task parked.",
		func(r durableReading) float64 { return float64(r.ParkedTotal) }),
	newCounter("timewheel_durable_runs_given_up_total",
		"Runs of repeating tasks that were given up after their last attempt.",
		func(r durableReading) float64 { return float64(r.GivenUp) }),
	newGauge("timewheel_durable_store_failed", "1 if the store has failed and the scheduler has ended, or 0.",
		func(r durableReading) float64 { return oneIf(r.failed) }),
	newCounter("timewheel_durable_commit_changes_total", "Tasks that commits have added, changed or removed.",
		func(r durableReading) float64 { return float64(r.Changes) }),
	newGauge("timewheel_durable_store_size_bytes", "Size of the store on the disk.",
		func(r durableReading) float64 {
			if r.Disk.Store == 0 {
				return math.NaN() // unknown
			}
			return float64(r.Disk.Store)
		}),

	newGauge("timewheel_durable_lease_seconds", "Length of the lease of the node.",
		ofNode(func(n durable.NodeStats) float64 { return leased(n, n.Lease) })),
	newGauge("timewheel_durable_lease_age_seconds",
		"Time since the node sent the last renewal of its lease that the engine has answered.",
		ofNode(func(n durable.NodeStats) float64 { return leased(n, n.LeaseAge) })),
	newGauge("timewheel_durable_engine_away", "1 if the engine does not do what the node needs to run tasks, or 0.",
		ofNode(func(n durable.NodeStats) float64 { return oneIf(n.Away) })),
	newGauge("timewheel_durable_engine_unheard",
		"1 if the node hears no signals of its engine, and looks for tasks ten times a second, or 0.",
		ofNode(func(n durable.NodeStats) float64 { return oneIf(n.Unheard != "") })),
	newCounter("timewheel_durable_engine_calls_failed_total", "Calls of the engine that failed.",
		ofNode(func(n durable.NodeStats) float64 { return float64(n.CallsFailed) })),
	newCounter("timewheel_durable_claims_total", "Tasks that the node was given by claims.",
		ofNode(func(n durable.NodeStats) float64 { return float64(n.Claimed) })),
	newCounter("timewheel_durable_takeovers_total",
		"Expired nodes whose tasks this node has freed.",
		ofNode(func(n durable.NodeStats) float64 { return float64(n.TakenOver) })),
	newCounter("timewheel_durable_confirmations_refused_total",
		"Starts that the engine did not confirm: the task was removed, moved, locked or taken over.",
		ofNode(func(n durable.NodeStats) float64 { return float64(n.StartsRefused) })),
	newCounter("timewheel_durable_acknowledgements_refused_total",
		"Ends of runs that did not count: the task was removed, moved or taken over meanwhile.",
		ofNode(func(n durable.NodeStats) float64 { return float64(n.EndsRefused) })),
}
