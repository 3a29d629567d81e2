// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// A kind with a limit is paused while it has more due tasks than the limiter holds. Nothing starts, other kinds are not
// delayed, and each remaining task runs once after the kind is resumed.
func pausesLimitedKind(t *testing.T, k *kit.Kit) {
	const n, tasks = 2, 1500
	m := metered(k, "k", func(context.Context, durable.Run) error { time.Sleep(10 * time.Millisecond); return nil },
		durable.WithConcurrency(n))
	k.Handle("free", ok)
	ran := make(map[string]int)
	count := func(calls []kit.Call) (of int) {
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
	addMany(k, tasks, "k", time.Second)
	if count(k.RunsAfter(1500*time.Millisecond)) == 0 {
		t.Error("nothing runs before the pause")
	}
	k.Must(k.On().PauseKind(ctx, "k"))
	count(k.RunsAfter(seen))
	k.Must(k.On().RemoveTask(ctx, fmt.Sprintf("k-%05d", tasks-1)))
	k.On().Add(durable.Task{Key: "k-more", Kind: "k", Delay: time.Second},
		durable.Task{Key: "free", Kind: "free", Delay: time.Second})
	calls := k.RunsAfter(time.Minute)
	if of := count(calls); of != 0 || len(calls) != 1 {
		t.Errorf("while it is paused %d of the kind run, of %d", of, len(calls))
	}
	for i, s := range k.Nodes {
		if st := s.Stats(); st.Limited != 0 || st.Unhandled != 0 {
			t.Errorf("on scheduler %d: %+v", i, st)
		}
	}
	k.Must(k.On().ResumeKind(ctx, "k"))
	for range 3 { // the kind is paused again while the tasks run
		count(k.RunsAfter(700 * time.Millisecond))
		k.Must(k.On().PauseKind(ctx, "k"))
		count(k.RunsAfter(seen))
		k.Must(k.On().ResumeKind(ctx, "k"))
	}
	count(k.RunsAfter(time.Minute))
	if len(ran) != tasks {
		t.Errorf("%d of %d ran", len(ran), tasks)
	}
	for key, times := range ran {
		if times != 1 {
			t.Errorf("%s ran %d times", key, times)
		}
	}
	for i := range k.Nodes {
		if m.peak(i) > n {
			t.Errorf("%d runs at the same time on scheduler %d", m.peak(i), i)
		}
	}
	allDone(k)
}

// A task that is waiting for its kind's rate uses none of the rate while the kind is paused.
func pausesKindWithRate(t *testing.T, k *kit.Kit) {
	const per, tasks = 30 * time.Second, 20
	k.Handle("k", ok, durable.WithRate(1, per, 1))
	addMany(k, tasks, "k", 500*time.Millisecond)                           // more than one scheduler takes
	if first := k.RunsAfter(2 * time.Second); len(first) != len(k.Nodes) { // uses up the rate of each
		t.Fatalf("%d ran at first", len(first))
	}
	k.Must(k.On().PauseKind(ctx, "k"))
	calls := k.RunsAfter(seen + time.Second)
	for i, s := range k.Nodes {
		if st := s.Stats(); st.Node != nil && st.Limited != 0 { // any node may run the tasks once the kind is resumed
			t.Errorf("node %d holds %d tasks of the kind", i, st.Limited)
		}
	}
	if calls = append(calls, k.RunsAfter(per+per/2)...); len(calls) != 0 {
		t.Errorf("paused: %v", calls)
	}
	k.Must(k.On().ResumeKind(ctx, "k"))
	if calls := k.RunsAfter(seen + time.Second); len(calls) != len(k.Nodes) {
		t.Errorf("resumed after a pause that was longer than the time of the rate: %v", calls)
	}
	n, err := k.On().RemovePrefix(ctx, "k-")
	k.Must(err)
	if n != tasks-2*len(k.Nodes) {
		t.Errorf("%d were left", n)
	}
}

// All tasks that match a query or prefix are changed, even if they are waiting for their kind's limit, are not in
// memory, or their kind is paused.
func changesManyOfLimitedKind(t *testing.T, k *kit.Kit) {
	const n, tasks = 2, 1300
	m := metered(k, "k", ok, durable.WithConcurrency(n), durable.WithRate(100, time.Second, 10))
	addMany(k, tasks, "k", 3*time.Second)
	bulk := func(q durable.Query, do durable.Action, want int) {
		t.Helper()
		if got, err := k.On().Bulk(ctx, q, do); err != nil || got != want {
			t.Errorf("Bulk %d: %d, %v, want %d", do, got, err, want)
		}
	}
	all := durable.Query{Kind: "k"}
	bulk(all, durable.DoPause, tasks)
	k.After(10 * time.Second)
	k.RanNothing()
	bulk(all, durable.DoRunNow, 0)
	k.Must(k.On().PauseKind(ctx, "k"))
	k.After(seen)
	bulk(all, durable.DoResume, tasks)
	k.After(5 * time.Second)
	k.RanNothing()
	if got, err := k.On().RemovePrefix(ctx, "k-000"); err != nil || got != 100 {
		t.Errorf("RemovePrefix: %d, %v", got, err)
	}
	if got, err := k.On().ReschedulePrefix(ctx, "k-001", time.Hour); err != nil || got != 100 {
		t.Errorf("ReschedulePrefix: %d, %v", got, err)
	}
	k.Must(k.On().ResumeKind(ctx, "k"))
	k.RunsAfter(seen + time.Second)
	if got, err := k.On().RemovePrefix(ctx, "k-012"); err != nil || got != 100 { // the tasks that are due last
		t.Errorf("RemovePrefix: %d, %v", got, err)
	}
	k.RunsAfter(30 * time.Second)
	left, err := k.On().Find(ctx, durable.Query{Prefix: "k", Limit: 2 * tasks})
	k.Must(err)
	for _, i := range left.Tasks {
		if i.Key < "k-00100" || i.Key >= "k-00200" || i.Attempts != 0 {
			t.Errorf("this is left: %+v", i)
		}
	}
	bulk(durable.Query{Prefix: "k"}, durable.DoRunNow, 100)
	if calls := k.RunsAfter(10 * time.Second); len(calls) != 100 {
		t.Errorf("%d of 100 run when they are moved", len(calls))
	}
	for i := range k.Nodes {
		if m.peak(i) > n {
			t.Errorf("%d runs at the same time on scheduler %d", m.peak(i), i)
		}
	}
	allDone(k)
}

// Every missed run of a kind with a limit is run, within the limit.
func limitsMissedRuns(t *testing.T, k *kit.Kit) {
	const tasks, periods = 20, 10
	m := metered(k, "k", func(context.Context, durable.Run) error { time.Sleep(10 * time.Millisecond); return nil },
		durable.WithMissed(durable.MissedAll), durable.WithConcurrency(1))
	k.Must(k.On().PauseKind(ctx, "k"))
	k.After(seen)
	for i := range tasks {
		k.On().Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Interval: 5 * time.Second, Times: periods})
	}
	k.After(periods * 5 * time.Second)
	k.Must(k.On().ResumeKind(ctx, "k"))
	calls := k.RunsAfter(30 * time.Second)
	if len(calls) != tasks*periods {
		t.Errorf("%d runs, want %d", len(calls), tasks*periods)
	}
	for _, c := range calls {
		if c.Missed != 0 || c.Attempt != 1 {
			t.Errorf("%+v", c.Run)
		}
	}
	for i := range k.Nodes {
		if m.peak(i) > 1 {
			t.Errorf("%d runs at the same time on scheduler %d", m.peak(i), i)
		}
	}
	allDone(k)
}

// A burst continues while its task or kind is paused, and its deadline does not change.
func pausesBurst(t *testing.T, k *kit.Kit) {
	k.Handle("k", ok)
	task := durable.Task{Key: "a", Kind: "k", Delay: 3 * time.Second, MaxDelay: 8 * time.Second, Group: "g"}
	began := sets(k, task, 3, 2*time.Second) // calls at 0, 2 and 4 s
	k.Must(k.On().Pause(ctx, "a"))
	if i := k.Info("a"); i.State != durable.Paused || string(i.Payload) != "2" {
		t.Errorf("paused: %+v", i)
	}
	k.After(time.Until(began.Add(6 * time.Second)))
	k.RanNothing()
	k.Must(k.On().SetTask(ctx, task)) // continues the same burst, and the task is no longer paused
	calls := k.RunsAfter(2500 * time.Millisecond)
	soonAfter(t, calls, began.Add(8*time.Second))
	k.Gone("a")

	k.Must(k.On().PauseKind(ctx, "k"))
	k.After(seen)
	sets(k, task, 6, 2*time.Second)
	k.After(10 * time.Second)
	k.RanNothing()
	k.Must(k.On().ResumeKind(ctx, "k"))
	if calls := k.RunsAfter(seen + time.Second); len(calls) != 1 || string(calls[0].Payload) != "5" {
		t.Errorf("resumed: %v", calls)
	}
	k.Gone("a")
}

// A task with every field set keeps its other fields when it is moved, paused, resumed and completed with a note.
func everyOption(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(_ context.Context, run durable.Run) error {
		run.Complete(run.Due.UTC().Format("15:04:05"))
		return nil
	},
		durable.WithConcurrency(1), durable.WithRate(10, time.Second, 10))
	task := durable.Task{Key: "a", Kind: "k", Cron: "0 * * * *", Jitter: 30 * time.Minute, Times: durable.Forever, Group: "g"}
	k.On().Add(task)
	first := k.Info("a").Next
	shift := first.Sub(first.Truncate(time.Hour))
	if shift == 0 || shift > task.Jitter {
		t.Fatalf("the first run is due at %v", first)
	}
	k.Must(k.On().Reschedule(ctx, "a", 5*time.Second))
	moved := time.Now().Add(5 * time.Second)
	soonAfter(t, k.RunsAfter(6*time.Second), moved)
	is := func(state durable.State, next time.Time) {
		t.Helper()
		i := k.Info("a")
		note := moved.UTC().Format("15:04:05")
		if i.State != state || !i.Next.Equal(next) || i.Note != note || i.Group != "g" || i.Cron != task.Cron || i.Missed != 0 {
			t.Errorf("%+v, want it %v, due at %v, with the note %s", i, state, next, note)
		}
	}
	next := moved.Add(-shift).Truncate(time.Hour).Add(time.Hour + shift)
	is(durable.Scheduled, next)
	k.Must(k.On().Pause(ctx, "a"))
	is(durable.Paused, time.Time{})
	k.Must(k.On().PauseKind(ctx, "k"))
	k.Must(k.On().Resume(ctx, "a"))
	k.Must(k.On().ResumeKind(ctx, "k"))
	is(durable.Scheduled, next)
	k.Must(k.On().RemoveTask(ctx, "a"))
}
