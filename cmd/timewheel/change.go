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
	only durable.State                                                   // tasks in another state are left alone
	one  func(ctx context.Context, s *durable.Scheduler, k string) error // to the task of a key
}

var (
	removing = deed{"Remove", "Removed", "removed", durable.DoRemove, durable.AnyState,
		func(ctx context.Context, s *durable.Scheduler, key string) error { return s.RemoveTask(ctx, key) }}
	runningNow = deed{"Run", "Made due", "due", durable.DoRunNow, durable.AnyState,
		func(ctx context.Context, s *durable.Scheduler, key string) error { return s.Reschedule(ctx, key, 0) }}
	unparking = deed{"Unpark", "Unparked", "unparked", durable.DoRunNow, durable.Parked, unparkOne}
)

const aboutBulk = `
The tasks are those of the keys, or all that fit all of the search flags. Of a search it first says
how many tasks it finds, and asks. Tasks that change meanwhile are left alone. If it is interrupted,
the same command does the rest.

`

const (
	aboutRemove = `
A run that has started is not interrupted.
` + aboutBulk + `  timewheel rm order:42
  timewheel rm -prefix session: -state parked`

	aboutRunNow = `
The tasks run as soon as a process with a handler for their kind has a free worker. Parked ones
begin again with all of their attempts. Paused ones stay paused.
` + aboutBulk + `  timewheel run-now -kind mail -state retrying`

	aboutUnpark = `
A task is parked when all attempts of a run have failed.
` + aboutBulk + `  timewheel unpark order:42
  timewheel unpark -failure "connection refused"`

	aboutReschedule = `
Later runs of a repeating task follow at its interval.

  timewheel reschedule -in 90m order:42
  timewheel reschedule -at 2026-12-24T18:00:00+01:00 order:42`
)

func defineRemove(p *program, f *flag.FlagSet) action { return defineDeed(p, f, removing) }
func defineRunNow(p *program, f *flag.FlagSet) action { return defineDeed(p, f, runningNow) }
func defineUnpark(p *program, f *flag.FlagSet) action { return defineDeed(p, f, unparking) }

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

// doKeys does it to the tasks of the keys. One that is missing does not keep it from the others.
func (p *program) doKeys(ctx context.Context, s *durable.Scheduler, d deed, keys []string, asJSON bool) error {
	n := 0
	var undone error
	for _, key := range keys {
		err := d.one(ctx, s, key)
		if errors.Is(err, durable.ErrTaskKeyNotFound) {
			undone = errors.Join(undone, noTask(key))
			continue
		}
		if err != nil {
			undone = errors.Join(undone, err)
			break
		}
		n++
	}
	if n == 0 {
		return undone
	}
	return errors.Join(undone, p.report(d, n, asJSON))
}

// doAll does it to all tasks that the query finds, when that has been confirmed.
func (p *program) doAll(
	ctx context.Context, s *durable.Scheduler, d deed, q durable.Query, yes, asJSON bool,
) error {
	if !yes {
		n, err := s.Bulk(ctx, q, durable.DoNothing)
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

func unparkOne(ctx context.Context, s *durable.Scheduler, key string) error {
	i, ok, err := s.Get(ctx, key)
	switch {
	case err != nil:
		return err
	case !ok:
		return noTask(key)
	case !i.Parked:
		return fmt.Errorf("task %s is not parked, but %s", quoteText(key), i.State)
	}
	return s.Reschedule(ctx, key, 0)
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
		keys, err := keysOf(args)
		switch {
		case err != nil:
			return err
		case len(keys) == 0:
			return usagef("which tasks? Give their keys")
		case given != 1:
			return usagef("when? Give -in or -at")
		}
		return at.with(ctx, p, false, func(s *durable.Scheduler) error {
			moving := deed{past: "Rescheduled", one: func(ctx context.Context, s *durable.Scheduler, key string) error {
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
