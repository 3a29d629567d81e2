// SPDX-License-Identifier: MIT

// Package grafana has a dashboard of the metrics in package metrics. Its test is a module of its own, for the
// sake of Prometheus' query engine.
package grafana

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/seed581295f1/timewheel/metrics"
	"github.com/seed581295f1/timewheel/timewheel"
)

type dashboard struct {
	Panels []struct {
		Title       string
		Description string
		Type        string
		Targets     []struct{ Expr string }
	}
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

// Every query of the dashboard is run by Prometheus' own engine against what a wheel's collector really
// gives out, and has an answer for each wheel. And every metric there is, is in some query.
func TestDashboard_everyQueryHasAnAnswer(t *testing.T) {
	text, err := os.ReadFile("timewheel.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	db, end, names := scraped(t)
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1_000_000, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
	})
	queries := 0
	for _, p := range d.Panels {
		if p.Type == "row" {
			continue
		}
		if p.Description == "" {
			t.Errorf("the panel %q is not described", p.Title)
		}
		for _, target := range p.Targets {
			queries++
			expr := strings.NewReplacer("$wheel", ".*", "$__rate_interval", "1m").Replace(target.Expr)
			q, err := engine.NewInstantQuery(context.Background(), db, nil, expr, end)
			if err != nil {
				t.Errorf("%s: %s: %v", p.Title, expr, err)
				continue
			}
			v, err := q.Exec(context.Background()).Vector()
			if err != nil || len(v) != 2 {
				t.Errorf("%s: %s: %v, %v, want an answer for each of the two wheels", p.Title, expr, v, err)
			}
			for _, s := range v {
				if s.F != s.F {
					t.Errorf("%s: %s is not a number", p.Title, expr)
				}
			}
			q.Close()
			for name := range names {
				if strings.Contains(expr, name) {
					names[name] = true
				}
			}
		}
	}
	for name, used := range names {
		if !used {
			t.Errorf("%s is in no panel", name)
		}
	}
	if queries < 15 {
		t.Errorf("there are %d queries", queries)
	}
	for _, v := range d.Templating.List {
		if v.Name == "wheel" && v.Definition != "label_values(timewheel_tasks_pending, wheel)" {
			t.Errorf("the wheels are asked for with %q", v.Definition)
		}
	}
}

// scraped returns what two wheels have given out, scraped every 15 seconds up to the time, and the names of
// the metrics.
func scraped(t *testing.T) (db *tsdb.DB, end time.Time, names map[string]bool) {
	t.Helper()
	db, err := tsdb.Open(t.TempDir(), nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	registry := prometheus.NewRegistry()
	var wheels []*timewheel.TimeWheel
	for _, name := range []string{"a", "b"} {
		runs := metrics.NewRuns()
		tw := timewheel.NewTimeWheel(time.Millisecond, 64, timewheel.WithObserver(runs.Observe))
		registry.MustRegister(metrics.NewCollector(tw, name, metrics.WithRuns(runs)))
		tw.Start()
		t.Cleanup(tw.Stop)
		wheels = append(wheels, tw)
	}
	names = map[string]bool{}
	at := time.Now().Add(-time.Minute)
	for scrape := range 5 {
		for _, tw := range wheels {
			done := make(chan struct{})
			task := &timewheel.Task{
				Key: fmt.Sprint(scrape), Interval: time.Millisecond, Job: func(*timewheel.Task) { close(done) },
			}
			if err := tw.AddTask(task); err != nil {
				t.Fatal(err)
			}
			<-done
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		app := db.Appender(context.Background())
		for _, f := range families {
			names[f.GetName()] = false
			for _, m := range f.GetMetric() {
				for name, value := range samples(f.GetName(), m) {
					if _, err := app.Append(0, name, at.UnixMilli(), value); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
		end, at = at, at.Add(15*time.Second)
	}
	return db, end, names
}

// samples yields the series of a metric as they are in the text format.
func samples(name string, m *dto.Metric) func(yield func(labels.Labels, float64) bool) {
	series := func(name string, more ...string) labels.Labels {
		all := map[string]string{"__name__": name}
		for _, l := range m.GetLabel() {
			all[l.GetName()] = l.GetValue()
		}
		if len(more) == 2 {
			all[more[0]] = more[1]
		}
		return labels.FromMap(all)
	}
	return func(yield func(labels.Labels, float64) bool) {
		h := m.GetHistogram()
		if h == nil {
			yield(series(name), m.GetCounter().GetValue()+m.GetGauge().GetValue())
			return
		}
		ok := yield(series(name+"_count"), float64(h.GetSampleCount())) && yield(series(name+"_sum"), h.GetSampleSum())
		for _, b := range h.GetBucket() {
			ok = ok && yield(series(name+"_bucket", "le", fmt.Sprint(b.GetUpperBound())), float64(b.GetCumulativeCount()))
		}
		_ = ok && yield(series(name+"_bucket", "le", "+Inf"), float64(h.GetSampleCount()))
	}
}
