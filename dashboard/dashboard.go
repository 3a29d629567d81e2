// SPDX-License-Identifier: MIT

package dashboard

import (
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"sync"
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

// A Source is what a handler shows under a name. [Wheel] makes one.
type Source struct {
	name string
	tw   *timewheel.TimeWheel
	rec  *Recorder
}

// Wheel returns a wheel as a source. The recorder may be nil: then the page has neither the lateness nor the
// panics of the wheel.
func Wheel(name string, tw *timewheel.TimeWheel, r *Recorder) Source { return Source{name, tw, r} }

// An Option changes what requests a handler answers.
type Option func(*handler)

// AllowHosts adds names under which the handler may be reached, without a port, such as
// "timewheel.internal.example.com". Without this option it answers only a request whose Host is an IP address
// or localhost, so that no site can point its own name at your machine and have a browser there read the page
// (DNS rebinding). The name "*" allows every name. It is for a server that authenticates every request.
func AllowHosts(names ...string) Option {
	return func(h *handler) {
		for _, name := range names {
			h.hosts[strings.ToLower(name)] = true
		}
	}
}

type handler struct {
	hubs    []*hub
	hosts   map[string]bool           // names that a request may have as its Host
	check   func(*http.Request) error // nil: read only
	foreign *http.CrossOriginProtection
	pages   atomic.Int64 // open

	searching sync.Mutex // so that searches take one core at most
}

// Handler returns a handler that shows the sources. It works under any path that ends with a slash:
//
//	http.Handle("/debug/timewheel/", dashboard.Handler([]dashboard.Source{dashboard.Wheel("orders", tw, rec)}))
//
// The options are one rule for all sources. The handler reads the accounts of every wheel from now on, so call
// it before the wheels start.
//
// Handler panics if there is no source, if a wheel is nil, if a name is empty, not valid UTF-8, or used twice,
// and if a recorder is used twice or was not given to a wheel by its Option.
func Handler(sources []Source, opts ...Option) http.Handler {
	if len(sources) == 0 {
		panic("dashboard: no source")
	}
	names, recorders := make(map[string]bool), make(map[*Recorder]bool)
	for _, s := range sources {
		switch {
		case s.name == "" || !utf8.ValidString(s.name):
			panic(fmt.Sprintf("dashboard: name %q is empty or not valid UTF-8", s.name))
		case names[s.name]:
			panic(fmt.Sprintf("dashboard: two sources have the name %q", s.name))
		case s.tw == nil:
			panic(fmt.Sprintf("dashboard: wheel %q is nil", s.name))
		}
		names[s.name] = true
		if s.rec == nil {
			continue
		}
		if recorders[s.rec] {
			panic(fmt.Sprintf("dashboard: the recorder of %q is that of another source, too", s.name))
		}
		if s.rec.wheels.Load() == 0 {
			panic(fmt.Sprintf("dashboard: the recorder of %q was given to no wheel; pass its Option to timewheel.New",
				s.name))
		}
		recorders[s.rec] = true
	}
	h := &handler{hosts: make(map[string]bool), foreign: http.NewCrossOriginProtection()}
	for _, o := range opts {
		o(h)
	}
	for _, s := range sources {
		h.hubs = append(h.hubs, newHub(s.name, s.tw, s.rec))
	}
	return h
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	if err := h.checkHost(r.Host); err != nil {
		fail(w, http.StatusForbidden, err.Error())
		return
	}
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

// checkHost returns an error if a request with this Host is not answered. Every browser sends a Host.
func (h *handler) checkHost(hostport string) error {
	host := hostport
	if name, _, err := net.SplitHostPort(hostport); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if h.hosts[host] || h.hosts["*"] || host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return nil
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	return fmt.Errorf("the dashboard is not reached as %q; if it may be, give AllowHosts that name", host)
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
	case "api/sources":
		return h.sources, http.MethodGet
	case "api/wheel":
		return h.wheel(h.state), http.MethodGet
	case "api/events":
		return h.wheel(h.events), http.MethodGet
	case "api/task":
		return h.wheel(h.task), http.MethodGet
	case "api/search":
		return h.wheel(h.search), http.MethodGet
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

func (h *handler) sources(w http.ResponseWriter, r *http.Request) {
	all := sourcesJSON{Control: h.mayControl(r) == nil}
	for _, hub := range h.hubs {
		all.Sources = append(all.Sources, hub.source(time.Now()))
	}
	send(w, http.StatusOK, all)
}

// A serveWheel answers a request about a wheel. The form of the request has been parsed.
type serveWheel func(w http.ResponseWriter, r *http.Request, hub *hub)

const formType = "application/x-www-form-urlencoded"

// wheel finds the wheel named by the request.
func (h *handler) wheel(serve serveWheel) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil {
			r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
		}
		kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if r.Method == http.MethodPost && r.ContentLength != 0 && kind != formType {
			fail(w, http.StatusUnsupportedMediaType,
				fmt.Sprintf("the body must be a form, of type %s and not %q", formType, kind))
			return
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
	if key, ok := keyOf(w, r.Form); ok {
		// It is not an error if there is no live task: a browser would report that.
		send(w, http.StatusOK, hub.about(key, time.Now()))
	}
}

func (h *handler) search(w http.ResponseWriter, r *http.Request, hub *hub) {
	h.searching.Lock()
	defer h.searching.Unlock()
	send(w, http.StatusOK, search(hub.tw, r.Form.Get("prefix"), time.Now().Add(searchTime)))
}

// keyOf returns the key in the form, which may be there as an id. If there is none it answers the request with
// an error.
func keyOf(w http.ResponseWriter, form url.Values) (key string, ok bool) {
	if key = form.Get("key"); key == "" && form.Get("id") != "" {
		text, err := base64.RawURLEncoding.DecodeString(form.Get("id"))
		if err != nil {
			fail(w, http.StatusBadRequest, fmt.Sprintf("the id is malformed: %v", err))
			return "", false
		}
		key = string(text)
	}
	if key == "" {
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
