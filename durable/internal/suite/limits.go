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
)

// A meter counts how many runs are running, on each scheduler and on all of them.
type meter struct {
	mu      sync.Mutex // protects below
	running map[int]int
	most    map[int]int // of those, at any time; -1 is all schedulers
}

// in counts a run on the scheduler, until out.
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

// peak returns how many were running at the same time at most.
func (m *meter) peak(on int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.most[on]
}

// metered registers a kind everywhere whose runs are metered and noted.
func (r *rig) metered(kind string, h durable.Handler, opts ...durable.KindOption) *meter {
	r.t.Helper()
	m := new(meter)
	for i, s := range r.all {
		err := s.Handle(kind, func(ctx context.Context, run durable.Run) error {
			r.note(run)
			defer m.in(i)()
			return h(ctx, run)
		}, opts...)
		if err != nil {
			r.t.Fatal(err)
		}
	}
	return m
}

// addMany adds n tasks of the kind, due after that.
func (r *rig) addMany(n int, kind string, delay time.Duration) {
	r.t.Helper()
	tasks := make([]durable.Task, n)
	for i := range tasks {
		tasks[i] = durable.Task{Key: fmt.Sprintf("%s-%05d", kind, i), Kind: kind, Delay: delay}
	}
	r.add(tasks...)
}

func limitsConcurrency(t *testing.T, r *rig) {
	const n, tasks, took = 3, 60, 100 * time.Millisecond
	m := r.metered("k", func(context.Context, durable.Run) error { time.Sleep(took); return nil },
		durable.WithConcurrency(n))
	free := r.metered("free", func(context.Context, durable.Run) error { time.Sleep(time.Second); return nil })
	r.addMany(tasks, "k", 2*time.Second)
	r.addMany(tasks, "free", 2*time.Second)
	time.Sleep(2*time.Second + took/2)
	limited := 0
	for _, s := range r.all {
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
	for _, c := range r.ran(tasks * took) {
		if c.Kind == "free" && c.at.Sub(c.Due) > 300*time.Millisecond {
			late++
		}
	}
	if late > 0 {
		t.Errorf("%d runs of the other kind are late", late)
	}
	for i := range r.all {
		if m.peak(i) != n {
			t.Errorf("%d runs at the same time on scheduler %d, want %d", m.peak(i), i, n)
		}
	}
	if free.peak(-1) != tasks {
		t.Errorf("%d runs of the other kind at the same time, want %d", free.peak(-1), tasks)
	}
	r.allDone()
}

// allDone fails the test unless there is no task.
func (r *rig) allDone() {
	r.t.Helper()
	if n := r.on().Len(); n != 0 {
		r.t.Errorf("%d tasks are left", n)
	}
}

func limitsRate(t *testing.T, r *rig) {
	const n, burst, tasks = 10, 5, 60
	r.handle("k", func(context.Context, durable.Run) error { return nil }, durable.WithRate(n, time.Second, burst))
	r.addMany(tasks, "k", time.Second)
	calls := r.ran(2 * tasks * time.Second / n)
	if len(calls) != tasks {
		t.Errorf("%d of %d ran", len(calls), tasks)
	}
	// Within any time t each scheduler starts at most burst + n·(t+tick).
	for i := range calls {
		for j := i; j < len(calls); j++ {
			d := calls[j].at.Sub(calls[i].at)
			if most := len(r.all) * (burst + int((d+10*time.Millisecond)*n/time.Second)); j-i+1 > most {
				t.Fatalf("%d runs within %v; %d are allowed", j-i+1, d, most)
			}
		}
	}
	if took := calls[len(calls)-1].at.Sub(calls[0].at); len(r.all) == 1 {
		if least := (tasks - burst) * time.Second / n; took < least-10*time.Millisecond || took > least+time.Second/2 {
			t.Errorf("%d runs took %v, want about %v", tasks, took, least)
		}
	}
	r.allDone()
}

func limitedVerbs(t *testing.T, r *rig) {
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	r.handle("k", func(ctx context.Context, run durable.Run) error {
		if run.Key[0] == '0' {
			<-released
		}
		return nil
	}, durable.WithConcurrency(1))
	for i, s := range r.all { // each has one that is running
		r.must(s.AddTask(ctx, durable.Task{Key: fmt.Sprint("0", i), Kind: "k", Delay: time.Second}))
	}
	time.Sleep(2 * time.Second)
	for _, key := range []string{"removed", "moved", "paused", "replaced", "stays"} {
		r.add(durable.Task{Key: key, Kind: "k", Delay: time.Second})
	}
	r.ran(2 * time.Second)
	r.must(r.on().RemoveTask(ctx, "removed"))
	r.must(r.on().Reschedule(ctx, "moved", 20*time.Second))
	r.must(r.on().Pause(ctx, "paused"))
	r.must(r.on().SetTask(ctx, durable.Task{Key: "replaced", Kind: "k", Delay: 20 * time.Second}))
	r.add(durable.Task{Key: "removed", Kind: "k", Delay: 20 * time.Second}) // another of that key
	if calls := r.ran(time.Second); len(calls) != 0 {
		t.Errorf("behind the limit: %v", calls)
	}
	release()
	if calls := r.ran(5 * time.Second); len(calls) != 1 || calls[0].Key != "stays" {
		t.Errorf("when there is room: %v", calls)
	}
	r.must(r.on().Resume(ctx, "paused"))
	if calls := r.ran(time.Second); len(calls) != 1 || calls[0].Key != "paused" {
		t.Errorf("resumed: %v", calls)
	}
	if calls := r.ran(20 * time.Second); len(calls) != 3 {
		t.Errorf("later: %v", calls)
	}
	r.allDone()
}

func limitedRunsEnd(t *testing.T, r *rig) {
	ends := map[string]durable.Handler{
		"error":   func(context.Context, durable.Run) error { return errNot },
		"panic":   func(context.Context, durable.Run) error { panic("no") },
		"goexit":  func(context.Context, durable.Run) error { runtime.Goexit(); return nil },
		"park":    func(context.Context, durable.Run) error { return durable.Park(errNot) },
		"timeout": func(ctx context.Context, _ durable.Run) error { <-ctx.Done(); return ctx.Err() },
		"retry":   func(context.Context, durable.Run) error { return durable.RetryAfter(time.Second, errNot) },
	}
	for kind, h := range ends {
		m := r.metered(kind, h, durable.WithConcurrency(2), durable.WithRetry(2, time.Second, time.Second),
			durable.WithTimeout(100*time.Millisecond))
		const tasks = 30
		r.addMany(tasks, kind, time.Second)
		if calls := r.ran(30 * time.Second); len(calls) != 2*tasks && kind != "park" || len(calls) < tasks {
			t.Errorf("%s: %d attempts", kind, len(calls))
		}
		for i := range r.all {
			if m.peak(i) > 2 {
				t.Errorf("%s: %d at the same time", kind, m.peak(i))
			}
		}
	}
}

// More tasks than a scheduler holds for a limit, in whatever order they are added.
func limitsMany(t *testing.T, r *rig) {
	const tasks = 3000
	m := r.metered("k", func(context.Context, durable.Run) error { time.Sleep(time.Millisecond); return nil },
		durable.WithConcurrency(20))
	r.handle("free", func(context.Context, durable.Run) error { return nil })
	var some []durable.Task
	for i := range tasks {
		delay := 2*time.Second + time.Duration(i*7919%tasks)*100
		some = append(some, durable.Task{Key: fmt.Sprint("k", i), Kind: "k", Delay: delay})
		if len(some) == 100 {
			r.add(durable.Task{Key: fmt.Sprint("free", i), Kind: "free", Delay: 3 * time.Second})
			r.add(some...)
			some = nil
		}
	}
	ran := make(map[string]int)
	for _, c := range r.ran(60 * time.Second) {
		ran[c.Key]++
	}
	for i := range tasks {
		if key := fmt.Sprint("k", i); ran[key] != 1 {
			t.Fatalf("%s ran %d times", key, ran[key])
		}
	}
	for i := range r.all {
		if m.peak(i) > 20 {
			t.Errorf("%d at the same time", m.peak(i))
		}
	}
	r.allDone()
}

// A shutdown starts none of those that wait for a limit.
func limitedShutdown(t *testing.T, r *rig) {
	r.handle("k", func(context.Context, durable.Run) error { time.Sleep(time.Second); return nil },
		durable.WithConcurrency(1))
	r.addMany(10, "k", time.Second)
	first := r.ran(1500 * time.Millisecond)
	if len(first) == 0 || len(first) > len(r.all) {
		t.Fatalf("%d are running", len(first))
	}
	for _, s := range r.all {
		go func() { _ = s.Shutdown(ctx) }()
	}
	if calls := r.ran(10 * time.Second); len(calls) != 0 {
		t.Errorf("after Shutdown: %v", calls)
	}
}

// A limit on all schedulers together, after each has heard of the others.
func limitsAll(t *testing.T, r *rig) {
	const n, tasks, took = 4, 80, 100 * time.Millisecond
	m := r.metered("k", func(context.Context, durable.Run) error { time.Sleep(took); return nil },
		durable.WithClusterConcurrency(n))
	r.addMany(tasks, "k", time.Second)
	if calls := r.ran(15 * time.Second); len(calls) != tasks {
		t.Errorf("%d of %d ran", len(calls), tasks)
	}
	if m.peak(-1) > n || m.peak(-1) == 0 {
		t.Errorf("%d runs at the same time, want %d", m.peak(-1), n)
	}
	r.allDone()
}
