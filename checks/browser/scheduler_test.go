// SPDX-License-Identifier: MIT

package browser

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// soon is the time within which the page must report an incident.
const soon = 3 * time.Second

var errRefused = errors.New("dial 10.0.0.7:443: connection refused")

// newScheduler returns a scheduler on the engine, with a recorder and without logging, and its source. It is not
// started.
func newScheduler(t *testing.T, on engine.Engine, opts ...durable.Option) (*durable.Scheduler, dashboard.Source) {
	t.Helper()
	rec := dashboard.NewAttemptRecorder()
	s, err := durable.New(t.Context(), on, append([]durable.Option{rec.Option(), durable.WithLogger(testkit.Quiet())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	return s, dashboard.Scheduler("tasks", s, rec)
}

// newNode returns a node of the engine in the same way.
func newNode(t *testing.T, engine engine.Engine, name string) (*durable.Scheduler, dashboard.Source) {
	t.Helper()
	rec := dashboard.NewAttemptRecorder()
	s, err := durable.New(t.Context(), engine, rec.Option(), durable.WithLogger(testkit.Quiet()), durable.WithNodeName(name),
		durable.WithLease(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	return s, dashboard.Scheduler("tasks", s, rec)
}

func works(context.Context, durable.Run) error { return nil }

func fails(context.Context, durable.Run) error { return errRefused }

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// putMany adds n tasks with keys such as order-0001.
func putMany(t *testing.T, s *durable.Scheduler, n int, task durable.Task) {
	t.Helper()
	name := task.Key
	for i := range n {
		task.Key = fmt.Sprintf("%s-%04d", name, i)
		must(t, s.AddTask(t.Context(), task))
	}
}

// says waits until the first finding about the scheduler on the page matches. The data sent to the page must match in
// time, however slow the browser is.
func (p *tab) says(pattern string) {
	p.Helper()
	late := time.Now().Add(soon).UnixMilli()
	is := `new RegExp(` + quoted(pattern) + `)`
	said := is + `.test(document.querySelector("#tasks-health .verdict")?.textContent)`
	p.until(said + fmt.Sprintf(` || new Date(page.tasks?.now) > %d && !%s.test(page.tasks.health.findings[0]?.text + ".")`, late, is))
	p.within(0, said)
}

// sinceIsSaid checks that the first finding has its start, and the place to look.
func (p *tab) sinceIsSaid(where string) {
	p.Helper()
	p.until(`/^Since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+\.$/.test(document.querySelector("#tasks-health .since").textContent)`)
	if got := js[string](p, `[...document.querySelectorAll("#tasks-health li:first-child .go")].map((e) => e.textContent).join()`); got != where {
		p.Errorf("where to look is %q, want %q", got, where)
	}
}

// picture saves pictures of the page in the folder PICTURES, if it is set: in light and dark, with three widths.
func (p *tab) picture(name string) {
	p.Helper()
	dir := os.Getenv("PICTURES")
	if dir == "" {
		return
	}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{320, 1200, 1920} {
			call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
			})
			p.do(chromedp.EmulateViewport(width, 900))
			time.Sleep(300 * time.Millisecond)
			png, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
			must(p.T, err)
			must(p.T, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%s-%d.png", name, scheme, width)), png, 0o644))
		}
	}
	p.do(chromedp.EmulateViewport(1200, 900))
}

// A handler that always fails, from its first failure to the removal of the parked tasks: found, counted, confirmed and
// done.
func TestScheduler_handlerThatFails(t *testing.T) {
	s, source := newScheduler(t, memory.New().Engine())
	var broken atomic.Bool
	broken.Store(true)
	must(t, s.Handle("recheck", func(ctx context.Context, r durable.Run) error {
		if broken.Load() {
			return fails(ctx, r)
		}
		return nil
	}, durable.WithRetry(2, time.Second, time.Second)), s.Handle("mail", works), s.Start())
	putMany(t, s, 20, durable.Task{Key: "mail", Kind: "mail", Interval: time.Second, Times: durable.Forever})
	address := serve(t, dashboard.Handler([]dashboard.Source{source}, dashboard.AllowControl(everybody), dashboard.AllowPayloads(everybody)))
	p := open(t, chrome(t), address, 1200, "light")
	p.until(`page.live && page.view === "scheduler" && /^Working: \d+ of 1,024 workers busy, 20 tasks, none parked\.$/.test(document.querySelector("#tasks-health .verdict").textContent)`)
	p.picture("well")
	putMany(t, s, 120, durable.Task{Key: "order", Kind: "recheck", Delay: time.Millisecond, Payload: []byte(`{"order":1}`)})
	p.says(`^Kind recheck: \d+ of \d+ attempts failed in the last 5 m: dial 10\.0\.0\.7:443: connection refused\.$`)
	p.sinceIsSaid("Why tasks fail,Failing")
	p.until(`page.tasks.stats.parked === 120 && document.querySelector("#tasks-parked").closest(".number").matches(".alarm")`)
	p.until(`[...document.querySelectorAll("#tasks-health .verdict")].some((e) => e.textContent === "120 tasks are parked, of kind recheck, waiting for an operator.")`)
	js[any](p, `$("failures-again").click()`)
	p.until(`document.querySelector("#failures .many")?.textContent === "120 ×" && document.querySelector("#failures .why").textContent === "dial #.#.#.#:#: connection refused"`)
	p.picture("failing")

	// Each group has a link to its tasks, and each task a link to its page.
	p.do(chromedp.Click(chromedp.CSS("#failures .many")))
	p.until(`page.view === "list" && document.querySelectorAll("#listed a").length === 100 && document.querySelector("#list-message").textContent.startsWith("100 tasks, and there are more")`)
	if got := js[float64](p, `Math.max(...[...document.querySelectorAll("#listed tr")].map((e) => e.offsetHeight))`); got > 45 {
		t.Errorf("a row of the list is %v pixels high: dates are broken", got)
	}
	p.picture("list")
	p.do(chromedp.Click(chromedp.CSS("#list-next")))
	p.until(`document.querySelectorAll("#listed a").length === 20`)
	p.do(chromedp.Click(chromedp.CSS("#listed a")))
	p.until(`page.view === "task" && !$("task").hidden && $("facts").textContent.includes("2 of 2") && $("run").textContent === "Unpark"`)
	p.until(`document.querySelector("#task-payload pre").textContent === '{\n  "order": 1\n}' && document.querySelector("#task-failed .why").textContent.endsWith("connection refused")`)
	p.picture("task")
	broken.Store(false)
	p.do(chromedp.Click(chromedp.CSS("#run")))
	p.until(`$("task-message").textContent.startsWith("The task is gone") || $("task-message").textContent === "It runs at once."`)

	// All parked tasks: first a count, then a question, and Escape cancels it.
	js[any](p, `location.hash = toList({ state: "parked" })`)
	p.until(`page.view === "list" && !$("bulk").hidden && $("bulk-run").textContent === "Unpark" && document.querySelectorAll("#listed a").length === 100`)
	p.do(chromedp.Click(chromedp.CSS("#bulk-run")))
	p.until(`$("bulk-message").textContent === "Unpark 119 tasks?" && $("bulk-sure").textContent === "Yes, unpark 119 tasks" && document.activeElement === $("bulk-stop")`)
	p.picture("bulk")
	p.do(chromedp.KeyEvent(kb.Escape))
	p.until(`$("bulk-sure").hidden && $("bulk-message").textContent === ""`)
	if got := s.Stats().Parked; got != 119 {
		t.Fatalf("%d tasks are parked", got)
	}
	p.do(chromedp.Click(chromedp.CSS("#bulk-run")))
	p.until(`!$("bulk-sure").hidden`)
	p.do(chromedp.Click(chromedp.CSS("#bulk-sure")))
	p.until(`$("bulk-message").textContent === "Unparked: 119 tasks." && $("list-message").textContent.startsWith("No task is found")`)
	p.do(chromedp.Click(chromedp.CSS("#path a")))
	p.until(`page.view === "scheduler" && page.tasks.stats.parked === 0`)
	p.quiet(address)
}

func TestScheduler_kindWithoutHandler(t *testing.T) {
	m := memory.New()
	before, _ := newScheduler(t, m.Engine())
	must(t, before.Handle("sms", works))
	putMany(t, before, 12, durable.Task{Key: "sms", Kind: "sms", Delay: time.Second})
	time.Sleep(3 * time.Second) // they are overdue when they are first counted; the next count is a minute later
	s, source := newScheduler(t, m.Clone().Engine())
	must(t, s.Handle("mail", works), s.Start())
	p := open(t, chrome(t), serve(t, dashboard.Handler([]dashboard.Source{source})), 1200, "light")
	p.says(`^Kind sms has no handler here: 12 due tasks wait, the oldest for \d+ s\.$`)
	p.sinceIsSaid("Kinds,Waiting")
	p.until(`[...document.querySelectorAll("#kinds small.bad")].map((e) => e.textContent).join() === "no handler here"`)
	// A task that waits for a handler is not a run that waits for a worker: no figure says that nothing waits.
	p.until(`document.querySelector("#states li:nth-child(4)").textContent === "Waiting12"`)
	p.until(`/Overdue12the oldest for \d+ s/.test($("tasks-numbers").textContent)`)
	p.until(`[...$("kinds").rows].some((r) => /^sms/.test(r.textContent) && /^12for \d+ s$/.test(r.cells[2].textContent))`)
	p.picture("unhandled")
}

// The run of a task is cancelled with two clicks, and the button exists while there is a run.
func TestScheduler_cancelsARun(t *testing.T) {
	s, source := newScheduler(t, memory.New().Engine())
	long := func(ctx context.Context, _ durable.Run) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	must(t, s.Handle("long", long, durable.WithRetry(2, time.Hour, time.Hour)), s.Start(),
		s.AddTask(t.Context(), durable.Task{Key: "k", Kind: "long", Delay: time.Millisecond}))
	address := serve(t, dashboard.Handler([]dashboard.Source{source}, dashboard.AllowControl(everybody)))
	p := open(t, chrome(t), address+"#scheduler=tasks&key=k", 1200, "light")
	p.until(`!$("task").hidden && !$("cancel").hidden && $("cancel").textContent === "Cancel run"`)
	p.until(`/^started \d+(\.\d+)? m?s ago, at \d/.test([...$("facts").querySelectorAll("dd")][3].textContent)`)
	p.picture("running")
	p.do(chromedp.Click(chromedp.CSS("#cancel")))
	p.until(`$("cancel").textContent === "Cancel its run?"`)
	p.do(chromedp.Click(chromedp.CSS("#cancel")))
	p.until(`/^Its run is cancelled/.test($("task-message").textContent) && $("cancel").hidden`)
	p.until(`/the run was cancelled/.test($("task-failed").textContent)`)
	if i, _, err := s.Get(t.Context(), "k"); err != nil || i.State != durable.Retrying {
		t.Errorf("%+v, %v", i, err)
	}
}

// The history of a task is on its page, also when the task is gone, and that of a kind is below its tasks.
func TestScheduler_history(t *testing.T) {
	s, source := newScheduler(t, memory.New().Engine(), durable.WithNodeName("shop-1"))
	var broken atomic.Bool
	broken.Store(true)
	must(t, s.Handle("mail", func(ctx context.Context, r durable.Run) error {
		if r.Key == "mail-0001" && broken.Load() {
			return durable.Park(errRefused)
		}
		r.Complete("sent to " + r.Key)
		return nil
	}, durable.WithHistory(1000, time.Hour)), s.Handle("sms", works), s.Start())
	putMany(t, s, 30, durable.Task{Key: "mail", Kind: "mail", Delay: time.Millisecond})
	must(t, s.AddTask(t.Context(), durable.Task{Key: "sms", Kind: "sms", Delay: time.Hour}))
	address := serve(t, dashboard.Handler([]dashboard.Source{source}, dashboard.AllowControl(everybody)))
	p := open(t, chrome(t), address+"#scheduler=tasks&key=mail-0001", 1200, "light")
	p.until(`!$("task").hidden && document.querySelectorAll("#task-past-rows tr").length === 1 && document.querySelector("#task-past-rows .why").textContent.endsWith("connection refused")`)
	p.until(`/^the last attempts, read at \d/.test($("task-past-note").textContent) && document.querySelector("#task-past-rows tr").children[1].textContent === "parked"`)
	p.picture("history-task")
	broken.Store(false)
	p.do(chromedp.Click(chromedp.CSS("#run")))
	p.until(`$("task-message").textContent.startsWith("The task is gone") && document.querySelectorAll("#task-past-rows tr").length === 2 && document.querySelector("#task-past-rows .note").textContent === "sent to mail-0001"`)
	p.picture("history-gone")
	js[any](p, `location.hash = to({ key: "mail-0002" })`) // gone before the page was opened
	p.until(`document.querySelectorAll("#task-past-rows tr").length === 1 && document.querySelector("#task-past-rows .note").textContent === "sent to mail-0002"`)

	js[any](p, `location.hash = toList({ kind: "mail" })`)
	p.until(`page.view === "list" && !$("list-history").hidden && document.querySelectorAll("#list-past-rows tr").length === 20`)
	p.picture("history-kind")
	p.do(chromedp.Click(chromedp.CSS("#list-past-more button")))
	p.until(`document.querySelectorAll("#list-past-rows tr").length === 31 && $("list-past-more").hidden && new Set([...document.querySelectorAll("#list-past-rows a")].map((a) => a.textContent)).size === 30`)
	js[any](p, `location.hash = toList({ kind: "sms" })`)
	p.until(`page.view === "list" && document.querySelectorAll("#listed a").length === 1 && $("list-history").hidden`)
	js[any](p, `location.hash = toList({ kind: "mail" })`)
	p.until(`!$("list-history").hidden && document.querySelectorAll("#list-past-rows tr").length === 20`)
	js[any](p, `location.hash = toList({})`)
	p.until(`page.view === "list" && $("list-history").hidden`)
	p.quiet(address)
}

// A paused task can be found, shows no due time, cannot be run now, and can be resumed, alone or with all others. A
// task on a calendar shows its calendar.
func TestScheduler_pausedAndCalendar(t *testing.T) {
	s, source := newScheduler(t, memory.New().Engine())
	must(t, s.Handle("mail", works), s.Start(), s.AddTask(t.Context(), durable.Task{Key: "held", Kind: "mail", Delay: time.Hour},
		durable.Task{Key: "daily", Kind: "mail", Cron: "0 9 * * *", Times: durable.Forever,
			Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", PayloadVersion: 2}), s.Pause(t.Context(), "held"))
	address := serve(t, dashboard.Handler([]dashboard.Source{source}, dashboard.AllowControl(everybody)))
	p := open(t, chrome(t), address, 1200, "light")
	p.until(`page.live && page.view === "scheduler"`)
	const paused = `[...document.querySelectorAll("#states a")].find((a) => a.textContent.startsWith("Paused"))`
	p.until(paused + `.textContent === "Paused1"`)
	js[any](p, paused+`.click()`)
	p.until(`$("listed").textContent === "heldmailpausedwhen it is resumed"`)
	js[any](p, `document.querySelector("#listed a").click()`)
	p.until(`!$("task").hidden && /none: it is paused/.test($("facts").textContent) && $("run").hidden && !$("remove").hidden`)
	p.picture("paused")
	if !js[bool](p, `facts[10].hidden && facts[10].previousSibling.hidden && !/version/.test($("task-payload-size").textContent)`) {
		t.Error("a trace is shown, or a version, and there is none")
	}
	for _, c := range [][2]string{{"Resume", "Resumed."}, {"Pause", "Paused."}} {
		p.until(`$("pause").textContent === ` + quoted(c[0]))
		p.do(chromedp.Click(chromedp.CSS("#pause")))
		p.until(`$("task-message").textContent === ` + quoted(c[1]) + ` && $("pause").textContent !== ` + quoted(c[0]))
		if i, _, err := s.Get(t.Context(), "held"); err != nil || (i.State == durable.Paused) != (c[0] == "Pause") {
			t.Errorf("%s: %+v, %v", c[1], i, err)
		}
	}
	js[any](p, `location.hash = to({ key: "daily" })`)
	p.until(`!$("task").hidden && /0 9 \* \* \*/.test($("facts").textContent) && !$("run").hidden && $("pause").textContent === "Pause"`)
	p.until(`facts[10].textContent === "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" && $("task-payload-size").textContent === "0 bytes, version 2"`)
	p.picture("trace")

	// All tasks of a kind, one of which is already paused; then the paused ones.
	js[any](p, `location.hash = toList({ kind: "mail" })`)
	p.until(`page.view === "list" && !$("bulk").hidden && $("bulk-run").hidden && $("bulk-resume").hidden && document.querySelectorAll("#listed a").length === 2`)
	p.do(chromedp.Click(chromedp.CSS("#bulk-pause")))
	p.until(`$("bulk-sure").textContent === "Yes, pause 1 task"`)
	p.do(chromedp.Click(chromedp.CSS("#bulk-sure")))
	p.until(`$("bulk-message").textContent === "Paused: 1 task."`)
	js[any](p, `location.hash = toList({ state: "paused" })`)
	p.until(`page.view === "list" && $("bulk-pause").hidden && document.querySelectorAll("#listed a").length === 2`)
	p.do(chromedp.Click(chromedp.CSS("#bulk-resume")))
	p.until(`$("bulk-sure").textContent === "Yes, resume 2 tasks"`)
	p.picture("resume")
	p.do(chromedp.Click(chromedp.CSS("#bulk-sure")))
	p.until(`$("bulk-message").textContent === "Resumed: 2 tasks." && $("list-message").textContent.startsWith("No task is found")`)
	p.quiet(address)
}

// A count, and then an action, for a search with few matches: each request continues where the previous one ended, and
// if a request makes no progress, the page says so.
func TestScheduler_bulkThatFindsRarely(t *testing.T) {
	s, source := newScheduler(t, memory.New().Engine())
	must(t, s.Handle("mail", works), s.AddTask(t.Context(), durable.Task{Key: "a", Kind: "mail", Delay: time.Hour}))
	address := serve(t, dashboard.Handler([]dashboard.Source{source}, dashboard.AllowControl(everybody)))
	p := open(t, chrome(t), address, 1200, "light")
	p.until(`page.live && page.view === "scheduler"`)
	js[any](p, `location.hash = toList({ kind: "mail" })`)
	p.until(`page.view === "list" && !$("bulk").hidden`)
	js[any](p, `(() => {
		const answers = [[0, "x"], [0, "y"], [2, "z"], [0, "u"], [1, "v"], [0, "v"]], real = ask;
		window.sent = "";
		ask = async (path, options) => {
			if (path !== "api/bulk") return real(path, options);
			sent += options.body.get("do") + ":" + options.body.get("after") + " ";
			const [tasks, next] = answers.shift();
			return { tasks, more: true, next };
		};
	})()`)
	p.do(chromedp.Click(chromedp.CSS("#bulk-remove")))
	p.until(`$("bulk-sure").textContent === "Yes, remove at least 2 tasks"`)
	p.do(chromedp.Click(chromedp.CSS("#bulk-sure")))
	p.until(`$("bulk-message").textContent === "Removed: 1 task. Then: the search for the rest took too long."`)
	if got := js[string](p, `sent.trim()`); got != "count: count:x count:y remove: remove:u remove:v" {
		t.Errorf("asked for is %q", got)
	}
	p.quiet(address)
}

// A backlog after downtime, which drains at a bounded rate.
func TestScheduler_backlog(t *testing.T) {
	m := memory.New()
	before, _ := newScheduler(t, m.Engine())
	must(t, before.Handle("order", works))
	putMany(t, before, 2000, durable.Task{Key: "order", Kind: "order", At: time.Now().Add(-time.Hour)})
	time.Sleep(time.Second)
	s, source := newScheduler(t, m.Clone().Engine(), durable.WithCatchUp(50))
	browser := chrome(t) // which takes a while, and so does the backlog
	must(t, s.Handle("order", works), s.Start())
	p := open(t, browser, serve(t, dashboard.Handler([]dashboard.Source{source})), 1200, "light")
	p.says(`^Catching up: (at least )?[\d,]+ overdue tasks left, the oldest due \d+ s ago`)
	if got := js[string](p, `[...document.querySelectorAll("#tasks-health li:first-child .go")].map((e) => e.textContent).join()`); got != "Waiting" {
		t.Errorf("where to look is %q", got)
	}
	p.picture("backlog")
}

func TestScheduler_engineAway(t *testing.T) {
	link := enginetest.NewLink(memory.New().Shared())
	s, source := newNode(t, link, "web-1")
	must(t, s.Handle("order", works), s.Start())
	putMany(t, s, 5, durable.Task{Key: "order", Kind: "order", Delay: time.Hour})
	p := open(t, chrome(t), serve(t, dashboard.Handler([]dashboard.Source{source})), 1200, "light")
	p.until(`document.querySelector("#tasks-health .verdict")?.textContent.startsWith("Working: ")`)
	link.SetDown(true)
	p.says(`^The engine has not served this node( for \d+ s)?(, and nothing starts here)?: .*enginetest: fault`)
	p.sinceIsSaid("Nodes")
	p.until(`/the time left is unknown/.test($("nodes").textContent)`)
	p.picture("away")
	link.SetDown(false)
	p.until(`document.querySelector("#tasks-health .verdict").textContent.startsWith("Working: ")`)
}

// A replicated is an engine whose server has a synchronous standby.
type replicated struct{}

func (replicated) Health(context.Context) (engine.Health, error) {
	return engine.Health{Replicated: true, Standbys: 1}, nil
}

// A node is killed: another takes over its tasks, and the page of that node reports it.
func TestScheduler_nodeKilled(t *testing.T) {
	engine := memory.New().Shared()
	link := enginetest.NewLink(engine)
	a, source := newNode(t, engine, "web-1")
	b, _ := newNode(t, link, "web-2")
	must(t, a.Handle("order", works), a.Start(), b.Handle("order", works), b.Start())
	if nodes, err := a.Nodes(t.Context()); err != nil || len(nodes) < 2 {
		t.Skip("the scheduler does not list the other nodes yet")
	}
	source = source.WithEngine(replicated{})
	p := open(t, chrome(t), serve(t, dashboard.Handler([]dashboard.Source{source})), 1200, "light")
	p.until(`document.querySelectorAll("#nodes .node").length === 2 && document.querySelector("#tasks-health .verdict").textContent.endsWith("2 nodes.")`)
	p.until(`document.getElementById("survival").textContent.endsWith("survive the loss of the database server (1 synchronous standby)")`)
	p.picture("nodes")
	link.SetDown(true)
	p.says(`^Node web-2 (has not renewed its lease for|was lost)`)
	p.sinceIsSaid("Nodes")
	p.until(`/^Node web-2 was lost (just now|\d+ s ago): its lease expired, and other nodes took over its tasks/.test(document.querySelector("#tasks-health .verdict").textContent)`)
	p.until(`document.querySelectorAll("#nodes .node").length === 1`)
	p.picture("lost")
}

// Every node is drained from the page, which says that nothing starts, and undrained.
func TestScheduler_drainedNodes(t *testing.T) {
	engine := memory.New().Shared()
	a, source := newNode(t, engine, "web-1")
	b, _ := newNode(t, engine, "web-2")
	must(t, a.Handle("order", works), a.Start(), b.Handle("order", works), b.Start())
	p := open(t, chrome(t), serve(t, dashboard.Handler([]dashboard.Source{source}, dashboard.AllowControl(func(*http.Request) error { return nil }))), 1200, "light")
	p.until(`document.querySelectorAll("#nodes .node").length === 2`)
	button := func(i int) string { return fmt.Sprintf(`document.querySelectorAll("#nodes .node button")[%d]`, i) }
	for i := range 2 {
		p.until(button(i) + `.textContent === "Drain" && !` + button(i) + `.hidden`)
		js[any](p, button(i)+`.click()`)
		p.until(button(i) + `.matches(".sure") && ` + button(i) + `.textContent === "Drain?"`)
		js[any](p, button(i)+`.click()`)
		p.until(fmt.Sprintf(`$("nodes-message").textContent === "Drained node web-%d." && `, i+1) + button(i) + `.textContent === "Undrain"`)
	}
	p.says(`^All 2 nodes are drained, and nothing starts`)
	if got := js[string](p, `[...document.querySelectorAll("#tasks-health li:first-child .go")].map((e) => e.textContent).join()`); got != "Nodes" {
		t.Errorf("where to look is %q", got)
	}
	p.picture("drained")
	js[any](p, button(0)+`.click()`)
	p.until(`$("nodes-message").textContent === "Undrained node web-1." && document.querySelector("#tasks-health .verdict").textContent.startsWith("Working: ")`)
}

// The workers of two nodes hang: the page of each node reports both, and shows their runs, where they are running and
// for how long.
func TestScheduler_stuckNodes(t *testing.T) {
	engine, end := memory.New().Shared(), make(chan struct{})
	var pages []string
	for _, name := range []string{"web-1", "web-2"} {
		s, err := durable.New(t.Context(), engine, durable.WithNodeName(name), durable.WithPoolSize(8), durable.WithLogger(testkit.Quiet()))
		must(t, err)
		t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
		must(t, s.Handle("hang", func(context.Context, durable.Run) error { <-end; return nil }), s.Start())
		if putMany(t, s, 40, durable.Task{Key: name, Kind: "hang", Delay: time.Second}); len(pages) == 0 {
			pages = append(pages, serve(t, dashboard.Handler([]dashboard.Source{dashboard.Scheduler("tasks", s, nil)})))
		}
	}
	t.Cleanup(func() { close(end) }) // before they are shut down
	p := open(t, chrome(t), pages[0]+"#scheduler=tasks", 1200, "light")
	p.says(`^Overloaded for \d+ s: 8 of 8 workers busy, 64 due tasks wait, the oldest for \d+ s; none has started for \d+ s; 8 workers run kind hang, the longest for \d+ s\.$`)
	p.until(`[...document.querySelectorAll("#tasks-health li")].some((e) => /Node web-2 is overloaded: 8 of 8 workers busy/.test(e.textContent))`)
	p.until(`[...document.querySelectorAll("#nodes li")].every((e) => /8 of 8 workers busy, none has started for [\d.]+ s, kind hang: 8 running, the longest for [\d.]+ s/.test(e.textContent))`)
	p.until(`/64the oldest for [\d.]+ s/.test($("tasks-overdue").parentNode.textContent)`)
	p.until(`/8 running, the longest for/.test($("kinds").textContent)`)
	p.picture("stuck")
	p.do(chromedp.Navigate(pages[0] + "#scheduler=tasks&list=tasks&state=running"))
	p.until(`document.querySelectorAll("#listed tr").length === 16 && /running on web-2started \d/.test($("listed").textContent)`)
	p.picture("stuck-list")
}

func TestScheduler_diskFull(t *testing.T) {
	m := memory.New()
	s, source := newScheduler(t, m.Engine())
	must(t, s.Handle("order", works), s.Start())
	putMany(t, s, 5, durable.Task{Key: "order", Kind: "order", Interval: time.Second, Times: durable.Forever})
	p := open(t, chrome(t), serve(t, dashboard.Handler([]dashboard.Source{source})), 1200, "light")
	p.until(`document.querySelector("#tasks-health .verdict")?.textContent.startsWith("Working: ")`)
	m.SetFault(fmt.Errorf("write /var/lib/shop/tasks/000042.log: %w", syscall.ENOSPC))
	if err := s.RemoveTask(t.Context(), "order-0000"); !errors.Is(err, durable.ErrBroken) {
		t.Fatal(err)
	}
	p.says(`^The disk is full, and nothing has run( for \d+ s)? \(make room, then restart the process\): .*000042\.log: no space left on device\.$`)
	p.sinceIsSaid("Waiting")
	p.picture("full")
}

// A kind is paused with two clicks and resumed with one, and so are all kinds together. The page says so without an
// alarm. Forbidden actions have no button. A kind with limits shows them, and how many runs wait for
// them in memory: of a kind whose runs are slow, no more than may run.
func TestScheduler_pausedAndLimitedKinds(t *testing.T) {
	s, source := newScheduler(t, memory.New().Engine())
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	hangs := func(context.Context, durable.Run) error { <-stuck; return nil }
	must(t, s.Handle("mail", works), s.Handle("export", hangs, durable.WithConcurrency(2), durable.WithRate(100, time.Second, 10),
		durable.WithClusterConcurrency(20)), s.Start())
	putMany(t, s, 12, durable.Task{Key: "export", Kind: "export", Delay: time.Millisecond, Group: "acme"})
	var asked atomic.Bool // to allow it
	address := serve(t, dashboard.Handler([]dashboard.Source{source}, dashboard.AllowControl(func(*http.Request) error {
		if asked.Load() {
			return nil
		}
		return errors.New("it is Sunday")
	})))
	browser := chrome(t)
	p := open(t, browser, address, 1200, "light")
	p.until(`page.tasks && document.querySelector("#kinds small") && $("pause-all").hidden && $("kinds").querySelector(".act button").offsetParent === null`)
	asked.Store(true)
	p = open(t, browser, address, 1200, "light")
	row := func(kind string) string {
		return `[...$("kinds").rows].find((r) => r.cells[0].firstChild.textContent === "` + kind + `")`
	}
	p.until(row("export") + `?.querySelector(".policy small").textContent === "limit: 2 at once, 100 per 1 s in bursts of 10; on all nodes 20 at once; at least 2 due runs wait for it"`)
	p.until(`document.querySelector("#tasks-health:not(.wrong) .verdict").textContent.startsWith("Working: 2 of 1,024 workers busy")`)
	button := row("mail") + `.querySelector(".act button")`
	js[any](p, button+`.focus()`)
	js[any](p, button+`.click()`)
	p.until(button + `.matches(".sure") && ` + button + `.textContent === "Pause?"`)
	p.do(chromedp.KeyEvent(kb.Escape))
	p.until(button + `.textContent === "Pause" && !` + button + `.matches(".sure")`)
	if paused, err := s.Paused(t.Context()); err != nil || len(paused.Kinds) != 0 {
		t.Fatalf("after one click %+v are paused, %v", paused, err)
	}
	js[any](p, button+`.click()`)
	p.until(`page.tasks.now !== "` + js[string](p, `page.tasks.now`) + `"`) // the next state does not cancel the question
	js[any](p, button+`.click()`)
	p.until(`$("kinds-message").textContent === "Paused kind mail." && ` + button + `.textContent === "Resume"`)
	putMany(t, s, 3, durable.Task{Key: "mail", Kind: "mail", Delay: time.Millisecond})
	note := func(text string) string {
		return `/^` + text + `\.$/.test(document.querySelector("#tasks-health:not(.wrong) .note .verdict")?.textContent)`
	}
	p.within(soon, note("Kind mail is paused( for \\d+ s)?: 3 due tasks wait"))
	p.until(row("mail") + `.cells[0].children[1].textContent === "paused" && document.querySelector(".note .sign").textContent === "‖" && document.querySelector(".note .more").textContent === "Look at KindsWaiting"`)
	p.picture("paused")
	js[any](p, `location.hash = to({ key: "mail-0000" })`)
	p.until(`page.view === "task" && $("facts").textContent.includes("waiting; its kind is paused")`)
	js[any](p, `location.hash = to({ key: "export-0000" })`)
	p.until(`page.view === "task" && [...$("facts").querySelectorAll("dt:not([hidden])")].some((e) => e.textContent === "group" && e.nextSibling.textContent === "acme")`)
	p.picture("group")
	js[any](p, `location.hash = to({})`)
	p.until(`page.view === "scheduler"`)
	js[any](p, button+`.click()`)
	p.until(`$("kinds-message").textContent === "Resumed kind mail." && ` + button + `.textContent === "Pause" && ![...document.querySelectorAll(".note")].some((e) => e.textContent.includes("paused"))`)

	js[any](p, `$("pause-all").click()`)
	p.until(`$("pause-all").textContent === "Pause all of them?"`)
	js[any](p, `$("pause-all").click()`)
	p.until(note("All kinds are paused( for \\d+ s)?: 10 due tasks wait") + ` && ` + row("mail") + `.cells[0].children[1].textContent === "paused with all kinds"`)
	p.picture("all-paused")
	js[any](p, `$("pause-all").click()`)
	p.until(`$("kinds-message").textContent === "Resumed all kinds." && $("pause-all").textContent === "Pause all kinds" && ![...document.querySelectorAll(".note")].some((e) => e.textContent.includes("paused"))`)
	p.quiet(address)
}

// A group floods a kind with a limit. Below the kind the page reports it, with a link to the tasks, which can be
// paused.
func TestScheduler_aGroupFloods(t *testing.T) {
	s, source := newScheduler(t, memory.New().Engine())
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	hangs := func(context.Context, durable.Run) error { <-stuck; return nil }
	must(t, s.Handle("mail", hangs, durable.WithConcurrency(2)), s.Handle("other", works), s.Start())
	putMany(t, s, 122, durable.Task{Key: "acme", Kind: "mail", Delay: time.Millisecond, Group: "acme & Söhne"})
	putMany(t, s, 3, durable.Task{Key: "zeta", Kind: "mail", Delay: time.Millisecond, Group: "zeta"})
	allowed := dashboard.AllowControl(func(*http.Request) error { return nil })
	p := open(t, chrome(t), serve(t, dashboard.Handler([]dashboard.Source{source}, allowed)), 1200, "light")
	const below = `document.querySelector("#kinds .below:not([hidden])")`
	p.until(`/^group acme & Söhne has 120 of 123 due tasks, the oldest for [\d.]+ s; the others wait up to [\d.]+ s$/.test(` + below + `?.textContent)`)
	p.until(`document.querySelectorAll("#kinds .below:not([hidden])").length === 1 && ` + below + `.previousSibling.textContent.startsWith("mail")`)
	p.picture("flood")
	js[any](p, below+`.querySelector("a").click()`)
	p.until(`page.view === "list" && $("list-title").textContent === "Waiting tasks of kind mail of group acme & Söhne" && $("listed").rows.length === 100`)
	if got := js[string](p, `$("search").elements.group.value`); got != "acme & Söhne" {
		t.Errorf("the form has the group %q", got)
	}
	p.picture("flood-list")
	js[any](p, `$("bulk-pause").click()`)
	p.until(`$("bulk-sure").textContent === "Yes, pause 120 tasks"`)
	js[any](p, `$("bulk-sure").click()`)
	p.until(`$("bulk-message").textContent.startsWith("Paused: 120 tasks")`)
	js[any](p, `location.hash = to({})`)
	p.until(`/^group zeta has all 3 due tasks, the oldest for/.test(` + below + `?.textContent)`)
}

// Every key is shown as plain text, in lists, on its page, in errors and kinds.
func TestScheduler_anybodysText(t *testing.T) {
	s, source := newScheduler(t, memory.New().Engine())
	for _, kind := range hostile {
		must(t, s.Handle(kind, func(context.Context, durable.Run) error { return errors.New(kind) }, durable.WithRetry(1, time.Second, time.Second)))
	}
	must(t, s.Start())
	for _, key := range hostile {
		must(t, s.AddTask(t.Context(), durable.Task{Key: key, Kind: key, Delay: time.Millisecond, Payload: []byte(key)}))
	}
	address := serve(t, dashboard.Handler([]dashboard.Source{source}, dashboard.AllowPayloads(everybody)))
	p := open(t, chrome(t), address, 1200, "light")
	p.until(fmt.Sprintf(`page.tasks?.stats.parked === %d`, len(hostile)))
	js[any](p, `$("failures-again").click()`)
	p.until(fmt.Sprintf(`document.querySelectorAll("#failures .why").length === %d`, len(hostile)))
	js[any](p, `location.hash = toList({ state: "parked" })`)
	p.until(fmt.Sprintf(`document.querySelectorAll("#listed a").length === %d`, len(hostile)))
	for _, key := range hostile {
		js[any](p, `location.hash = to({ key: `+quoted(key)+` })`)
		p.until(`page.view === "task" && !$("task").hidden && document.querySelector("#task-payload pre").textContent === ` + quoted(seen(key)))
		for _, what := range []string{`$("task-title").textContent`, `$("facts").children[3].textContent`, `document.querySelector("#task-failed .why").textContent`} {
			if got := js[string](p, what); got != seen(key) {
				t.Errorf("%s is %q", what, got)
			}
		}
	}
	if js[bool](p, `"hit" in window`) {
		t.Error("a text was run")
	}
	p.quiet(address)
}

// Forbidden actions are not shown.
func TestScheduler_withoutControl(t *testing.T) {
	s, source := newScheduler(t, memory.New().Engine())
	must(t, s.Handle("order", works), s.Start())
	putMany(t, s, 3, durable.Task{Key: "order", Kind: "order", Delay: time.Hour, Payload: []byte("secret")})
	var control atomic.Bool
	p := open(t, chrome(t), serve(t, dashboard.Handler([]dashboard.Source{source}, dashboard.AllowControl(func(r *http.Request) error {
		if control.Load() && r.Method == http.MethodGet {
			return nil
		}
		return errors.New("it is Sunday")
	}))), 1200, "light")
	p.until(`page.live && page.tasks`)
	p.enter("#prefix", "order-000")
	p.until(`page.view === "list" && document.querySelectorAll("#listed a").length === 3 && $("bulk").hidden`)
	p.do(chromedp.Click(chromedp.CSS("#listed a")))
	p.until(`!$("task").hidden && $("controls").hidden && $("task-payload").textContent.startsWith("Hidden: ") && $("task-payload-size").textContent.startsWith("6 bytes")`)
	// If an action is shown nevertheless, the server refuses it with a reason.
	control.Store(true)
	js[any](p, `begin()`)
	p.until(`page.control && !$("controls").hidden`)
	p.do(chromedp.Click(chromedp.CSS("#run")))
	p.until(`document.querySelector("#task-message.bad")?.textContent === "it is Sunday"`)
	js[any](p, `location.hash = toList({ state: "scheduled" })`)
	p.until(`page.view === "list" && !$("bulk").hidden`)
	p.do(chromedp.Click(chromedp.CSS("#bulk-remove")))
	p.until(`document.querySelector("#bulk-message.bad")?.textContent === "it is Sunday"`)
	if n := s.Len(); n != 3 {
		t.Errorf("%d tasks are left", n)
	}
}

// troubled returns the address of a page on which the views of a scheduler have every possible content.
func troubled(t *testing.T) string {
	t.Helper()
	on := memory.New().Engine()
	putHour(t, on, "a-node-with-a-long-name"+strings.Repeat("-and-more", 8), "a-kind-with-a-long-name"+strings.Repeat("-and-more", 5))
	s, source := newScheduler(t, on)
	must(t, s.Handle("recheck", fails, durable.WithRetry(1, time.Second, time.Second), durable.WithHistory(100, time.Hour)),
		s.Handle("mail", works, durable.WithHistory(100, time.Hour)),
		s.Handle("export", works, durable.WithConcurrency(20), durable.WithClusterRate(1000, time.Minute, 100)), s.Start(), s.PauseKind(t.Context(), "export"))
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	must(t, s.Handle("flooded", func(context.Context, durable.Run) error { <-stuck; return nil }, durable.WithConcurrency(1)))
	for _, group := range []string{"a-group-with-a-long-name" + strings.Repeat("-and-more", 8), "other"} {
		putMany(t, s, 3, durable.Task{Key: group[:5], Kind: "flooded", Delay: time.Millisecond, Group: group})
	}
	putMany(t, s, 8, durable.Task{Key: "order", Kind: "recheck", Delay: time.Millisecond, Payload: []byte(`{"order": 1}`)})
	putMany(t, s, 8, durable.Task{Key: "a-mail-with-a-long-name", Kind: "mail", Interval: time.Second, Times: durable.Forever})
	must(t, s.AddTask(t.Context(), durable.Task{Key: "held", Kind: "mail", Delay: time.Hour, Payload: []byte("ab\x00"),
		PayloadVersion: 2, Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}), s.Pause(t.Context(), "held"))
	tw, _ := newWheel(t, 60)
	return serve(t, dashboard.Handler([]dashboard.Source{source, dashboard.Wheel("wheel", tw, nil)},
		dashboard.AllowControl(everybody), dashboard.AllowPayloads(everybody)))
}

// views are the views of a scheduler, each with an expression that says when it is shown.
var views = [][2]string{
	{"#", `document.querySelectorAll("#sources .source").length === 2`},
	{"#scheduler=tasks", `document.querySelector("#failures .many") && document.querySelector("#kinds a") && document.querySelector(".note") && document.querySelector("#kinds").closest(".controlled") && document.querySelector("#kinds .below:not([hidden])") && !$("hour-card").hidden`},
	{"#scheduler=tasks&list=tasks&state=parked", `document.querySelectorAll("#listed a").length === 8 && ($("bulk-run").click(), true)`},
	{"#scheduler=tasks&list=tasks&state=paused", `document.querySelectorAll("#listed a").length === 1 && ($("bulk-resume").click(), true)`},
	{"#scheduler=tasks&key=order-0001", `!$("task").hidden && document.querySelector("#task-payload pre") && !$("task-past").hidden`},
	{"#scheduler=tasks&list=tasks&kind=mail", `document.querySelectorAll("#listed a").length === 9 && !$("list-past").hidden`},
	{"#scheduler=tasks&key=held", `!$("task").hidden && $("pause").textContent === "Resume" && !facts[10].hidden`},
}

// eachView shows each view at each width, colour scheme and font size.
func eachView(t *testing.T, widths []int64, schemes []string, fonts []int, then func(p *tab, name string)) {
	t.Helper()
	address := troubled(t)
	browser := chrome(t)
	for _, scheme := range schemes {
		for _, width := range widths {
			for _, font := range fonts {
				p := open(t, browser, address, width, "light")
				features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
				if scheme == "forced" {
					features = []*emulation.MediaFeature{{Name: "forced-colors", Value: "active"}}
				}
				call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
				p.until(`page.live`)
				js[any](p, fmt.Sprintf(`document.documentElement.style.fontSize = "%d%%", null`, font))
				for _, view := range views {
					js[any](p, `location.hash = `+quoted(view[0]))
					p.until(`page.live && ` + view[1])
					then(p, fmt.Sprintf("%s, %d pixels, text at %d %%, %s", scheme, width, font, view[0]))
				}
				p.do(chromedp.Navigate("about:blank"))
			}
		}
	}
}

// Axe finds nothing in the views of a scheduler.
func TestScheduler_axe_findsNothing(t *testing.T) {
	path := os.Getenv("AXE")
	if path == "" {
		t.Skip("AXE is not set")
	}
	axe, err := os.ReadFile(path)
	must(t, err)
	eachView(t, []int64{320, 768, 1200, 1920}, []string{"light", "dark", "forced"}, []int{100}, func(p *tab, name string) {
		if !js[bool](p, `"axe" in window`) {
			js[any](p, string(axe)+";null")
		}
		if got := js[string](p, `axe.run().then((r) => r.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 120) + " " + n.failureSummary).join("\n")).join("\n"))`); got != "" {
			t.Errorf("%s: axe finds\n%s", name, got)
		}
	})
}

// Nothing is wider than the page, at any width and font size.
func TestScheduler_anyWidth_holdsItsText(t *testing.T) {
	eachView(t, []int64{320, 768, 1200, 1920}, []string{"light"}, []int{100, 200}, func(p *tab, name string) {
		if over := js[float64](p, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
			t.Errorf("%s: it is %v pixels too wide: %s", name, over, js[string](p,
				`[...document.querySelectorAll("main:not([hidden]) *, header *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 3).map((e) => e.outerHTML.slice(0, 100)).join(" ")`))
		}
	})
}

// A parked task is found, read and unparked with the keyboard alone.
func TestScheduler_worksByKeyboard(t *testing.T) {
	p := open(t, chrome(t), troubled(t)+"#scheduler=tasks", 1200, "light")
	p.until(`page.live && document.querySelector("#failures .many")`)
	reach := func(what string) {
		t.Helper()
		for range 60 {
			p.do(chromedp.KeyEvent(kb.Tab))
			if js[bool](p, `document.activeElement.matches(`+quoted(what)+`)`) {
				if !js[bool](p, `document.activeElement.matches(":focus-visible") && getComputedStyle(document.activeElement).outlineStyle !== "none"`) {
					t.Errorf("the focus on %s is not seen", what)
				}
				return
			}
		}
		t.Fatalf("Tab does not come to %s", what)
	}
	p.do(chromedp.KeyEvent("/"))
	p.until(`document.activeElement.id === "prefix"`)
	p.enter("#prefix", "order")
	p.until(`page.view === "list" && document.querySelectorAll("#listed a").length === 8 && document.activeElement.id === "list-view"`)
	reach("#listed a")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until(`page.view === "task" && !$("task").hidden`)
	reach("#run")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until(`$("task-message").textContent === "It runs at once."`)
}

// The row of a kind says how many runs were given up, and whether its repeating tasks are parked instead.
func TestScheduler_givenUp(t *testing.T) {
	s, source := newScheduler(t, memory.New().Engine())
	once := durable.WithRetry(1, time.Second, time.Second)
	fails := func(context.Context, durable.Run) error { return errRefused }
	must(t, s.Handle("report", fails, once), s.Handle("transfer", fails, once, durable.WithParkRepeating()), s.Start())
	for _, kind := range []string{"report", "transfer"} {
		must(t, s.AddTask(t.Context(), durable.Task{Key: kind, Kind: kind, Delay: time.Millisecond, Interval: time.Hour, Times: durable.Forever}))
	}
	p := open(t, chrome(t), serve(t, dashboard.Handler([]dashboard.Source{source}, dashboard.AllowControl(everybody)))+"#scheduler=tasks", 1200, "light")
	p.until(`$("kinds").textContent.includes("1 given up") && $("kinds").textContent.includes("after 1 s to 1 s; parks repeating tasks")`)
	p.until(`[...$("kinds").querySelectorAll("a")].filter((a) => a.textContent === "1" && a.href.includes("state=parked")).length === 1`)
}

// On a phone a kind takes one line, until its details are asked for.
func TestScheduler_narrow_aKindTakesOneLine(t *testing.T) {
	p := open(t, chrome(t), troubled(t)+"#scheduler=tasks", 320, "light")
	p.until(`page.live && document.querySelector("#kinds .fold")`)
	const row = `[...$("kinds").rows].find((r) => r.cells[0].firstChild.textContent === "recheck")`
	if got := js[float64](p, row+`.getBoundingClientRect().height`); got > 60 {
		t.Errorf("a kind is %v pixels high", got)
	}
	js[any](p, row+`.querySelector(".fold").click()`)
	p.until(row + `.querySelector(".fold").getAttribute("aria-expanded") === "true" && ` + row + `.cells[4].offsetParent`)
	js[any](p, row+`.querySelector(".fold").click()`)
	p.until(`!` + row + `.cells[4].offsetParent`)
}

// While an answer takes long, the page says how old it is.
func TestScheduler_anAnswerThatTakesLong(t *testing.T) {
	_, source := newScheduler(t, memory.New().Engine())
	inner := dashboard.Handler([]dashboard.Source{source})
	var slow atomic.Bool
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slow.Load() && strings.HasSuffix(r.URL.Path, "api/scheduler") {
			time.Sleep(6 * time.Second)
		}
		inner.ServeHTTP(w, r)
	}))
	p := open(t, chrome(t), address, 1200, "light")
	p.until(`page.live && page.tasks`)
	slow.Store(true)
	p.until(`/^no answer yet; this is [345] s old$/.test($("status-text").textContent) && document.body.matches(".old")`)
	slow.Store(false)
	p.until(`$("status-text").textContent === "page is live" && !document.body.matches(".old")`)
}

// The limits of a kind, the number of workers and the catch-up rate are set on the page, and reset.
func TestScheduler_tune(t *testing.T) {
	s, source := newScheduler(t, memory.New().Engine())
	must(t, s.Handle("mail", works, durable.WithConcurrency(4), durable.WithRate(10, time.Minute, 2)), s.Handle("free", works), s.Start())
	p := open(t, chrome(t), serve(t, dashboard.Handler([]dashboard.Source{source}, dashboard.AllowControl(everybody))), 1200, "light")
	const row = `[...$("kinds").rows].find((r) => r.cells[0].firstChild.textContent === "mail")`
	p.until(`page.tasks && ` + row + `?.querySelector(".act button:last-child").offsetParent`)
	js[any](p, row+`.querySelector(".act button:last-child").click()`)
	p.until(`!$("tune").hidden && $("tune").elements.concurrency.value === "4" && $("tune").elements.cluster_rate.closest("label").hidden && document.activeElement === $("tune").elements.concurrency`)
	js[any](p, `$("tune").elements.concurrency.value = "9", $("tune").elements.why.value = "it bears more", $("tune").requestSubmit()`)
	p.until(`/limit: 9 at once, 10 per 1 m in bursts of 2 \(set \S+ s ago: it bears more\)/.test(` + row + `.querySelector(".policy small").textContent)`)
	p.picture("tuned")
	js[any](p, row+`.querySelector(".act button:last-child").click()`)
	js[any](p, `$("tune-reset").click()`)
	p.until(row + `.querySelector(".policy small").textContent === "limit: 4 at once, 10 per 1 m in bursts of 2"`)
	js[any](p, `$("tune-pool").elements.n.value = "16", $("tune-pool").requestSubmit()`)
	p.until(`page.tasks.stats.workers === 16 && /^16 \(set/.test($("tune-pool").querySelector("span").textContent)`)
	js[any](p, `$("tune-pool").querySelector(".reset").click()`)
	p.until(`$("tune-pool").querySelector("span").textContent === "as in the code"`)
}

// A declared schedule says who declared it, its next run, and which of its tasks fail.
func TestScheduler_schedules(t *testing.T) {
	s, source := newScheduler(t, memory.New().Engine())
	must(t, s.Handle("mail", works), s.Handle("bill", func(context.Context, durable.Run) error { return durable.Park(errors.New("no paper")) }, durable.WithParkRepeating()))
	set := durable.TaskSet{Prefix: "nightly:", Version: 7, Tasks: []durable.Task{
		{Key: "nightly:mail", Kind: "mail", Cron: "CRON_TZ=UTC 0 0 1 1 *"},
		{Key: "nightly:bill", Kind: "bill", Interval: time.Hour, Delay: time.Millisecond},
	}}
	_, err := s.Schedule(t.Context(), set)
	must(t, err, s.Start())
	p := open(t, chrome(t), serve(t, dashboard.Handler([]dashboard.Source{source}, dashboard.AllowControl(everybody))), 1200, "light")
	p.until(`page.tasks && page.tasks.stats.parked === 1`)
	js[any](p, `readSets()`)
	p.until(`/^nightly:version 7, declared .* by .* · 2 tasks, 1 parked · next in \d+ d.*: nightly:mail$/.test($("sets").textContent)`)
	p.picture("schedules")
	js[any](p, `$("sets").querySelector(".rest a:last-child").click()`)
	p.until(`$("task-title").textContent === "nightly:mail"`)
}
