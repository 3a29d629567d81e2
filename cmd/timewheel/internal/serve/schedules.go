// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// mostSchedule is the maximum size of a declared schedule, in bytes.
const mostSchedule = mostBatch

// A scheduleRequest declares the repeating tasks under a prefix.
type scheduleRequest struct {
	Version int            `json:"version"`
	Tasks   []declaredTask `json:"tasks"`
}

// A declaredTask is a task of a declared schedule.
type declaredTask struct {
	Key string `json:"key"`
	taskRequest
}

// A scheduleResponse counts the changes.
type scheduleResponse struct {
	Added     int   `json:"added"`
	Changed   int   `json:"changed"`
	Removed   int   `json:"removed"`
	Unchanged int   `json:"unchanged"`
	Newer     int64 `json:"newer,omitempty"` // the version that is there, if it is higher; then nothing has changed
}

// declare applies a declared schedule. The caller needs rights to the kinds of the tasks that are there, too.
func (a *api) declare(c *caller, w http.ResponseWriter, r *http.Request) error {
	prefix := r.PathValue("prefix")
	if err := c.mayUse(prefix); err != nil {
		return err
	}
	if err := needType(r, "application/json"); err != nil { // before it waits
		return err
	}
	leave, err := c.enter(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	text, err := readBody(r, "application/json", mostSchedule)
	if err != nil {
		return err
	}
	var req scheduleRequest
	wrong := decode(text, &req)
	for _, t := range req.Tasks {
		if t.Kind != "" && !c.hasKind(t.Kind) {
			return c.noRight(t.Kind)
		}
	}
	if !wrong.has("") { // there is a schedule
		a.checkSchedule(&wrong, prefix, &req, c)
	}
	_, query := parameters(r)
	if err := query.with(wrong.problem()); err != nil {
		return err
	}
	if err := a.mayChangeAll(r.Context(), c, prefix); err != nil {
		return err
	}
	set, size := durable.TaskSet{Prefix: prefix, Version: int64(req.Version)}, 0
	for i := range req.Tasks {
		t := &req.Tasks[i]
		set.Tasks = append(set.Tasks, t.task(t.Key, joinTrace(r.Header), new(Kind)))
		size += sizeOf(&set.Tasks[i])
	}
	end, err := a.use(r.Context(), c, len(set.Tasks), size)
	if err != nil {
		return err
	}
	defer end()
	done, err := a.s.Schedule(r.Context(), set)
	if errors.Is(err, durable.ErrInvalidTask) { // all else has been checked
		p := problemf(http.StatusConflict, "the schedule and another one, of which one prefix begins the other, have a task in common")
		p.cause = err
		return p
	}
	if err != nil {
		return err
	}
	return writeJSON(w, scheduleResponse{done.Added, done.Changed, done.Removed, done.Unchanged, done.Newer})
}

// mayChangeAll is mayChange for all tasks whose keys begin with the prefix.
func (a *api) mayChangeAll(ctx context.Context, c *caller, prefix string) error {
	if err := a.s.Err(); err != nil || c.all {
		return asUnchanged(err)
	}
	for of := (durable.Query{Prefix: prefix, Limit: mostPage}); ; {
		found, err := a.s.Find(ctx, of)
		if err != nil {
			return asUnchanged(err)
		}
		for _, info := range found.Tasks {
			if !c.hasKind(info.Kind) {
				return errOtherKind
			}
		}
		if of.After = found.Next; of.After == "" {
			return nil
		}
	}
}

// checkSchedule adds the mistakes of a schedule, some of which have been found in its form.
func (a *api) checkSchedule(wrong *mistakes, prefix string, req *scheduleRequest, c *caller) {
	kinds := a.kindsOf(c)
	checkSize(wrong, "prefix", len(prefix), durable.MaxPrefix)
	if req.Version < 0 {
		wrong.add("version", fmt.Sprint(req.Version), "must not be negative")
	}
	if req.Tasks == nil && !wrong.has("tasks") {
		wrong.add("tasks", "", "is missing: an empty list removes all tasks of the schedule")
	}
	if len(req.Tasks) > durable.MaxSet {
		wrong.add("tasks", "", "has %d tasks; at most %d are allowed", len(req.Tasks), durable.MaxSet)
		return
	}
	form := *wrong
	seen := make(map[string]int, len(req.Tasks))
	for i := range req.Tasks {
		t, field := &req.Tasks[i], fmt.Sprintf("tasks[%d]", i)
		of := form.in(field)
		formed := len(of)
		if of.has("") { // there is no task
			continue
		}
		t.check(&of, t.Key, kinds)
		a.checkServed(&of, t.Kind)
		if t.IdempotencyKey != nil {
			of.add("idempotency_key", "", "is not allowed in a schedule")
			t.IdempotencyKey = nil
		}
		t.checkOnce(&of, t.Key, a.of[t.Kind])
		t.checkHeaders(&of, a.of[t.Kind])
		switch first, is := seen[t.Key]; {
		case of.has("key"):
		case is:
			of.add("key", fmt.Sprintf("%q", t.Key), "is that of tasks[%d]", first)
		default:
			if seen[t.Key] = i; !strings.HasPrefix(t.Key, prefix) {
				of.add("key", fmt.Sprintf("%q", t.Key), "must begin with the prefix, %q", cut(prefix))
			}
		}
		if t.Interval == 0 && t.Cron == "" && !of.has("interval") && !of.has("cron") {
			of.add("cron", "", "is missing: a task of a schedule has cron or interval")
		}
		if t.Times > 0 {
			of.add("times", fmt.Sprint(t.Times), "must be -1: a task of a schedule runs until it is removed")
		}
		if t.MaxDelay != 0 {
			of.add("max_delay", "", "is not allowed in a schedule")
		}
		wrong.take(of[formed:], func(m *mistake) { m.Field = field + "." + m.Field })
	}
}

// A schedulesResponse lists the declared schedules.
type schedulesResponse struct {
	Schedules []scheduleInfo `json:"schedules"`
}

// A scheduleInfo is a declared schedule. Its tasks are those whose keys begin with the prefix.
type scheduleInfo struct {
	Prefix     string    `json:"prefix"`
	Version    *int64    `json:"version,omitempty"`    // the last one that was applied in full
	Unfinished *int64    `json:"unfinished,omitempty"` // a version that was begun since, so that the tasks are a mixture
	At         time.Time `json:"at,omitzero"`          // when the version was first applied
}

// schedules lists the declared schedules whose prefixes the caller may use.
func (a *api) schedules(c *caller, w http.ResponseWriter, r *http.Request) error {
	if _, wrong := parameters(r); wrong != nil {
		return wrong.problem()
	}
	sets, err := a.s.Sets(r.Context())
	if err != nil {
		return err
	}
	all := schedulesResponse{Schedules: []scheduleInfo{}}
	for _, set := range sets {
		if c.mayUse(set.Prefix) != nil {
			continue
		}
		of := scheduleInfo{Prefix: set.Prefix, At: set.At.UTC()}
		if set.Version >= 0 {
			of.Version = &set.Version
		}
		if set.Unfinished >= 0 {
			of.Unfinished = &set.Unfinished
		}
		all.Schedules = append(all.Schedules, of)
	}
	return writeJSON(w, all)
}
