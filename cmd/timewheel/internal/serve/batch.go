// SPDX-License-Identifier: MIT

package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

const (
	mostBatch   = 8 << 20 // bytes of a batch
	mostLines   = 10_000
	mostBatches = 8 // of one caller that are read and applied at the same time
	batchWait   = 5 * time.Second
	addsAtOnce  = 1000 // tasks of one AddTask
	atOnce      = 64   // other changes of one batch at the same time
	batchType   = "application/x-ndjson"
)

// A line is one change of a batch.
type line struct {
	Op  string `json:"op"` // put, the default, add, delete or reschedule
	Key string `json:"key"`
	taskRequest

	to rescheduleRequest
}

func (l *line) adds() bool { return l.Op == "" || l.Op == "put" || l.Op == "add" }

// A lineResponse is the outcome of a line.
type lineResponse struct {
	Line     int      `json:"line"`
	Key      string   `json:"key"`
	Status   int      `json:"status"`
	Repeated bool     `json:"repeated,omitempty"` // an earlier line or request with the same idempotency key has done it
	Detail   string   `json:"detail,omitempty"`   // why it failed
	Errors   mistakes `json:"errors,omitempty"`
	Effect   effect   `json:"effect,omitempty"`
}

// A deed is a line to be applied by a caller.
type deed struct {
	op   string
	adds bool
	task durable.Task // only the key for delete and reschedule
	to   rescheduleRequest
	out  *lineResponse
	by   *caller
	why  *problem // if it has failed
}

func (d *deed) end(err error, done int) {
	switch {
	case err == nil:
		d.out.Status = done
		return
	case errors.Is(err, durable.ErrRepeated):
		d.out.Status, d.out.Repeated = http.StatusOK, true
		return
	}
	d.why = problemOf(err)
	d.out.Status, d.out.Detail, d.out.Errors, d.out.Effect = d.why.Status, d.why.Detail, d.why.Errors, d.why.Effect
}

// batch applies a batch. If a line is malformed, or the quota of the caller does not allow all of them, it refuses the whole
// batch before changing anything. Otherwise it answers with a line for each line of the batch.
func (a *api) batch(c *caller, w http.ResponseWriter, r *http.Request) error {
	if err := needType(r, batchType); err != nil { // before it waits
		return err
	}
	_, outside := parameters(r) // mistakes of the query and the headers
	if r.Header.Values("Idempotency-Key") != nil {
		outside.add("Idempotency-Key", "", "is not allowed for a batch: each line has an idempotency_key of its own")
	}
	leave, err := c.enter(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	text, err := readBody(r, batchType, mostBatch)
	if err != nil {
		return err
	}
	results, deeds, err := a.readBatch(c, text, joinTrace(r.Header))
	if err := outside.with(err); err != nil {
		return err
	}
	n, size := 0, 0
	for _, d := range deeds {
		if d.adds {
			n++
			size += sizeOf(&d.task)
		}
	}
	done, err := a.use(r.Context(), c, n, size)
	if err != nil {
		return err
	}
	defer done()
	a.apply(r.Context(), deeds)
	for _, d := range deeds {
		if d.why != nil && d.why.cause != nil { // one is enough: the store has failed for all
			a.note(w, r, d.why)
			break
		}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	for i := range results {
		if err := e.Encode(&results[i]); err != nil {
			return err
		}
	}
	w.Header().Set("Content-Type", batchType)
	_, _ = w.Write(out.Bytes())
	return nil
}

// enter waits for a place for a batch, and returns a function that leaves it.
func (c *caller) enter(ctx context.Context) (leave func(), _ error) {
	select {
	case c.batches <- struct{}{}:
		return func() { <-c.batches }, nil
	case <-time.After(batchWait):
		return nil, failure(http.StatusServiceUnavailable, effectNone, nil,
			fmt.Sprintf("%d batches of this caller are in progress", mostBatches))
	case <-ctx.Done():
		return nil, unchanged{ctx.Err()}
	}
}

// readBatch returns an outcome for each line that is not blank, and the lines to be applied.
func (a *api) readBatch(c *caller, text []byte, trace string) ([]lineResponse, []*deed, error) {
	n := min(bytes.Count(text, []byte("\n"))+1, mostLines)
	results, deeds := make([]lineResponse, 0, n), make([]*deed, 0, n)
	var wrong, ofTasks mistakes // ofTasks are outcomes of their lines, unless the batch is refused
	number := 0
	place := func(m *mistake) { m.Line = number }
	for one := range bytes.Lines(text) {
		number++
		if len(bytes.TrimSpace(one)) == 0 {
			continue
		}
		if len(results) == mostLines {
			return nil, nil, problemf(http.StatusRequestEntityTooLarge, "the batch has more than %d lines", mostLines)
		}
		if wrong.full() {
			break
		}
		l, of := readLine(one)
		wrong.take(of, place)
		results = append(results, lineResponse{Line: number, Key: l.Key}) // within the capacity, so it stays in place
		d := &deed{op: l.Op, adds: l.adds(), task: durable.Task{Key: l.Key}, to: l.to, out: &results[len(results)-1], by: c}
		err := c.mayUse(l.Key)
		if formed := len(of); err == nil && d.adds && !of.has("op") {
			if err = a.checkTask(c, &l.taskRequest, l.Key, &of); err == nil {
				d.task = l.task(l.Key, trace, a.of[l.Kind])
			}
			ofTasks.take(of[formed:], place)
		}
		if len(wrong) > 0 {
			continue
		}
		if err != nil {
			d.end(err, 0)
			continue
		}
		deeds = append(deeds, d)
	}
	if len(wrong) > 0 {
		wrong.take(ofTasks, func(*mistake) {})
	}
	return results, deeds, wrong.problem()
}

// readLine returns the change of a line, and the mistakes of its form. A mistake of its task is an outcome of the line.
func readLine(text []byte) (l line, wrong mistakes) {
	wrong = decode(text, &l)
	switch l.Op { // a line of the first two has fewer fields
	case "delete":
		wrong = decode(text, new(struct {
			Op  string `json:"op"`
			Key string `json:"key"`
		}))
	case "reschedule":
		var to struct {
			Op  string `json:"op"`
			Key string `json:"key"`
			rescheduleRequest
		}
		wrong = decode(text, &to)
		to.check(&wrong)
		l.to = to.rescheduleRequest
	case "", "put", "add":
	default:
		wrong.add("op", fmt.Sprintf("%q", l.Op), "%s", oneOf(l.Op, []string{"put", "add", "delete", "reschedule"}))
	}
	if l.Key == "" && !wrong.has("key") && !wrong.has("") {
		wrong.add("key", "", "is missing")
	}
	return l, wrong
}

// apply applies the changes. Changes of one key are applied in order.
func (a *api) apply(ctx context.Context, all []*deed) {
	for len(all) > 0 {
		keys := make(map[string]bool, len(all))
		n := 0
		for n < len(all) && !keys[all[n].task.Key] {
			keys[all[n].task.Key] = true
			n++
		}
		a.applyRound(ctx, all[:n])
		all = all[n:]
	}
}

// applyRound applies changes of different keys, in any order.
func (a *api) applyRound(ctx context.Context, round []*deed) {
	var adds, others []*deed
	for _, d := range round {
		if d.op == "add" {
			adds = append(adds, d)
		} else {
			others = append(others, d)
		}
	}
	for len(adds) > 0 {
		n := min(len(adds), addsAtOnce)
		a.add(ctx, adds[:n])
		adds = adds[n:]
	}
	a.each(others, func(d *deed) {
		switch d.op {
		case "delete":
			d.end(a.removeTask(ctx, d.by, d.task.Key), http.StatusNoContent)
		case "reschedule":
			d.end(a.moveTask(ctx, d.by, d.task.Key, d.to), http.StatusNoContent)
		default:
			_, _, err := a.setTask(ctx, d.by, d.task)
			d.end(err, http.StatusNoContent)
		}
	})
}

// add adds tasks with one commit. If some keys are in use, or some tasks were added before, it adds the others. If a task is invalid, it adds each by
// itself.
func (a *api) add(ctx context.Context, adds []*deed) {
	for len(adds) > 0 {
		tasks := make([]durable.Task, len(adds))
		for i, d := range adds {
			tasks[i] = d.task
		}
		err := a.addTasks(ctx, tasks...)
		var keys []string
		var used *durable.DuplicateKeysError
		var before *durable.RepeatedError
		if errors.As(err, &used) {
			keys = used.Keys
		} else if errors.As(err, &before) {
			keys = before.Keys
		}
		switch {
		case keys != nil:
			is := make(map[string]bool, len(keys))
			for _, key := range keys {
				is[key] = true
			}
			rest := adds[:0:0]
			for _, d := range adds {
				if is[d.task.Key] {
					d.end(err, 0)
				} else {
					rest = append(rest, d)
				}
			}
			if len(rest) == len(adds) {
				a.each(adds, func(d *deed) { d.end(err, 0) })
				return
			}
			adds = rest
			continue
		case errors.Is(err, durable.ErrInvalidTask), errors.Is(err, durable.ErrUnknownKind):
			a.each(adds, func(d *deed) { d.end(a.addTasks(ctx, d.task), http.StatusCreated) })
		default:
			for _, d := range adds {
				d.end(err, http.StatusCreated)
			}
		}
		return
	}
}

// each calls do for each of the changes, several at the same time: their commits are grouped. It panics if do does.
func (a *api) each(all []*deed, do func(d *deed)) {
	next := make(chan *deed, len(all))
	for _, d := range all {
		next <- d
	}
	close(next)
	var workers sync.WaitGroup
	var panicked atomic.Pointer[string]
	for range min(len(all), atOnce) {
		workers.Go(func() {
			defer func() {
				if of := recover(); of != nil {
					text := fmt.Sprintf("%v\n%s", of, debug.Stack())
					panicked.Store(&text)
				}
			}()
			for d := range next {
				do(d)
			}
		})
	}
	workers.Wait()
	if text := panicked.Load(); text != nil {
		panic(*text)
	}
}
