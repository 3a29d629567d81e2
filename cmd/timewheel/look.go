// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"flag"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
)

const aboutStats = `
The last attempt of a failing task failed. The task is retried, is parked, or waits for its next run
because this one was given up. Parked tasks that repeat stand still, and are named first. Paused
tasks are not failing. Overdue tasks are due and do not run,
also because its kind is paused. Of a cluster it names the kinds that no node has a handler for.

With -by group it counts the tasks of each group, such as a tenant, of all or of those that a search
finds: the ten groups with most tasks, with how many are due and not running, and since when.

  timewheel stats -by group -kind mail -state waiting`

func defineStats(p *program, f *flag.FlagSet) action {
	var q search
	q.defineQuery(f, true)
	byGroup := false
	f.Func("by", "count the tasks by `WHAT`: "+strings.Join(countedBy, ", "), func(value string) error {
		if !slices.Contains(countedBy, value) {
			return fmt.Errorf("%q must be one of %s%s", value, strings.Join(countedBy, ", "), didYouMean(value, countedBy))
		}
		byGroup = value == "group"
		return nil
	})
	act := defineLook(p, f, (*place).define, "write one line of JSON",
		func(ctx context.Context, s scheduler, asJSON bool) error {
			if byGroup {
				return p.groups(ctx, s, q.Query, asJSON)
			}
			census, err := wholeCensus(ctx, s)
			if err != nil {
				return err
			}
			late, err := overdueOf(ctx, s)
			if err != nil {
				return err
			}
			paused, err := s.Paused(ctx)
			if err != nil {
				return err
			}
			handled, err := handledKinds(ctx, s)
			if err != nil {
				return err
			}
			still, err := standingStill(ctx, s)
			if err != nil {
				return err
			}
			tuned, err := s.Tuned(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(p.out, newStatsJSON(census, late, paused, handled, still))
			}
			p.writeStats(census, late, paused, handled, still)
			p.writeTuning(tuned)
			return nil
		})
	return func(ctx context.Context, args []string) error {
		if q.given() && !byGroup {
			return usagef("the flags of a search need -by group")
		}
		return act(ctx, args)
	}
}

// countedBy holds the values of -by.
var countedBy = []string{"kind", "group"}

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

// without returns the kinds that have tasks but no handler on any node. It returns nil if there are no nodes, or if
// some node does not report all of its kinds.
func (h handling) without(c durable.Counts) (kinds []string) {
	for _, k := range c.Kinds {
		if h.nodes > 0 && !h.more && !slices.Contains(h.kinds, k.Kind) {
			kinds = append(kinds, k.Kind)
		}
	}
	return kinds
}

// An overdue holds the number of waiting due tasks, and the due time of the oldest one.
type overdue struct {
	tasks  int
	oldest time.Time // zero if there are none
}

// overdueOf returns the overdue tasks. It does not use [durable.Scheduler.CatchUp], which omits kinds without a handler
// in this process. In this program, no kind has a handler.
func overdueOf(ctx context.Context, s scheduler) (o overdue, err error) {
	waiting := durable.Query{State: durable.Waiting, Limit: 1, For: time.Minute}
	first, err := s.Find(ctx, waiting)
	if err != nil || len(first.Tasks) == 0 {
		return o, err
	}
	o.oldest = first.Tasks[0].Next
	o.tasks, err = s.Bulk(ctx, durable.Query{State: durable.Waiting}, durable.DoNothing)
	return o, err
}

// stillMost is how many parked tasks that repeat are named.
const stillMost = 5

// A still holds the parked tasks that repeat.
type still struct {
	tasks []durable.Info // at most stillMost
	more  bool
}

// standingStill returns the parked tasks that repeat.
func standingStill(ctx context.Context, s scheduler) (still, error) {
	q := durable.Query{State: durable.Parked, Repeating: true, Limit: stillMost + 1, For: time.Minute}
	found, err := s.Find(ctx, q)
	n := min(len(found.Tasks), stillMost)
	return still{found.Tasks[:n], len(found.Tasks) > n || found.Cut}, err
}

func (p *program) writeStill(of still) {
	if len(of.tasks) == 0 {
		return
	}
	var names []string
	for _, i := range of.tasks {
		names = append(names, quoteText(i.Key)+" of kind "+quoteText(i.Kind))
	}
	if of.more {
		names = append(names, "and others")
	}
	fmt.Fprintf(p.out, "Parked tasks that repeat, and stand still: %s.\n\n", strings.Join(names, ", "))
}

// wholeCensus waits until all tasks of a store have been counted, and returns the counts.
func wholeCensus(ctx context.Context, s scheduler) (durable.Counts, error) {
	const every = 20 * time.Millisecond
	for {
		census, err := s.Counts(ctx)
		if err != nil || census.Whole {
			return census, err
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return census, ctx.Err()
		}
	}
}

func (p *program) writeStats(c durable.Counts, late overdue, paused durable.Pauses, handled handling, parked still) {
	p.writeStill(parked)
	t := table{columns: []column{
		{title: "KIND", least: 8}, {title: "TASKS", right: true}, {title: "FAILING", right: true},
		{title: "PARKED", right: true}, {title: "PAUSED", right: true},
	}}
	if len(handled.limits) > 0 {
		t.columns = append(t.columns, column{title: "LIMIT"})
	}
	all := durable.KindCounts{}
	add := func(kind string, k durable.KindCounts) {
		cells := []string{kind, number(k.Tasks), number(k.Failing), number(k.Parked), number(k.Paused),
			strings.Join(handled.limits[k.Kind], ", or ")}
		t.add(cells[:len(t.columns)]...)
	}
	for _, k := range c.Kinds {
		add(quoteText(k.Kind), k)
		all.Tasks, all.Failing = all.Tasks+k.Tasks, all.Failing+k.Failing
		all.Parked, all.Paused = all.Parked+k.Parked, all.Paused+k.Paused
	}
	add("all", all)
	t.write(p.out, p.width)
	fmt.Fprintln(p.out)
	p.writePauses(paused)
	for _, kind := range handled.without(c) {
		fmt.Fprintf(p.out, "Kind %s has no handler on any node.\n", quoteText(kind))
	}
	switch late.tasks {
	case 0:
		fmt.Fprintln(p.out, "Nothing is overdue.")
	case 1:
		fmt.Fprintf(p.out, "1 task is overdue; it was due %s.\n", when(late.oldest, p.now()))
	default:
		fmt.Fprintf(p.out, "%s are overdue; the first was due %s.\n", count(late.tasks, "task"),
			when(late.oldest, p.now()))
	}
}

type statsJSON struct {
	At      time.Time    `json:"at"`
	Tasks   int          `json:"tasks"`
	Failing int          `json:"failing"`
	Parked  int          `json:"parked"`
	Paused  int          `json:"paused"`
	Kinds   []kindJSON   `json:"kinds"`
	Overdue *overdueJSON `json:"overdue"` // null if no task is overdue
	Pauses  pausesJSON   `json:"pauses"`

	Unhandled []text `json:"unhandled,omitempty"` // kinds that no node handles

	Still     []text `json:"parked_repeating,omitempty"`      // the keys of the first parked tasks that repeat
	StillMore bool   `json:"parked_repeating_more,omitempty"` // there are more of them
}

type kindJSON struct {
	Kind    text `json:"kind"`
	Tasks   int  `json:"tasks"`
	Failing int  `json:"failing"`
	Parked  int  `json:"parked"`
	Paused  int  `json:"paused"`

	Limits []string `json:"limits,omitempty"` // in words; several if the nodes do not agree
}

type overdueJSON struct {
	Tasks  int       `json:"tasks"`
	Oldest time.Time `json:"oldest,omitzero"`
}

func newStatsJSON(c durable.Counts, late overdue, paused durable.Pauses, handled handling, parked still) statsJSON {
	s := statsJSON{At: c.At.UTC(), Kinds: []kindJSON{}, Pauses: newPausesJSON(paused)}
	for _, k := range c.Kinds {
		s.Tasks, s.Failing = s.Tasks+k.Tasks, s.Failing+k.Failing
		s.Parked, s.Paused = s.Parked+k.Parked, s.Paused+k.Paused
		s.Kinds = append(s.Kinds, kindJSON{text(k.Kind), k.Tasks, k.Failing, k.Parked, k.Paused, handled.limits[k.Kind]})
	}
	s.StillMore = parked.more
	for _, i := range parked.tasks {
		s.Still = append(s.Still, text(i.Key))
	}
	for _, kind := range handled.without(c) {
		s.Unhandled = append(s.Unhandled, text(kind))
	}
	if late.tasks > 0 {
		s.Overdue = &overdueJSON{late.tasks, late.oldest.UTC()}
	}
	return s
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

const aboutNodes = `
A late lease belongs to a node that has died or is cut off: other nodes take over its tasks. A
drained node starts no further run, and shows no kinds once none of its runs is in progress. A
node that is leaving waits for the ends of its runs. A node that cannot run tasks is not served by
the engine. A kind is followed by its limits.`

func defineNodes(p *program, f *flag.FlagSet) action {
	return defineLook(p, f, (*place).defineRunning, "write JSON lines",
		func(ctx context.Context, s scheduler, asJSON bool) error {
			nodes, err := s.Nodes(ctx)
			if err != nil {
				return err
			}
			return p.writeNodes(nodes, asJSON)
		})
}

type nodeJSON struct {
	Name  string          `json:"name"`
	ID    engine.MemberID `json:"id,string"`
	Lease seconds         `json:"lease"`
	Left  seconds         `json:"left"` // time left on the lease; negative if the renewal is late

	durable.NodeReport
	OldestWait seconds   `json:"oldest_wait"` // as of the last lease renewal
	SinceStart seconds   `json:"since_start"` // time since a run last started, as of that renewal; 0 if none has
	Busiest    *runsJSON `json:"busiest"`     // null if no run was in progress
}

type runsJSON struct {
	Kind    string  `json:"kind"`
	Running int     `json:"running"`
	Longest seconds `json:"longest"`
}

func newNodeJSON(n durable.NodeInfo) nodeJSON {
	j := nodeJSON{
		Name: n.Name, ID: n.ID, Lease: seconds(n.Lease), Left: seconds(n.Left), NodeReport: n.NodeReport,
		OldestWait: seconds(n.OldestWait), SinceStart: seconds(n.SinceStart),
	}
	if b := n.Busiest; b.Running > 0 {
		j.Busiest = &runsJSON{b.Kind, b.Running, seconds(b.Longest)}
	}
	return j
}

func (p *program) writeNodes(nodes []durable.NodeInfo, asJSON bool) error {
	if asJSON {
		for _, n := range nodes {
			if err := writeJSON(p.out, newNodeJSON(n)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(nodes) == 0 {
		fmt.Fprintln(p.err, "There are no nodes.")
		return nil
	}
	t := table{columns: []column{
		{title: "NODE", least: 8}, {title: "ID", right: true}, {title: "LEASE"}, {title: "HELD", right: true},
		{title: "WAITING", right: true}, {title: "RUNNING", right: true}, {title: "OLDEST WAIT", right: true}, {title: "MOST RUNS", least: 8}, {title: "STARTED"},
		{title: "VERSION", least: 6}, {title: "KINDS", least: 8},
	}}
	for _, n := range nodes {
		lease := span(n.Lease) + ", " + span(n.Left) + " left"
		switch {
		case n.Left < 0:
			lease = span(n.Lease) + ", late by " + span(-n.Left)
		case n.Left < n.Lease/2: // it has missed two renewals
			lease += ", not renewed in time"
		}
		kinds := make([]string, len(n.Kinds))
		for i, kind := range n.Kinds {
			kinds[i] = quoteText(kind)
			if l := slices.IndexFunc(n.Limits, func(l durable.KindLimits) bool { return l.Kind == kind }); l >= 0 {
				kinds[i] += " (" + n.Limits[l].String() + ")"
			}
		}
		if n.Drained {
			lease += ", drained"
		}
		if n.Leaving {
			lease += ", leaving"
		}
		if n.Away {
			lease += ", cannot run tasks"
		}
		t.add(quoteText(n.Name), fmt.Sprint(n.ID), lease, number(n.Held), number(n.Waiting),
			number(n.Running)+" of "+number(n.Workers), span(n.OldestWait), mostRuns(n.Busiest), p.when(n.Started), n.Version, strings.Join(kinds, ", "))
	}
	t.write(p.out, p.width)
	return nil
}

// mostRuns describes the kind with the most runs in progress on a node, and how long its longest run has taken.
func mostRuns(r durable.KindRuns) string {
	if r.Running == 0 {
		return ""
	}
	return fmt.Sprintf("%s of kind %s for %s", number(r.Running), quoteText(r.Kind), span(r.Longest))
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
