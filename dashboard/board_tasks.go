// SPDX-License-Identifier: MIT

package dashboard

import (
	"context"
	"errors"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// inTurn returns the result of a look at the scheduler for a list. One list is read at a time, for listTime at most.
func inTurn[T any](ctx context.Context, b *board, look func(context.Context) (T, error)) (found T, err error) {
	if err := b.asking.takeFor(ctx); err != nil {
		return found, err
	}
	defer b.asking.give()
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	return look(ctx)
}

// list returns a page of tasks.
func (b *board) list(ctx context.Context, q durable.Query) (listJSON, error) {
	f, err := inTurn(ctx, b, func(ctx context.Context) (durable.Found, error) { return b.s.Find(ctx, q) })
	if err != nil {
		return listJSON{}, err
	}
	l := listJSON{Tasks: []storedJSON{}, Looked: f.Looked, Next: f.Next, Cut: f.Cut, Now: time.Now()}
	for _, i := range f.Tasks {
		l.Tasks = append(l.Tasks, newStoredJSON(i))
	}
	return l, nil
}

// listTime is how long the scheduler may take to return a list, for which it reads tasks for 150 ms.
const listTime = 5 * time.Second

// failures returns the groups of failing tasks.
func (b *board) failures(ctx context.Context) (failuresJSON, error) {
	f, err := inTurn(ctx, b, b.s.Failures)
	if err != nil {
		return failuresJSON{}, err
	}
	j := failuresJSON{Groups: []groupJSON{}, Looked: f.Looked, Cut: f.Cut, Now: time.Now()}
	for _, g := range f.Groups[:min(len(f.Groups), maxGroups)] {
		j.Groups = append(j.Groups, groupJSON{
			Kind: g.Kind, Text: g.Text, Tasks: g.Tasks, Parked: g.Parked, GivenUp: g.GivenUp,
			Example: newKeyJSON(g.Example), Last: known(g.Last),
		})
	}
	j.More = len(f.Groups) - len(j.Groups)
	return j, nil
}

// sets returns the declared sets, with the states of their tasks.
func (b *board) sets(ctx context.Context) (setsJSON, error) {
	return inTurn(ctx, b, func(ctx context.Context) (setsJSON, error) {
		sets, err := b.s.Sets(ctx)
		j := setsJSON{Sets: []setJSON{}, Now: time.Now()}
		var failed error
		for _, set := range sets[:min(len(sets), maxGroups)] {
			of := newSetJSON(set)
			if failed == nil { // otherwise the next ones take as long
				var found durable.Found
				if found, failed = b.s.Find(ctx, durable.Query{Prefix: set.Prefix, Repeating: true, Limit: maxList}); failed == nil {
					of.count(found.Tasks)
				}
			}
			j.Sets = append(j.Sets, of)
		}
		return j, err
	})
}

// maxGroups is the maximum number of listed groups of failing tasks.
const maxGroups = 100

// maxPast is the number of attempts in a list unless the request sets a limit.
const maxPast = 20

// history returns attempts that have ended.
func (b *board) history(ctx context.Context, q durable.HistoryQuery) (historyJSON, error) {
	found, err := inTurn(ctx, b, func(ctx context.Context) (durable.History, error) { return b.s.History(ctx, q) })
	if err != nil {
		return historyJSON{}, err
	}
	j := historyJSON{Past: []pastJSON{}, Next: found.Next, Now: time.Now()}
	for _, r := range found.Runs {
		j.Past = append(j.Past, newPastJSON(r))
	}
	return j, nil
}

// about returns all data for a task.
func (b *board) about(ctx context.Context, key string, payload func([]byte) payloadJSON,
) (a aboutStoredJSON, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	i, ok, err := b.s.Get(ctx, key)
	a.Now = time.Now()
	if err != nil || !ok {
		return a, err
	}
	task := newStoredJSON(i)
	shown := payload(i.Payload)
	token := i.Token
	a.Task, a.Payload = &task, &shown
	a.Payload.Version = i.PayloadVersion
	a.Token = cut(token.String(), maxKeyText)
	a.Trace = cut(i.Trace, maxKeyText)
	a.Group, a.Note = cut(i.Group, maxKeyText), cut(i.Note, maxValueText)
	a.Shift, a.Deadline = i.Shift.Seconds(), known(i.Deadline)
	a.Until, a.Meta = known(i.Until), cut(i.Meta, maxValueText)
	a.Expires, a.Snoozes = i.Expires.Seconds(), i.Snoozes
	a.Failed = []failedJSON{}
	for _, f := range i.Failed {
		a.Failed = append(a.Failed, failedJSON{known(f.At), cut(f.Text, maxValueText)})
	}
	if len(a.Failed) == 0 && i.Failure != "" {
		a.Failed = append(a.Failed, failedJSON{nil, cut(i.Failure, maxValueText)})
	}
	for _, k := range b.s.Kinds() {
		if k.Kind == i.Kind {
			a.Attempts = k.Attempts
		}
	}
	return a, nil
}

func (b *board) remove(ctx context.Context, key string) error { return b.s.RemoveTask(ctx, key) }

func (b *board) reschedule(ctx context.Context, key string, d time.Duration) error {
	return b.s.Reschedule(ctx, key, d)
}

func (b *board) pause(ctx context.Context, key string) error { return b.s.Pause(ctx, key) }

func (b *board) resume(ctx context.Context, key string) error { return b.s.Resume(ctx, key) }

// errNoRun is returned by cancel if no run of the task is in progress.
var errNoRun = errors.New("no run of it is in progress")

func (b *board) cancel(ctx context.Context, key string) error {
	ran, err := b.s.Cancel(ctx, key)
	if err == nil && !ran {
		err = errNoRun
	}
	return err
}

// pauseKind pauses or resumes a kind, or all kinds if the name is empty. who is empty if it is unknown.
func (b *board) pauseKind(ctx context.Context, kind string, resume bool, who, why string) error {
	switch {
	case kind == "" && resume:
		return b.s.ResumeAll(ctx)
	case kind == "":
		return b.s.PauseAll(ctx, durable.By(who, why))
	case resume:
		return b.s.ResumeKind(ctx, kind)
	}
	return b.s.PauseKind(ctx, kind, durable.By(who, why))
}

// bulk applies an action to the tasks that match the query, for a limited time. If more tasks may match, it returns
// where to continue. That is where it started if the scheduler did not answer in time. All runs are cancelled in one
// request, which may take as long as a request for a single key.
func (b *board) bulk(ctx context.Context, q durable.Query, do durable.Action) (done bulkJSON, err error) {
	if do == durable.DoCancel {
		ctx, cancel := context.WithTimeout(ctx, listTime)
		defer cancel()
		n, _, err := b.s.BulkStep(ctx, q, do)
		return bulkJSON{Tasks: n}, err
	}
	slice, cancel := context.WithTimeout(ctx, bulkTime)
	defer cancel()
	q.For = bulkTime / 2
	n, next, err := b.s.BulkStep(slice, q, do)
	if err != nil && slice.Err() != nil && ctx.Err() == nil {
		return bulkJSON{n, true, q.After}, nil
	}
	return bulkJSON{n, next != "", next}, err
}

// bulkTime is the maximum duration of a request that changes many tasks. The request searches for tasks during the
// first half of this time.
const bulkTime = 2 * time.Second
