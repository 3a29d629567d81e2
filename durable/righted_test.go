// SPDX-License-Identifier: MIT

package durable_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

const (
	tooFar  = 10 * 365 * 24 * time.Hour
	righted = 2 * time.Minute // until the tasks are due at the right times
)

// repeating adds tasks of all sorts that repeat, and one that a caller has dated.
func repeating(k *kit.Kit, at time.Time) {
	k.T.Helper()
	k.Handle("down", func(context.Context, durable.Run) error { return durable.RetryAfter(30*time.Minute, kit.ErrFail) })
	k.Handle("not yet", func(context.Context, durable.Run) error { return durable.Snooze(3 * time.Hour) })
	k.Handle("long", func(context.Context, durable.Run) error { time.Sleep(10 * time.Minute); return nil })
	k.Handle("skips", func(context.Context, durable.Run) error { return nil }, durable.WithMissed(durable.MissedSkip))
	hourly := func(kind string) durable.Task {
		return durable.Task{Key: kind, Kind: kind, Interval: time.Hour, Times: durable.Forever}
	}
	paused := hourly("note")
	paused.Key = "paused"
	k.Add(hourly("note"), hourly("down"), hourly("not yet"), hourly("long"), hourly("skips"), paused,
		durable.Task{Key: "nightly", Kind: "note", Cron: "30 2 * * *"},
		durable.Task{Key: "dated", Kind: "note", At: at.Add(2 * tooFar), Interval: time.Hour, Times: durable.Forever})
	_, err := k.Schedule(context.Background(), durable.TaskSet{Prefix: "declared", Tasks: []durable.Task{
		{Key: "declared", Kind: "note", Interval: time.Hour}}})
	k.Must(err)
}

// whole checks that each of the tasks is due within its period of now, on its grid, and the dated one when it was.
func whole(k *kit.Kit, now, began time.Time) {
	k.T.Helper()
	for key, within := range map[string]time.Duration{"note": time.Hour, "declared": time.Hour, "down": time.Hour, "long": time.Hour,
		"skips": time.Hour, "not yet": 3 * time.Hour, "nightly": 24 * time.Hour} {
		i := k.Info(key)
		if i.Next.Before(now) || i.Next.Sub(now) > within {
			k.T.Errorf("%s is due %v from now", key, i.Next.Sub(now))
		}
		off := i.Next.Sub(began) % time.Hour
		if key != "down" && key != "not yet" && key != "nightly" && min(off, time.Hour-off) > time.Second {
			k.T.Errorf("%s is due %v beside its grid", key, off)
		}
		if key == "nightly" && i.Next.UTC().Format("15:04:05") != "02:30:00" {
			k.T.Errorf("%s is due at %v", key, i.Next.UTC())
		}
	}
	if i := k.Info("dated"); !i.Next.Equal(began.Add(2 * tooFar)) {
		k.T.Errorf("the task with At is due at %v", i.Next)
	}
}

// An engine's clock is years ahead for a while. Repeating tasks run at that time, and after it.
func TestClockAhead_onAnEngine(t *testing.T) {
	t.Parallel()
	for name, nodes := range map[string]int{"one node": 1, "three nodes": 3} {
		for when, restarts := range map[string]bool{"": false, ", and then other nodes": true} {
			t.Run(name+when, func(t *testing.T) {
				var log bytes.Buffer
				logger := logrus.New()
				logger.SetOutput(&log)
				kit.OnNodes(t, nodes, func(t *testing.T, k *kit.Kit) {
					began := time.Now()
					repeating(k, began)
					k.After(time.Hour + time.Second)
					k.KV.Step(tooFar)
					k.After(2 * time.Second) // all that is overdue runs; the long run is in progress
					k.Must(k.Pause(context.Background(), "paused"))
					for _, n := range slices.Clone(k.Nodes) {
						if restarts {
							n.Kill()
						}
					}
					k.KV.Step(-tooFar)
					k.After(3 * time.Second) // until the leases are over
					if restarts {
						k.Join(nil).Start()
						handleAll(k)
					}
					k.After(righted + 10*time.Minute)
					whole(k, time.Now(), began)
					if i := k.Info("paused"); i.State != durable.Paused {
						t.Errorf("the paused task: %+v", i)
					}
					k.Must(k.Resume(context.Background(), "paused"))
					k.Runs()
					runs := make(map[string]int)
					for _, c := range k.RunsAfter(2 * time.Hour) {
						runs[c.Key]++
					}
					for _, key := range []string{"note", "declared", "skips", "long", "paused"} {
						if runs[key] < 2 || runs[key] > 3 {
							t.Errorf("%q has run %d times in two hours", key, runs[key])
						}
					}
					k.After(20 * time.Minute) // the long run has ended
					whole(k, time.Now(), began)
				}, durable.WithLogger(logger))
				if n := strings.Count(log.String(), "the clock was ahead"); n < 1 || n > 2 {
					t.Errorf("it is said %d times:\n%s", n, log.String())
				}
			})
		}
	}
}

func handleAll(k *kit.Kit) {
	k.T.Helper()
	k.Handle("down", func(context.Context, durable.Run) error { return durable.RetryAfter(30*time.Minute, kit.ErrFail) })
	k.Handle("not yet", func(context.Context, durable.Run) error { return durable.Snooze(3 * time.Hour) })
	k.Handle("long", func(context.Context, durable.Run) error { time.Sleep(10 * time.Minute); return nil })
	k.Handle("skips", func(context.Context, durable.Run) error { return nil }, durable.WithMissed(durable.MissedSkip))
}

// storedAhead returns what is stored after a clock was ahead.
func storedAhead(t *testing.T, began time.Time) (on *memory.KV) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		time.Sleep(time.Until(began.Add(tooFar)) - 2*time.Hour)
		k.Open(k.KV).Start()
		repeating(k, began)
		k.Must(k.Pause(context.Background(), "paused"))
		k.After(2*time.Hour + time.Minute)
		on = k.KV.Clone()
	})
	return on
}

// The clock of a computer was years ahead while the process before ran.
func TestClockAhead_beforeTheProcess(t *testing.T) {
	var began time.Time
	kit.In(t, func(t *testing.T, k *kit.Kit) { began = time.Now() })
	left := storedAhead(t, began)
	var log bytes.Buffer
	logger := logrus.New()
	logger.SetOutput(&log)
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Open(left).Start()
		handleAll(k)
		k.After(righted)
		whole(k, time.Now(), began)
		k.Runs()
		runs := make(map[string]int)
		for _, c := range k.RunsAfter(24 * time.Hour) {
			runs[c.Key]++
		}
		for key, least := range map[string]int{"note": 23, "declared": 23, "skips": 23, "long": 22, "nightly": 1} {
			if runs[key] < least || runs[key] > 25 {
				t.Errorf("%q has run %d times in a day", key, runs[key])
			}
		}
		k.After(20 * time.Minute) // the long run has ended
		whole(k, time.Now(), began)
	}, durable.WithLogger(logger))
	if n := strings.Count(log.String(), "the clock was ahead"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, log.String())
	}
}

// An engine's clock is years ahead for a moment, in which a task is added, and no settings are read.
func TestClockAhead_forAMoment(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		kit.OnNodes(t, nodes, func(t *testing.T, k *kit.Kit) {
			k.After(10*time.Second + 100*time.Millisecond)
			for range 2 {
				k.KV.Step(tooFar)
				k.After(time.Millisecond)
				k.Must(k.SetTask(context.Background(), durable.Task{Key: "k", Kind: "note", Interval: time.Hour, Times: durable.Forever}))
				k.After(time.Millisecond)
				k.KV.Step(-tooFar)
				k.After(righted)
				if next := time.Until(k.Info("k").Next); next > time.Hour {
					t.Errorf("%d nodes: it is due in %v", nodes, next)
				}
			}
			var walks atomic.Int64
			for _, n := range k.Nodes {
				n.Link.SetFaults(func(method string) enginetest.Fault {
					if method == "Walk ByDue" {
						walks.Add(1)
					}
					return enginetest.Fault{}
				})
			}
			k.After(time.Hour)
			if n := int(walks.Load()); n > 61*nodes { // once a minute for tasks without a handler
				t.Errorf("%d nodes: all tasks are looked at %d times more", nodes, n)
			}
		})
	}
}

// A backup was made while the clock was ahead. The restored tasks are due at their next instants.
func TestClockAhead_restore(t *testing.T) {
	var began time.Time
	kit.In(t, func(t *testing.T, k *kit.Kit) { began = time.Now() })
	var backup []engine.Record
	for _, task := range stored(t, storedAhead(t, began)) {
		backup = append(backup, task.Record)
	}
	onBoth(t, func(t *testing.T, k *kit.Kit) {
		k.Must(k.Restore(context.Background(), backup...))
		k.After(righted)
		whole(k, time.Now(), began)
	})
}

// A run was in progress when the clock was set back, and its node dies. The task is still due at its next instant.
func TestClockAhead_whileARunIsInProgress(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		var first atomic.Bool
		k.Handle("long", func(ctx context.Context, _ durable.Run) error {
			if first.CompareAndSwap(false, true) {
				<-ctx.Done()
			}
			return ctx.Err()
		})
		k.KV.Step(tooFar)
		k.Add(durable.Task{Key: "k", Kind: "long", Interval: time.Minute, Times: durable.Forever})
		calls := k.RunsAfter(time.Minute + time.Second)
		k.KV.Step(-tooFar)
		k.After(5 * time.Minute)
		for _, n := range k.Nodes {
			if n.Name == calls[0].Node {
				n.Link.SetDown(true)
			}
		}
		k.After(5 * time.Minute)
		if i := k.Info("k"); time.Until(i.Next) > time.Minute {
			t.Errorf("it is due in %v", time.Until(i.Next))
		}
		if calls = k.Runs(); len(calls) == 0 {
			t.Error("it has not run again")
		}
		for _, n := range k.Nodes {
			n.Link.SetDown(false)
		}
	})
}

// A run that was in progress when the clock was set back counts: it is not repeated.
func TestClockAhead_theEndOfARunCounts(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		k.Handle("long", func(context.Context, durable.Run) error { time.Sleep(10 * time.Minute); return nil })
		k.KV.Step(tooFar)
		k.After(time.Minute) // the step ends leases
		k.Add(durable.Task{Key: "k", Kind: "long", Interval: time.Hour, Times: durable.Forever})
		k.After(time.Hour + time.Minute)
		k.KV.Step(-tooFar)
		k.After(2 * time.Hour)
		calls := k.Runs()
		if len(calls) < 2 || calls[0].Token == calls[1].Token {
			t.Errorf("the runs are %v", calls)
		}
	})
}

// A scheduler that was started, or whose kind was resumed, while the clock was ahead skips nothing afterwards.
func TestClockAhead_missedSkip(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Share()
		k.KV.Step(tooFar)
		k.Join(nil).Start()
		handleAll(k)
		k.Must(k.PauseKind(context.Background(), "skips"))
		k.After(5 * time.Second)
		k.Must(k.ResumeKind(context.Background(), "skips"))
		k.KV.Step(-tooFar)
		k.After(righted)
		k.Add(durable.Task{Key: "k", Kind: "skips", Interval: time.Hour, Times: durable.Forever})
		k.After(time.Hour - time.Second)
		k.Link.SetDown(true)
		k.After(10 * time.Second)
		k.Link.SetDown(false)
		k.Runs()
		if runs := len(k.RunsAfter(time.Hour)); runs != 2 {
			t.Errorf("it has run %d times, and one of them was late", runs)
		}
	})
}

// A task that is added while the clock is ahead, to start at once, does not wait for that instant either.
func TestClockAhead_tasksWithAtInThePast(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		k.Handle("paused", func(context.Context, durable.Run) error { return nil })
		k.Must(k.PauseKind(ctx, "paused"))
		k.After(10 * sec)
		k.KV.Step(8760 * hour)
		k.After(3 * sec)
		past := time.Now().Add(-sec)
		k.Add(durable.Task{Key: "interval", Kind: "paused", At: past, Interval: hour, Times: durable.Forever},
			durable.Task{Key: "calendar", Kind: "paused", At: past, Cron: "0 * * * *"})
		k.After(sec)
		k.KV.Step(-8760 * hour)
		k.After(3 * time.Minute)
		for _, key := range []string{"interval", "calendar"} {
			if d := time.Until(k.Info(key).Next); d > hour {
				t.Errorf("%s is due in %v", key, d)
			}
		}
	})
}
