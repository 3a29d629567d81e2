// SPDX-License-Identifier: MIT

package dashboard

import (
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/internal/host"
	"github.com/seed581295f1/timewheel/timewheel"
)

// patience is the maximum time that a page may take to read an update.
const patience = 10 * time.Second

// policy allows the page to load only its own files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed page
var files embed.FS

// A Source is a wheel or a scheduler that a handler shows under a name. Create one with [Wheel] or [Scheduler].
type Source struct {
	name    string
	kind    string       // "wheel" or "scheduler"
	nothing bool         // the wheel or the scheduler is nil
	rec     recorder     // nil if there is none
	open    func() shown // starts reading the wheel or the scheduler
}

// A recorder records the runs of a wheel or a scheduler.
type recorder interface{ isWired() bool }

// A shown is a source that a handler is showing: a *hub or a *board.
type shown interface {
	title() string
	source(now time.Time) sourceJSON
	remove(ctx context.Context, key string) error
	reschedule(ctx context.Context, key string, d time.Duration) error
	pause(ctx context.Context, key string) error
	resume(ctx context.Context, key string) error
}

// Wheel returns a source for a wheel. The recorder may be nil, in which case the page shows neither lateness nor
// panics.
func Wheel(name string, tw *timewheel.TimeWheel, r *Recorder) Source {
	s := Source{name: name, kind: "wheel", nothing: tw == nil, open: func() shown { return newHub(name, tw, r) }}
	if r != nil {
		s.rec = r
	}
	return s
}

// Scheduler returns a source for a durable scheduler. The recorder may be nil, in which case the page does not show the
// lateness, the run times or the last error of each kind.
func Scheduler(name string, s *durable.Scheduler, r *AttemptRecorder) Source {
	src := Source{name: name, kind: "scheduler", nothing: s == nil}
	src.open = func() shown { return newBoard(name, s, r) }
	if r != nil {
		src.rec = r
	}
	return src
}

// WithEngine returns a copy of s that also reads the health of the scheduler's engine, such as one from package
// durable/postgres. The page then warns if a crash of the engine's server can lose acknowledged tasks. WithEngine has
// no effect on a wheel.
func (s Source) WithEngine(e engine.HealthReporter) Source {
	open := s.open
	s.open = func() shown {
		all := open()
		if b, is := all.(*board); is {
			b.looking.take()
			b.reader.engine = e
			b.looking.give()
		}
		return all
	}
	return s
}

// An Option configures a handler.
type Option func(*handler)

// AllowHosts adds names under which the handler may be reached, without a port, such as
// "timewheel.internal.example.com". By default the handler answers only requests whose Host is an IP address or
// localhost. This prevents DNS rebinding, in which a site points its own name at your machine to read the page through
// a local browser. The name "*" allows every name. Use it only on a server that authenticates every request.
func AllowHosts(names ...string) Option {
	return func(h *handler) {
		h.hosts = append(h.hosts, names...)
	}
}

type handler struct {
	sources  []shown
	hosts    []string                  // names allowed as the Host of a request
	check    func(*http.Request) error // nil if the page is read-only
	payloads func(*http.Request) error // nil if payloads are hidden
	foreign  *http.CrossOriginProtection
	who      func(*http.Request) string
	audit    func(AuditEntry) // nil if there is no audit
	pages    atomic.Int64     // number of open pages

	searching turn // held during a search of a wheel, so that searches use at most one core
}

// Handler returns a handler that shows the sources. It works under any path that ends with a slash:
//
//	http.Handle("/debug/timewheel/", dashboard.Handler([]dashboard.Source{dashboard.Wheel("orders", tw, rec)}))
//
// The options apply to all sources. The handler starts reading the statistics of every source immediately, so call
// Handler before you start the wheels and the schedulers.
//
// Handler panics if there are no sources, or if a wheel or a scheduler is nil. It panics if a name is empty, not valid
// UTF-8, or used twice. It also panics if a recorder is used twice, or if its Option was not passed to a wheel or a
// scheduler.
func Handler(sources []Source, opts ...Option) http.Handler {
	if len(sources) == 0 {
		panic("dashboard: no source")
	}
	names, recorders := make(map[string]bool), make(map[recorder]bool)
	for _, s := range sources {
		switch {
		case s.name == "" || !utf8.ValidString(s.name):
			panic(fmt.Sprintf("dashboard: name %q is empty or not valid UTF-8", s.name))
		case names[s.name]:
			panic(fmt.Sprintf("dashboard: two sources have the name %q", s.name))
		case s.nothing:
			panic(fmt.Sprintf("dashboard: %s %q is nil", s.kind, s.name))
		}
		names[s.name] = true
		if s.rec == nil {
			continue
		}
		if recorders[s.rec] {
			panic(fmt.Sprintf("dashboard: the recorder of %q also belongs to another source", s.name))
		}
		if !s.rec.isWired() {
			panic(fmt.Sprintf("dashboard: no %[2]s has the recorder of %[1]q; pass its Option to one",
				s.name, s.kind))
		}
		recorders[s.rec] = true
	}
	h := &handler{foreign: http.NewCrossOriginProtection(), searching: make(turn, 1)}
	for _, o := range opts {
		o(h)
	}
	for _, s := range sources {
		h.sources = append(h.sources, s.open())
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

// checkHost returns an error if the Host is not allowed.
func (h *handler) checkHost(hostport string) error {
	if host.IsAllowed(hostport, h.hosts) {
		return nil
	}
	return fmt.Errorf("the host %q is not allowed; AllowHosts can allow it", hostport)
}

// route returns the endpoint for a path, wherever the handler is mounted. It considers only the end of the path: a
// name, or api/ and a name.
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
	case "page.js", "scheduler.js":
		return file(name, "text/javascript"), http.MethodGet
	case "page.css":
		return file(name, "text/css"), http.MethodGet
	case "icon.svg":
		return file(name, "image/svg+xml"), http.MethodGet
	case "api/sources":
		return h.overview, http.MethodGet
	case "api/wheel":
		return of(h, h.state), http.MethodGet
	case "api/events":
		return of(h, h.events), http.MethodGet
	case "api/search":
		return of(h, h.search), http.MethodGet
	case "api/scheduler":
		return of(h, h.scheduler), http.MethodGet
	case "api/tasks":
		return of(h, h.tasks), http.MethodGet
	case "api/failures":
		return of(h, h.failures), http.MethodGet
	case "api/sets":
		return of(h, h.sets), http.MethodGet
	case "api/hour":
		return of(h, h.lastHour), http.MethodGet
	case "api/history":
		return of(h, h.history), http.MethodGet
	case "api/bulk":
		return of(h, h.bulk), http.MethodPost
	case "api/task":
		return of(h, h.task), http.MethodGet
	case "api/remove":
		return of(h, h.control("remove")), http.MethodPost
	case "api/run":
		return of(h, h.control("run")), http.MethodPost
	case "api/reschedule":
		return of(h, h.control("reschedule")), http.MethodPost
	case "api/pause":
		return of(h, h.control("pause")), http.MethodPost
	case "api/resume":
		return of(h, h.control("resume")), http.MethodPost
	case "api/cancel":
		return of(h, h.cancel), http.MethodPost
	case "api/pause-kind", "api/resume-kind", "api/pause-all", "api/resume-all", "api/drain-node", "api/undrain-node",
		"api/tune-limits", "api/tune-pool", "api/tune-catchup":
		return of(h, h.operate(strings.TrimPrefix(name, "api/"))), http.MethodPost
	}
	return nil, ""
}

// page serves the page under a path that ends with a slash, because the page's own requests are relative to that path.
// It redirects a path without a trailing slash.
func (h *handler) page(w http.ResponseWriter, r *http.Request) {
	asked, err := url.ParseRequestURI(r.RequestURI) // http.StripPrefix does not change RequestURI
	if err != nil {
		asked = r.URL // the request comes from a test or a careless router
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
		panic(err) // unreachable: the file is embedded
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind+"; charset=utf-8")
		_, _ = w.Write(data) // an error means that the client has gone
	}
}

func (h *handler) overview(w http.ResponseWriter, r *http.Request) {
	all := sourcesJSON{Control: h.mayControl(r) == nil, Sources: make([]sourceJSON, len(h.sources))}
	var read sync.WaitGroup // an unresponsive engine delays only its own source
	for i, s := range h.sources {
		read.Go(func() { all.Sources[i] = s.source(time.Now()) })
	}
	read.Wait()
	send(w, http.StatusOK, all)
}

const formType = "application/x-www-form-urlencoded"

// of returns a handler that calls serve with the source named by the request. The source must have type S: the
// parameter wheel names a *hub, and scheduler names a *board. Without a name, the handler uses the first source of type
// S. It also parses the request's form.
func of[S shown](h *handler, serve func(w http.ResponseWriter, r *http.Request, s S)) http.HandlerFunc {
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
		what, name := "wheel", r.Form.Get("wheel")
		if r.Form.Has("scheduler") {
			what, name = "scheduler", r.Form.Get("scheduler")
		}
		for _, source := range h.sources {
			s, ok := source.(S)
			_, isBoard := source.(*board)
			if ok && (name == "" || name == source.title() && isBoard == (what == "scheduler")) {
				serve(w, r, s)
				return
			}
		}
		fail(w, http.StatusNotFound, fmt.Sprintf("there is no %s %q", what, name))
	}
}

func (h *handler) state(w http.ResponseWriter, _ *http.Request, hub *hub) {
	send(w, http.StatusOK, hub.state(time.Now()))
}

// task serves the data for a key. A missing task is not reported with an error status, because a browser would log it
// as an error.
func (h *handler) task(w http.ResponseWriter, r *http.Request, s shown) {
	key, ok := keyOf(w, r.Form)
	if !ok {
		return
	}
	switch s := s.(type) {
	case *hub:
		send(w, http.StatusOK, s.about(key, time.Now()))
	case *board:
		about, err := s.about(r.Context(), key, func(b []byte) payloadJSON { return h.payload(r, b) })
		reply(w, about, err)
	}
}

func (h *handler) scheduler(w http.ResponseWriter, r *http.Request, b *board) {
	after := int64(-1)
	if text := r.Form.Get("after"); text != "" {
		var err error
		if after, err = strconv.ParseInt(text, 10, 64); err != nil {
			fail(w, http.StatusBadRequest, fmt.Sprintf("after %q is not the number of a point", text))
			return
		}
	}
	send(w, http.StatusOK, b.state(after))
}

func (h *handler) tasks(w http.ResponseWriter, r *http.Request, b *board) {
	q, err := queryOf(r.Form)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	list, err := b.list(r.Context(), q)
	reply(w, list, err)
}

func (h *handler) failures(w http.ResponseWriter, r *http.Request, b *board) {
	groups, err := b.failures(r.Context())
	reply(w, groups, err)
}

func (h *handler) sets(w http.ResponseWriter, r *http.Request, b *board) {
	sets, err := b.sets(r.Context())
	reply(w, sets, err)
}

func (h *handler) lastHour(w http.ResponseWriter, r *http.Request, b *board) {
	hour, err := b.lastHour(r.Context(), r.Form.Get("node"))
	reply(w, hour, err)
}

// history serves a page of attempts that have ended.
func (h *handler) history(w http.ResponseWriter, r *http.Request, b *board) {
	q, err := historyOf(r.Form)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	past, err := b.history(r.Context(), q)
	reply(w, past, err)
}

// reply responds with v, or with an error from a wheel or a scheduler.
func reply(w http.ResponseWriter, v any, err error) {
	switch {
	case err == nil:
		send(w, http.StatusOK, v)
	case errors.Is(err, timewheel.ErrTaskKeyNotFound):
		fail(w, http.StatusNotFound, "no live task has that key")
	case errors.Is(err, timewheel.ErrStopped):
		fail(w, http.StatusConflict, "it was stopped")
	case errors.Is(err, errNoRun):
		fail(w, http.StatusConflict, err.Error())
	case errors.Is(err, durable.ErrInvalidTask):
		fail(w, http.StatusBadRequest, err.Error())
	default:
		fail(w, http.StatusServiceUnavailable, err.Error())
	}
}

func (h *handler) search(w http.ResponseWriter, r *http.Request, hub *hub) {
	if err := h.searching.takeFor(r.Context()); err != nil {
		reply(w, nil, err)
		return
	}
	defer h.searching.give()
	send(w, http.StatusOK, search(hub.tw, r.Form.Get("prefix"), time.Now().Add(searchTime)))
}

// keyOf returns the key from the form. If the form has no valid key, it responds to the request with an error.
func keyOf(w http.ResponseWriter, form url.Values) (key string, ok bool) {
	key, err := formKey(form)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
	}
	return key, err == nil
}

// formKey returns the key from a form, which may contain an id instead.
func formKey(form url.Values) (string, error) {
	key := form.Get("key")
	if key == "" && form.Get("id") != "" {
		text, err := base64.RawURLEncoding.DecodeString(form.Get("id"))
		if err != nil {
			return "", fmt.Errorf("the id is malformed: %v", err)
		}
		key = string(text)
	}
	if key == "" {
		return "", errors.New("the key is missing")
	}
	return key, nil
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
	w.Header().Set("X-Accel-Buffering", "no") // nginx would buffer the events
	c := http.NewResponseController(w)
	if err := c.Flush(); errors.Is(err, http.ErrNotSupported) {
		fail(w, http.StatusInternalServerError, "the handler around the dashboard keeps events back: its "+
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
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has gone
}
