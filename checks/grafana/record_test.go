// SPDX-License-Identifier: MIT

package grafana

import (
	"bytes"
	"context"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/metrics"
	"github.com/seed581295f1/timewheel/timewheel"
)

// The labels that Prometheus adds to scraped series, and the scrape interval.
const (
	job      = "shop"
	instance = "10.0.0.1:9090"
	every    = 15 * time.Second
)

// A scrape contains the metrics of a registry at one time.
type scrape struct {
	at       time.Time
	families []*dto.MetricFamily
}

// names returns the metrics of the scrape, each with the wheels or schedulers that have it.
func (s scrape) names() map[string][]string {
	all := make(map[string][]string)
	for _, f := range s.families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if name := l.GetName(); name == "wheel" || name == "scheduler" {
					all[f.GetName()] = add(all[f.GetName()], l.GetValue())
				}
			}
		}
	}
	return all
}

// add puts a value into a sorted set.
func add(set []string, value string) []string {
	i, there := slices.BinarySearch(set, value)
	if there {
		return set
	}
	return slices.Insert(set, i, value)
}

// record runs a program in a bubble of virtual time, and returns n scrapes of its registry.
func record(t *testing.T, n int, program func(t *testing.T, registry *prometheus.Registry)) (scrapes []scrape) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		program(t, registry)
		for range n {
			testkit.Settle(every)
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			scrapes = append(scrapes, scrape{time.Now(), families})
		}
	})
	return scrapes
}

// newWheel returns a started wheel whose collector is registered.
func newWheel(t *testing.T, registry *prometheus.Registry, name string, workers int) *timewheel.TimeWheel {
	t.Helper()
	runs := metrics.NewRuns()
	tw := timewheel.NewTimeWheel(10*time.Millisecond, 64,
		runs.Option(), timewheel.WithPoolSize(workers), timewheel.WithLogger(testkit.Quiet()))
	registry.MustRegister(metrics.NewCollector(tw, name, metrics.WithRuns(runs)))
	tw.Start()
	t.Cleanup(tw.Stop)
	return tw
}

func addTask(t *testing.T, tw *timewheel.TimeWheel, task timewheel.Task) {
	t.Helper()
	if err := tw.AddTask(&task); err != nil {
		t.Fatal(err)
	}
}

// newScheduler returns a started scheduler with one worker that handles the kinds. Its collector is registered.
func newScheduler(t *testing.T, registry *prometheus.Registry, name string, on engine.Engine,
	kinds map[string]durable.Handler,
) *durable.Scheduler {
	t.Helper()
	s, err := durable.New(context.Background(), on, durable.WithPoolSize(1), durable.WithLogger(testkit.Quiet()))
	if err != nil {
		t.Fatal(err)
	}
	return begin(t, registry, name, s, kinds)
}

// newNode is newScheduler for a node of a cluster.
func newNode(t *testing.T, registry *prometheus.Registry, name string, on engine.Engine,
	kinds map[string]durable.Handler,
) *durable.Scheduler {
	t.Helper()
	s, err := durable.New(context.Background(), on, durable.WithLogger(testkit.Quiet()))
	if err != nil {
		t.Fatal(err)
	}
	return begin(t, registry, name, s, kinds)
}

func begin(t *testing.T, registry *prometheus.Registry, name string, s *durable.Scheduler,
	kinds map[string]durable.Handler,
) *durable.Scheduler {
	t.Helper()
	attempts := metrics.NewAttempts()
	for kind, h := range kinds {
		err := s.Handle(kind, observed(attempts, h), durable.WithRetry(1, time.Second, time.Second))
		if err != nil {
			t.Fatal(err)
		}
	}
	registry.MustRegister(metrics.NewSchedulerCollector(s, name, metrics.WithAttempts(attempts)))
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stopped, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Shutdown(stopped) // the error is about a run in progress, or a failed store
	})
	return s
}

// observed returns a handler whose calls are observed.
func observed(attempts *metrics.Attempts, h durable.Handler) durable.Handler {
	return func(ctx context.Context, run durable.Run) error {
		began := time.Now()
		defer func() {
			attempts.Observe(durable.Attempt{
				Token: run.Token, Kind: run.Kind, Attempt: run.Attempt, Due: run.Due, Started: began, Ended: time.Now(),
			})
		}()
		return h(ctx, run)
	}
}

func addDurable(t *testing.T, s *durable.Scheduler, task durable.Task) {
	t.Helper()
	if err := s.AddTask(context.Background(), task); err != nil {
		t.Fatal(err)
	}
}

// A sized KV is a KV for one process that knows its size.
type sized struct{ *memory.KV }

func (sized) Exclusive() {}

func (sized) Size() int64 { return 1 << 20 }

// A healthy engine is an engine on a server without trouble.
type healthy struct{ engine.Engine }

func (healthy) Health(context.Context) (engine.Health, error) {
	return engine.Health{OldestTransaction: time.Millisecond, DeadRows: 100, Size: 1 << 20, Replicated: true, Standbys: 2}, nil
}

// steady is a program without trouble: two wheels, two schedulers on engines of their own and two on shared engines, each
// with a task that runs every second.
func steady(t *testing.T, registry *prometheus.Registry) {
	for _, name := range []string{"a", "b"} {
		tw := newWheel(t, registry, name, 8)
		addTask(t, tw, timewheel.Task{
			Key: "k", Interval: time.Second, Times: timewheel.Forever, Job: func(*timewheel.Task) {},
		})
		works := map[string]durable.Handler{"kind": func(context.Context, durable.Run) error { return nil }}
		node, engine := "node "+name, healthy{memory.New().Shared()}
		registry.MustRegister(metrics.NewEngineCollector(engine, node))
		own, err := kv.New(context.Background(), sized{memory.New()})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*durable.Scheduler{
			newScheduler(t, registry, name, own, works), newNode(t, registry, node, engine, works),
		} {
			addDurable(t, s, durable.Task{Key: "k", Kind: "kind", Interval: time.Second, Times: durable.Forever})
		}
	}
}

// store puts the scrapes into a database of Prometheus that accepts native or classic histograms.
func store(t *testing.T, scrapes []scrape, native bool) *tsdb.DB {
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
	for _, s := range scrapes {
		app := db.Appender(context.Background())
		ingest(t, app, s.families, native, s.at.UnixMilli())
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

func newEngine() *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1_000_000, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
	})
}

// ingest appends the metrics of a registry as Prometheus' scraper does. It uses Prometheus' parser for the text format,
// with classic histograms, or for protocol buffers, with native ones.
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
		var exported labels.Labels
		switch entry {
		case textparse.EntrySeries:
			parser.Labels(&exported)
			_, _, value := parser.Series()
			_, err = app.Append(0, scraped(exported), at, value)
		case textparse.EntryHistogram:
			parser.Labels(&exported)
			_, _, h, fh := parser.Histogram()
			_, err = app.AppendHistogram(0, scraped(exported), at, h, fh)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// scraped returns the labels of a series with the labels that Prometheus adds.
func scraped(exported labels.Labels) labels.Labels {
	return labels.NewBuilder(exported).Set("job", job).Set("instance", instance).Labels()
}
