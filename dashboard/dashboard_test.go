// SPDX-License-Identifier: MIT

package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

func TestPage_anyMountPoint_findsWhatIsBesideIt(t *testing.T) {
	tw, _ := newWheel(t, 60)
	h := handlerOf(tw, nil)
	for _, c := range []struct {
		name    string
		handler http.Handler
		prefix  string
	}{
		{"at the root", h, "/"},
		{"as pprof is", h, "/debug/timewheel/"},
		{"below something called api", h, "/api/"},
		{"stripped", http.StripPrefix("/debug/timewheel", h), "/debug/timewheel/"},
		{"stripped with the slash", http.StripPrefix("/debug/timewheel/", h), "/debug/timewheel/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for file, kind := range map[string]string{
				"":         "text/html; charset=utf-8",
				"page.js":  "text/javascript; charset=utf-8",
				"page.css": "text/css; charset=utf-8",
				"icon.svg": "image/svg+xml; charset=utf-8",
			} {
				w := ask(c.handler, "GET", c.prefix+file+"?anything", nil)
				if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind || w.Body.Len() == 0 {
					t.Errorf("%s: %d, %v, %d bytes", c.prefix+file, w.Code, w.Header(), w.Body.Len())
				}
				if head := ask(c.handler, "HEAD", c.prefix+file, nil); head.Code != http.StatusOK {
					t.Errorf("HEAD %s: %d", c.prefix+file, head.Code)
				}
			}
			if got := answer[sourcesJSON](t, ask(c.handler, "GET", c.prefix+"api/sources", nil), http.StatusOK); len(got.Sources) != 1 {
				t.Errorf("the wheels are %+v", got)
			}
		})
	}
}

// The mux in front of the handler may use any pattern.
func TestHandler_behindAnyPattern_isFound(t *testing.T) {
	tw, _ := newWheel(t, 60)
	h := handlerOf(tw, nil, AllowHosts("wheel.test"))
	guarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r) })
	for _, pattern := range []string{"/", "/debug/", "GET /debug/timewheel/", "wheel.test/debug/timewheel/", "/debug/{what}/", "/{all...}"} {
		mux := http.NewServeMux()
		mux.Handle(pattern, guarded)
		for _, target := range []string{"", "page.js", "api/sources"} {
			if w := ask(mux, "GET", "http://wheel.test/debug/timewheel/"+target, nil); w.Code != http.StatusOK {
				t.Errorf("behind %s, %q is answered with %d", pattern, target, w.Code)
			}
		}
	}
}

// noFlush is a ResponseWriter as some middleware wraps it.
type noFlush struct{ w http.ResponseWriter }

func (n noFlush) Header() http.Header         { return n.w.Header() }
func (n noFlush) Write(p []byte) (int, error) { return n.w.Write(p) }
func (n noFlush) WriteHeader(status int)      { n.w.WriteHeader(status) }

func TestEvents_throughMiddlewareThatKeepsThemBack_isAnError(t *testing.T) {
	tw, _ := newWheel(t, 60)
	h := handlerOf(tw, nil)
	w := ask(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(noFlush{w}, r) }), "GET", "/api/events", nil)
	if got := answer[errorJSON](t, w, http.StatusInternalServerError); !strings.Contains(got.Error, "Flush") {
		t.Errorf("the error is %q", got.Error)
	}
	if n := h.(*handler).pages.Load(); n != 0 {
		t.Errorf("%d pages are counted", n)
	}
}

func TestHandler_requestWithoutABody_isServed(t *testing.T) {
	tw, _ := newWheel(t, 60)
	r, err := http.NewRequest("POST", "/api/remove", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	handlerOf(tw, nil).ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest {
		t.Errorf("the status is %d: %s", w.Code, w.Body)
	}
}

func TestPage_withoutTheSlash_isSentThere(t *testing.T) {
	tw, _ := newWheel(t, 60)
	w := ask(http.StripPrefix("/debug/timewheel", handlerOf(tw, nil)), "GET", "/debug/timewheel", nil)
	if w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != "./timewheel/" {
		t.Errorf("%d to %q", w.Code, w.Header().Get("Location"))
	}
	for _, target := range []string{"/", "/?a=b/c", "http://wheel.test", "http://wheel.test/"} { // as from a proxy
		if w := ask(handlerOf(tw, nil, AllowHosts("wheel.test")), "GET", target, nil); w.Code != http.StatusOK {
			t.Errorf("%s is answered with %d, %v", target, w.Code, w.Header())
		}
	}
	r := httptest.NewRequest("GET", "/a", nil)
	r.Host, r.RequestURI, r.URL.Path = "", "", "" // as created by a test
	w = httptest.NewRecorder()
	if handlerOf(tw, nil).ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Errorf("no address is answered with %d", w.Code)
	}
}

func TestPage_asksNoOtherHost(t *testing.T) {
	tw, _ := newWheel(t, 60)
	w := ask(handlerOf(tw, nil), "GET", "/", nil)
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(w.Header().Get("Content-Security-Policy"), want) {
			t.Errorf("the policy %q does not have %q", w.Header().Get("Content-Security-Policy"), want)
		}
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	other := regexp.MustCompile(`(?i)https?:|[("'=]\s*//|@import`)
	for _, file := range []string{"/", "/page.js", "/page.css", "/icon.svg"} {
		text := strings.ReplaceAll(ask(handlerOf(tw, nil), "GET", file, nil).Body.String(), "http://www.w3.org/2000/svg", "")
		if found := other.FindString(text); found != "" {
			t.Errorf("%s names another host: %q", file, found)
		}
		for _, never := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "onclick=\""} {
			if strings.Contains(text, never) {
				t.Errorf("%s has %s", file, never)
			}
		}
	}
}

func TestHandler_badInput_isToldAsJSON(t *testing.T) {
	tw, _ := newWheel(t, 60)
	stopped, _ := newWheel(t, 60)
	add(t, tw, "a", time.Hour)
	add(t, stopped, "a", time.Hour)
	stopped.Stop()
	readOnly := handlerOf(tw, nil)
	mayAll := Handler([]Source{Wheel("wheel", tw, nil), Wheel("stopped", stopped, nil)},
		AllowControl(func(*http.Request) error { return nil }))
	mayNone := handlerOf(tw, nil, AllowControl(func(*http.Request) error { return errors.New("who are you?") }))
	key := url.Values{"key": {"a"}}
	for _, c := range []struct {
		name    string
		handler http.Handler
		method  string
		target  string
		form    url.Values
		header  []string
		status  int
		says    string
	}{
		{"no such path", readOnly, "GET", "/nothing", nil, nil, 404, "no such page"},
		{"no such API", readOnly, "GET", "/api/nothing", nil, nil, 404, "no such page"},
		{"no such file", readOnly, "GET", "/index.html", nil, nil, 404, "no such page"},
		{"out of the folder", readOnly, "GET", "/../dashboard.go", nil, nil, 404, "no such page"},
		{"posted page", readOnly, "POST", "/", nil, nil, 405, "GET, HEAD"},
		{"posted file", readOnly, "PUT", "/page.js", nil, nil, 405, "GET, HEAD"},
		{"posted wheels", readOnly, "POST", "/api/sources", nil, nil, 405, "GET, HEAD"},
		{"posted state", readOnly, "POST", "/api/wheel", nil, nil, 405, "GET, HEAD"},
		{"deleted task", readOnly, "DELETE", "/api/task?key=a", nil, nil, 405, "GET, HEAD"},
		{"posted search", readOnly, "POST", "/api/search", nil, nil, 405, "GET, HEAD"},
		{"unknown wheel, search", readOnly, "GET", "/api/search?wheel=none&prefix=a", nil, nil, 404, `"none"`},
		{"bad id", readOnly, "GET", "/api/task?id=a+b", nil, nil, 400, "id is malformed"},
		{"JSON body", mayAll, "POST", "/api/remove", key, []string{"Content-Type", "application/json"}, 415, "must be a form"},
		{"body of no type", mayAll, "POST", "/api/remove", key, []string{"Content-Type", ""}, 415, "must be a form"},
		{"another name", readOnly, "GET", "http://evil.test/api/wheel", nil, nil, 403, `"evil.test"`},
		{"page by another name", readOnly, "GET", "http://evil.test:8080/", nil, nil, 403, "AllowHosts"},
		{"removal by another name", mayAll, "POST", "http://evil.test/api/remove", key, nil, 403, "AllowHosts"},
		{"got removal", mayAll, "GET", "/api/remove?key=a", nil, nil, 405, "POST"},
		{"got run", mayAll, "GET", "/api/run?key=a", nil, nil, 405, "POST"},
		{"got reschedule", mayAll, "GET", "/api/reschedule?key=a&delay=1s", nil, nil, 405, "POST"},
		{"unknown wheel, state", readOnly, "GET", "/api/wheel?wheel=none", nil, nil, 404, `"none"`},
		{"unknown wheel, events", readOnly, "GET", "/api/events?wheel=none", nil, nil, 404, `"none"`},
		{"unknown wheel, task", readOnly, "GET", "/api/task?wheel=none&key=a", nil, nil, 404, `"none"`},
		{"unknown wheel, removal", mayAll, "POST", "/api/remove", url.Values{"wheel": {"none"}, "key": {"a"}}, nil, 404, `"none"`},
		{"bad query", readOnly, "GET", "/api/task?key=%zz", nil, nil, 400, "form"},
		{"no key", readOnly, "GET", "/api/task", nil, nil, 400, "key is missing"},
		{"empty key", readOnly, "GET", "/api/task?key=", nil, nil, 400, "key is missing"},
		{"removal, read only", readOnly, "POST", "/api/remove", key, nil, 403, "read-only"},
		{"removal, refused", mayNone, "POST", "/api/remove", key, nil, 403, "who are you?"},
		{"run, refused", mayNone, "POST", "/api/run", key, nil, 403, "who are you?"},
		{"reschedule, refused", mayNone, "POST", "/api/reschedule", key, nil, 403, "who are you?"},
		{"removal from another site", mayAll, "POST", "/api/remove", key, []string{"Sec-Fetch-Site", "cross-site"}, 403, "cross-origin"},
		{"removal from a sister", mayAll, "POST", "/api/remove", key, []string{"Sec-Fetch-Site", "same-site"}, 403, "cross-origin"},
		{"run from another origin", mayAll, "POST", "/api/run", key, []string{"Origin", "https://elsewhere.test"}, 403, "cross-origin"},
		{"key in the query alone", mayAll, "POST", "/api/remove?key=a", nil, nil, 400, "key is missing"},
		{"removal of nothing", mayAll, "POST", "/api/remove", url.Values{}, nil, 400, "key is missing"},
		{"removal of an unknown key", mayAll, "POST", "/api/remove", url.Values{"key": {"b"}}, nil, 404, "no live task"},
		{"run of an unknown key", mayAll, "POST", "/api/run", url.Values{"key": {"b"}}, nil, 404, "no live task"},
		{"reschedule, no delay", mayAll, "POST", "/api/reschedule", key, nil, 400, `delay ""`},
		{"reschedule, bad delay", mayAll, "POST", "/api/reschedule", url.Values{"key": {"a"}, "delay": {"soon"}}, nil, 400, `delay "soon"`},
		{"reschedule, negative", mayAll, "POST", "/api/reschedule", url.Values{"key": {"a"}, "delay": {"-1s"}}, nil, 400, "negative"},
		{"reschedule, too long", mayAll, "POST", "/api/reschedule", url.Values{"key": {"a"}, "delay": {"9999999h"}}, nil, 400, "longer than 292 years"},
		{"run on a stopped wheel", mayAll, "POST", "/api/run", url.Values{"wheel": {"stopped"}, "key": {"a"}}, nil, 409, "stopped"},
		{"form too long", mayAll, "POST", "/api/remove", url.Values{"key": {strings.Repeat("k", 2<<20)}}, nil, 400, "form"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := ask(c.handler, c.method, c.target, c.form, c.header...)
			if got := answer[errorJSON](t, w, c.status); !strings.Contains(got.Error, c.says) {
				t.Errorf("the error is %q, want one about %q", got.Error, c.says)
			}
			if allow := w.Header().Get("Allow"); (c.status == 405) != (allow == c.says) {
				t.Errorf("Allow is %q", allow)
			}
		})
	}
	if info, ok := tw.Get("a"); !ok || time.Until(info.Next) < 50*time.Minute {
		t.Errorf("one of them has changed the task: %+v", info)
	}
}

func TestEvents_head_endsAtOnce(t *testing.T) {
	tw, _ := newWheel(t, 60)
	if w := ask(handlerOf(tw, nil), "HEAD", "/api/events", nil); w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d, %v", w.Code, w.Header())
	}
}

func TestWheels_control_isAsCheckSays(t *testing.T) {
	tw, _ := newWheel(t, 60)
	check := func(r *http.Request) error {
		if r.Header.Get("Authorization") != "yes" {
			return errors.New("no")
		}
		return nil
	}
	for _, c := range []struct {
		h      http.Handler
		header []string
		want   bool
	}{
		{handlerOf(tw, nil), nil, false},
		{handlerOf(tw, nil, AllowControl(check)), nil, false},
		{handlerOf(tw, nil, AllowControl(check)), []string{"Authorization", "yes"}, true},
	} {
		got := answer[sourcesJSON](t, ask(c.h, "GET", "/api/sources", nil, c.header...), http.StatusOK)
		if got.Control != c.want {
			t.Errorf("control with %v is %v", c.header, got.Control)
		}
	}
}

// A site that points its own name at this machine can read nothing.
func TestHandler_host_mustBeAnAddressOrAllowed(t *testing.T) {
	tw, _ := newWheel(t, 60)
	named := AllowHosts("Wheel.test", "other")
	for _, c := range []struct {
		host string
		opts []Option
		want int
	}{
		{"localhost", nil, 200}, {"localhost:8080", nil, 200}, {"LOCALHOST.", nil, 200}, {"a.localhost:1", nil, 200},
		{"127.0.0.1:8080", nil, 200}, {"10.1.2.3", nil, 200}, {"[::1]:8080", nil, 200}, {"[::1]", nil, 200}, {"", nil, 200},
		{"wheel.test", nil, 403}, {"localhost.evil.test", nil, 403}, {"127.0.0.1.evil.test:80", nil, 403}, {"notlocalhost", nil, 403},
		{"a:b:c", nil, 403}, {"*", nil, 403},
		{"wheel.test", []Option{named}, 200}, {"WHEEL.TEST:8080", []Option{named}, 200}, {"wheel.test.", []Option{named}, 200},
		{"a.wheel.test", []Option{named}, 403}, {"evil.test", []Option{named}, 403}, {"evil.test", []Option{named, AllowHosts("*")}, 200},
	} {
		r := httptest.NewRequest("GET", "/api/sources", nil)
		r.Host = c.host
		w := httptest.NewRecorder()
		handlerOf(tw, nil, c.opts...).ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("as %q with %d options the answer is %d, want %d: %s", c.host, len(c.opts), w.Code, c.want, w.Body)
		}
	}
}

func TestHandler_severalWheels_areToldApartByName(t *testing.T) {
	synctest.Test(t, testSeveralWheels)
}

func testSeveralWheels(t *testing.T) {
	a, rec := newWheel(t, 60)
	b, _ := newWheel(t, 100)
	add(t, a, "in a", time.Hour)
	add(t, b, "in b", time.Hour)
	h := Handler([]Source{Wheel("a", a, rec), Wheel("b", b, nil)})
	b.Stop()
	got := answer[sourcesJSON](t, ask(h, "GET", "/api/sources", nil), 200).Sources
	if len(got) != 2 || got[0].Name != "a" || got[1].Name != "b" || got[0].Kind != "wheel" || fmt.Sprint(got[0].Stats.(map[string]any)["pending"]) != "1" ||
		!got[0].Health.Well || got[0].Health.Text != "Working: 0 of 1,024 workers busy, no run has waited for 1 s" ||
		got[1].Health.Well || got[1].Health.Text != "Stopped: 1 task will not run" || len(got[1].Health.Findings) != 1 {
		t.Errorf("the sources are %+v", got)
	}
	for target, slots := range map[string]int{"/api/wheel": 60, "/api/wheel?wheel=a": 60, "/api/wheel?wheel=b": 100} {
		if got := answer[stateJSON](t, ask(h, "GET", target, nil), 200); got.Dial.Slots != slots || got.Stats.Pending != 1 {
			t.Errorf("%s is %+v", target, got)
		}
	}
	for target, there := range map[string]bool{"wheel=a&key=in+a": true, "wheel=b&key=in+a": false, "wheel=b&key=in%20b": true} {
		if got := answer[aboutJSON](t, ask(h, "GET", "/api/task?"+target, nil), 200).Task; (got != nil) != there {
			t.Errorf("%s is %+v", target, got)
		}
	}
	time.Sleep(2 * linger)
}

func TestHandler_wrongSources_panics(t *testing.T) {
	tw, rec := newWheel(t, 60)
	for says, sources := range map[string][]Source{
		"no source":                        nil,
		`wheel "b" is nil`:                 {Wheel("a", tw, rec), Wheel("b", nil, nil)},
		`have the name "b"`:                {Wheel("b", tw, nil), Wheel("b", tw, nil)},
		`name "" is`:                       {Wheel("", tw, nil)},
		`"\xff" is empty or not`:           {Wheel("\xff", tw, nil)},
		`recorder of "b" also belongs`:     {Wheel("a", tw, rec), Wheel("b", tw, rec)},
		`no wheel has the recorder of "a"`: {Wheel("a", tw, NewRecorder())},
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

func TestRecorder_ofAnotherWheel_isAnError(t *testing.T) {
	rec := NewRecorder()
	if _, err := timewheel.New(time.Second, 60, rec.Option()); err != nil {
		t.Fatal(err)
	}
	if _, err := timewheel.New(time.Second, 60, rec.Option()); err == nil || !strings.Contains(err.Error(), "already belongs to a wheel") {
		t.Errorf("the second wheel gets %v", err)
	}
}

func TestTask_isAsGetTells(t *testing.T) {
	synctest.Test(t, testTaskIsAsGetTells)
}

func testTaskIsAsGetTells(t *testing.T) {
	tw, _ := newWheel(t, 60)
	if err := tw.AddTask(&timewheel.Task{
		Key: "k", Interval: 90 * time.Second, Delay: time.Hour, Times: timewheel.Forever, Job: func(*timewheel.Task) {},
	}); err != nil {
		t.Fatal(err)
	}
	info, _ := tw.Get("k")
	got := answer[aboutJSON](t, ask(handlerOf(tw, nil), "GET", "/api/task?key=k", nil), 200).Task
	if got.Key != "k" || !got.Exact || !got.Next.Equal(info.Next) || got.Interval != 90 || got.Times != -1 || got.Slot != info.Slot ||
		got.Circle != info.Circle || got.Waiting {
		t.Errorf("the task is %+v, and Get returns %+v", got, info)
	}
}

// A key may be any bytes, of any length.
func TestTask_anyKey_isFound(t *testing.T) {
	tw, _ := newWheel(t, 60)
	h := handlerOf(tw, nil, AllowControl(func(*http.Request) error { return nil }))
	for _, key := range []string{
		"<img src=x onerror=alert(1)>", `"'&<>;--`, "\x00\xff\xfe", "a/b?c=d&e#f+g%20", "\u2028\u2029", strings.Repeat("ключ", 1000), " ", "..",
	} {
		add(t, tw, key, time.Hour)
		got := answer[aboutJSON](t, ask(h, "GET", "/api/task?key="+url.QueryEscape(key), nil), 200).Task
		if !got.Exact { // then it is found by its id
			got = answer[aboutJSON](t, ask(h, "GET", "/api/task?id="+got.ID, nil), 200).Task
		}
		if got == nil {
			t.Fatalf("the key %q is not found by its id", key)
		}
		if got.Exact != (got.Key == key) || got.Exact != (got.ID == "") || len(got.Key) > maxKeyText+len("…") {
			t.Errorf("the key %q came back as %q", key, got.Key)
		}
		form := url.Values{"key": {key}}
		if !got.Exact {
			form = url.Values{"id": {got.ID}}
		}
		answer[struct{}](t, ask(h, "POST", "/api/remove", form), 200)
		if tw.Exist(key) {
			t.Errorf("the task of %q is still there", key)
		}
	}
}

func TestControl_doesWhatItSays(t *testing.T) {
	tw, _ := newWheel(t, 60)
	h := handlerOf(tw, nil, AllowControl(func(*http.Request) error { return nil }))
	ran := make(chan string, 1)
	job := func(task *timewheel.Task) { ran <- task.Key }
	for _, key := range []string{"run", "move", "remove"} {
		if err := tw.AddTask(&timewheel.Task{Key: key, Interval: time.Hour, Job: job}); err != nil {
			t.Fatal(err)
		}
	}
	answer[struct{}](t, ask(h, "POST", "/api/run", url.Values{"key": {"run"}}, "Sec-Fetch-Site", "same-origin"), 200)
	if key := <-ran; key != "run" {
		t.Errorf("%q ran", key)
	}
	answer[struct{}](t, ask(h, "POST", "/api/reschedule", url.Values{"key": {"move"}, "delay": {"3h"}}), 200)
	if info, _ := tw.Get("move"); time.Until(info.Next) < 2*time.Hour {
		t.Errorf("the task was not moved: %+v", info)
	}
	answer[struct{}](t, ask(h, "POST", "/api/remove", url.Values{"key": {"remove"}}), 200)
	if tw.Exist("remove") {
		t.Error("the task was not removed")
	}
}

func TestKeyText(t *testing.T) {
	long := strings.Repeat("x", maxKeyText)
	for _, c := range []struct {
		key, text string
		exact     bool
	}{
		{"", "", true},
		{"k", "k", true},
		{long, long, true},
		{long + "y", long + "…", false},
		{long[1:] + "é", long[1:] + "…", false},
		{"a\xffb", "a\uFFFDb", false},
		{strings.Repeat("\xff", maxKeyText), "\uFFFD", false},
		{strings.Repeat("\x80", 2*maxKeyText), "…", false},
	} {
		if text, exact := keyText(c.key); text != c.text || exact != c.exact {
			t.Errorf("the text of %q is %q, %v, want %q, %v", c.key, text, exact, c.text, c.exact)
		}
	}
}

func TestSectors(t *testing.T) {
	for slots, want := range map[int]int{1: 1, 60: 60, 200: 200, 201: 67, 211: 120, 600: 200, 1000: 200, 1024: 128, 3600: 200, 4096: 128, 1 << 24: 128} {
		if got := sectors(slots); got != want {
			t.Errorf("%d slots are divided into %d, want %d", slots, got, want)
		}
	}
}
