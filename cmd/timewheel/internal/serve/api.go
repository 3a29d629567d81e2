// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	_ "embed"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
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
	callers []*caller
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
	return &api{s: s, callers: newCallers(tokens), anyone: newAnyone(), log: log, counts: counts}
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
