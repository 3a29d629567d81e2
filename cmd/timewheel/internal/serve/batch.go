// SPDX-License-Identifier: MIT

package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
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
}

// A lineResponse is the outcome of a line.
type lineResponse struct {
	Line   int    `json:"line"`
	Key    string `json:"key"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"` // why it failed
}

// A deed is a line to be applied by a caller.
type deed struct {
	op   string
	task durable.Task // only the key for delete and reschedule
	to   rescheduleRequest
	out  *lineResponse
	by   *caller
}

func (d *deed) end(err error, done int) {
	if err == nil {
		d.out.Status = done
		return
	}
	p := problemOf(err)
	d.out.Status, d.out.Detail = p.Status, p.Detail
}

// batch applies a batch. If a line is malformed, it refuses the whole batch before changing anything. Otherwise it
// answers with a line for each line of the batch.
func (a *api) batch(c *caller, w http.ResponseWriter, r *http.Request) error {
	select {
	case c.batches <- struct{}{}:
		defer func() { <-c.batches }()
	case <-time.After(batchWait):
		p := problemf(http.StatusServiceUnavailable, "%d batches of this caller are in progress; this one had no effect", mostBatches)
		p.retry = true
		return p
	case <-r.Context().Done():
		return r.Context().Err()
	}
	text, err := a.body(w, r, batchType, mostBatch)
	if err != nil {
		return err
	}
	results, deeds, err := readBatch(c, text, joinTrace(r.Header))
	if err != nil {
		return err
	}
	a.apply(r.Context(), deeds)
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

// readBatch returns an outcome for each line that is not blank, and the lines to be applied.
func readBatch(c *caller, text []byte, trace string) ([]lineResponse, []*deed, error) {
	n := min(bytes.Count(text, []byte("\n"))+1, mostLines)
	results, deeds := make([]lineResponse, 0, n), make([]*deed, 0, n)
	number := 0
	for one := range bytes.Lines(text) {
		number++
		if len(bytes.TrimSpace(one)) == 0 {
			continue
		}
		if len(results) == mostLines {
			return nil, nil, problemf(http.StatusRequestEntityTooLarge, "the batch has more than %d lines", mostLines)
		}
		d, err := readLine(one, trace)
		if err != nil {
			return nil, nil, problemf(http.StatusBadRequest, "line %d: %v", number, err)
		}
		results = append(results, lineResponse{Line: number, Key: d.task.Key}) // within the capacity, so it stays in place
		d.out, d.by = &results[len(results)-1], c
		if err := c.mayUse(d.task.Key); err != nil {
			d.end(err, 0)
			continue
		}
		deeds = append(deeds, d)
	}
	return results, deeds, nil
}

// readLine returns the change of a line.
func readLine(text []byte, trace string) (*deed, error) {
	var l line
	if err := decode(text, &l); err != nil {
		return nil, err
	}
	if l.Key == "" {
		return nil, problemf(http.StatusBadRequest, "key is empty")
	}
	d := &deed{op: l.Op, task: durable.Task{Key: l.Key}}
	var err error
	switch l.Op { // a line of the last two has fewer fields
	case "", "put", "add":
		d.task, err = l.task(l.Key, trace)
	case "delete":
		err = decode(text, new(struct {
			Op  string `json:"op"`
			Key string `json:"key"`
		}))
	case "reschedule":
		var to struct {
			Op  string `json:"op"`
			Key string `json:"key"`
			rescheduleRequest
		}
		if err = decode(text, &to); err == nil {
			d.to = to.rescheduleRequest
			_, err = d.to.after(time.Now())
		}
	default:
		err = problemf(http.StatusBadRequest, "op %q must be put, add, delete or reschedule", l.Op)
	}
	return d, err
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
		switch {
		case d.op != "add":
			others = append(others, d)
		case d.by.hasKind(d.task.Kind):
			adds = append(adds, d)
		default:
			d.end(noRight(d.task.Kind), 0)
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
			d.end(a.setTask(ctx, d.by, d.task), http.StatusNoContent)
		}
	})
}

// add adds tasks with one commit. If some keys are in use, it adds the others. If a task is invalid, it adds each by
// itself.
func (a *api) add(ctx context.Context, adds []*deed) {
	for len(adds) > 0 {
		tasks := make([]durable.Task, len(adds))
		for i, d := range adds {
			tasks[i] = d.task
		}
		err := a.s.AddTask(ctx, tasks...)
		var used *durable.DuplicateKeysError
		switch {
		case errors.As(err, &used):
			is := make(map[string]bool, len(used.Keys))
			for _, key := range used.Keys {
				is[key] = true
			}
			rest := adds[:0:0]
			for _, d := range adds {
				if is[d.task.Key] {
					d.end(&durable.DuplicateKeysError{Keys: []string{d.task.Key}}, 0)
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
			a.each(adds, func(d *deed) { d.end(a.s.AddTask(ctx, d.task), http.StatusCreated) })
		default:
			for _, d := range adds {
				d.end(err, http.StatusCreated)
			}
		}
		return
	}
}

// each calls do for each of the changes, several at the same time: their commits are grouped.
func (a *api) each(all []*deed, do func(d *deed)) {
	next := make(chan *deed, len(all))
	for _, d := range all {
		next <- d
	}
	close(next)
	var workers sync.WaitGroup
	for range min(len(all), atOnce) {
		workers.Go(func() {
			for d := range next {
				do(d)
			}
		})
	}
	workers.Wait()
}
