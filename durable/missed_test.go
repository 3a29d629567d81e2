// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// What a kind makes of the runs that fell due while nothing ran: on the grid of an interval, and on that of a
// calendar, which is the same here. The tasks are due each minute; the process is away from the start of
// minute 2 to half past minute 12.
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
				t.Run("keeper", func(t *testing.T) {
					inBubble(t, func(t *testing.T, r *rig) {
						begin := time.Now() // a full minute
						r.handle("k", ok, c.opts...)
						r.add(task)
						time.Sleep(119 * time.Second)
						r.runs()
						r.crash()
						r.handle("k", ok, c.opts...)
						time.Sleep(10*time.Minute + 31*time.Second)
						r.start()
						time.Sleep(2 * time.Minute)
						var due []time.Time
						for _, call := range r.runs() {
							due = append(due, call.Due)
						}
						check(begin, due, r.info("a").Missed)
					})
				})
				t.Run("node", func(t *testing.T) {
					inCluster(t, 1, func(t *testing.T, cl *cluster) {
						begin := time.Now()
						first := cl.nodes[0]
						first.handle("k", ok, c.opts...)
						first.add(task)
						time.Sleep(119 * time.Second)
						cl.runs()
						first.shutdown()
						cl.nodes = nil
						time.Sleep(10*time.Minute + 31*time.Second)
						cl.join("note").handle("k", ok, c.opts...)
						time.Sleep(2 * time.Minute)
						var due []time.Time
						for _, call := range cl.runs() {
							due = append(due, call.Due)
						}
						check(begin, due, cl.info("a").Missed)
					})
				})
			})
		}
	}
}

// What was due before an age is missed also while an earlier run of the task is running.
func TestMissed_withAnAge_whileARunIsLong(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		long := true
		r.handle("k", func(context.Context, durable.Run) error {
			if long {
				long = false
				time.Sleep(10 * time.Minute)
			}
			return nil
		}, durable.WithMissed(durable.MissedAll), durable.WithMissedAge(150*time.Second))
		r.add(durable.Task{Key: "a", Kind: "k", Interval: time.Minute, Times: 6})
		time.Sleep(15 * time.Minute)
		m := time.Minute
		var due []time.Duration
		for _, c := range r.runs() {
			due = append(due, c.Due.Sub(r.begin))
		}
		if want := []time.Duration{m, 9 * m, 10 * m, 11 * m, 12 * m, 13 * m}; fmt.Sprint(due) != fmt.Sprint(want) {
			t.Errorf("the runs were due at %v, want %v", due, want)
		}
	})
}

func TestWithMissedAge_wrong(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for _, d := range []time.Duration{0, -1} {
			if err := r.Handle("k", ok, durable.WithMissedAge(d)); err == nil {
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
	inOneBubble(t, func(t *testing.T, r *rig) {
		r.handle("k", slow, options...)
		for i := range tasks {
			r.add(task(i))
		}
		r.crash()
		r.handle("k", slow, options...)
		time.Sleep(2 * time.Minute)
		r.start()
		testkit.Settle(2 * hour)
		var starts []time.Duration
		for _, c := range r.runs() {
			starts = append(starts, c.at)
		}
		check(starts, r.info)
	})
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		c.nodes[0].handle("k", slow, options...)
		for i := range tasks {
			c.nodes[0].add(task(i))
		}
		c.nodes[0].shutdown()
		c.nodes = nil
		time.Sleep(2 * time.Minute)
		c.join("note").handle("k", slow, options...)
		testkit.Settle(2 * hour)
		var starts []time.Duration
		for _, call := range c.runs() {
			starts = append(starts, call.at)
		}
		check(starts, c.info)
	})
}

// A run from before the start that is restored after it is skipped as it would be if it had been there.
func TestMissedSkip_ofARestoredTask(t *testing.T) {
	inOneBubble(t, func(t *testing.T, r *rig) {
		r.handle("k", ok, durable.WithMissed(durable.MissedSkip))
		r.add(durable.Task{Key: "k", Kind: "k", Delay: sec, Interval: hour, Times: 3})
		record, _, err := r.store.Get("k")
		r.must(err)
		r.must(r.RemoveTask(ctx, "k"))
		testkit.Settle(10 * time.Minute)
		r.crash()
		r.handle("k", ok, durable.WithMissed(durable.MissedSkip))
		r.start()
		r.must(r.Restore(ctx, record))
		testkit.Settle(10 * sec)
		if calls := r.runs(); len(calls) != 0 {
			t.Errorf("these ran: %v", brief(calls))
		}
		if i := r.info("k"); i.Missed != 1 || i.Times != 3 || !i.Next.Equal(r.begin.Add(hour+sec)) {
			t.Errorf("%+v", i)
		}
	})
}

// Only what was due before Start, Handle or the resumption of its own kind is skipped, whatever is done to others.
func TestMissedSkip_ofAKind_isNotOfAnother(t *testing.T) {
	const tasks = 3000 // more than are in memory
	for name, c := range map[string]struct{ before, after func(r *rig) }{
		"resumed": {
			func(r *rig) { r.must(r.PauseKind(ctx, "note")) },
			func(r *rig) { r.must(r.ResumeKind(ctx, "note")) },
		},
		"handled": {func(r *rig) { r.crash("note") }, func(r *rig) { r.handle("note", ok) }},
	} {
		t.Run(name, func(t *testing.T) {
			inOneBubble(t, func(t *testing.T, r *rig) {
				r.add(durable.Task{Key: "other", Kind: "note", Delay: sec})
				c.before(r)
				r.handle("k", sleeper(10*time.Millisecond), durable.WithMissed(durable.MissedSkip), durable.WithConcurrency(1))
				r.start()
				for i := range tasks {
					r.add(durable.Task{Key: fmt.Sprint("k", i), Kind: "k", Delay: sec, Interval: hour, Times: durable.Forever})
				}
				testkit.Settle(3 * sec)
				c.after(r)
				testkit.Settle(10 * time.Minute)
				if n := len(r.runs()); n != tasks+1 {
					t.Errorf("%d runs, want %d", n, tasks+1)
				}
			})
		})
	}
	t.Run("handled on a node", func(t *testing.T) {
		inCluster(t, 0, func(t *testing.T, c *cluster) {
			n := c.join("note")
			n.handle("k", sleeper(10*time.Millisecond), durable.WithMissed(durable.MissedSkip), durable.WithConcurrency(1))
			for i := range tasks / 10 {
				n.add(durable.Task{Key: fmt.Sprint("k", i), Kind: "k", Delay: sec, Interval: hour, Times: durable.Forever})
			}
			testkit.Settle(2 * sec)
			n.handle("other", ok)
			testkit.Settle(10 * time.Minute)
			if n := len(c.runs()); n != tasks/10 {
				t.Errorf("%d runs, want %d", n, tasks/10)
			}
		})
	})
}

// MissedSkip passes over what was due before the node was started.
func TestMissed_skip_beforeTheStartOfANode(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		s, err := durable.Join(ctx, c.engine, durable.WithTick(tick), durable.WithLogger(testkit.Quiet()))
		if err != nil {
			t.Fatal(err)
		}
		m := &member{Scheduler: s, c: c}
		c.nodes = append(c.nodes, m)
		m.handle("k", ok, durable.WithMissed(durable.MissedSkip))
		m.add(durable.Task{Key: "a", Kind: "k", Interval: time.Minute, Times: 3})
		time.Sleep(90 * sec)
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		testkit.Settle(2 * time.Minute)
		calls := c.runs()
		if len(calls) != 2 || !calls[0].Due.Equal(c.begin.Add(2*time.Minute)) {
			t.Errorf("these are the runs: %v", briefly(calls))
		}
	})
}

// A run that has failed is tried again after downtime, and not passed over as missed.
func TestMissed_skip_ofARunThatHasFailed_isTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		handle := func(f durable.Handler) {
			r.handle("k", f, durable.WithMissed(durable.MissedSkip), durable.WithRetry(3, time.Minute, time.Minute))
		}
		handle(func(context.Context, durable.Run) error { return errFail })
		r.add(durable.Task{Key: "a", Kind: "k", Interval: hour, Times: durable.Forever, Delay: sec})
		testkit.Settle(2 * sec)
		r.ranAt("a", sec)
		r.crash()
		testkit.Settle(10 * time.Minute)
		handle(ok)
		r.start()
		testkit.Settle(sec)
		if calls := r.ranAt("a", 10*time.Minute+2*sec); calls[0].Attempt != 2 || calls[0].Token.Seq != 0 {
			t.Errorf("%+v", calls[0])
		}
	})
}

// MissedSkip passes over what was due before a handler has come.
func TestMissed_skip_beforeAHandlerComes(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		handle := func() { r.handle("k", ok, durable.WithMissed(durable.MissedSkip)) }
		handle()
		r.add(durable.Task{Key: "a", Kind: "k", Interval: time.Minute, Times: durable.Forever})
		r.crash()
		r.start()
		testkit.Settle(150 * sec)
		handle()
		testkit.Settle(time.Minute)
		r.ranAt("a", 3*time.Minute)
	})
}

// A run whose node has died is tried again, however old it is by then: it is not missed.
func TestMissed_withAnAge_whenTheNodeOfARunDies(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.nodes[0], c.nodes[1]
		c.handle("k", func(m *member) durable.Handler {
			return func(ctx context.Context, _ durable.Run) error {
				if m == a {
					<-ctx.Done()
				}
				return ctx.Err()
			}
		}, durable.WithMissed(durable.MissedSkip), durable.WithMissedAge(sec))
		a.add(durable.Task{Key: "a", Kind: "k", Interval: time.Minute, Delay: sec / 10, Times: 2})
		testkit.Settle(sec)
		first := c.ran("a")
		a.link.SetDown(true)
		testkit.Settle(2 * lease)
		if again := c.ran("a"); again.node != b.name || again.Token != first.Token || again.Attempt != 2 {
			t.Errorf("after %v: %v, attempt %d", briefly([]nodeCall{first}), briefly([]nodeCall{again}), again.Attempt)
		}
	})
}
