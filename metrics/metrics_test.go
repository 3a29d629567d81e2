// SPDX-License-Identifier: MIT

package metrics_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
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
		runs.Option(), timewheel.WithPoolSize(1), timewheel.WithLogger(quiet))
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

// work gives the wheel one of everything: a run that takes half a second, a run that waits for it, missed periods, a
// panic, a withdrawn run and a removal. The pending tasks, and the waiting and running runs, stay so for half a second
// or more.
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
	add(t, tw, timewheel.Task{Key: "paused", Interval: time.Hour, Job: nothing})
	if err := tw.Pause("paused"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * tick)
	for _, key := range []string{"withdrawn", "removed"} {
		if err := tw.RemoveTask(key); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(2 * time.Second)
	add(t, tw, timewheel.Task{Key: "runs", Interval: tick, Job: func(*timewheel.Task) { time.Sleep(2 * time.Second) }})
	add(t, tw, timewheel.Task{Key: "waits again", Interval: 2 * tick, Job: nothing})
	testkit.Settle(100 * tick)
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
			"timewheel_tasks_paused":         float64(s.Paused),
			"timewheel_runs_due_total":       float64(s.Due),
			"timewheel_runs_started_total":   float64(s.Started),
			"timewheel_runs_missed_total":    float64(s.Missed),
			"timewheel_runs_withdrawn_total": float64(s.Withdrawn),
			"timewheel_runs_panicked_total":  float64(s.Panicked),
			"timewheel_runs_waiting":         float64(s.Waiting),
			"timewheel_runs_running":         float64(s.Running),
			"timewheel_workers":              float64(s.Workers),
			"timewheel_oldest_wait_seconds":  s.OldestWait.Seconds(),
			"timewheel_longest_run_seconds":  time.Since(tw.LongestRuns(1)[0].Started).Seconds(),
		} {
			m := find(t, c, name)
			got := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if got != want || want == 0 {
				t.Errorf("%s is %v, want %v, and not 0", name, got, want)
			}
			checkTypeAndLabel(t, name, m, "wheel", "sessions")
		}
		if s.OldestWait < 90*tick || s.OldestWait > 100*tick {
			t.Errorf("the oldest wait is %v, and should be about a second", s.OldestWait)
		}
		time.Sleep(3 * time.Second)
	})
}

// checkTypeAndLabel fails the test unless names that end with _total are counters, all others are gauges, and the label
// is the only one.
func checkTypeAndLabel(t *testing.T, name string, m *dto.Metric, label, value string) {
	t.Helper()
	if isCounter := strings.HasSuffix(name, "_total"); isCounter != (m.GetCounter() != nil) {
		t.Errorf("%s is of another type", name)
	}
	if l := m.GetLabel(); len(l) != 1 || l[0].GetName() != label || l[0].GetValue() != value {
		t.Errorf("%s has the labels %v", name, l)
	}
}

func TestCollector_stopped_isOneBeforeStartAndAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timewheel.NewTimeWheel(tick, 8)
		c := metrics.NewCollector(tw, "w")
		for _, step := range []struct {
			do   func()
			want float64
		}{{func() {}, 1}, {tw.Start, 0}, {tw.Stop, 1}} {
			step.do()
			if got := find(t, c, "timewheel_stopped").GetGauge().GetValue(); got != step.want {
				t.Errorf("timewheel_stopped is %v, want %v", got, step.want)
			}
		}
	})
}

// A fakeWheel returns the values to which it is set.
type fakeWheel struct {
	stats timewheel.Stats
	runs  []timewheel.Run
}

func (f *fakeWheel) Stats() timewheel.Stats          { return f.stats }
func (f *fakeWheel) IsRunning() bool                 { return true }
func (f *fakeWheel) LongestRuns(int) []timewheel.Run { return f.runs }

// Every number of a fake falls by one, as Started and Finished of a wheel may for an instant.
func TestCollector_countersNeverFall(t *testing.T) {
	stats := func(n int) timewheel.Stats {
		u := uint64(n)
		return timewheel.Stats{
			Added: u, Finished: u, Removed: u, Pending: n, Due: u, Started: u, Missed: u, Withdrawn: u, Panicked: u,
			Waiting: n, Running: n, Workers: n, OldestWait: time.Duration(n) * time.Second,
		}
	}
	f := &fakeWheel{}
	c := metrics.NewCollectorOf(f, "w")
	checkCounters(t, c, func(n int) { f.stats = stats(n) }, 8)
}

// checkCounters sets all numbers of a source to 5, to 4 and to 6, and fails the test unless the gauges follow
// and the counters stay.
func checkCounters(t *testing.T, c prometheus.Collector, set func(n int), counters int) {
	t.Helper()
	for _, step := range []struct {
		set            int
		counter, gauge float64
	}{{5, 5, 5}, {4, 5, 4}, {6, 6, 6}} {
		set(step.set)
		found := 0
		for _, f := range gather(t, c) {
			m := f.GetMetric()[0]
			if m.GetCounter() != nil {
				if found++; m.GetCounter().GetValue() != step.counter {
					t.Errorf("%s is %v, want %v", f.GetName(), m.GetCounter().GetValue(), step.counter)
				}
			} else if v := m.GetGauge().GetValue(); v != step.gauge && v > 1 {
				t.Errorf("%s is %v, want %v", f.GetName(), v, step.gauge)
			}
		}
		if found != counters {
			t.Errorf("there are %d counters, want %d", found, counters)
		}
	}
}

func TestCollector_longestRun_isZeroUntilItHasBegun(t *testing.T) {
	f := &fakeWheel{}
	c := metrics.NewCollectorOf(f, "w", metrics.WithRuns(metrics.NewRuns()))
	for _, runs := range [][]timewheel.Run{
		nil, {{Dispatched: time.Now().Add(-time.Hour)}}, {{Started: time.Now().Add(time.Hour)}},
	} {
		f.runs = runs
		if got := find(t, c, "timewheel_longest_run_seconds").GetGauge().GetValue(); got != 0 {
			t.Errorf("the longest of the runs %v has run for %v s", runs, got)
		}
	}
}

func TestRuns_buckets_areFineAroundATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, c := newWheel(t, "w")
		defer tw.Stop()
		buckets := find(t, c, "timewheel_run_wait_seconds").GetHistogram().GetBucket()
		if len(buckets) == 0 {
			t.Fatal("there are no buckets")
		}
		before := buckets[0].GetUpperBound()
		if before > 1e-4 {
			t.Errorf("the first bucket ends at %v s", before)
		}
		for _, b := range buckets[1:] {
			bound := b.GetUpperBound()
			if before >= 1e-3 && before < 1 && bound/before > 1.5+1e-9 {
				t.Errorf("between the bounds %v s and %v s is a factor of %.3f", before, bound, bound/before)
			}
			before = bound
		}
		if before < 60 {
			t.Errorf("the last bucket ends at %v s", before)
		}
	})
}

// The documentation says how many series a wheel has.
func TestCollector_series(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, c := newWheel(t, "w")
		defer tw.Stop()
		for _, kind := range []struct {
			c    prometheus.Collector
			want int
		}{{metrics.NewCollector(tw, "w"), 15}, {c, 109}} {
			if n := series(t, kind.c); n != kind.want {
				t.Errorf("there are %d series, want %d", n, kind.want)
			}
		}
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
			if len(h.GetBucket()) != 28 || h.GetSchema() == 0 || len(h.GetPositiveSpan()) == 0 && h.GetZeroCount() == 0 {
				t.Errorf("%s has %d classic buckets and the schema %d", name, len(h.GetBucket()), h.GetSchema())
			}
		}
	})
}

// gather returns the metrics of the collectors.
func gather(t *testing.T, of ...prometheus.Collector) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(of...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// series returns the number of the collector's series in the text format.
func series(t *testing.T, c prometheus.Collector) (n int) {
	t.Helper()
	for _, f := range gather(t, c) {
		var text bytes.Buffer
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
		n += strings.Count(text.String(), "\n") - 2 // HELP and TYPE
	}
	return n
}

func find(t *testing.T, c prometheus.Collector, name string) *dto.Metric {
	t.Helper()
	for _, f := range gather(t, c) {
		if f.GetName() == name {
			return f.GetMetric()[0]
		}
	}
	t.Fatalf("there is no %s", name)
	return nil
}

// lint fails the test if a name or text of the collector violates the conventions.
func lint(t *testing.T, c prometheus.Collector) {
	t.Helper()
	problems, err := testutil.CollectAndLint(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestCollector_names_followTheConventions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, c := newWheel(t, "w")
		defer tw.Stop()
		work(t, tw)
		lint(t, c)
		if n := testutil.CollectAndCount(c); n != 19 {
			t.Errorf("there are %d metrics, want 16 accounts and 3 histograms", n)
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
		if n := testutil.CollectAndCount(metrics.NewCollector(tw, "w")); n != 15 {
			t.Errorf("there are %d metrics, want 15", n)
		}
	})
}

// A mistake panics where it is made, rather than ending the process at the first scrape.
func TestNewCollector_ofNothing_panics(t *testing.T) {
	for what, do := range map[string]func(){
		"wheel":     func() { metrics.NewCollector(nil, "name") },
		"runs":      func() { metrics.WithRuns(nil) },
		"scheduler": func() { metrics.NewSchedulerCollector(nil, "name") },
		"attempts":  func() { metrics.WithAttempts(nil) },
		"engine":    func() { metrics.NewEngineCollector(nil, "name") },
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
