// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/durable/internal/task"
	"github.com/seed581295f1/timewheel/internal/testkit"

	"github.com/sirupsen/logrus"
)

// pastKeys returns the keys of the attempts of the query, sorted.
func pastKeys(k *kit.Kit, q durable.HistoryQuery) (keys []string) {
	k.T.Helper()
	if q.Limit == 0 {
		q.Limit = durable.MaxHistory
	}
	found, err := k.On().History(ctx, q)
	k.Must(err)
	for _, r := range found.Runs {
		keys = append(keys, r.Key)
	}
	slices.Sort(keys)
	return keys
}

// names returns the names of n tasks.
func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("task %05d", i))
	}
	return all
}

// The history keeps the last runs, and forgets older ones. It leaves other kinds alone.
func TestHistory_isBounded(t *testing.T) {
	const most, age = 20, 30 * time.Minute
	test := func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok, durable.WithHistory(most, age))
		k.Handle("other", ok, durable.WithHistory(1000, 24*time.Hour))
		k.On().Add(durable.Task{Key: "a", Kind: "k", Interval: 2 * time.Second, Times: 100},
			durable.Task{Key: "b", Kind: "other", Interval: 2 * time.Second, Times: 50})
		k.After(4 * time.Minute)
		if n := len(pastKeys(k, durable.HistoryQuery{Kind: "k"})); n < most || n > most+most/2 {
			t.Errorf("after 100 runs the history has %d, want some %d", n, most)
		}
		k.After(age + 15*time.Minute)
		if got := pastKeys(k, durable.HistoryQuery{Kind: "k"}); len(got) > 0 {
			t.Errorf("after its age the history is %q", got)
		}
		if n := len(pastKeys(k, durable.HistoryQuery{Kind: "other"})); n != 50 {
			t.Errorf("the other kind has %d, want 50", n)
		}
	}
	onBoth(t, test)
	t.Run("nodes", func(t *testing.T) { kit.OnNodes(t, 2, test) })
}

// A burst fills several blocks. None of it is lost.
func TestHistory_ofABurst(t *testing.T) {
	onBoth(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok, durable.WithHistory(durable.MaxHistory, time.Hour))
		want := names(10_000)
		var tasks []durable.Task
		for _, key := range want {
			tasks = append(tasks, durable.Task{Key: key, Kind: "k", Delay: time.Second})
		}
		k.On().Add(tasks...)
		k.After(10 * time.Second)
		if got := pastKeys(k, durable.HistoryQuery{}); !slices.Equal(got, want) {
			t.Errorf("the history has %d attempts, want %d", len(got), len(want))
		}
	})
}

// The history of a kind that asks for it has longer notes. All else, and other kinds, have as much of a note as before.
func TestHistory_hasLongNotes_ifTheKindAsksForThem(t *testing.T) {
	onBoth(t, func(t *testing.T, k *kit.Kit) {
		long := strings.Repeat("ä", durable.MaxHistoryNote) + "\xff"
		handler := func(_ context.Context, run durable.Run) error {
			run.Complete(long)
			return nil
		}
		keep := durable.WithHistory(100, time.Hour)
		for name, opts := range map[string][]durable.KindOption{
			"long": {keep, durable.WithHistoryNotes(durable.MaxHistoryNote)}, "odd": {durable.WithHistoryNotes(301), keep},
			"small": {keep, durable.WithHistoryNotes(1)}, "other": {keep}, "none": {durable.WithHistoryNotes(1000)},
		} {
			k.Handle(name, handler, opts...)
			k.On().Add(durable.Task{Key: name, Kind: name, Delay: time.Second, Interval: time.Hour, Times: 2})
		}
		k.After(12 * time.Second)
		for name, want := range map[string]int{"long": 4096, "odd": 300, "small": 0, "other": 256, "none": -1} {
			if i := k.Info(name); i.Note != long[:256] {
				t.Errorf("the note of the task %s is %q", name, i.Note)
			}
			found, err := k.On().History(ctx, durable.HistoryQuery{Kind: name})
			k.Must(err)
			switch {
			case want < 0 && len(found.Runs) == 0:
			case len(found.Runs) != 1:
				t.Errorf("the history of %s is %v", name, found.Runs)
			case found.Runs[0].Note != long[:want]:
				t.Errorf("the note of %s in the history has %d bytes, want %d", name, len(found.Runs[0].Note), want)
			}
		}
	})
}

// While the engine is away, a node remembers the attempts and writes them later, once each: also when only the answers
// were lost.
func TestHistory_afterAnOutage(t *testing.T) {
	for name, fault := range map[string]enginetest.Fault{"fails": {Fail: true}, "lost answers": {Lose: true}} {
		t.Run(name, func(t *testing.T) {
			kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
				k.Handle("k", ok, durable.WithHistory(1000, time.Hour))
				want := names(20)
				for i, key := range want {
					k.On().Add(durable.Task{Key: key, Kind: "k", Delay: time.Second + time.Duration(i)*300*time.Millisecond})
				}
				for _, n := range k.Nodes {
					n.Link.SetFaults(func(method string) enginetest.Fault {
						if method == "Commit Notes" {
							return fault
						}
						return enginetest.Fault{}
					})
				}
				k.After(10 * time.Second)
				for _, n := range k.Nodes {
					n.Link.SetFaults(nil)
				}
				k.After(8 * time.Second)
				if got := pastKeys(k, durable.HistoryQuery{}); !slices.Equal(got, want) {
					t.Errorf("the history is %q, want %q", got, want)
				}
			})
		})
	}
}

// While the history cannot be written, only the attempts that it would keep are remembered.
func TestHistory_remembersNoMoreThanItKeeps(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok, durable.WithHistory(10, time.Hour))
		k.After(10 * time.Millisecond)
		want := names(50)
		var tasks []durable.Task
		for i, key := range want {
			tasks = append(tasks, durable.Task{Key: key, Kind: "k", Delay: time.Second + time.Duration(i)*10*time.Millisecond})
		}
		k.Add(tasks...)
		k.After(8 * time.Second)
		if got := pastKeys(k, durable.HistoryQuery{}); len(got) > 20 || !slices.Equal(got[len(got)-10:], want[40:]) {
			t.Errorf("the history is %q, want the last ten", got)
		}
	})
}

// Shutdown writes the waiting attempts, and the next process reads it. A crash loses the last seconds at most.
func TestHistory_ofTheLastSeconds(t *testing.T) {
	keep := durable.WithHistory(100, time.Hour)
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Open(k.KV).Start()
		k.Handle("k", ok, keep)
		k.Add(durable.Task{Key: "early", Kind: "k", Delay: time.Second}, durable.Task{Key: "last", Kind: "k", Delay: 8500 * time.Millisecond})
		k.After(8600 * time.Millisecond)
		left := k.KV.Clone()
		k.End()
		k.Nodes = nil
		k.Open(k.KV.Clone())
		if got := pastKeys(k, durable.HistoryQuery{}); !slices.Equal(got, []string{"early", "last"}) {
			t.Errorf("after Shutdown the history is %q", got)
		}
		k.End()
		k.Nodes = nil
		k.Open(left)
		if got := pastKeys(k, durable.HistoryQuery{}); !slices.Equal(got, []string{"early"}) {
			t.Errorf("after a crash the history is %q", got)
		}
		k.Shutdown(ctx)
		if _, err := k.History(ctx, durable.HistoryQuery{}); !errors.Is(err, durable.ErrStopped) {
			t.Errorf("after Shutdown: %v", err)
		}
	})
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok, keep)
		k.On().Add(durable.Task{Key: "last", Kind: "k", Delay: time.Second})
		k.After(1100 * time.Millisecond)
		k.Nodes[0].End()
		k.Nodes[1].End()
		k.Nodes = nil
		k.Use(durable.Connect(ctx, k.Engine, durable.WithLogger(testkit.Quiet())))
		if got := pastKeys(k, durable.HistoryQuery{}); !slices.Equal(got, []string{"last"}) {
			t.Errorf("after Shutdown of all nodes the history is %q", got)
		}
	})
}

// During a rolling deployment nodes keep different histories: the smallest number applies. A node without a history adds
// nothing to it, and reads it as the others do.
func TestHistory_duringARollingDeployment(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Share()
		deploy := func(name string, opts ...durable.KindOption) *kit.Node {
			n := k.Join(nil, durable.WithNodeName(name)).Start()
			n.Handle("k", ok, opts...)
			k.After(10 * time.Second)
			return n
		}
		run := func(key string, times int) {
			for i := range times {
				k.On().Add(durable.Task{Key: fmt.Sprint(key, i), Kind: "k", Delay: time.Duration(i+1) * 2 * time.Second})
			}
			k.After(time.Duration(times)*2*time.Second + 10*time.Second)
		}
		first := deploy("first")
		run("a", 10)
		if got := pastKeys(k, durable.HistoryQuery{}); len(got) > 0 {
			t.Errorf("without a history there is %q", got)
		}

		second := deploy("second", durable.WithHistory(1000, 24*time.Hour))
		run("b", 60)
		found, err := first.History(ctx, durable.HistoryQuery{})
		k.Must(err)
		for _, r := range found.Runs {
			if r.Node != "second" || r.Key[0] != 'b' {
				t.Errorf("the history has %+v", r)
			}
		}
		if n := len(found.Runs); n == 0 || n == 60 {
			t.Errorf("the history has %d of 60 attempts on two nodes", n)
		}

		first.End()
		k.Nodes = k.Nodes[1:]
		deploy("third", durable.WithHistory(20, 24*time.Hour))
		run("c", 100)
		if n := len(pastKeys(k, durable.HistoryQuery{})); n < 20 || n > 60 {
			t.Errorf("with 1,000 on one node and 20 on the other the history has %d", n)
		}

		second.End()
		k.Nodes = k.Nodes[1:]
		run("d", 100)
		k.After(time.Minute) // until the history is trimmed
		found, err = k.On().History(ctx, durable.HistoryQuery{})
		k.Must(err)
		if n := len(found.Runs); n < 20 || n > 30 {
			t.Errorf("the history has %d, want some 20", n)
		}
		for _, r := range found.Runs {
			if r.Node != "third" || r.Key[0] != 'd' {
				t.Errorf("the history has %+v", r)
			}
		}
	})
}

// Wrong options are refused.
func TestHistory_isRefused(t *testing.T) {
	onEach(t, func(t *testing.T, k *kit.Kit) {
		for _, o := range []durable.KindOption{
			durable.WithHistory(0, time.Hour), durable.WithHistory(durable.MaxHistory+1, time.Hour), durable.WithHistory(1, 0),
			durable.WithHistoryNotes(0), durable.WithHistoryNotes(durable.MaxHistoryNote + 1),
		} {
			if k.Scheduler.Handle("k", ok, o) == nil {
				t.Error("a wrong history is allowed")
			}
		}
	})
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Shutdown(ctx)
		if err := k.Scheduler.Handle("k", ok, durable.WithHistory(1, time.Hour)); err == nil {
			t.Error("a kind with a history after Shutdown")
		}
	})
}

// A history that cannot be written is logged once, and tasks run all the while.
func TestHistory_thatCannotBeWritten_isLogged(t *testing.T) {
	var out strings.Builder
	log := logrus.New()
	log.SetOutput(&out)
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Share()
		n := k.Join(nil, durable.WithLogger(log)).Start()
		n.Handle("k", func(context.Context, durable.Run) error { return nil }, durable.WithHistory(100, time.Hour))
		n.Link.SetFaults(func(method string) enginetest.Fault { return enginetest.Fault{Fail: method == "Commit Notes"} })
		n.Add(durable.Task{Key: "a", Kind: "k", Interval: time.Second, Times: 5})
		k.After(17 * time.Second)
		k.Gone("a")
		n.Link.SetFaults(nil)
		k.After(6 * time.Second)
		if got := pastKeys(k, durable.HistoryQuery{}); len(got) != 5 {
			t.Errorf("the history is %q", got)
		}
	})
	if n := strings.Count(out.String(), "the history of runs cannot be written"); n != 1 {
		t.Errorf("%d lines of it in\n%s", n, out.String())
	}
}

// A Handle that is refused leaves the history of the kind alone.
func TestHistory_ofAHandleThatIsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok, durable.WithHistory(1000, time.Hour))
		for _, key := range names(50) {
			k.On().Add(durable.Task{Key: key, Kind: "k", Delay: time.Second})
		}
		k.After(10 * time.Second)
		if err := k.Scheduler.Handle("k", ok, durable.WithHistory(1, time.Second)); err == nil {
			t.Error("a second handler is allowed")
		}
		k.After(time.Hour / 2)
		if n := len(pastKeys(k, durable.HistoryQuery{})); n != 50 {
			t.Errorf("the history has %d attempts, want 50", n)
		}
	})
}

// The attempts during which the process ended are in the history, and in the task, with the times at which the next process
// found them.
func TestHistory_ofATaskThatEndsItsProcess(t *testing.T) {
	keep := []durable.KindOption{durable.WithHistory(100, time.Hour), durable.WithRetry(2, time.Second, time.Second)}
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		ended := make(chan struct{})
		hangs := func(context.Context, durable.Run) error { <-ended; return nil }
		defer close(ended)
		k.Open(k.KV).Start()
		k.Handle("k", hangs, keep...)
		k.Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
		for range 4 {
			k.After(time.Minute)
			k.Crash()
			k.Handle("k", hangs, keep...)
			k.Start()
		}
		k.After(time.Minute)
		past, err := k.History(ctx, durable.HistoryQuery{})
		k.Must(err)
		i := k.Info("a")
		if i.State != durable.Parked || len(i.Failed) != 2 || len(past.Runs) != 2 {
			t.Fatalf("%v has the history %v", i, past.Runs)
		}
		for n, outcome := range []string{durable.OutcomeParked, durable.OutcomeFailed} { // newest first
			r, at := past.Runs[n], k.Begin.Add(3*time.Minute-time.Duration(n)*time.Minute)
			if r.Outcome() != outcome || r.Attempt.Attempt != 2-n || !strings.Contains(r.Failure, "process ended") ||
				!r.Ended.Equal(i.Failed[n].At) || r.Ended.Before(at) || r.Ended.After(at.Add(time.Minute)) {
				t.Errorf("%v has the history %v, and %v", i, r, i.Failed[n])
			}
		}
	})
}

// Attempts that are too old are deleted although their kind no longer keeps a history.
func TestHistory_ofAKindWithoutOne_isSwept(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Open(k.KV).Start()
		k.Handle("k", ok, durable.WithHistory(100, time.Hour))
		k.Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
		k.After(10 * time.Second)
		k.End()
		k.Nodes = nil
		k.Open(k.KV.Clone()).Start()
		k.Handle("k", ok)
		k.Handle("other", ok, durable.WithHistory(100, time.Hour))
		k.After(30 * time.Minute)
		if n := len(pastKeys(k, durable.HistoryQuery{})); n != 1 {
			t.Errorf("after half of its age the history has %d attempts", n)
		}
		k.After(45 * time.Minute)
		if n := len(pastKeys(k, durable.HistoryQuery{})); n != 0 {
			t.Errorf("after its age the history has %d attempts", n)
		}
	})
}

// A look at the history of an engine that hangs does not keep Shutdown from ending, and a limit may be any number.
func TestHistory_readsEndWithShutdown(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok, durable.WithHistory(100, time.Hour))
		k.Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
		k.After(10 * time.Second)
		if h, err := k.History(ctx, durable.HistoryQuery{Limit: math.MaxInt}); err != nil || len(h.Runs) != 1 || h.Next != "" {
			t.Errorf("without a limit: %+v, %v", h, err)
		}
		n := k.Nodes[0]
		n.Link.SetFaults(func(method string) enginetest.Fault {
			if method == "Walk Notes" {
				return enginetest.Fault{Delay: time.Hour}
			}
			return enginetest.Fault{}
		})
		read := make(chan error, 1)
		go func() {
			_, err := n.History(ctx, durable.HistoryQuery{})
			read <- err
		}()
		k.After(time.Second)
		began := time.Now()
		k.Must(n.Shutdown(ctx))
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("Shutdown takes %v", d)
		}
		if err := <-read; !errors.Is(err, durable.ErrStopped) {
			t.Errorf("the look returns %v", err)
		}
		k.Nodes = nil
	})
}

// A line about an attempt says how it ended. The String method of its embedded Token does not hide the other fields.
func TestPastRun_String(t *testing.T) {
	due := time.Date(2026, 3, 1, 9, 0, 0, 0, time.FixedZone("", 3600))
	sent := durable.Attempt{
		Token: durable.Token{Key: "mail:42", Generation: 10, Seq: 7}, Kind: "mail", Attempt: 2,
		Due: due, Started: due.Add(3 * time.Millisecond), Ended: due.Add(time.Second), Note: "sent",
	}
	failed := sent
	failed.Note, failed.Failure = "", "connection refused"
	for _, test := range []struct {
		of   any
		want string
	}{
		{sent, `"mail:42" of kind "mail", attempt 2: succeeded, due 2026-03-01T08:00:00Z, 3ms late, took 997ms, ` +
			`note "sent", token a.7.mail:42`},
		{durable.PastRun{Attempt: failed, Group: "tenant", Node: "shop-1"}, `"mail:42" of kind "mail", attempt 2: failed, ` +
			`due 2026-03-01T08:00:00Z, 3ms late, took 997ms, failure "connection refused", group "tenant", on "shop-1", ` +
			`token a.7.mail:42`},
	} {
		if got := fmt.Sprintf("%+v", test.of); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

// It is bounded also while many runs end, and when every process writes only a few.
func TestHistory_isBounded_atAHighRate(t *testing.T) {
	onBoth(t, func(t *testing.T, k *kit.Kit) {
		const most = 50
		k.Handle("k", ok, durable.WithHistory(most, time.Hour))
		var tasks []durable.Task
		for i, key := range names(1500) {
			tasks = append(tasks, durable.Task{Key: key, Kind: "k", Delay: time.Second + time.Duration(i)*time.Second/60})
		}
		k.On().Add(tasks...)
		for range 6 {
			k.After(4 * time.Second)
			if n := len(pastKeys(k, durable.HistoryQuery{Limit: 2000})); n < most || n > 3*most {
				t.Errorf("the history has %d attempts, and the kind keeps %d", n, most)
			}
		}
	})
}

func TestHistory_isBounded_overManyProcesses(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		const most, each = 160, 19
		for life := range 20 {
			k.Handle("k", ok, durable.WithHistory(most, time.Hour))
			for _, key := range names(each) {
				k.On().Add(durable.Task{Key: key, Kind: "k", Delay: time.Second})
			}
			k.After(10 * time.Second)
			n := len(pastKeys(k, durable.HistoryQuery{Limit: 2000}))
			if want := min(most, (life+1)*each); n < want || n > most+most/2 {
				t.Errorf("after %d processes the history has %d attempts, and the kind keeps %d", life+1, n, most)
			}
			k.On().End()
			k.Nodes = nil
			k.Join(nil).Start()
		}
	})
}

// The age may be as long as a Duration can be, and a shorter age than before applies to older attempts too.
func TestHistory_forgets_byTheAgeOfNow(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		for i, c := range []struct {
			age  time.Duration
			want int // attempts after half an hour
		}{{math.MaxInt64, 1}, {2 * time.Hour, 2}, {10 * time.Minute, 0}} {
			k.Handle("k", ok, durable.WithHistory(1000, c.age))
			k.On().Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: time.Second})
			k.After(30 * time.Minute)
			if got := pastKeys(k, durable.HistoryQuery{}); len(got) != c.want {
				t.Errorf("with the age %v the history has %q after half an hour, want %d attempts", c.age, got, c.want)
			}
			k.On().End()
			k.Nodes = nil
			k.Join(nil).Start()
		}
	})
}

// Attempts that ended while the clock was ahead are the newest for years. They do not displace the attempts of today.
func TestHistory_afterAClockThatWasAhead(t *testing.T) {
	const most = 20
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok, durable.WithHistory(most, time.Hour))
		k.KV.Step(tooFar)
		for i := range 3 * most {
			k.Add(durable.Task{Key: fmt.Sprint("ahead ", i), Kind: "k", Delay: time.Second})
		}
		k.After(time.Minute)
		k.KV.Step(-tooFar)
		k.Add(durable.Task{Key: "today", Kind: "k", Interval: 3 * time.Second, Times: 100})
		k.After(6 * time.Minute)
		all := pastKeys(k, durable.HistoryQuery{})
		today := pastKeys(k, durable.HistoryQuery{Key: "today"})
		if n := len(today); n < most || n > most+most/2 || len(all) > 3*most {
			t.Errorf("of %d attempts in the history, %d are of today", len(all), n)
		}
	})
}

// An engine's clock may differ from the process's. Lateness, observers and the history go by that of the engine.
func TestAttempt_hasTheEnginesClock(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
		var observed []durable.Attempt
		kit.In(t, func(t *testing.T, k *kit.Kit) {
			k.Share()
			k.KV.Step(ahead)
			k.Join(nil, durable.WithObserver(func(a durable.Attempt) { observed = append(observed, a) })).Start()
			late := time.Duration(-1)
			k.Handle("k", func(_ context.Context, run durable.Run) error {
				late = run.Lateness()
				time.Sleep(time.Second)
				return nil
			}, durable.WithHistory(10, time.Hour))
			k.On().Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
			k.After(10 * time.Second)
			h, err := k.On().History(ctx, durable.HistoryQuery{})
			k.Must(err)
			if len(observed) != 1 || len(h.Runs) != 1 || late < 0 || late > tick {
				t.Fatalf("%v ahead: the run is %v late, observed are %v, and the history has %v", ahead, late, observed, h.Runs)
			}
			for _, a := range []durable.Attempt{observed[0], h.Runs[0].Attempt} {
				if got := a.Started.Sub(a.Due); got != late || a.Ended.Sub(a.Started) != time.Second {
					t.Errorf("%v ahead: %v late, want %v: %v", ahead, got, late, a)
				}
			}
		})
		observed = nil
	}
}

// A run whose task is parked, because this process cannot read its calendar, is in the history even if a write of the handler
// has completed it.
func TestHistory_completedAndParked(t *testing.T) {
	for _, own := range []bool{false, true} {
		kit.In(t, func(t *testing.T, k *kit.Kit) {
			k.Share()
			observed := 0
			n := k.Join(nil, durable.WithObserver(func(durable.Attempt) { observed++ }))
			n.Handle("k", func(_ context.Context, run durable.Run) error {
				if !own {
					return nil
				}
				_, err := k.Engine.Commit(ctx, 0, []engine.Batch{{run.Completion(time.Now().UnixNano())}})
				return err
			}, durable.WithHistory(10, hour))
			n.Start()
			due := time.Now().Add(sec).UnixNano()
			rec := &task.Record{Token: task.Token{Key: "a", Generation: 1}, Kind: "k", Cron: "TZ=Mars/Phobos 0 0 * * *", Times: durable.Forever, Grid: due, Due: due}
			_, err := k.Engine.Commit(ctx, 0, []engine.Batch{{rec.Write(engine.IfAbsent, 0)}})
			k.Must(err)
			k.After(20 * sec)
			past, kinds := pastKeys(k, durable.HistoryQuery{Kind: "k"}), n.Kinds()
			i := slices.IndexFunc(kinds, func(i durable.KindInfo) bool { return i.Kind == "k" })
			if k.Info("a").State != durable.Parked || len(past) != 1 || observed != 1 || kinds[i].ParkedTotal != 1 {
				t.Errorf("completed by its own write %v: observed %d times, the history is %q, and the kind %+v", own, observed, past, kinds[i])
			}
		})
	}
}
