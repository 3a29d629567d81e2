// SPDX-License-Identifier: MIT

// Package browser tests the dashboard in Chromium. The tests are skipped if Chromium is not installed; make
// test-browser installs it.
package browser

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

// hostile are keys that must be shown literally.
var hostile = []string{
	`<img src=x onerror="window.hit=1">`,
	`<script>window.hit=2</script>`,
	`"><svg onload=window.hit=3>`,
	`javascript:window.hit=4`,
	`'};window.hit=5;//`,
	`</title></textarea><iframe srcdoc="<script>parent.hit=6</script>">`,
	`${window.hit=7}{{window.hit=8}}`,
	"\u202Eevitanretla\u202C <b>bold</b> &lt;i&gt;",
}

// seen returns a key as the page shows it: invisible characters are escaped.
func seen(key string) string {
	return strings.NewReplacer("\u202E", `\u{202e}`, "\u202C", `\u{202c}`).Replace(key)
}

// longTurn is the number of slots of a wheel whose circle takes more than an hour: a task due in an hour is upcoming.
const longTurn = 1 << 19

// newWheel returns a running wheel with a recorder.
func newWheel(t *testing.T, slots int) (*timewheel.TimeWheel, *dashboard.Recorder) {
	t.Helper()
	rec := dashboard.NewRecorder()
	tw := timewheel.NewTimeWheel(10*time.Millisecond, slots, timewheel.WithLogger(testkit.Quiet()),
		rec.Option())
	tw.Start()
	t.Cleanup(tw.Stop)
	return tw, rec
}

// handlerOf returns the handler of one wheel. The recorder may be nil.
func handlerOf(tw *timewheel.TimeWheel, rec *dashboard.Recorder, opts ...dashboard.Option) http.Handler {
	return dashboard.Handler([]dashboard.Source{dashboard.Wheel("wheel", tw, rec)}, opts...)
}

func add(t *testing.T, tw *timewheel.TimeWheel, task timewheel.Task) {
	t.Helper()
	if task.Job == nil {
		task.Job = func(*timewheel.Task) {}
	}
	if err := tw.AddTask(&task); err != nil {
		t.Fatal(err)
	}
}

// addOften adds tasks that change the list of next tasks at every update.
func addOften(t *testing.T, tw *timewheel.TimeWheel) {
	t.Helper()
	for i := range 20 {
		add(t, tw, timewheel.Task{Key: fmt.Sprint("often ", i), Interval: 50*time.Millisecond + time.Duration(i)*time.Millisecond, Times: timewheel.Forever})
	}
}

// serve serves the dashboard, below a prefix, and returns the address of the page.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/debug/timewheel/", h)
	return newServer(t, mux).URL + "/debug/timewheel/"
}

// newServer returns a server that ends with the test.
func newServer(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		srv.CloseClientConnections() // the events never end
		srv.Close()
	})
	return srv
}

// A restarted handler can be replaced by another, as if the program were restarted.
type restarted struct{ atomic.Pointer[http.Handler] }

func (r *restarted) with(h http.Handler) { r.Store(&h) }

func (r *restarted) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	(*r.Load()).ServeHTTP(w, req)
}

func everybody(*http.Request) error { return nil }

// quoted returns the text as a JavaScript string.
func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// enter replaces the text of an input, and presses Enter.
func (p *tab) enter(id, text string) {
	p.Helper()
	js[any](p, fmt.Sprintf(`document.querySelector(%q).select()`, id))
	p.do(chromedp.SendKeys(chromedp.CSS(id), text+kb.Enter))
}

// lookUp enters a key into the search of the wheel.
func (p *tab) lookUp(key string) {
	p.Helper()
	p.until(`page.state`)
	js[any](p, `location.hash = place(page.wheel)`)
	p.until(`page.view === "wheel"`)
	js[any](p, `$("found-tasks").replaceChildren(), say("", false, $("look-message"))`)
	p.enter("#key", key)
}

// openTask opens the page of a task by its address.
func (p *tab) openTask(key string) {
	p.Helper()
	js[any](p, `location.hash = place(page.wheel, {key: `+quoted(key)+`})`)
	p.until(`page.view === "task" && page.ref.key === ` + quoted(key))
}

func TestPage_handMovesWithTheTick(t *testing.T) {
	const slots = 600
	tw := timewheel.NewTimeWheel(100*time.Millisecond, slots)
	tw.Start()
	defer tw.Stop()
	address := serve(t, handlerOf(tw, nil))
	p := open(t, chrome(t), address, 1200, "light")
	p.until(`document.querySelector("#hand").dataset.slot`)
	for range 20 {
		before := tw.Hand().Slot
		seen := js[string](p, `document.querySelector("#hand").dataset.slot`)
		after := tw.Hand().Slot
		// The page shows the state at the time when the server sent it, which may be ten seconds ago on a slow machine.
		if early, span := (atoi(t, seen)-before+100+slots)%slots, (after-before+100+slots)%slots; early > span+1 {
			t.Errorf("the hand is seen at slot %s, and went from %d to %d", seen, before, after)
		}
		p.until(`document.querySelector("#hand").dataset.slot !== ` + quoted(seen))
	}
	if got := js[string](p, `document.querySelector("#status-text").textContent`); got != "page is live" {
		t.Errorf("the status is %q", got)
	}
	// Between two updates the page itself moves the hand.
	seen := js[string](p, `(page.source.onmessage = null, document.querySelector("#hand").dataset.slot)`)
	for range 5 {
		p.until(`document.querySelector("#hand").dataset.slot !== ` + quoted(seen))
		seen = js[string](p, `document.querySelector("#hand").dataset.slot`)
	}
	js[any](p, `listen()`)
	// It does not if the user prefers no motion.
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "reduce"}},
	})
	p.until(`page.live && still.matches`)
	seen = js[string](p, `(page.source.onmessage = null, turn(), document.querySelector("#hand").dataset.slot)`)
	p.until(`performance.now() - page.came > 1000`)
	if got := js[string](p, `document.querySelector("#hand").dataset.slot`); got != seen {
		t.Errorf("the hand went from %s to %s by itself", seen, got)
	}
	js[any](p, `listen()`)
	tw.Stop()
	p.until(`document.querySelector("#findings").textContent.startsWith("!Stopped")`)
	p.quiet(address)
}

func TestPage_findsATaskByItsKey(t *testing.T) {
	tw, rec := newWheel(t, 60)
	add(t, tw, timewheel.Task{Key: "order-4711", Interval: 90 * time.Second, Delay: time.Hour, Times: 3})
	for i := range 1000 {
		add(t, tw, timewheel.Task{Key: fmt.Sprint("order-", i), Interval: time.Hour + time.Duration(i)*time.Second})
	}
	address := serve(t, handlerOf(tw, rec))
	p := open(t, chrome(t), address, 1200, "dark")
	p.until(`document.querySelector("#pending").textContent !== "–"`)
	p.lookUp("order-4711")
	p.until(`!document.querySelector("#task").hidden`)
	facts := js[string](p, `document.querySelector("#facts").innerText`)
	info, _ := tw.Get("order-4711")
	for _, want := range []string{"order-4711", "in 59 m", "runs left\n3", "1 m 30 s", fmt.Sprint("slot\n", info.Slot), "circle\n5,9"} {
		if !strings.Contains(facts, want) {
			t.Errorf("the page shows of the task\n%s\nwithout %q", facts, want)
		}
	}
	if got := js[string](p, `location.hash`); got != "#wheel=wheel&key=order-4711" {
		t.Errorf("the address of the task is %q", got)
	}
	// The address alone shows the task.
	p.do(chromedp.Navigate("about:blank"), chromedp.Navigate(address+"#wheel=wheel&key=order-4711"))
	p.until(`!document.querySelector("#task").hidden && document.title === "order-4711 · wheel · timewheel"`)
	if !js[bool](p, `document.querySelector("#controls").hidden`) {
		t.Error("a user without control sees the buttons")
	}
	p.openTask("order-none")
	p.until(`document.querySelector("#task-message").textContent === "No live task has this key."`)

	p.lookUp("order-none")
	p.until(`document.querySelector("#look-message").textContent === "No live task has a key with this prefix."`)
	p.lookUp("order-99")
	p.until(`document.querySelector("#look-message").textContent === "11 tasks."`)
	if got := js[string](p, `[...document.querySelectorAll("#found-tasks .k")].map((e) => e.textContent).join(" ")`); !strings.HasPrefix(got, "order-99 order-990 order-991 ") {
		t.Errorf("found %s", got)
	}
	p.lookUp("order-")
	p.until(`document.querySelector("#look-message").textContent === "1,001 tasks, of which these are the first 50 by key."`)
	p.lookUp("order-99")
	p.until(`document.querySelectorAll("#found-tasks a").length === 11`)
	p.do(chromedp.Click(chromedp.CSS("#found-tasks tr:nth-child(3) a")))
	p.until(`!document.querySelector("#task").hidden && document.querySelector("#facts dd").textContent === "order-991"`)

	p.lookUp("order-4711")
	p.until(`!document.querySelector("#task").hidden`)
	if err := tw.RemoveTask("order-4711"); err != nil {
		t.Fatal(err)
	}
	p.until(`document.querySelector("#task-message").textContent.startsWith("The task is gone")`)
	p.quiet(address)
}

func TestPage_withControl_removesRunsAndReschedules(t *testing.T) {
	tw, _ := newWheel(t, longTurn)
	ran := make(chan struct{}, 1)
	add(t, tw, timewheel.Task{Key: "k", Interval: time.Hour, Times: timewheel.Forever, Job: func(*timewheel.Task) { ran <- struct{}{} }})
	address := serve(t, handlerOf(tw, nil, dashboard.AllowControl(everybody)))
	p := open(t, chrome(t), address, 1200, "light")
	p.until(`document.querySelector("#next a")`)
	js[any](p, `document.querySelector("#next a").click()`) // in one step, because each update replaces the list
	p.until(`!document.querySelector("#controls").hidden && !document.querySelector("#task").hidden`)

	p.do(chromedp.Click(chromedp.CSS("#run")))
	select {
	case <-ran:
	case <-time.After(limit):
		t.Fatal("it did not run")
	}
	p.until(`document.querySelector("#task-message").textContent === "It runs at the next tick."`)
	p.enter("#delay", "3h")
	p.until(`document.querySelector("#task-message").textContent === "Rescheduled."`)
	if info, ok := tw.Get("k"); !ok || time.Until(info.Next) < 2*time.Hour {
		t.Errorf("the task was not moved: %+v", info)
	}
	p.do(chromedp.Click(chromedp.CSS("#pause")))
	p.until(`$("task-message").textContent === "Paused." && /none: it is paused/.test($("facts").textContent) && $("run").hidden`)
	p.do(chromedp.Click(chromedp.CSS("#pause")))
	p.until(`$("task-message").textContent === "Resumed." && !$("run").hidden && /in \d/.test($("facts").textContent)`)
	p.do(chromedp.Click(chromedp.CSS("#remove")))
	p.until(`document.querySelector("#remove").textContent === "Remove it?"`)
	if !tw.Exist("k") {
		t.Error("one click removed the task")
	}
	p.do(chromedp.KeyEvent(kb.Escape)) // takes it back
	p.until(`document.querySelector("#remove").textContent === "Remove" && !document.querySelector("#remove").matches(".sure")`)
	p.do(chromedp.Click(chromedp.CSS("#remove")))
	p.until(`document.querySelector("#remove").textContent === "Remove it?"`)
	p.do(chromedp.Click(chromedp.CSS("#remove")))
	p.until(`document.querySelector("#task-message").textContent === "Removed."`)
	if tw.Exist("k") {
		t.Error("the task was not removed")
	}
	p.quiet(address)
}

func TestPage_withoutControl_isRefused(t *testing.T) {
	tw, _ := newWheel(t, 60)
	add(t, tw, timewheel.Task{Key: "k", Interval: time.Hour})
	p := open(t, chrome(t), serve(t, handlerOf(tw, nil)), 1200, "light")
	p.until(`document.querySelector("#pending").textContent === "1"`)
	for _, verb := range []string{"remove", "run", "reschedule", "pause", "resume"} {
		status := js[int](p, `fetch("api/`+verb+`", {method: "POST", body: new URLSearchParams({key: "k", delay: "1s"})}).then((r) => r.status)`)
		if status != http.StatusForbidden {
			t.Errorf("%s is answered with %d", verb, status)
		}
	}
	if info, ok := tw.Get("k"); !ok || time.Until(info.Next) < 50*time.Minute {
		t.Errorf("the task was changed: %+v", info)
	}
}

// A page of another site in the same browser tries to remove a task.
func TestControl_fromAnotherSite_isRefused(t *testing.T) {
	tw, _ := newWheel(t, 60)
	add(t, tw, timewheel.Task{Key: "k", Interval: time.Hour})
	asked := make(chan struct{}, 10)
	address := serve(t, handlerOf(tw, nil, dashboard.AllowControl(func(*http.Request) error {
		asked <- struct{}{}
		return nil
	})))
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<form method="post" action="%sapi/remove"><input name="key" value="k"></form>`, address)
	}))
	t.Cleanup(other.Close)
	p := open(t, chrome(t), other.URL, 1200, "light")
	js[any](p, `fetch(`+quoted(address+"api/remove")+`, {method: "POST", mode: "no-cors", body: new URLSearchParams({key: "k"})}).then(() => 1)`)
	js[any](p, `document.forms[0].submit()`)
	p.until(`document.body?.innerText.includes("cross-origin")`)
	if !tw.Exist("k") || len(asked) > 0 {
		t.Error("another site removed the task")
	}
}

func TestPage_keysAreAnybodysText(t *testing.T) {
	tw, rec := newWheel(t, longTurn)
	hung := make(chan struct{})
	t.Cleanup(func() { close(hung) })
	for i, key := range hostile {
		add(t, tw, timewheel.Task{Key: key, Interval: time.Duration(i+1) * 9 * time.Minute})
		add(t, tw, timewheel.Task{Key: "panic " + key, Interval: time.Millisecond, Job: func(task *timewheel.Task) { panic(task.Key) }})
		add(t, tw, timewheel.Task{Key: "run " + key, Interval: time.Second, Job: func(*timewheel.Task) { <-hung }})
	}
	address := serve(t, dashboard.Handler([]dashboard.Source{dashboard.Wheel(hostile[0], tw, rec),
		dashboard.Wheel(hostile[1], tw, nil)}, dashboard.AllowControl(everybody)))
	p := open(t, chrome(t), address, 1200, "light")
	p.until(`document.querySelectorAll("#sources .source").length === 2`)
	p.do(chromedp.Click(chromedp.CSS("#sources a")))
	n := fmt.Sprint(len(hostile))
	p.until(`document.querySelectorAll("#next a").length === ` + n +
		` && document.querySelectorAll("#runs a").length === ` + n +
		` && document.querySelectorAll("#panics details").length === ` + n)
	text := js[string](p, `document.body.textContent`)
	for _, key := range hostile {
		for _, want := range []string{key, "panic " + key, "run " + key} {
			if !strings.Contains(text, seen(want)) {
				t.Errorf("%q is not seen as it is", want)
			}
		}
		p.openTask(key)
		p.until(`!document.querySelector("#task").hidden && document.querySelector("#facts dd").textContent === ` + quoted(seen(key)))
	}
	p.lookUp(`<img src=x onerror="window.hit=9">`)
	p.until(`document.querySelector("#look-message").textContent !== ""`)
	js[any](p, `find("")`) // which finds every task
	p.until(`document.querySelectorAll("#found-tasks a").length === ` + n)
	js[any](p, `location.hash = place(page.sources[1].name)`)
	p.until(`document.title.startsWith("<script>")`)
	if hit := js[any](p, `window.hit ?? null`); hit != nil {
		t.Errorf("a key was run: %v", hit)
	}
	if n := js[int](p, `document.querySelectorAll("main img, main script, main iframe, main b:not(.legend b), main svg svg, nav *:not(a, .escape)").length`); n != 0 {
		t.Errorf("%d keys became elements", n)
	}
	p.quiet(address)
}

func TestPage_worksByKeyboard(t *testing.T) {
	tw, rec := newWheel(t, 60)
	other, _ := newWheel(t, 100)
	add(t, tw, timewheel.Task{Key: "k", Interval: time.Hour})
	address := serve(t, dashboard.Handler([]dashboard.Source{dashboard.Wheel("wheel", tw, rec), dashboard.Wheel("other", other, nil)},
		dashboard.AllowControl(everybody)))
	p := open(t, chrome(t), address+"#wheel=wheel", 1200, "light")
	p.until(`document.querySelector("#pending").textContent === "1"`)
	// Along the page with Tab alone.
	focused := func() string {
		return js[string](p, `document.activeElement.id || document.activeElement.textContent`)
	}
	for _, want := range []string{"skip", "All 2 wheels", "wheel", "5 min", "15 min", "1 h"} {
		p.do(chromedp.KeyEvent(kb.Tab))
		if got := focused(); got != want {
			t.Errorf("Tab goes to %q, want %q", got, want)
		}
	}
	js[any](p, `document.querySelector("#dial").focus()`)
	p.do(chromedp.KeyEvent(kb.ArrowRight))
	first := js[string](p, `document.querySelector("#reading").textContent`)
	p.do(chromedp.KeyEvent(kb.ArrowRight))
	if second := js[string](p, `document.querySelector("#reading").textContent`); second == first || !strings.HasPrefix(second, "slot ") {
		t.Errorf("the arrows on the dial read %q, then %q", first, second)
	}
	call(p, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Text: "/"})
	if got := focused(); got != "key" {
		t.Errorf("/ goes to %q", got)
	}
	p.do(chromedp.KeyEvent("k" + kb.Enter))
	p.until(`!document.querySelector("#controls").hidden && !document.querySelector("#task").hidden`)
	for _, want := range []string{"task-view", "remove"} {
		if want == "remove" {
			p.do(chromedp.KeyEvent(kb.Tab))
		}
		if got := focused(); got != want {
			t.Errorf("Tab goes to %q, want %q", got, want)
		}
	}
	for _, held := range []bool{false, true, true} { // a key that is held down removes nothing
		call(p, input.DispatchKeyEvent, input.DispatchKeyEventParams{
			Type: input.DispatchKeyEventTypeKeyDown, Key: "Enter", Code: "Enter", Text: "\r", WindowsVirtualKeyCode: 13, AutoRepeat: &held,
		})
	}
	call(p, input.DispatchKeyEvent, input.DispatchKeyEventParams{
		Type: input.DispatchKeyEventTypeKeyUp, Key: "Enter", Code: "Enter", WindowsVirtualKeyCode: 13,
	})
	if got := js[string](p, `document.querySelector("#remove").textContent`); got != "Remove it?" || !tw.Exist("k") {
		t.Errorf("with Enter held down the button says %q", got)
	}
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until(`document.querySelector("#task-message").textContent === "Removed."`)
	if tw.Exist("k") {
		t.Error("the task was not removed")
	}
	if got := focused(); got != "task-view" {
		t.Errorf("after the removal the focus is at %q", got)
	}
	js[any](p, `document.querySelector("nav a").focus()`)
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until(`page.view === "overview" && document.querySelectorAll("#sources a").length === 2`)
	js[any](p, `document.querySelector("#sources li:last-child a").focus()`)
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until(`document.querySelector("#dial-label").textContent.includes("100 slots") && location.hash === "#wheel=other"`)
	p.quiet(address)
}

func TestPage_pointingAtTheDial_readsThatPart(t *testing.T) {
	tw, _ := newWheel(t, 8)
	for i := range 8 {
		add(t, tw, timewheel.Task{Key: fmt.Sprint(i), Interval: time.Hour + time.Duration(i)*10*time.Millisecond})
	}
	address := serve(t, handlerOf(tw, nil))
	p := open(t, chrome(t), address, 1200, "light")
	p.until(`document.querySelector("#pending").textContent === "8"`)
	for slot, at := range map[int][2]int{0: {30, -72}, 2: {72, 30}, 5: {-72, 30}, 7: {-30, -72}} {
		place := js[[]float64](p, fmt.Sprintf(`(() => {
			const p = new DOMPoint(%d, %d).matrixTransform(document.querySelector("#dial").getScreenCTM());
			return [p.x, p.y];
		})()`, at[0], at[1]))
		p.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, place[0], place[1]))
		p.until(fmt.Sprintf(`document.querySelector("#reading").textContent.startsWith("slot %d: ")`, slot))
	}
	p.quiet(address)
}

func TestPage_hidden_isNotOpen(t *testing.T) {
	tw, rec := newWheel(t, 60)
	add(t, tw, timewheel.Task{Key: "k", Interval: 20 * time.Millisecond, Times: timewheel.Forever})
	var streams atomic.Int64
	h := handlerOf(tw, rec)
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/api/events") {
			streams.Add(1)
			defer streams.Add(-1)
		}
		h.ServeHTTP(w, r)
	}))
	p := open(t, chrome(t), address, 1200, "light")
	p.until(`document.querySelector("#late-runs").textContent.match(/^of [1-9]/)`)
	hide := func(hidden bool) {
		js[any](p, fmt.Sprintf(`Object.defineProperty(document, "hidden", {value: %v, configurable: true}); `+
			`document.dispatchEvent(new Event("visibilitychange"))`, hidden))
	}
	hide(true)
	p.until(`document.querySelector("#status-text").textContent === "paused" && page.source === null`)
	for end := time.Now().Add(limit); streams.Load() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a hidden page keeps its stream")
		}
	}
	hide(false)
	p.until(`document.querySelector("#status-text").textContent === "page is live"`)
	p.quiet(address)
}

func TestPage_lostConnection_comesBack(t *testing.T) {
	tw, _ := newWheel(t, 60)
	srv := newServer(t, handlerOf(tw, nil))
	p := open(t, chrome(t), srv.URL, 1200, "light")
	p.until(`document.querySelector("#status-text").textContent === "page is live"`)
	js[any](p, `window.lost = false; new MutationObserver(() => {
		window.lost ||= document.querySelector("#status-text").textContent.startsWith("connection lost") &&
			document.body.classList.contains("old") && !page.live
	}).observe(document.querySelector("#status-text"), {childList: true})`)
	srv.CloseClientConnections()
	p.until(`window.lost && document.querySelector("#status-text").textContent === "page is live"`)
}

// Nothing overflows, at any width, in either scheme, with the longest texts.
func TestPage_anyWidth_holdsItsText(t *testing.T) {
	tw, rec := newWheel(t, 60)
	hung := make(chan struct{})
	t.Cleanup(func() { close(hung) })
	for i := range 10 {
		long := strings.Repeat(fmt.Sprint("long", i), 50)
		add(t, tw, timewheel.Task{Key: long, Interval: 290 * 365 * 24 * time.Hour, Times: 1<<31 - 1})
		add(t, tw, timewheel.Task{Key: "hung " + long, Interval: time.Millisecond, Job: func(*timewheel.Task) { <-hung }})
		add(t, tw, timewheel.Task{Key: "bad " + long, Interval: time.Millisecond, Job: func(*timewheel.Task) { panic(long) }})
	}
	address := serve(t, dashboard.Handler([]dashboard.Source{dashboard.Wheel(strings.Repeat("wheel", 30), tw, rec),
		dashboard.Wheel("other", tw, nil)}, dashboard.AllowControl(everybody)))
	browser := chrome(t)
	for i, width := range []int64{320, 390, 768, 1024, 1920} {
		scheme := []string{"light", "dark"}[i%2]
		p := open(t, browser, address+"#wheel="+strings.Repeat("wheel", 30), width, scheme)
		p.until(`document.querySelectorAll("#panics details").length === 10`)
		p.lookUp("long")
		p.until(`document.querySelectorAll("#found-tasks tr").length === 10`)
		ground := js[[]int](p, `getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number)`)
		if dark := ground[0] < 128; dark != (scheme == "dark") {
			t.Errorf("in the %s scheme the ground is %d", scheme, ground)
		}
		for _, view := range []string{"wheel", "task", "overview"} {
			switch view {
			case "task":
				p.openTask(strings.Repeat("long1", 50))
				p.until(`!document.querySelector("#task").hidden`)
			case "overview":
				js[any](p, `location.hash = ""`)
				p.until(`document.querySelectorAll("#sources li").length === 2`)
			}
			if got := js[int64](p, `document.documentElement.scrollWidth`); got > width {
				t.Errorf("at %d pixels the %s is %d wide", width, view, got)
			}
			if out := js[string](p, `[...document.querySelectorAll("main *")].filter((e) => {
					const card = e.closest(".card, .number"), box = e.getBoundingClientRect();
					return card && !e.closest(".hidden, pre, svg") && box.width > 0 && box.right > card.getBoundingClientRect().right + 0.5;
				}).map((e) => e.tagName + "." + e.className + " " + e.textContent.slice(0, 40)).join("\n")`); out != "" {
				t.Errorf("at %d pixels these stick out of their cards in the %s:\n%s", width, view, out)
			}
		}
		p.quiet(address)
		p.do(chromedp.Navigate("about:blank")) // a browser has six connections to a server
	}
}

// The texts of an axis do not overlap at any width, and nothing overflows, even with a large font.
func TestPage_anyWidthAndFont_hasItsAxes(t *testing.T) {
	tw, rec := newWheel(t, 1024)
	addOften(t, tw)
	address := serve(t, handlerOf(tw, rec))
	for _, font := range []int{16, 32} {
		p := open(t, chrome(t, chromedp.Flag("blink-settings", fmt.Sprint("defaultFontSize=", font))), address, 1200, "light")
		p.until(`page.live && document.querySelectorAll("#next a").length === 8`)
		if got := js[string](p, `getComputedStyle(document.body).fontSize`); got != fmt.Sprint(font*15/16, "px") {
			t.Errorf("with a font of %d pixels the text has %s", font, got)
		}
		for width := int64(320); width <= 1400; width += 12 {
			p.do(chromedp.EmulateViewport(width, 900))
			if got := js[string](p, `[...document.querySelectorAll(".scale, .axis")].flatMap((axis) => {
					const texts = [...axis.children].filter((e) => e.getClientRects().length > 0);
					return texts.filter((e, i) => i > 0 && e.getBoundingClientRect().left < texts[i - 1].getBoundingClientRect().right + 1 &&
						e.getBoundingClientRect().top < texts[i - 1].getBoundingClientRect().bottom);
				}).map((e) => e.textContent).join()`); got != "" {
				t.Errorf("with a font of %d pixels, at %d pixels these overlap what is before them: %s", font, width, got)
			}
			if got := js[int64](p, `document.documentElement.scrollWidth`); got > width {
				t.Errorf("with a font of %d pixels, at %d pixels the page is %d wide", font, width, got)
			}
		}
	}
}

// The incident: all workers are stuck, and 500 runs are due. Within three seconds the page names the problem, its start
// and its place, and no figure contradicts it.
func TestPage_stuckWorkers_areSaidAtOnce(t *testing.T) {
	rec := dashboard.NewRecorder()
	tw := timewheel.NewTimeWheel(10*time.Millisecond, 60, timewheel.WithPoolSize(8), timewheel.WithLogger(testkit.Quiet()), rec.Option())
	tw.Start()
	t.Cleanup(tw.Stop)
	other, _ := newWheel(t, 60)
	address := serve(t, dashboard.Handler([]dashboard.Source{dashboard.Wheel("orders", tw, rec), dashboard.Wheel("other", other, nil)}))
	p := open(t, chrome(t), address+"#wheel=orders", 1200, "light")
	p.until(`document.querySelector("#findings .verdict")?.textContent === "Working: 0 of 8 workers busy, no run has waited for 1 s."`)
	hung := make(chan struct{})
	t.Cleanup(func() { close(hung) })
	for i := range 500 {
		add(t, tw, timewheel.Task{Key: fmt.Sprint("job-", i), Delay: time.Millisecond, Job: func(*timewheel.Task) { <-hung }})
	}
	p.until(`/^Overloaded for \d s: 8 of 8 workers busy, 492 runs wait, the oldest for \d s/.test(document.querySelector("#findings .verdict").textContent)`)
	t.Logf("the page said so when the oldest run had waited for %v s at most", js[float64](p, `page.state.stats.oldest_wait`))
	p.until(`/^Since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+\.$/.test(document.querySelector("#findings .since").textContent)`)
	if since := js[float64](p, `Date.parse(page.state.now) - Date.parse(page.state.health.findings[0].since) - page.state.stats.oldest_wait * 1000`); since < -100 || since > 100 {
		t.Errorf("the overload began %v ms before the oldest wait", since)
	}
	p.until(`document.querySelector("#announced").textContent.startsWith("Overloaded for")`)
	for what, want := range map[string]string{
		`document.querySelector("#health .sign").textContent`:                                                  "!",
		`document.querySelector("#health .sign").getAttribute("aria-hidden")`:                                  "true",
		`[...document.querySelectorAll("#health button")].map((e) => e.textContent).join()`:                    "Running longest,Due next",
		`document.querySelector("#late-runs").textContent`:                                                     "of 0 runs that ended in the last minute; 492 wait now",
		`document.querySelector("#next-all").textContent`:                                                      "492 wait for a worker",
		`document.querySelector("#runs-all").textContent`:                                                      "8 of 8 workers busy",
		`String([...document.querySelectorAll("#next .in")].every((e) => /^waits [1-9]/.test(e.textContent)))`: "true",
		`String(document.querySelectorAll("#runs a").length + document.querySelectorAll("#next a").length)`:    "16",
		`[...document.querySelectorAll(".number.alarm h3")].map((e) => e.textContent).join()`:                  "Waiting",
		`String(/^now: up to [1-9]/.test(late[1].now.textContent))`:                                            "true",
		`String(/^now: up to [1-9]/.test(late[2].now.textContent))`:                                            "true",
		`getComputedStyle(document.querySelector(".number.alarm h3"), "::after").content`:                      `" !"`,
	} {
		if got := js[string](p, what); got != want {
			t.Errorf("%s is %q, want %q", what, got, want)
		}
	}
	p.do(chromedp.Click(chromedp.CSS("#health button")))
	if got := js[string](p, `document.activeElement.id`); got != "runs-title" {
		t.Errorf("where to look is %q", got)
	}
	js[any](p, `document.querySelector("#runs a").click()`) // as with #next
	p.until(`page.view === "task" && document.querySelector("#task-message").textContent === "Its last run is in progress." &&
		/^[1-9]/.test(document.querySelector("#task-runs td").textContent)`)

	// The overview says the same, and the page of another wheel says where the problem is.
	js[any](p, `location.hash = ""`)
	p.until(`document.querySelector("#sources .wrong .verdict")?.textContent.startsWith("!Overloaded for ") &&
		document.querySelector("#overview-title").textContent === "1 of 2 wheels in trouble"`)
	p.do(chromedp.Click(chromedp.CSS("#sources li:last-child a")))
	p.until(`document.querySelector("#path a").textContent === "All wheels (1 other in trouble)" &&
		document.querySelector("#findings .verdict").textContent === "Working: 0 of 1,024 workers busy, no run has waited for 1 s."`)
	p.quiet(address)
}

// 14 wheels have one line each in the overview, and none on the page of a wheel.
func TestPage_manyWheels_leaveRoom(t *testing.T) {
	var sources []dashboard.Source
	for i := range 14 {
		tw, rec := newWheel(t, 60)
		sources = append(sources, dashboard.Wheel(fmt.Sprint("wheel number ", i), tw, rec))
	}
	p := open(t, chrome(t), serve(t, dashboard.Handler(sources)), 390, "light")
	p.until(`document.querySelectorAll("#sources .source").length === 14 && document.querySelector("#overview-title").textContent === "All 14 wheels work"`)
	p.do(chromedp.Click(chromedp.CSS("#sources li:nth-child(3) a")))
	p.until(`page.view === "wheel" && page.live && page.state?.wheel === "wheel number 2"`)
	if got := js[float64](p, `document.querySelector("#health").getBoundingClientRect().top`); got > 150 {
		t.Errorf("the health begins at %v pixels", got)
	}
	js[any](p, `history.back(), null`)
	p.until(`page.view === "overview"`)
}

// Axe finds nothing, in any view. AXE is the path of axe.min.js of the npm package axe-core.
func TestPage_axe_findsNothing(t *testing.T) {
	path := os.Getenv("AXE")
	if path == "" {
		t.Skip("AXE is not set")
	}
	axe, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tw, rec := newWheel(t, 1024)
	other, _ := newWheel(t, 60)
	addOften(t, tw)
	for i := range 8 {
		add(t, tw, timewheel.Task{Key: fmt.Sprint("bad ", i), Delay: time.Millisecond, Job: func(*timewheel.Task) { panic("value") }})
		add(t, tw, timewheel.Task{Key: fmt.Sprint("far ", i), Delay: time.Hour})
	}
	address := serve(t, dashboard.Handler([]dashboard.Source{dashboard.Wheel("wheel", tw, rec), dashboard.Wheel("other", other, nil)},
		dashboard.AllowControl(everybody)))
	browser := chrome(t)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{320, 768, 1200, 1920} {
			p := open(t, browser, address, width, scheme)
			p.until(`page.live`)
			js[any](p, string(axe)+";null")
			for _, view := range []string{"#", "#wheel=other", "#wheel=wheel", "#wheel=wheel&key=far+1", "#wheel=wheel&key=bad+1"} {
				js[any](p, `location.hash = `+quoted(view))
				p.until(`page.live && (page.view !== "task" || document.querySelector("#task-runs td")) && document.querySelector("main:not([hidden]) .card")`)
				if view == "#wheel=wheel" {
					p.lookUp("far")
					p.until(`document.querySelectorAll("#panics details").length >= 8 && document.querySelectorAll("#found-tasks a").length === 8`)
				}
				js[any](p, `document.querySelectorAll("details").forEach((d) => { d.open = true; })`)
				if got := js[string](p, `axe.run().then((r) => r.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 120) + " " + n.failureSummary).join("\n")).join("\n"))`); got != "" {
					t.Errorf("%s, %d pixels, %s: axe finds\n%s", scheme, width, view, got)
				}
			}
			p.do(chromedp.Navigate("about:blank"))
		}
	}
}

// A list does not change while the user chooses a task from it with the keyboard.
func TestPage_listThatIsUsed_staysAsItIs(t *testing.T) {
	tw, rec := newWheel(t, 60)
	addOften(t, tw)
	address := serve(t, handlerOf(tw, rec))
	p := open(t, chrome(t), address, 1200, "light")
	p.until(`document.querySelectorAll("#next a").length === 8`)
	js[any](p, `document.querySelector("#range button:last-child").focus()`)
	p.do(chromedp.KeyEvent(kb.Tab))
	p.do(chromedp.KeyEvent(kb.Tab))
	key := js[string](p, `document.activeElement.textContent`)
	if !strings.HasPrefix(key, "often ") {
		t.Fatalf("Tab goes to %q", key)
	}
	started := js[float64](p, `page.state.stats.started`)
	p.until(fmt.Sprintf(`page.state.stats.started > %v && document.querySelector(".next-card").matches(".held")`, started+200))
	if got := js[string](p, `document.activeElement.textContent`); got != key {
		t.Errorf("the focus went from %q to %q", key, got)
	}
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until(`!document.querySelector("#task").hidden && document.querySelector("#facts dd").textContent === ` + quoted(key))
	js[any](p, `history.back(), null`)
	p.until(`page.view === "wheel" && !document.querySelector(".next-card").matches(".held")`)

	// Nor does it change while the user has selected a part of it, wherever the selection began.
	p.until(`((row) => row && (getSelection().setBaseAndExtent($("next-title"), 0, row, 1), true))(document.querySelector("#next tr:nth-child(4)"))`)
	selected := `[...document.querySelectorAll("#next .k")].map((e) => e.textContent).join() + "; " + getSelection().focusNode.querySelector(".k").textContent`
	before := js[string](p, selected)
	started = js[float64](p, `page.state.stats.started`)
	p.until(fmt.Sprintf(`page.state.stats.started > %v && document.querySelector(".next-card").matches(".held")`, started+200))
	if after := js[string](p, selected); after != before || !strings.Contains(after, "often ") {
		t.Errorf("selected was %q, and is %q", before, after)
	}
	js[any](p, `getSelection().removeAllRanges()`)
	p.until(`!document.querySelector(".next-card").matches(".held")`)
	p.quiet(address)
}

// Until data of the chosen wheel has arrived, no data of another is shown. An action applies to the task that is shown.
func TestPage_slowServer_mixesNothingUp(t *testing.T) {
	a, _ := newWheel(t, longTurn)
	b, _ := newWheel(t, 100)
	for i := range 3 {
		add(t, a, timewheel.Task{Key: fmt.Sprint("a", i), Interval: time.Hour})
	}
	h := dashboard.Handler([]dashboard.Source{dashboard.Wheel("a", a, nil), dashboard.Wheel("b", b, nil)}, dashboard.AllowControl(everybody))
	events, tasks := make(chan struct{}), make(chan struct{})
	var asked atomic.Int64
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("wheel") == "b":
			<-events
		case r.URL.Query().Get("key") == "a2":
			asked.Add(1)
			<-tasks
		}
		h.ServeHTTP(w, r)
	}))
	p := open(t, chrome(t), address+"#wheel=a", 1200, "light")
	p.until(`document.querySelectorAll("#next a").length === 3`)
	p.lookUp("a1")
	p.until(`!document.querySelector("#task").hidden`)
	p.openTask("a2")
	if !js[bool](p, `document.querySelector("#task").hidden`) {
		t.Error("while a2 is looked up the page offers to remove a1")
	}
	js[int](p, `act("remove", {}, ""), 0`)
	for range 3 { // every second the page asks again, with one request at a time
		js[int](p, `refresh(), 0`)
	}
	for end := time.Now().Add(limit); asked.Load() == 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the page asked %d times before it had an answer", n)
	}
	close(tasks)
	p.until(`!document.querySelector("#task").hidden && document.querySelector("#facts dd").textContent === "a2"`)
	if a.Len() != 3 {
		t.Errorf("a task was removed that the page did not show")
	}

	js[any](p, `location.hash = place("b")`)
	p.until(`page.wheel === "b" && getComputedStyle(document.querySelector("#wheel")).display === "none"`)
	close(events)
	p.until(`getComputedStyle(document.querySelector("#wheel")).display !== "none" && document.querySelector("#pending").textContent === "0"`)
	p.quiet(address)
}

func TestPage_numbers_areWrittenShortAndRight(t *testing.T) {
	tw, _ := newWheel(t, 60)
	p := open(t, chrome(t), serve(t, handlerOf(tw, nil)), 1200, "light")
	p.until(`page.live`)
	js[any](p, `html = (text) => inscribe(make("b"), text).innerHTML.replace(/<span class="escape">(.*?)<\/span>/g, "[$1]"), null`)
	for call, want := range map[string]string{
		`compact(0)`: "0", `compact(100000)`: "100,000", `compact(9999999)`: "9,999,999", `compact(12345678)`: "12.35 M",
		`compact(999999999)`: "1 G", `compact(1.8e19)`: "18 E", `compact(-250000)`: "-250,000",
		`shortened(99999, 1e5)`: "99,999", `shortened(100000, 1e5)`: "100 k", `shortened(123456, 1e5)`: "123.5 k",
		`shortened(999949, 1e5)`: "999.9 k", `shortened(999950, 1e5)`: "1 M", `shortened(-250000, 1e5)`: "-250 k",
		`clock(new Date(2020, 0, 2, 3, 4, 5))`: "2020-01-02 03:04:05", `clock(new Date()).length + ""`: "8",
		`span(1e-9)`: "1 ns", `span(9.996e-7)`: "1 µs", `span(0.0009996)`: "1 ms", `span(0.9996)`: "1 s", `span(1.5)`: "1.5 s",
		`span(59.94)`: "59.9 s", `span(59.96)`: "1 m", `span(60)`: "1 m", `span(61)`: "1 m 1 s", `span(3600)`: "1 h",
		`span(3661)`: "1 h 1 m", `span(86399.9)`: "1 d", `span(290*365.25*86400)`: "290 years",
		`until(-1)`: "now", `until(0.004)`: "now", `until(0.04)`: "40 ms", `until(0.9949)`: "990 ms", `until(0.996)`: "1.0 s",
		`until(59.94)`: "59.9 s", `until(59.96)`: "1 m",
		`html("a\nb\u202e\u0000\u200b")`: `a[\n]b[\u{202e}][\u{0}][\u{200b}]`, `html("  ")`: `[\u{20}\u{20}]`, `html("é 漢字 😀")`: "é 漢字 😀",
		`html(" a b ")`: `[\u{20}]a b[\u{20}]`, `html("\u3164\u2800")`: `[\u{3164}][\u{2800}]`, `html("")`: "",
		`html("a\\nb\u00a0\u3000")`: `a\nb[\u{a0}][\u{3000}]`, // not a line break, and unusual blanks
		`times(-1)`:                 "∞", `times(3)`: "3",
	} {
		if got := js[string](p, call); got != want {
			t.Errorf("%s is %q, want %q", call, got, want)
		}
	}
}

// alarming returns an expression that reports whether the number of this name is shown as an alarm.
func alarming(name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(".number.alarm h3")].some((h) => h.textContent === %q)`, name)
}

// The page shows each figure of the server in its place.
func TestPage_figures_areThoseOfTheWheel(t *testing.T) {
	tw, rec := newWheel(t, 211) // which has sectors of one slot and of two
	add(t, tw, timewheel.Task{Key: "often", Interval: 20 * time.Millisecond, Times: timewheel.Forever,
		Job: func(*timewheel.Task) { time.Sleep(time.Millisecond) }})
	address := serve(t, dashboard.Handler([]dashboard.Source{dashboard.Wheel("panics", tw, rec), dashboard.Wheel("other", tw, nil)}))
	p := open(t, chrome(t), address+"#wheel=panics", 1200, "light")
	p.until(`page.history.filter((p) => p.started > 0).length >= 2`)
	for i, name := range []string{"pending", "waiting", "running", "started", "missed", "panicked"} {
		p.until(fmt.Sprintf(`document.querySelectorAll(".number .value")[%d].textContent === compact(page.state.stats.%s)`, i, name))
	}
	p.until(`/^[1-9][0-9.]*\/s$/.test(document.querySelectorAll(".number .rate")[3].textContent)`)
	if d := js[string](p, `document.querySelectorAll(".number .line")[3].getAttribute("d")`); !strings.HasPrefix(d, "M") || !strings.Contains(d, "L") {
		t.Errorf("the chart of what started is %q", d)
	}
	for i, part := range []string{"tick", "wait", "run"} {
		for j, quantile := range []string{"p50", "p99", "max"} {
			p.until(fmt.Sprintf(`((s) => document.querySelectorAll(".late .figure")[%d].textContent === (s < 1e-6 ? "< 1 µs" : span(s)))(page.state.lateness.%s.%s)`,
				3*i+j, part, quantile))
		}
	}
	if js[bool](p, alarming("Panicked")) {
		t.Error("there is an alarm, and no job has panicked")
	}
	for _, slot := range []int{0, 1, 2, 100, 209, 210} {
		read := js[string](p, fmt.Sprintf(`(point(sectorAt(%d)), document.querySelector("#reading").textContent)`, slot))
		var from, to int
		if n, _ := fmt.Sscanf(read, "slots %d to %d:", &from, &to); n < 2 {
			if _, err := fmt.Sscanf(read, "slot %d:", &from); err != nil {
				t.Fatalf("slot %d is read as %q", slot, read)
			}
			to = from
		}
		if slot < from || slot > to {
			t.Errorf("slot %d is read as %q", slot, read)
		}
	}

	// A panic appears when it happens, and opened details stay open.
	bad := func(n int) {
		add(t, tw, timewheel.Task{Key: fmt.Sprint("bad", n), Interval: time.Millisecond, Job: func(*timewheel.Task) { panic(n) }})
		p.until(fmt.Sprintf(`document.querySelectorAll("#panics details").length === %d`, n))
	}
	bad(1)
	p.do(chromedp.Click(chromedp.CSS("#panics summary")))
	bad(2)
	if got := js[string](p, `document.querySelector("#panics details[open] .who").textContent + document.activeElement.tagName`); got != "bad1SUMMARY" {
		t.Errorf("open is %q", got)
	}
	// The alarm matches the health line.
	p.until(alarming("Panicked") + ` && document.querySelector("#findings .verdict").textContent.startsWith("2 jobs panicked in the last 5 m")`)
	if js[bool](p, alarming("Started")) {
		t.Error("there is an alarm at what is no mistake")
	}

	// Points in the future, after the clock was set back, and old points are not shown. The axis shows the period of
	// the chart.
	kept := js[[]string](p, `(page.source.onmessage = null, show({...page.state, whole: true, now: "2026-01-01T12:00:00Z", panics: [], history:
		["10:59:59.9", "11:00:00.1", "12:00:00", "12:00:00.1"].map((t) => ({time: "2026-01-01T" + t + "Z", pending: 1, waiting: 1, running: 1, started: 1, missed: 1, panicked: 1}))}),
		[...page.history.map((p) => p.time.slice(11, -1)), ...[5, 15, 60].flatMap((m, i) => {
			document.querySelectorAll("#range button")[i].click();
			const [from, to] = [...document.querySelector(".axis").children].map((e) => e.textContent.split(":").map(Number));
			return String(((to[0] - from[0] + 24) % 24 * 60 + to[1] - from[1]) === m);
		})])`)
	if got := strings.Join(kept, " "); got != "11:00:00.1 12:00:00 true true true" {
		t.Errorf("of the history is shown %s", got)
	}

	js[any](p, `location.hash = "#wheel=other"`)
	p.until(`document.title === "other · timewheel" && page.live && page.state`)
	// Without a recorder the page does not say that there was no panic.
	p.until(`document.querySelector("#panics").textContent.startsWith("Unknown") && document.querySelector("#late-runs").textContent === ""`)
	if y := js[float64](p, `scrollY`); y != 0 {
		t.Errorf("the name of a wheel scrolled the page to %v", y)
	}
	p.quiet(address)
}

// The page shows why the server refused a request.
func TestPage_refusals_areToldWhereTheUserLooks(t *testing.T) {
	tw, _ := newWheel(t, longTurn)
	add(t, tw, timewheel.Task{Key: "k", Interval: time.Hour})
	refused := errors.New("it is Sunday")
	p := open(t, chrome(t), serve(t, handlerOf(tw, nil, dashboard.AllowControl(func(r *http.Request) error {
		if r.Method == http.MethodPost {
			return refused
		}
		return nil
	}))), 1200, "light")
	p.until(`page.live`)
	p.lookUp("k")
	p.until(`!document.querySelector("#task").hidden`)
	p.do(chromedp.Click(chromedp.CSS("#run")))
	p.until(`document.querySelector("#task-message.bad")?.textContent === "it is Sunday"`)
	p.enter("#delay", "soon")
	p.until(`document.querySelector("#task-message.bad")?.textContent === "it is Sunday"`)
	// A key that cannot be typed, is too long for a list, or is not valid text, can be opened from a list.
	for _, key := range []string{"a\nb", strings.Repeat("long", 1000), "no\xfftext"} {
		add(t, tw, timewheel.Task{Key: key, Interval: time.Minute})
		p.lookUp(key[:2])
		p.until(`document.querySelectorAll("#found-tasks a").length === 1`)
		p.do(chromedp.Click(chromedp.CSS("#found-tasks a")))
		p.until(`!document.querySelector("#task").hidden && page.found && page.view === "task"`)
		if info, ok := tw.Get(key); !ok || js[int](p, `page.found.slot`) != info.Slot {
			t.Errorf("the page of %.20q shows another task", key)
		}
		if err := tw.RemoveTask(key); err != nil {
			t.Fatal(err)
		}
		p.until(`document.querySelector("#task-message").textContent.startsWith("The task is gone")`)
	}
	p.openTask("ab")
	p.until(`document.querySelector("#task-message").textContent === "No live task has this key."`)
}

// The program is restarted while its page is open, and its wheel has another name.
func TestPage_otherWheels_areFound(t *testing.T) {
	tw, _ := newWheel(t, 60)
	var program restarted
	program.with(dashboard.Handler([]dashboard.Source{dashboard.Wheel("before", tw, nil)}))
	srv := newServer(t, &program)
	p := open(t, chrome(t), srv.URL, 1200, "light")
	p.until(`page.live && page.wheel === "before" && !page.control`)
	program.with(dashboard.Handler([]dashboard.Source{dashboard.Wheel("after", tw, nil)}, dashboard.AllowControl(everybody)))
	srv.CloseClientConnections()
	p.until(`page.live && page.wheel === "after" && page.control`)
}

// An open connection without messages counts as no news.
func TestPage_noNews_isTold(t *testing.T) {
	tw, _ := newWheel(t, 60)
	var silent atomic.Bool
	h := handlerOf(tw, nil)
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if silent.Load() && strings.HasSuffix(r.URL.Path, "/api/events") {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		h.ServeHTTP(w, r)
	}))
	p := open(t, chrome(t), address, 1200, "light")
	p.until(`page.live`)
	js[any](p, `page.source.onmessage = null`) // from here on no messages come
	silent.Store(true)
	p.until(`document.querySelector("#status-text").textContent.startsWith("no news") && !page.live && document.body.classList.contains("old")`)
	silent.Store(false)
	js[any](p, `listen()`)
	p.until(`page.live`)
	p.quiet(address)
}

// A wheel of any shape is drawn without errors, and without overlapping marks.
func TestPage_anyWheel_isDrawn(t *testing.T) {
	browser := chrome(t)
	for _, c := range []struct {
		tick  time.Duration
		slots int
		marks string
	}{
		{time.Nanosecond, 1, "0"},
		{time.Hour, 2, "0 1"},
		{time.Millisecond, 3, "0 1 2"},
		{time.Microsecond, 200, "0 50 100 150"},
		{time.Second, 211, "0 53 106 158"},
		{time.Millisecond, 1 << 24, "0 4.194 M 8.389 M 12.58 M"},
	} {
		tw := timewheel.NewTimeWheel(c.tick, c.slots)
		for i := range 100 {
			add(t, tw, timewheel.Task{Key: fmt.Sprint(i), Interval: time.Hour + time.Duration(i)*c.tick})
		}
		address := serve(t, handlerOf(tw, nil))
		p := open(t, browser, address, 1200, "dark")
		p.until(`document.querySelector("#pending").textContent === "100"`)
		if got := js[string](p, `[...document.querySelectorAll("#marks text")].map((e) => e.textContent).join(" ")`); got != c.marks {
			t.Errorf("a wheel of %d slots has the marks %q, want %q", c.slots, got, c.marks)
		}
		for _, width := range []int64{1200, 320} {
			p.do(chromedp.EmulateViewport(width, 900))
			if out := js[string](p, `[...document.querySelectorAll("#dial text")].filter((e) => {
					const b = e.getBBox(), inner = e.closest("#marks") === null;
					return inner ? Math.hypot(b.width / 2, Math.max(-b.y, b.y + b.height)) > 49 : b.x < -130 || b.x + b.width > 130;
				}).map((e) => e.textContent).join(", ")`); out != "" {
				t.Errorf("with %d slots of %v these have no room: %s", c.slots, c.tick, out)
			}
			if small := js[float64](p, `Math.min(...[...document.querySelectorAll("#dial text")].map((e) => parseFloat(getComputedStyle(e).fontSize) * document.querySelector("#dial").getScreenCTM().a))`); small < 6.8 {
				t.Errorf("at %d pixels the dial has text of %v pixels", width, small)
			}
		}
		tw.Stop()
		p.quiet(address)
	}
}

// touch simulates a finger that touches the point for long and moves up by up.
func (p *tab) touch(at []float64, long time.Duration, up float64) {
	p.Helper()
	finger := func(kind input.DispatchTouchEventType, points ...*input.TouchPoint) {
		p.Helper()
		call(p, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: kind, TouchPoints: append([]*input.TouchPoint{}, points...)})
	}
	finger(input.DispatchTouchEventTypeTouchStart, &input.TouchPoint{X: at[0], Y: at[1]})
	for i := range 10 {
		if up != 0 {
			finger(input.DispatchTouchEventTypeTouchMove, &input.TouchPoint{X: at[0], Y: at[1] - up*float64(i+1)/10})
		}
	}
	time.Sleep(long)
	finger(input.DispatchTouchEventTypeTouchEnd)
}

// A finger can do what a mouse can.
func TestPage_worksByTouch(t *testing.T) {
	tw, rec := newWheel(t, 8)
	addOften(t, tw)
	address := serve(t, handlerOf(tw, rec))
	p := open(t, chrome(t), address, 390, "light")
	p.do(chromedp.EmulateViewport(390, 900, chromedp.EmulateMobile, chromedp.EmulateTouch), chromedp.Navigate(address))
	p.until(`document.querySelectorAll("#next a").length === 8`)
	if got := js[string](p, `document.querySelector("#reading").textContent`); got != "Touch a part of the wheel." {
		t.Errorf("the hint is %q", got)
	}
	slot := func(x, y int) []float64 {
		return js[[]float64](p, fmt.Sprintf(`(() => {
			document.querySelector("#dial").scrollIntoView({block: "center"});
			const p = new DOMPoint(%d, %d).matrixTransform(document.querySelector("#dial").getScreenCTM());
			return [p.x, p.y];
		})()`, x, y))
	}
	p.touch(slot(72, 30), 50*time.Millisecond, 0)
	p.until(`document.querySelector("#reading").textContent.startsWith("slot 2: ")`)
	scrolled := js[float64](p, `scrollY`)
	p.touch(slot(-72, 30), 50*time.Millisecond, -200) // which scrolls the page and does not choose
	p.until(fmt.Sprintf(`scrollY < %v`, scrolled))
	if got := js[string](p, `document.querySelector("#reading").textContent`); !strings.HasPrefix(got, "slot 2: ") {
		t.Errorf("a finger that scrolls reads %q", got)
	}

	js[any](p, `new Promise((done) => { // when the page has come to rest
		let last = -1;
		const look = () => scrollY === last ? done() : (last = scrollY, setTimeout(look, 300));
		look();
	})`)

	// The list changes several times between the touch and its end. On a slow machine the touch may last so long that
	// it counts as another gesture; then the test touches again.
	js[any](p, `document.querySelector("#next").scrollIntoView({block: "center"}), null`)
	for range 5 {
		for end := time.Now().Add(limit); js[bool](p, `page.ref === null`); {
			if time.Now().After(end) {
				t.Fatal("no touch looks up anything")
			}
			at := js[[]float64](p, `((b) => b ? [b.x + b.width / 2, b.y + b.height / 2] : [])(document.querySelector("#next tr:nth-child(5) a")?.getBoundingClientRect())`)
			if len(at) == 0 { // a late wheel has fewer waiting tasks for a moment
				continue
			}
			js[any](p, `addEventListener("pointerdown", (e) => { touchedKey = e.target.textContent }, {capture: true, once: true}), null`)
			p.touch(at, 400*time.Millisecond, 0)
			js[any](p, `new Promise((done) => setTimeout(done, 200))`)
		}
		if want, got := js[string](p, `touchedKey`), js[string](p, `page.ref.key`); got != want || !strings.HasPrefix(want, "often ") {
			t.Errorf("%q was touched, and %q is looked up", want, got)
		}
		js[any](p, `location.hash = place(page.wheel)`)
		p.until(`page.view === "wheel" && page.ref === null`)
		js[any](p, `document.querySelector("#next").scrollIntoView({block: "center"}), null`)
	}
	// The click comes just after the finger is up.
	used := js[[]bool](p, `(() => {
		const row = $("next").firstChild, used = [];
		for (const type of ["pointerdown", "pointerup"]) {
			row.dispatchEvent(new PointerEvent(type, {bubbles: true, pointerType: "touch"}));
			used.push(isUsed($("next")));
		}
		return new Promise((done) => setTimeout(() => done([...used, isUsed($("next"))]), 400));
	})()`)
	if !slices.Equal(used, []bool{true, true, false}) {
		t.Errorf("the list is used at the touch, just after it and long after it: %v", used)
	}
	p.quiet(address)
}

// A stack that the user is reading, or of which a part is selected, stays when further panics come.
func TestPage_stackThatIsRead_stays(t *testing.T) {
	tw, rec := newWheel(t, 60)
	var program restarted
	program.with(handlerOf(tw, rec))
	address := serve(t, &program)
	p := open(t, chrome(t), address, 1200, "light")
	p.until(`page.live`)
	bad := func(key string) {
		add(t, tw, timewheel.Task{Key: key, Delay: time.Millisecond, Job: func(*timewheel.Task) { panic("value") }})
	}
	for _, key := range []string{"selected", "focused"} {
		bad(key)
		p.until(`document.querySelector("#panics .who")?.textContent === ` + quoted(key))
	}
	js[any](p, `document.querySelector("#panics details:last-child summary").click()`)
	js[any](p, `document.querySelector("#panics summary").focus()`)
	js[any](p, `getSelection().selectAllChildren(document.querySelector("#panics [open] pre"))`)
	for i := range 25 {
		bad(fmt.Sprint(i))
		p.until(fmt.Sprintf(`document.querySelector("#panics .who").textContent === "%d"`, i))
	}
	read := `[getSelection().toString().split(" ")[0], document.querySelector("#panics [open] .who").textContent,
		document.activeElement.closest("summary")?.querySelector(".who").textContent].join()`
	if got := js[string](p, read); got != "goroutine,selected,focused" {
		t.Errorf("selected, open and focused are %q", got)
	}
	keys := `[...document.querySelectorAll("#panics .who")].map((e) => e.textContent).join(" ")`
	if got, want := js[string](p, keys), "24 23 22 21 20 19 18 17 16 15 focused selected"; got != want {
		t.Errorf("the panics shown are %q, want %q", got, want)
	}
	js[any](p, `document.activeElement.blur()`)

	// The program is restarted: of the earlier content only the part being read remains.
	other, fresh := newWheel(t, 60)
	other.AfterFunc(time.Millisecond, func() { panic("value") })
	for other.Stats().Panicked == 0 {
		time.Sleep(time.Millisecond)
	}
	program.with(handlerOf(other, fresh))
	js[any](p, `listen()`)
	p.until(keys + ` === "timer selected"`)
	if got := js[string](p, read); got != "goroutine,selected," {
		t.Errorf("selected, open and focused are %q", got)
	}
	if !js[bool](p, `document.querySelector("#panics .who").matches(".timer")`) {
		t.Error("a timer looks like a task")
	}
	if got := js[string](p, `(showPanics($("panics"), {whole: true, panics: [{time: page.state.now, key: "k", exact: true, value: "v", stack: ""}]}, ""),
		document.querySelector("#panics pre").textContent)`); !strings.Contains(got, "too many panics") {
		t.Errorf("the stack that was not sent is %q", got)
	}
	// A stack can be scrolled with the keyboard, and a panic has its date, its zone and a link to its task.
	if got := js[string](p, `(showPanics($("panics"), {whole: true, panics: [{time: "2026-11-22T12:00:00Z", key: "k", exact: true, value: "v", stack: "s"}]}, ""),
		[document.querySelector("#panics pre").tabIndex, document.querySelector("#panics .when").textContent.replace(/ .*:/, " "), document.querySelector("#panics a").hash].join())`); !strings.HasPrefix(got, "0,2026-11-2") || !strings.HasSuffix(got, ",#wheel=wheel&key=k") || len(strings.Fields(got)) < 3 {
		t.Errorf("a panic is %q", got)
	}
	p.quiet(address)
}

// In a stopped wheel nothing is due.
func TestPage_stoppedWheel_promisesNothing(t *testing.T) {
	tw, _ := newWheel(t, longTurn)
	add(t, tw, timewheel.Task{Key: "k", Interval: time.Hour})
	address := serve(t, handlerOf(tw, nil))
	p := open(t, chrome(t), address, 1200, "light")
	p.until(`document.querySelector("#next tr td:nth-child(2)")?.textContent.startsWith("59 m")`)
	p.openTask("k")
	p.until(`document.querySelector("#facts").innerText.includes("in 59 m") && document.querySelector("#announced").textContent.startsWith("Found. Next run in 59 m")`)
	tw.Stop()
	p.until(`document.querySelector("#next tr td:nth-child(2)").textContent === "–"`)
	p.until(`document.querySelector("#facts").innerText.includes("none: the wheel does not run")`)
	p.quiet(address)
}

// The server is gone for a while, behind a proxy that answers for it. The page says so, retries with one request at a
// time, and otherwise stays unchanged.
func TestPage_serverThatComesBack_findsThePageAsItWas(t *testing.T) {
	tw, _ := newWheel(t, 60)
	add(t, tw, timewheel.Task{Key: "k", Interval: time.Hour})
	h := handlerOf(tw, nil)
	var gone atomic.Bool
	answer := make(chan struct{})
	srv := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !gone.Load():
			h.ServeHTTP(w, r)
			return
		case strings.HasSuffix(r.URL.Path, "/api/sources"):
			<-answer
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	p := open(t, chrome(t), srv.URL, 1200, "light")
	p.until(`page.live`)
	p.lookUp("k")
	p.until(`!document.querySelector("#task").hidden`)
	js[any](p, `document.querySelector("nav a").focus()`)
	js[any](p, `said = [], new MutationObserver(() => said.push(document.querySelector("#status-text").textContent))
		.observe(document.querySelector("#status-text"), {childList: true}), null`)
	js[any](p, `asked = 0, fetch = ((fetch) => (...what) => (asked += what[0] === "api/sources", fetch(...what)))(fetch), null`)
	gone.Store(true)
	srv.CloseClientConnections()
	p.until(`page.beginning`)
	for range 3 { // whatever other requests for the wheels are made meanwhile
		js[any](p, `document.dispatchEvent(new Event("visibilitychange")), begin(), null`)
	}
	js[any](p, `new Promise((done) => setTimeout(done, 3500))`) // longer than the pause between two tries
	if n := js[int](p, `asked`); n != 1 {
		t.Errorf("the page asked %d times before it had an answer", n)
	}
	close(answer)
	p.until(`page.again !== 0 && /502.* this is from \d/.test(document.querySelector("#status-text").textContent)`)
	gone.Store(false)
	p.until(`page.live && page.again === 0`)
	if !js[bool](p, `!document.querySelector("#task").hidden && page.ref.key === "k" && document.activeElement.matches("nav a")`) {
		t.Error("the page is not as it was")
	}
	// A message that the server is gone disappears when it answers, and a message about a refusal stays.
	js[any](p, `sayError(new Gone("The server does not answer."), $("look-message")), sayError(new Error("It is Sunday."), $("task-message"))`)
	p.until(`document.querySelector("#look-message").textContent === "" && document.querySelector("#task-message").textContent === "It is Sunday."`)
	for _, text := range js[[]string](p, `said`) {
		if text == "connecting" || text != "page is live" && !strings.Contains(text, "this is from ") {
			t.Errorf("meanwhile it says %q", text)
		}
	}
}

// The colours have enough contrast (WCAG 2.2, 1.4.3 and 1.4.11), even with forced colours.
func TestPage_colours_canBeToldApart(t *testing.T) {
	tw, _ := newWheel(t, 60)
	address := serve(t, handlerOf(tw, nil))
	browser := chrome(t)
	for _, scheme := range []string{"light", "dark"} {
		p := open(t, browser, address, 1200, scheme)
		p.until(`page.live`)
		js[any](p, `ratio = (a, b) => {
			const light = (name) => {
				const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim().slice(1);
				const [r, g, b] = [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
					.map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
				return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
			};
			return Math.max(light(a) / light(b), light(b) / light(a));
		}, null`)
		for _, c := range []struct {
			a, b string
			want float64
		}{
			{"--text", "--card", 4.5}, {"--text", "--ground", 4.5}, {"--text", "--field", 4.5}, {"--quiet", "--card", 4.5},
			{"--quiet", "--ground", 4.5}, {"--bad", "--card", 4.5}, {"--bad", "--field", 4.5}, {"--tasks", "--card", 3},
			{"--spread", "--card", 3}, {"--hand", "--card", 3}, {"--good", "--ground", 3}, {"--frame", "--field", 3}, {"--frame", "--card", 3},
		} {
			if got := js[float64](p, fmt.Sprintf(`ratio(%q, %q)`, c.a, c.b)); !(got >= c.want) {
				t.Errorf("%s: %s on %s has a contrast of %.2f, want %v", scheme, c.a, c.b, got, c.want)
			}
		}
		call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "forced-colors", Value: "active"}, {Name: "prefers-color-scheme", Value: scheme}},
		})
		if same := js[string](p, `["tasks", "hand"].filter((name) => getComputedStyle(document.querySelector(".swatch." + name)).backgroundColor ===
				getComputedStyle(document.querySelector(".card")).backgroundColor).join()`); same != "" {
			t.Errorf("%s, with colours of the user's own: of the legend %s cannot be seen", scheme, same)
		}
		if border := js[string](p, `(() => {
			const e = document.querySelector("h1").appendChild(make("span", "escape"));
			return getComputedStyle(e).borderTopStyle;
		})()`); border != "solid" {
			t.Errorf("%s, with colours of the user's own: an escape has the border %q", scheme, border)
		}
	}
}

func atoi(t *testing.T, text string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
