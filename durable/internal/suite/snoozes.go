// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// Each attempt of a postponed run has the same token and number. A failure counts as usual.
func snoozes(t *testing.T, k *kit.Kit) {
	const wait = 7 * time.Second
	calls := 0
	k.Handle("k", func(context.Context, durable.Run) error {
		switch calls++; {
		case calls == 4:
			return errNot
		case calls < 8:
			return fmt.Errorf("closed: %w", durable.Snooze(wait))
		}
		return nil
	}, durable.WithRetry(2, time.Second, time.Second))
	k.On().Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
	got := k.RunsAfter(2*time.Second + 2*wait)
	if len(got) != 3 {
		t.Fatalf("%d attempts: %v", len(got), got)
	}
	for n, c := range got {
		if c.Attempt != 1 || c.Token != got[0].Token || !c.Due.Equal(got[0].Due) {
			t.Errorf("attempt %d of a postponed run is %+v", n, c)
		}
		if n > 0 {
			if d := c.At - got[n-1].At; d < wait || d > wait+time.Second/2 {
				t.Errorf("attempt %d comes after %v", n, d)
			}
		}
	}
	if i := k.Info("a"); i.State != durable.Scheduled || i.Snoozes != 3 || i.Attempts != 0 || i.Failure != "" {
		t.Errorf("a postponed task: %+v", i)
	}
	got = k.RunsAfter(wait + 2*time.Second) // it fails, and is postponed again
	if len(got) != 2 || got[0].Attempt != 1 || got[1].Attempt != 2 {
		t.Errorf("after a failure: %v", got)
	}
	k.RunsAfter(5 * wait)
	k.Gone("a")
	var s durable.Stats
	for _, n := range k.Nodes {
		more := n.Stats()
		s.Started, s.Succeeded = s.Started+more.Started, s.Succeeded+more.Succeeded
		s.Failed, s.Snoozed = s.Failed+more.Failed, s.Snoozed+more.Snoozed
	}
	if s.Started != 8 || s.Snoozed != 6 || s.Failed != 1 || s.Succeeded != 1 {
		t.Errorf("the accounts are %v", s)
	}
}

// After a postponed run, a repeating task returns to its grid. A postponed run is not skipped.
func snoozesRepeating(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(_ context.Context, run durable.Run) error {
		if run.Seq == 0 && time.Since(run.Due) < 20*time.Second {
			return durable.Snooze(25 * time.Second)
		}
		return nil
	}, durable.WithMissed(durable.MissedSkip), durable.WithMissedAge(5*time.Second))
	k.On().Add(durable.Task{Key: "a", Kind: "k", Interval: 10 * time.Second, Times: 2})
	got := k.RunsAfter(46 * time.Second)
	if len(got) != 3 || got[1].Seq != 0 || got[1].At-got[0].At < 25*time.Second || got[2].Seq == 0 {
		t.Fatalf("the attempts are %v", got)
	}
	if d := got[2].Due.Sub(got[0].Due); d != 30*time.Second || got[2].Missed != 2 {
		t.Errorf("the second run is due %v after the first, and %d are missed", d, got[2].Missed)
	}
	k.Gone("a")
}

// SetTask begins a new burst after a run was postponed, because that run has started.
func snoozeEndsBurst(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(_ context.Context, run durable.Run) error {
		if string(run.Payload) == "1" {
			return durable.Snooze(time.Hour)
		}
		return nil
	})
	burst := durable.Task{Key: "a", Kind: "k", Delay: 5 * time.Second, MaxDelay: 8 * time.Second, Payload: []byte("1")}
	k.Must(k.On().SetTask(ctx, burst))
	k.RunsAfter(7 * time.Second)
	burst.Payload = []byte("2")
	k.Must(k.On().SetTask(ctx, burst))
	k.RunsAfter(4 * time.Second)
	if i := k.Info("a"); i.Snoozes != 0 || i.Next.Before(time.Now()) {
		t.Errorf("a new burst: %+v", i)
	}
	if got := k.RunsAfter(3 * time.Second); len(got) != 1 {
		t.Errorf("the runs of the new burst are %v", got)
	}
}

// A run that cannot start in time is dropped and counted, whatever kept it: a pause, failures or snoozes.
func expires(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(_ context.Context, run durable.Run) error {
		switch run.Key {
		case "fails":
			return errNot
		case "snoozes":
			return durable.Snooze(4 * time.Second)
		}
		return nil
	}, durable.WithRetry(100, 4*time.Second, 4*time.Second))
	const soon = 10 * time.Second
	task := func(key string) durable.Task {
		return durable.Task{Key: key, Kind: "k", Delay: time.Second, Expires: soon}
	}
	k.On().Add(task("fails"), task("snoozes"), task("runs"), durable.Task{Key: "stays", Kind: "k", Delay: time.Second})
	k.RunsAfter(2 * time.Second)
	k.Gone("runs")
	k.RunsAfter(14 * time.Second)
	k.Gone("fails")
	k.Gone("snoozes")

	for i := range 20 { // a run that starts as early as it can is not late
		k.On().Add(durable.Task{Key: fmt.Sprint("short ", i), Kind: "k", Delay: time.Second + time.Duration(i)*7*time.Millisecond, Expires: time.Millisecond})
	}
	if got := k.RunsAfter(3 * time.Second); len(got) != 20 {
		t.Errorf("%d of 20 tasks with a short Expires have run", len(got))
	}

	k.Must(k.On().PauseKind(ctx, "k"))
	k.After(3 * time.Second) // until every node knows
	k.On().Add(task("late"), task("moved"), durable.Task{Key: "may wait", Kind: "k", Delay: time.Second})
	k.After(time.Minute)
	if i := k.Info("late"); i.Expires != soon {
		t.Errorf("a task that expires: %+v", i)
	}
	k.Must(k.On().Reschedule(ctx, "moved", time.Second), k.On().ResumeKind(ctx, "k"))
	got := k.RunsAfter(5 * time.Second)
	if len(got) != 2 || got[0].Key == "late" || got[1].Key == "late" {
		t.Errorf("after a pause the runs are %v", got)
	}
	k.Gone("late")
	var expired uint64
	for _, n := range k.Nodes {
		expired += n.Stats().Expired
	}
	if expired != 3 {
		t.Errorf("%d tasks have expired, want 3", expired)
	}
	for _, wrong := range []durable.Task{
		{Key: "b", Kind: "k", Expires: -1},
		{Key: "b", Kind: "k", Expires: soon, Interval: time.Second},
		{Key: "b", Kind: "k", Expires: soon, Cron: "@daily"},
	} {
		if err := k.On().AddTask(ctx, wrong); !errors.Is(err, durable.ErrInvalidTask) {
			t.Errorf("adding %+v returns %v", wrong, err)
		}
	}
}

// A run that is postponed after its timeout has not failed.
func snoozesLate(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(ctx context.Context, run durable.Run) error {
		if run.Attempt > 1 {
			return nil
		}
		<-ctx.Done()
		return durable.Snooze(time.Hour)
	}, durable.WithTimeout(time.Second))
	k.On().Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
	k.RunsAfter(4 * time.Second)
	if i := k.Info("a"); i.Snoozes != 1 || i.Attempts != 0 || i.Failure != "" {
		t.Errorf("postponed after its timeout: %v", i)
	}
}

// A postponed run that falls due while its kind is paused is not skipped, even if the kind skips missed runs.
func snoozesIntoAPause(t *testing.T, k *kit.Kit) {
	calls := 0
	k.Handle("k", func(context.Context, durable.Run) error {
		if calls++; calls == 1 {
			return durable.Snooze(5 * time.Second)
		}
		return nil
	}, durable.WithMissed(durable.MissedSkip))
	k.On().Add(durable.Task{Key: "a", Kind: "k", Interval: time.Hour, Delay: time.Second, Times: durable.Forever})
	k.RunsAfter(2 * time.Second)
	k.Must(k.On().PauseKind(ctx, "k"))
	k.After(20 * time.Second)
	k.Must(k.On().ResumeKind(ctx, "k"))
	if got := k.RunsAfter(5 * time.Second); len(got) != 1 || got[0].Seq != 0 {
		t.Errorf("after the pause the runs are %v", got)
	}
}
