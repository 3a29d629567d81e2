// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// nightly is a set of that version, with the tasks of those names.
func nightly(version int64, names ...string) durable.TaskSet {
	set := durable.TaskSet{Prefix: "cron/", Version: version}
	for _, name := range names {
		set.Tasks = append(set.Tasks, durable.Task{Key: "cron/" + name, Kind: "k", Cron: "0 3 * * *"})
	}
	return set
}

// declares fails the test unless Schedule(set) returns want.
func declares(t *testing.T, k *kit.Kit, set durable.TaskSet, want durable.SetResult) {
	t.Helper()
	got, err := k.On().Schedule(ctx, set)
	if k.Must(err); got != want {
		t.Errorf("Schedule of version %d has done %+v, want %+v", set.Version, got, want)
	}
}

// exactly fails the test unless these are the keys under the prefix.
func exactly(t *testing.T, k *kit.Kit, prefix string, want ...string) {
	t.Helper()
	var got []string
	for i, err := range k.On().AllPrefix(ctx, prefix, "") {
		k.Must(err)
		got = append(got, i.Key[len(prefix):])
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the tasks are %v, want %v", got, want)
	}
}

// A declared set is added, changed and removed, and a task with the same definition is left alone.
func declaresSet(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(_ context.Context, run durable.Run) error {
		if run.Key == "cron/breaks" {
			return durable.Park(errNot)
		}
		return nil
	})
	k.On().Add(durable.Task{Key: "other", Kind: "k", Delay: time.Hour}, durable.Task{Key: "cron/by hand", Kind: "k", Delay: time.Hour})
	set := nightly(1, "a", "b", "paused", "breaks", "moves")
	declares(t, k, set, durable.SetResult{Added: 5, Removed: 1})
	declares(t, k, set, durable.SetResult{Unchanged: 5})
	k.Must(k.On().Pause(ctx, "cron/paused"), k.On().Reschedule(ctx, "cron/breaks", time.Second), k.On().Reschedule(ctx, "cron/a", time.Minute))
	k.RunsAfter(3 * time.Second)
	before := k.Info("cron/a")
	declares(t, k, set, durable.SetResult{Unchanged: 5})
	if i := k.Info("cron/breaks"); i.State != durable.Parked {
		t.Errorf("a parked task is not left alone: %v", i)
	}
	if i := k.Info("cron/a"); i.String() != before.String() {
		t.Errorf("a task is not left alone: %v, before %v", i, before)
	}

	next := nightly(2, "a", "paused", "breaks", "moves", "new")
	next.Tasks[0].Payload = []byte("changed") // keeps its due time
	next.Tasks[1].Payload = []byte("changed") // stays paused
	next.Tasks[2].Payload = []byte("changed") // is no longer parked
	next.Tasks[3].Cron = "0 4 * * *"          // is due by the new calendar
	next.Tasks[4].Interval, next.Tasks[4].Cron = time.Hour, ""
	declares(t, k, next, durable.SetResult{Added: 1, Changed: 4, Removed: 1})
	exactly(t, k, "cron/", "a", "breaks", "moves", "new", "paused")
	for key, holds := range map[string]func(i durable.Info) bool{
		"cron/a":      func(i durable.Info) bool { return string(i.Payload) == "changed" && i.Next.Equal(before.Next) },
		"cron/paused": func(i durable.Info) bool { return string(i.Payload) == "changed" && i.State == durable.Paused },
		"cron/breaks": func(i durable.Info) bool {
			return i.State == durable.Scheduled && i.Attempts == 0 && i.Next.UTC().Hour() == 3
		},
		"cron/moves": func(i durable.Info) bool { return i.Next.UTC().Hour() == 4 },
		"cron/new":   func(i durable.Info) bool { return i.Times == durable.Forever && i.Interval == time.Hour },
	} {
		if i := k.Info(key); !holds(i) {
			t.Errorf("after the change: %v", i)
		}
	}
	if exists, err := k.On().Exist(ctx, "other"); !exists || err != nil {
		t.Errorf("a task outside the set: %v, %v", exists, err)
	}
	k.Must(k.On().Reschedule(ctx, "cron/new", time.Second))
	if calls := k.RunsAfter(2 * time.Second); len(calls) != 1 || calls[0].Key != "cron/new" {
		t.Errorf("the runs are %v", calls)
	}
	declares(t, k, durable.TaskSet{Prefix: "cron/", Version: 2}, durable.SetResult{Removed: 5})
	declares(t, k, set, durable.SetResult{Newer: 2})
	exactly(t, k, "cron/")
}

// Processes with an old and a new set declare at the same time and in any order, and again. The new one wins.
func declaresRolling(t *testing.T, k *kit.Kit) {
	k.Handle("k", ok)
	k.On().Add(durable.Task{Key: "cron/first", Kind: "k", Interval: time.Second, Times: durable.Forever})
	older, newer := nightly(7, "old", "both"), nightly(8, "both", "new")
	older.Tasks[1].Payload, newer.Tasks[0].Payload = []byte("7"), []byte("8")
	for round := range 5 {
		var wg sync.WaitGroup
		for n := range 6 {
			s := k.On()
			wg.Go(func() {
				set := older
				if (n+round)%3 == 0 {
					set = newer
				}
				if r, err := s.Schedule(ctx, set); err != nil {
					t.Errorf("Schedule of version %d returns %+v, %v", set.Version, r, err)
				}
			})
		}
		wg.Wait()
		exactly(t, k, "cron/", "both", "new")
		if i := k.Info("cron/both"); string(i.Payload) != "8" {
			t.Errorf("the task of both sets is %v", i)
		}
	}
	declares(t, k, older, durable.SetResult{Newer: 8})
	older.Version = 9 // the older set is deployed again
	declares(t, k, older, durable.SetResult{Added: 1, Changed: 1, Removed: 1})
	exactly(t, k, "cron/", "both", "old")
}

// A task that runs all the time does not keep its set from changing.
func declaresWhileRunning(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { time.Sleep(30 * time.Millisecond); return nil })
	set := durable.TaskSet{Prefix: "cron/"}
	for n := range 10 {
		set.Tasks = append(set.Tasks, durable.Task{Key: fmt.Sprint("cron/", n), Kind: "k", Interval: 40 * time.Millisecond})
	}
	declares(t, k, set, durable.SetResult{Added: 10})
	for n := range 5 {
		k.After(time.Second)
		for i := range set.Tasks {
			set.Tasks[i].Payload = fmt.Append(nil, n)
		}
		declares(t, k, set, durable.SetResult{Changed: 10})
	}
	k.Runs()
	if calls := k.RunsAfter(2 * time.Second); len(calls) < 100 {
		t.Errorf("%d runs in two seconds", len(calls))
	}
}

// A declared task whose first run would be due after Until is not added, so one that has ended does not come back.
func declaresEnded(t *testing.T, k *kit.Kit) {
	k.Handle("k", ok)
	k.After(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
	begin := time.Now()
	end := begin.Add(3*time.Minute + 30*time.Second)
	set := durable.TaskSet{Prefix: "s/", Version: 1, Tasks: []durable.Task{
		{Key: "s/interval", Kind: "k", Interval: time.Minute, Until: end}, {Key: "s/calendar", Kind: "k", Cron: "* * * * *", Until: end},
		{Key: "s/at", Kind: "k", At: begin.Add(time.Minute), Interval: time.Minute, Until: end},
		{Key: "s/late", Kind: "k", Delay: time.Hour, Interval: time.Minute, Until: end},
		{Key: "s/on time", Kind: "k", At: end, Interval: time.Hour, Until: end},
	}}
	declares(t, k, set, durable.SetResult{Added: 4, Unchanged: 1})
	k.After(2*time.Minute + 10*time.Second)
	set.Version = 2
	declares(t, k, set, durable.SetResult{Unchanged: 5})
	k.Runs()
	k.After(2 * time.Minute)
	k.Ran("s/interval", "s/calendar", "s/at", "s/on time")
	for version := range int64(3) {
		set.Version = 2 + version
		declares(t, k, set, durable.SetResult{Unchanged: 5})
	}
	exactly(t, k, "s/")
	k.After(2 * time.Minute)
	k.RanNothing()
	set.Version, set.Tasks[0].Until = 5, time.Now().Add(time.Hour)
	declares(t, k, set, durable.SetResult{Added: 1, Unchanged: 4})
}

func wrongSets(t *testing.T, k *kit.Kit) {
	k.Handle("k", ok)
	task := durable.Task{Key: "cron/a", Kind: "k", Cron: "@daily"}
	set := func(change func(set *durable.TaskSet, task *durable.Task)) durable.TaskSet {
		s := durable.TaskSet{Prefix: "cron/", Tasks: []durable.Task{task}}
		change(&s, &s.Tasks[0])
		return s
	}
	for name, wrong := range map[string]durable.TaskSet{
		"no prefix":   set(func(s *durable.TaskSet, _ *durable.Task) { s.Prefix = "" }),
		"long prefix": set(func(s *durable.TaskSet, _ *durable.Task) { s.Prefix = string(make([]byte, durable.MaxPrefix+1)) }),
		"version":     set(func(s *durable.TaskSet, _ *durable.Task) { s.Version = -1 }),
		"another key": set(func(_ *durable.TaskSet, task *durable.Task) { task.Key = "a" }),
		"twice":       set(func(s *durable.TaskSet, _ *durable.Task) { s.Tasks = append(s.Tasks, task) }),
		"once":        set(func(_ *durable.TaskSet, task *durable.Task) { task.Cron = "" }),
		"some times":  set(func(_ *durable.TaskSet, task *durable.Task) { task.Times = 3 }),
		"wrong task":  set(func(_ *durable.TaskSet, task *durable.Task) { task.Cron = "x" }),
		"too many":    set(func(s *durable.TaskSet, _ *durable.Task) { s.Tasks = make([]durable.Task, durable.MaxSet+1) }),
		"a burst":     set(func(_ *durable.TaskSet, task *durable.Task) { task.Delay, task.MaxDelay = 1, 1 }),
	} {
		if r, err := k.On().Schedule(ctx, wrong); !errors.Is(err, durable.ErrInvalidTask) || r != (durable.SetResult{}) {
			t.Errorf("%s: Schedule returns %+v, %v", name, r, err)
		}
	}
	unknown := set(func(_ *durable.TaskSet, task *durable.Task) { task.Kind = "unknown" })
	if _, err := k.On().Schedule(ctx, unknown); !errors.Is(err, durable.ErrUnknownKind) {
		t.Errorf("a kind without a handler: %v", err)
	}
	exactly(t, k, "cron/")
}
