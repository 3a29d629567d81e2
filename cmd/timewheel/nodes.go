// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
)

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
