// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// paused fails the test unless the task is paused.
func (r *rig) paused(key string) {
	r.t.Helper()
	if i := r.info(key); i.State != durable.Paused || i.Parked || !i.Next.IsZero() {
		r.t.Errorf("%+v", i)
	}
}

// counts fails the test unless the census is that of one kind.
func (r *rig) counts(want durable.KindCounts) {
	r.t.Helper()
	want.Kind = "k"
	if c, err := r.on().Counts(ctx); err != nil || len(c.Kinds) != 1 || c.Kinds[0] != want {
		r.t.Errorf("the census is %+v, %v, want %+v", c, err, want)
	}
}

func pauses(t *testing.T, r *rig) {
	r.handle("k", func(context.Context, durable.Run) error { return nil })
	for _, verb := range []func(context.Context, string) error{r.on().Pause, r.on().Resume} {
		if err := verb(ctx, "a"); !errors.Is(err, durable.ErrTaskKeyNotFound) {
			t.Errorf("without a task: %v", err)
		}
	}
	due := time.Now().Add(12 * time.Second)
	r.add(durable.Task{Key: "early", Kind: "k", At: due}, durable.Task{Key: "late", Kind: "k", At: due},
		durable.Task{Key: "soon", Kind: "k", Delay: 500 * time.Millisecond})
	for _, key := range []string{"early", "late", "soon"} {
		r.must(r.on().Pause(ctx, key))
		r.must(r.on().Pause(ctx, key)) // again
		r.paused(key)
	}
	r.add(durable.Task{Key: "never", Kind: "k", Delay: math.MaxInt64}) // it is due at the end of time
	r.counts(durable.KindCounts{Tasks: 4, Paused: 3})
	if calls := r.ran(5 * time.Second); len(calls) != 0 {
		t.Errorf("while all are paused: %v", calls)
	}
	r.must(r.on().Resume(ctx, "early"))
	r.must(r.on().Resume(ctx, "early")) // again
	if i := r.info("early"); i.State != durable.Scheduled || !i.Next.Equal(due) {
		t.Errorf("resumed: %+v", i)
	}
	calls := r.ran(10 * time.Second)
	if len(calls) != 1 || calls[0].Key != "early" || calls[0].at.Before(due) {
		t.Errorf("resumed in time: %v", calls)
	}
	r.must(r.on().Resume(ctx, "late"))
	r.must(r.on().Resume(ctx, "soon"))
	if calls := r.ran(2 * time.Second); len(calls) != 2 || calls[0].Seq != 0 {
		t.Errorf("resumed too late: %v", calls)
	}
	for _, key := range []string{"early", "late", "soon"} {
		r.gone(key)
	}
}

func resumesRepeating(t *testing.T, r *rig) {
	for kind, missed := range map[string]durable.Missed{
		"once": durable.MissedOnce, "skip": durable.MissedSkip, "all": durable.MissedAll,
	} {
		r.handle(kind, func(context.Context, durable.Run) error { return nil }, durable.WithMissed(missed))
		r.add(durable.Task{Key: kind, Kind: kind, Interval: 4 * time.Second, Times: durable.Forever})
		r.must(r.on().Pause(ctx, kind))
	}
	if calls := r.ran(22 * time.Second); len(calls) != 0 { // 5 periods, and half of the next
		t.Errorf("paused: %v", calls)
	}
	for kind, want := range map[string]struct {
		runs   int
		missed uint64
	}{"once": {1, 4}, "skip": {0, 5}, "all": {5, 0}} {
		r.must(r.on().Resume(ctx, kind))
		calls := r.ran(500 * time.Millisecond)
		if i := r.info(kind); len(calls) != want.runs || i.Missed != want.missed || i.State != durable.Scheduled {
			t.Errorf("%s: %d runs and %d missed periods, want %+v", kind, len(calls), i.Missed, want)
		}
		r.must(r.on().RemoveTask(ctx, kind))
	}
}

func pausedVerbs(t *testing.T, r *rig) {
	r.handle("k", func(context.Context, durable.Run) error { return durable.Park(errNot) })
	task := durable.Task{Key: "a", Kind: "k", Delay: time.Second}
	r.add(task)
	r.must(r.on().Pause(ctx, "a"))
	r.must(r.on().Reschedule(ctx, "a", 3*time.Second))
	r.paused("a")
	if calls := r.ran(2 * time.Second); len(calls) != 0 {
		t.Errorf("moved while it is paused: %v", calls)
	}
	r.must(r.on().Resume(ctx, "a"))
	if calls := r.ran(2 * time.Second); len(calls) != 1 {
		t.Errorf("moved and resumed: %v", calls)
	}
	r.must(r.on().Pause(ctx, "a")) // it is parked
	r.paused("a")
	r.counts(durable.KindCounts{Tasks: 1, Paused: 1})
	if f, err := r.on().Failures(ctx); err != nil || len(f.Groups) != 0 {
		t.Errorf("what is paused fails: %+v, %v", f, err)
	}
	r.must(r.on().Resume(ctx, "a"))
	r.counts(durable.KindCounts{Tasks: 1, Failing: 1, Parked: 1})
	if f, err := r.on().Failures(ctx); err != nil || len(f.Groups) != 1 {
		t.Errorf("what is parked fails: %+v, %v", f, err)
	}
	if i := r.info("a"); !i.Parked || i.State != durable.Parked {
		t.Errorf("parked, paused and resumed: %+v", i)
	}
	r.must(r.on().Pause(ctx, "a"))
	r.must(r.on().SetTask(ctx, task))
	if calls := r.ran(2 * time.Second); len(calls) != 1 {
		t.Errorf("replaced: %v", calls)
	}
	r.must(r.on().Pause(ctx, "a"))
	r.must(r.on().RemoveTask(ctx, "a"))
	r.gone("a")
}

func pausesRunning(t *testing.T, r *rig) {
	r.handle("k", func(context.Context, durable.Run) error { time.Sleep(2 * time.Second); return nil })
	r.add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
	time.Sleep(1500 * time.Millisecond)
	r.must(r.on().Pause(ctx, "a"))
	first := r.ran(5 * time.Second)
	r.paused("a")
	r.must(r.on().Resume(ctx, "a"))
	again := r.ran(5 * time.Second)
	if len(first) != 1 || len(again) != 1 || first[0].Token != again[0].Token {
		t.Errorf("before: %v, and resumed: %v", first, again)
	}
	r.gone("a")
}

func bulkPauses(t *testing.T, r *rig) {
	r.handle("later", func(context.Context, durable.Run) error { return nil })
	r.handle("parks", func(context.Context, durable.Run) error { return durable.Park(errNot) })
	r.handle("runs", func(context.Context, durable.Run) error { time.Sleep(time.Minute); return nil })
	due := time.Now().Add(time.Hour)
	r.add(durable.Task{Key: "later-1", Kind: "later", At: due},
		durable.Task{Key: "later-2", Kind: "later", At: due},
		durable.Task{Key: "repeats", Kind: "later", At: due, Interval: time.Hour, Times: durable.Forever},
		durable.Task{Key: "parked", Kind: "parks", Delay: time.Second},
		durable.Task{Key: "running", Kind: "runs", Delay: time.Second})
	r.ran(5 * time.Second)
	do := func(q durable.Query, action durable.Action, want int) {
		t.Helper()
		if n, err := r.on().Bulk(ctx, q, action); n != want || err != nil {
			t.Errorf("Bulk(%+v, %d) = %d, %v, want %d", q, action, n, err, want)
		}
	}
	do(durable.Query{Prefix: "later"}, durable.DoPause, 2)
	do(durable.Query{}, durable.DoResume, 2) // the others are not paused
	do(durable.Query{}, durable.DoResume, 0)
	do(durable.Query{Kind: "later", State: durable.Scheduled}, durable.DoPause, 3)
	do(durable.Query{}, durable.DoPause, 2) // the others are paused already
	do(durable.Query{State: durable.Paused}, durable.DoNothing, 5)
	for _, q := range []durable.Query{{}, {Prefix: "later"}, {State: durable.Paused}, {State: durable.Scheduled}} {
		do(q, durable.DoPause, 0)
		do(q, durable.DoRunNow, 0)
	}
	if calls := r.ran(10 * time.Second); len(calls) != 0 {
		t.Errorf("paused: %v", calls)
	}
	for _, key := range []string{"later-1", "later-2", "repeats", "parked", "running"} {
		r.paused(key)
	}
	r.must(r.on().Resume(ctx, "later-1"))
	do(durable.Query{Kind: "later"}, durable.DoRunNow, 1)
	if calls := r.ran(2 * time.Second); len(calls) != 1 || calls[0].Key != "later-1" {
		t.Errorf("run now, while the others are paused: %v", calls)
	}
	do(durable.Query{State: durable.Paused}, durable.DoResume, 4)
	for _, key := range []string{"later-2", "repeats"} {
		if i := r.info(key); i.State != durable.Scheduled || !i.Next.Equal(due) || i.Seq != 0 {
			t.Errorf("resumed: %+v", i)
		}
	}
	if i := r.info("parked"); i.State != durable.Parked {
		t.Errorf("parked, paused and resumed: %+v", i)
	}
	if calls := r.ran(2 * time.Second); len(calls) != 1 || calls[0].Key != "running" || calls[0].Seq != 0 {
		t.Errorf("running, paused and resumed: %v", calls)
	}
	do(durable.Query{Kind: "later"}, durable.DoPause, 2)
	do(durable.Query{State: durable.Paused}, durable.DoRemove, 2)
}
