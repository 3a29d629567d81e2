// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

const aboutStats = `
The last attempt of a failing task failed. The task is retried, is parked, or waits for its next run
because this one was given up. Parked tasks that repeat stand still, and are named first. Paused
tasks are not failing. Overdue tasks are due and do not run, whether their kind is paused or not.
Of a cluster it names the kinds that no node has a handler for.

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
			r, err := readStats(ctx, s)
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(p.out, newStatsJSON(r))
			}
			p.writeStats(r)
			return nil
		})
	return func(ctx context.Context, args []string) error {
		if q.given() && !byGroup {
			return usagef("the flags of a search need -by group")
		}
		return act(ctx, args)
	}
}

// A statsReading is what the command stats shows.
type statsReading struct {
	counts  durable.Counts
	overdue overdue
	still   still
	paused  durable.Pauses
	handled handling
	tuned   durable.Tuning
}

func readStats(ctx context.Context, s scheduler) (r statsReading, err error) {
	if r.counts, err = wholeCensus(ctx, s); err != nil {
		return r, err
	}
	if r.overdue, err = overdueOf(ctx, s); err != nil {
		return r, err
	}
	if r.paused, err = s.Paused(ctx); err != nil {
		return r, err
	}
	if r.handled, err = handledKinds(ctx, s); err != nil {
		return r, err
	}
	if r.still, err = standingStill(ctx, s); err != nil {
		return r, err
	}
	r.tuned, err = s.Tuned(ctx)
	return r, err
}

// countedBy holds the values of -by.
var countedBy = []string{"kind", "group"}

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

// overdueOf returns the overdue tasks. It counts them, while [durable.Scheduler.CatchUp] estimates.
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

func (p *program) writeStats(r statsReading) {
	p.writeStill(r.still)
	t := table{columns: []column{
		{title: "KIND", least: 8}, {title: "TASKS", right: true}, {title: "FAILING", right: true},
		{title: "PARKED", right: true}, {title: "PAUSED", right: true},
	}}
	if len(r.handled.limits) > 0 {
		t.columns = append(t.columns, column{title: "LIMIT"})
	}
	all := durable.KindCounts{}
	add := func(kind string, k durable.KindCounts) {
		cells := []string{kind, number(k.Tasks), number(k.Failing), number(k.Parked), number(k.Paused),
			strings.Join(r.handled.limits[k.Kind], ", or ")}
		t.add(cells[:len(t.columns)]...)
	}
	for _, k := range r.counts.Kinds {
		add(quoteText(k.Kind), k)
		all.Tasks, all.Failing = all.Tasks+k.Tasks, all.Failing+k.Failing
		all.Parked, all.Paused = all.Parked+k.Parked, all.Paused+k.Paused
	}
	add("all", all)
	t.write(p.out, p.width)
	fmt.Fprintln(p.out)
	p.writePauses(r.paused)
	for _, kind := range r.handled.without(r.counts) {
		fmt.Fprintf(p.out, "Kind %s has no handler on any node.\n", quoteText(kind))
	}
	switch late := r.overdue; late.tasks {
	case 0:
		fmt.Fprintln(p.out, "Nothing is overdue.")
	case 1:
		fmt.Fprintf(p.out, "1 task is overdue; it was due %s.\n", when(late.oldest, p.now()))
	default:
		fmt.Fprintf(p.out, "%s are overdue; the first was due %s.\n", count(late.tasks, "task"),
			when(late.oldest, p.now()))
	}
	p.writeTuning(r.tuned)
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
	Tuning  tuningJSON   `json:"tuning"`

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

func newStatsJSON(r statsReading) statsJSON {
	s := statsJSON{At: r.counts.At.UTC(), Kinds: []kindJSON{}, Pauses: newPausesJSON(r.paused), Tuning: newTuningJSON(r.tuned)}
	for _, k := range r.counts.Kinds {
		s.Tasks, s.Failing = s.Tasks+k.Tasks, s.Failing+k.Failing
		s.Parked, s.Paused = s.Parked+k.Parked, s.Paused+k.Paused
		s.Kinds = append(s.Kinds, kindJSON{text(k.Kind), k.Tasks, k.Failing, k.Parked, k.Paused, r.handled.limits[k.Kind]})
	}
	s.StillMore = r.still.more
	for _, i := range r.still.tasks {
		s.Still = append(s.Still, text(i.Key))
	}
	for _, kind := range r.handled.without(r.counts) {
		s.Unhandled = append(s.Unhandled, text(kind))
	}
	if late := r.overdue; late.tasks > 0 {
		s.Overdue = &overdueJSON{late.tasks, late.oldest.UTC()}
	}
	return s
}
