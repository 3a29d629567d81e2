// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// A kind with a limit is paused while more of its tasks are due than fit in memory. Nothing starts, other kinds are
// not delayed, and when it is resumed each of the tasks that are left runs once.
func pausesLimitedKind(t *testing.T, r *rig) {
	const n, tasks = 2, 1500
	m := r.metered("k", func(context.Context, durable.Run) error { time.Sleep(10 * time.Millisecond); return nil },
		durable.WithConcurrency(n))
	r.handle("free", ok)
	ran := make(map[string]int)
	count := func(calls []call) (of int) {
		for _, c := range calls {
			if c.Kind == "k" {
				ran[c.Key]++
				of++
			}
			if c.Attempt != 1 {
				t.Errorf("%s: attempt %d", c.Key, c.Attempt)
			}
		}
		return of
	}
	r.addMany(tasks, "k", time.Second)
	if count(r.ran(1500*time.Millisecond)) == 0 {
		t.Error("nothing runs before the pause")
	}
	r.must(r.on().PauseKind(ctx, "k"))
	count(r.ran(seen))
	r.must(r.on().RemoveTask(ctx, fmt.Sprintf("k-%05d", tasks-1)))
	r.add(durable.Task{Key: "k-more", Kind: "k", Delay: time.Second},
		durable.Task{Key: "free", Kind: "free", Delay: time.Second})
	calls := r.ran(time.Minute)
	if of := count(calls); of != 0 || len(calls) != 1 {
		t.Errorf("while it is paused %d of the kind run, of %d", of, len(calls))
	}
	for i, s := range r.all {
		if st := s.Stats(); st.Limited != 0 || st.Unhandled != 0 {
			t.Errorf("on scheduler %d: %+v", i, st)
		}
	}
	r.must(r.on().ResumeKind(ctx, "k"))
	for range 3 { // it is paused again on the way
		count(r.ran(700 * time.Millisecond))
		r.must(r.on().PauseKind(ctx, "k"))
		count(r.ran(seen))
		r.must(r.on().ResumeKind(ctx, "k"))
	}
	count(r.ran(time.Minute))
	if len(ran) != tasks {
		t.Errorf("%d of %d ran", len(ran), tasks)
	}
	for key, times := range ran {
		if times != 1 {
			t.Errorf("%s ran %d times", key, times)
		}
	}
	for i := range r.all {
		if m.peak(i) > n {
			t.Errorf("%d runs at the same time on scheduler %d", m.peak(i), i)
		}
	}
	r.allDone()
}

// What waits for the rate of its kind uses up none of it while the kind is paused.
func pausesKindWithRate(t *testing.T, r *rig) {
	const per, tasks = 30 * time.Second, 20
	r.handle("k", ok, durable.WithRate(1, per, 1))
	for i, s := range r.all { // uses up the rate of each
		r.must(s.AddTask(ctx, durable.Task{Key: fmt.Sprint("first", i), Kind: "k", Delay: 500 * time.Millisecond}))
	}
	if first := r.ran(2 * time.Second); len(first) != len(r.all) {
		t.Fatalf("%d ran at first", len(first))
	}
	r.addMany(tasks, "k", 500*time.Millisecond)
	time.Sleep(time.Second)
	r.must(r.on().PauseKind(ctx, "k"))
	calls := r.ran(seen + time.Second)
	for i, s := range r.all {
		if st := s.Stats(); st.Node != nil && st.Limited != 0 { // the tasks are for any node as soon as it is resumed
			t.Errorf("node %d holds %d tasks of the kind", i, st.Limited)
		}
	}
	if calls = append(calls, r.ran(per+per/2)...); len(calls) != 0 {
		t.Errorf("paused: %v", calls)
	}
	r.must(r.on().ResumeKind(ctx, "k"))
	if calls := r.ran(seen + time.Second); len(calls) != len(r.all) {
		t.Errorf("resumed after a pause that was longer than the time of the rate: %v", calls)
	}
	n, err := r.on().RemovePrefix(ctx, "k-")
	r.must(err)
	if n != tasks-len(r.all) {
		t.Errorf("%d were left", n)
	}
}

// All that a query or a prefix finds is changed, whether it waits for the limit of its kind, or is left in the store,
// or its kind is paused.
func changesManyOfLimitedKind(t *testing.T, r *rig) {
	const n, tasks = 2, 1300
	m := r.metered("k", ok, durable.WithConcurrency(n), durable.WithRate(100, time.Second, 10))
	r.addMany(tasks, "k", 3*time.Second)
	bulk := func(q durable.Query, do durable.Action, want int) {
		t.Helper()
		if got, err := r.on().Bulk(ctx, q, do); err != nil || got != want {
			t.Errorf("Bulk %d: %d, %v, want %d", do, got, err, want)
		}
	}
	k := durable.Query{Kind: "k"}
	bulk(k, durable.DoPause, tasks)
	if calls := r.ran(10 * time.Second); len(calls) != 0 {
		t.Errorf("paused: %v", calls)
	}
	bulk(k, durable.DoRunNow, 0)
	r.must(r.on().PauseKind(ctx, "k"))
	time.Sleep(seen)
	bulk(k, durable.DoResume, tasks)
	if calls := r.ran(5 * time.Second); len(calls) != 0 {
		t.Errorf("resumed, and their kind is paused: %v", calls)
	}
	if got, err := r.on().RemovePrefix(ctx, "k-000"); err != nil || got != 100 {
		t.Errorf("RemovePrefix: %d, %v", got, err)
	}
	if got, err := r.on().ReschedulePrefix(ctx, "k-001", time.Hour); err != nil || got != 100 {
		t.Errorf("ReschedulePrefix: %d, %v", got, err)
	}
	r.must(r.on().ResumeKind(ctx, "k"))
	r.ran(seen + time.Second)
	if got, err := r.on().RemovePrefix(ctx, "k-012"); err != nil || got != 100 { // the last that are due
		t.Errorf("RemovePrefix: %d, %v", got, err)
	}
	r.ran(30 * time.Second)
	left, err := r.on().Find(ctx, durable.Query{Prefix: "k", Limit: 2 * tasks})
	r.must(err)
	for _, i := range left.Tasks {
		if i.Key < "k-00100" || i.Key >= "k-00200" || i.Attempts != 0 {
			t.Errorf("this is left: %+v", i)
		}
	}
	bulk(durable.Query{Prefix: "k"}, durable.DoRunNow, 100)
	if calls := r.ran(10 * time.Second); len(calls) != 100 {
		t.Errorf("%d of 100 run when they are moved", len(calls))
	}
	for i := range r.all {
		if m.peak(i) > n {
			t.Errorf("%d runs at the same time on scheduler %d", m.peak(i), i)
		}
	}
	r.allDone()
}

// Each missed run of a kind with a limit is made, within the limit.
func limitsMissedRuns(t *testing.T, r *rig) {
	const tasks, periods = 20, 10
	m := r.metered("k", func(context.Context, durable.Run) error { time.Sleep(10 * time.Millisecond); return nil },
		durable.WithMissed(durable.MissedAll), durable.WithConcurrency(1))
	r.must(r.on().PauseKind(ctx, "k"))
	time.Sleep(seen)
	for i := range tasks {
		r.add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Interval: 5 * time.Second, Times: periods})
	}
	time.Sleep(periods * 5 * time.Second)
	r.must(r.on().ResumeKind(ctx, "k"))
	calls := r.ran(30 * time.Second)
	if len(calls) != tasks*periods {
		t.Errorf("%d runs, want %d", len(calls), tasks*periods)
	}
	for _, c := range calls {
		if c.Missed != 0 || c.Attempt != 1 {
			t.Errorf("%+v", c.Run)
		}
	}
	for i := range r.all {
		if m.peak(i) > 1 {
			t.Errorf("%d runs at the same time on scheduler %d", m.peak(i), i)
		}
	}
	r.allDone()
}

// A burst continues while its task, or its kind, is paused, and is not longer than it may be.
func pausesBurst(t *testing.T, r *rig) {
	r.handle("k", ok)
	task := durable.Task{Key: "a", Kind: "k", Delay: 3 * time.Second, MaxDelay: 8 * time.Second, Group: "g"}
	began := r.sets(task, 3, 2*time.Second) // at 0, 2 and 4 s
	r.must(r.on().Pause(ctx, "a"))
	if i := r.info("a"); i.State != durable.Paused || string(i.Payload) != "2" {
		t.Errorf("paused: %+v", i)
	}
	if calls := r.ran(time.Until(began.Add(6 * time.Second))); len(calls) != 0 {
		t.Errorf("paused: %v", calls)
	}
	r.must(r.on().SetTask(ctx, task)) // it is the same burst, and not paused
	calls := r.ran(2500 * time.Millisecond)
	soonAfter(t, calls, began.Add(8*time.Second))
	r.gone("a")

	r.must(r.on().PauseKind(ctx, "k"))
	time.Sleep(seen)
	r.sets(task, 6, 2*time.Second)
	if calls := r.ran(10 * time.Second); len(calls) != 0 {
		t.Errorf("its kind is paused: %v", calls)
	}
	r.must(r.on().ResumeKind(ctx, "k"))
	if calls := r.ran(seen + time.Second); len(calls) != 1 || string(calls[0].Payload) != "5" {
		t.Errorf("resumed: %v", calls)
	}
	r.gone("a")
}

// A task with all that a task can have is moved, paused, resumed and done with a note, and keeps the rest.
func everyOption(t *testing.T, r *rig) {
	r.handle("k", func(_ context.Context, run durable.Run) error {
		run.Complete(run.Due.UTC().Format("15:04:05"))
		return nil
	},
		durable.WithConcurrency(1), durable.WithRate(10, time.Second, 10))
	task := durable.Task{Key: "a", Kind: "k", Cron: "0 * * * *", Jitter: 30 * time.Minute, Times: durable.Forever, Group: "g"}
	r.add(task)
	first := r.info("a").Next
	shift := first.Sub(first.Truncate(time.Hour))
	if shift == 0 || shift > task.Jitter {
		t.Fatalf("the first run is due at %v", first)
	}
	r.must(r.on().Reschedule(ctx, "a", 5*time.Second))
	moved := time.Now().Add(5 * time.Second)
	soonAfter(t, r.ran(6*time.Second), moved)
	is := func(state durable.State, next time.Time) {
		t.Helper()
		i := r.info("a")
		note := moved.UTC().Format("15:04:05")
		if i.State != state || !i.Next.Equal(next) || i.Note != note || i.Group != "g" || i.Cron != task.Cron || i.Missed != 0 {
			t.Errorf("%+v, want it %v, due at %v, with the note %s", i, state, next, note)
		}
	}
	next := moved.Add(-shift).Truncate(time.Hour).Add(time.Hour + shift)
	is(durable.Scheduled, next)
	r.must(r.on().Pause(ctx, "a"))
	is(durable.Paused, time.Time{})
	r.must(r.on().PauseKind(ctx, "k"))
	r.must(r.on().Resume(ctx, "a"))
	r.must(r.on().ResumeKind(ctx, "k"))
	is(durable.Scheduled, next)
	r.must(r.on().RemoveTask(ctx, "a"))
}
