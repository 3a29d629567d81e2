// SPDX-License-Identifier: MIT

package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/metrics"
)

var ctx = context.Background()

// newScheduler returns a started scheduler with one worker on the engine. It handles the kinds "slow", whose
// runs take a minute, and "fail", whose runs fail and park the task.
func newScheduler(t *testing.T, on engine.Engine) *durable.Scheduler {
	t.Helper()
	s, err := durable.New(ctx, on, durable.WithPoolSize(1), durable.WithLogger(testkit.Quiet()))
	if err != nil {
		t.Fatal(err)
	}
	handle(t, s, "slow", func(ctx context.Context, _ durable.Run) error {
		select {
		case <-time.After(time.Minute):
		case <-ctx.Done():
		}
		return nil
	})
	handle(t, s, "fail", func(context.Context, durable.Run) error { return errors.New("on purpose") })
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

func handle(t *testing.T, s *durable.Scheduler, kind string, h durable.Handler) {
	t.Helper()
	if err := s.Handle(kind, h, durable.WithRetry(1, time.Second, time.Second)); err != nil {
		t.Fatal(err)
	}
}

func addDurable(t *testing.T, s *durable.Scheduler, kind string, delay time.Duration, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if err := s.AddTask(ctx, durable.Task{Key: key, Kind: kind, Delay: delay}); err != nil {
			t.Fatal(err)
		}
	}
}

// inTrouble returns a scheduler that has something of everything for a minute. It has added, removed and parked tasks,
// a task whose kind has no handler, a run that succeeded, one in progress and two waiting for it.
func inTrouble(t *testing.T) *durable.Scheduler {
	t.Helper()
	m := memory.New()
	before := newScheduler(t, m.Engine())
	handle(t, before, "forgotten", func(context.Context, durable.Run) error { return nil })
	addDurable(t, before, "forgotten", time.Minute, "unhandled")
	left := m.Clone().Engine()
	if err := before.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	s := newScheduler(t, left)
	addDurable(t, s, "fail", time.Second, "a", "b")
	addDurable(t, s, "slow", 2*time.Second, "done")
	repeats := durable.Task{Key: "given up", Kind: "fail", Delay: time.Second, Interval: time.Hour, Times: durable.Forever}
	if err := s.AddTask(ctx, repeats); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Minute)
	addDurable(t, s, "slow", time.Second, "runs", "waits", "waits too")
	addDurable(t, s, "slow", time.Hour, "removed")
	if err := s.RemoveTask(ctx, "removed"); err != nil {
		t.Fatal(err)
	}
	testkit.Settle(10 * time.Second)
	return s
}

func TestSchedulerCollector_reportsTheAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inTrouble(t)
		defer func() {
			if err := s.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		}()
		c := metrics.NewSchedulerCollector(s, "orders")
		stats := s.Stats()
		for name, want := range map[string]int{
			"timewheel_durable_tasks_pending":        stats.Pending,
			"timewheel_durable_tasks_parked":         stats.Parked,
			"timewheel_durable_tasks_unhandled":      stats.Unhandled,
			"timewheel_durable_tasks_added_total":    int(stats.Added),
			"timewheel_durable_tasks_removed_total":  int(stats.Removed),
			"timewheel_durable_runs_waiting":         stats.Waiting,
			"timewheel_durable_runs_running":         stats.Running,
			"timewheel_durable_workers":              stats.Workers,
			"timewheel_durable_runs_started_total":   int(stats.Started),
			"timewheel_durable_runs_succeeded_total": int(stats.Succeeded),
			"timewheel_durable_runs_failed_total":    int(stats.Failed),
			"timewheel_durable_runs_parked_total":    int(stats.ParkedTotal),
			"timewheel_durable_runs_given_up_total":  int(stats.GivenUp),
			"timewheel_durable_commit_changes_total": int(stats.Changes),
		} {
			m := find(t, c, name)
			got := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if got != float64(want) || want == 0 {
				t.Errorf("%s is %v, want %v, and not 0", name, got, want)
			}
			checkTypeAndLabel(t, name, m, "scheduler", "orders")
		}
		lint(t, c)
		if got := find(t, c, "timewheel_durable_oldest_wait_seconds").GetGauge().GetValue(); got != stats.OldestWait.Seconds() || got == 0 {
			t.Errorf("the oldest wait is %v, want %v, and not 0", got, stats.OldestWait)
		}
		h := find(t, c, "timewheel_durable_commit_duration_seconds").GetHistogram()
		if h.GetSampleCount() != stats.Commits.Count || len(h.GetBucket()) != durable.TimingBuckets {
			t.Errorf("of %d commits the histogram is %v", stats.Commits.Count, h)
		}
	})
}

func TestSchedulerCollector_storeFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		s := newScheduler(t, m.Engine())
		c := metrics.NewSchedulerCollector(s, "orders")
		failed := func() float64 { return find(t, c, "timewheel_durable_store_failed").GetGauge().GetValue() }
		addDurable(t, s, "slow", time.Hour, "a")
		if failed() != 0 {
			t.Error("the store has failed before it did")
		}
		m.SetFault(errors.New("the disk is full"))
		if err := s.AddTask(ctx, durable.Task{Key: "b", Kind: "slow", Delay: time.Hour}); err == nil {
			t.Fatal("a task was added to a broken store")
		}
		if failed() != 1 {
			t.Error("the store has failed, and timewheel_durable_store_failed is 0")
		}
		if err := s.Shutdown(ctx); err == nil {
			t.Error("the shutdown reports nothing")
		}
		if pending := find(t, c, "timewheel_durable_tasks_pending").GetGauge().GetValue(); pending != 0 {
			t.Errorf("after Shutdown %v tasks are pending", pending)
		}
	})
}

// A fakeScheduler returns the values to which it is set. While it hangs, no call returns before the end of its context.
type fakeScheduler struct {
	stats    durable.Stats
	kinds    []durable.KindInfo
	census   durable.Counts
	catchUp  durable.CatchUp
	counting bool // the first counts are not finished
	nodes    []durable.NodeInfo
	pauses   durable.Pauses
	hangs    bool
}

func (f *fakeScheduler) Stats() durable.Stats      { return f.stats }
func (f *fakeScheduler) Err() error                { return nil }
func (f *fakeScheduler) Kinds() []durable.KindInfo { return f.kinds }

func (f *fakeScheduler) Counts(ctx context.Context) (durable.Counts, error) {
	census := f.census
	census.Whole = !f.counting
	return census, f.answer(ctx)
}

func (f *fakeScheduler) CatchUp(ctx context.Context) (durable.CatchUp, error) {
	behind := f.catchUp
	behind.Cut = f.counting
	return behind, f.answer(ctx)
}

func (f *fakeScheduler) Nodes(ctx context.Context) ([]durable.NodeInfo, error) {
	return f.nodes, f.answer(ctx)
}

func (f *fakeScheduler) Paused(ctx context.Context) (durable.Pauses, error) {
	return f.pauses, f.answer(ctx)
}

func (f *fakeScheduler) answer(ctx context.Context) error {
	if !f.hangs {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestSchedulerCollector_countersNeverFall(t *testing.T) {
	f := &fakeScheduler{}
	checkCounters(t, metrics.NewSchedulerCollectorOf(f, "orders"), func(n int) {
		u := uint64(n)
		f.stats = durable.Stats{
			Pending: n, Waiting: n, Running: n, Parked: n, Unhandled: n,
			Added: u, Removed: u, ParkedTotal: u, GivenUp: u, Started: u, Retried: u, Succeeded: u, Failed: u, Changes: u, Expired: u, Snoozed: u,
			Disk: durable.DiskStats{Store: int64(n)},
			Node: &durable.NodeStats{CallsFailed: u, Claimed: u, TakenOver: u, StartsRefused: u, EndsRefused: u},
		}
		f.catchUp = durable.CatchUp{Kinds: []durable.KindCatchUp{{Kind: "k", Left: n, Oldest: time.Now().Add(time.Hour)}}}
	}, 16)
}

// node returns a fake of a node, with a different value for each metric.
func node() *fakeScheduler {
	timing := durable.Timing{Count: 6, Total: 3 * time.Second}
	timing.Buckets[0], timing.Buckets[5] = 1, 3
	return &fakeScheduler{
		stats: durable.Stats{
			Retried: 1, Changes: 2, Disk: durable.DiskStats{Store: 3}, Commits: timing,
			Node: &durable.NodeStats{
				Lease: 4 * time.Second, LeaseAge: 5 * time.Second, Away: true, Unheard: "it is silent", Calls: timing, CallsFailed: 6,
				Claimed: 7, TakenOver: 8, StartsRefused: 9, EndsRefused: 10,
			},
		},
		catchUp: durable.CatchUp{Kinds: []durable.KindCatchUp{
			{Kind: "mail", Left: 11, Oldest: time.Now().Add(-12 * time.Second)},
		}},
		kinds:  []durable.KindInfo{{Kind: "mail", Running: 17, Longest: 18 * time.Second, Started: 13, Succeeded: 14, Failed: 15, ParkedTotal: 16, GivenUp: 19, GivenUpAgain: 20}},
		census: durable.Counts{Kinds: []durable.KindCounts{{Kind: "mail", Tasks: 100, Failing: 30, Parked: 10, Paused: 5}}},
	}
}

func TestSchedulerCollector_reportsTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := metrics.NewSchedulerCollectorOf(node(), "orders")
		for name, want := range map[string]float64{
			"timewheel_durable_runs_retried_total":             1,
			"timewheel_durable_commit_changes_total":           2,
			"timewheel_durable_store_size_bytes":               3,
			"timewheel_durable_lease_seconds":                  4,
			"timewheel_durable_lease_age_seconds":              5,
			"timewheel_durable_engine_away":                    1,
			"timewheel_durable_engine_unheard":                 1,
			"timewheel_durable_engine_calls_failed_total":      6,
			"timewheel_durable_claims_total":                   7,
			"timewheel_durable_takeovers_total":                8,
			"timewheel_durable_confirmations_refused_total":    9,
			"timewheel_durable_acknowledgements_refused_total": 10,
		} {
			m := find(t, c, name)
			if got := m.GetCounter().GetValue() + m.GetGauge().GetValue(); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
			checkTypeAndLabel(t, name, m, "scheduler", "orders")
		}
		for _, name := range []string{
			"timewheel_durable_commit_duration_seconds", "timewheel_durable_engine_call_duration_seconds",
		} {
			h := find(t, c, name).GetHistogram()
			counts := map[int]uint64{0: 1, 4: 1, 5: 4, durable.TimingBuckets - 1: 4}
			for i, want := range counts {
				b := h.GetBucket()[i]
				if b.GetCumulativeCount() != want || b.GetUpperBound() != durable.TimingBound(i).Seconds() {
					t.Errorf("%s: bucket %d is %v, want %d", name, i, b, want)
				}
			}
			if h.GetSampleCount() != 6 || h.GetSampleSum() != 3 {
				t.Errorf("%s is %v", name, h)
			}
		}
		lint(t, c)
	})
}

// A scheduler from Connect has an engine but no lease: it does not count as a node.
func TestSchedulerCollector_ofNoMember_hasNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := node()
		f.stats.Node.Lease, f.stats.Node.LeaseAge = 0, 0
		c := metrics.NewSchedulerCollectorOf(f, "orders")
		for _, name := range []string{"timewheel_durable_lease_seconds", "timewheel_durable_lease_age_seconds"} {
			is(t, c, name, map[string]float64{})
		}
		is(t, c, "timewheel_durable_engine_away", map[string]float64{"": 1})
	})
}

// byLabels returns the values of a metric by its label values, without the first label, the scheduler.
func byLabels(t *testing.T, c prometheus.Collector, name string) map[string]float64 {
	t.Helper()
	all := make(map[string]float64)
	for _, f := range gather(t, c) {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetName() != "scheduler" {
					labels = append(labels, l.GetValue())
				}
			}
			all[strings.Join(labels, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return all
}

func is(t *testing.T, c prometheus.Collector, name string, want map[string]float64) {
	t.Helper()
	if got := byLabels(t, c, name); !maps.Equal(got, want) {
		t.Errorf("%s is %v, want %v", name, got, want)
	}
}

func TestSchedulerCollector_kinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := node()
		c := metrics.NewSchedulerCollectorOf(f, "orders")
		is(t, c, "timewheel_durable_kind_tasks",
			map[string]float64{"mail scheduled": 65, "mail failing": 20, "mail parked": 10, "mail paused": 5})
		for name, want := range map[string]float64{"started": 13, "succeeded": 14, "failed": 15, "parked": 16, "given_up": 19, "given_up_again": 20} {
			is(t, c, "timewheel_durable_kind_runs_"+name+"_total", map[string]float64{"mail": want})
		}
		is(t, c, "timewheel_durable_kind_runs_running", map[string]float64{"mail": 17})
		is(t, c, "timewheel_durable_kind_longest_run_seconds", map[string]float64{"mail": 18})
		const backlog, age = "timewheel_durable_kind_backlog_tasks", "timewheel_durable_kind_backlog_age_seconds"
		f.kinds = append(f.kinds, durable.KindInfo{Kind: "sms"})
		is(t, c, backlog, map[string]float64{"mail": 11, "sms": 0})
		is(t, c, age, map[string]float64{"mail": 12, "sms": 0})
		f.kinds = nil // its handler was registered just now
		is(t, c, backlog, map[string]float64{"mail": 11})
		// Kinds that are not valid text are converted to text, and kinds with the same text are merged.
		f.kinds = []durable.KindInfo{{Kind: "\xff", Started: 1}, {Kind: "\xfe", Started: 2}}
		is(t, c, "timewheel_durable_kind_runs_started_total", map[string]float64{"\uFFFD": 3})
	})
}

// Unfinished counts are left out, and a part is never reported as the whole. The age of the oldest overdue task is
// known.
func TestSchedulerCollector_whileItIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := node()
		f.kinds = append(f.kinds, durable.KindInfo{Kind: "sms"})
		f.counting = true
		c := metrics.NewSchedulerCollectorOf(f, "orders")
		is(t, c, "timewheel_durable_kind_tasks", map[string]float64{})
		is(t, c, "timewheel_durable_kind_backlog_tasks", map[string]float64{})
		is(t, c, "timewheel_durable_kind_backlog_age_seconds", map[string]float64{"mail": 12})
		f.counting = false
		is(t, c, "timewheel_durable_kind_backlog_tasks", map[string]float64{"mail": 11, "sms": 0})
	})
}

// However many kinds there are, the series are bounded, and no kind changes its label.
func TestSchedulerCollector_manyKinds_areOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeScheduler{kinds: []durable.KindInfo{{Kind: "last", Started: 1000}}}
		c := metrics.NewSchedulerCollectorOf(f, "orders")
		byLabels(t, c, "")
		f.kinds = nil
		for i := range 150 {
			kind := fmt.Sprintf("kind %03d", i)
			f.kinds = append(f.kinds, durable.KindInfo{Kind: kind, Started: 1})
			f.census.Kinds = append(f.census.Kinds, durable.KindCounts{Kind: kind, Tasks: 3, Failing: 1, Parked: 1, Paused: 1})
		}
		f.kinds = append(f.kinds, durable.KindInfo{Kind: "last", Started: 1000})
		for _, k := range f.kinds[90:150] {
			f.catchUp.Kinds = append(f.catchUp.Kinds, durable.KindCatchUp{
				Kind: k.Kind, Left: 2, Oldest: time.Now().Add(-time.Duration(len(f.catchUp.Kinds)) * time.Second),
			})
		}
		started := byLabels(t, c, "timewheel_durable_kind_runs_started_total")
		if len(started) != 101 || started["last"] != 1000 || started["kind 098"] != 1 || started["other"] != 51 {
			t.Errorf("%d kinds, the last %v, the other %v", len(started), started["last"], started["other"])
		}
		backlog, age := "timewheel_durable_kind_backlog_tasks", "timewheel_durable_kind_backlog_age_seconds"
		if tasks, ages := byLabels(t, c, backlog), byLabels(t, c, age); len(tasks) != 101 || tasks["last"] != 0 ||
			tasks["kind 098"] != 2 || tasks["other"] != 2*51 || ages["kind 098"] != 8 || ages["other"] != 59 {
			t.Errorf("%d kinds have a backlog, the other %v for %v s", len(tasks), tasks["other"], ages["other"])
		}
		tasks := byLabels(t, c, "timewheel_durable_kind_tasks")
		if len(tasks) != 400 || tasks["other scheduled"] != 51 || tasks["other parked"] != 51 || tasks["other paused"] != 51 {
			t.Errorf("%d series, the other %v, %v and %v", len(tasks), tasks["other scheduled"], tasks["other parked"],
				tasks["other paused"])
		}
	})
}

func TestSchedulerCollector_unhandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "timewheel_durable_kind_unhandled_seconds"
		due := func(kind string, age time.Duration) durable.KindCatchUp {
			return durable.KindCatchUp{Kind: kind, Left: 1, Oldest: time.Now().Add(-age)}
		}
		f := &fakeScheduler{
			kinds: []durable.KindInfo{{Kind: "here"}},
			nodes: []durable.NodeInfo{
				{NodeReport: durable.NodeReport{Workers: 1}},
				{NodeReport: durable.NodeReport{Workers: 1, Kinds: []string{"there"}}},
			},
			catchUp: durable.CatchUp{
				Kinds:  []durable.KindCatchUp{due("here", time.Hour)},
				Others: []durable.KindCatchUp{due("there", time.Hour), due("nowhere", time.Minute)},
			},
		}
		for _, kind := range []string{"here", "there", "parked", "paused", "nowhere", "not due"} {
			k := durable.KindCounts{Kind: kind, Tasks: 1}
			switch kind {
			case "parked":
				k.Failing, k.Parked = 1, 1
			case "paused":
				k.Paused = 1
			}
			f.census.Kinds = append(f.census.Kinds, k)
		}
		c := metrics.NewSchedulerCollectorOf(f, "orders")
		is(t, c, name, map[string]float64{
			"here": 0, "there": 0, "parked": 0, "paused": 0, "nowhere": 60, "not due": 0,
		})
		f.counting = true
		is(t, c, name, map[string]float64{"here": 0, "there": 0, "parked": 0, "paused": 0, "nowhere": 60})
		f.counting = false
		f.nodes[0].Self, f.nodes[0].Drained = true, true
		is(t, c, name, map[string]float64{
			"here": 3600, "there": 0, "parked": 0, "paused": 0, "nowhere": 60, "not due": 0,
		})
		f.nodes[0].Self, f.nodes[0].Drained = false, false
		const paused = "timewheel_durable_kind_paused"
		is(t, c, paused, map[string]float64{"here": 0, "there": 0, "parked": 0, "paused": 0, "nowhere": 0, "not due": 0})
		const limited = "timewheel_durable_kind_runs_limited"
		is(t, c, limited, map[string]float64{"here": 0})
		f.kinds[0].Waiting = 12
		is(t, c, limited, map[string]float64{"here": 12})
		f.kinds[0].Paused = true
		for i, k := range f.census.Kinds {
			f.census.Kinds[i].KindPaused = k.Kind == "nowhere" || k.Kind == "there"
		}
		is(t, c, paused, map[string]float64{"here": 1, "there": 1, "parked": 0, "paused": 0, "nowhere": 1, "not due": 0})
		is(t, c, name, map[string]float64{"here": 0, "there": 0, "parked": 0, "paused": 0, "nowhere": 0, "not due": 0})
		for _, unknown := range []durable.NodeReport{
			{}, // it joined just now
			{Workers: 1, Kinds: []string{"there"}, More: true}, // its report has no room for all its kinds
		} {
			f.nodes[1].NodeReport = unknown
			is(t, c, name, map[string]float64{})
		}
	})
}

// A pause is exported with its age and its due tasks, whether it is of the kind or of all kinds.
func TestSchedulerCollector_pauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age, due = "timewheel_durable_kind_paused_seconds", "timewheel_durable_kind_paused_due_tasks"
		f := &fakeScheduler{catchUp: durable.CatchUp{Others: []durable.KindCatchUp{{Kind: "mail", Left: 3}, {Kind: "sms", Left: 1}}}}
		for _, kind := range []string{"mail", "sms"} {
			f.census.Kinds = append(f.census.Kinds, durable.KindCounts{Kind: kind, Tasks: 5})
		}
		c := metrics.NewSchedulerCollectorOf(f, "orders")
		is(t, c, age, map[string]float64{"mail": 0, "sms": 0})
		is(t, c, due, map[string]float64{"mail": 0, "sms": 0})
		f.pauses = durable.Pauses{Kinds: []string{"mail", "no tasks"}, By: map[string]durable.Pause{
			"mail": {At: time.Now().Add(-time.Hour)}, "no tasks": {At: time.Now().Add(-time.Minute)},
		}}
		is(t, c, age, map[string]float64{"mail": 3600, "sms": 0, "no tasks": 60})
		is(t, c, due, map[string]float64{"mail": 3, "sms": 0, "no tasks": 0})
		f.pauses.All, f.pauses.By[""] = true, durable.Pause{At: time.Now().Add(-2 * time.Hour)}
		is(t, c, age, map[string]float64{"mail": 7200, "sms": 7200})
		is(t, c, due, map[string]float64{"mail": 3, "sms": 1})
		f.catchUp.Others, f.counting = f.catchUp.Others[:1], true // the others are not counted yet
		is(t, c, due, map[string]float64{"mail": 3})
	})
}

// A scrape ends even if the engine does not answer, with the metrics that do not need it.
func TestSchedulerCollector_engineHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := node()
		f.hangs = true
		c := metrics.NewSchedulerCollectorOf(f, "orders")
		began := time.Now()
		is(t, c, "timewheel_durable_kind_tasks", map[string]float64{})
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("a scrape takes %v", took)
		}
		is(t, c, "timewheel_durable_kind_backlog_tasks", map[string]float64{})
		is(t, c, "timewheel_durable_engine_away", map[string]float64{"": 1})
		is(t, c, "timewheel_durable_kind_runs_started_total", map[string]float64{"mail": 13})
	})
}

// A store has no metrics of a node, and no size if it does not know it.
func TestSchedulerCollector_ofAStore_hasNoNode(t *testing.T) {
	c := metrics.NewSchedulerCollectorOf(&fakeScheduler{}, "orders")
	for _, f := range gather(t, c) {
		for _, part := range []string{"lease", "engine", "claims", "takeovers", "refused", "store_size"} {
			if strings.Contains(f.GetName(), part) {
				t.Errorf("a store has %s", f.GetName())
			}
		}
	}
}

func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := metrics.NewAttempts()
		c := metrics.NewSchedulerCollectorOf(&fakeScheduler{}, "orders", metrics.WithAttempts(a))
		due := time.Now()
		observe := func(kind string, late, took time.Duration) {
			a.Observe(durable.Attempt{
				Kind: kind, Due: due, Started: due.Add(late), Ended: due.Add(late + took),
			})
		}
		var all sync.WaitGroup
		for i := range 150 {
			all.Go(func() {
				for range 3 {
					observe(fmt.Sprint(i), time.Second, 4*time.Second)
				}
			})
		}
		all.Wait()
		found := 0
		for _, f := range gather(t, c) {
			sum := map[string]float64{
				"timewheel_durable_run_lateness_seconds": 1, "timewheel_durable_run_duration_seconds": 4,
			}[f.GetName()]
			if sum == 0 {
				continue
			}
			found++
			if len(f.GetMetric()) != 101 {
				t.Errorf("%s has %d kinds", f.GetName(), len(f.GetMetric()))
			}
			for _, m := range f.GetMetric() {
				want := uint64(3)
				if m.GetLabel()[0].GetValue() == "other" {
					want = 50 * 3
				}
				h := m.GetHistogram()
				if h.GetSampleCount() != want || h.GetSampleSum() != float64(want)*sum || len(h.GetBucket()) != 28 ||
					len(h.GetPositiveSpan()) == 0 {
					t.Errorf("%s: %v", f.GetName(), m)
				}
			}
		}
		if found != 2 {
			t.Errorf("%d of the histograms are there", found)
		}
		lint(t, c)
	})
}

// A fakeEngine reports its health, or an error, or hangs.
type fakeEngine struct {
	health engine.Health
	err    error
	hangs  bool
}

func (f *fakeEngine) Health(ctx context.Context) (engine.Health, error) {
	if f.hangs {
		<-ctx.Done()
		return f.health, ctx.Err()
	}
	return f.health, f.err
}

func TestEngineCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{health: engine.Health{OldestTransaction: time.Minute, DeadRows: 7, NoVacuum: "on this server", Size: 8, Unflushed: true,
			Replicated: true, Standbys: 2, Refused: 3}}
		c := metrics.NewEngineCollector(e, "orders")
		for name, want := range map[string]float64{
			"timewheel_durable_engine_oldest_transaction_seconds": 60,
			"timewheel_durable_engine_dead_rows":                  7,
			"timewheel_durable_engine_autovacuum":                 0,
			"timewheel_durable_engine_size_bytes":                 8,
			"timewheel_durable_engine_flushed":                    0,
			"timewheel_durable_engine_replicated":                 1,
			"timewheel_durable_engine_synchronous_standbys":       2,
			"timewheel_durable_engine_servers_refused_total":      3,
		} {
			m := find(t, c, name)
			if got := m.GetGauge().GetValue() + m.GetCounter().GetValue(); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
			checkTypeAndLabel(t, name, m, "scheduler", "orders")
		}
		lint(t, c)
		e.err = errors.New("on purpose")
		if n := testutil.CollectAndCount(c); n != 0 {
			t.Errorf("%d metrics of an engine that is away", n)
		}
		e.hangs = true
		began := time.Now()
		if n := testutil.CollectAndCount(c); n != 0 || time.Since(began) != 2*time.Second {
			t.Errorf("%d metrics of an engine that hangs, after %v", n, time.Since(began))
		}
	})
}

// everything returns a fake that has a value for every metric.
func everything() *fakeScheduler {
	f := node()
	f.nodes = []durable.NodeInfo{{NodeReport: durable.NodeReport{Workers: 1}}}
	return f
}

// The documentation says how many series a scheduler has.
func TestSchedulerCollector_series(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := metrics.NewAttempts()
		attempts.Observe(durable.Attempt{Kind: "mail"})
		of := func(f *fakeScheduler, opts ...metrics.SchedulerOption) int {
			return series(t, metrics.NewSchedulerCollectorOf(f, "orders", opts...))
		}
		store, without := everything(), everything()
		store.stats.Node = nil
		without.kinds, without.census.Kinds, without.catchUp.Kinds = nil, nil, nil
		all, node := of(everything()), of(without)
		got := []int{of(store) - (all - node), node, all - node, of(everything(), metrics.WithAttempts(attempts)) - all}
		if want := []int{41, 71, 20, 62}; !slices.Equal(got, want) {
			t.Errorf("of a store, a node, a kind, and with attempts there are %d series, want %d", got, want)
		}
	})
}

// gatherAll returns all metrics of this package.
func gatherAll(t *testing.T) (families []*dto.MetricFamily) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tw, wheel := newWheel(t, "w")
		defer tw.Stop()
		s := newScheduler(t, memory.New().Engine())
		defer func() {
			if err := s.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		}()
		attempts := metrics.NewAttempts()
		attempts.Observe(durable.Attempt{Kind: "mail"})
		families = gather(t, wheel, metrics.NewSchedulerCollector(s, "orders", metrics.WithAttempts(attempts)),
			metrics.NewSchedulerCollectorOf(everything(), "node"), metrics.NewEngineCollector(&fakeEngine{}, "node"))
	})
	return families
}

// In the format of OpenMetrics the family of a counter has its name without _total, and no two may share one.
func TestNames_areDistinctInOpenMetrics(t *testing.T) {
	seen := make(map[string]string)
	for _, f := range gatherAll(t) {
		name := strings.TrimSuffix(f.GetName(), "_total")
		if seen[name] != "" {
			t.Errorf("%s and %s are one family", seen[name], f.GetName())
		}
		seen[name] = f.GetName()
	}
}

// The README has a row for each metric, with its type and its labels.
func TestNames_areThoseOfTheReadme(t *testing.T) {
	source, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]string)
	row := regexp.MustCompile("(?m)^\\| `(timewheel_\\w+)` \\| (\\w+) \\| ([^|]*) \\| ")
	for _, m := range row.FindAllStringSubmatch(string(source), -1) {
		documented[m[1]] = m[2] + " " + m[3]
	}
	for _, f := range gatherAll(t) {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		slices.Sort(labels)
		want := strings.ToLower(f.GetType().String()) + " " + strings.Join(labels, ", ")
		if documented[f.GetName()] != want {
			t.Errorf("%s is a %s, and documented as %q", f.GetName(), want, documented[f.GetName()])
		}
		delete(documented, f.GetName())
	}
	if len(documented) > 0 {
		t.Errorf("these are documented and not exported: %v", documented)
	}
}

// After an engine has hung for long, the metrics are current again within three seconds.
func TestSchedulerCollector_afterAnEngineHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := enginetest.NewLink(memory.New().Shared())
		s, err := durable.New(ctx, link, durable.WithLogger(testkit.Quiet()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Shutdown(ctx) }()
		handle(t, s, "fail", func(context.Context, durable.Run) error { return errors.New("on purpose") })
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		c := metrics.NewSchedulerCollector(s, "orders")
		scrape := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
				gather(t, c)
			}
		}
		scrape(10 * time.Second)
		back := time.Now().Add(12 * time.Second)
		link.SetFaults(func(string) enginetest.Fault { return enginetest.Fault{Delay: time.Until(back)} })
		scrape(time.Until(back))
		link.SetFaults(nil)
		for i := range 30 {
			addDurable(t, s, "fail", time.Nanosecond, fmt.Sprint(i))
		}
		addDurable(t, s, "fail", time.Hour, "later")
		scrape(3 * time.Second)
		is(t, c, "timewheel_durable_tasks_pending", map[string]float64{"": 31})
		is(t, c, "timewheel_durable_tasks_parked", map[string]float64{"": 30})
		is(t, c, "timewheel_durable_kind_tasks", map[string]float64{"fail scheduled": 1, "fail failing": 0, "fail parked": 30, "fail paused": 0})
		is(t, c, "timewheel_durable_kind_backlog_tasks", map[string]float64{"fail": 0})
		is(t, c, "timewheel_durable_engine_away", map[string]float64{"": 0})
	})
}
