// SPDX-License-Identifier: MIT

package serve

import (
	"fmt"
	"net/http"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// bulkFor is how long a request may change tasks, before it answers with the place to go on from.
const bulkFor = 5 * time.Second

// A bulkRequest selects tasks.
type bulkRequest struct {
	Kind    string `json:"kind"`
	Prefix  string `json:"prefix"`
	Group   string `json:"group"`
	State   string `json:"state"`
	Failure string `json:"failure"` // a part of the last attempt's error
	After   string `json:"after"`
}

// A bulkResponse counts the tasks that were changed.
type bulkResponse struct {
	Tasks int    `json:"tasks"`
	Next  string `json:"next,omitempty"` // after of the next request; none if all tasks were looked at
}

// bulkRoutes change all tasks that match a request. Tasks with such keys have the same paths, but other methods.
var bulkRoutes = []route{
	{http.MethodPost, "/tasks/unpark", mayWrite, bulk(durable.DoRunNow, durable.Parked)},
	{http.MethodPost, "/tasks/run", mayWrite, bulk(durable.DoRunNow, durable.AnyState)},
	{http.MethodPost, "/tasks/pause", mayWrite, bulk(durable.DoPause, durable.AnyState)},
	{http.MethodPost, "/tasks/resume", mayWrite, bulk(durable.DoResume, durable.Paused)},
	{http.MethodPost, "/tasks/cancel", mayWrite, bulk(durable.DoCancel, durable.Running)},
	{http.MethodPost, "/tasks/remove", mayWrite, bulk(durable.DoRemove, durable.AnyState)},
	{http.MethodPost, "/tasks/count", mayRead, bulk(durable.DoNothing, durable.AnyState)},
}

// bulk returns the handler of an action. Tasks are in the state, unless that is AnyState.
func bulk(do durable.Action, state durable.State) func(*api, *caller, http.ResponseWriter, *http.Request) error {
	return func(a *api, c *caller, w http.ResponseWriter, r *http.Request) error {
		text, err := readBody(r, "application/json", mostBody)
		if err != nil {
			return err
		}
		var req bulkRequest
		wrong := decode(text, &req)
		of := durable.Query{Prefix: req.Prefix, Group: req.Group, Failure: req.Failure, After: a.seal.after(c, req.After), State: state}
		if req.State != "" && !wrong.has("state") {
			is, failed := durable.ParseState(req.State)
			switch {
			case failed != nil:
				wrong.add("state", fmt.Sprintf("%q", req.State), "%s", oneOf(req.State, stateNames()))
			case state != durable.AnyState && is != state:
				wrong.add("state", fmt.Sprintf("%q", req.State), "must be %s for this path", state)
			}
			of.State = is
		}
		if do == durable.DoRemove && len(wrong) == 0 && req.Kind+req.Prefix+req.Group+req.State+req.Failure == "" {
			wrong.add("", "", "at least one of kind, prefix, group, state and failure must be given")
		}
		_, query := parameters(r)
		if !wrong.has("") && !wrong.has("kind") && !wrong.has("prefix") {
			of.Kind, err = c.mayList(of.Prefix, req.Kind)
		}
		if err := query.with(wrong.with(err)); err != nil {
			return err
		}
		if err := a.s.Err(); err != nil {
			return unchanged{err}
		}
		var answer bulkResponse
		for began := time.Now(); ; {
			n, next, err := a.s.BulkStep(r.Context(), of, do)
			answer.Tasks += n
			if err != nil {
				return ofCursor(err, req.After)
			}
			if of.After = next; next == "" || time.Since(began) > bulkFor {
				answer.Next = a.seal.next(c, next)
				return writeJSON(w, answer)
			}
		}
	}
}
