// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"flag"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// defineLook defines a command with the flags that where defines and the flag -json. The command calls do.
func defineLook(p *program, f *flag.FlagSet, where func(*place, *program, *flag.FlagSet), usage string,
	do func(ctx context.Context, s scheduler, asJSON bool) error,
) action {
	var at place
	var asJSON bool
	where(&at, p, f)
	f.BoolVar(&asJSON, "json", false, usage)
	return noArgs(func(ctx context.Context) error {
		return at.with(ctx, p, false, func(ctx context.Context, s scheduler) error { return do(ctx, s, asJSON) })
	})
}

// groups writes the number of tasks in each group, for all tasks that match the query.
func (p *program) groups(ctx context.Context, s scheduler, q durable.Query, asJSON bool) error {
	q.For = 24 * time.Hour
	g, err := s.Groups(ctx, q)
	if err != nil {
		return err
	}
	return p.writeGroups(g, asJSON)
}

type groupsJSON struct {
	Groups []groupCountJSON `json:"groups"` // the ten largest groups
	More   int              `json:"more"`   // number of other groups; a lower bound if cut
	Others groupSumJSON     `json:"others"` // sums over the other groups
	Cut    bool             `json:"cut"`
}

type groupCountJSON struct {
	Kind  text `json:"kind"`
	Group text `json:"group"`
	groupSumJSON
}

type groupSumJSON struct {
	Tasks  int       `json:"tasks"`
	Due    int       `json:"due"`
	Oldest time.Time `json:"oldest,omitzero"` // due time of the oldest due task
}

func (p *program) writeGroups(g durable.Groups, asJSON bool) error {
	if asJSON {
		sum := func(g durable.GroupCounts) groupSumJSON { return groupSumJSON{g.Tasks, g.Due, g.Oldest.UTC()} }
		j := groupsJSON{Groups: []groupCountJSON{}, More: g.More, Others: sum(g.Others), Cut: g.Cut}
		for _, one := range g.Largest {
			j.Groups = append(j.Groups, groupCountJSON{text(one.Kind), text(one.Group), sum(one)})
		}
		return writeJSON(p.out, j)
	}
	if len(g.Largest) == 0 {
		fmt.Fprintln(p.err, "No task matches.")
		return nil
	}
	t := table{columns: []column{
		{title: "KIND", least: 8}, {title: "GROUP", least: 12}, {title: "TASKS", right: true}, {title: "DUE", right: true},
		{title: "OLDEST DUE"},
	}}
	add := func(kind, group string, g durable.GroupCounts) {
		t.add(kind, group, number(g.Tasks), number(g.Due), p.when(g.Oldest))
	}
	for _, one := range g.Largest {
		group := "-"
		if one.Group != "" {
			group = quoteText(one.Group)
		}
		add(quoteText(one.Kind), group, one)
	}
	if g.Others.Tasks > 0 {
		others := count(g.More, "other")
		if g.Cut {
			others = "at least " + others
		}
		add("", others, g.Others)
	}
	t.write(p.out, p.width)
	return nil
}

const aboutFailures = `
Tasks of one kind whose last errors differ only in numbers form a group. # stands for the numbers.
Given up are tasks whose last run was given up, and which continue with their next run.
-failure finds a group by its text:

  timewheel unpark -kind mail -failure "timeout after #s"`

func defineFailures(p *program, f *flag.FlagSet) action {
	return defineLook(p, f, (*place).define, "write JSON lines",
		func(ctx context.Context, s scheduler, asJSON bool) error {
			found, err := failuresOf(ctx, s)
			if err != nil {
				return err
			}
			return p.writeFailures(found, asJSON)
		})
}

// failuresOf retries until it has read at least one task. On a new connection, a slow database may take longer for its
// first answer than a single attempt allows.
func failuresOf(ctx context.Context, s scheduler) (found durable.Failures, err error) {
	for {
		found, err = s.Failures(ctx)
		if err != nil || !found.Cut || found.Looked > 0 {
			return found, err
		}
	}
}

type groupJSON struct {
	Kind    text      `json:"kind"`
	Text    string    `json:"text"`
	Tasks   int       `json:"tasks"`
	Parked  int       `json:"parked"`
	GivenUp int       `json:"given_up"`
	Example text      `json:"example"`
	Last    time.Time `json:"last,omitzero"`
}

func (p *program) writeFailures(found durable.Failures, asJSON bool) error {
	if found.Cut {
		fmt.Fprintf(p.err, "There are more than the %s looked at.\n", count(found.Looked, "failing task"))
	}
	if asJSON {
		for _, g := range found.Groups {
			err := writeJSON(p.out, groupJSON{text(g.Kind), g.Text, g.Tasks, g.Parked, g.GivenUp, text(g.Example), g.Last.UTC()})
			if err != nil {
				return err
			}
		}
		return nil
	}
	if len(found.Groups) == 0 {
		fmt.Fprintln(p.err, "No task fails.")
		return nil
	}
	t := table{columns: []column{
		{title: "TASKS", right: true}, {title: "PARKED", right: true}, {title: "GIVEN UP", right: true}, {title: "KIND", least: 8},
		{title: "ERROR", least: 16}, {title: "EXAMPLE", least: 12}, {title: "LAST"},
	}}
	for _, g := range found.Groups {
		t.add(number(g.Tasks), number(g.Parked), number(g.GivenUp), quoteText(g.Kind), quoteText(g.Text), quoteText(g.Example),
			p.when(g.Last))
	}
	t.write(p.out, p.width)
	return nil
}

func defineVersion(p *program, _ *flag.FlagSet) action {
	return noArgs(func(context.Context) error {
		version := "unknown"
		if info, ok := debug.ReadBuildInfo(); ok {
			version = info.Main.Version + ", " + info.GoVersion
		}
		_, err := fmt.Fprintln(p.out, "timewheel "+version)
		return err
	})
}
