// SPDX-License-Identifier: MIT

package serve

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
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
	kinds   []string
	of      map[string]*Kind // the same kinds; a reload does not change their fields that are used here
	log     *slog.Logger
	counts  *prometheus.CounterVec
	seal    cursorSeal
	refused *prometheus.CounterVec // by token and bound of its quota
	waiting waiting
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
	{http.MethodGet, "/schedules", mayRead, (*api).schedules},
	{http.MethodPut, "/schedules/{prefix}", mayWrite, (*api).declare},
	{http.MethodGet, "/openapi.json", "", (*api).document},
}

func newAPI(s *durable.Scheduler, cfg *Config, log *slog.Logger, counts *prometheus.CounterVec) *api {
	a := &api{s: s, anyone: newAnyone(), kinds: slices.Sorted(maps.Keys(cfg.Kinds)), of: cfg.Kinds, log: log, counts: counts, seal: newCursorSeal(cfg)}
	a.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "timewheel_serve_quota_refusals_total", Help: "Requests of callers that were refused because of the quota of their token.",
	}, []string{"token", "quota"})
	a.waiting.s = s
	a.setTokens(cfg.Tokens)
	return a
}

// key returns the key in the path, if the caller may use it.
func (c *caller) key(r *http.Request) (string, error) {
	key := r.PathValue("key")
	return key, c.mayUse(key)
}

func (c *caller) mayUse(key string) error {
	switch {
	case !utf8.ValidString(key):
		return wrongField("key", fmt.Sprintf("%q", key), "is not UTF-8")
	case !c.hasKey(key):
		return problemf(http.StatusForbidden, "the token has no right to keys such as %q, but to keys with the prefix %s", cut(key),
			strings.Join(quoted(c.prefixes), " or "))
	}
	return nil
}

// quoted returns the first names, quoted.
func quoted(names []string) (all []string) {
	for _, name := range names[:min(len(names), mostNames)] {
		all = append(all, strconv.Quote(cut(name)))
	}
	return all
}

// noRight returns the error for a kind that the caller has no right to. It is the same whether there is such a kind.
func (c *caller) noRight(kind string) error {
	return problemf(http.StatusForbidden, "the token has no right to tasks of kind %q: it %s", cut(kind), oneOf(kind, c.kinds))
}

// errOtherKind is the error for a key that a task has to which the caller has no right. It does not name the kind.
var errOtherKind = errors.New("a task of a kind to which the token has no right has the key")

// mayChange returns an error if no task can be changed, and the given one if there is a task with the key and the caller
// has no right to its kind.
func (a *api) mayChange(ctx context.Context, c *caller, key string, otherwise error) error {
	if err := a.s.Err(); err != nil || c.all {
		return asUnchanged(err)
	}
	info, is, err := a.s.Get(ctx, key)
	if err == nil && is && !c.hasKind(info.Kind) {
		return otherwise
	}
	return asUnchanged(err)
}

// Changes. Each checks the caller's rights to existing tasks.

func (a *api) addTasks(ctx context.Context, tasks ...durable.Task) error {
	if err := a.s.Err(); err != nil {
		return unchanged{err}
	}
	return a.s.AddTask(ctx, tasks...)
}

func (a *api) addTask(ctx context.Context, t durable.Task) (durable.Info, error) {
	if err := a.s.Err(); err != nil {
		return durable.Info{}, unchanged{err}
	}
	return a.s.AddNew(ctx, t)
}

func (a *api) setTask(ctx context.Context, c *caller, t durable.Task) (stored durable.Info, replaced bool, err error) {
	if err := a.mayChange(ctx, c, t.Key, errOtherKind); err != nil {
		return durable.Info{}, false, err
	}
	return a.s.Put(ctx, t)
}

func (a *api) removeTask(ctx context.Context, c *caller, key string) error {
	if err := a.mayChange(ctx, c, key, durable.ErrTaskKeyNotFound); err != nil {
		return err
	}
	return a.s.RemoveTask(ctx, key)
}

func (a *api) moveTask(ctx context.Context, c *caller, key string, to rescheduleRequest) error {
	if err := a.mayChange(ctx, c, key, durable.ErrTaskKeyNotFound); err != nil {
		return err
	}
	return a.s.Reschedule(ctx, key, to.after(time.Now()))
}

// kindsOf returns the kinds of the tasks that the caller may add.
func (a *api) kindsOf(c *caller) []string {
	if c.all {
		return a.kinds
	}
	return c.kinds
}

// checkServed adds a mistake if a reload has given a right to a kind that this process does not know before a restart.
func (a *api) checkServed(wrong *mistakes, kind string) {
	if kind != "" && a.of[kind] == nil && !wrong.has("kind") {
		wrong.add("kind", fmt.Sprintf("%q", kind), "is served only after a restart of the service")
	}
}

// checkTask returns all mistakes of a task, some of which have been found in its form. If the caller has no right to its
// kind, it returns that.
func (a *api) checkTask(c *caller, t *taskRequest, key string, wrong *mistakes) error {
	if wrong.has("") { // there is no task
		return wrong.problem()
	}
	if t.Kind != "" && !c.hasKind(t.Kind) {
		return c.noRight(t.Kind)
	}
	t.check(wrong, key, a.kindsOf(c))
	a.checkServed(wrong, t.Kind)
	t.checkOnce(wrong, key, a.of[t.Kind])
	t.checkHeaders(wrong, a.of[t.Kind])
	return wrong.problem()
}

// The routes.

func (a *api) put(c *caller, w http.ResponseWriter, r *http.Request) error {
	key, err := c.key(r)
	if err != nil {
		return err
	}
	_, outside := parameters(r) // mistakes of the query and the headers
	ifNone := r.Header.Get("If-None-Match")
	if ifNone != "" && ifNone != "*" {
		outside.add("If-None-Match", ifNone, "must be *")
	}
	if is := r.Header.Get("If-Match"); is != "" {
		outside.add("If-Match", is, "is not allowed: the only condition is If-None-Match: *")
	}
	text, err := readBody(r, "application/json", mostBody)
	if err != nil {
		return err
	}
	var req taskRequest
	wrong := decode(text, &req)
	req.fromHeader(r.Header, &wrong)
	if err := outside.with(a.checkTask(c, &req, key, &wrong)); err != nil {
		return err
	}
	task := req.task(key, joinTrace(r.Header), a.of[req.Kind])
	done, err := a.use(r.Context(), c, 1, sizeOf(&task))
	if err != nil {
		return err
	}
	defer done()
	if ifNone != "" {
		info, err := a.addTask(r.Context(), task)
		return a.stored(c, w, r, task, info, false, err)
	}
	info, replaced, err := a.setTask(r.Context(), c, task)
	return a.stored(c, w, r, task, info, replaced, err)
}

func (a *api) remove(c *caller, w http.ResponseWriter, r *http.Request) error {
	key, err := c.key(r)
	if err != nil {
		return err
	}
	if _, wrong := parameters(r); wrong != nil {
		return wrong.problem()
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
	text, err := readBody(r, "application/json", mostBody)
	if err != nil {
		return err
	}
	var req rescheduleRequest
	wrong := decode(text, &req)
	req.check(&wrong)
	_, query := parameters(r)
	if err := query.with(wrong.problem()); err != nil {
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
	if _, wrong := parameters(r); wrong != nil {
		return wrong.problem()
	}
	info, is, err := a.s.Get(r.Context(), key)
	switch {
	case err != nil:
		return err
	case !is || !c.hasKind(info.Kind):
		return durable.ErrTaskKeyNotFound
	}
	return writeJSON(w, newTaskResponse(info, true))
}

// A listResponse is a page of tasks, without their payloads.
type listResponse struct {
	Tasks []taskResponse `json:"tasks"`
	Next  string         `json:"next,omitempty"` // after= of the next page; none if this is the last
}

func (a *api) list(c *caller, w http.ResponseWriter, r *http.Request) error {
	q, limit, wrong := page(r, "prefix", "kind", "state", "group")
	of := durable.Query{Prefix: q.Get("prefix"), Group: q.Get("group"), After: a.seal.after(c, q.Get("after")), Limit: limit}
	var err error
	if state := q.Get("state"); state != "" {
		if of.State, err = durable.ParseState(state); err != nil {
			wrong.add("state", fmt.Sprintf("%q", state), "%s", oneOf(state, stateNames()))
		}
	}
	of.Kind, err = c.mayList(of.Prefix, q.Get("kind"))
	if err := wrong.with(err); err != nil {
		return err
	}
	found, err := a.s.Find(r.Context(), of)
	if err != nil {
		return ofCursor(err, q.Get("after"))
	}
	page := listResponse{Tasks: []taskResponse{}, Next: a.seal.next(c, found.Next)}
	for _, info := range found.Tasks {
		page.Tasks = append(page.Tasks, newTaskResponse(info, false))
	}
	return writeJSON(w, page)
}

// mayList returns an error unless the caller may list the tasks of the kind whose keys begin with keys. Without a kind it
// returns the caller's only one, or none if the caller has a right to all. It does not list several,
// because a query has one kind.
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
		return "", wrongField("kind", "", "is missing: it %s", oneOf("", c.kinds))
	case !c.hasKind(kind):
		return "", c.noRight(kind)
	}
	return kind, nil
}

func stateNames() (all []string) {
	for _, s := range durable.States() {
		all = append(all, s.String())
	}
	return all
}

// ofCursor returns the error of a page. All other parameters have been checked.
func ofCursor(err error, after string) error {
	if errors.Is(err, durable.ErrInvalidTask) {
		return wrongField("after", fmt.Sprintf("%q", after), "is not the next of a page with the same other parameters")
	}
	return err
}

func (a *api) document(_ *caller, w http.ResponseWriter, r *http.Request) error {
	if _, wrong := parameters(r); wrong != nil {
		return wrong.problem()
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openapi)
	return nil
}

// asUnchanged returns the error of a read before a change.
func asUnchanged(err error) error {
	if err == nil {
		return nil
	}
	return unchanged{err}
}

func writeJSON(w http.ResponseWriter, v any) error { return writeJSONAs(w, http.StatusOK, v) }

func writeJSONAs(w http.ResponseWriter, status int, v any) error {
	text, err := toJSON(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
	return nil
}

// toJSON returns a line of JSON, in which a payload is not longer than it was.
func toJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}
