// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// A deed is something that is done to tasks: to those of the keys, or to all that a search finds.
type deed struct {
	ask  string // "Remove"
	past string // "Removed"
	json string // "removed", the field that counts
	do   durable.Action
	only durable.State                                                     // tasks in another state are left alone,
	not  durable.State                                                     // and so are those in this one
	one  func(s *durable.Scheduler, ctx context.Context, key string) error // to the task of a key
}

var (
	removing = deed{"Remove", "Removed", "removed", durable.DoRemove, durable.AnyState, durable.AnyState,
		(*durable.Scheduler).RemoveTask}
	runningNow = deed{"Run", "Made due", "due", durable.DoRunNow, durable.AnyState, durable.Paused, runNow}
	unparking  = deed{"Unpark", "Unparked", "unparked", durable.DoRunNow, durable.Parked, durable.AnyState, runNow}
	pausing    = deed{"Pause", "Paused", "paused", durable.DoPause, durable.AnyState, durable.Paused,
		(*durable.Scheduler).Pause}
	resuming = deed{"Resume", "Resumed", "resumed", durable.DoResume, durable.Paused, durable.AnyState,
		(*durable.Scheduler).Resume}
)

func runNow(s *durable.Scheduler, ctx context.Context, key string) error {
	return s.Reschedule(ctx, key, 0)
}

const aboutBulk = `
The tasks are those of the keys, or all that fit all of the search flags. Of a search it first says
how many tasks it finds, and asks. Tasks that change meanwhile are left alone. If it is interrupted,
the same command does the rest.

`

const (
	aboutRemove = `
A run that has started is not interrupted. -wait, which is for keys, waits for the end of the runs
of each key, and no longer than it says. If a run is still running then, the command says which,
and on which node. The task is removed all the same.
` + aboutBulk + `  timewheel rm order:42
  timewheel rm -wait 30s order:42
  timewheel rm -prefix session: -state parked`

	aboutCancel = `
The runs are cancelled on whatever node. What the handler returns decides: after an error the run is
tried again. To end it for good, remove the task afterwards. A task that waits, also for its next
attempt, has no run to cancel. Nor has a store that no process has open.

  timewheel cancel order:42
  timewheel rm -wait 30s order:42`

	aboutRunNow = `
The tasks run as soon as a process with a handler for their kind has a free worker. Parked ones
begin again with all of their attempts. Paused ones are left alone: resume them.
` + aboutBulk + `  timewheel run-now -kind mail -state retrying`

	aboutUnpark = `
A task is parked when all attempts of a run have failed, or the handler has parked it.
` + aboutBulk + `  timewheel unpark order:42
  timewheel unpark -failure "connection refused"`

	aboutPause = `
A paused task does not run until it is resumed, whatever becomes of the processes. A run that has
started is not interrupted, but its result does not count: the run comes again after the resumption.
` + aboutBulk + `  timewheel pause order:42
  timewheel pause -kind mail`

	aboutResume = `
The tasks become due when they were due before they were paused, or at once if that is over. A task
that is not paused is left alone.
` + aboutBulk + `  timewheel resume order:42
  timewheel resume -kind mail`

	aboutReschedule = `
Later runs of a repeating task follow at its interval. A paused task stays paused, and is due then
if it is resumed.

  timewheel reschedule -in 90m order:42
  timewheel reschedule -at 2026-12-24T18:00:00+01:00 order:42`
)

func defineRunNow(p *program, f *flag.FlagSet) action { return defineDeed(p, f, runningNow) }
func defineUnpark(p *program, f *flag.FlagSet) action { return defineDeed(p, f, unparking) }
func definePause(p *program, f *flag.FlagSet) action  { return defineDeed(p, f, pausing) }
func defineResume(p *program, f *flag.FlagSet) action { return defineDeed(p, f, resuming) }

func defineRemove(p *program, f *flag.FlagSet) action {
	var wait time.Duration
	f.DurationVar(&wait, "wait", 0, "wait for the end of the runs, for a `DURATION` at most")
	d := removing
	d.one = func(s *durable.Scheduler, ctx context.Context, key string) error {
		if wait == 0 {
			return s.RemoveTask(ctx, key)
		}
		within, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		_, err := s.RemoveTaskWait(within, key)
		var running *durable.RunningError
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &running) {
			return fmt.Errorf("%w of a node in %v whether it runs task %s", errNoAnswer, wait, quoteText(key))
		}
		return err
	}
	act := defineDeed(p, f, d)
	return func(ctx context.Context, args []string) error {
		switch {
		case wait < 0:
			return usagef("-wait %v is negative", wait)
		case wait > 0 && len(args) == 0:
			return usagef("-wait is for keys")
		}
		return act(ctx, args)
	}
}

func defineCancel(p *program, f *flag.FlagSet) action {
	var at place
	var asJSON bool
	at.defineDB(p, f)
	f.BoolVar(&asJSON, "json", false, "write one line of JSON about what was done")
	return func(ctx context.Context, args []string) error {
		keys, err := someKeys(args, "which tasks? Give their keys")
		if err != nil {
			return err
		}
		cancelling := deed{past: "Cancelled the runs of", json: "cancelled", one: cancelRuns}
		return at.with(ctx, p, false, func(s *durable.Scheduler) error {
			return p.doKeys(ctx, s, cancelling, keys, asJSON)
		})
	}
}

// cancelRuns cancels the runs of the key, and says so if there are none.
func cancelRuns(s *durable.Scheduler, ctx context.Context, key string) error {
	ran, err := s.Cancel(ctx, key)
	if ran || err != nil {
		return err
	}
	switch exists, err := s.Exist(ctx, key); {
	case err != nil:
		return err
	case !exists:
		return noTask(key)
	}
	return fmt.Errorf("%w: no run of task %s is in progress", errLeftAlone, quoteText(key))
}

func defineDeed(p *program, f *flag.FlagSet, d deed) action {
	var at place
	var q search
	var yes, asJSON bool
	at.define(p, f)
	q.define(f, d.only == durable.AnyState, "all tasks there are")
	f.BoolVar(&yes, "yes", false, "do not ask")
	f.BoolVar(&asJSON, "json", false, "write one line of JSON about what was done")
	return func(ctx context.Context, args []string) error {
		keys, err := keysOf(args)
		switch {
		case err != nil:
			return err
		case len(keys) > 0 && q.given():
			return usagef("give keys or a search, and not both")
		case len(keys) == 0 && !q.given():
			return usagef("which tasks? Give keys, or a search such as -prefix, or -all")
		}
		return at.with(ctx, p, false, func(s *durable.Scheduler) error {
			if len(keys) > 0 {
				return p.doKeys(ctx, s, d, keys, asJSON)
			}
			if d.only != durable.AnyState {
				q.State = d.only
			}
			return p.doAll(ctx, s, d, q.Query, yes, asJSON)
		})
	}
}

// doKeys does it to the tasks of the keys. What is wrong with one of them does not keep it from the others.
func (p *program) doKeys(ctx context.Context, s *durable.Scheduler, d deed, keys []string, asJSON bool) error {
	n := 0
	var undone error
	for _, key := range keys {
		err := d.toKey(ctx, s, key)
		var running *durable.RunningError
		if errors.As(err, &running) { // the task is removed
			n++
			undone = errors.Join(undone, fmt.Errorf("run %s: %w", quoteText(running.Token.String()), err))
			continue
		}
		if err == nil {
			n++
			continue
		}
		undone = errors.Join(undone, err)
		if !errors.Is(err, durable.ErrTaskKeyNotFound) && !errors.Is(err, errLeftAlone) && !errors.Is(err, errNoAnswer) {
			break
		}
	}
	if n == 0 {
		return undone
	}
	return errors.Join(undone, p.report(d, n, asJSON))
}

var (
	errLeftAlone = errors.New("left alone") // the deed is not for tasks in that state
	errNoAnswer  = errors.New("no answer")  // of some node, whether it runs the task
)

func (d deed) toKey(ctx context.Context, s *durable.Scheduler, key string) error {
	if d.only != durable.AnyState || d.not != durable.AnyState {
		i, ok, err := s.Get(ctx, key)
		switch {
		case err != nil:
			return err
		case !ok:
			return noTask(key)
		case d.only != durable.AnyState && d.only != i.State:
			return fmt.Errorf("%w: task %s is not %s, but %s", errLeftAlone, quoteText(key), d.only, i.State)
		case d.not == i.State:
			return fmt.Errorf("%w: task %s is %s", errLeftAlone, quoteText(key), i.State)
		}
	}
	err := d.one(s, ctx, key)
	if errors.Is(err, durable.ErrTaskKeyNotFound) {
		return noTask(key)
	}
	return err
}

// doAll does it to all tasks that the query finds, when that has been confirmed.
func (p *program) doAll(
	ctx context.Context, s *durable.Scheduler, d deed, q durable.Query, yes, asJSON bool,
) error {
	if !yes {
		n, err := d.count(ctx, s, q)
		if err != nil {
			return err
		}
		if n == 0 {
			return p.report(d, 0, asJSON)
		}
		if err := p.confirm(ctx, fmt.Sprintf("%s %s?", d.ask, count(n, "task"))); err != nil {
			return err
		}
	}
	n, err := s.Bulk(ctx, q, d.do)
	return errors.Join(err, p.report(d, n, asJSON))
}

// count returns how many of the tasks that the query finds are not left alone.
func (d deed) count(ctx context.Context, s *durable.Scheduler, q durable.Query) (int, error) {
	n, err := s.Bulk(ctx, q, durable.DoNothing)
	if err != nil || d.not == durable.AnyState || q.State != durable.AnyState && q.State != d.not {
		return n, err
	}
	q.State = d.not
	less, err := s.Bulk(ctx, q, durable.DoNothing)
	return max(n-less, 0), err
}

func (p *program) report(d deed, n int, asJSON bool) error {
	var err error
	if asJSON {
		err = writeJSON(p.out, map[string]int{d.json: n})
	} else {
		_, err = fmt.Fprintf(p.out, "%s %s.\n", d.past, count(n, "task"))
	}
	return err
}

// confirm asks a question, and returns errNotConfirmed unless the answer is yes.
func (p *program) confirm(ctx context.Context, question string) error {
	if !p.asks {
		return fmt.Errorf("%w: %s The standard input is no terminal to ask at; -yes is the answer",
			errNotConfirmed, question)
	}
	fmt.Fprint(p.err, question+" [y/N] ")
	answered := make(chan string, 1)
	go func() {
		answer, err := bufio.NewReader(p.in).ReadString('\n')
		if err != nil {
			fmt.Fprintln(p.err)
		}
		answered <- answer
	}()
	select {
	case answer := <-answered:
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return nil
		}
		return errNotConfirmed
	case <-ctx.Done():
		fmt.Fprintln(p.err)
		return ctx.Err()
	}
}

func defineReschedule(p *program, f *flag.FlagSet) action {
	var at place
	var in time.Duration
	var to time.Time
	var given int
	at.define(p, f)
	f.Func("in", "the next run is due after a `DURATION` such as 90s or 1h30m", func(text string) (err error) {
		if in, err = time.ParseDuration(text); err == nil && in < 0 {
			err = errors.New("it is negative")
		}
		given++
		return err
	})
	f.Func("at", "the next run is due at a `TIME` such as 2026-12-24T18:00:00Z", func(text string) (err error) {
		to, err = time.Parse(time.RFC3339, text)
		given++
		return err
	})
	return func(ctx context.Context, args []string) error {
		keys, err := someKeys(args, "which tasks? Give their keys")
		if err != nil {
			return err
		}
		if given != 1 {
			return usagef("when? Give -in or -at")
		}
		return at.with(ctx, p, false, func(s *durable.Scheduler) error {
			moving := deed{past: "Rescheduled", one: func(s *durable.Scheduler, ctx context.Context, key string) error {
				d := in
				if !to.IsZero() {
					d = to.Sub(p.now())
				}
				return s.Reschedule(ctx, key, d)
			}}
			return p.doKeys(ctx, s, moving, keys, false)
		})
	}
}
