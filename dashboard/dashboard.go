// SPDX-License-Identifier: MIT

package dashboard

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/timewheel"
)

// patience is how long a page may take to read an update.
const patience = 10 * time.Second

// policy lets the page load its own files, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed page
var files embed.FS

// An Option adds to what a handler shows or may do.
type Option func(*handler)

// WithName sets the name of the handler's first wheel; the default is "wheel".
func WithName(name string) Option { return func(h *handler) { h.hubs[0].name = name } }

// WithRecorder makes the handler show what r records of its first wheel: the lateness and the panics. Give
// r.Observe and r.Panicked to the wheel.
func WithRecorder(r *Recorder) Option { return func(h *handler) { h.hubs[0].rec = r } }

// WithWheel adds a further wheel, which the user can choose on the page by its name. The recorder may be nil.
func WithWheel(name string, tw *timewheel.TimeWheel, r *Recorder) Option {
	return func(h *handler) { h.hubs = append(h.hubs, newHub(name, tw, r)) }
}

type handler struct {
	hubs    []*hub
	check   func(*http.Request) error // nil: read only
	foreign *http.CrossOriginProtection
	pages   atomic.Int64 // open
}

// Handler returns a handler that shows the wheel. It works under any path that ends with a slash:
//
//	http.Handle("/debug/timewheel/", dashboard.Handler(tw))
//
// Handler panics if a wheel is nil, or if a name is empty, not valid UTF-8, or used twice.
func Handler(tw *timewheel.TimeWheel, opts ...Option) http.Handler {
	h := &handler{
		hubs:    []*hub{newHub("wheel", tw, nil)},
		foreign: http.NewCrossOriginProtection(),
	}
	for _, o := range opts {
		o(h)
	}
	for i, hub := range h.hubs {
		if hub.tw == nil {
			panic(fmt.Sprintf("dashboard: wheel %q is nil", hub.name))
		}
		if hub.name == "" || !utf8.ValidString(hub.name) {
			panic(fmt.Sprintf("dashboard: name %q is empty or not valid UTF-8", hub.name))
		}
		for _, other := range h.hubs[:i] {
			if other.name == hub.name {
				panic(fmt.Sprintf("dashboard: two wheels have the name %q", hub.name))
			}
		}
	}
	return h
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	serve, method := h.route(r.URL.Path)
	switch {
	case serve == nil:
		fail(w, http.StatusNotFound, "there is no such page; the dashboard's own path ends with a slash")
	case r.Method == method, r.Method == http.MethodHead && method == http.MethodGet:
		serve(w, r)
	default:
		if method == http.MethodGet {
			method += ", " + http.MethodHead
		}
		w.Header().Set("Allow", method)
		fail(w, http.StatusMethodNotAllowed, "the method must be "+method)
	}
}

// route finds the endpoint of a path, wherever the handler is mounted. It looks only at the end of the path,
// which is a name, or api/ and a name.
func (h *handler) route(urlPath string) (serve http.HandlerFunc, method string) {
	dir, name := path.Split("/" + urlPath)
	if strings.HasSuffix(dir, "/api/") {
		if serve, method = h.endpoint("api/" + name); serve != nil {
			return serve, method
		}
	}
	return h.endpoint(name)
}

func (h *handler) endpoint(name string) (serve http.HandlerFunc, method string) {
	switch name {
	case "":
		return h.page, http.MethodGet
	case "page.js":
		return file(name, "text/javascript"), http.MethodGet
	case "page.css":
		return file(name, "text/css"), http.MethodGet
	case "icon.svg":
		return file(name, "image/svg+xml"), http.MethodGet
	case "api/wheels":
		return h.wheels, http.MethodGet
	case "api/wheel":
		return h.wheel(h.state), http.MethodGet
	case "api/events":
		return h.wheel(h.events), http.MethodGet
	case "api/task":
		return h.wheel(h.task), http.MethodGet
	case "api/remove":
		return h.wheel(h.control(remove)), http.MethodPost
	case "api/run":
		return h.wheel(h.control(runNow)), http.MethodPost
	case "api/reschedule":
		return h.wheel(h.control(reschedule)), http.MethodPost
	}
	return nil, ""
}

// page serves the page under a path that ends with a slash, since the page's own requests are relative to it.
func (h *handler) page(w http.ResponseWriter, r *http.Request) {
	asked, err := url.ParseRequestURI(r.RequestURI) // http.StripPrefix does not change it
	if err != nil {
		asked = r.URL // the request was made by a test, or a router that is not careful
	}
	if dir, base := path.Split(asked.EscapedPath()); base != "" && dir != "" {
		w.Header().Set("Location", "./"+base+"/")
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	w.Header().Set("Content-Security-Policy", policy)
	file("index.html", "text/html")(w, r)
}

// file serves an embedded file.
func file(name, kind string) http.HandlerFunc {
	data, err := files.ReadFile("page/" + name)
	if err != nil {
		panic(err) // a bug: the file is not there
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind+"; charset=utf-8")
		_, _ = w.Write(data) // an error means that the reader has gone
	}
}

func (h *handler) wheels(w http.ResponseWriter, r *http.Request) {
	all := wheelsJSON{Control: h.check != nil && h.check(r) == nil}
	for _, hub := range h.hubs {
		all.Wheels = append(all.Wheels, hub.name)
	}
	send(w, http.StatusOK, all)
}

// A serveWheel answers a request about a wheel. The form of the request has been parsed.
type serveWheel func(w http.ResponseWriter, r *http.Request, hub *hub)

// wheel finds the wheel named by the request.
func (h *handler) wheel(serve serveWheel) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil {
			r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
		}
		if err := r.ParseForm(); err != nil {
			fail(w, http.StatusBadRequest, "the form cannot be read: "+err.Error())
			return
		}
		name := r.Form.Get("wheel")
		for _, hub := range h.hubs {
			if name == "" || name == hub.name {
				serve(w, r, hub)
				return
			}
		}
		fail(w, http.StatusNotFound, fmt.Sprintf("there is no wheel %q", name))
	}
}

func (h *handler) state(w http.ResponseWriter, _ *http.Request, hub *hub) {
	send(w, http.StatusOK, hub.state(time.Now()))
}

func (h *handler) task(w http.ResponseWriter, r *http.Request, hub *hub) {
	key, ok := keyOf(w, r.Form)
	if !ok {
		return
	}
	if info, ok := hub.tw.Get(key); ok {
		send(w, http.StatusOK, newTaskJSON(info))
	} else {
		send(w, http.StatusOK, nil) // not an error: a browser would report that in its console
	}
}

// keyOf returns the key in the form. If there is none it answers the request with an error.
func keyOf(w http.ResponseWriter, form url.Values) (key string, ok bool) {
	if key = form.Get("key"); key == "" {
		fail(w, http.StatusBadRequest, "the key is missing")
	}
	return key, key != ""
}

// events serves the state of the wheel as it changes, until the page is closed or reads too slowly.
func (h *handler) events(w http.ResponseWriter, r *http.Request, hub *hub) {
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return
	}
	if h.pages.Add(1) > maxPages {
		h.pages.Add(-1)
		w.Header().Set("Retry-After", "10")
		fail(w, http.StatusServiceUnavailable, fmt.Sprintf("%d pages are open", maxPages))
		return
	}
	defer h.pages.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep the events back
	c := http.NewResponseController(w)
	if err := c.Flush(); errors.Is(err, http.ErrNotSupported) {
		fail(w, http.StatusInternalServerError, "what is around the dashboard's handler keeps events back: its "+
			"http.ResponseWriter has neither Flush nor Unwrap")
		return
	}
	p := hub.open()
	defer hub.close(p)
	for {
		select {
		case <-r.Context().Done():
			return
		case text := <-p.events:
			// If the server does not support deadlines, a slow page blocks this goroutine and nothing else.
			_ = c.SetWriteDeadline(time.Now().Add(patience))
			if _, err := w.Write(text); err != nil {
				return
			}
			if err := c.Flush(); err != nil {
				return
			}
		}
	}
}

func fail(w http.ResponseWriter, status int, text string) { send(w, status, errorJSON{text}) }

func send(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the reader has gone
}
