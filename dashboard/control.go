// SPDX-License-Identifier: MIT

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// AllowControl permits control requests for which check returns nil. Such a request can remove, reschedule, pause or
// resume a task by key, or run it now. For a durable scheduler, it can also change all tasks that match a search,
// cancel runs by key or by search, pause or resume kinds, and drain or undrain nodes. If check returns an error, the
// request is refused with the text of that error. Cross-origin requests from browsers are refused before check is
// called; see [http.CrossOriginProtection].
//
// check must identify the user by a cookie, a client certificate or a header set by a proxy, because the page cannot
// send custom headers. When check is called, the Host of the request is known to be allowed; see [AllowHosts]. check is
// also called for GET requests, to decide whether the page shows the buttons. It may be called concurrently, and
// applies to all sources.
func AllowControl(check func(*http.Request) error) Option {
	return func(h *handler) { h.check = check }
}

// AllowPayloads includes the payloads of durable tasks, up to 4 KiB of each, in responses to requests for which check
// returns nil. For all other requests, and without this option, the page shows only the payload size.
func AllowPayloads(check func(*http.Request) error) Option {
	return func(h *handler) { h.payloads = check }
}

// payload returns the payload, or only its size if the request may not read it.
func (h *handler) payload(r *http.Request, b []byte) payloadJSON {
	if h.payloads == nil {
		return payloadJSON{Size: len(b), Hidden: "payloads are not shown on this dashboard"}
	}
	if err := h.payloads(r); err != nil {
		return payloadJSON{Size: len(b), Hidden: err.Error()}
	}
	return newPayloadJSON(b)
}

// control returns a handler that applies the action to the task whose key is in the form.
func (h *handler) control(action string) func(w http.ResponseWriter, r *http.Request, s shown) {
	return func(w http.ResponseWriter, r *http.Request, s shown) {
		entry := AuditEntry{Action: action, Source: s.title()}
		if entry.Err = h.mayControl(r); entry.Err != nil {
			entry.Key, _ = formKey(r.PostForm)
			h.note(r, entry)
			fail(w, http.StatusForbidden, entry.Err.Error())
			return
		}
		key, ok := keyOf(w, r.PostForm)
		if !ok {
			return
		}
		var delay time.Duration // zero unless the action is reschedule
		if action == "reschedule" {
			var err error
			if delay, err = delayOf(r.PostForm.Get("delay")); err != nil {
				fail(w, http.StatusBadRequest, err.Error())
				return
			}
		}
		ctx, cancel := context.WithTimeout(r.Context(), listTime)
		defer cancel()
		switch action {
		case "remove":
			entry.Err = s.remove(ctx, key)
		case "pause":
			entry.Err = s.pause(ctx, key)
		case "resume":
			entry.Err = s.resume(ctx, key)
		case "cancel":
			entry.Err = s.(*board).cancel(ctx, key)
		default:
			entry.Err = s.reschedule(ctx, key, delay)
		}
		if entry.Key = key; entry.Err == nil {
			entry.Tasks = 1
		}
		h.note(r, entry)
		reply(w, struct{}{}, entry.Err)
	}
}

// cancel cancels the runs of the task whose key is in the form.
func (h *handler) cancel(w http.ResponseWriter, r *http.Request, b *board) {
	h.control("cancel")(w, r, b)
}

func (h *handler) mayControl(r *http.Request) error {
	if h.check == nil {
		return errors.New("this dashboard is read-only")
	}
	if err := h.foreign.Check(r); err != nil {
		return err
	}
	return h.check(r)
}

func delayOf(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("delay %q is not a duration such as 90s or 1h30m, or is longer than 292 years", text)
	}
	if d < 0 {
		return 0, fmt.Errorf("delay %v is negative", d)
	}
	return d, nil
}

// bulk counts the tasks that match a query, or applies an action to all of them.
func (h *handler) bulk(w http.ResponseWriter, r *http.Request, b *board) {
	action := r.PostForm.Get("do")
	do, ok := map[string]durable.Action{
		"count": durable.DoNothing, "remove": durable.DoRemove, "run": durable.DoRunNow,
		"pause": durable.DoPause, "resume": durable.DoResume, "cancel": durable.DoCancel,
	}[action]
	q, err := queryOf(r.PostForm)
	switch {
	case err != nil:
	case !ok:
		err = fmt.Errorf("do is %q, and must be count, remove, run, pause, resume or cancel", action)
	case do == durable.DoRunNow &&
		!slices.Contains([]durable.State{durable.Scheduled, durable.Retrying, durable.Parked}, q.State):
		// Running a task changes its state, so the next request continues with the remaining tasks.
		err = errors.New("to run many tasks, search for the state scheduled, retrying or parked")
	case do == durable.DoCancel && q.State != durable.AnyState && q.State != durable.Running:
		err = errors.New("to cancel runs, search for the state running, or for any")
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	entry := AuditEntry{Action: action, Source: b.title(), Query: &q}
	if entry.Err = h.mayControl(r); entry.Err != nil {
		h.note(r, entry)
		fail(w, http.StatusForbidden, entry.Err.Error())
		return
	}
	var done bulkJSON
	done, entry.Err = b.bulk(r.Context(), q, do)
	entry.Tasks = done.Tasks
	if do != durable.DoNothing {
		h.note(r, entry)
	}
	if entry.Err != nil && entry.Tasks > 0 {
		entry.Err = fmt.Errorf("%w; %d tasks were done before", entry.Err, entry.Tasks)
	}
	reply(w, done, entry.Err)
}

// operate returns a handler that pauses or resumes the kind in the form, or all kinds, that drains or undrains the node in
// the form, or that sets numbers in place of those in the code.
func (h *handler) operate(action string) func(w http.ResponseWriter, r *http.Request, b *board) {
	verb, what, _ := strings.Cut(action, "-")
	return func(w http.ResponseWriter, r *http.Request, b *board) {
		entry := AuditEntry{Action: action, Source: b.title()}
		name := r.PostForm.Get(what)
		switch what {
		case "kind":
			entry.Kind = name
		case "node":
			entry.Node = name
		}
		if entry.Err = h.mayControl(r); entry.Err != nil {
			h.note(r, entry)
			fail(w, http.StatusForbidden, entry.Err.Error())
			return
		}
		if verb != "tune" && what != "all" && name == "" {
			fail(w, http.StatusBadRequest, "the "+what+" is missing")
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), listTime)
		defer cancel()
		switch verb {
		case "drain":
			entry.Err = b.s.Drain(ctx, name)
		case "undrain":
			entry.Err = b.s.Undrain(ctx, name)
		case "tune":
			entry.Kind = r.PostForm.Get("kind")
			entry.Err = b.tune(ctx, what, r.PostForm, h.user(r))
		default:
			entry.Err = b.pauseKind(ctx, entry.Kind, verb == "resume", h.user(r), r.PostForm.Get("why"))
		}
		h.note(r, entry)
		reply(w, struct{}{}, entry.Err)
	}
}

// maxList is the maximum number of tasks in a page of a list.
const maxList = 1000

// queryOf returns the query from a form.
func queryOf(form url.Values) (q durable.Query, err error) {
	q = durable.Query{
		Prefix: form.Get("prefix"), Kind: form.Get("kind"), Group: form.Get("group"), Failure: form.Get("failure"),
		After: form.Get("after"),
	}
	if text := form.Get("state"); text != "" {
		if q.State, err = durable.ParseState(text); err != nil {
			return q, err
		}
	}
	for name, is := range map[string]*bool{"repeating": &q.Repeating, "failing": &q.Failing} {
		if text := form.Get(name); text != "" {
			if *is, err = strconv.ParseBool(text); err != nil {
				return q, fmt.Errorf("%s %q must be true or false", name, text)
			}
		}
	}
	q.Limit, err = limitOf(form)
	return q, err
}

// limitOf returns the limit from a form, or 0 if it has none.
func limitOf(form url.Values) (limit int, err error) {
	text := form.Get("limit")
	if text == "" {
		return 0, nil
	}
	if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxList {
		return 0, fmt.Errorf("limit %q must be a number from 1 to %d", text, maxList)
	}
	return limit, nil
}

// historyOf returns the query of a request for attempts.
func historyOf(form url.Values) (q durable.HistoryQuery, err error) {
	q = durable.HistoryQuery{
		Kind: form.Get("kind"), Prefix: form.Get("prefix"), Group: form.Get("group"), Node: form.Get("node"), After: form.Get("after"),
	}
	if outcomes := form.Get("outcome"); outcomes != "" {
		q.Outcomes = strings.Split(outcomes, ",")
	}
	if form.Has("key") || form.Has("id") {
		if q.Key, err = formKey(form); err != nil {
			return q, err
		}
	}
	for name, to := range map[string]*time.Time{"from": &q.From, "before": &q.Before} {
		if at := form.Get(name); at != "" {
			if err := to.UnmarshalText([]byte(at)); err != nil {
				return q, fmt.Errorf("%s %q is not a time such as 2006-01-02T15:04:05Z", name, at)
			}
		}
	}
	if q.Limit, err = limitOf(form); q.Limit == 0 {
		q.Limit = maxPast
	}
	return q, err
}

// tune sets the limits of a kind, the pool size or the catch-up rate. A number that is missing is that of the code.
func (b *board) tune(ctx context.Context, what string, form url.Values, who string) (err error) {
	number := func(name string) int {
		text := form.Get(name)
		if text == "" {
			return 0
		}
		n, wrong := strconv.Atoi(text)
		if wrong != nil || n <= 0 {
			err = fmt.Errorf("%w: %s %q is not a positive number", durable.ErrInvalidTask, strings.ReplaceAll(name, "_", " "), cut(text, 100))
		}
		return n
	}
	by := durable.By(who, form.Get("why"))
	set := map[string]func(context.Context, int, ...durable.PauseOption) error{"pool": b.s.TunePoolSize, "catchup": b.s.TuneCatchUp}[what]
	if set != nil {
		if n := number("n"); err == nil {
			err = set(ctx, n, by)
		}
		return err
	}
	l := durable.KindLimits{Kind: form.Get("kind")}
	l.Here.Concurrency, l.Here.Rate = number("concurrency"), number("rate")
	l.Cluster.Concurrency, l.Cluster.Rate = number("cluster_concurrency"), number("cluster_rate")
	if err != nil {
		return err
	}
	t, err := b.s.Tuned(ctx)
	if err != nil {
		return err
	}
	for _, was := range t.Limits { // a rate keeps the period that the page shows
		if was.Kind == l.Kind {
			l.Here.Per, l.Here.Burst, l.Cluster.Per, l.Cluster.Burst = was.Here.Per, was.Here.Burst, was.Cluster.Per, was.Cluster.Burst
		}
	}
	for _, of := range []*durable.Limit{&l.Here, &l.Cluster} {
		if of.Rate == 0 {
			of.Per, of.Burst = 0, 0
		}
	}
	return b.s.TuneLimits(ctx, l, by)
}
