// SPDX-License-Identifier: MIT

package metrics_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/metrics"
	"github.com/seed581295f1/timewheel/timewheel"
)

// A wheel gets an observer, a registry gets the collector, and a server shows the registry.
func Example() {
	runs := metrics.NewRuns()
	tw, err := timewheel.New(time.Millisecond, 1024, runs.Option())
	if err != nil {
		log.Fatal(err)
	}
	tw.Start()
	defer tw.Stop()

	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewCollector(tw, "sessions", metrics.WithRuns(runs)))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	err = tw.AddTask(&timewheel.Task{Key: "s1", Delay: time.Hour, Job: func(*timewheel.Task) {}})
	if err != nil {
		log.Fatal(err)
	}

	scrape := httptest.NewRecorder()
	mux.ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(scrape.Body.String()) {
		if strings.HasPrefix(line, "timewheel_tasks_") {
			fmt.Print(line)
		}
	}
	// Output:
	// timewheel_tasks_added_total{wheel="sessions"} 1
	// timewheel_tasks_finished_total{wheel="sessions"} 0
	// timewheel_tasks_paused{wheel="sessions"} 0
	// timewheel_tasks_pending{wheel="sessions"} 1
	// timewheel_tasks_removed_total{wheel="sessions"} 0
}

// A durable scheduler needs an observer only for the histograms.
func ExampleNewSchedulerCollector() {
	attempts := metrics.NewAttempts()
	ctx := context.Background()
	e := memory.New().Engine() // or a persistent engine, such as that of package durable/pebble
	s, err := durable.New(ctx, e, attempts.Option())
	if err != nil {
		log.Fatal(err)
	}
	err = s.Handle("recheck", func(context.Context, durable.Run) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}

	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewSchedulerCollector(s, "orders", metrics.WithAttempts(attempts)))

	err = s.AddTask(ctx, durable.Task{Key: "order:42", Kind: "recheck", Delay: time.Hour})
	if err != nil {
		log.Fatal(err)
	}

	scrape := httptest.NewRecorder()
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	handler.ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(scrape.Body.String()) {
		if strings.HasPrefix(line, "timewheel_durable_tasks_") {
			fmt.Print(line)
		}
	}
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// timewheel_durable_tasks_added_total{scheduler="orders"} 1
	// timewheel_durable_tasks_expired_total{scheduler="orders"} 0
	// timewheel_durable_tasks_parked{scheduler="orders"} 0
	// timewheel_durable_tasks_pending{scheduler="orders"} 1
	// timewheel_durable_tasks_removed_total{scheduler="orders"} 0
	// timewheel_durable_tasks_unhandled{scheduler="orders"} 0
}

// An engineOf is an engine that reports its health, such as that of package durable/postgres.
type engineOf struct{ health engine.Health }

func (e engineOf) Health(context.Context) (engine.Health, error) { return e.health, nil }

// One process of a cluster collects the metrics of the shared engine.
func ExampleNewEngineCollector() {
	var engine engine.HealthReporter = engineOf{engine.Health{
		OldestTransaction: time.Minute, DeadRows: 1000, Size: 1 << 20, Replicated: true, Standbys: 2,
	}}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewEngineCollector(engine, "orders"))
	scrape := httptest.NewRecorder()
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	handler.ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(scrape.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			fmt.Print(line)
		}
	}
	// Output:
	// timewheel_durable_engine_autovacuum{scheduler="orders"} 1
	// timewheel_durable_engine_dead_rows{scheduler="orders"} 1000
	// timewheel_durable_engine_flushed{scheduler="orders"} 1
	// timewheel_durable_engine_oldest_transaction_seconds{scheduler="orders"} 60
	// timewheel_durable_engine_replicated{scheduler="orders"} 1
	// timewheel_durable_engine_servers_refused_total{scheduler="orders"} 0
	// timewheel_durable_engine_size_bytes{scheduler="orders"} 1.048576e+06
	// timewheel_durable_engine_synchronous_standbys{scheduler="orders"} 2
}
