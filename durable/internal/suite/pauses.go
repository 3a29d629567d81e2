// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// paused fails the test unless the task is paused.
func paused(k *kit.Kit, key string) {
	k.T.Helper()
	if i := k.Info(key); i.State != durable.Paused || !i.Next.IsZero() {
		k.T.Errorf("%+v", i)
	}
}

// counts fails the test unless the only kind has these counts.
func counts(k *kit.Kit, want durable.KindCounts) {
	k.T.Helper()
	want.Kind = "k"
	c, err := k.On().Counts(ctx)
	if !c.Whole { // an own engine is still reading its tasks
		k.After(10 * time.Millisecond)
		c, err = k.On().Counts(ctx)
	}
	if err != nil || len(c.Kinds) != 1 || c.Kinds[0] != want {
		k.T.Errorf("the census is %+v, %v, want %+v", c, err, want)
	}
}

func pauses(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { return nil })
	for _, verb := range []func(context.Context, string) error{k.On().Pause, k.On().Resume} {
		if err := verb(ctx, "a"); !errors.Is(err, durable.ErrTaskKeyNotFound) {
			t.Errorf("without a task: %v", err)
		}
	}
	due := time.Now().Add(12 * time.Second)
	k.On().Add(durable.Task{Key: "early", Kind: "k", At: due}, durable.Task{Key: "late", Kind: "k", At: due},
		durable.Task{Key: "soon", Kind: "k", Delay: 500 * time.Millisecond})
	for _, key := range []string{"early", "late", "soon"} {
		k.Must(k.On().Pause(ctx, key))
		k.Must(k.On().Pause(ctx, key)) // a second call has no effect
		paused(k, key)
	}
	k.On().Add(durable.Task{Key: "never", Kind: "k", Delay: math.MaxInt64}) // due at the end of time
	counts(k, durable.KindCounts{Tasks: 4, Paused: 3})
	k.After(5 * time.Second)
	k.RanNothing()
	k.Must(k.On().Resume(ctx, "early"))
	k.Must(k.On().Resume(ctx, "early")) // a second call has no effect
	if i := k.Info("early"); i.State != durable.Scheduled || !i.Next.Equal(due) {
		t.Errorf("resumed: %+v", i)
	}
	calls := k.RunsAfter(10 * time.Second)
	if len(calls) != 1 || calls[0].Key != "early" || k.Begin.Add(calls[0].At).Before(due) {
		t.Errorf("resumed in time: %v", calls)
	}
	k.Must(k.On().Resume(ctx, "late"))
	k.Must(k.On().Resume(ctx, "soon"))
	if calls := k.RunsAfter(2 * time.Second); len(calls) != 2 || calls[0].Seq != 0 {
		t.Errorf("resumed too late: %v", calls)
	}
	for _, key := range []string{"early", "late", "soon"} {
		k.Gone(key)
	}
}

func resumesRepeating(t *testing.T, k *kit.Kit) {
	for kind, missed := range map[string]durable.Missed{
		"once": durable.MissedOnce, "skip": durable.MissedSkip, "all": durable.MissedAll,
	} {
		k.Handle(kind, func(context.Context, durable.Run) error { return nil }, durable.WithMissed(missed))
		k.On().Add(durable.Task{Key: kind, Kind: kind, Interval: 4 * time.Second, Times: durable.Forever})
		k.Must(k.On().Pause(ctx, kind))
	}
	k.After(22 * time.Second) // 5 periods and half of the next
	k.RanNothing()
	for kind, want := range map[string]struct {
		runs   int
		missed uint64
	}{"once": {1, 4}, "skip": {0, 5}, "all": {5, 0}} {
		k.Must(k.On().Resume(ctx, kind))
		calls := k.RunsAfter(500 * time.Millisecond)
		if i := k.Info(kind); len(calls) != want.runs || i.Missed != want.missed || i.State != durable.Scheduled {
			t.Errorf("%s: %d runs and %d missed periods, want %+v", kind, len(calls), i.Missed, want)
		}
		k.Must(k.On().RemoveTask(ctx, kind))
	}
}

func pausedVerbs(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { return durable.Park(errNot) })
	task := durable.Task{Key: "a", Kind: "k", Delay: time.Second}
	k.On().Add(task)
	k.Must(k.On().Pause(ctx, "a"))
	k.Must(k.On().Reschedule(ctx, "a", 3*time.Second))
	paused(k, "a")
	k.After(2 * time.Second)
	k.RanNothing()
	k.Must(k.On().Resume(ctx, "a"))
	if calls := k.RunsAfter(2 * time.Second); len(calls) != 1 {
		t.Errorf("moved and resumed: %v", calls)
	}
	k.Must(k.On().Pause(ctx, "a")) // the task is parked
	paused(k, "a")
	counts(k, durable.KindCounts{Tasks: 1, Paused: 1})
	if f, err := k.On().Failures(ctx); err != nil || len(f.Groups) != 0 {
		t.Errorf("a paused task fails: %+v, %v", f, err)
	}
	k.Must(k.On().Resume(ctx, "a"))
	counts(k, durable.KindCounts{Tasks: 1, Failing: 1, Parked: 1})
	if f, err := k.On().Failures(ctx); err != nil || len(f.Groups) != 1 {
		t.Errorf("a parked task fails: %+v, %v", f, err)
	}
	if i := k.Info("a"); i.State != durable.Parked {
		t.Errorf("parked, paused and resumed: %+v", i)
	}
	k.Must(k.On().Pause(ctx, "a"))
	k.Must(k.On().SetTask(ctx, task))
	if calls := k.RunsAfter(2 * time.Second); len(calls) != 1 {
		t.Errorf("replaced: %v", calls)
	}
	k.Must(k.On().Pause(ctx, "a"))
	k.Must(k.On().RemoveTask(ctx, "a"))
	k.Gone("a")
}

func pausesRunning(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { time.Sleep(2 * time.Second); return nil })
	k.On().Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
	k.After(1500 * time.Millisecond)
	k.Must(k.On().Pause(ctx, "a"))
	first := k.RunsAfter(5 * time.Second)
	paused(k, "a")
	k.Must(k.On().Resume(ctx, "a"))
	again := k.RunsAfter(5 * time.Second)
	if len(first) != 1 || len(again) != 1 || first[0].Token != again[0].Token {
		t.Errorf("before: %v, and resumed: %v", first, again)
	}
	k.Gone("a")
}

func bulkPauses(t *testing.T, k *kit.Kit) {
	k.Handle("later", func(context.Context, durable.Run) error { return nil })
	k.Handle("parks", func(context.Context, durable.Run) error { return durable.Park(errNot) })
	k.Handle("runs", func(context.Context, durable.Run) error { time.Sleep(time.Minute); return nil })
	due := time.Now().Add(time.Hour)
	k.On().Add(durable.Task{Key: "later-1", Kind: "later", At: due},
		durable.Task{Key: "later-2", Kind: "later", At: due},
		durable.Task{Key: "repeats", Kind: "later", At: due, Interval: time.Hour, Times: durable.Forever},
		durable.Task{Key: "parked", Kind: "parks", Delay: time.Second},
		durable.Task{Key: "running", Kind: "runs", Delay: time.Second})
	k.RunsAfter(5 * time.Second)
	do := func(q durable.Query, action durable.Action, want int) {
		t.Helper()
		if n, err := k.On().Bulk(ctx, q, action); n != want || err != nil {
			t.Errorf("Bulk(%+v, %d) = %d, %v, want %d", q, action, n, err, want)
		}
	}
	do(durable.Query{Prefix: "later"}, durable.DoPause, 2)
	do(durable.Query{}, durable.DoResume, 2) // the other tasks are not paused
	do(durable.Query{}, durable.DoResume, 0)
	do(durable.Query{Kind: "later", State: durable.Scheduled}, durable.DoPause, 3)
	do(durable.Query{}, durable.DoPause, 2) // the other tasks are already paused
	do(durable.Query{State: durable.Paused}, durable.DoNothing, 5)
	for _, q := range []durable.Query{{}, {Prefix: "later"}, {State: durable.Paused}, {State: durable.Scheduled}} {
		do(q, durable.DoPause, 0)
		do(q, durable.DoRunNow, 0)
	}
	k.After(10 * time.Second)
	k.RanNothing()
	for _, key := range []string{"later-1", "later-2", "repeats", "parked", "running"} {
		paused(k, key)
	}
	k.Must(k.On().Resume(ctx, "later-1"))
	do(durable.Query{Kind: "later"}, durable.DoRunNow, 1)
	k.After(2 * time.Second)
	k.Ran("later-1")
	do(durable.Query{State: durable.Paused}, durable.DoResume, 4)
	for _, key := range []string{"later-2", "repeats"} {
		if i := k.Info(key); i.State != durable.Scheduled || !i.Next.Equal(due) || i.Seq != 0 {
			t.Errorf("resumed: %+v", i)
		}
	}
	if i := k.Info("parked"); i.State != durable.Parked {
		t.Errorf("parked, paused and resumed: %+v", i)
	}
	if calls := k.RunsAfter(2 * time.Second); len(calls) != 1 || calls[0].Key != "running" || calls[0].Seq != 0 {
		t.Errorf("running, paused and resumed: %v", calls)
	}
	do(durable.Query{Kind: "later"}, durable.DoPause, 2)
	do(durable.Query{State: durable.Paused}, durable.DoRemove, 2)
}

// A Find for paused tasks reads only paused tasks.
func findsPaused(t *testing.T, k *kit.Kit) {
	k.Handle("k", ok)
	for i := range 20 {
		key := fmt.Sprint(i)
		k.On().Add(durable.Task{Key: key, Kind: "k", Delay: time.Hour})
		if i < 3 {
			k.Must(k.On().Pause(ctx, key))
		}
	}
	f, err := k.On().Find(ctx, durable.Query{State: durable.Paused})
	if err != nil || len(f.Tasks) != 3 || f.Looked != 3 || f.Next != "" {
		t.Errorf("%+v, %v", f, err)
	}
}
