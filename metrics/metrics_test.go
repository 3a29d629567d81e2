// SPDX-License-Identifier: MIT

package metrics_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/metrics"
	"github.com/seed581295f1/timewheel/timewheel"
	"github.com/sirupsen/logrus"
)

const tick = 10 * time.Millisecond

// newWheel returns a started wheel, in a bubble, and its collector.
func newWheel(t *testing.T, name string) (*timewheel.TimeWheel, prometheus.Collector) {
	t.Helper()
	runs := metrics.NewRuns()
	quiet := logrus.New()
	quiet.SetOutput(t.Output())
	tw, err := timewheel.New(tick, 64,
		timewheel.WithObserver(runs.Observe), timewheel.WithPoolSize(1), timewheel.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	tw.Start()
	return tw, metrics.NewCollector(tw, name, metrics.WithRuns(runs))
}

func add(t *testing.T, tw *timewheel.TimeWheel, task timewheel.Task) {
	t.Helper()
	if err := tw.AddTask(&task); err != nil {
		t.Fatal(err)
	}
}

// work gives the wheel one of everything: a run that takes half a second, one that waits for it, missed
// periods, a panic, a withdrawn run and a removal. What is pending, waits and runs stays so for a second.
func work(t *testing.T, tw *timewheel.TimeWheel) {
	t.Helper()
	nothing := func(*timewheel.Task) {}
	add(t, tw, timewheel.Task{Key: "slow", Interval: tick, Job: func(*timewheel.Task) { time.Sleep(time.Second / 2) }})
	add(t, tw, timewheel.Task{Key: "waits", Interval: 2 * tick, Job: nothing})
	add(t, tw, timewheel.Task{Key: "repeats", Interval: 10 * tick, Times: 3, Job: nothing})
	add(t, tw, timewheel.Task{Key: "withdrawn", Interval: 3 * tick, Job: nothing})
	add(t, tw, timewheel.Task{Key: "panics", Interval: 60 * tick, Job: func(*timewheel.Task) { panic("on purpose") }})
	add(t, tw, timewheel.Task{Key: "removed", Interval: time.Hour, Job: nothing})
	add(t, tw, timewheel.Task{Key: "far", Interval: time.Hour, Job: nothing})
	time.Sleep(10 * tick)
	for _, key := range []string{"withdrawn", "removed"} {
		if err := tw.RemoveTask(key); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(2 * time.Second)
	add(t, tw, timewheel.Task{Key: "runs", Interval: tick, Job: func(*timewheel.Task) { time.Sleep(2 * time.Second) }})
	add(t, tw, timewheel.Task{Key: "waits again", Interval: 2 * tick, Job: nothing})
	testkit.Settle(10 * tick)
}

func TestCollector_tellsTheAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, c := newWheel(t, "sessions")
		defer tw.Stop()
		work(t, tw)
		s := tw.Stats()
		for name, want := range map[string]float64{
			"timewheel_tasks_added_total":    float64(s.Added),
			"timewheel_tasks_finished_total": float64(s.Finished),
			"timewheel_tasks_removed_total":  float64(s.Removed),
			"timewheel_tasks_pending":        float64(s.Pending),
			"timewheel_runs_due_total":       float64(s.Due),
			"timewheel_runs_started_total":   float64(s.Started),
			"timewheel_runs_missed_total":    float64(s.Missed),
			"timewheel_runs_withdrawn_total": float64(s.Withdrawn),
			"timewheel_runs_panicked_total":  float64(s.Panicked),
			"timewheel_runs_waiting":         float64(s.Waiting),
			"timewheel_runs_running":         float64(s.Running),
			"timewheel_workers":              float64(s.Workers),
			"timewheel_oldest_wait_seconds":  s.OldestWait.Seconds(),
		} {
			m := find(t, c, name)
			got := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if got != want || want == 0 {
				t.Errorf("%s is %v, want %v, and not 0", name, got, want)
			}
			if isCounter := strings.HasSuffix(name, "_total"); isCounter != (m.GetCounter() != nil) {
				t.Errorf("%s is of another type", name)
			}
			if l := m.GetLabel(); len(l) != 1 || l[0].GetName() != "wheel" || l[0].GetValue() != "sessions" {
				t.Errorf("%s has the labels %v", name, l)
			}
		}
		time.Sleep(3 * time.Second)
	})
}

func TestCollector_splitsTheLateness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, c := newWheel(t, "w")
		defer tw.Stop()
		at := time.Now().Add(time.Second)
		job := func(*timewheel.Task) { time.Sleep(300 * time.Millisecond) }
		add(t, tw, timewheel.Task{Key: "first", Interval: time.Until(at), Job: job})
		add(t, tw, timewheel.Task{Key: "waits", Interval: time.Until(at), Job: job})
		time.Sleep(2 * time.Second)
		for name, want := range map[string]struct{ least, most float64 }{
			"timewheel_run_tick_delay_seconds": {0, 2 * tick.Seconds()},
			"timewheel_run_wait_seconds":       {0.3, 0.3 + 1e-6}, // nothing, and the run of the first
			"timewheel_run_duration_seconds":   {0.6, 0.6 + 1e-6},
		} {
			h := find(t, c, name).GetHistogram()
			if n, sum := h.GetSampleCount(), h.GetSampleSum(); n != 2 || sum < want.least || sum > want.most {
				t.Errorf("%s has %d observations, %v in all, want 2 and %v to %v", name, n, sum, want.least, want.most)
			}
			if len(h.GetBucket()) != 14 || h.GetSchema() == 0 || len(h.GetPositiveSpan()) == 0 && h.GetZeroCount() == 0 {
				t.Errorf("%s has %d classic buckets and the schema %d", name, len(h.GetBucket()), h.GetSchema())
			}
		}
	})
}

func find(t *testing.T, c prometheus.Collector, name string) *dto.Metric {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0]
		}
	}
	t.Fatalf("there is no %s", name)
	return nil
}

func TestCollector_names_followTheConventions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, c := newWheel(t, "w")
		defer tw.Stop()
		work(t, tw)
		problems, err := testutil.CollectAndLint(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
		if n := testutil.CollectAndCount(c); n != 16 {
			t.Errorf("there are %d metrics, want 13 accounts and 3 histograms", n)
		}
		time.Sleep(3 * time.Second)
	})
}

func TestCollector_severalWheels_shareARegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		for _, name := range []string{"a", "b"} {
			tw, c := newWheel(t, name)
			defer tw.Stop()
			if err := registry.Register(c); err != nil {
				t.Fatal(err)
			}
			if err := registry.Register(c); err == nil {
				t.Error("the same wheel is registered twice")
			}
		}
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				if _, err := registry.Gather(); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
	})
}

func TestCollector_withoutRuns_hasTheAccountsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timewheel.NewTimeWheel(tick, 8)
		defer tw.Stop()
		if n := testutil.CollectAndCount(metrics.NewCollector(tw, "w")); n != 13 {
			t.Errorf("there are %d metrics, want 13", n)
		}
	})
}

// A mistake panics where it is made, and does not wait for the first scrape to end the process.
func TestNewCollector_ofNothing_panics(t *testing.T) {
	for what, do := range map[string]func(){
		"wheel": func() { metrics.NewCollector(nil, "name") },
		"runs":  func() { metrics.WithRuns(nil) },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.Contains(text, what) {
					t.Errorf("a nil %s panics with %q", what, text)
				}
			}()
			do()
		}()
	}
}
