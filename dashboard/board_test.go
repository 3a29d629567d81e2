// SPDX-License-Identifier: MIT

package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/internal/health"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

var errRefused = errors.New("dial 10.0.0.7:443: connection refused")

// newScheduler returns a started scheduler on the engine. It handles the kinds ok and bad, whose runs succeed and fail,
// and is shut down at the end of the test.
func newScheduler(t *testing.T, on engine.Engine, opts ...durable.Option) *durable.Scheduler {
	t.Helper()
	s, err := durable.New(t.Context(), on, append(opts, durable.WithLogger(testkit.Quiet()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	serveKinds(t, s)
	return s
}

// engineOn returns an engine on the KV.
func engineOn(t *testing.T, on engine.KV) engine.Engine {
	t.Helper()
	e, err := kv.New(t.Context(), on)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func serveKinds(t *testing.T, s *durable.Scheduler) {
	t.Helper()
	ok := func(context.Context, durable.Run) error { return nil }
	bad := func(context.Context, durable.Run) error { return errRefused }
	if err := errors.Join(s.Handle("ok", ok), s.Handle("bad", bad, durable.WithRetry(2, time.Second, time.Second)), s.Start()); err != nil {
		t.Fatal(err)
	}
}

func works(context.Context, durable.Run) error { return nil }

func put(t *testing.T, s *durable.Scheduler, tasks ...durable.Task) {
	t.Helper()
	if err := s.AddTask(t.Context(), tasks...); err != nil {
		t.Fatal(err)
	}
}

// many returns n tasks with the keys name-000 and so on.
func many(n int, name, kind string, delay time.Duration) (tasks []durable.Task) {
	for i := range n {
		tasks = append(tasks, durable.Task{Key: fmt.Sprintf("%s-%03d", name, i), Kind: kind, Delay: delay})
	}
	return tasks
}

func stateOf(t *testing.T, h http.Handler) schedulerJSON {
	t.Helper()
	return answer[schedulerJSON](t, ask(h, "GET", "/api/scheduler", nil), 200)
}

// said returns the kinds of the findings.
func said(h healthJSON) (kinds []health.Kind) {
	for _, f := range h.Findings {
		kinds = append(kinds, f.Kind)
	}
	return kinds
}

// A handler always fails: health reports it with the cause, the kinds have the figures, and the tasks are found by
// their error.
func TestScheduler_handlerThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := NewAttemptRecorder()
		s := newScheduler(t, memory.New().Engine(), rec.Option())
		h := Handler([]Source{Scheduler("tasks", s, rec)})
		time.Sleep(100 * time.Millisecond)
		if got := stateOf(t, h); !got.Health.Well || got.Health.Text != "Working: 0 of 1,024 workers busy, 0 tasks, none parked" {
			t.Errorf("at first the health is %+v", got.Health)
		}
		put(t, s, many(30, "bad", "bad", time.Second)...)
		put(t, s, many(10, "ok", "ok", time.Second)...)
		put(t, s, durable.Task{Key: "later", Kind: "ok", Interval: time.Hour, Times: durable.Forever})
		time.Sleep(1300 * time.Millisecond)
		got := stateOf(t, h)
		if len(said(got.Health)) != 1 || !strings.HasPrefix(got.Health.Text,
			"Kind bad: 30 of 30 attempts failed in the last 5 m: dial 10.0.0.7:443: connection refused") {
			t.Errorf("after the first attempt the health is %+v", got.Health)
		}
		time.Sleep(3 * time.Second)
		got = stateOf(t, h)
		if k := said(got.Health); len(k) != 2 || k[0] != health.Failing || k[1] != health.Parked ||
			!strings.HasPrefix(got.Health.Findings[1].Text, "30 tasks are parked, of kind bad") || got.Health.Findings[1].Since == nil {
			t.Errorf("after the last attempt the health is %+v", got.Health)
		}
		if got.Stats.Pending != 31 || got.Stats.Parked != 30 || got.Stats.Started != 70 || got.Stats.Failed != 60 || got.Stats.Workers != 1024 ||
			got.Counts.Tasks != 31 || got.Counts.Parked != 30 || got.Counts.Failing != 30 || !got.Counts.Whole || got.Counts.At == nil {
			t.Errorf("the accounts are %+v, %+v", got.Stats, got.Counts)
		}
		if len(got.Kinds) != 2 || got.Kinds[0].Kind != "bad" || got.Kinds[0].Parked != 30 || got.Kinds[0].Here == nil {
			t.Fatalf("the kinds are %+v", got.Kinds)
		}
		bad := got.Kinds[0].Here
		if bad.Attempts != 2 || bad.Least != 1 || bad.Failed != 60 || bad.Failure != errRefused.Error() || bad.Last == nil || bad.Last.Attempts != 60 ||
			bad.Last.Late.Max > 0.1 || bad.StartedRate == nil || *bad.FailedRate <= 0 || bad.Missed != "once" {
			t.Errorf("the kind is %+v, %+v", bad, bad.Last)
		}

		groups := answer[failuresJSON](t, ask(h, "GET", "/api/failures", nil), 200)
		if len(groups.Groups) != 1 || groups.Groups[0].Tasks != 30 || groups.Groups[0].Parked != 30 || groups.Groups[0].Kind != "bad" ||
			groups.Groups[0].Text != "dial #.#.#.#:#: connection refused" || groups.Groups[0].Example.Key != "bad-000" {
			t.Errorf("the groups are %+v", groups)
		}
		for query, want := range map[string]int{
			"": 31, "state=parked": 30, "state=scheduled": 1, "repeating=true": 1, "kind=ok": 1, "prefix=bad-01": 10, "failure=refused": 30,
			"failure=" + url.QueryEscape(groups.Groups[0].Text): 30, "state=parked&kind=ok": 0, "state=waiting": 0, "state=running": 0, "state=retrying": 0,
		} {
			list := answer[listJSON](t, ask(h, "GET", "/api/tasks?"+query, nil), 200)
			if len(list.Tasks) != want || list.Next != "" || list.Cut {
				t.Errorf("%q finds %d tasks, next %q, cut %v", query, len(list.Tasks), list.Next, list.Cut)
			}
		}
		first := answer[listJSON](t, ask(h, "GET", "/api/tasks?prefix=bad&limit=20", nil), 200)
		second := answer[listJSON](t, ask(h, "GET", "/api/tasks?prefix=bad&limit=20&after="+url.QueryEscape(first.Next), nil), 200)
		if len(first.Tasks) != 20 || len(second.Tasks) != 10 || second.Next != "" || first.Tasks[19].Key >= second.Tasks[0].Key {
			t.Errorf("the pages have %d and %d tasks", len(first.Tasks), len(second.Tasks))
		}
		if i := first.Tasks[0]; i.State != "parked" || i.Next != nil || i.Attempts != 2 || i.Failure != errRefused.Error() || i.Kind != "bad" || !i.Exact {
			t.Errorf("a task is %+v", i)
		}
		put(t, s, durable.Task{Key: "nightly", Kind: "ok", Cron: "@yearly", Times: durable.Forever})
		if err := s.Pause(t.Context(), "nightly"); err != nil {
			t.Fatal(err)
		}
		list := answer[listJSON](t, ask(h, "GET", "/api/tasks?state=paused", nil), 200)
		if len(list.Tasks) != 1 || list.Tasks[0].State != "paused" || list.Tasks[0].Next != nil || list.Tasks[0].Cron != "@yearly" {
			t.Errorf("paused are %+v", list)
		}
		if err := s.RemoveTask(t.Context(), "nightly"); err != nil {
			t.Fatal(err)
		}
		for _, wrong := range []string{"state=lost", "repeating=perhaps", "limit=0", "limit=1001", "after=!"} {
			answer[errorJSON](t, ask(h, "GET", "/api/tasks?"+wrong, nil), 400)
		}
		answer[errorJSON](t, ask(h, "GET", "/api/scheduler?after=noon", nil), 400)
		answer[errorJSON](t, ask(h, "GET", "/api/scheduler?scheduler=other", nil), 404)
		answer[errorJSON](t, ask(h, "GET", "/api/wheel", nil), 404)

		// The rate covers the last ten seconds, and five minutes later only conditions that persist are reported.
		time.Sleep(6 * time.Minute)
		got = stateOf(t, h)
		if k := said(got.Health); len(k) != 1 || k[0] != health.Parked || *got.Kinds[0].Here.FailedRate != 0 {
			t.Errorf("later the health is %+v", got.Health)
		}
	})
}

// A kind without a handler, and overdue tasks at the start.
func TestScheduler_kindWithoutHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		before := newScheduler(t, m.Engine())
		if err := before.Handle("mail", func(context.Context, durable.Run) error { return nil }); err != nil {
			t.Fatal(err)
		}
		put(t, before, many(12, "mail", "mail", time.Minute)...)
		next := m.Clone().Engine()
		if err := before.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Minute)
		s := newScheduler(t, next)
		h := Handler([]Source{Scheduler("tasks", s, nil)})
		time.Sleep(time.Second)
		got := stateOf(t, h)
		if k := said(got.Health); len(k) == 0 || k[0] != health.Unhandled ||
			got.Health.Text != "Kind mail has no handler here: 12 due tasks wait, the oldest for 3 m 1 s" {
			t.Errorf("the health is %+v", got.Health)
		}
		for _, k := range got.Kinds {
			if k.Kind == "mail" && (k.Here != nil || k.Nodes != 0 || k.Tasks != 12) {
				t.Errorf("the kind is %+v", k)
			}
		}
		if err := s.PauseKind(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if k := said(stateOf(t, h).Health); slices.Contains(k, health.Unhandled) {
			t.Errorf("of a paused kind the health says %v", k)
		}
	})
}

// A kind that another node may handle is not reported as having no handler: that node's report has no room for all its
// kinds, or it has not sent one yet.
func TestScheduler_kindsOfANodeThatAreNotKnown(t *testing.T) {
	all := durable.NodeReport{Workers: 1, Kinds: []string{"mail"}}
	r := reading{nodes: []durable.NodeInfo{{Name: "a", NodeReport: all}, {Name: "b", NodeReport: durable.NodeReport{Workers: 1}}}}
	if got, known := r.handledKinds(); !got["mail"] || got["sms"] || !known {
		t.Errorf("kinds that the nodes report: %v, %t", got, known)
	}
	for _, unknown := range []durable.NodeReport{{}, {Workers: 1, More: true}} {
		r.nodes[1].NodeReport = unknown
		if got, known := r.handledKinds(); known {
			t.Errorf("a node may have more kinds than in %+v, but only these have a handler: %v", unknown, got)
		}
	}
}

// A kind that runs again is not reported as one that does not, although the last count of its tasks is old.
func TestBoard_kindsThatRunAgain_areNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &counted{fakeScheduler: &fakeScheduler{Scheduler: newScheduler(t, memory.New().Engine())}}
		f.census = func() durable.Counts {
			return durable.Counts{Whole: true, Kinds: []durable.KindCounts{{Kind: "mail", Tasks: 3}}}
		}
		f.catchUp = durable.CatchUp{At: time.Now(), Others: []durable.KindCatchUp{{Kind: "mail", Left: 3}, {Kind: "sms", Left: 3}}}
		f.paused.Kinds = []string{"sms"}
		b := newBoard("tasks", f, nil)
		time.Sleep(time.Minute)
		if r := b.look(); len(r.Orphans) != 1 || r.Orphans[0].Kind != "mail" || len(r.Paused) != 1 || r.Paused[0].Kind != "sms" {
			t.Fatalf("without a handler are %+v, paused are %+v", r.Orphans, r.Paused)
		}
		synctest.Wait()                                                             // the board reads by itself every five seconds
		f.nodes = []durable.NodeInfo{{Name: "a", NodeReport: durable.NodeReport{}}} // it joined just now
		time.Sleep(2 * lookEvery)
		if r := b.look(); len(r.Orphans) != 1 || r.Left.Tasks != 0 {
			t.Errorf("while it is not known which kinds a node handles, without a handler are %+v, left are %+v", r.Orphans, r.Left)
		}
		synctest.Wait()
		f.nodes = []durable.NodeInfo{{Name: "a", NodeReport: durable.NodeReport{Workers: 1, Kinds: []string{"mail", "sms"}}}}
		f.paused.Kinds = nil
		time.Sleep(2 * lookEvery)
		if r := b.look(); r.Orphans != nil || r.Paused != nil || r.Left.Tasks != 6 {
			t.Errorf("without a handler are %+v, paused are %+v, left are %+v", r.Orphans, r.Paused, r.Left)
		}
	})
}

// A counted is a scheduler with the given nodes, pauses and overdue tasks.
type counted struct {
	*fakeScheduler
	paused  durable.Pauses
	catchUp durable.CatchUp
	kinds   []durable.KindInfo
}

func (c *counted) Paused(context.Context) (durable.Pauses, error)   { return c.paused, nil }
func (c *counted) CatchUp(context.Context) (durable.CatchUp, error) { return c.catchUp, nil }
func (c *counted) Kinds() []durable.KindInfo                        { return c.kinds }

// The history has a point every five seconds for the last hour, and a page gets the points that are new to it.
func TestScheduler_history(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		h := Handler([]Source{Scheduler("tasks", s, nil)})
		put(t, s, durable.Task{Key: "often", Kind: "ok", Interval: 100 * time.Millisecond, Times: durable.Forever})
		time.Sleep(61 * time.Second)
		got := stateOf(t, h)
		if n := len(got.History); n != 13 || got.History[0].Started != nil || math.Abs(*got.History[n-1].Started-10) > 0.5 {
			t.Fatalf("the history has %d points: %+v", n, got.History)
		}
		after := fmt.Sprint(got.History[10].N)
		if got := answer[schedulerJSON](t, ask(h, "GET", "/api/scheduler?after="+url.QueryEscape(after), nil), 200); len(got.History) != 2 {
			t.Errorf("new are %+v", got.History)
		}
		if got := answer[schedulerJSON](t, ask(h, "GET", "/api/scheduler?after=1000", nil), 200); len(got.History) != 13 {
			t.Errorf("after a number of an earlier process there are %d points", len(got.History))
		}
		time.Sleep(2 * time.Hour)
		if got := stateOf(t, h); len(got.History) != maxReadings || got.Now.Sub(got.History[0].Time) > time.Hour+readEvery {
			t.Errorf("after two hours the history has %d points", len(got.History))
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if got := stateOf(t, h); got.Health.Text != "Stopped: it was shut down" {
			t.Errorf("after the end the health is %+v", got.Health)
		}
		answer[errorJSON](t, ask(h, "GET", "/api/tasks", nil), 409)
	})
}

func TestScheduler_diskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		s := newScheduler(t, m.Engine())
		h := Handler([]Source{Scheduler("tasks", s, nil)}, AllowControl(func(*http.Request) error { return nil }))
		put(t, s, durable.Task{Key: "k", Kind: "ok", Delay: time.Hour})
		time.Sleep(7 * time.Second)
		m.SetFault(fmt.Errorf("write 000042.log: %w", syscall.ENOSPC))
		if err := s.RemoveTask(t.Context(), "k"); !errors.Is(err, durable.ErrBroken) {
			t.Fatal(err)
		}
		time.Sleep(7 * time.Second)
		got := stateOf(t, h)
		if k := said(got.Health); len(k) != 1 || k[0] != health.StoreFailed || got.Health.Findings[0].Since == nil ||
			!strings.HasPrefix(got.Health.Text, "The disk is full, and nothing has run for ") || !strings.Contains(got.Health.Text, "000042.log") {
			t.Errorf("the health is %+v", got.Health)
		}
		if a := answer[aboutStoredJSON](t, ask(h, "GET", "/api/task?scheduler=tasks&key=k", nil), 200); a.Task == nil {
			t.Error("the task is not read any more")
		}
		if e := answer[errorJSON](t, ask(h, "POST", "/api/remove", url.Values{"scheduler": {"tasks"}, "key": {"k"}}), 503); !strings.Contains(e.Error, "000042.log") {
			t.Errorf("it is refused with %s", e.Error)
		}
	})
}

// When an engine is away, the page reports it and its start within a second, and also reports when it is back. A call
// that hangs delays no page for longer than a second.
func TestScheduler_engineAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := enginetest.NewLink(memory.New().Shared())
		s, err := durable.New(t.Context(), link, durable.WithLogger(testkit.Quiet()), durable.WithNodeName("web-1"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
		serveKinds(t, s)
		h := Handler([]Source{Scheduler("tasks", s, nil)})
		put(t, s, many(3, "ok", "ok", time.Hour)...)
		time.Sleep(10 * time.Second)
		if got := stateOf(t, h); !got.Health.Well || !strings.Contains(got.Unheard, "sends no signals") {
			t.Errorf("at first the health is %+v, and the node hears no signals because %q", got.Health, got.Unheard)
		}
		for _, c := range []struct {
			what          string
			before, fault enginetest.Fault
		}{
			{"fails", enginetest.Fault{}, enginetest.Fault{Fail: true}},
			{"fails after slow answers", enginetest.Fault{Delay: 300 * time.Millisecond}, enginetest.Fault{Fail: true}},
			{"hangs", enginetest.Fault{}, enginetest.Fault{Delay: time.Hour, Fail: true}},
		} {
			link.SetFaults(func(string) enginetest.Fault { return c.before })
			time.Sleep(10 * time.Second)
			if got := stateOf(t, h); !got.Health.Well {
				t.Errorf("%s: before that the health is %+v", c.what, got.Health)
			}
			link.SetFaults(func(string) enginetest.Fault { return c.fault })
			time.Sleep(2 * time.Second)
			began := time.Now()
			got := stateOf(t, h)
			if took := time.Since(began); took > 2*readPatience {
				t.Errorf("%s: the answer took %v", c.what, took)
			}
			if k := said(got.Health); len(k) == 0 || k[0] != health.EngineAway || got.Health.Findings[0].Since == nil {
				t.Errorf("%s: the health is %+v", c.what, got.Health)
			}
			if len(got.Nodes) != 1 || got.Nodes[0].Left != nil || got.Unheard != "" {
				t.Errorf("%s: what is left of the lease is known: %+v; %q", c.what, got.Nodes, got.Unheard)
			}
			link.SetFaults(nil)
			time.Sleep(questionTime + 2*time.Second)
			if got := stateOf(t, h); !got.Health.Well || got.Stats.Pending != 3 || got.Nodes[0].Left == nil {
				t.Errorf("%s: when it is back the health is %+v, with %+v", c.what, got.Health, got.Stats)
			}
		}
	})
}

// A drained node is noted, with the time of the drain, until it is no longer drained. It is not an alarm.
func TestScheduler_drainedNode_isNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := durable.New(t.Context(), memory.New().Shared(), durable.WithLogger(testkit.Quiet()), durable.WithNodeName("web-1"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
		serveKinds(t, s)
		var audit []AuditEntry
		h := Handler([]Source{Scheduler("tasks", s, nil)}, AllowControl(func(*http.Request) error { return nil }),
			WithAudit(nil, func(e AuditEntry) { audit = append(audit, e) }))
		node := url.Values{"node": {"web-1"}}
		time.Sleep(5 * time.Second)
		if got := stateOf(t, h); len(got.Health.Notes) != 0 || got.Nodes[0].Drained {
			t.Errorf("at first the health is %+v, of %+v", got.Health, got.Nodes)
		}
		answer[errorJSON](t, ask(h, "POST", "/api/drain-node", url.Values{"kind": {"web-1"}}), 400)
		answer[struct{}](t, ask(h, "POST", "/api/drain-node", node), 200)
		for range 5 {
			time.Sleep(time.Second)
			stateOf(t, h)
		}
		got := stateOf(t, h)
		if k := said(got.Health); len(k) != 1 || k[0] != health.Drained || got.Health.Text != "The only node is drained, and nothing starts" {
			t.Errorf("when the only node is drained, the health is %+v", got.Health)
		}
		if len(got.Health.Notes) != 1 || got.Health.Notes[0].Kind != health.Drained ||
			got.Health.Notes[0].Since == nil || got.Health.Notes[0].Text != "Node web-1 is drained and can be stopped" || !got.Nodes[0].Drained {
			t.Errorf("drained, the health is %+v, of %+v", got.Health, got.Nodes)
		}
		answer[struct{}](t, ask(h, "POST", "/api/undrain-node", node), 200)
		if len(audit) != 2 || audit[0].Action != "drain-node" || audit[1].Action != "undrain-node" || audit[1].Node != "web-1" {
			t.Errorf("the audit is %+v", audit)
		}
		time.Sleep(5 * time.Second)
		if got := stateOf(t, h); len(got.Health.Notes) != 0 || got.Nodes[0].Drained {
			t.Errorf("when it is over, the health is %+v, of %+v", got.Health, got.Nodes)
		}
	})
}

// An operator replaces numbers of the code, and resets them.
func TestScheduler_tune(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		if err := s.Handle("mail", func(context.Context, durable.Run) error { return nil }, durable.WithConcurrency(4), durable.WithClusterRate(10, time.Minute, 2)); err != nil {
			t.Fatal(err)
		}
		var audit []AuditEntry
		h := Handler([]Source{Scheduler("tasks", s, nil)}, AllowControl(func(*http.Request) error { return nil }),
			WithAudit(func(*http.Request) string { return "ann" }, func(e AuditEntry) { audit = append(audit, e) }))
		post := func(path string, status int, form url.Values) {
			t.Helper()
			answer[any](t, ask(h, "POST", "/api/"+path, form), status)
		}
		post("tune-limits", 200, url.Values{"kind": {"mail"}, "concurrency": {"9"}, "cluster_rate": {"20"}, "cluster_concurrency": {""}, "why": {"it bears more"}})
		post("tune-pool", 200, url.Values{"n": {"16"}})
		post("tune-catchup", 200, url.Values{"n": {"100"}})
		for path, form := range map[string]url.Values{
			"tune-limits": {"kind": {"mail"}, "concurrency": {"-1"}}, "tune-pool": {"n": {"many"}}, "tune-catchup": {"n": {"0"}},
		} {
			post(path, 400, form)
		}
		post("tune-limits", 400, url.Values{"concurrency": {"1"}})
		time.Sleep(time.Second)
		state := stateOf(t, h)
		if tuned := state.Tuning; tuned.PoolSize != 16 || tuned.CatchUp != 100 || tuned.By["pool size"].Who != "ann" || tuned.By["kind mail"].Why != "it bears more" || state.Stats.Workers != 16 {
			t.Errorf("set are %+v, with %d workers", tuned, state.Stats.Workers)
		}
		for _, k := range state.Kinds {
			if k.Kind == "mail" && (!k.Here.Tuned || *k.Here.Limit != (limitJSON{Concurrency: 9}) || *k.Here.Cluster != (limitJSON{Rate: 20, Per: 60, Burst: 2})) {
				t.Errorf("the kind is %+v", k.Here)
			}
		}
		if len(audit) != 7 || audit[0].Action != "tune-limits" || audit[0].Kind != "mail" || audit[0].Err != nil || audit[6].Err == nil {
			t.Errorf("the audit is %+v", audit)
		}
		post("tune-limits", 200, url.Values{"kind": {"mail"}})
		post("tune-pool", 200, nil)
		post("tune-catchup", 200, nil)
		time.Sleep(time.Second)
		if tuned := stateOf(t, h).Tuning; tuned.PoolSize+tuned.CatchUp+len(tuned.By) != 0 {
			t.Errorf("when they are reset, set are %+v", tuned)
		}
	})
}

// A kind that fails about half of the time does not fail and recover in turn.
func TestScheduler_failsEveryOtherTime_isOneFinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		rnd := rand.New(rand.NewPCG(1, 2))
		var share atomic.Int64
		share.Store(50)
		err := s.Handle("hook", func(context.Context, durable.Run) error {
			if rnd.Int64N(100) < share.Load() {
				return errors.New("502")
			}
			return nil
		}, durable.WithRetry(1000, time.Millisecond, time.Millisecond))
		if err == nil {
			err = s.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		h := Handler([]Source{Scheduler("tasks", s, nil)})
		put(t, s, durable.Task{Key: "k", Kind: "hook", Interval: 300 * time.Millisecond, Times: durable.Forever})
		changes := func(seconds int) (n int, is bool) {
			for i := range seconds {
				time.Sleep(time.Second)
				was := is
				got := stateOf(t, h)
				if is = slices.Contains(said(got.Health), health.Failing); i > 0 && is != was {
					n++
				}
			}
			return n, is
		}
		if n, is := changes(120); !is || n > 1 {
			t.Errorf("in two minutes it changes %d times, at last %v", n, is)
		}
		share.Store(5)
		if n, is := changes(180); is || n > 1 {
			t.Errorf("when it is over it changes %d times, at last %v", n, is)
		}
	})
}

// Handlers that hang on all workers are reported as an overload at the first look, dated from when the first run waits.
// The waiting tasks are overdue.
func TestScheduler_stuckWorkers_areSaidAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine(), durable.WithPoolSize(8))
		end := make(chan struct{})
		defer close(end)
		stuck := func(context.Context, durable.Run) error { <-end; return nil }
		if err := s.Handle("stuck", stuck); err != nil {
			t.Fatal(err)
		}
		h := Handler([]Source{Scheduler("tasks", s, nil)})
		time.Sleep(time.Second / 2)
		put(t, s, many(50, "stuck", "stuck", time.Second)...)
		time.Sleep(4 * time.Second) // until just before the second reading
		got := answer[sourcesJSON](t, ask(h, "GET", "/api/sources", nil), 200).Sources[0].Health
		if len(got.Findings) != 1 || got.Findings[0].Kind != health.Overloaded ||
			got.Text != "Overloaded for 3 s: 8 of 8 workers busy, 42 runs wait, the oldest for 3 s; none has started for 2 s; 8 workers run kind stuck, the longest for 2 s" &&
				got.Text != "Overloaded for 3 s: 8 of 8 workers busy, 42 runs wait, the oldest for 3 s; none has started for 3 s; 8 workers run kind stuck, the longest for 3 s" {
			t.Errorf("the health is %+v", got)
		}
		running := answer[listJSON](t, ask(h, "GET", "/api/tasks?state=running", nil), 200)
		if len(running.Tasks) != 8 || running.Tasks[0].Started == nil || running.Now.Sub(*running.Tasks[0].Started) > 3*time.Second {
			t.Errorf("running are %+v", running)
		}
		if stats := stateOf(t, h).Stats; stats.OldestWait < 2.9 || stats.OldestWait > 3.1 || stats.Workers != 8 {
			t.Errorf("the accounts are %+v", stats)
		}
	})
}

// Handlers that hang on all workers of two nodes are reported as an overload of both, on each node's page, within three
// seconds. The finding ends with the runs.
func TestScheduler_stuckNodes_areSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, end := memory.New().Shared(), make(chan struct{})
		var all []*durable.Scheduler
		var pages []http.Handler
		for i := range 2 {
			s, err := durable.New(t.Context(), engine, durable.WithLogger(testkit.Quiet()), durable.WithNodeName(fmt.Sprint("web-", i+1)), durable.WithPoolSize(8))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Handle("stuck", func(context.Context, durable.Run) error { <-end; return nil }); err != nil {
				t.Fatal(err)
			}
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			all, pages = append(all, s), append(pages, Handler([]Source{Scheduler("tasks", s, nil)}))
		}
		put(t, all[0], many(400, "stuck", "stuck", time.Second)...)
		time.Sleep(4 * time.Second)
		for seconds := range 40 {
			time.Sleep(time.Second)
			for i, h := range pages {
				got := stateOf(t, h)
				if k := said(got.Health); len(k) != 2 || k[0] != health.Overloaded || k[1] != health.Overloaded ||
					!strings.Contains(got.Health.Text, ": 8 of 8 workers busy, 38") || !strings.Contains(got.Health.Text, " due tasks wait, the oldest for ") ||
					!strings.Contains(got.Health.Text, "; 8 workers run kind stuck, the longest for ") ||
					!strings.HasPrefix(got.Health.Findings[1].Text, fmt.Sprintf("Node web-%d is overloaded: 8 of 8 workers busy, due tasks wait", 2-i)) {
					t.Fatalf("after %d s more, the page of node %d says %+v", seconds, i+1, got.Health)
				}
				for _, n := range got.Nodes {
					if n.Busiest == nil || n.Busiest.Kind != "stuck" || n.Busiest.Running != 8 || n.Busiest.Longest < float64(seconds) || n.SinceStart < float64(seconds) {
						t.Errorf("a node is %+v, %+v", n, n.Busiest)
					}
				}
			}
		}
		close(end)
		time.Sleep(5 * time.Second)
		for i, h := range pages {
			if got := stateOf(t, h); !got.Health.Well {
				t.Errorf("when it is over, the page of node %d says %+v", i+1, got.Health)
			}
		}
		for _, s := range all {
			if err := s.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// A paused task and a task on a calendar are found and shown as such.
func TestScheduler_pausedAndCalendar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		put(t, s, durable.Task{Key: "held", Kind: "ok", Delay: time.Second},
			durable.Task{Key: "daily", Kind: "ok", Cron: "0 9 * * *", Times: durable.Forever})
		if err := s.Pause(t.Context(), "held"); err != nil {
			t.Fatal(err)
		}
		h := Handler([]Source{Scheduler("tasks", s, nil)})
		time.Sleep(time.Minute)
		list := answer[listJSON](t, ask(h, "GET", "/api/tasks?state=paused", nil), 200)
		if len(list.Tasks) != 1 || list.Tasks[0].Key != "held" || list.Tasks[0].State != "paused" || list.Tasks[0].Next != nil {
			t.Errorf("paused are %+v", list.Tasks)
		}
		about := answer[aboutStoredJSON](t, ask(h, "GET", "/api/task?key=daily", nil), 200)
		if about.Task == nil || about.Task.Cron != "0 9 * * *" || about.Task.Interval != 0 || about.Task.Next == nil {
			t.Errorf("the task of a calendar is %+v", about.Task)
		}
	})
}

// A fakeScheduler gives the answers that the test sets.
type fakeScheduler struct {
	*durable.Scheduler
	nodes  []durable.NodeInfo
	census func() durable.Counts
}

func (f *fakeScheduler) Nodes(context.Context) ([]durable.NodeInfo, error) { return f.nodes, nil }

func (f *fakeScheduler) Counts(context.Context) (durable.Counts, error) {
	return f.census(), nil
}

// unread is a scheduler whose tasks cannot be searched.
type unread struct {
	*durable.Scheduler
	searches int
}

func (u *unread) Find(_ context.Context, q durable.Query) (durable.Found, error) {
	if q.Prefix != "" { // otherwise the board reads the due tasks
		u.searches++
	}
	return durable.Found{}, context.DeadlineExceeded
}

// The declared sets are listed although their tasks cannot be read in time. Only the first search waits for that.
func TestBoard_sets_whoseTasksAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		if err := s.Declare("mail"); err != nil {
			t.Fatal(err)
		}
		for _, prefix := range []string{"a:", "b:"} {
			set := durable.TaskSet{Prefix: prefix, Version: 3, Tasks: []durable.Task{{Key: prefix, Kind: "mail", Interval: time.Hour}}}
			if _, err := s.Schedule(t.Context(), set); err != nil {
				t.Fatal(err)
			}
		}
		u := &unread{Scheduler: s}
		for _, of := range []scheduler{u, s} {
			j, err := newBoard("tasks", of, nil).sets(t.Context())
			want := map[bool]int{true: -1, false: 1}[of == scheduler(u)]
			if err != nil || len(j.Sets) != 2 || j.Sets[1].Prefix != "b:" || j.Sets[1].Version != 3 || j.Sets[0].Tasks != want || j.Sets[1].Tasks != want {
				t.Errorf("the sets are %+v, %v, want %d tasks", j.Sets, err, want)
			}
		}
		if u.searches != 1 {
			t.Errorf("%d searches", u.searches)
		}
	})
}

func TestBoard_nodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		report := durable.NodeReport{Held: 7, Version: "v1", Kinds: []string{"mail"}, Workers: 8, Running: 3, Waiting: 1}
		f := &fakeScheduler{Scheduler: newScheduler(t, memory.New().Engine()), nodes: []durable.NodeInfo{
			{Name: "a", ID: 1<<53 + 1, Self: true, Lease: 5 * time.Second, Left: 4 * time.Second, NodeReport: report},
			{Name: "b", ID: 2, Lease: 5 * time.Second, Left: 4 * time.Second},
		}, census: func() durable.Counts {
			return durable.Counts{At: time.Now(), Whole: true, Kinds: []durable.KindCounts{{Kind: "mail", Tasks: 9}, {Kind: "sms", Tasks: 1}}}
		}}
		b := newBoard("tasks", f, nil)
		time.Sleep(10 * time.Second)
		s := b.state(-1)
		if len(s.Nodes) != 2 || s.Nodes[0].Held != 7 || *s.Nodes[0].Left != 4 || !s.Nodes[0].Self || s.Nodes[0].Workers != 8 || s.Nodes[0].Version != "v1" {
			t.Errorf("the nodes are %+v", s.Nodes)
		}
		if text, err := json.Marshal(s.Nodes[0]); err != nil || !strings.Contains(string(text), `"id":"9007199254740993"`) {
			t.Errorf("a script would round the number of the node: %s, %v", text, err)
		}
		if !s.Health.Well || s.Health.Text != "Working: 0 of 1,024 workers busy, 10 tasks, none parked, 2 nodes" {
			t.Errorf("the health is %+v", s.Health)
		}
		for _, k := range s.Kinds {
			if want := map[string]int{"mail": 1}[k.Kind]; k.Nodes != want {
				t.Errorf("kind %s is handled by %d nodes", k.Kind, k.Nodes)
			}
		}
		f.nodes = []durable.NodeInfo{f.nodes[0], {Name: "b", ID: 2, Lease: 5 * time.Second, Left: time.Second}}
		time.Sleep(lookEvery)
		if k := said(b.state(-1).Health); len(k) != 1 || k[0] != health.NodeLate {
			t.Errorf("with a late lease it says %v", k)
		}
		f.nodes = f.nodes[:1]
		time.Sleep(lookEvery)
		if k := said(b.state(-1).Health); len(k) != 1 || k[0] != health.NodeLost {
			t.Errorf("after the lease it says %v", k)
		}
	})
}

// While the tasks are counted again, the last complete count stays, and the page says that it is old.
func TestBoard_countThatIsNotComplete_replacesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counted atomic.Bool
		f := &fakeScheduler{Scheduler: newScheduler(t, memory.New().Engine()), census: func() durable.Counts {
			c := durable.Counts{At: time.Now(), Whole: counted.Load()}
			if c.Whole {
				c.Kinds = []durable.KindCounts{{Kind: "mail", Tasks: 9, Failing: 2, Parked: 2}}
			}
			return c
		}}
		b := newBoard("tasks", f, nil)
		check := func(text string, tasks int, whole bool) {
			t.Helper()
			time.Sleep(10 * time.Second)
			if s := b.state(-1); s.Health.Text != text || s.Counts.Tasks != tasks || s.Counts.Parked > tasks || s.Counts.Whole != whole || (s.Counts.At == nil) != (tasks == 0) {
				t.Errorf("the health is %+v, and the counts %+v", s.Health, s.Counts)
			}
		}
		check("The tasks are being counted", 0, false)
		counted.Store(true)
		check("2 tasks are parked, of kind mail, waiting for an operator", 9, true)
		counted.Store(false)
		check("2 tasks are parked, of kind mail, waiting for an operator, counted 10 s ago", 9, false)
	})
}

// An unsafe engine runs on a server that may lose acknowledged tasks.
type unsafeEngine struct{ unsafe atomic.Bool }

func (e *unsafeEngine) Health(context.Context) (engine.Health, error) {
	return engine.Health{Unflushed: e.unsafe.Load()}, nil
}

// The page warns while acknowledged tasks can be lost, and not after that.
func TestBoard_engineThatMayLoseTasks_isSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, e := newScheduler(t, memory.New().Engine()), &unsafeEngine{}
		b := Scheduler("tasks", s, nil).WithEngine(e).open()
		for _, unsafe := range []bool{false, true, false} {
			e.unsafe.Store(unsafe)
			time.Sleep(time.Minute)
			h := b.source(time.Now()).Health
			if k := said(h); h.Well == unsafe || unsafe && (len(k) != 1 || k[0] != health.Unflushed) {
				t.Errorf("of a server that may lose tasks, %v, it says %+v", unsafe, h)
			}
		}
		wheel, err := timewheel.New(time.Millisecond, 64)
		if err != nil {
			t.Fatal(err)
		}
		if h := Wheel("wheel", wheel, nil).WithEngine(e).open().source(time.Now()).Health; said(h)[0] != health.Stopped {
			t.Errorf("a wheel says %+v", h)
		}
	})
}

// A serverEngine reports the server health that the test sets.
type serverEngine struct{ atomic.Pointer[engine.Health] }

func (e *serverEngine) Health(context.Context) (engine.Health, error) {
	if h := e.Load(); h != nil {
		return *h, nil
	}
	return engine.Health{}, durable.ErrUnavailable
}

// The page shows for a minute that a database server was refused, and always which failures acknowledged tasks survive.
func TestBoard_refusedServer_isSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := new(serverEngine)
		e.Store(&engine.Health{Refused: 3})
		b := newBoard("tasks", newScheduler(t, memory.New().Engine()), nil)
		if s := b.state(-1); s.Survival != "" {
			t.Errorf("without an engine it says %q", s.Survival)
		}
		b = Scheduler("tasks", newScheduler(t, memory.New().Engine()), nil).WithEngine(e).open().(*board)
		time.Sleep(10 * time.Second)
		if s := b.state(-1); !s.Health.Well || s.Survival != health.Survival(false, 0) {
			t.Errorf("at first it says %+v and %q", s.Health, s.Survival)
		}
		e.Store(&engine.Health{Refused: 4, Replicated: true, Standbys: 2})
		for _, second := range []int{2, 50, 70} {
			time.Sleep(time.Duration(second) * time.Second)
			s := b.state(-1)
			if k := said(s.Health); second < 70 && (len(k) != 1 || k[0] != health.Refused) || second == 70 && len(k) > 0 {
				t.Errorf("%d s later it says %+v", second, s.Health)
			}
			if s.Survival != health.Survival(true, 2) {
				t.Errorf("%d s later it says %q", second, s.Survival)
			}
		}
		e.Store(nil)
		time.Sleep(20 * time.Second)
		if s := b.state(-1); s.Survival != "" {
			t.Errorf("without an answer it says %q", s.Survival)
		}
	})
}

// Slow queries that do not limit themselves take at most a tenth of the time, and delay nothing.
func TestBoard_slowNodes_areRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &slowScheduler{Scheduler: newScheduler(t, memory.New().Engine())}
		f.nodes.Store(int64(2 * time.Second))
		b := newBoard("tasks", f, nil)
		for range 190 {
			time.Sleep(time.Second)
			began := time.Now()
			s := b.state(-1)
			if took := time.Since(began); took > readPatience || !s.Health.Well {
				t.Fatalf("a state took %v, and is %+v", took, s.Health)
			}
		}
		if n := f.asked.Load(); n < 9 || n > 10 {
			t.Errorf("in 190 s it was asked %d times", n)
		}
		if s := b.state(-1); len(s.Nodes) != 1 {
			t.Errorf("the nodes are %+v", s.Nodes)
		}
		time.Sleep(30 * time.Second)
	})
}

// A list in which a node is late is not used for long, although it was slow.
func TestBoard_lateNode_thatRenewsItsLease_isLateNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &slowScheduler{Scheduler: newScheduler(t, memory.New().Engine())}
		f.nodes.Store(int64(150 * time.Millisecond)) // otherwise it is used for 15 s
		f.left.Store(int64(time.Second))
		b := newBoard("tasks", f, nil)
		time.Sleep(10 * time.Second)
		if s := b.state(-1); len(s.Nodes) != 1 || !s.Nodes[0].Late {
			t.Errorf("the nodes are %+v", s.Nodes)
		}
		f.left.Store(int64(3 * time.Second))
		b.state(-1)
		time.Sleep(2 * time.Second)
		if s := b.state(-1); s.Nodes[0].Late || !s.Health.Well {
			t.Errorf("2 s after its renewal the nodes are %+v", s.Nodes)
		}
		time.Sleep(questionTime)
	})
}

// Counts that a scheduler limits itself are requested at each reading: a slow count is not shown for longer than the
// scheduler uses it. It delays nothing either.
func TestBoard_slowCounts_areAskedAtEachReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &slowScheduler{Scheduler: newScheduler(t, memory.New().Engine())}
		f.counts.Store(int64(150 * time.Millisecond))
		b := newBoard("tasks", f, nil)
		time.Sleep(time.Second)
		for range 20 {
			time.Sleep(2 * time.Second)
			began := time.Now()
			if s, n := b.state(-1), int(f.asked.Load()); s.Counts.Tasks != n || s.CatchUp.Left != n {
				t.Errorf("after %d counts the census is %+v, and the backlog %+v", n, s.Counts, s.CatchUp)
			}
			if took := time.Since(began); took > readPatience {
				t.Fatalf("a state took %v", took)
			}
		}
		f.counts.Store(int64(3 * time.Second))
		time.Sleep(10 * time.Second)
		for range 10 {
			time.Sleep(time.Second)
			began := time.Now()
			if b.state(-1); time.Since(began) > 2*readPatience {
				t.Fatalf("a state took %v", time.Since(began))
			}
		}
		f.counts.Store(0)
		time.Sleep(10 * time.Second)
	})
}

// A slowScheduler is slow to give some answers.
type slowScheduler struct {
	*durable.Scheduler
	nodes, counts atomic.Int64 // durations of these calls, in nanoseconds
	asked         atomic.Int32 // number of calls for the nodes if they are slow, otherwise for the census
	left          atomic.Int64 // of a lease of 4 s, in nanoseconds; 0: it has none
}

func (s *slowScheduler) Nodes(ctx context.Context) ([]durable.NodeInfo, error) {
	if s.nodes.Load() > 0 {
		s.asked.Add(1)
	}
	time.Sleep(time.Duration(s.nodes.Load()))
	nodes, err := s.Scheduler.Nodes(ctx)
	if left := s.left.Load(); left > 0 {
		nodes[0].ID, nodes[0].Lease, nodes[0].Left = 1, 4*time.Second, time.Duration(left)
	}
	return nodes, err
}

func (s *slowScheduler) Counts(ctx context.Context) (durable.Counts, error) {
	if s.nodes.Load() == 0 {
		s.asked.Add(1)
	}
	time.Sleep(time.Duration(s.counts.Load()))
	return durable.Counts{Whole: true, Kinds: []durable.KindCounts{{Kind: "ok", Tasks: int(s.asked.Load())}}}, nil
}

func (s *slowScheduler) CatchUp(context.Context) (durable.CatchUp, error) {
	time.Sleep(time.Duration(s.counts.Load()))
	left := durable.KindCatchUp{Kind: "ok", Left: int(s.asked.Load()), Oldest: time.Now()}
	return durable.CatchUp{Left: left.Left, Oldest: left.Oldest, Kinds: []durable.KindCatchUp{left}}, nil
}

// The number of paused tasks matches their list: tasks of a paused kind are not included.
func TestBoard_countsThePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		h := Handler([]Source{Scheduler("tasks", s, nil)})
		put(t, s, many(5, "ok", "ok", time.Hour)...)
		put(t, s, many(7, "bad", "bad", time.Hour)...)
		if err := errors.Join(s.Pause(t.Context(), "ok-001"), s.Pause(t.Context(), "ok-003"), s.PauseKind(t.Context(), "bad")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		listed := answer[listJSON](t, ask(h, "GET", "/api/tasks?state=paused", nil), 200).Tasks
		if c := stateOf(t, h).Counts; c.Paused != 2 || len(listed) != c.Paused {
			t.Errorf("the census is %+v, and the list has %d tasks", c, len(listed))
		}
	})
}

// Overdue tasks of a kind that waits for its limit are a note. Other overdue tasks are a finding, even while one kind
// waits, and so are tasks of a kind with a limit that is not full.
func TestBoard_aBacklogNextToALimitedKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &behindScheduler{Scheduler: newScheduler(t, memory.New().Engine())}
		ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
		f.kinds = []durable.KindInfo{{Kind: "mail", Full: true, Cluster: durable.Limit{Concurrency: 1}}, {Kind: "ok"},
			{Kind: "push", Limit: durable.Limit{Concurrency: 1000}},
			{Kind: "sms", Full: true, Waiting: 1, Limit: durable.Limit{Rate: 10, Per: time.Second}}}
		f.behind = durable.CatchUp{Left: 380, Oldest: ago(time.Hour), Kinds: []durable.KindCatchUp{
			{Kind: "mail", Left: 200, Oldest: ago(time.Hour)}, {Kind: "ok", Left: 50, Oldest: ago(time.Minute)},
			{Kind: "push", Left: 30, Oldest: ago(time.Second)}, {Kind: "sms", Left: 100, Oldest: ago(2 * time.Hour)},
		}}
		s := newBoard("tasks", f, nil).state(-1)
		if h := s.Health; h.Well || h.Text != "Catching up: 80 overdue tasks left, the oldest due 1 m ago" ||
			len(h.Notes) != 2 || h.Notes[0].Text != "Kind mail: 200 due tasks wait for its limit (1 at once on all nodes), the oldest due 1 h ago" ||
			h.Notes[1].Text != "Kind sms: 100 due tasks wait for its limit (10 per second on each node), the oldest due 2 h ago" || s.CatchUp.Left != 380 {
			t.Errorf("the health is %+v, and the backlog %+v", h, s.CatchUp)
		}
		if s.Stats.Overdue != 380 || s.Stats.OverdueMore || !s.Stats.Oldest.Equal(ago(2*time.Hour)) {
			t.Errorf("the accounts are %+v", s.Stats)
		}
		for _, k := range s.Kinds {
			if want := map[string]int{"mail": 200, "ok": 50, "push": 30, "sms": 100}[k.Kind]; k.Overdue != want || k.OverdueMore || (k.Oldest == nil) != (want == 0) {
				t.Errorf("kind %s has %d overdue tasks, the oldest %v; want %d", k.Kind, k.Overdue, k.Oldest, want)
			}
		}
	})
}

// A fullAt is a scheduler with a kind whose limit is full in the seconds 1 and 4.
type fullAt struct {
	*counted
	began time.Time
}

func (f fullAt) Kinds() []durable.KindInfo {
	second := time.Since(f.began) / time.Second
	return []durable.KindInfo{{Kind: "mail", Full: second == 1 || second == 4, Limit: durable.Limit{Concurrency: 2}}}
}

// The reading of a limit that is full again and again does not come and go.
func TestBoard_aLimitIsFullForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fullAt{&counted{fakeScheduler: &fakeScheduler{Scheduler: newScheduler(t, memory.New().Engine())}}, time.Now()}
		f.census = func() durable.Counts { return durable.Counts{Whole: true} }
		f.catchUp = durable.CatchUp{Kinds: []durable.KindCatchUp{{Kind: "mail", Left: 9, Oldest: time.Now()}}}
		b := newBoard("tasks", f, nil)
		for second := range 11 {
			r := b.look()
			if want := second > 0 && second < 9; (len(r.Limited) == 1) != want || (r.Left.Tasks == 9) == want {
				t.Errorf("after %d s limited are %+v, left are %+v", second, r.Limited, r.Left)
			}
			time.Sleep(lookEvery)
		}
	})
}

// Overdue tasks of a kind that another node handles count as if this node handled it, with the limits that the other one
// reports. If only drained nodes handle the kind, its tasks count as having no handler, once.
func TestBoard_overdueTasksOfOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &counted{fakeScheduler: &fakeScheduler{Scheduler: newScheduler(t, memory.New().Engine())}}
		f.census = func() durable.Counts {
			return durable.Counts{Whole: true, Kinds: []durable.KindCounts{{Kind: "here", Tasks: 9}, {Kind: "mail", Tasks: 9}, {Kind: "sms", Tasks: 9}}}
		}
		f.kinds = []durable.KindInfo{{Kind: "here"}}
		f.catchUp.Others = []durable.KindCatchUp{{Kind: "here", Left: 5}, {Kind: "mail", Left: 3}, {Kind: "sms", Left: 4}}
		f.nodes = []durable.NodeInfo{
			{ID: 1, Name: "a", Self: true, NodeReport: durable.NodeReport{Workers: 1, Drained: true}},
			{ID: 2, Name: "b", NodeReport: durable.NodeReport{Workers: 1, Kinds: []string{"mail", "sms"},
				Limits: []durable.KindLimits{{Kind: "sms", Here: durable.Limit{Concurrency: 2}}}}},
		}
		r := newBoard("tasks", f, nil).look()
		if len(r.Orphans) != 1 || r.Orphans[0].Kind != "here" || r.Orphans[0].Due != 5 || r.Left.Tasks != 3 ||
			len(r.Limited) != 1 || r.Limited[0].Kind != "sms" || r.Limited[0].Tasks != 4 || r.overdue[""].Due != 12 {
			t.Errorf("%+v, %+v, %+v, %+v", r.Orphans, r.Left, r.Limited, r.overdue)
		}
	})
}

// Due tasks that wait for a handler or for the end of a pause are overdue, too.
func TestBoard_overdueTasks_whateverTheyWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		h := Handler([]Source{Scheduler("tasks", s, nil)})
		put(t, s, many(7, "bad", "bad", time.Second)...)
		if err := s.PauseKind(t.Context(), "bad"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		state := stateOf(t, h)
		if state.Stats.Overdue != 7 || state.Stats.Waiting != 0 || state.Stats.Oldest == nil {
			t.Errorf("the accounts are %+v", state.Stats)
		}
		for _, k := range state.Kinds {
			if want := map[string]int{"bad": 7}[k.Kind]; k.Overdue != want {
				t.Errorf("kind %s has %d overdue tasks", k.Kind, k.Overdue)
			}
		}
	})
}

// A group floods a kind with a limit: the page shows which group, how many of its tasks are due, and how long the
// others wait. Its name is shown as text, whatever it contains.
func TestScheduler_aGroupFloods(t *testing.T) {
	for _, crowd := range []string{"acme", "", "acme\xff"} {
		synctest.Test(t, func(t *testing.T) {
			s := newScheduler(t, memory.New().Engine())
			takes := func(context.Context, durable.Run) error { time.Sleep(time.Minute); return nil }
			if err := s.Handle("mail", takes, durable.WithConcurrency(1)); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			group := func(tasks []durable.Task, name string) []durable.Task {
				for i := range tasks {
					tasks[i].Group = name
				}
				return tasks
			}
			put(t, s, group(many(1, "first", "mail", 0), "none")...)
			put(t, s, group(many(100, "a", "mail", time.Second), crowd)...)
			put(t, s, group(many(3, "b", "mail", 10*time.Second), "zeta")...)
			put(t, s, group(many(200, "c", "mail", time.Hour), "later")...)
			time.Sleep(30 * time.Second)
			h := Handler([]Source{Scheduler("tasks", s, nil)})
			got := stateOf(t, h)
			i := slices.IndexFunc(got.Kinds, func(k kindJSON) bool { return k.Kind == "mail" })
			largest := got.Kinds[i].Here.Largest
			if largest == nil || got.Read.Groups == nil || time.Since(*got.Read.Groups) > time.Second {
				t.Fatalf("the kind is %+v, read at %v", got.Kinds[i].Here, got.Read.Groups)
			}
			want := largestJSON{Tasks: 100, Of: 103, Oldest: largest.Oldest, Others: largest.Others}
			want.Group, want.Exact = keyText(crowd)
			if *largest != want || !largest.Oldest.Equal(begun.Add(time.Second)) || largest.Others == nil || !largest.Others.Equal(begun.Add(10*time.Second)) {
				t.Errorf("the largest group is %+v, with others since %v, want %+v", largest, largest.Others, want)
			}
			for _, k := range got.Kinds {
				if k.Kind != "mail" && k.Here.Largest != nil {
					t.Errorf("kind %s has the largest group %+v", k.Kind, k.Here.Largest)
				}
			}
			if err := s.PauseKind(t.Context(), "mail"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			if got := stateOf(t, h); got.Kinds[i].Here.Largest != nil || got.Read.Groups != nil {
				t.Errorf("of a kind that is paused it says %+v, read at %v", got.Kinds[i].Here.Largest, got.Read.Groups)
			}
		})
	}
}

// The largest group is shown if any tasks have groups. The sum of the unnamed groups counts as part of the others.
func TestLargest(t *testing.T) {
	at := time.Unix(1e9, 0)
	one := func(group string, due int, oldest time.Time) durable.GroupCounts {
		return durable.GroupCounts{Kind: "k", Group: group, Tasks: due, Due: due, Oldest: oldest}
	}
	sooner := at.Add(-time.Hour)
	for name, c := range map[string]struct {
		groups durable.Groups
		want   *largestJSON
	}{
		"none":       {durable.Groups{}, nil},
		"no group":   {durable.Groups{Largest: []durable.GroupCounts{one("", 5, at)}}, nil},
		"one group":  {durable.Groups{Largest: []durable.GroupCounts{one("a", 5, at)}, Cut: true}, &largestJSON{Group: "a", Exact: true, Tasks: 5, Of: 5, Cut: true, Oldest: at}},
		"two groups": {durable.Groups{Largest: []durable.GroupCounts{one("a", 5, at), one("", 2, sooner)}}, &largestJSON{Group: "a", Exact: true, Tasks: 5, Of: 7, Oldest: at, Others: &sooner}},
		"very many": {durable.Groups{Largest: []durable.GroupCounts{one("a", 5, at), one("b", 2, at)}, More: 7, Others: one("", 9, sooner)},
			&largestJSON{Group: "a", Exact: true, Tasks: 5, Of: 16, Oldest: at, Others: &sooner}},
	} {
		if got := newLargestJSON(c.groups); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// The groups are read while a page shows a kind that waits for its limit, and never without a page. Slow readings take
// at most a tenth of the time, for all pages together.
func TestBoard_groups_areReadForAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 200 * time.Millisecond
		f := &floodedScheduler{Scheduler: newScheduler(t, memory.New().Engine())}
		f.takes.Store(int64(takes))
		b := newBoard("tasks", f, nil)
		watch := func(seconds int) (asked int) {
			before := f.asked.Load()
			for range seconds {
				time.Sleep(time.Second)
				for range 3 {
					b.state(-1)
				}
			}
			return int(f.asked.Load() - before)
		}
		if n := watch(60); n != 0 {
			t.Errorf("it was asked %d times, and nothing waits", n)
		}
		f.waits.Store(true)
		time.Sleep(time.Minute)
		if n := f.asked.Load(); n != 0 {
			t.Errorf("it was asked %d times without a page", n)
		}
		if n := watch(150); n < 9 || n > 11 {
			t.Errorf("what takes %v was asked %d times in 150 s", takes, n)
		}
		f.takes.Store(0)
		if n := watch(150); n < 120 || n > 151 {
			t.Errorf("what takes no time was asked %d times in 150 s", n)
		}
		if q := *f.last.Load(); q.Kind != "mail" || q.State != durable.Waiting || q.For > 100*time.Millisecond {
			t.Errorf("it was asked for %+v", q)
		}
	})
}

// A floodedScheduler has a group that floods a kind.
type floodedScheduler struct {
	*durable.Scheduler
	waits atomic.Bool  // for the limit
	takes atomic.Int64 // the duration of the answer about the groups, in nanoseconds
	asked atomic.Int32
	last  atomic.Pointer[durable.Query]
}

func (s *floodedScheduler) Kinds() []durable.KindInfo {
	if !s.waits.Load() {
		return nil
	}
	return []durable.KindInfo{{Kind: "mail", Waiting: 5}, {Kind: "sms"}}
}

func (s *floodedScheduler) Groups(_ context.Context, q durable.Query) (durable.Groups, error) {
	s.asked.Add(1)
	s.last.Store(&q)
	time.Sleep(time.Duration(s.takes.Load()))
	return durable.Groups{Largest: []durable.GroupCounts{{Kind: q.Kind, Group: "acme", Tasks: 5, Due: 5, Oldest: time.Now()}}}, nil
}

// A behindScheduler has a backlog.
type behindScheduler struct {
	*durable.Scheduler
	kinds  []durable.KindInfo
	behind durable.CatchUp
}

func (s *behindScheduler) Kinds() []durable.KindInfo                        { return s.kinds }
func (s *behindScheduler) CatchUp(context.Context) (durable.CatchUp, error) { return s.behind, nil }

// All pages of a scheduler share one reading per second, and nothing is left running when the handler is no longer
// used.
func TestBoard_isForgotten(t *testing.T) {
	s := newScheduler(t, memory.New().Engine())
	collected := make(chan struct{})
	func() {
		b := newBoard("tasks", s, nil)
		if a, c := b.look(), b.look(); !a.Time.Equal(c.Time) {
			t.Errorf("it was read at %v and %v", a.Time, c.Time)
		}
		runtime.AddCleanup(b, func(c chan struct{}) { close(c) }, collected)
	}()
	for range 1000 {
		runtime.GC()
		select {
		case <-collected:
			return
		default:
			runtime.Gosched()
		}
	}
	t.Error("the board is kept")
}

func TestAttemptRecorder(t *testing.T) {
	rec := NewAttemptRecorder()
	if _, err := durable.New(t.Context(), memory.New().Engine(), rec.Option()); err != nil {
		t.Fatal(err)
	}
	if _, err := durable.New(t.Context(), memory.New().Engine(), rec.Option()); err == nil || !strings.Contains(err.Error(), "already belongs to a scheduler") {
		t.Errorf("the second scheduler gets %v", err)
	}
	now := time.Now()
	for i := range 100 {
		d := time.Duration(i+1) * time.Millisecond
		rec.observe(durable.Attempt{Kind: "k", Due: now.Add(-d), Started: now, Ended: now.Add(10 * d)})
	}
	rec.observe(durable.Attempt{Kind: "other", Due: now, Started: now, Ended: now, Failure: "no"})
	l := rec.lateness("k", now)
	near := func(got, want float64) bool { return math.Abs(got/want-1) < 0.07 }
	if l.Attempts != 100 || !near(l.Late.P50, 0.05) || !near(l.Late.P99, 0.099) || !near(l.Run.P50, 0.5) || !near(l.Run.Max, 1) {
		t.Errorf("it is %+v", l)
	}
	if rec.lateness("unknown", now) != nil || rec.failure("other") != "no" || rec.failure("k") != "" {
		t.Error("what was not recorded is said, or what was is not")
	}
	for i := range 100 {
		rec.observe(durable.Attempt{Kind: fmt.Sprint("kind", i), Ended: now})
	}
	if len(rec.kinds) != maxRecorded {
		t.Errorf("%d kinds are recorded", len(rec.kinds))
	}
}

func TestHandler_wrongSchedulers_panics(t *testing.T) {
	s := newScheduler(t, memory.New().Engine())
	tw, _ := newWheel(t, 60)
	rec := NewAttemptRecorder()
	wired := NewAttemptRecorder()
	wired.schedulers.Store(1)
	for says, sources := range map[string][]Source{
		`scheduler "b" is nil`:                 {Scheduler("b", nil, nil)},
		`have the name "b"`:                    {Wheel("b", tw, nil), Scheduler("b", s, nil)},
		`recorder of "b" also belongs`:         {Scheduler("a", s, wired), Scheduler("b", s, wired)},
		`no scheduler has the recorder of "a"`: {Scheduler("a", s, rec)},
	} {
		func() {
			defer func() {
				if value := fmt.Sprint(recover()); !strings.Contains(value, says) {
					t.Errorf("Handler panicked with %s, want %s", value, says)
				}
			}()
			Handler(sources)
		}()
	}
}

func TestPayload(t *testing.T) {
	for _, c := range []struct {
		payload    string
		form, text string
		cut        bool
	}{
		{"", "text", "", false},
		{"hello\n\twörld", "text", "hello\n\twörld", false},
		{`{"a":[1,2]}`, "json", "{\n  \"a\": [\n    1,\n    2\n  ]\n}", false},
		{"12", "text", "12", false},
		{`{"a":`, "text", `{"a":`, false},
		{"\x00\x01ab\xff", "hex", "00 01 61 62 ff\n", false},
		{"\x1b[31m", "hex", "1b 5b 33 31 6d\n", false},
		{strings.Repeat("ü", 3000), "text", strings.Repeat("ü", 2048) + "…", true},
		{strings.Repeat("\x00", 1360), "hex", strings.Repeat(strings.Repeat("00 ", 15)+"00\n", 85), false},
		{strings.Repeat("\x00", 1361), "hex", strings.Repeat(strings.Repeat("00 ", 15)+"00\n", 85), true},
	} {
		got := newPayloadJSON([]byte(c.payload))
		if want := (payloadJSON{Size: len(c.payload), Form: c.form, Text: c.text, Cut: c.cut}); got != want {
			t.Errorf("%.20q is %+v, want %+v", c.payload, got, want)
		}
		if len(got.Text) > maxPayload+len("…") {
			t.Errorf("of %.20q %d bytes are shown", c.payload, len(got.Text))
		}
	}
}

// A wholeEngine is an engine of one process with everything that it offers.
type wholeEngine interface {
	engine.Owned
	engine.Waker
	engine.Starter
	engine.Counter
	Len() int
}

// A countedEngine counts the tasks that are read.
type countedEngine struct {
	wholeEngine
	read atomic.Int64
}

func (c *countedEngine) Get(ctx context.Context, keys ...string) ([]engine.Stored, error) {
	found, err := c.wholeEngine.Get(ctx, keys...)
	c.read.Add(int64(len(found)))
	return found, err
}

func (c *countedEngine) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) {
		for s, err := range c.wholeEngine.Walk(ctx, over) {
			if over.Order != engine.Notes {
				c.read.Add(1)
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// An open page reads no tasks from the engine, however many there are.
func TestBoard_openPage_readsNoTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counted := &countedEngine{wholeEngine: memory.New().Engine().(wholeEngine)}
		s := newScheduler(t, counted)
		put(t, s, many(1000, "later", "ok", 10*time.Hour)...)
		put(t, s, many(1000, "bad", "bad", time.Second)...)
		h := Handler([]Source{Scheduler("tasks", s, nil)})
		time.Sleep(time.Minute) // until all failing tasks are parked
		before := counted.read.Load()
		for range 600 {
			time.Sleep(time.Second)
			if got := stateOf(t, h); got.Stats.Pending != 2000 || got.Stats.Parked != 1000 {
				t.Fatalf("the accounts are %+v", got.Stats)
			}
		}
		if n := counted.read.Load() - before; n > 0 {
			t.Errorf("in ten minutes %d tasks were read", n)
		}
	})
}

// An engine hangs for seconds and answers again: within three seconds the page is right again. Killed nodes and parked
// tasks are reported within three seconds as usual. A node that leaves is not a finding.
func TestScheduler_engineHangs_thePageIsRightSoonAfter(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for _, hang := range []time.Duration{s, 3 * s, 5 * s, 8 * s, 12 * s, 30 * s} {
		for _, open := range []bool{true, false} { // while a page is open the state is read every second
			synctest.Test(t, func(t *testing.T) {
				engine := memory.New().Shared()
				var links []*enginetest.Link
				var nodes []*durable.Scheduler
				for i := range 4 {
					links = append(links, enginetest.NewLink(engine))
					n, err := durable.New(t.Context(), links[i], durable.WithLogger(testkit.Quiet()), durable.WithNodeName(fmt.Sprint("node ", i)),
						durable.WithLease(4*s))
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = n.Shutdown(context.Background()) })
					if i < 3 { // the last one answers questions, and its work does not affect the others
						serveKinds(t, n)
					}
					nodes = append(nodes, n)
				}
				h := Handler([]Source{Scheduler("tasks", nodes[0], nil)})
				var state schedulerJSON
				watch := func(d time.Duration) {
					for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(min(s, time.Until(end))) {
						if open {
							state = stateOf(t, h)
						}
					}
					synctest.Wait()
					state = stateOf(t, h)
				}
				slow := func(method string) enginetest.Fault { // as with many tasks
					return enginetest.Fault{Delay: map[string]time.Duration{"Count": 15 * ms, "Walk ByDue": 15 * ms, "Renew 0": 10 * ms}[method]}
				}
				for _, l := range links {
					l.SetFaults(slow)
				}
				put(t, nodes[0], many(3, "ok", "ok", time.Hour)...)
				watch(30 * s)
				if !state.Health.Well || state.Stats.Pending != 3 || len(state.Nodes) != 4 {
					t.Fatalf("at first it is %+v", state)
				}

				back := time.Now().Add(hang)
				for _, l := range links {
					l.SetFaults(func(string) enginetest.Fault { return enginetest.Fault{Delay: time.Until(back)} })
				}
				watch(hang)
				for _, l := range links {
					l.SetFaults(slow)
				}
				put(t, nodes[0], many(30, "new", "ok", time.Hour)...)
				watch(3 * s)
				for _, f := range state.Health.Findings { // a node that was taken over may be reported as back
					if f.Kind != health.NodeLost {
						t.Errorf("3 s after %v: %+v", hang, f)
					}
				}
				if state.Stats.Pending != 33 || !state.Counts.Whole || time.Since(*state.Counts.At) > 3*s || time.Since(*state.Read.Nodes) > 3*s ||
					time.Since(*state.Read.CatchUp) > 3*s || time.Since(*state.Read.Paused) > 3*s {
					t.Errorf("3 s after %v the counts are %+v, %+v, read at %+v, and it is %v", hang, state.Stats, state.Counts, state.Read, time.Now())
				}
				watch(10 * s)
				if !state.Health.Well {
					t.Errorf("13 s after %v it is %+v", hang, state.Health)
				}

				links[1].SetDown(true)
				put(t, nodes[0], many(30, "bad", "bad", 0)...) // each is parked by its second attempt, after a second
				if err := nodes[2].Shutdown(t.Context()); err != nil {
					t.Fatal(err)
				}
				watch(3 * s)
				if k := said(state.Health); !slices.Contains(k, health.NodeLate) || !slices.Contains(k, health.Parked) || state.Stats.Parked == 0 ||
					slices.Contains(k, health.NodeLost) {
					t.Errorf("3 s after it is %+v, with %+v", state.Health, state.Stats)
				}
				for range 3 {
					watch(5 * s)
					if state.Stats.Parked != 30 {
						t.Errorf("%d are parked", state.Stats.Parked)
					}
					lost := 0
					for _, f := range state.Health.Findings {
						if f.Kind == health.NodeLost && strings.HasPrefix(f.Text, "Node node 1 was lost") {
							lost++
						} else if f.Kind == health.NodeLost {
							t.Errorf("of a node that has left it says: %s", f.Text)
						}
					}
					if lost != 1 || len(state.Nodes) != 2 {
						t.Errorf("the lost node is reported %d times: %+v", lost, state.Health)
					}
				}
			})
		}
	}
}

// A fullKV has a disk.
type fullKV struct {
	*memory.KV
	free atomic.Int64 // of 1 GB
}

func (*fullKV) Exclusive() {}

func (f *fullKV) Space() (free, size int64) { return f.free.Load(), 1e9 }

// A working store reports that its disk is nearly full.
func TestScheduler_diskNearlyFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := &fullKV{KV: memory.New()}
		full.free.Store(2e8)
		h := Handler([]Source{Scheduler("tasks", newScheduler(t, engineOn(t, full)), nil)})
		time.Sleep(10 * time.Second)
		if got := stateOf(t, h).Health; !got.Well || len(got.Notes) > 0 {
			t.Errorf("with room it is %+v", got)
		}
		full.free.Store(4e7)
		time.Sleep(3 * time.Second)
		if got := stateOf(t, h).Health; !got.Well || len(got.Notes) != 1 || got.Notes[0].Kind != health.DiskLow ||
			got.Notes[0].Text != "The disk of the store is nearly full: 40.0 MB of 1.0 GB are free" {
			t.Errorf("without room it is %+v", got)
		}
	})
}

// A person cancels runs that hang: that does not count as a failure of their kind.
func TestScheduler_cancelledRuns_areNoFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := NewAttemptRecorder()
		s := newScheduler(t, memory.New().Engine(), rec.Option())
		hangs := func(ctx context.Context, _ durable.Run) error { <-ctx.Done(); return ctx.Err() }
		if err := s.Handle("hangs", hangs, durable.WithRetry(2, time.Hour, time.Hour)); err != nil {
			t.Fatal(err)
		}
		h := Handler([]Source{Scheduler("tasks", s, rec)})
		put(t, s, many(10, "k", "hangs", time.Second)...)
		time.Sleep(10 * time.Second)
		for i := range 10 {
			if ran, err := s.Cancel(t.Context(), fmt.Sprintf("k-%03d", i)); !ran || err != nil {
				t.Fatal(ran, err)
			}
		}
		time.Sleep(3 * time.Second)
		got := stateOf(t, h)
		if here := got.Kinds[1].Here; !got.Health.Well || here.Failed != 0 || here.Cancelled != 10 || *here.FailedRate != 0 || here.Failure != "" {
			t.Errorf("the health is %+v, and the kind %+v", got.Health, here)
		}
		put(t, s, many(10, "bad", "bad", 0)...)
		time.Sleep(3 * time.Second)
		if k := said(stateOf(t, h).Health); len(k) != 2 || k[0] != health.Failing || k[1] != health.Parked {
			t.Errorf("of failing tasks it says %v", k)
		}
		if n, err := s.Bulk(t.Context(), durable.Query{Kind: "bad"}, durable.DoRemove); n != 10 || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(2 * time.Second)
		if got := stateOf(t, h).Health; !got.Well {
			t.Errorf("when these are gone it says %+v", got)
		}
	})
}

// A hungScheduler answers nothing until a given time, and then answers the earlier requests. Its answer about the nodes
// always takes a while.
type hungScheduler struct {
	*durable.Scheduler
	until time.Time
}

func (s *hungScheduler) Get(ctx context.Context, key string) (durable.Info, bool, error) {
	time.Sleep(time.Until(s.until))
	return s.Scheduler.Get(ctx, key)
}

func (s *hungScheduler) Nodes(context.Context) ([]durable.NodeInfo, error) {
	nodes := []durable.NodeInfo{{Name: "a", ID: 1, Lease: 5 * time.Second, Left: 5*time.Second - max(time.Until(s.until), 0)}}
	time.Sleep(max(time.Until(s.until), 200*time.Millisecond))
	return nodes, nil
}

// Requests made while the engine hung are discarded, and repeated as soon as it answers.
func TestBoard_afterAnOutage_asksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hungScheduler{Scheduler: newScheduler(t, memory.New().Engine())}
		b := newBoard("tasks", s, nil)
		time.Sleep(time.Minute)
		if got := b.state(-1); len(got.Nodes) != 1 || got.Nodes[0].Left == nil || got.Nodes[0].Late || time.Since(*got.Read.Nodes) > 16*time.Second {
			t.Errorf("before that the nodes are %+v, read at %v", got.Nodes, got.Read.Nodes)
		}
		s.until = time.Now().Add(9 * time.Second)
		for time.Now().Before(s.until) {
			time.Sleep(time.Second)
			if got := b.state(-1); time.Now().Before(s.until) && (said(got.Health)[0] != health.Unread || got.Nodes[0].Left != nil) {
				t.Errorf("meanwhile it is %+v, %+v", got.Health, got.Nodes)
			}
		}
		time.Sleep(2 * time.Second)
		got := b.state(-1)
		if !got.Health.Well || got.Read.Nodes.Before(s.until) || got.Nodes[0].Left == nil || *got.Nodes[0].Left != 5 {
			t.Errorf("afterwards it is %+v, with %+v, read at %v", got.Health, got.Nodes, got.Read.Nodes)
		}
		time.Sleep(questionTime)
	})
}

// A slowFind takes 150 ms per page, like a search that finds nothing among many tasks.
type slowFind struct {
	*fakeScheduler
	finds, failures int
}

func (f *slowFind) Find(ctx context.Context, q durable.Query) (durable.Found, error) {
	if q.Kind == "looked for" {
		f.finds++
		time.Sleep(150 * time.Millisecond)
	}
	return durable.Found{}, ctx.Err()
}

func (f *slowFind) Failures(ctx context.Context) (durable.Failures, error) {
	f.failures++
	time.Sleep(150 * time.Millisecond)
	return durable.Failures{}, ctx.Err()
}

// A client that has disconnected is not served, and the next one does not wait for it.
func TestHandler_searchesOfClientsThatHaveGone_delayNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &slowFind{fakeScheduler: &fakeScheduler{Scheduler: newScheduler(t, memory.New().Engine())}}
		f.census = func() durable.Counts { return durable.Counts{} }
		b := newBoard("tasks", f, nil)
		tw, _ := newWheel(t, 60)
		h := Handler([]Source{{name: "tasks", kind: "scheduler", open: func() shown { return b }}, Wheel("wheel", tw, nil)})
		for _, target := range []string{
			"/api/tasks?scheduler=tasks&kind=looked+for", "/api/failures?scheduler=tasks", "/api/search?wheel=wheel&prefix=k",
		} {
			f.finds, f.failures = 0, 0
			get := func(ctx context.Context) *httptest.ResponseRecorder {
				r := httptest.NewRequest("GET", target, nil).WithContext(ctx)
				r.Host = "localhost"
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w
			}
			gone, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() { get(gone) })
			}
			time.Sleep(time.Millisecond)
			cancel()
			began := time.Now()
			if w := get(t.Context()); w.Code != 200 || time.Since(began) > 310*time.Millisecond {
				t.Errorf("%s: status %d after %v", target, w.Code, time.Since(began))
			}
			all.Wait()
			if f.finds+f.failures > 2 {
				t.Errorf("%s: %d were served", target, f.finds+f.failures)
			}
			if w := get(gone); w.Code == 200 {
				t.Errorf("%s: a client that has gone is served", target)
			}
		}
	})
}

// The history of a kind or a task is a page of attempts, also when the task is gone.
func TestScheduler_pastAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine(), durable.WithNodeName("shop-1"))
		err := s.Handle("kept", func(_ context.Context, run durable.Run) error {
			if run.Key == "kept-003" {
				return durable.Park(errRefused)
			}
			run.Complete("nothing to do")
			return nil
		}, durable.WithHistory(100, time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		h := Handler([]Source{Scheduler("tasks", s, nil)})
		for i, task := range many(25, "kept", "kept", time.Second) {
			task.Delay += time.Duration(i) * time.Second
			put(t, s, task)
		}
		put(t, s, many(1, "ok", "ok", time.Second)...)
		time.Sleep(40 * time.Second) // the last attempt is written five seconds after its end
		page := func(q string) historyJSON {
			t.Helper()
			return answer[historyJSON](t, ask(h, "GET", "/api/history?scheduler=tasks"+q, nil), 200)
		}
		got := page("&kind=kept")
		if len(got.Past) != 20 || got.Next == "" || got.Past[0].Key != "kept-024" || got.Now.IsZero() {
			t.Fatalf("the first page is %+v", got)
		}
		rest := page("&kind=kept&after=" + got.Next)
		if len(rest.Past) != 5 || rest.Next != "" || rest.Past[0].Key != "kept-004" {
			t.Errorf("the second page is %+v", rest)
		}
		one := page("&key=kept-003").Past
		if len(one) != 1 || one[0].Outcome != "parked" || one[0].Text != errRefused.Error() || one[0].Attempt != 1 || one[0].Kind != "kept" ||
			one[0].Node != "shop-1" || !strings.HasSuffix(one[0].Token, ".0.kept-003") || one[0].Late < 0 || one[0].Late > 1 || one[0].Took < 0 {
			t.Errorf("the history of a task is %+v", one)
		}
		if gone := page("&key=kept-002").Past; len(gone) != 1 || gone[0].Outcome != "succeeded" || gone[0].Text != "nothing to do" {
			t.Errorf("the history of a task that is gone is %+v", gone)
		}
		for q, want := range map[string]int{
			"&outcome=parked": 1, "&outcome=parked,succeeded&limit=100": 25, "&prefix=kept-00&limit=3": 3, "&prefix=kept-02&limit=100": 5,
			"&node=shop-2": 0, "&group=g": 0, "&before=2000-01-01T00:00:00Z": 0,
			"&from=2000-01-01T00:00:00Z&limit=100": 25, "&from=2200-01-01T00:00:00Z": 0,
		} {
			if got := page(q).Past; len(got) != want {
				t.Errorf("%s: %d attempts, want %d", q, len(got), want)
			}
		}
		if none := page("&kind=ok").Past; none == nil || len(none) > 0 {
			t.Errorf("the history of a kind that has none is %+v", none)
		}
		for _, q := range []string{"&outcome=fine", "&after=yesterday", "&before=yesterday", "&from=yesterday", "&limit=0", "&key=", "&id=%21"} {
			if w := ask(h, "GET", "/api/history?scheduler=tasks"+q, nil); w.Code != 400 {
				t.Errorf("%s: status %d", q, w.Code)
			}
		}
	})
}
