// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// A deed is a change to tasks: either the tasks with given keys, or all tasks that match a search.
type deed struct {
	ask  string // "Remove"
	past string // "Removed"
	json string // "removed", the field with the count
	note string // printed before the question; may be empty
	do   durable.Action
	only durable.State // tasks in other states are left alone, unless it is AnyState
	not  durable.State // tasks in this state are left alone

	in     durable.State // the state that a search selects; AnyState if a flag sets it
	spares durable.State // a search leaves tasks in this state alone

	one    func(s scheduler, ctx context.Context, key string) error // changes the task with the key
	atOnce int                                                      // concurrent calls of one; 0 means 1

	// all changes the tasks that match a search. If all is nil, the action in do is applied instead. tasks is their
	// approximate number, or 0 if they were not counted. all reports its progress by calling its last argument with the
	// number of tasks changed so far.
	all func(ctx context.Context, s scheduler, q durable.Query, tasks int, so func(int)) (int, error)
}

var (
	removing = deed{ask: "Remove", past: "Removed", json: "removed", do: durable.DoRemove,
		one: scheduler.RemoveTask}
	runningNow = deed{ask: "Run", past: "Made due", json: "due", do: durable.DoRunNow, not: durable.Paused,
		one: runNow, all: runAllNow}
	unparking = deed{ask: "Unpark", past: "Unparked", json: "unparked", do: durable.DoRunNow, only: durable.Parked,
		in: durable.Parked, one: runNow}
	pausing = deed{ask: "Pause", past: "Paused", json: "paused", do: durable.DoPause, not: durable.Paused,
		one: scheduler.Pause}
	resuming = deed{ask: "Resume", past: "Resumed", json: "resumed", do: durable.DoResume, only: durable.Paused,
		in: durable.Paused, one: scheduler.Resume}
	cancelling = deed{ask: "Cancel the runs of", past: "Cancelled the runs of", json: "cancelled", do: durable.DoCancel,
		note: "The tasks run again, unless their kinds are paused: use pause-kind first.",
		in:   durable.Running, one: cancelRuns, atOnce: 32}
)

func runNow(s scheduler, ctx context.Context, key string) error {
	return s.Reschedule(ctx, key, 0)
}

// runAllNow makes all tasks of the query due. It does not use BulkStep, because a waiting task that was made due is
// still waiting, and a further step would find it again.
func runAllNow(ctx context.Context, s scheduler, q durable.Query, _ int, so func(int)) (int, error) {
	return s.BulkReschedule(ctx, q, func(i int) time.Duration { so(i); return 0 })
}

const aboutBulk = `
It changes the tasks with the keys, or all tasks that match all search flags. For a search it first
prints how many tasks it finds, and asks. Tasks that change meanwhile are left alone. After an
interruption the same command continues with the rest.

`

const (
	aboutRemove = `
A run in progress is not interrupted. -wait, which is for keys, waits for the end of the runs of
each key, up to the given time. If a run is still in progress after that, the command names the run
and its node. The task is removed in any case.
` + aboutBulk + `  timewheel rm order:42
  timewheel rm -wait 30s order:42
  timewheel rm -prefix session: -state parked`

	aboutCancel = `
The runs are cancelled on whatever node. What the handler returns decides: after an error the run is
tried again. To end it for good, remove the task afterwards. A task that waits, also for its next
attempt, has no run to cancel. Nor has a store that no process has open.

The tasks are those of the keys, or all with a run in progress that fit all of the search flags. Of
a search it first says how many tasks it finds, and asks. All nodes are asked once, whatever the
number of the tasks. A handler that fails for it is tried again, after the wait of its kind: use
pause-kind first to keep the tasks from starting again.

  timewheel cancel order:42
  timewheel rm -wait 30s order:42
  timewheel pause-kind charge && timewheel cancel -kind charge`

	aboutRunNow = `
The tasks run as soon as a process with a handler for their kind has a free worker. Parked tasks get
all their attempts again. Paused tasks are left alone: resume them.
` + aboutBulk + `  timewheel run-now -kind mail -state retrying`

	aboutUnpark = `
A task is parked when all attempts of a run have failed, or the handler has parked it.
` + aboutBulk + `  timewheel unpark order:42
  timewheel unpark -failure "connection refused"`

	aboutPause = `
A paused task does not run until it is resumed, even if the processes restart. A run in progress is
not interrupted, but its result does not count: it runs again after the resumption.
` + aboutBulk + `  timewheel pause order:42
  timewheel pause -kind mail`

	aboutResume = `
The tasks get their former due times, or are due at once if these have passed. A task that is not
paused is left alone.
` + aboutBulk + `  timewheel resume order:42
  timewheel resume -kind mail`

	aboutReschedule = `
Later runs of a repeating task follow at its interval. A paused task stays paused, and is due then
if it is resumed.

The tasks are those of the keys, or all that fit all of the search flags but paused ones. Of a
search it first says how many tasks it finds, and asks. Tasks that change meanwhile are left alone.
-over spreads the tasks evenly over a time, which begins now or at -in or -at. If it is interrupted,
the same command starts over.

  timewheel reschedule -in 90m order:42
  timewheel reschedule -at 2026-12-24T18:00:00+01:00 order:42
  timewheel reschedule -kind mail -state waiting -over 1h`
)

func defineRunNow(p *program, f *flag.FlagSet) action {
	return defineDeed(p, f, (*place).define, &runningNow)
}
func defineUnpark(p *program, f *flag.FlagSet) action {
	return defineDeed(p, f, (*place).define, &unparking)
}
func definePause(p *program, f *flag.FlagSet) action {
	return defineDeed(p, f, (*place).define, &pausing)
}
func defineResume(p *program, f *flag.FlagSet) action {
	return defineDeed(p, f, (*place).define, &resuming)
}
func defineCancel(p *program, f *flag.FlagSet) action {
	return defineDeed(p, f, (*place).defineRunning, &cancelling)
}

func defineRemove(p *program, f *flag.FlagSet) action {
	var wait time.Duration
	f.DurationVar(&wait, "wait", 0, "wait for the end of the runs, for a `DURATION` at most")
	d := removing
	d.one = func(s scheduler, ctx context.Context, key string) error {
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
	act := defineDeed(p, f, (*place).define, &d)
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

// cancelRuns cancels the runs of the task with the key, and returns an error if there are none.
func cancelRuns(s scheduler, ctx context.Context, key string) error {
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

// defineDeed defines a command that carries out the deed. where defines the flags for the place. The caller may modify
// the deed until the flags have been parsed.
func defineDeed(p *program, f *flag.FlagSet, where func(*place, *program, *flag.FlagSet), d *deed) action {
	var at place
	var q search
	var yes, asJSON bool
	where(&at, p, f)
	q.define(f, d.in == durable.AnyState, "all tasks there are")
	f.BoolVar(&yes, "yes", false, "do not ask")
	f.BoolVar(&asJSON, "json", false, "write one line of JSON with the result")
	return func(ctx context.Context, args []string) error {
		keys, err := keysOf(args)
		switch {
		case err != nil:
			return err
		case len(keys) > 0 && q.given():
			return usagef("give keys or a search, not both")
		case len(keys) == 0 && !q.given():
			return usagef("which tasks? Give keys, or a search such as -prefix, or -all")
		}
		return at.with(ctx, p, false, func(ctx context.Context, s scheduler) error {
			if len(keys) > 0 {
				return p.doKeys(ctx, s, d, keys, asJSON)
			}
			if d.in != durable.AnyState {
				q.State = d.in
			}
			return p.doAll(ctx, s, d, q.Query, yes, asJSON)
		})
	}
}

// doAll changes all tasks that match the query, after asking for confirmation unless yes is set.
func (p *program) doAll(
	ctx context.Context, s scheduler, d *deed, q durable.Query, yes, asJSON bool,
) error {
	n := 0
	if !yes {
		var err error
		if n, err = d.count(ctx, s, q); err != nil {
			return err
		}
		if n == 0 {
			return p.report(d, 0, asJSON)
		}
		if d.note != "" {
			fmt.Fprintln(p.err, d.note)
		}
		if err := p.confirm(ctx, fmt.Sprintf("%s %s?", d.ask, count(n, "task"))); err != nil {
			return err
		}
	}
	so := p.progress(d.past, "task")
	all := d.all
	if all == nil {
		all = d.inSteps
	}
	n, err := all(ctx, s, q, n, so)
	return errors.Join(err, p.report(d, n, asJSON))
}

// inSteps applies the change in steps of about a second each.
func (d *deed) inSteps(ctx context.Context, s scheduler, q durable.Query, _ int, so func(int)) (int, error) {
	q.For = time.Second
	for total := 0; ; {
		n, next, err := s.BulkStep(ctx, q, d.do)
		total += n
		if err != nil || next == "" {
			return total, err
		}
		if next == q.After { // the database took longer than a step for its first answer
			q.For *= 2
		}
		q.After = next
		so(total)
	}
}

// progress returns a function that reports the number of processed items once a second, if standard error is a
// terminal.
func (p *program) progress(past, noun string) func(n int) {
	last := time.Now()
	return func(n int) {
		if now := time.Now(); p.watched && now.Sub(last) >= time.Second {
			last = now
			fmt.Fprintf(p.err, "%s %s so far.\n", past, count(n, noun))
		}
	}
}

// count returns the number of tasks of the query that the deed changes.
func (d *deed) count(ctx context.Context, s scheduler, q durable.Query) (int, error) {
	not := cmp.Or(d.not, d.spares)
	n, err := s.Bulk(ctx, q, durable.DoNothing)
	if err != nil || not == durable.AnyState || q.State != durable.AnyState && q.State != not {
		return n, err
	}
	q.State = not
	less, err := s.Bulk(ctx, q, durable.DoNothing)
	return max(n-less, 0), err
}

func (p *program) report(d *deed, n int, asJSON bool) error {
	var err error
	if asJSON {
		err = writeJSON(p.out, map[string]int{d.json: n})
	} else {
		_, err = fmt.Fprintf(p.out, "%s %s.\n", d.past, count(n, "task"))
	}
	return err
}

// confirm asks the user a question and returns errNotConfirmed unless the answer is yes.
func (p *program) confirm(ctx context.Context, question string) error {
	if p.ask != nil {
		p.ask(question)
		return ended(notConfirmed)
	}
	if !p.asks {
		return fmt.Errorf("%w: %s The standard input is not a terminal to ask at; use -yes",
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
	var in, over time.Duration
	var to time.Time
	var given int
	duration := func(to *time.Duration) func(string) error {
		return func(text string) (err error) {
			if *to, err = time.ParseDuration(text); err == nil && *to < 0 {
				err = errors.New("it is negative")
			}
			return err
		}
	}
	f.Func("in", "the next run is due after a `DURATION` such as 90s or 1h30m", func(text string) error {
		given++
		return duration(&in)(text)
	})
	f.Func("at", "the next run is due at a `TIME` such as 2026-12-24T18:00:00Z", func(text string) (err error) {
		to, err = time.Parse(time.RFC3339, text)
		given++
		return err
	})
	f.Func("over", "spread the tasks evenly over a `DURATION` from then on, or from now on", duration(&over))
	var began time.Time
	nth := func(i, tasks int) time.Duration { // the remainder also spreads tasks that were added after the count
		d := in
		if !to.IsZero() {
			d = to.Sub(began)
		}
		d += time.Duration(float64(over) * float64(i%tasks) / float64(tasks))
		return d - p.now().Sub(began)
	}
	nthKey := make(map[string]int)
	d := deed{ask: "Reschedule", past: "Rescheduled", json: "rescheduled", spares: durable.Paused}
	d.one = func(s scheduler, ctx context.Context, key string) error {
		return s.Reschedule(ctx, key, nth(nthKey[key], len(nthKey)))
	}
	d.all = func(ctx context.Context, s scheduler, q durable.Query, tasks int, so func(int)) (int, error) {
		if tasks == 0 {
			var err error
			if tasks, err = d.count(ctx, s, q); err != nil || tasks == 0 {
				return 0, err
			}
		}
		began = p.now() // after the question was answered
		return s.BulkReschedule(ctx, q, func(i int) time.Duration { so(i); return nth(i, tasks) })
	}
	act := defineDeed(p, f, (*place).define, &d)
	return func(ctx context.Context, args []string) error {
		if given > 1 || given == 0 && over == 0 {
			return usagef("when? Give -in or -at, or -over")
		}
		began = p.now()
		for _, arg := range args {
			if key, err := unquoteText(arg); err == nil { // act returns the error
				nthKey[key] = len(nthKey)
			}
		}
		return act(ctx, args)
	}
}
