// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// How a kind handles the runs that fell due while nothing ran: on the grid of an interval, and on the grid of a
// calendar, which is the same here. The tasks are due every minute. The process is away from the start of minute 2 to
// the middle of minute 12.
func TestMissed_withAnAge(t *testing.T) {
	testkit.NotForRaces(t)
	const age = 3*time.Minute + time.Second
	for name, c := range map[string]struct {
		opts   []durable.KindOption
		due    []int // minutes of the runs after that, up to minute 14
		missed uint64
	}{
		"once":                    {nil, []int{2, 13, 14}, 10},
		"once, at most 3 min old": {[]durable.KindOption{durable.WithMissedAge(age)}, []int{10, 13, 14}, 10},
		"once, at most 9 s old":   {[]durable.KindOption{durable.WithMissedAge(9 * time.Second)}, []int{13, 14}, 11},
		"skip":                    {[]durable.KindOption{durable.WithMissed(durable.MissedSkip)}, []int{13, 14}, 11},
		"skip, with an age": {
			[]durable.KindOption{durable.WithMissed(durable.MissedSkip), durable.WithMissedAge(age)},
			[]int{13, 14}, 11},
		"all": {[]durable.KindOption{durable.WithMissed(durable.MissedAll)},
			[]int{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, 0},
		"all, at most 3 min old": {
			[]durable.KindOption{durable.WithMissed(durable.MissedAll), durable.WithMissedAge(age)},
			[]int{10, 11, 12, 13, 14}, 8},
	} {
		for grid, task := range map[string]durable.Task{
			"interval": {Interval: time.Minute}, "calendar": {Cron: "* * * * *"},
		} {
			t.Run(name+"/"+grid, func(t *testing.T) {
				task.Key, task.Kind, task.Times = "a", "k", durable.Forever
				check := func(begin time.Time, due []time.Time, missed uint64) {
					var minutes []int
					for _, at := range due {
						minutes = append(minutes, int(at.Sub(begin)/time.Minute))
					}
					if fmt.Sprint(minutes) != fmt.Sprint(c.due) || missed != c.missed {
						t.Errorf("the runs were due at the minutes %v, want %v; %d were missed, want %d",
							minutes, c.due, missed, c.missed)
					}
				}
				t.Run("own engine", func(t *testing.T) {
					kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
						begin := time.Now() // a full minute
						k.Handle("k", ok, c.opts...)
						k.Add(task)
						k.After(119 * time.Second)
						k.Runs()
						k.Crash()
						k.Handle("k", ok, c.opts...)
						k.After(10*time.Minute + 31*time.Second)
						k.Start()
						k.After(2 * time.Minute)
						var due []time.Time
						for _, call := range k.Runs() {
							due = append(due, call.Due)
						}
						check(begin, due, k.Info("a").Missed)
					})
				})
				t.Run("node", func(t *testing.T) {
					kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
						begin := time.Now()
						first := k.Nodes[0]
						first.Handle("k", ok, c.opts...)
						first.Add(task)
						k.After(119 * time.Second)
						k.Runs()
						first.End()
						k.After(10*time.Minute + 31*time.Second)
						k.Join(nil).Start().Handle("k", ok, c.opts...)
						k.After(2 * time.Minute)
						var due []time.Time
						for _, call := range k.Runs() {
							due = append(due, call.Due)
						}
						check(begin, due, k.Info("a").Missed)
					})
				})
			})
		}
	}
}

// A run that has exceeded the age is missed even if an earlier run of the task is still running.
func TestMissed_withAnAge_whileARunIsLong(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		long := true
		k.Handle("k", func(context.Context, durable.Run) error {
			if long {
				long = false
				time.Sleep(10 * time.Minute)
			}
			return nil
		}, durable.WithMissed(durable.MissedAll), durable.WithMissedAge(150*time.Second))
		k.Add(durable.Task{Key: "a", Kind: "k", Interval: time.Minute, Times: 6})
		k.After(15 * time.Minute)
		m := time.Minute
		var due []time.Duration
		for _, c := range k.Runs() {
			due = append(due, c.Due.Sub(k.Begin))
		}
		if want := []time.Duration{m, 9 * m, 10 * m, 11 * m, 12 * m, 13 * m}; fmt.Sprint(due) != fmt.Sprint(want) {
			t.Errorf("the runs were due at %v, want %v", due, want)
		}
	})
}

func TestWithMissedAge_wrong(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		for _, d := range []time.Duration{0, -1} {
			if err := k.Scheduler.Handle("k", ok, durable.WithMissedAge(d)); err == nil {
				t.Errorf("an age of %v is accepted", d)
			}
		}
	})
}

// An overdue run that waits for the limit of its kind until it is too old is missed.
func TestMissed_withAnAge_whileItWaits(t *testing.T) {
	testkit.NotForRaces(t)
	const tasks = 5
	options := []durable.KindOption{durable.WithMissedAge(20 * time.Minute), durable.WithConcurrency(1)}
	slow := sleeper(10 * time.Minute)
	task := func(i int) durable.Task {
		return durable.Task{Key: fmt.Sprint("k", i), Kind: "k", Delay: time.Minute, Interval: 24 * hour, Times: 3}
	}
	check := func(starts []time.Duration, info func(string) durable.Info) {
		t.Helper()
		if len(starts) != 2 || starts[1]-starts[0] > 11*time.Minute {
			t.Errorf("the runs start at %v, want two", starts)
		}
		for i := range tasks {
			missed, times := uint64(0), 2
			if i >= 2 {
				missed, times = 1, 3
			}
			if is := info(task(i).Key); is.Missed != missed || is.Times != times || is.Attempts != 0 {
				t.Errorf("%+v", is)
			}
		}
	}
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", slow, options...)
		for i := range tasks {
			k.Add(task(i))
		}
		k.Crash()
		k.Handle("k", slow, options...)
		k.After(2 * time.Minute)
		k.Start()
		k.After(2 * hour)
		var starts []time.Duration
		for _, c := range k.Runs() {
			starts = append(starts, c.At)
		}
		check(starts, k.Info)
	})
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		k.Nodes[0].Handle("k", slow, options...)
		for i := range tasks {
			k.Nodes[0].Add(task(i))
		}
		k.Nodes[0].End()
		k.Nodes = nil
		k.After(2 * time.Minute)
		k.Join(nil).Start().Handle("k", slow, options...)
		k.After(2 * hour)
		var starts []time.Duration
		for _, call := range k.Runs() {
			starts = append(starts, call.At)
		}
		check(starts, k.Info)
	})
}

// A run from before the start that is restored after it is skipped as if it had been there at the start.
func TestMissedSkip_ofARestoredTask(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok, durable.WithMissed(durable.MissedSkip))
		k.Add(durable.Task{Key: "k", Kind: "k", Delay: sec, Interval: hour, Times: 3})
		record := stored(t, k.KV)[0].Record
		k.Must(k.RemoveTask(ctx, "k"))
		k.After(10 * time.Minute)
		k.Crash()
		k.Handle("k", ok, durable.WithMissed(durable.MissedSkip))
		k.Start()
		k.Must(k.Restore(ctx, record))
		k.After(10 * sec)
		k.RanNothing()
		if i := k.Info("k"); i.Missed != 1 || i.Times != 3 || !i.Next.Equal(k.Begin.Add(hour+sec)) {
			t.Errorf("%+v", i)
		}
	})
}

// Only runs due before Start, Handle or the resumption of their own kind are skipped, whatever happens to other kinds.
func TestMissedSkip_ofAKind_isNotOfAnother(t *testing.T) {
	const tasks = 3000 // more than are in memory
	for name, c := range map[string]struct{ before, after func(k *kit.Kit) }{
		"resumed": {
			func(k *kit.Kit) { k.Must(k.PauseKind(ctx, "note")) },
			func(k *kit.Kit) { k.Must(k.ResumeKind(ctx, "note")) },
		},
		"handled": {func(k *kit.Kit) { k.Crash("note") }, func(k *kit.Kit) { k.Handle("note", ok) }},
	} {
		t.Run(name, func(t *testing.T) {
			kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
				k.Add(durable.Task{Key: "other", Kind: "note", Delay: sec})
				c.before(k)
				k.Handle("k", sleeper(10*time.Millisecond), durable.WithMissed(durable.MissedSkip), durable.WithConcurrency(1))
				k.Start()
				for i := range tasks {
					k.Add(durable.Task{Key: fmt.Sprint("k", i), Kind: "k", Delay: sec, Interval: hour, Times: durable.Forever})
				}
				k.After(3 * sec)
				c.after(k)
				if n := len(k.RunsAfter(10 * time.Minute)); n != tasks+1 {
					t.Errorf("%d runs, want %d", n, tasks+1)
				}
			})
		})
	}
	t.Run("handled on a node", func(t *testing.T) {
		kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
			n := k.Join(nil).Start()
			n.Handle("k", sleeper(10*time.Millisecond), durable.WithMissed(durable.MissedSkip), durable.WithConcurrency(1))
			for i := range tasks / 10 {
				n.Add(durable.Task{Key: fmt.Sprint("k", i), Kind: "k", Delay: sec, Interval: hour, Times: durable.Forever})
			}
			k.After(2 * sec)
			n.Handle("other", ok)
			if n := len(k.RunsAfter(10 * time.Minute)); n != tasks/10 {
				t.Errorf("%d runs, want %d", n, tasks/10)
			}
		})
	})
}

// MissedSkip skips runs that were due before the node was started.
func TestMissed_skip_beforeTheStartOfANode(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		m := k.Join(nil)
		m.Handle("k", ok, durable.WithMissed(durable.MissedSkip))
		m.Add(durable.Task{Key: "a", Kind: "k", Interval: time.Minute, Times: 3})
		k.After(90 * sec)
		m.Start()
		calls := k.RunsAfter(2 * time.Minute)
		if len(calls) != 2 || !calls[0].Due.Equal(k.Begin.Add(2*time.Minute)) {
			t.Errorf("these are the runs: %v", calls)
		}
	})
}

// A failed run is tried again after downtime, and not skipped as missed.
func TestMissed_skip_ofARunThatHasFailed_isTriedAgain(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		handle := func(f durable.Handler) {
			k.Handle("k", f, durable.WithMissed(durable.MissedSkip), durable.WithRetry(3, time.Minute, time.Minute))
		}
		handle(func(context.Context, durable.Run) error { return kit.ErrFail })
		k.Add(durable.Task{Key: "a", Kind: "k", Interval: hour, Times: durable.Forever, Delay: sec})
		k.After(2 * sec)
		ranAt(k, "a", sec)
		k.Crash()
		k.After(10 * time.Minute)
		handle(ok)
		k.Start()
		k.After(sec)
		if calls := ranAt(k, "a", 10*time.Minute+2*sec); calls[0].Attempt != 2 || calls[0].Token.Seq != 0 {
			t.Errorf("%+v", calls[0])
		}
	})
}

// MissedSkip skips runs that were due before a handler was registered.
func TestMissed_skip_beforeAHandlerComes(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		handle := func() { k.Handle("k", ok, durable.WithMissed(durable.MissedSkip)) }
		handle()
		k.Add(durable.Task{Key: "a", Kind: "k", Interval: time.Minute, Times: durable.Forever})
		k.Crash()
		k.Start()
		k.After(150 * sec)
		handle()
		k.After(time.Minute)
		ranAt(k, "a", 3*time.Minute)
	})
}

// A run whose node has died is tried again, however old it is by then. It is not missed.
func TestMissed_withAnAge_whenTheNodeOfARunDies(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a, b := k.Nodes[0], k.Nodes[1]
		handleEach(k, "k", func(m *kit.Node) durable.Handler {
			return func(ctx context.Context, _ durable.Run) error {
				if m == a {
					<-ctx.Done()
				}
				return ctx.Err()
			}
		}, durable.WithMissed(durable.MissedSkip), durable.WithMissedAge(sec))
		a.Add(durable.Task{Key: "a", Kind: "k", Interval: time.Minute, Delay: sec / 10, Times: 2})
		k.After(sec)
		first := k.Ran("a")[0]
		a.Link.SetDown(true)
		k.After(2 * lease)
		if again := k.Ran("a")[0]; again.Node != b.Name || again.Token != first.Token || again.Attempt != 2 {
			t.Errorf("after %v: %v, attempt %d", []kit.Call{first}, []kit.Call{again}, again.Attempt)
		}
	})
}
