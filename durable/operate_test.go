// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/author"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/durable/internal/suite"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

func TestOperate_onAnOwnEngine(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		suite.TestOperate(t, func(t *testing.T, opts ...durable.Option) []*durable.Scheduler {
			s, err := durable.New(ctx, memory.New().Engine(), append(opts, durable.WithLogger(testkit.Quiet()))...)
			if err != nil {
				t.Fatal(err)
			}
			return []*durable.Scheduler{s}
		})
	})
}

func TestOperate_onNodes(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := memory.New().Shared()
				suite.TestOperate(t, func(t *testing.T, opts ...durable.Option) (all []*durable.Scheduler) {
					return join(t, engine, nodes, opts...)
				})
			})
		})
	}
}

// join returns nodes of the engine that are not started.
func join(t *testing.T, engine engine.Engine, nodes int, opts ...durable.Option) (all []*durable.Scheduler) {
	t.Helper()
	for i := range nodes {
		s, err := durable.New(ctx, engine, append(opts, durable.WithLease(lease), durable.WithLogger(testkit.Quiet()),
			durable.WithNodeName(fmt.Sprint("node ", i)))...)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// The time for a query ends after some of the tasks: the result says so, and the next page continues there. Each page
// makes some progress, however slow the store is.
func TestFind_cut_goesOn(t *testing.T) {
	for _, each := range []time.Duration{time.Millisecond, time.Second} {
		kit.In(t, func(t *testing.T, k *kit.Kit) {
			k.Open(k.KV)
			const tasks = 1000
			for i := range tasks {
				k.Add(durable.Task{Key: fmt.Sprintf("k%04d", i), Kind: "note", Delay: hour})
			}
			k.End()
			s := k.Open(drowsy{k.KV.Clone(), each})
			for _, prefix := range []string{"", "k"} {
				found, pages := 0, 0
				for q := (durable.Query{Prefix: prefix, Kind: "note", Limit: tasks}); ; pages++ {
					began := time.Now()
					f, err := s.Find(ctx, q)
					if err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); took > max(155*time.Millisecond, 5*each) {
						t.Fatalf("a page has taken %v", took)
					}
					if found += len(f.Tasks); f.Next == "" {
						break
					}
					if !f.Cut || f.Looked == 0 {
						t.Fatalf("%d were looked at, and cut is %v", f.Looked, f.Cut)
					}
					q.After = f.Next
				}
				if found != tasks || pages < 5 {
					t.Errorf("%d tasks were found on %d pages", found, pages)
				}
			}
			f, err := s.Failures(ctx)
			if err != nil || f.Cut || f.Looked != 0 { // the others cost nothing
				t.Errorf("the failures are %+v, %v", f, err)
			}
		})
	}
}

// Either a concurrent verb wins, or Bulk does. Bulk leaves alone a task that has changed since it was found.
func TestBulk_whileTasksChange(t *testing.T) {
	onSlowOnes(t, func(t *testing.T, k *kit.Kit) {
		const tasks = 2000
		task := func(i int) durable.Task {
			return durable.Task{Key: fmt.Sprintf("k%04d", i), Kind: "note", Delay: hour}
		}
		for i := range tasks {
			k.Add(task(i))
		}
		var others sync.WaitGroup
		var removed, moved atomic.Int64
		rnd := rand.New(rand.NewPCG(3, 4))
		for _, i := range rnd.Perm(tasks)[:600] {
			wait := time.Duration(rnd.IntN(2500)) * time.Millisecond
			others.Go(func() {
				time.Sleep(wait)
				if i%2 == 0 {
					if k.RemoveTask(ctx, task(i).Key) == nil {
						removed.Add(1)
					}
					return
				}
				err := k.Reschedule(ctx, task(i).Key, 2*hour)
				if err == nil {
					moved.Add(1)
				} else if !errors.Is(err, durable.ErrTaskKeyNotFound) {
					t.Error(err)
				}
			})
		}
		n, err := k.Bulk(ctx, durable.Query{Prefix: "k"}, durable.DoRemove)
		if err != nil {
			t.Error(err)
		}
		others.Wait()
		left := 0
		for i, err := range k.All(ctx) {
			if err != nil || i.Seq == 0 { // the same task as before the walk came to it
				t.Errorf("left is %+v, %v", i, err)
			}
			left++
		}
		if gone := int(removed.Load()); n+gone+left != tasks || gone == 0 || n == 0 {
			t.Errorf("Bulk has removed %d, others %d, and %d of %d are left", n, gone, left, tasks)
		}
		t.Logf("Bulk has removed %d, others %d and moved %d, of which %d are left", n, removed.Load(), moved.Load(), left)
	})
}

// Bulk leaves alone a task that another node has replaced between the look and the removal.
func TestBulk_ofATaskThatIsReplacedMeanwhile_leavesItAlone(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		b, replaced := k.Nodes[0], false
		a := k.Join(func(to engine.Engine) engine.Engine {
			return watched{Engine: to, commits: func() {
				if replaced {
					return
				}
				replaced = true
				if err := b.SetTask(ctx, durable.Task{Key: "k", Kind: "note", Delay: 2 * hour}); err != nil {
					t.Error(err)
				}
			}}
		}).Start()
		b.Add(durable.Task{Key: "k", Kind: "note", Delay: hour})
		if n, err := a.Bulk(ctx, durable.Query{Prefix: "k"}, durable.DoRemove); n != 0 || err != nil || !replaced {
			t.Errorf("Bulk has removed %d, %v", n, err)
		}
		k.Info("k")
	})
}

// Tasks that repeat faster than Bulk can handle all of them are run once each.
func TestBulk_runNow_ofRepeatingTasks_ends(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		for i := range 50 {
			a.Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: hour, Interval: sec, Times: durable.Forever})
		}
		a.Link.SetFaults(func(string) enginetest.Fault { return enginetest.Fault{Delay: 200 * time.Millisecond} })
		if n, err := a.Bulk(ctx, durable.Query{}, durable.DoRunNow); n != 50 || err != nil {
			t.Errorf("Bulk has run %d, %v", n, err)
		}
		k.After(sec)
		for _, q := range []durable.Query{{}, {State: durable.Scheduled}, {State: durable.Waiting}, {Kind: "note"}} {
			if n, err := a.Bulk(ctx, q, durable.DoRunNow); n > 50 || err != nil { // some have run since they were found
				t.Errorf("Bulk(%+v) = %d, %v", q, n, err)
			}
		}
		a.Link.SetFaults(nil)
	})
}

// countsAgree fails the test unless the census and Stats agree with a walk through the store. It returns the tasks.
func countsAgree(r *kit.Kit) (all []durable.Info) {
	r.T.Helper()
	synctest.Wait()
	want := make(map[string]durable.KindCounts)
	parked := 0
	for i, err := range r.All(ctx) {
		if err != nil {
			r.T.Fatal(err)
		}
		all = append(all, i)
		k := want[i.Kind]
		k.Kind = i.Kind
		k.Tasks++
		switch {
		case i.State == durable.Paused:
			k.Paused++
		case i.Attempts > 0 || i.GivenUp > 0:
			k.Failing++
		}
		if i.State == durable.Parked {
			k.Parked++
			parked++
		}
		want[i.Kind] = k
	}
	paused, err := r.Paused(ctx)
	r.Must(err)
	c, err := r.Counts(ctx)
	if err != nil || !c.Whole || len(c.Kinds) != len(want) {
		r.T.Fatalf("the census is %+v, %v, want %v", c, err, want)
	}
	for _, k := range c.Kinds {
		w := want[k.Kind]
		if w.KindPaused = paused.Has(k.Kind); k != w {
			r.T.Errorf("the census has %+v, want %+v", k, w)
		}
	}
	if s := r.Stats(); s.Pending != len(all) || s.Parked != parked {
		r.T.Errorf("there are %d tasks, %d of them parked, and the accounts are %+v", len(all), parked, s)
	}
	return all
}

// The census agrees with a count after all kinds of changes, including changes during the first count.
func TestCensus_agreesWithAWalk(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("once", func(context.Context, durable.Run) error { return kit.ErrFail }, durable.WithRetry(1, sec, sec))
		k.Handle("twice", func(context.Context, durable.Run) error { return kit.ErrFail }, durable.WithRetry(3, sec, hour))
		rnd := rand.New(rand.NewPCG(5, 6))
		for round := range 20 {
			for range 200 {
				key := fmt.Sprint(rnd.IntN(300))
				switch rnd.IntN(6) {
				case 0:
					_ = k.RemoveTask(ctx, key)
				case 1:
					_ = k.Reschedule(ctx, key, time.Duration(rnd.IntN(5))*sec)
				case 2:
					_ = k.Pause(ctx, key)
				case 3:
					_ = k.Resume(ctx, key)
				default:
					kind := []string{"once", "twice", "note", "fail"}[rnd.IntN(4)]
					task := durable.Task{Key: key, Kind: kind, Delay: time.Duration(1 + rnd.IntN(int(10*sec)))}
					k.Must(k.SetTask(ctx, task))
				}
			}
			k.After(time.Duration(rnd.IntN(int(5 * sec))))
			countsAgree(k)
			if round%5 == 4 {
				k.Crash("note")
				k.Start()
				countsAgree(k)
				k.Crash()
				k.Handle("once", func(context.Context, durable.Run) error { return kit.ErrFail }, durable.WithRetry(1, sec, sec))
				k.Handle("twice", func(context.Context, durable.Run) error { return kit.ErrFail }, durable.WithRetry(3, sec, hour))
				k.Start()
			}
		}
	})
}

// A slow count is taken in the background, and used for 15 s.
func TestCensus_ofAnEngine_isNotCountedOften(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		counts := 0
		count := func(d time.Duration) {
			a.Link.SetFaults(func(method string) enginetest.Fault {
				if method != "Count" {
					return enginetest.Fault{}
				}
				counts++
				return enginetest.Fault{Delay: d}
			})
		}
		count(time.Second)
		a.Add(durable.Task{Key: "k", Kind: "note", Delay: hour})
		began := time.Now()
		if first, err := a.Counts(ctx); err != nil || first.Whole || time.Since(began) > 200*time.Millisecond {
			t.Errorf("the first count is %+v, %v, after %v", first, err, time.Since(began))
		}
		k.After(2 * time.Second)
		for range 13 {
			c, err := a.Counts(ctx)
			if err != nil || !c.Whole || len(c.Kinds) != 1 || a.Len() != 1 || a.Stats().Pending != 1 {
				t.Fatalf("the census is %+v, %v", c, err)
			}
			k.After(time.Second)
		}
		if counts != 1 {
			t.Errorf("in 15 s it was counted %d times", counts)
		}
		for range 60 {
			k.After(time.Second)
			if c, err := a.Counts(ctx); err != nil || time.Since(c.At) > 18*time.Second {
				t.Errorf("the census is of %v ago, %v", time.Since(c.At), err)
			}
		}
		if counts < 4 || counts > 5 {
			t.Errorf("in 75 s it was counted %d times", counts)
		}
		k.After(time.Minute)
		count(time.Millisecond)
		for i := range 10 {
			if n := a.Len(); n != 1+i {
				t.Errorf("Len is %d, want %d", n, 1+i)
			}
			a.Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: hour})
		}
	})
}

// Steps that find next to nothing reach the end. Each task is handled once, and none is read twice.
func TestBulkStep_continues(t *testing.T) {
	const tasks, each = 2000, 100
	for name, open := range map[string]func(opts ...durable.Option) (*durable.Scheduler, error){
		"store": func(opts ...durable.Option) (*durable.Scheduler, error) {
			return durable.New(ctx, memory.New().Engine(), opts...)
		},
		"engine": func(opts ...durable.Option) (*durable.Scheduler, error) {
			return durable.New(ctx, memory.New().Shared(), opts...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := open(durable.WithLogger(testkit.Quiet()))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Shutdown(ctx) }()
			for _, kind := range []string{"often", "rare"} {
				if err := s.Handle(kind, sleeper(0)); err != nil {
					t.Fatal(err)
				}
			}
			var add []durable.Task
			for i := range tasks {
				kind := "often"
				if i%each == 0 {
					kind = "rare"
				}
				add = append(add, durable.Task{Key: fmt.Sprint(i), Kind: kind, Delay: hour + time.Duration(i)})
			}
			if err := s.AddTask(ctx, add...); err != nil {
				t.Fatal(err)
			}
			for _, do := range []durable.Action{durable.DoNothing, durable.DoPause} {
				q := durable.Query{Kind: "rare", State: durable.Scheduled, For: 1}
				n, steps := 0, 0
				for {
					done, next, err := s.BulkStep(ctx, q, do)
					if err != nil || steps > tasks {
						t.Fatalf("%d steps, %v", steps, err)
					}
					n, steps = n+done, steps+1
					if next == "" {
						break
					}
					q.After = next
				}
				if n != tasks/each || steps < 2 {
					t.Errorf("%d of %d were done in %d steps", n, tasks/each, steps)
				}
			}
			if n, err := s.Bulk(ctx, durable.Query{State: durable.Paused}, durable.DoNothing); n != tasks/each || err != nil {
				t.Errorf("%d are paused, %v", n, err)
			}
			if _, _, err := s.BulkStep(ctx, durable.Query{After: "?"}, durable.DoPause); !errors.Is(err, durable.ErrInvalidTask) {
				t.Errorf("after what is no cursor: %v", err)
			}
		})
	}
}

// Overdue tasks are worked off at the bounded rate, and CatchUp reports it.
func TestCatchUp_says_whatIsLeft(t *testing.T) {
	const tasks, perSecond = 5000, 100
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Open(k.KV)
		for i := range tasks {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: sec + time.Duration(i)})
		}
		k.After(hour)
		k.Crash()
		k.Start()
		k.After(15 * time.Second)
		c, err := k.CatchUp(ctx)
		left := time.Duration(c.Left) * time.Second / perSecond
		if err != nil || c.Cut || c.Left < tasks-16*perSecond || c.Left > tasks-14*perSecond || c.Oldest.Before(k.Begin) ||
			time.Until(c.Done) < left*9/10 || time.Until(c.Done) > left*11/10 {
			t.Errorf("after 15 s it is %+v, %v; at the rate it should be done in %v", c, err, left)
		}
		k.After(time.Minute)
		if c, err := k.CatchUp(ctx); err != nil || c.Left != 0 || c.Cut || len(c.Kinds) != 0 || !c.Oldest.IsZero() || !c.Done.IsZero() {
			t.Errorf("at the end it is %+v, %v", c, err)
		}
	}, durable.WithCatchUp(perSecond))
}

// overdueOn adds n tasks that were due an hour ago.
func overdueOn(k *kit.Kit, n int) {
	k.T.Helper()
	at := time.Now().Add(-time.Hour)
	batch := make(engine.Batch, n)
	for i := range batch {
		w, err := author.Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", At: at}, at.UnixNano())
		if err != nil {
			k.T.Fatal(err)
		}
		batch[i] = w
	}
	if _, err := k.Engine.Commit(ctx, 0, []engine.Batch{batch}); err != nil {
		k.T.Fatal(err)
	}
}

// On a node CatchUp covers the whole engine: the other nodes start overdue tasks as well.
func TestCatchUp_onNodes_countsTheStartsOfAll(t *testing.T) {
	const tasks, perSecond = 5000, 100
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		k.After(lease)
		overdueOn(k, tasks)
		k.After(15 * sec)
		for _, m := range k.Nodes {
			is, err := m.CatchUp(ctx)
			left := time.Duration(is.Left) * time.Second / perSecond
			if err != nil || is.Left < tasks-16*perSecond || is.Left > tasks-14*perSecond ||
				time.Until(is.Done) < left*9/10 || time.Until(is.Done) > left*11/10 {
				t.Errorf("after 15 s it is %+v on %s, %v; at the rate it should be done in %v", is, m.Name, err, left)
			}
		}
	}, durable.WithCatchUp(perSecond))
}

// A count that takes long is reused, minus the tasks started since.
func TestCatchUp_ofACountThatTakesLong_isLessTheStartsSince(t *testing.T) {
	const tasks, perSecond = 1000, 100
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		m := k.Nodes[0]
		overdueOn(k, tasks)
		k.After(3 * sec)
		m.Link.Next("Walk ByDue", enginetest.Fault{Delay: 20 * time.Millisecond})
		first, err := m.CatchUp(ctx)
		if err != nil || first.Left < tasks/2 {
			t.Fatalf("%+v, %v, %d have run", first, err, len(k.Runs()))
		}
		k.After(sec)
		m.Link.Next("Walk ByDue", enginetest.Fault{Fail: true}) // it is not counted again
		again, err := m.CatchUp(ctx)
		if started := first.Left - again.Left; err != nil || started < perSecond*9/10 || started > perSecond*11/10 {
			t.Errorf("a second after %+v it is %+v, %v", first, again, err)
		}
	}, durable.WithCatchUp(perSecond))
}

// CatchUp leaves out payloads that no handler here accepts: Stats.Unhandled counts them.
func TestCatchUp_ofALaterPayload_isNotCounted(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "later", Kind: "note", Delay: sec, PayloadVersion: 2})
		k.Crash()
		k.After(2 * sec)
		k.Start()
		k.After(sec)
		if c, err := k.CatchUp(ctx); err != nil || c.Left != 0 || len(c.Kinds) != 0 {
			t.Errorf("%+v, %v", c, err)
		}
		unhandled(k, 1)
	})
}

// CatchUp counts a backlog that builds up after the start, because of a limit or a lack of workers, and estimates when
// it is worked off.
func TestCatchUp_ofWhatFallsDueAfterTheStart(t *testing.T) {
	const tasks = 3000 // more than are in memory
	for name, option := range map[string]durable.KindOption{
		"limit": durable.WithConcurrency(1), "workers": durable.WithRetry(1, sec, sec),
	} {
		t.Run(name, func(t *testing.T) {
			kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
				k.Handle("slow", sleeper(sec), option)
				for i := range tasks {
					k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "slow", Delay: sec})
				}
				k.After(sec + sec/2)
				if c, err := k.CatchUp(ctx); err != nil || c.Left != 0 {
					t.Errorf("half a second after they were due: %+v, %v", c, err)
				}
				k.After(20 * sec)
				c, err := k.CatchUp(ctx)
				want := tasks - len(k.Runs())
				left := time.Duration(want) * sec
				if err != nil || c.Left != want || !c.Oldest.Equal(k.Begin.Add(sec)) ||
					time.Until(c.Done) < left*8/10 || time.Until(c.Done) > left*12/10 {
					t.Errorf("%d are left, and CatchUp is %+v, %v", want, c, err)
				}
			}, durable.WithPoolSize(1))
		})
	}
}

// CatchUp counts overdue tasks by kind, each kind with the due time of its oldest task.
func TestCatchUp_byKind(t *testing.T) {
	const tasks = 30
	kit.OnOwn(t, func(t *testing.T, r *kit.Kit) {
		for i := range tasks {
			r.Add(durable.Task{Key: fmt.Sprint("note", i), Kind: "note", Delay: sec/2 + time.Duration(i)})
		}
		overdue(r, tasks, "slow")
		r.Handle("slow", sleeper(0))
		r.Start()
		r.After(10 * sec)
		left := map[string]int{"note": tasks, "slow": tasks}
		for _, run := range r.Runs() {
			left[run.Kind]--
		}
		if d := left["slow"] - left["note"]; left["note"] > tasks-4 || d < -1 || d > 1 { // they take turns
			t.Fatalf("%v are left", left)
		}
		of := func(kind string) durable.KindCatchUp {
			first := r.Info(fmt.Sprint(kind, tasks-left[kind]))
			return durable.KindCatchUp{Kind: kind, Left: left[kind], Oldest: first.Next}
		}
		slow, note := of("slow"), of("note")
		is := func(want ...durable.KindCatchUp) {
			t.Helper()
			c, err := r.CatchUp(ctx)
			sum := 0
			for _, k := range want {
				sum += k.Left
			}
			for i := range c.Kinds {
				c.Kinds[i].Done = time.Time{} // TestCatchUp_ofTwoKinds_hasAnEnd covers that
			}
			if err != nil || !slices.Equal(c.Kinds, want) || c.Left != sum || !c.Oldest.Equal(want[0].Oldest) {
				t.Errorf("%+v, %v; want %+v", c, err, want)
			}
		}
		is(note, slow)
		r.Must(r.PauseKind(ctx, "note"))
		is(slow)
	}, durable.WithCatchUp(1))
}

func TestWithObserver_nil_isRefused(t *testing.T) {
	if _, err := durable.New(ctx, memory.New().Engine(), durable.WithObserver(nil)); err == nil {
		t.Error("an observer that is nil is accepted")
	}
}

// A task whose kind has no handler waits.
func TestFind_waiting(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "k", Kind: "note", Delay: sec}, durable.Task{Key: "later", Kind: "note", Delay: hour})
		k.Crash("note")
		k.Start()
		k.After(2 * time.Second)
		f, err := k.Find(ctx, durable.Query{State: durable.Waiting})
		if err != nil || len(f.Tasks) != 1 || f.Tasks[0].Key != "k" || f.Tasks[0].State != durable.Waiting {
			t.Errorf("waiting are %+v, %v", f, err)
		}
		if n, err := k.Bulk(ctx, durable.Query{State: durable.Waiting}, durable.DoRunNow); n != 1 || err != nil {
			t.Errorf("run now: %d, %v", n, err)
		}
	})
}

// Bulk acts on the tasks that it finds while it looks for more, so that rare tasks are handled before its context ends.
func TestBulk_ofRareTasks_doesThemAsItFindsThem(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		s := k.Use(durable.New(ctx, kit.Own(drowsy{memory.New(), time.Millisecond}), durable.WithLogger(testkit.Quiet()))).Scheduler
		defer func() { _ = s.Shutdown(ctx) }()
		note := func(context.Context, durable.Run) error { return nil }
		k.Must(s.Handle("note", note), s.Handle("rare", note))
		for i := range 4000 {
			task := durable.Task{Key: fmt.Sprintf("k%04d", i), Kind: "note", Delay: hour}
			if i%500 == 0 {
				task.Kind = "rare"
			}
			k.Must(s.AddTask(ctx, task))
		}
		within, cancel := context.WithTimeout(ctx, 2*sec)
		defer cancel()
		n, err := s.Bulk(within, durable.Query{Kind: "rare"}, durable.DoRemove)
		if n != 4 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Bulk has removed %d, %v", n, err)
		}
	})
}
