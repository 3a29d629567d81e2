// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
)

// A scheduler is what the commands do with a [durable.Scheduler]. A command reaches the tasks in no other way, so the
// methods of limited decide what a limited operator sees and changes.
type scheduler interface {
	Get(ctx context.Context, key string) (durable.Info, bool, error)
	Exist(ctx context.Context, key string) (bool, error)
	Find(ctx context.Context, q durable.Query) (durable.Found, error)
	History(ctx context.Context, q durable.HistoryQuery) (durable.History, error)
	Failures(ctx context.Context) (durable.Failures, error)
	Counts(ctx context.Context) (durable.Counts, error)
	Groups(ctx context.Context, q durable.Query) (durable.Groups, error)
	Nodes(ctx context.Context) ([]durable.NodeInfo, error)
	Sets(ctx context.Context) ([]durable.SetInfo, error)
	Paused(ctx context.Context) (durable.Pauses, error)
	Tuned(ctx context.Context) (durable.Tuning, error)

	Bulk(ctx context.Context, q durable.Query, do durable.Action) (int, error)
	BulkStep(ctx context.Context, q durable.Query, do durable.Action) (n int, next string, err error)
	BulkReschedule(ctx context.Context, q durable.Query, after func(i int) time.Duration) (int, error)
	Reschedule(ctx context.Context, key string, d time.Duration) error
	Pause(ctx context.Context, key string) error
	Resume(ctx context.Context, key string) error
	RemoveTask(ctx context.Context, key string) error
	RemoveTaskWait(ctx context.Context, key string) (ran bool, err error)
	Cancel(ctx context.Context, key string) (ran bool, err error)
	Restore(ctx context.Context, records ...engine.Record) error

	PauseKind(ctx context.Context, kind string, opts ...durable.PauseOption) error
	ResumeKind(ctx context.Context, kind string) error
	PauseAll(ctx context.Context, opts ...durable.PauseOption) error
	ResumeAll(ctx context.Context) error
	TuneLimits(ctx context.Context, l durable.KindLimits, opts ...durable.PauseOption) error
	TunePoolSize(ctx context.Context, n int, opts ...durable.PauseOption) error
	TuneCatchUp(ctx context.Context, n int, opts ...durable.PauseOption) error
	Drain(ctx context.Context, name string) error
	Undrain(ctx context.Context, name string) error
}

// A limited is the scheduler for an operator with a right to some tasks. It embeds no scheduler, so a new method of the
// interface does not compile until it is limited or refused here.
//
// The kind of a task is read before the task is changed. If it is replaced in between by a task of another kind, that task
// is changed. Prefixes have no such gap.
type limited struct {
	of       scheduler
	prefixes []string     // nil: all
	kinds    []string     // nil: all
	log      *slog.Logger // has the errors that the operator does not see
}

// errWhole is the error for a request about all tasks.
var errWhole = errors.New("it concerns all tasks, and the token is limited to some prefixes or kinds")

// hide returns an error without any text that may have the key of another operator's task.
func (l limited) hide(err error) error {
	if err == nil || errors.As(err, new(*durable.RunningError)) || errors.Is(err, durable.ErrInvalidTask) {
		return err
	}
	for _, is := range []error{durable.ErrTaskKeyNotFound, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, is) {
			return is
		}
	}
	l.log.Error("a command failed", "error", err)
	return errors.New("the command failed; the log of the service says why")
}

func (l limited) hasPrefix(key string) bool {
	return l.prefixes == nil || slices.ContainsFunc(l.prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
}

func (l limited) hasKind(kind string) bool { return l.kinds == nil || slices.Contains(l.kinds, kind) }

// narrow returns the prefix and the kind of a search. Without them it returns the operator's own, if there is only one. It
// returns an error if the search would find other tasks.
func (l limited) narrow(prefix, kind string) (string, string, error) {
	quoted := func(all []string) string {
		names := make([]string, len(all))
		for i, name := range all {
			names[i] = quoteText(name)
		}
		return strings.Join(names, ", ")
	}
	if prefix == "" && len(l.prefixes) == 1 {
		prefix = l.prefixes[0]
	}
	if kind == "" && len(l.kinds) == 1 {
		kind = l.kinds[0]
	}
	switch {
	case !l.hasPrefix(prefix):
		return "", "", fmt.Errorf("the token is for keys that begin with one of %s: give -prefix", quoted(l.prefixes))
	case !l.hasKind(kind):
		return "", "", fmt.Errorf("the token is for the kinds %s: give -kind", quoted(l.kinds))
	}
	return prefix, kind, nil
}

// search calls do with the query narrowed.
func (l limited) search(q durable.Query, do func(q durable.Query) error) (err error) {
	if q.Prefix, q.Kind, err = l.narrow(q.Prefix, q.Kind); err != nil {
		return err
	}
	return l.hide(do(q))
}

// one calls do if the operator has a right to the task with the key. A task of another kind is not found.
func (l limited) one(ctx context.Context, key string, do func() error) error {
	if !l.hasPrefix(key) {
		return fmt.Errorf("%w: the token has no right to key %s", errLeftAlone, quoteText(key))
	}
	if l.kinds != nil {
		i, is, err := l.of.Get(ctx, key)
		if err != nil {
			return l.hide(err)
		}
		if !is || !l.hasKind(i.Kind) {
			return durable.ErrTaskKeyNotFound
		}
	}
	return l.hide(do())
}

// pauses calls do if the operator has a right to all tasks of the kind.
func (l limited) pauses(kind string, do func() error) error {
	switch {
	case l.prefixes != nil:
		return errors.New("a kind has tasks with any keys, and the token is limited to some prefixes")
	case !l.hasKind(kind):
		return fmt.Errorf("the token has no right to kind %s", quoteText(kind))
	}
	return l.hide(do())
}

func (l limited) Get(ctx context.Context, key string) (i durable.Info, is bool, err error) {
	if !l.hasPrefix(key) {
		return i, false, l.one(ctx, key, nil)
	}
	i, is, err = l.of.Get(ctx, key)
	if err != nil || !is || !l.hasKind(i.Kind) {
		return durable.Info{}, false, l.hide(err)
	}
	return i, true, nil
}

func (l limited) Exist(ctx context.Context, key string) (bool, error) {
	_, is, err := l.Get(ctx, key)
	return is, err
}

func (l limited) Find(ctx context.Context, q durable.Query) (found durable.Found, err error) {
	q.For = 24 * time.Hour // a page that is cut early may have the key of another task as its Next
	err = l.search(q, func(q durable.Query) (err error) { found, err = l.of.Find(ctx, q); return err })
	return found, err
}

func (l limited) History(ctx context.Context, q durable.HistoryQuery) (found durable.History, err error) {
	prefix := cmp.Or(q.Key, q.Prefix)
	if prefix, q.Kind, err = l.narrow(prefix, q.Kind); err != nil {
		return found, err
	}
	if q.Key == "" {
		q.Prefix = prefix
	}
	found, err = l.of.History(ctx, q)
	return found, l.hide(err)
}

func (l limited) Failures(ctx context.Context) (durable.Failures, error) {
	if l.prefixes != nil {
		return durable.Failures{}, errWhole
	}
	all, err := l.of.Failures(ctx)
	if err != nil {
		return durable.Failures{}, l.hide(err)
	}
	own := durable.Failures{Cut: all.Cut}
	for _, g := range all.Groups {
		if l.hasKind(g.Kind) {
			own.Groups = append(own.Groups, g)
			own.Looked += g.Tasks
		}
	}
	if own.Cut && own.Looked == 0 {
		return own, errors.New("the failing tasks could not be read in time; `timewheel ls -state parked` finds some")
	}
	return own, nil
}

// Paused returns the pauses that concern the tasks of the operator.
func (l limited) Paused(ctx context.Context) (durable.Pauses, error) {
	all, err := l.of.Paused(ctx)
	if err != nil {
		return durable.Pauses{}, l.hide(err)
	}
	own := durable.Pauses{All: all.All, By: make(map[string]durable.Pause)}
	for _, kind := range all.Kinds {
		if l.hasKind(kind) {
			own.Kinds = append(own.Kinds, kind)
		}
	}
	for kind, by := range all.By {
		if kind == "" || l.hasKind(kind) {
			own.By[kind] = by
		}
	}
	return own, nil
}

func (l limited) Bulk(ctx context.Context, q durable.Query, do durable.Action) (n int, err error) {
	err = l.search(q, func(q durable.Query) (err error) { n, err = l.of.Bulk(ctx, q, do); return err })
	return n, err
}

func (l limited) BulkStep(ctx context.Context, q durable.Query, do durable.Action) (n int, next string, err error) {
	err = l.search(q, func(q durable.Query) (err error) { n, next, err = l.of.BulkStep(ctx, q, do); return err })
	return n, next, err
}

func (l limited) BulkReschedule(
	ctx context.Context, q durable.Query, after func(i int) time.Duration,
) (n int, err error) {
	err = l.search(q, func(q durable.Query) (err error) { n, err = l.of.BulkReschedule(ctx, q, after); return err })
	return n, err
}

func (l limited) Reschedule(ctx context.Context, key string, d time.Duration) error {
	return l.one(ctx, key, func() error { return l.of.Reschedule(ctx, key, d) })
}

func (l limited) Pause(ctx context.Context, key string) error {
	return l.one(ctx, key, func() error { return l.of.Pause(ctx, key) })
}

func (l limited) Resume(ctx context.Context, key string) error {
	return l.one(ctx, key, func() error { return l.of.Resume(ctx, key) })
}

func (l limited) RemoveTask(ctx context.Context, key string) error {
	return l.one(ctx, key, func() error { return l.of.RemoveTask(ctx, key) })
}

func (l limited) RemoveTaskWait(ctx context.Context, key string) (ran bool, err error) {
	err = l.one(ctx, key, func() (err error) { ran, err = l.of.RemoveTaskWait(ctx, key); return err })
	return ran, err
}

func (l limited) Cancel(ctx context.Context, key string) (ran bool, err error) {
	err = l.one(ctx, key, func() (err error) { ran, err = l.of.Cancel(ctx, key); return err })
	return ran, err
}

func (l limited) PauseKind(ctx context.Context, kind string, opts ...durable.PauseOption) error {
	return l.pauses(kind, func() error { return l.of.PauseKind(ctx, kind, opts...) })
}

func (l limited) ResumeKind(ctx context.Context, kind string) error {
	return l.pauses(kind, func() error { return l.of.ResumeKind(ctx, kind) })
}

// The others concern all tasks.

func (limited) Counts(context.Context) (durable.Counts, error) { return durable.Counts{}, errWhole }
func (limited) Groups(context.Context, durable.Query) (durable.Groups, error) {
	return durable.Groups{}, errWhole
}
func (limited) Nodes(context.Context) ([]durable.NodeInfo, error)               { return nil, errWhole }
func (limited) Sets(context.Context) ([]durable.SetInfo, error)                 { return nil, errWhole }
func (limited) Tuned(context.Context) (durable.Tuning, error)                   { return durable.Tuning{}, errWhole }
func (limited) Restore(context.Context, ...engine.Record) error                 { return errWhole }
func (limited) PauseAll(context.Context, ...durable.PauseOption) error          { return errWhole }
func (limited) ResumeAll(context.Context) error                                 { return errWhole }
func (limited) TunePoolSize(context.Context, int, ...durable.PauseOption) error { return errWhole }
func (limited) TuneCatchUp(context.Context, int, ...durable.PauseOption) error  { return errWhole }
func (limited) Drain(context.Context, string) error                             { return errWhole }
func (limited) Undrain(context.Context, string) error                           { return errWhole }
func (limited) TuneLimits(context.Context, durable.KindLimits, ...durable.PauseOption) error {
	return errWhole
}
