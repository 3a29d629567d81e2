// SPDX-License-Identifier: MIT

package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/internal/health"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The server refuses forbidden requests, which change nothing: control, payloads, a foreign Origin and Host. The audit
// also contains refused requests, with the user.
func TestScheduler_refusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		put(t, s, durable.Task{Key: "k", Kind: "ok", Delay: time.Hour, Payload: []byte("secret")})
		tw, rec := newWheel(t, 60)
		add(t, tw, "k", time.Hour)
		var audit []AuditEntry
		sunday := errors.New("it is Sunday")
		onSundays := func(r *http.Request) error {
			if r.Header.Get("User") == "" {
				return sunday
			}
			return nil
		}
		sources := func() []Source { return []Source{Scheduler("tasks", s, nil), Wheel("wheel", tw, rec)} }
		closed := Handler(sources())
		open := Handler(sources(), AllowControl(onSundays), AllowPayloads(onSundays), WithAudit(
			func(r *http.Request) string { return r.Header.Get("User") }, func(e AuditEntry) { audit = append(audit, e) }))
		key := url.Values{"scheduler": {"tasks"}, "key": {"k"}, "delay": {"1s"}}
		posts := map[string]url.Values{
			"/api/remove": key, "/api/run": key, "/api/reschedule": key, "/api/pause": key, "/api/resume": key, "/api/cancel": key,
			"/api/bulk":      {"scheduler": {"tasks"}, "do": {"remove"}},
			"/api/pause-all": {"scheduler": {"tasks"}}, "/api/resume-all": {"scheduler": {"tasks"}},
			"/api/pause-kind":  {"scheduler": {"tasks"}, "kind": {"ok"}},
			"/api/resume-kind": {"scheduler": {"tasks"}, "kind": {"bad"}},
			"/api/drain-node":  {"scheduler": {"tasks"}, "node": {"web-1"}}, "/api/undrain-node": {"scheduler": {"tasks"}, "node": {"web-1"}},
			"/api/tune-limits": {"scheduler": {"tasks"}, "kind": {"ok"}}, "/api/tune-pool": {"scheduler": {"tasks"}, "n": {"1"}}, "/api/tune-catchup": {"scheduler": {"tasks"}, "n": {"1"}},
		}
		if err := s.PauseKind(t.Context(), "bad"); err != nil {
			t.Fatal(err)
		}
		for target, form := range posts {
			answer[errorJSON](t, ask(closed, "POST", target, form), 403)
			if e := answer[errorJSON](t, ask(open, "POST", target, form), 403); e.Error != "it is Sunday" {
				t.Errorf("%s is refused with %s", target, e.Error)
			}
			answer[errorJSON](t, ask(open, "POST", target, form, "User", "ann", "Origin", "https://evil.test"), 403)
			answer[errorJSON](t, ask(open, "POST", "http://evil.test"+target, form, "User", "ann"), 403)
			answer[errorJSON](t, ask(open, "GET", target, nil, "User", "ann"), 405)
		}
		answer[errorJSON](t, ask(open, "GET", "http://evil.test/api/tasks", nil), 403)
		if n := s.Len(); n != 1 {
			t.Errorf("%d tasks are left", n)
		}
		if i, _, _ := s.Get(t.Context(), "k"); i.State != durable.Scheduled || i.Seq != 0 {
			t.Errorf("the task was changed: %+v", i)
		}
		if p, err := s.Paused(t.Context()); err != nil || p.All || len(p.Kinds) != 1 || p.Kinds[0] != "bad" {
			t.Errorf("paused are %+v, %v", p, err)
		}
		if len(audit) != 32 {
			t.Errorf("the audit has %d entries: %+v", len(audit), audit)
		}
		for _, e := range audit {
			if kinds := strings.Contains(e.Action, "-"); e.Err == nil || e.Tasks != 0 || e.Source != "tasks" || e.Time.IsZero() ||
				!kinds && (e.Key == "k") == (e.Query != nil) || kinds && (e.Kind == "") == strings.HasSuffix(e.Action, "-kind") {
				t.Errorf("the audit has %+v", e)
			}
		}

		audit = nil
		for _, c := range []struct {
			h      http.Handler
			user   []string
			hidden string
		}{
			{closed, nil, "payloads are not shown on this dashboard"}, {open, nil, "it is Sunday"}, {open, []string{"User", "ann"}, ""},
		} {
			a := answer[aboutStoredJSON](t, ask(c.h, "GET", "/api/task?scheduler=tasks&key=k", nil, c.user...), 200)
			if a.Payload.Size != 6 || a.Payload.Hidden != c.hidden || (a.Payload.Text == "secret") != (c.hidden == "") {
				t.Errorf("the payload is %+v", a.Payload)
			}
		}

		// Every action is recorded, including actions on a wheel.
		for _, c := range []struct {
			target string
			form   url.Values
			status int
			want   AuditEntry
		}{
			{"/api/reschedule", url.Values{"scheduler": {"tasks"}, "key": {"k"}, "delay": {"2h"}}, 200, AuditEntry{Action: "reschedule", Key: "k", Tasks: 1, Source: "tasks"}},
			{"/api/remove", url.Values{"scheduler": {"tasks"}, "key": {"none"}}, 404, AuditEntry{Action: "remove", Key: "none", Source: "tasks", Err: durable.ErrTaskKeyNotFound}},
			{"/api/pause", url.Values{"wheel": {"wheel"}, "key": {"k"}}, 200, AuditEntry{Action: "pause", Key: "k", Tasks: 1, Source: "wheel"}},
			{"/api/resume", url.Values{"wheel": {"wheel"}, "key": {"k"}}, 200, AuditEntry{Action: "resume", Key: "k", Tasks: 1, Source: "wheel"}},
			{"/api/run", url.Values{"wheel": {"wheel"}, "key": {"k"}}, 200, AuditEntry{Action: "run", Key: "k", Tasks: 1, Source: "wheel"}},
			{"/api/pause", url.Values{"scheduler": {"tasks"}, "key": {"k"}}, 200, AuditEntry{Action: "pause", Key: "k", Tasks: 1, Source: "tasks"}},
			{"/api/resume", url.Values{"scheduler": {"tasks"}, "key": {"none"}}, 404, AuditEntry{Action: "resume", Key: "none", Source: "tasks", Err: durable.ErrTaskKeyNotFound}},
			{"/api/remove", url.Values{"scheduler": {"tasks"}, "key": {"k"}}, 200, AuditEntry{Action: "remove", Key: "k", Tasks: 1, Source: "tasks"}},
		} {
			audit = nil
			if w := ask(open, "POST", c.target, c.form, "User", "ann"); w.Code != c.status {
				t.Errorf("%s %v: %d, %s", c.target, c.form, w.Code, w.Body)
			}
			if len(audit) != 1 || audit[0].Who != "ann" || audit[0].Action != c.want.Action || audit[0].Key != c.want.Key ||
				audit[0].Tasks != c.want.Tasks || audit[0].Source != c.want.Source || !errors.Is(audit[0].Err, c.want.Err) {
				t.Errorf("%s: the audit has %+v", c.target, audit)
			}
		}
		time.Sleep(2 * linger)
	})
}

// Many tasks: first a count, which changes nothing, then the action, in parts.
func TestScheduler_bulk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		var audit []AuditEntry
		h := Handler([]Source{Scheduler("tasks", s, nil)}, AllowControl(func(*http.Request) error { return nil }),
			WithAudit(nil, func(e AuditEntry) { audit = append(audit, e) }))
		put(t, s, many(30, "bad", "bad", time.Second)...)
		put(t, s, many(10, "ok", "ok", time.Hour)...)
		put(t, s, durable.Task{Key: "of a group", Kind: "bad", Group: "acme", Delay: time.Hour})
		time.Sleep(4 * time.Second)
		bulk := func(do, query string, status int) *bulkJSON {
			t.Helper()
			form, err := url.ParseQuery(query)
			if err != nil {
				t.Fatal(err)
			}
			form.Set("do", do)
			w := ask(h, "POST", "/api/bulk", form)
			if status != 200 {
				answer[errorJSON](t, w, status)
				return nil
			}
			got := answer[bulkJSON](t, w, 200)
			return &got
		}
		if got := bulk("count", "state=parked&prefix=bad-00", 200); got.Tasks != 10 || got.More || len(audit) != 0 {
			t.Errorf("the count is %+v", got)
		}
		if got := bulk("run", "state=parked&prefix=bad-00", 200); got.Tasks != 10 || got.More {
			t.Errorf("it was done to %+v", got)
		}
		if len(audit) != 1 || audit[0].Action != "run" || audit[0].Tasks != 10 || audit[0].Query == nil || audit[0].Query.Prefix != "bad-00" || audit[0].Err != nil {
			t.Errorf("the audit has %+v", audit)
		}
		synctest.Wait()
		if got := answer[listJSON](t, ask(h, "GET", "/api/tasks?state=parked", nil), 200); len(got.Tasks) != 20 {
			t.Errorf("%d tasks are parked", len(got.Tasks))
		}
		if got := bulk("remove", "kind=bad&state=parked", 200); got.Tasks != 20 {
			t.Errorf("it was done to %+v", got)
		}
		for _, c := range []struct {
			do, query string
			tasks     int
		}{
			{"pause", "prefix=ok-00", 10}, {"pause", "kind=ok", 0}, {"count", "state=paused", 10}, {"resume", "kind=ok", 10}, {"resume", "state=paused", 0},
			{"pause", "group=acme", 1}, {"count", "group=acme&state=paused", 1}, {"remove", "group=acm", 0}, {"remove", "group=acme", 1},
		} {
			audit = nil
			if got := bulk(c.do, c.query, 200); got.Tasks != c.tasks || got.More {
				t.Errorf("%s %s: %+v", c.do, c.query, got)
			}
			if c.do != "count" && (len(audit) != 1 || audit[0].Action != c.do || audit[0].Tasks != c.tasks) {
				t.Errorf("%s: the audit has %+v", c.do, audit)
			}
		}
		for _, wrong := range []string{"", "state=waiting", "state=running", "kind=ok"} {
			bulk("run", wrong, 400)
		}
		bulk("cancel", "state=parked", 400)
		bulk("unpark", "state=parked", 400)
		bulk("count", "state=gone", 400)
	})
}

// One request cancels all runs, and waits for the answers of the nodes like a request for one key.
func TestScheduler_bulkCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		hangs := func(ctx context.Context, _ durable.Run) error { <-ctx.Done(); return durable.Park(ctx.Err()) }
		if err := s.Handle("hangs", hangs); err != nil {
			t.Fatal(err)
		}
		var audit []AuditEntry
		f := &slowBulk{fakeScheduler: &fakeScheduler{Scheduler: s, census: func() durable.Counts { return durable.Counts{} }}}
		b := newBoard("tasks", s, nil)
		h := Handler([]Source{{name: "tasks", kind: "scheduler", open: func() shown { return b }}},
			AllowControl(func(r *http.Request) error {
				if r.Header.Get("User") != "ann" {
					return errors.New("only ann may")
				}
				return nil
			}), WithAudit(nil, func(e AuditEntry) { audit = append(audit, e) }))
		put(t, s, many(3, "hangs", "hangs", time.Second)...)
		put(t, s, many(2, "ok", "ok", time.Hour)...)
		time.Sleep(2 * time.Second)
		form := url.Values{"do": {"cancel"}, "kind": {"hangs"}, "state": {"running"}}
		answer[errorJSON](t, ask(h, "POST", "/api/bulk", form), 403)
		if len(audit) != 1 || audit[0].Err == nil || audit[0].Action != "cancel" {
			t.Errorf("the audit has %+v", audit)
		}
		audit = nil
		got := answer[bulkJSON](t, ask(h, "POST", "/api/bulk", form, "User", "ann"), 200)
		if got != (bulkJSON{Tasks: 3}) || len(audit) != 1 || audit[0].Tasks != 3 || audit[0].Query.Kind != "hangs" {
			t.Errorf("it was done to %+v, and the audit has %+v", got, audit)
		}
		time.Sleep(time.Second)
		if got := answer[listJSON](t, ask(h, "GET", "/api/tasks?state=parked", nil), 200); len(got.Tasks) != 3 {
			t.Errorf("%d tasks are parked", len(got.Tasks))
		}
		if err := s.PauseKind(t.Context(), "ok"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lookEvery)
		about := make(map[health.Kind]string) // so the page offers actions on the kind
		for _, f := range append(b.state(-1).Health.Findings, b.state(-1).Health.Notes...) {
			about[f.Kind] = f.About
		}
		if about[health.Parked] != "hangs" || about[health.Paused] != "ok" {
			t.Errorf("the findings are about %v", about)
		}
		f.hanging = true
		slow := newBoard("tasks", f, nil)
		began := time.Now()
		if done, err := slow.bulk(t.Context(), durable.Query{}, durable.DoCancel); err == nil || done.More ||
			time.Since(began) != listTime {
			t.Errorf("without an answer it returns %+v, %v after %v", done, err, time.Since(began))
		}
	})
}

// A slowBulk takes 100 ms per task, and so needs several requests. One task in thirty matches. A hanging slowBulk
// answers when the time is up.
type slowBulk struct {
	*fakeScheduler
	tasks   int
	hanging bool
}

func (f *slowBulk) BulkStep(ctx context.Context, q durable.Query, _ durable.Action,
) (n int, next string, err error) {
	if f.hanging {
		<-ctx.Done()
		return 0, "", ctx.Err()
	}
	began := time.Now()
	at, _ := strconv.Atoi(q.After)
	for ; at < f.tasks; at++ {
		if time.Since(began) >= q.For {
			return n, strconv.Itoa(at), ctx.Err()
		}
		if time.Sleep(100 * time.Millisecond); at%30 == 29 {
			n++
		}
	}
	return n, "", ctx.Err()
}

// However long a request takes, and however little it finds, the next one continues at its position.
func TestBoard_bulkThatTakesLong_isInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &slowBulk{fakeScheduler: &fakeScheduler{Scheduler: newScheduler(t, memory.New().Engine())}, tasks: 90}
		f.census = func() durable.Counts { return durable.Counts{} }
		b := newBoard("tasks", f, nil)
		h := Handler([]Source{{name: "tasks", kind: "scheduler", open: func() shown { return b }}},
			AllowControl(func(*http.Request) error { return nil }))
		total, parts := 0, 0
		form := url.Values{"do": {"remove"}}
		for more := true; more; parts++ {
			began := time.Now()
			got := answer[bulkJSON](t, ask(h, "POST", "/api/bulk", form), 200)
			if took := time.Since(began); took > bulkTime || got.More != (got.Next != "") {
				t.Fatalf("after %v there is %+v", took, got)
			}
			total, more = total+got.Tasks, got.More
			form.Set("after", got.Next)
			f.hanging = parts == 4
			if f.hanging {
				again := answer[bulkJSON](t, ask(h, "POST", "/api/bulk", form), 200)
				if again != (bulkJSON{0, true, got.Next}) {
					t.Errorf("when the scheduler does not answer there is %+v after %+v", again, got)
				}
			}
			f.hanging = false
		}
		if total != 3 || parts != 9 {
			t.Errorf("it was done to %d tasks in %d parts", total, parts)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		f.hanging = true
		if done, err := b.bulk(gone, durable.Query{}, durable.DoRemove); err == nil || done.More {
			t.Errorf("without a reader it returns %v, %v", done, err)
		}
	})
}

// An engine that does not answer delays only its own line of the overview.
func TestHandler_overview_isReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		var sources []Source
		for _, name := range []string{"a", "b", "c"} {
			f := &fakeScheduler{Scheduler: newScheduler(t, memory.New().Engine())}
			f.census = func() durable.Counts {
				asked.Add(1)
				time.Sleep(5 * time.Second)
				return durable.Counts{}
			}
			sources = append(sources, Source{name: name, kind: "scheduler", open: func() shown { return newBoard(name, f, nil) }})
		}
		h := Handler(sources)
		began := time.Now()
		got := answer[sourcesJSON](t, ask(h, "GET", "/api/sources", nil), 200)
		if took := time.Since(began); took > readPatience || len(got.Sources) != 3 || asked.Load() != 3 {
			t.Errorf("the overview took %v and has %+v", took, got.Sources)
		}
		for i, s := range got.Sources {
			if s.Kind != "scheduler" || s.Name != string(rune('a'+i)) || s.Health.Well || s.Health.Text != "The tasks are being counted" {
				t.Errorf("a source is %+v", s)
			}
		}
		time.Sleep(10 * time.Second)
	})
}

// A task of a scheduler or a wheel is paused and resumed by its key, and its page shows it.
func TestControl_pausesAndResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		put(t, s, durable.Task{Key: "k", Kind: "ok", Delay: time.Hour})
		tw, _ := newWheel(t, 60)
		add(t, tw, "k", time.Hour)
		h := Handler([]Source{Scheduler("tasks", s, nil), Wheel("wheel", tw, nil)},
			AllowControl(func(*http.Request) error { return nil }))
		for _, c := range []struct {
			target, state string
			paused        bool
		}{{"/api/pause", "paused", true}, {"/api/pause", "paused", true}, {"/api/resume", "scheduled", false}} {
			for _, source := range []string{"scheduler=tasks", "wheel=wheel"} {
				form, _ := url.ParseQuery(source + "&key=k")
				answer[struct{}](t, ask(h, "POST", c.target, form), 200)
			}
			time.Sleep(time.Second) // the state is read again after a while
			stored := answer[aboutStoredJSON](t, ask(h, "GET", "/api/task?scheduler=tasks&key=k", nil), 200)
			if stored.Task.State != c.state || (stored.Task.Next == nil) != c.paused {
				t.Errorf("%s: the task of the scheduler is %+v", c.target, stored.Task)
			}
			about := answer[aboutJSON](t, ask(h, "GET", "/api/task?wheel=wheel&key=k", nil), 200)
			stats := answer[stateJSON](t, ask(h, "GET", "/api/wheel?wheel=wheel", nil), 200).Stats
			if about.Task.Paused != c.paused || (stats.Paused == 1) != c.paused {
				t.Errorf("%s: the task of the wheel is %+v, of %+v", c.target, about.Task, stats)
			}
		}
		time.Sleep(2 * linger)
	})
}

// A run is cancelled, and the audit records it; a waiting task has no run.
func TestControl_cancelsARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		cancelled := make(chan error, 1)
		long := func(ctx context.Context, run durable.Run) error {
			<-ctx.Done()
			cancelled <- context.Cause(ctx)
			run.Complete("cancelled")
			return nil
		}
		if err := s.Handle("long", long); err != nil {
			t.Fatal(err)
		}
		put(t, s, durable.Task{Key: "k", Kind: "long", Delay: time.Second}, durable.Task{Key: "later", Kind: "long", Delay: time.Hour})
		time.Sleep(2 * time.Second)
		var audit []AuditEntry
		h := Handler([]Source{Scheduler("tasks", s, nil)}, AllowControl(func(*http.Request) error { return nil }),
			WithAudit(nil, func(e AuditEntry) { audit = append(audit, e) }))
		answer[struct{}](t, ask(h, "POST", "/api/cancel", url.Values{"scheduler": {"tasks"}, "key": {"k"}}), 200)
		if cause := <-cancelled; !errors.Is(cause, durable.ErrCancelled) {
			t.Errorf("the cause is %v", cause)
		}
		e := answer[errorJSON](t, ask(h, "POST", "/api/cancel", url.Values{"scheduler": {"tasks"}, "key": {"later"}}), 409)
		if e.Error != "no run of it is in progress" {
			t.Errorf("of a task that waits: %s", e.Error)
		}
		if len(audit) != 2 || audit[0].Action != "cancel" || audit[0].Key != "k" || audit[0].Tasks != 1 || audit[0].Err != nil ||
			audit[1].Key != "later" || audit[1].Tasks != 0 || audit[1].Err == nil {
			t.Errorf("the audit has %+v", audit)
		}
		time.Sleep(2 * linger)
	})
}

// Kinds are paused and resumed, one or all. The page says so without an alarm, and shows how many tasks wait.
func TestControl_pausesKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		var audit []AuditEntry
		h := Handler([]Source{Scheduler("tasks", s, nil)}, AllowControl(func(*http.Request) error { return nil }),
			WithAudit(func(*http.Request) string { return "ann" }, func(e AuditEntry) { audit = append(audit, e) }))
		put(t, s, many(30, "ok", "ok", time.Minute)...)
		if err := s.Handle("mail", func(context.Context, durable.Run) error { return nil }); err != nil {
			t.Fatal(err)
		}
		put(t, s, many(2, "mail", "mail", time.Minute)...)
		time.Sleep(5 * time.Second)
		post := func(target string, form url.Values, want AuditEntry) {
			t.Helper()
			audit = nil
			answer[struct{}](t, ask(h, "POST", target, form), 200)
			if len(audit) != 1 || audit[0].Action != want.Action || audit[0].Kind != want.Kind || audit[0].Source != "tasks" || audit[0].Err != nil {
				t.Errorf("%s: the audit has %+v", target, audit)
			}
			time.Sleep(2 * time.Second)
		}
		notes := func(want ...string) {
			t.Helper()
			got := stateOf(t, h).Health
			if !got.Well || !strings.HasPrefix(got.Text, "Working") || len(got.Notes) != len(want) {
				t.Errorf("the health is %+v, want the notes %q", got, want)
				return
			}
			for i, n := range got.Notes {
				if n.Kind != health.Paused || n.Text != want[i] {
					t.Errorf("the note is %+v, want %q", n, want[i])
				}
			}
		}
		paused := func(all bool, kinds ...string) {
			t.Helper()
			state := stateOf(t, h)
			var got []string
			for _, k := range state.Kinds {
				if k.Paused {
					got = append(got, k.Kind)
				}
			}
			if state.Paused != all || !slices.Equal(got, kinds) {
				t.Errorf("all are paused: %v, and by itself %q; want %v, %q", state.Paused, got, all, kinds)
			}
		}
		ok, later := url.Values{"kind": {"ok"}}, url.Values{"kind": {"later"}}
		notes()
		post("/api/pause-kind", ok, AuditEntry{Action: "pause-kind", Kind: "ok"})
		post("/api/pause-kind", later, AuditEntry{Action: "pause-kind", Kind: "later"})
		paused(false, "later", "ok") // even a kind that has neither tasks nor a handler
		notes("Kind later is paused for 2 s by ann", "Kind ok is paused for 4 s by ann")
		post("/api/pause-all", url.Values{"why": {"smtp is down"}}, AuditEntry{Action: "pause-all"})
		time.Sleep(2 * time.Minute)
		paused(true, "later", "ok")
		notes("All kinds are paused for 2 m 2 s by ann (smtp is down): 32 due tasks wait",
			"Kind later is paused for 2 m 4 s by ann", "Kind ok is paused for 2 m 6 s by ann: 30 due tasks wait")
		post("/api/resume-all", url.Values{}, AuditEntry{Action: "resume-all"})
		post("/api/resume-kind", later, AuditEntry{Action: "resume-kind", Kind: "later"})
		paused(false, "ok")
		notes("Kind ok is paused for 2 m 10 s by ann: 30 due tasks wait")
		post("/api/resume-kind", ok, AuditEntry{Action: "resume-kind", Kind: "ok"})
		paused(false)
		notes()
		answer[errorJSON](t, ask(h, "POST", "/api/pause-kind", url.Values{}), 400)
		wrong := url.Values{"scheduler": {"tasks"}, "kind": {strings.Repeat("k", durable.MaxKind+1)}}
		if e := answer[errorJSON](t, ask(h, "POST", "/api/pause-kind", wrong), 400); !strings.Contains(e.Error, "257 bytes") {
			t.Errorf("a kind that is too long is refused with %q", e.Error)
		}
	})
}

// A node that cannot read the pauses starts nothing, so the page notes that everything is paused.
func TestScheduler_pausesOfALaterVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memory.New().Shared()
		s, err := durable.New(t.Context(), e, durable.WithLogger(testkit.Quiet()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Shutdown(context.Background()) }()
		serveKinds(t, s)
		h := Handler([]Source{Scheduler("tasks", s, nil)})
		later := engine.Write{
			Record: engine.Record{Key: "pauses", Data: []byte(`{"version":9}`)}, Note: true, If: engine.IfAbsent,
		}
		if r, err := e.Commit(t.Context(), 0, []engine.Batch{{later}}); err != nil || len(r[0].Unmet) > 0 {
			t.Fatal(r, err)
		}
		time.Sleep(5 * time.Second)
		if got := stateOf(t, h); !got.Paused || len(got.Health.Notes) != 1 || got.Health.Notes[0].Text != "All kinds are paused" {
			t.Errorf("paused is %v, and the health %+v", got.Paused, got.Health)
		}
	})
}

// The page shows the limits of a kind, and how many due runs wait for them. Of a kind whose runs are slow, the scheduler
// holds no more tasks than may run. The note about the backlog counts them all.
func TestScheduler_limits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		wait := make(chan struct{})
		defer close(wait)
		slow := func(context.Context, durable.Run) error { <-wait; return nil }
		if err := s.Handle("slow", slow, durable.WithConcurrency(2), durable.WithClusterRate(100, time.Minute, 5)); err != nil {
			t.Fatal(err)
		}
		put(t, s, many(12, "slow", "slow", time.Second)...)
		h := Handler([]Source{Scheduler("tasks", s, nil)})
		time.Sleep(10 * time.Second)
		state := stateOf(t, h)
		for _, k := range state.Kinds {
			if k.Kind != "slow" {
				if k.Here.Limit != nil || k.Here.Cluster != nil || k.Here.Waiting != 0 {
					t.Errorf("a kind without limits has %+v", k.Here)
				}
				continue
			}
			if k.Here.Limit == nil || *k.Here.Limit != (limitJSON{Concurrency: 2}) || k.Here.Cluster == nil ||
				*k.Here.Cluster != (limitJSON{0, 100, 60, 5}) || k.Here.Waiting != 2 {
				t.Errorf("the kind has the limits %+v, %+v, and %d wait", k.Here.Limit, k.Here.Cluster, k.Here.Waiting)
			}
		}
		if notes := state.Health.Notes; len(notes) != 1 || notes[0].Kind != health.Limited || notes[0].About != "slow" ||
			!strings.HasPrefix(notes[0].Text, "Kind slow: 10 due tasks wait for its limit (100 per minute on all nodes, 2 at once on each node), the oldest due ") {
			t.Errorf("the notes are %+v", notes)
		}
		if !state.Health.Well || len(state.Kinds) != 3 {
			t.Errorf("the health is %+v, of %d kinds", state.Health, len(state.Kinds))
		}
	})
}

// The page of a task shows its group, the note of its last run, its part of the jitter and its deadline.
func TestScheduler_groupNoteShiftAndDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		if err := s.Handle("noted", func(_ context.Context, run durable.Run) error { run.Complete("3 rows"); return nil }); err != nil {
			t.Fatal(err)
		}
		put(t, s, durable.Task{Key: "plain", Kind: "ok", Delay: time.Hour},
			durable.Task{Key: "noted", Kind: "noted", Interval: time.Minute, Times: durable.Forever, Group: "acme"},
			durable.Task{Key: "daily", Kind: "ok", Cron: "@daily", Times: durable.Forever, Jitter: time.Hour},
			durable.Task{Key: "burst", Kind: "ok", Delay: time.Hour, MaxDelay: 3 * time.Hour})
		deadline := time.Now().Add(3 * time.Hour)
		time.Sleep(90 * time.Second)
		h := Handler([]Source{Scheduler("tasks", s, nil)})
		about := func(key string) aboutStoredJSON {
			t.Helper()
			return answer[aboutStoredJSON](t, ask(h, "GET", "/api/task?key="+key, nil), 200)
		}
		if a := about("plain"); a.Group != "" || a.Note != "" || a.Shift != 0 || a.Deadline != nil {
			t.Errorf("a plain task has %+v", a)
		}
		if a := about("noted"); a.Group != "acme" || a.Note != "3 rows" {
			t.Errorf("the group is %q, and the note %q", a.Group, a.Note)
		}
		daily := about("daily")
		next := daily.Task.Next.UTC()
		if want := next.Sub(next.Truncate(24 * time.Hour)).Seconds(); daily.Shift != want || want == 0 || want > 3600 {
			t.Errorf("the shift is %v, of a task that is next due at %v", daily.Shift, next)
		}
		if a := about("burst"); a.Deadline == nil || !a.Deadline.Equal(deadline) {
			t.Errorf("the deadline is %v, want %v", a.Deadline, deadline)
		}
	})
}

// The page of a task shows the trace context of its adder, and the version of its payload.
func TestScheduler_traceAndVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, memory.New().Engine())
		put(t, s, durable.Task{Key: "k", Kind: "ok", Delay: time.Hour, Trace: "00-4bf92f-01\xff", PayloadVersion: 3},
			durable.Task{Key: "plain", Kind: "ok", Delay: time.Hour})
		h := Handler([]Source{Scheduler("tasks", s, nil)})
		for key, want := range map[string]struct {
			trace   string
			version int
		}{"k": {"00-4bf92f-01\uFFFD", 3}, "plain": {"", 1}} {
			a := answer[aboutStoredJSON](t, ask(h, "GET", "/api/task?key="+key, nil), 200)
			if a.Trace != want.trace || a.Payload.Version != want.version {
				t.Errorf("%s has the trace %q and version %d", key, a.Trace, a.Payload.Version)
			}
		}
	})
}
