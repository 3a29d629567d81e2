// SPDX-License-Identifier: MIT

package metrics

import (
	"context"
	"math"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/prometheus/client_golang/prometheus"
)

// NewEngineCollector returns a collector for the health of an engine that many schedulers share, such as one from
// package durable/postgres. The name is the value of the label scheduler, and should match the name of the schedulers
// on the engine. Only one process needs to collect the health of an engine. NewEngineCollector panics if e is nil.
func NewEngineCollector(e engine.HealthReporter, name string) prometheus.Collector {
	if e == nil {
		panic("metrics: the engine is nil")
	}
	read := func() *engine.Health {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		h, err := e.Health(ctx)
		if err != nil {
			return nil
		}
		return &h
	}
	return prometheus.WrapCollectorWith(prometheus.Labels{"scheduler": name}, newCollector(read, engineAccounts))
}

var engineAccounts = []account[*engine.Health]{
	newGauge("timewheel_durable_engine_oldest_transaction_seconds",
		"Age of the oldest transaction that holds back vacuum; 0 if there is none.",
		known(func(h engine.Health) float64 { return h.OldestTransaction.Seconds() })),
	newGauge("timewheel_durable_engine_dead_rows",
		"Rows of tasks that were changed or removed and wait for vacuum, as the server estimates.",
		known(func(h engine.Health) float64 { return float64(h.DeadRows) })),
	newGauge("timewheel_durable_engine_autovacuum",
		"1 if the server removes dead rows by itself, or 0 if that is off for the server or for the table of the tasks.",
		known(func(h engine.Health) float64 { return oneIf(h.NoVacuum == "") })),
	newGauge("timewheel_durable_engine_size_bytes", "Size of the tasks and their indexes.",
		known(func(h engine.Health) float64 { return float64(h.Size) })),
	newGauge("timewheel_durable_engine_flushed",
		"1 if an acknowledged task survives a crash of the server, or 0.",
		known(func(h engine.Health) float64 { return oneIf(!h.Unflushed) })),
	newGauge("timewheel_durable_engine_replicated",
		"1 if an acknowledged task survives the loss of the server because a standby has it, or 0.",
		known(func(h engine.Health) float64 { return oneIf(h.Replicated) })),
	newGauge("timewheel_durable_engine_synchronous_standbys",
		"Standbys that are connected and for which the server waits before it acknowledges a task.",
		known(func(h engine.Health) float64 { return float64(h.Standbys) })),
	newCounter("timewheel_durable_engine_servers_refused_total",
		"Connections of this process that were refused because they were to an old primary, or to another cluster.",
		known(func(h engine.Health) float64 { return float64(h.Refused) })),
}

// known wraps a function of a source so that it returns NaN, which means unknown, for a nil source.
func known[S any](of func(s S) float64) func(s *S) float64 {
	return func(s *S) float64 {
		if s == nil {
			return math.NaN()
		}
		return of(*s)
	}
}
