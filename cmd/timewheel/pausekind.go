// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

const (
	aboutPauseKind = `
It is for the tasks that there are and for those to come, and for every process: all know it within
two seconds. A run that has started is not interrupted, and its result counts. -all is about all
kinds, whatever is paused by itself, and asks first. A kind that no task has and no node handles is
paused as well, for tasks to come, and the command says so.

  timewheel pause-kind -why "smtp is down" mail sms
  timewheel pause-kind -all -yes`

	aboutResumeKind = `
Tasks that have become due meanwhile run at the rate at which the processes catch up. -all ends a
pause-kind -all, and asks first: a kind that was paused by name stays paused.

  timewheel resume-kind mail`
)

func definePauseKind(p *program, f *flag.FlagSet) action {
	why := f.String("why", "", "the `reason`, for the page and the other commands")
	return definePauses(p, f, "Pause",
		func(s scheduler, ctx context.Context, kind string) error {
			return s.PauseKind(ctx, kind, durable.By(p.who, *why))
		},
		func(s scheduler, ctx context.Context) error {
			return s.PauseAll(ctx, durable.By(p.who, *why))
		},
		p.warnOf)
}

func defineResumeKind(p *program, f *flag.FlagSet) action {
	return definePauses(p, f, "Resume", scheduler.ResumeKind, scheduler.ResumeAll,
		func(context.Context, scheduler, []string) error { return nil })
}

// definePauses defines a command that calls the function one for each kind in its arguments, or the function all with
// the flag -all. It then calls after.
func definePauses(p *program, f *flag.FlagSet, verb string,
	one func(scheduler, context.Context, string) error, all func(scheduler, context.Context) error,
	after func(ctx context.Context, s scheduler, kinds []string) error,
) action {
	var at place
	var whole, yes, asJSON bool
	at.define(p, f)
	f.BoolVar(&whole, "all", false, "all kinds")
	f.BoolVar(&yes, "yes", false, "do not ask")
	f.BoolVar(&asJSON, "json", false, "write one line of JSON with the resulting pauses")
	return func(ctx context.Context, args []string) error {
		kinds, err := keysOf(args)
		switch {
		case err != nil:
			return err
		case len(kinds) > 0 && whole:
			return usagef("give kinds or -all, not both")
		case len(kinds) == 0 && !whole:
			return usagef("which kinds? Give their names, or -all")
		}
		return at.with(ctx, p, false, func(ctx context.Context, s scheduler) error {
			if whole && !yes {
				n, err := s.Bulk(ctx, durable.Query{}, durable.DoNothing)
				if err != nil {
					return err
				}
				if err := p.confirm(ctx, fmt.Sprintf("%s all kinds, with %s?", verb, count(n, "task"))); err != nil {
					return err
				}
			}
			if whole {
				err = all(s, ctx)
			}
			for _, kind := range kinds {
				if err == nil {
					err = one(s, ctx, kind)
				}
			}
			if err != nil {
				return err
			}
			if err := after(ctx, s, kinds); err != nil {
				return err
			}
			paused, err := s.Paused(ctx)
			switch {
			case err != nil:
			case asJSON:
				err = writeJSON(p.out, newPausesJSON(paused))
			case paused.All || len(paused.Kinds) > 0:
				p.writePauses(paused)
			default:
				fmt.Fprintln(p.out, "No kind is paused.")
			}
			return err
		})
	}
}

// warnOf warns about kinds that have no tasks and that no node handles. It is called after the kinds are paused,
// because counting tasks may take a long time.
func (p *program) warnOf(ctx context.Context, s scheduler, kinds []string) error {
	if len(kinds) == 0 {
		return nil
	}
	census, err := wholeCensus(ctx, s)
	if errors.Is(err, errWhole) {
		return nil
	}
	if err != nil {
		return err
	}
	handled, err := handledKinds(ctx, s)
	if err != nil || handled.more {
		return err
	}
	names, where := handled.kinds, ""
	for _, k := range census.Kinds {
		names = append(names, k.Kind)
	}
	if handled.nodes > 0 {
		where = ", and no node handles it"
	}
	for _, kind := range kinds {
		if !slices.Contains(names, kind) {
			p.complain("no task has kind %s%s%s", quoteText(kind), where, didYouMean(kind, names))
		}
	}
	return nil
}

// A handling is the set of kinds with a handler.
type handling struct {
	nodes int
	kinds []string
	more  bool // some nodes may handle further kinds

	limits map[string][]string // limits of the kinds in words; several if the nodes do not agree
}

// handledKinds returns the kinds that the nodes of a cluster handle. A store that no process has open has no nodes.
func handledKinds(ctx context.Context, s scheduler) (h handling, err error) {
	nodes, err := s.Nodes(ctx)
	h.limits = make(map[string][]string)
	for _, n := range nodes {
		for _, l := range n.Limits {
			if text := l.String(); !slices.Contains(h.limits[l.Kind], text) {
				h.limits[l.Kind] = append(h.limits[l.Kind], text)
			}
		}
		if n.ID != 0 {
			h.nodes++
			h.kinds, h.more = append(h.kinds, n.Kinds...), h.more || !n.HasAllKinds()
		}
	}
	return h, err
}

// writePauses writes the paused kinds, if any.
func (p *program) writePauses(paused durable.Pauses) {
	by := func(kind string) string {
		b, known := paused.By[kind]
		if !known {
			return ""
		}
		return ", " + when(b.At, p.now()) + reason(b, ", by ")
	}
	if paused.All {
		fmt.Fprintf(p.out, "All kinds are paused%s.\n", by(""))
	}
	for _, kind := range paused.Kinds {
		fmt.Fprintf(p.out, "Kind %s is paused%s.\n", quoteText(kind), by(kind))
	}
}

// reason returns who did something, after by, and why.
func reason(b durable.Pause, by string) (text string) {
	if b.Who != "" {
		text = by + quoteText(b.Who)
	}
	if b.Why != "" {
		text += ": " + quoteText(b.Why)
	}
	return text
}

type pausesJSON struct {
	All   bool        `json:"all"`   // all kinds are paused
	Kinds []text      `json:"kinds"` // the individually paused kinds
	By    []pauseJSON `json:"by"`    // when and by whom
}

type pauseJSON struct {
	Kind text      `json:"kind,omitempty"` // empty for all kinds
	At   time.Time `json:"at"`
	Who  string    `json:"who"`
	Why  string    `json:"why"`
}

func newPausesJSON(p durable.Pauses) pausesJSON {
	j := pausesJSON{All: p.All, Kinds: []text{}, By: []pauseJSON{}}
	for _, kind := range p.Kinds {
		j.Kinds = append(j.Kinds, text(kind))
	}
	for _, kind := range slices.Sorted(maps.Keys(p.By)) { // that of all kinds comes first
		b := p.By[kind]
		j.By = append(j.By, pauseJSON{text(kind), b.At.UTC(), b.Who, b.Why})
	}
	return j
}
