// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// A meter counts the runs in progress, on each scheduler and on all of them.
type meter struct {
	mu      sync.Mutex // protects below
	running map[int]int
	most    map[int]int // peak of running; -1 stands for all schedulers
}

// in counts a run on the scheduler until out is called.
func (m *meter) in(on int) (out func()) {
	m.add(on, 1)
	return func() { m.add(on, -1) }
}

func (m *meter) add(on, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running == nil {
		m.running, m.most = make(map[int]int), make(map[int]int)
	}
	for _, i := range []int{on, -1} {
		m.running[i] += n
		m.most[i] = max(m.most[i], m.running[i])
	}
}

// peak returns the maximum number of concurrent runs.
func (m *meter) peak(on int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.most[on]
}

// metered registers a kind on all schedulers. Its runs are counted by the meter and logged by the kit.
func metered(k *kit.Kit, kind string, h durable.Handler, opts ...durable.KindOption) *meter {
	k.T.Helper()
	m := new(meter)
	for i, s := range k.Nodes {
		s.Handle(kind, func(ctx context.Context, run durable.Run) error {
			defer m.in(i)()
			return h(ctx, run)
		}, opts...)
	}
	return m
}

// addMany adds n tasks of the kind with the given delay.
func addMany(k *kit.Kit, n int, kind string, delay time.Duration) {
	k.T.Helper()
	tasks := make([]durable.Task, n)
	for i := range tasks {
		tasks[i] = durable.Task{Key: fmt.Sprintf("%s-%05d", kind, i), Kind: kind, Delay: delay}
	}
	k.On().Add(tasks...)
}

func limitsConcurrency(t *testing.T, k *kit.Kit) {
	const n, tasks, took = 3, 60, 100 * time.Millisecond
	m := metered(k, "k", func(context.Context, durable.Run) error { time.Sleep(took); return nil },
		durable.WithConcurrency(n))
	free := metered(k, "free", func(context.Context, durable.Run) error { time.Sleep(time.Second); return nil })
	addMany(k, tasks, "k", 2*time.Second)
	addMany(k, tasks, "free", 2*time.Second)
	k.After(2*time.Second + took/2)
	limited := 0
	for _, s := range k.Nodes {
		for _, k := range s.Kinds() {
			if k.Kind == "k" {
				limited += k.Waiting
			}
			if want := (durable.Limit{Concurrency: n}); k.Kind == "k" && k.Limit != want {
				t.Errorf("the limit is %+v", k.Limit)
			}
		}
		if s := s.Stats(); s.Limited > 0 && s.Waiting > 0 {
			t.Errorf("what waits for the limit waits for a worker: %+v", s)
		}
	}
	if limited == 0 {
		t.Error("nothing waits for the limit")
	}
	late := 0
	for _, c := range k.RunsAfter(tasks * took) {
		if c.Kind == "free" && c.Late > 300*time.Millisecond {
			late++
		}
	}
	if late > 0 {
		t.Errorf("%d runs of the other kind are late", late)
	}
	for i := range k.Nodes {
		if m.peak(i) != n {
			t.Errorf("%d runs at the same time on scheduler %d, want %d", m.peak(i), i, n)
		}
	}
	if free.peak(-1) != tasks {
		t.Errorf("%d runs of the other kind at the same time, want %d", free.peak(-1), tasks)
	}
	allDone(k)
}

// allDone fails the test if any task is left.
func allDone(k *kit.Kit) {
	k.T.Helper()
	if n := k.On().Len(); n != 0 {
		k.T.Errorf("%d tasks are left", n)
	}
}

func limitsRate(t *testing.T, k *kit.Kit) {
	const n, burst, tasks = 10, 5, 60
	k.Handle("k", func(context.Context, durable.Run) error { return nil }, durable.WithRate(n, time.Second, burst))
	addMany(k, tasks, "k", time.Second)
	calls := k.RunsAfter(2 * tasks * time.Second / n)
	if len(calls) != tasks {
		t.Errorf("%d of %d ran", len(calls), tasks)
	}
	// Within any period t, each scheduler starts at most burst + n·(t+tick) runs.
	for i := range calls {
		for j := i; j < len(calls); j++ {
			d := calls[j].At - calls[i].At
			if most := len(k.Nodes) * (burst + int((d+10*time.Millisecond)*n/time.Second)); j-i+1 > most {
				t.Fatalf("%d runs within %v; %d are allowed", j-i+1, d, most)
			}
		}
	}
	if took := calls[len(calls)-1].At - calls[0].At; len(k.Nodes) == 1 {
		if least := (tasks - burst) * time.Second / n; took < least-10*time.Millisecond || took > least+time.Second/2 {
			t.Errorf("%d runs took %v, want about %v", tasks, took, least)
		}
	}
	allDone(k)
}

func limitedVerbs(t *testing.T, k *kit.Kit) {
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	k.Handle("k", func(ctx context.Context, run durable.Run) error {
		if run.Key[0] == '0' {
			<-released
		}
		return nil
	}, durable.WithConcurrency(1))
	k.After(time.Second)        // until each scheduler has claimed
	for i, s := range k.Nodes { // each scheduler has one run in progress
		k.Must(s.AddTask(ctx, durable.Task{Key: fmt.Sprint("0", i), Kind: "k", Delay: time.Second}))
	}
	k.After(2 * time.Second)
	for _, key := range []string{"removed", "moved", "paused", "replaced", "stays"} {
		k.On().Add(durable.Task{Key: key, Kind: "k", Delay: time.Second})
	}
	k.RunsAfter(2 * time.Second)
	k.Must(k.On().RemoveTask(ctx, "removed"))
	k.Must(k.On().Reschedule(ctx, "moved", 20*time.Second))
	k.Must(k.On().Pause(ctx, "paused"))
	k.Must(k.On().SetTask(ctx, durable.Task{Key: "replaced", Kind: "k", Delay: 20 * time.Second}))
	k.On().Add(durable.Task{Key: "removed", Kind: "k", Delay: 20 * time.Second}) // added again with the same key
	k.After(time.Second)
	k.RanNothing()
	release()
	k.After(5 * time.Second)
	k.Ran("stays")
	k.Must(k.On().Resume(ctx, "paused"))
	k.After(time.Second)
	k.Ran("paused")
	if calls := k.RunsAfter(20 * time.Second); len(calls) != 3 {
		t.Errorf("later: %v", calls)
	}
	allDone(k)
}

func limitedRunsEnd(t *testing.T, k *kit.Kit) {
	ends := map[string]durable.Handler{
		"error":   func(context.Context, durable.Run) error { return errNot },
		"panic":   func(context.Context, durable.Run) error { panic("no") },
		"goexit":  func(context.Context, durable.Run) error { runtime.Goexit(); return nil },
		"park":    func(context.Context, durable.Run) error { return durable.Park(errNot) },
		"timeout": func(ctx context.Context, _ durable.Run) error { <-ctx.Done(); return ctx.Err() },
		"retry":   func(context.Context, durable.Run) error { return durable.RetryAfter(time.Second, errNot) },
	}
	for kind, h := range ends {
		m := metered(k, kind, h, durable.WithConcurrency(2), durable.WithRetry(2, time.Second, time.Second),
			durable.WithTimeout(100*time.Millisecond))
		const tasks = 30
		addMany(k, tasks, kind, time.Second)
		if calls := k.RunsAfter(30 * time.Second); len(calls) != 2*tasks && kind != "park" || len(calls) < tasks {
			t.Errorf("%s: %d attempts", kind, len(calls))
		}
		for i := range k.Nodes {
			if m.peak(i) > 2 {
				t.Errorf("%s: %d at the same time", kind, m.peak(i))
			}
		}
	}
}

// A kind with a limit runs correctly with more tasks than a scheduler holds for it, added in random order.
func limitsMany(t *testing.T, k *kit.Kit) {
	const tasks = 3000
	m := metered(k, "k", func(context.Context, durable.Run) error { time.Sleep(time.Millisecond); return nil },
		durable.WithConcurrency(20))
	k.Handle("free", func(context.Context, durable.Run) error { return nil })
	var some []durable.Task
	for i := range tasks {
		delay := 2*time.Second + time.Duration(i*7919%tasks)*100
		some = append(some, durable.Task{Key: fmt.Sprint("k", i), Kind: "k", Delay: delay})
		if len(some) == 100 {
			k.On().Add(durable.Task{Key: fmt.Sprint("free", i), Kind: "free", Delay: 3 * time.Second})
			k.On().Add(some...)
			some = nil
		}
	}
	ran := make(map[string]int)
	for _, c := range k.RunsAfter(60 * time.Second) {
		ran[c.Key]++
	}
	for i := range tasks {
		if key := fmt.Sprint("k", i); ran[key] != 1 {
			t.Fatalf("%s ran %d times", key, ran[key])
		}
	}
	for i := range k.Nodes {
		if m.peak(i) > 20 {
			t.Errorf("%d at the same time", m.peak(i))
		}
	}
	allDone(k)
}

// A shutdown starts no task that is waiting for a limit.
func limitedShutdown(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { time.Sleep(time.Second); return nil },
		durable.WithConcurrency(1))
	addMany(k, 10, "k", time.Second)
	first := k.RunsAfter(1500 * time.Millisecond)
	if len(first) == 0 || len(first) > len(k.Nodes) {
		t.Fatalf("%d are running", len(first))
	}
	for _, s := range k.Nodes {
		go func() { _ = s.Shutdown(ctx) }()
	}
	k.After(10 * time.Second)
	k.RanNothing()
}

// A limit for all schedulers together holds once each scheduler knows about the others.
func limitsAll(t *testing.T, k *kit.Kit) {
	const n, tasks, took = 4, 80, 100 * time.Millisecond
	m := metered(k, "k", func(context.Context, durable.Run) error { time.Sleep(took); return nil },
		durable.WithClusterConcurrency(n))
	addMany(k, tasks, "k", time.Second)
	if calls := k.RunsAfter(15 * time.Second); len(calls) != tasks {
		t.Errorf("%d of %d ran", len(calls), tasks)
	}
	if m.peak(-1) > n || m.peak(-1) == 0 {
		t.Errorf("%d runs at the same time, want %d", m.peak(-1), n)
	}
	allDone(k)
}
