// SPDX-License-Identifier: MIT

package metrics_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/memstore"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/metrics"
)

var ctx = context.Background()

// newScheduler returns a started scheduler with one worker on the store. It handles the kinds "slow", whose
// runs take a minute, and "fail", whose runs fail and park the task.
func newScheduler(t *testing.T, store durable.Store) *durable.Scheduler {
	t.Helper()
	s, err := durable.New(store, durable.WithPoolSize(1), durable.WithLogger(testkit.Quiet()))
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

// inTrouble returns a scheduler that has one or more of everything for a minute: tasks that were added and
// removed, parked tasks, a task whose kind has no handler, a run that has succeeded, one that is running and
// two that wait for it.
func inTrouble(t *testing.T) *durable.Scheduler {
	t.Helper()
	store := memstore.New()
	before := newScheduler(t, store)
	handle(t, before, "forgotten", func(context.Context, durable.Run) error { return nil })
	addDurable(t, before, "forgotten", time.Minute, "unhandled")
	left := store.Reopen()
	if err := before.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	s := newScheduler(t, left)
	addDurable(t, s, "fail", time.Second, "a", "b")
	addDurable(t, s, "slow", 2*time.Second, "done")
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
			"timewheel_durable_runs_started_total":   int(stats.Started),
			"timewheel_durable_runs_succeeded_total": int(stats.Succeeded),
			"timewheel_durable_runs_failed_total":    int(stats.Failed),
			"timewheel_durable_runs_parked_total":    int(stats.ParkedTotal),
		} {
			m := find(t, c, name)
			got := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if got != float64(want) || want == 0 {
				t.Errorf("%s is %v, want %v, and not 0", name, got, want)
			}
			checkTypeAndLabel(t, name, m, "scheduler", "orders")
		}
		lint(t, c)
		if n := testutil.CollectAndCount(c); n != 12 {
			t.Errorf("there are %d metrics, want 12", n)
		}
	})
}

// A brokenStore fails each commit once it is set to.
type brokenStore struct {
	*memstore.Store
	broken bool
}

func (b *brokenStore) Commit(changes []durable.Change) error {
	if b.broken {
		return errors.New("the disk is full")
	}
	return b.Store.Commit(changes)
}

func TestSchedulerCollector_storeFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &brokenStore{Store: memstore.New()}
		s := newScheduler(t, store)
		c := metrics.NewSchedulerCollector(s, "orders")
		failed := func() float64 { return find(t, c, "timewheel_durable_store_failed").GetGauge().GetValue() }
		addDurable(t, s, "slow", time.Hour, "a")
		if failed() != 0 {
			t.Error("the store has failed before it did")
		}
		store.broken = true
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

type fakeScheduler struct{ stats durable.Stats }

func (f *fakeScheduler) Stats() durable.Stats { return f.stats }
func (f *fakeScheduler) Err() error           { return nil }

func TestSchedulerCollector_countersNeverFall(t *testing.T) {
	f := &fakeScheduler{}
	checkCounters(t, metrics.NewSchedulerCollectorOf(f, "orders"), func(n int) {
		u := uint64(n)
		f.stats = durable.Stats{
			Pending: n, Waiting: n, Running: n, Parked: n, Unhandled: n,
			Added: u, Removed: u, ParkedTotal: u, Started: u, Succeeded: u, Failed: u,
		}
	}, 6)
}

// gather returns all metrics of this package.
func gather(t *testing.T) (families []*dto.MetricFamily) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tw, wheel := newWheel(t, "w")
		defer tw.Stop()
		s := newScheduler(t, memstore.New())
		defer func() {
			if err := s.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		}()
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(wheel, metrics.NewSchedulerCollector(s, "orders"))
		var err error
		if families, err = registry.Gather(); err != nil {
			t.Fatal(err)
		}
	})
	return families
}

// In the format of OpenMetrics the family of a counter has its name without _total, and no two may share one.
func TestNames_areDistinctInOpenMetrics(t *testing.T) {
	seen := make(map[string]string)
	for _, f := range gather(t) {
		name := strings.TrimSuffix(f.GetName(), "_total")
		if seen[name] != "" {
			t.Errorf("%s and %s are one family", seen[name], f.GetName())
		}
		seen[name] = f.GetName()
	}
}

func TestNames_areThoseOfTheDocumentation(t *testing.T) {
	source, err := os.ReadFile("metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]string)
	row := regexp.MustCompile(`(?m)^//\t(timewheel_\w+) +(\w+) `)
	for _, m := range row.FindAllStringSubmatch(string(source), -1) {
		documented[m[1]] = m[2]
	}
	for _, f := range gather(t) {
		if kind := strings.ToLower(f.GetType().String()); documented[f.GetName()] != kind {
			t.Errorf("%s is a %s, and documented as %q", f.GetName(), kind, documented[f.GetName()])
		}
		delete(documented, f.GetName())
	}
	if len(documented) > 0 {
		t.Errorf("these are documented and not exported: %v", documented)
	}
}
