// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// A task whose run has failed for the last time continues with its next run, by interval and by calendar. The last run of a
// task, and a run that its handler has parked, park it.
func givesUp(t *testing.T, k *kit.Kit) {
	var bad atomic.Bool
	bad.Store(true)
	k.Handle("k", func(context.Context, durable.Run) error {
		if bad.Load() {
			return errNot
		}
		return nil
	}, durable.WithRetry(3, time.Second, time.Second), durable.WithHistory(100, time.Hour))
	k.After(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute - time.Second)))
	k.On().Add(
		durable.Task{Key: "interval", Kind: "k", Delay: time.Second, Interval: 10 * time.Minute, Times: 3},
		durable.Task{Key: "calendar", Kind: "k", Cron: "*/10 * * * *"},
		durable.Task{Key: "once", Kind: "k", Delay: time.Second})
	begun := time.Now().Add(time.Second)
	if calls := k.RunsAfter(5 * time.Second); len(calls) != 6 && len(calls) != 9 { // the calendar may not be due yet
		t.Fatalf("%d calls: %v", len(calls), calls)
	}
	i := k.Info("interval")
	if i.State != durable.Scheduled || i.GivenUp != 1 || i.Attempts != 0 || i.Failure != errNot.Error() || len(i.Failed) != 3 ||
		i.Times != 2 || i.Missed != 0 || i.Seq != 1 || i.State == durable.Parked {
		t.Errorf("after a run that was given up: %v", i)
	}
	if next := i.Next.Sub(begun); next < 10*time.Minute-time.Second || next > 10*time.Minute+time.Second {
		t.Errorf("the next run is due %v after the first", next)
	}
	if i := k.Info("once"); i.State != durable.Parked || i.GivenUp != 0 || i.Attempts != 3 {
		t.Errorf("a task without further runs: %v", i)
	}
	k.After(10 * time.Minute)
	if i := k.Info("calendar"); i.State != durable.Scheduled || i.GivenUp == 0 || i.Times != durable.Forever ||
		i.Next.Minute()%10 != 0 || i.Failure != errNot.Error() {
		t.Errorf("a task with a calendar: %v", i)
	}
	if i := k.Info("interval"); i.GivenUp != 2 || i.Times != 1 || i.Seq != 2 || i.Attempts != 0 || len(i.Failed) != 5 {
		t.Errorf("after two runs that were given up: %v", i)
	}
	again := uint64(0)
	for _, n := range k.Nodes {
		again += n.Scheduler.Kinds()[0].GivenUpAgain
	}
	if again < 1 {
		t.Errorf("%d runs were given up after one that was given up", again)
	}
	failures, err := k.On().Failures(ctx)
	k.Must(err)
	if len(failures.Groups) != 1 || failures.Groups[0].Tasks != 3 || failures.Groups[0].Parked != 1 || failures.Groups[0].GivenUp != 2 {
		t.Errorf("the failures are %+v", failures)
	}
	failing, err := k.On().Find(ctx, durable.Query{Failing: true})
	k.Must(err)
	if keys := namesOf(failing.Tasks); !slices.Equal(keys, []string{"calendar", "interval", "once"}) {
		t.Errorf("the failing tasks are %v", keys)
	}

	bad.Store(false)
	k.After(10 * time.Minute)
	k.Gone("interval")
	if i := k.Info("calendar"); i.GivenUp != 0 || i.Failure != "" || i.Failed != nil || i.State != durable.Scheduled {
		t.Errorf("after a run that completed: %v", i)
	}
	if failing, err = k.On().Find(ctx, durable.Query{Failing: true}); err != nil || !slices.Equal(namesOf(failing.Tasks), []string{"once"}) {
		t.Errorf("the failing tasks are %v, %v", namesOf(failing.Tasks), err)
	}
	given := past(k, durable.HistoryQuery{Key: "interval", Outcomes: []string{durable.OutcomeGivenUp}})
	if !slices.Equal(given, []string{"interval 3 given up", "interval 3 given up"}) {
		t.Errorf("the history is %q", given)
	}
	if parked := past(k, durable.HistoryQuery{Outcomes: []string{durable.OutcomeParked}}); !slices.Equal(parked, []string{"once 3 parked"}) {
		t.Errorf("the history is %q", parked)
	}
	addsUp(k)
}

// namesOf returns the keys of the tasks.
func namesOf(tasks []durable.Info) (keys []string) {
	for _, i := range tasks {
		keys = append(keys, i.Key)
	}
	return keys
}

// addsUp compares the counters of the kinds with those of the schedulers.
func addsUp(k *kit.Kit) (parked, givenUp uint64) {
	k.T.Helper()
	for _, n := range k.Nodes {
		s := n.Stats()
		var of durable.KindInfo
		for _, kind := range n.Scheduler.Kinds() {
			of.ParkedTotal += kind.ParkedTotal
			of.GivenUp += kind.GivenUp
		}
		if of.ParkedTotal != s.ParkedTotal || of.GivenUp != s.GivenUp {
			k.T.Errorf("the kinds count %d parked and %d given up, and Stats %d and %d", of.ParkedTotal, of.GivenUp, s.ParkedTotal, s.GivenUp)
		}
		parked, givenUp = parked+s.ParkedTotal, givenUp+s.GivenUp
	}
	return parked, givenUp
}

// The runs of a long outage that were not made count as missed, as after a run that took that long.
func givesUpLate(t *testing.T, k *kit.Kit) {
	fails := func(context.Context, durable.Run) error { return durable.RetryAfter(25*time.Second, errNot) }
	retry := durable.WithRetry(2, time.Second, time.Second)
	k.Handle("k", fails, retry)
	k.Handle("all", fails, retry, durable.WithMissed(durable.MissedAll))
	for _, kind := range []string{"k", "all"} {
		k.On().Add(durable.Task{Key: kind, Kind: kind, Delay: time.Second, Interval: 10 * time.Second, Times: 9})
	}
	k.RunsAfter(29 * time.Second)
	if i := k.Info("k"); i.GivenUp != 1 || i.Times != 8 || i.Missed != 2 || i.Seq != 1 || i.State != durable.Scheduled {
		t.Errorf("MissedOnce: %v", i)
	}
	if i := k.Info("all"); i.GivenUp != 1 || i.Times != 8 || i.Missed != 0 || i.Seq != 1 {
		t.Errorf("MissedAll: %v", i)
	}
}

// The option of a kind parks what repeats.
func parksRepeating(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { return errNot }, durable.WithRetry(2, time.Second, time.Second),
		durable.WithParkRepeating())
	k.On().Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second, Interval: time.Minute, Times: durable.Forever})
	k.RunsAfter(5 * time.Minute)
	if i := k.Info("a"); i.State != durable.Parked || i.GivenUp != 0 || i.Attempts != 2 || i.Times != durable.Forever {
		t.Errorf("it is %v", i)
	}
	if of := k.Nodes[0].Scheduler.Kinds()[0]; !of.ParkRepeating {
		t.Errorf("the kind is %+v", of)
	}
	if parked, givenUp := addsUp(k); parked != 1 || givenUp != 0 {
		t.Errorf("%d times parked, %d runs given up", parked, givenUp)
	}
}

// changes are what can happen to a task during its last attempt, so that the result of the attempt does not count.
var changes = map[string]func(k *kit.Kit, key string) error{
	"none":       func(*kit.Kit, string) error { return nil },
	"remove":     func(k *kit.Kit, key string) error { return k.On().RemoveTask(ctx, key) },
	"reschedule": func(k *kit.Kit, key string) error { return k.On().Reschedule(ctx, key, time.Hour) },
	"set": func(k *kit.Kit, key string) error {
		return k.On().SetTask(ctx, durable.Task{Key: key, Kind: "k", Delay: time.Hour})
	},
	"pause":  func(k *kit.Kit, key string) error { return k.On().Pause(ctx, key) },
	"prefix": func(k *kit.Kit, key string) error { _, err := k.On().RemovePrefix(ctx, key); return err },
	"schedule": func(k *kit.Kit, key string) error {
		_, err := k.On().Schedule(ctx, durable.TaskSet{Prefix: key, Tasks: []durable.Task{{Key: key, Kind: "k", Interval: 3 * time.Hour}}})
		return err
	},
	"cancel": func(k *kit.Kit, key string) error { _, err := k.On().Cancel(ctx, key); return err },
}

// Parked and given up are said of a task if that was stored: not of one that was removed, moved, replaced, paused or
// declared again during its last attempt. A cancelled attempt is found as cancelled, whatever follows from it.
func saysWhatWasStored(t *testing.T, k *kit.Kit) {
	ends := map[string]error{"gives up": errNot, "parks": durable.Park(errNot)}
	k.Handle("k", func(ctx context.Context, run durable.Run) error {
		if run.Trace == "" || run.Seq > 0 {
			return nil
		}
		select {
		case <-time.After(8 * time.Second):
		case <-ctx.Done():
		}
		return ends[run.Trace]
	}, durable.WithRetry(1, time.Second, time.Second), durable.WithHistory(1000, time.Hour))
	for how := range changes {
		for end := range ends {
			k.On().Add(durable.Task{Key: how + " " + end, Kind: "k", Trace: end, Delay: time.Second, Interval: 2 * time.Hour, Times: durable.Forever})
		}
	}
	k.After(2 * time.Second)
	for how, change := range changes {
		for end := range ends {
			if err := change(k, how+" "+end); err != nil {
				t.Errorf("%s: %v", how, err)
			}
		}
	}
	k.After(20 * time.Second)
	seen := map[string]durable.Attempt{}
	for _, a := range k.Attempts() {
		if _, there := seen[a.Key]; !there {
			seen[a.Key] = a
		}
	}
	var wantParked, wantGivenUp uint64
	for how := range changes {
		for end := range ends {
			key := how + " " + end
			counts := how == "none" || how == "cancel"
			parks, givesUp := counts && end == "parks", counts && end == "gives up"
			if parks {
				wantParked++
			}
			if givesUp {
				wantGivenUp++
			}
			i, there, err := k.On().Get(ctx, key)
			k.Must(err)
			if is := there && i.State == durable.Parked; is != parks || there && (i.GivenUp > 0) != givesUp {
				t.Errorf("%s: it is %v", key, i)
			}
			h, err := k.On().History(ctx, durable.HistoryQuery{Key: key})
			k.Must(err)
			if len(h.Runs) == 0 {
				t.Errorf("%s: it has no history", key)
				continue
			}
			first := h.Runs[len(h.Runs)-1]
			want := durable.OutcomeFailed
			if parks {
				want = durable.OutcomeParked
			} else if givesUp {
				want = durable.OutcomeGivenUp
			}
			if first.Outcome() != want || first.Parked != parks || first.GivenUp != givesUp || first.Cancelled != (how == "cancel") {
				t.Errorf("%s: the history says %v", key, first)
			}
			if how == "cancel" {
				for _, outcome := range []string{want, durable.OutcomeCancelled} {
					if got := past(k, durable.HistoryQuery{Key: key, Outcomes: []string{outcome}}); len(got) != 1 {
						t.Errorf("%s: as %s there are %q", key, outcome, got)
					}
				}
			}
			if a, there := seen[key]; !there || a.Parked != parks || a.GivenUp != givesUp {
				t.Errorf("%s: the observer was given %v", key, a)
			}
		}
	}
	if parked, givenUp := addsUp(k); parked != wantParked || givenUp != wantGivenUp {
		t.Errorf("%d times parked, %d runs given up, want %d and %d", parked, givenUp, wantParked, wantGivenUp)
	}
}
