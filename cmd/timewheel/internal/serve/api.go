// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed581295f1/timewheel/durable"
)

//go:embed openapi.json
var openapi []byte

const (
	mostBody     = 2 << 20 // bytes of a task: its payload in base64 takes 1.4 MB
	mostPage     = 1000    // tasks or attempts in a list
	requestLimit = time.Minute
)

// An api answers callers.
type api struct {
	s       *durable.Scheduler
	callers atomic.Pointer[[]*caller]
	anyone  *caller // without tokens
	log     *slog.Logger
	counts  *prometheus.CounterVec
}

// A route is a method of a path. do writes the answer, or returns an error.
type route struct {
	method, path string
	right        string // of the caller; empty: everyone
	do           func(a *api, c *caller, w http.ResponseWriter, r *http.Request) error
}

var routes = []route{
	{http.MethodGet, "/tasks", mayRead, (*api).list},
	{http.MethodPost, "/tasks", mayWrite, (*api).batch},
	{http.MethodGet, "/tasks/{key}", mayRead, (*api).get},
	{http.MethodPut, "/tasks/{key}", mayWrite, (*api).put},
	{http.MethodDelete, "/tasks/{key}", mayWrite, (*api).remove},
	{http.MethodPost, "/tasks/{key}/reschedule", mayWrite, (*api).reschedule},
	{http.MethodGet, "/history", mayRead, (*api).history},
	{http.MethodGet, "/openapi.json", "", (*api).document},
}

func newAPI(s *durable.Scheduler, tokens []*Token, log *slog.Logger, counts *prometheus.CounterVec) *api {
	a := &api{s: s, anyone: newAnyone(), log: log, counts: counts}
	a.setTokens(tokens)
	return a
}

// handler returns the handler of all routes.
func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	methods := make(map[string][]string)
	for _, rt := range routes {
		methods[rt.path] = append(methods[rt.path], rt.method)
		mux.Handle(rt.method+" "+rt.path, a.serve(rt))
	}
	for path, allowed := range methods {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			a.refuse(w, r, problemf(http.StatusMethodNotAllowed, "the method must be %s", strings.Join(allowed, " or ")))
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.refuse(w, r, problemf(http.StatusNotFound, "there is no %s; /openapi.json lists the paths", r.URL.Path))
	})
	if len(*a.callers.Load()) > 0 { // a reload does not change this
		return mux
	}
	return a.protected(mux)
}

// protected refuses requests that a browser sends on behalf of a web page. It is for a service without tokens.
func (a *api) protected(next http.Handler) http.Handler {
	foreign := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := foreign.Check(r)
		if host := r.Host; err == nil && !isOwnHost(host) {
			err = problemf(http.StatusForbidden, "host %q is neither an IP address nor localhost", host)
		}
		if err != nil {
			a.refuse(w, r, problemf(http.StatusForbidden, "%v", err))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOwnHost reports whether host is an IP address or localhost, which no web site can point at this machine.
func isOwnHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost"
}

// serve checks the caller, and calls the route.
func (a *api) serve(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := a.anyone
		if rt.right != "" {
			switch c = a.identify(r); {
			case c == nil:
				a.refuse(w, r, problemf(http.StatusUnauthorized, "the Authorization must be Bearer with a known token"))
				return
			case rt.right == mayRead && !c.read, rt.right == mayWrite && !c.write:
				a.refuse(w, r, problemf(http.StatusForbidden, "the token has no right to %s", rt.right))
				return
			}
		}
		ctx, cancel := context.WithTimeout(r.Context(), requestLimit)
		defer cancel()
		counted := &counter{ResponseWriter: w}
		if err := rt.do(a, c, counted, r.WithContext(ctx)); err != nil {
			a.refuse(w, r, problemOf(err))
			return
		}
		a.count(r, max(counted.status, http.StatusOK))
	})
}

// A counter is a response that knows its status.
type counter struct {
	http.ResponseWriter
	status int
}

func (c *counter) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (a *api) refuse(w http.ResponseWriter, r *http.Request, p *problem) {
	if p.Status >= http.StatusInternalServerError && r.Context().Err() == nil {
		a.log.Error("a request failed", "method", r.Method, "path", r.URL.Path, "status", p.Status, "error", p.Detail)
	}
	a.count(r, p.Status)
	p.write(w)
}

func (a *api) count(r *http.Request, status int) {
	method := r.Method
	switch method {
	case http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete:
	default:
		method = "other"
	}
	a.counts.WithLabelValues(method, strconv.Itoa(status)).Inc()
}

// body reads the body of a request, which must have the content type.
func (a *api) body(w http.ResponseWriter, r *http.Request, contentType string, most int64) ([]byte, error) {
	is, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || is != contentType {
		return nil, problemf(http.StatusUnsupportedMediaType, "the Content-Type must be %s", contentType)
	}
	tooLarge := problemf(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", most)
	var text []byte
	if r.ContentLength <= most {
		text, err = io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	}
	if r.ContentLength > most || errors.As(err, new(*http.MaxBytesError)) {
		w.Header().Set("Connection", "close") // the rest is not read
		return nil, tooLarge
	}
	if err != nil {
		return nil, problemf(http.StatusBadRequest, "the body cannot be read: %v", err)
	}
	return text, nil
}

// key returns the key in the path, if the caller may use it.
func (c *caller) key(r *http.Request) (string, error) {
	key := r.PathValue("key")
	return key, c.mayUse(key)
}

func (c *caller) mayUse(key string) error {
	switch {
	case !utf8.ValidString(key):
		return problemf(http.StatusBadRequest, "key %q is not UTF-8", key)
	case !c.hasKey(key):
		return problemf(http.StatusForbidden, "the token has no right to keys such as %q", key)
	}
	return nil
}

func noRight(kind string) error {
	return problemf(http.StatusForbidden, "the token has no right to tasks of kind %q", kind)
}

// mayChange returns an error if there is a task with the key and the caller has no right to its kind.
func (a *api) mayChange(ctx context.Context, c *caller, key string) error {
	if c.all {
		return nil
	}
	info, is, err := a.s.Get(ctx, key)
	if err == nil && is && !c.hasKind(info.Kind) {
		return noRight(info.Kind)
	}
	return err
}

// Changes. Each checks the caller's rights.

func (a *api) setTask(ctx context.Context, c *caller, t durable.Task) error {
	if !c.hasKind(t.Kind) {
		return noRight(t.Kind)
	}
	if err := a.mayChange(ctx, c, t.Key); err != nil {
		return err
	}
	return a.s.SetTask(ctx, t)
}

func (a *api) removeTask(ctx context.Context, c *caller, key string) error {
	if err := a.mayChange(ctx, c, key); err != nil {
		return err
	}
	return a.s.RemoveTask(ctx, key)
}

func (a *api) moveTask(ctx context.Context, c *caller, key string, to rescheduleRequest) error {
	after, err := to.after(time.Now())
	if err != nil {
		return err
	}
	if err := a.mayChange(ctx, c, key); err != nil {
		return err
	}
	return a.s.Reschedule(ctx, key, after)
}

// The routes.

func (a *api) put(c *caller, w http.ResponseWriter, r *http.Request) error {
	key, err := c.key(r)
	if err != nil {
		return err
	}
	ifNone := r.Header.Get("If-None-Match")
	if ifNone != "" && ifNone != "*" || r.Header.Get("If-Match") != "" {
		return problemf(http.StatusBadRequest, "the only condition is If-None-Match: *")
	}
	text, err := a.body(w, r, "application/json", mostBody)
	if err != nil {
		return err
	}
	var req taskRequest
	if err := decode(text, &req); err != nil {
		return err
	}
	task, err := req.task(key, joinTrace(r.Header))
	if err != nil {
		return err
	}
	if ifNone == "" {
		if err := a.setTask(r.Context(), c, task); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if !c.hasKind(task.Kind) {
		return noRight(task.Kind)
	}
	if err := a.s.AddTask(r.Context(), task); err != nil {
		return err
	}
	w.WriteHeader(http.StatusCreated)
	return nil
}

func (a *api) remove(c *caller, w http.ResponseWriter, r *http.Request) error {
	key, err := c.key(r)
	if err != nil {
		return err
	}
	if err := a.removeTask(r.Context(), c, key); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *api) reschedule(c *caller, w http.ResponseWriter, r *http.Request) error {
	key, err := c.key(r)
	if err != nil {
		return err
	}
	text, err := a.body(w, r, "application/json", mostBody)
	if err != nil {
		return err
	}
	var req rescheduleRequest
	if err := decode(text, &req); err != nil {
		return err
	}
	if err := a.moveTask(r.Context(), c, key, req); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *api) get(c *caller, w http.ResponseWriter, r *http.Request) error {
	key, err := c.key(r)
	if err != nil {
		return err
	}
	info, is, err := a.s.Get(r.Context(), key)
	switch {
	case err != nil:
		return err
	case !is:
		return problemf(http.StatusNotFound, "no task has the key %q", key)
	case !c.hasKind(info.Kind):
		return noRight(info.Kind)
	}
	return writeJSON(w, newTaskResponse(info, true))
}

// A listResponse is a page of tasks, without their payloads.
type listResponse struct {
	Tasks []taskResponse `json:"tasks"`
	Next  string         `json:"next,omitempty"` // after= of the next page; none if this is the last
}

func (a *api) list(c *caller, w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	limit, err := page(q, "prefix", "kind", "state", "group")
	if err != nil {
		return err
	}
	of := durable.Query{Prefix: q.Get("prefix"), Group: q.Get("group"), After: q.Get("after"), Limit: limit}
	if of.Kind, err = c.mayList(of.Prefix, q.Get("kind")); err != nil {
		return err
	}
	if state := q.Get("state"); state != "" {
		if of.State, err = durable.ParseState(state); err != nil {
			return problemf(http.StatusBadRequest, "%v", err)
		}
	}
	found, err := a.s.Find(r.Context(), of)
	if err != nil {
		return err
	}
	page := listResponse{Tasks: []taskResponse{}, Next: found.Next}
	for _, info := range found.Tasks {
		page.Tasks = append(page.Tasks, newTaskResponse(info, false))
	}
	return writeJSON(w, page)
}

// mayList returns an error unless the caller may list the tasks of the kind whose keys begin with keys. Without a kind it
// returns the caller's only one, or none if the caller has a right to all. It does not list several: the next of a page
// shows the key of its last task, which the caller must be allowed to see.
func (c *caller) mayList(keys, kind string) (string, error) {
	if kind == "" && len(c.kinds) == 1 {
		kind = c.kinds[0]
	}
	switch err := c.mayUse(keys); {
	case err != nil:
		return "", err
	case c.all:
		return kind, nil
	case kind == "":
		return "", problemf(http.StatusBadRequest, "kind must be one of %s", strings.Join(c.kinds, ", "))
	case !c.hasKind(kind):
		return "", noRight(kind)
	}
	return kind, nil
}

// page returns the limit of a list. Its parameters are limit, after and the given ones.
func page(q url.Values, names ...string) (limit int, err error) {
	names = append(names, "limit", "after")
	for name := range q {
		if !slices.Contains(names, name) {
			return 0, problemf(http.StatusBadRequest, "parameter %q must be one of %s", name, strings.Join(names, ", "))
		}
	}
	text := q.Get("limit")
	if text == "" {
		return 100, nil
	}
	if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > mostPage {
		return 0, problemf(http.StatusBadRequest, "limit %q must be 1 to %d", text, mostPage)
	}
	return limit, nil
}

func (a *api) document(_ *caller, w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openapi)
	return nil
}

func writeJSON(w http.ResponseWriter, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n'))
	return nil
}
