// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The runs of many keys, or of the tasks found by a search, are cancelled together.
func TestCancel_ofManyRuns(t *testing.T) {
	r := inDatabase(t)
	e := r.engine()
	defer e.Close()
	s, err := durable.New(t.Context(), e, durable.WithLogger(testkit.Quiet()))
	check(t, err)
	const runs = 40
	begun, cancelled := make(chan bool, 2*runs), make(chan error, 2*runs)
	waits := func(ctx context.Context, _ durable.Run) error {
		begun <- true
		<-ctx.Done()
		cancelled <- context.Cause(ctx)
		return durable.Park(ctx.Err())
	}
	check(t, s.Handle("k", waits))
	check(t, s.Handle("other", waits))
	check(t, s.Start())
	var keys []string
	for i := range runs {
		key := fmt.Sprint("k:", i)
		check(t, s.AddTask(t.Context(), durable.Task{Key: key, Kind: "k"}))
		if i < runs/2 {
			keys = append(keys, key)
		}
	}
	check(t, s.AddTask(t.Context(), durable.Task{Key: "k:later", Kind: "k", Delay: time.Hour},
		durable.Task{Key: "o", Kind: "other"}))
	for range runs + 1 {
		<-begun
	}
	ended := func(want int) {
		t.Helper()
		for range want {
			if cause := <-cancelled; !errors.Is(cause, durable.ErrCancelled) {
				t.Errorf("the cause is %v", cause)
			}
		}
		if len(cancelled) > 0 {
			t.Errorf("%d more were cancelled", len(cancelled))
		}
	}
	got := r.do("cancel", append(keys, "k:later", "none")...)
	if got.out != fmt.Sprintf("Cancelled the runs of %d tasks.\n", runs/2) || got.code != notFound ||
		!strings.Contains(got.err, "no run of task k:later is in progress") || !strings.Contains(got.err, "none") {
		t.Errorf("cancel of keys: %+v", got)
	}
	ended(runs / 2)
	r.answer = "n\n"
	got = r.do("cancel", "-kind", "k")
	if got.code != notConfirmed || got.out != "" || !regexp.MustCompile(
		`(?s)^The tasks run again, .* use pause-kind first\.\nCancel the runs of \d+ tasks\? `).MatchString(got.err) {
		t.Errorf("cancel that is not confirmed: %+v", got)
	}
	if got := r.must("cancel", "-kind", "k", "-yes", "-json"); got != fmt.Sprintf("{\"cancelled\":%d}\n", runs/2) {
		t.Errorf("cancel of a kind writes %q", got)
	}
	ended(runs / 2)
	if got := r.must("cancel", "-all", "-yes"); got != "Cancelled the runs of 1 task.\n" {
		t.Errorf("cancel of all writes %q", got)
	}
	ended(1)
	check(t, s.Shutdown(t.Context()))
}

// The tasks found by a search are spread over a period, and so are named keys. Paused tasks are left alone unless they
// are named.
func TestReschedule_ofASearch_spreadsTheTasks(t *testing.T) {
	records := fixture(t)
	everywhere(t, func(r *rig) {
		r.restore(records)
		got := r.do("reschedule", "-kind", "order", "-over", "1h")
		if got.code != notConfirmed || !strings.Contains(got.err, "Reschedule 6 tasks?") {
			r.Errorf("without a terminal: %+v", got)
		}
		r.answer = "y\n"
		began := time.Now()
		if got := r.do("reschedule", "-kind", "order", "-in", "24h", "-over", "1h"); got.out != "Rescheduled 6 tasks.\n" {
			r.Errorf("of a search: %+v", got)
		}
		r.answer = ""
		if got := r.must("reschedule", "-state", "parked", "-over", "1h", "-yes", "-json"); got != "{\"rescheduled\":2}\n" {
			r.Errorf("of what is parked it writes %q", got)
		}
		if got := r.must("reschedule", "-prefix", "no such", "-in", "1h", "-yes"); got != "Rescheduled 0 tasks.\n" {
			r.Errorf("of nothing it writes %q", got)
		}
		if got := r.must("reschedule", "-in", "1h", "-over", "30m", "mail:3", "order:5"); got != "Rescheduled 2 tasks.\n" {
			r.Errorf("of keys it writes %q", got)
		}
		took := time.Since(began)
		r.with(func(s *durable.Scheduler) {
			var orders []time.Duration
			for i, err := range s.All(r.Context()) {
				check(r.T, err)
				if i.Kind == "order" && i.State != durable.Paused {
					orders = append(orders, i.Next.Sub(began))
				}
				for key, want := range map[string]time.Duration{"mail:3": time.Hour, "mail:2": 30 * time.Minute} {
					if d := i.Next.Sub(began) - want; i.Key == key && d.Abs() > took+time.Minute {
						r.Errorf("%s is due %v after it should", key, d)
					}
				}
				if i.Key == "order:5" && i.State != durable.Paused {
					r.Errorf("order:5 is %s", i.State)
				}
			}
			for n, d := range orders {
				if d -= 24*time.Hour + time.Duration(n)*10*time.Minute; d.Abs() > took+time.Minute || len(orders) != 6 {
					r.Errorf("task %d of %d is due %v after it should", n, len(orders), d)
				}
			}
		})
	})
}

// While many tasks are changed the command reports its progress once a second, if it writes to a terminal.
func TestChange_ofManyTasks_saysHowFarItIs(t *testing.T) {
	for _, c := range []struct {
		d       deed
		watched bool
		want    string
	}{
		{removing, true, `^(Removed [0-9,]+ tasks so far\.\n){2,9}$`}, {removing, false, `^$`},
		{runningNow, true, `^(Made due [0-9,]+ tasks so far\.\n){2,9}$`}, {runningNow, false, `^$`},
	} {
		t.Run(fmt.Sprint(c.d.ask, " ", c.watched), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link := slowEngine{memory.New().Shared(), new(atomic.Int64)}
				s, err := durable.New(t.Context(), link, durable.WithLogger(testkit.Quiet()))
				check(t, err)
				check(t, s.Handle("k", func(context.Context, durable.Run) error { return nil }))
				const tasks = 5000
				var all []durable.Task
				for i := range tasks {
					all = append(all, durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: time.Hour})
				}
				check(t, s.AddTask(t.Context(), all...))
				link.delay.Store(int64(time.Second))
				var out, errOut bytes.Buffer
				p := &program{out: &out, err: &errOut, now: time.Now, watched: c.watched}
				check(t, p.doAll(t.Context(), s, &c.d, durable.Query{}, true, false))
				if want := c.d.past + " 5,000 tasks.\n"; out.String() != want {
					t.Errorf("it writes %q, want %q", out.String(), want)
				}
				if !regexp.MustCompile(c.want).MatchString(errOut.String()) {
					t.Errorf("meanwhile it writes %q", errOut.String())
				}
				link.delay.Store(0)
				check(t, s.Shutdown(t.Context()))
			})
		})
	}
}

// A slowEngine is slow to commit.
type slowEngine struct {
	engine.Engine
	delay *atomic.Int64
}

func (e slowEngine) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	time.Sleep(time.Duration(e.delay.Load()))
	return e.Engine.Commit(ctx, by, batches)
}

// drain -wait also waits until the ends of runs are stored, and gives up on a node that has died.
func TestDrain_waitsForTheEnds_andNotForTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		e := memory.New().Shared()
		link := enginetest.NewLink(e)
		s, err := durable.New(ctx, link, durable.WithNodeName("web-1"), durable.WithLease(time.Second), durable.WithLogger(testkit.Quiet()))
		check(t, err)
		begun, end := make(chan bool, 1), make(chan bool)
		check(t, s.Handle("k", func(context.Context, durable.Run) error { begun <- true; <-end; return nil }))
		check(t, s.Start())
		check(t, s.AddTask(ctx, durable.Task{Key: "a", Kind: "k"}))
		<-begun
		client, err := durable.Connect(ctx, e, durable.WithLogger(testkit.Quiet()))
		check(t, err)
		check(t, client.Drain(ctx, "web-1"))
		until := func(what string, is func(n int, err error) bool) {
			t.Helper()
			for began := time.Now(); !is(runningOn(ctx, client, []string{"web-1"})); time.Sleep(20 * time.Millisecond) {
				if time.Since(began) > 20*time.Second {
					n, err := runningOn(ctx, client, []string{"web-1"})
					t.Fatalf("%s: there are %d, %v", what, n, err)
				}
			}
		}
		node := func() durable.NodeInfo {
			nodes, err := client.Nodes(ctx)
			check(t, err)
			return nodes[0]
		}
		link.SetFaults(func(method string) enginetest.Fault {
			return enginetest.Fault{Fail: strings.HasPrefix(method, "Commit")}
		})
		close(end)
		until("the handler has returned", func(int, error) bool { i := node(); return i.Drained && i.Running == 0 })
		if n, err := runningOn(ctx, client, []string{"web-1"}); n != 1 || err != nil {
			t.Errorf("before the end of the run is stored there are %d, %v", n, err)
		}
		link.SetFaults(nil)
		until("the end is stored", func(n int, err error) bool { return n == 0 && err == nil })
		link.SetDown(true)
		until("it is dead", func(_ int, err error) bool {
			return err != nil && strings.Contains(err.Error(), "does not renew its lease")
		})
		link.SetDown(false)
		check(t, errors.Join(s.Shutdown(ctx), client.Shutdown(ctx)))
	})
}

// A drained node runs nothing further. drain -wait ends when its last run has ended.
func TestDrain(t *testing.T) {
	r := inDatabase(t)
	e := r.engine()
	defer e.Close()
	s, err := durable.New(t.Context(), e, durable.WithNodeName("web-1"), durable.WithLogger(testkit.Quiet()))
	check(t, err)
	begun, end := make(chan bool, 1), make(chan bool)
	check(t, s.Handle("k", func(context.Context, durable.Run) error { begun <- true; <-end; return nil }))
	check(t, s.Start())
	check(t, s.AddTask(t.Context(), durable.Task{Key: "a", Kind: "k"}))
	<-begun
	if got := r.must("drain", "web-1"); got != "Node web-1 is drained.\n" {
		t.Errorf("drain writes %q", got)
	}
	for !strings.Contains(r.must("nodes"), ", drained ") {
	}
	waited := make(chan string, 1)
	go func() { waited <- r.must("drain", "-wait", "web-1") }()
	select {
	case got := <-waited:
		t.Errorf("while a run is in progress drain -wait writes %q", got)
	case <-time.After(3 * drainEvery):
	}
	close(end)
	if got := <-waited; got != "Node web-1 is drained.\nNo run is in progress.\n" {
		t.Errorf("drain -wait writes %q", got)
	}
	if n := s.Stats().Running; n != 0 {
		t.Errorf("after drain -wait %d runs are in progress", n)
	}
	if got := r.do("drain", "web-2"); got.code != failed || !strings.Contains(got.err, `no node has the name "web-2"`) {
		t.Errorf("drain of an unknown node: %+v", got)
	}
	if got := r.do("drain"); got.code != usage || !strings.Contains(got.err, "which nodes?") {
		t.Errorf("drain of no node: %+v", got)
	}
	if got := r.must("undrain", "web-1"); got != "Node web-1 is not drained.\n" {
		t.Errorf("undrain writes %q", got)
	}
	check(t, s.AddTask(t.Context(), durable.Task{Key: "b", Kind: "k"}))
	<-begun
	check(t, s.Shutdown(t.Context()))
}

// At most a thousand tasks are in memory, whatever the limit, so a longer list has several tables.
func TestList_ofManyTasks_writesATableForEachThousand(t *testing.T) {
	r := inDirectory(t)
	r.with(func(s *durable.Scheduler) {
		check(t, s.Handle("k", func(context.Context, durable.Run) error { return nil }))
		for i := range 15 {
			var tasks []durable.Task
			for j := range 100 {
				tasks = append(tasks, durable.Task{Key: fmt.Sprint(i, " ", j), Kind: "k", At: now})
			}
			check(t, s.AddTask(t.Context(), tasks...))
		}
	})
	for _, c := range []struct {
		args         []string
		tables, rows int
		more         bool
	}{
		{[]string{"-limit", "1000"}, 1, 1000, true}, {[]string{"-limit", "1200"}, 2, 1200, true},
		{[]string{"-limit", "2000"}, 2, 1500, false}, {[]string{"-all"}, 2, 1500, false},
	} {
		got := r.do("ls", c.args...)
		if tables := strings.Count(got.out, "KEY "); tables != c.tables || strings.Count(got.out, "\n") != tables+c.rows || (got.err != "") != c.more {
			t.Errorf("%q: %d tables with %d lines, and %q", c.args, tables, strings.Count(got.out, "\n"), got.err)
		}
	}
}
