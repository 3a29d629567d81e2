// SPDX-License-Identifier: MIT

// Package grafana tests the Grafana dashboard of package metrics. It is not part of that module for the
// sake of Prometheus' query engine.
package grafana

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
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
	text, err := os.ReadFile("../../metrics/grafana/timewheel.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for kind, native := range map[string]bool{"classic": false, "native": true} {
		t.Run(kind, func(t *testing.T) { answers(t, d, native) })
	}
	for _, v := range d.Templating.List {
		if v.Name == "wheel" && v.Definition != "label_values(timewheel_tasks_pending, wheel)" {
			t.Errorf("the wheels are asked for with %q", v.Definition)
		}
	}
}

func answers(t *testing.T, d dashboard, native bool) {
	db, end, names := scraped(t, native)
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
}

// scraped returns what two wheels have given out, scraped every 15 seconds up to the time, and the names of
// the metrics. A Prometheus takes native histograms, or classic ones.
func scraped(t *testing.T, native bool) (db *tsdb.DB, end time.Time, names map[string]bool) {
	t.Helper()
	options := tsdb.DefaultOptions()
	options.EnableNativeHistograms = native
	db, err := tsdb.Open(t.TempDir(), nil, nil, options, nil)
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
		for _, f := range families {
			names[f.GetName()] = false
		}
		app := db.Appender(context.Background())
		ingest(t, app, families, native, at.UnixMilli())
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
		end, at = at, at.Add(15*time.Second)
	}
	return db, end, names
}

// ingest appends what a registry gives out, as Prometheus' scraper does: by its own parser, of the text format,
// in which histograms are classic, or of protocol buffers, in which they are native.
func ingest(t *testing.T, app storage.Appender, families []*dto.MetricFamily, native bool, at int64) {
	t.Helper()
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	if native {
		format = expfmt.NewFormat(expfmt.TypeProtoDelim)
	}
	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, format)
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			t.Fatal(err)
		}
	}
	parser, err := textparse.New(text.Bytes(), string(format), "", false, false, false, labels.NewSymbolTable())
	if err != nil {
		t.Fatal(err)
	}
	for {
		entry, err := parser.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var series labels.Labels
		switch entry {
		case textparse.EntrySeries:
			parser.Labels(&series)
			_, _, value := parser.Series()
			_, err = app.Append(0, series, at, value)
		case textparse.EntryHistogram:
			parser.Labels(&series)
			_, _, h, fh := parser.Histogram()
			_, err = app.AppendHistogram(0, series, at, h, fh)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
