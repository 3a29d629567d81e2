// SPDX-License-Identifier: MIT

package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// IsLate reports whether the node has missed two renewals of its lease. A renewal is due every quarter of a lease.
func (n NodeReading) IsLate() bool { return n.Left < n.Lease/2 }

// LateNodes returns the nodes that have missed two renewals while the engine was answering.
func LateNodes(now SchedulerReading, past []SchedulerReading) (late []NodeReading) {
	if now.Unread != "" || now.NodesOld {
		return nil
	}
	var back time.Time // since when the engine has been answering again
	for i := len(past) - 1; i >= 0; i-- {
		if past[i].Unread != "" {
			if back = now.Time; i+1 < len(past) {
				back = past[i+1].Time
			}
			break
		}
	}
	for _, n := range now.Nodes {
		if n.IsLate() && now.Time.Sub(back) >= n.Lease/2 {
			late = append(late, n)
		}
	}
	return late
}

func nodesLate(now SchedulerReading, past []SchedulerReading) []Finding {
	var all []Finding
	var names []string
	what := "nodes have not renewed their leases in time"
	for _, n := range LateNodes(now, past) {
		from := now.Time.Add(n.Left - n.Lease)
		text := fmt.Sprintf("Node %s has not renewed its lease for %s", n.Name, Span(n.Lease-n.Left))
		switch {
		case n.Left > 0:
		case now.takesOver(n):
			text += ": it has expired, and other nodes take over its tasks"
		default:
			text += ": it has expired, and no other node takes over its tasks"
			what = "nodes have not renewed their leases in time, and no other node takes over their tasks"
		}
		all, names = append(all, Finding{NodeLate, from, text}), append(names, n.Name)
	}
	return together(all, what, names)
}

// takesOver reports whether another node has a lease, starts runs, and may handle a kind of the node.
func (r SchedulerReading) takesOver(late NodeReading) bool {
	return slices.ContainsFunc(r.Nodes, func(n NodeReading) bool {
		away := n.Away
		if n.Self {
			away = r.Away != ""
		}
		shares := !n.AllKinds || !late.AllKinds || slices.ContainsFunc(n.Kinds, func(kind string) bool { return slices.Contains(late.Kinds, kind) })
		return n.ID != late.ID && n.Left > 0 && !n.startsNone() && !away && shares
	})
}

// startsNone reports whether the node starts no further run, as it was told.
func (n NodeReading) startsNone() bool { return n.Drained || n.Leaving }

// allDrained reports that an operator has drained every node.
func allDrained(now SchedulerReading, past []SchedulerReading) []Finding {
	if !now.isDrained() {
		return nil
	}
	n, left := 0, ""
	for _, node := range now.Nodes {
		if node.Left <= 0 {
			continue
		}
		if n++; !node.Drained {
			left = " or leaving"
		}
	}
	text := "The only node is drained, and nothing starts"
	if n > 1 {
		text = fmt.Sprintf("All %s are drained%s, and nothing starts", count(n, "node"), left)
	}
	due := now.Left.Tasks
	for _, o := range now.Orphans {
		due += o.Due
	}
	if due > 0 {
		text += ": " + atLeast(now.LeftMore) + dueTasks(due)
	}
	return []Finding{{Drained, since(now, past, SchedulerReading.isDrained), text}}
}

// isDrained reports whether a node with a lease is drained, and every other one is drained or leaving.
func (r SchedulerReading) isDrained() bool {
	with := func(is func(NodeReading) bool) bool {
		return slices.ContainsFunc(r.Nodes, func(n NodeReading) bool { return n.Left > 0 && is(n) })
	}
	return r.Unread == "" && !r.NodesOld && with(func(n NodeReading) bool { return n.Drained }) &&
		!with(func(n NodeReading) bool { return !n.startsNone() })
}

// drained returns the nodes that an operator has drained.
func drained(now SchedulerReading, past []SchedulerReading) []Finding {
	return states(now, past, Drained, "nodes are drained", func(n NodeReading) string {
		switch {
		case !n.Drained:
			return ""
		case n.Running > 0:
			return fmt.Sprintf("Node %s is drained; runs in progress: %s", n.Name, number(n.Running))
		case n.Held > 0: // it holds a task until the end of its run is stored
			return fmt.Sprintf("Node %s is drained; tasks that it still holds: %s", n.Name, number(n.Held))
		case n.IsLate():
			return fmt.Sprintf("Node %s is drained, and its runs may be in progress: it does not renew its lease", n.Name)
		case now.NodesOld:
			return fmt.Sprintf("Node %s is drained", n.Name)
		}
		return fmt.Sprintf("Node %s is drained and can be stopped", n.Name)
	})
}

// leaving returns the nodes that shut down and wait for the ends of their runs.
func leaving(now SchedulerReading, past []SchedulerReading) []Finding {
	return states(now, past, Leaving, "nodes are leaving", func(n NodeReading) string {
		if !n.Leaving || n.Running == 0 || n.IsLate() {
			return ""
		}
		return fmt.Sprintf("Node %s is leaving: %s left", n.Name, count(n.Running, "run"))
	})
}

// states returns a finding about each node for which the function returns a text.
func states(now SchedulerReading, past []SchedulerReading, kind Kind, what string, text func(NodeReading) string) []Finding {
	var all []Finding
	var names []string
	for _, n := range now.Nodes {
		if text(n) == "" {
			continue
		}
		from := since(now, past, func(r SchedulerReading) bool {
			return slices.ContainsFunc(r.Nodes, func(m NodeReading) bool { return m.ID == n.ID && text(m) != "" })
		})
		all, names = append(all, Finding{kind, from, text(n)}), append(names, n.Name)
	}
	return together(all, what, names)
}

// together returns the findings about the nodes with the names, or a single one if there are more than mostAlike. It is
// as old as the oldest of them.
func together(all []Finding, what string, names []string) []Finding {
	if len(all) <= mostAlike {
		return all
	}
	one := all[0]
	for _, f := range all {
		if f.Since.Before(one.Since) {
			one.Since = f.Since
		}
	}
	one.Text = fmt.Sprintf("%s %s: %s and %s", number(len(all)), what, strings.Join(names[:mostAlike], ", "),
		count(len(all)-mostAlike, "other"))
	return []Finding{one}
}

// backAfter is how long the return of a lost node is reported.
const backAfter = 5 * time.Second

// nodesLost reports the nodes that were lost lately. These are the nodes that other nodes report as taken over. They
// also include nodes that were late when last seen, in case the node that took them over is also gone. A node that left
// by Shutdown is not reported. A node that has returned is reported only for a while.
func nodesLost(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Unread != "" || now.NodesOld {
		return nil
	}
	var lost []LostNode // the latest loss for each name
	note := func(l LostNode) {
		for i := range lost {
			if lost[i].Name == l.Name {
				if l.At.After(lost[i].At) {
					lost[i] = l
				}
				return
			}
		}
		lost = append(lost, l)
	}
	for _, l := range now.Lost {
		note(l)
	}
	known := make(map[int64]bool)
	for _, n := range now.Nodes {
		known[n.ID] = true
	}
	missed := now.Time // the time of the reading after past[i]
	for i := len(past) - 1; i >= 0 && now.Time.Sub(past[i].Time) <= Lately; i-- {
		if past[i].Unread != "" {
			continue // a node that is missing afterwards has been missing since the engine returned
		}
		for _, n := range past[i].Nodes {
			said := func(l LostNode) bool { return l.Name == n.Name }
			if !known[n.ID] && (n.IsLate() || now.joinedAgain(n)) && !slices.ContainsFunc(lost, said) {
				note(LostNode{n.Name, missed})
			}
			known[n.ID] = true
		}
		for _, l := range past[i].Lost {
			note(l)
		}
		missed = past[i].Time
	}
	var all []Finding
	var names []string
	for _, l := range lost {
		age := now.Time.Sub(l.At)
		back := now.backAt(l)
		for i := len(past) - 1; i >= 0 && past[i].Time.After(l.At); i-- {
			if at := past[i].backAt(l); !at.IsZero() {
				back = at
			}
		}
		if age > Lately || !back.IsZero() && now.Time.Sub(back) >= backAfter {
			continue
		}
		text := fmt.Sprintf("Node %s was lost %s: its lease expired, and other nodes took over its tasks", l.Name, ago(age)) +
			cutOff(now, past, l.At)
		if !back.IsZero() {
			text += "; it is back"
		}
		all, names = append(all, Finding{NodeLost, l.At, text}), append(names, l.Name)
	}
	return together(all, "nodes were lost in the last "+Span(Lately), names)
}

// cutOff says how many attempts of which kinds this node has found cut off since shortly before the loss of a node.
func cutOff(now SchedulerReading, past []SchedulerReading, lost time.Time) string {
	base := SchedulerReading{}
	for _, p := range past {
		if lost.Sub(p.Time) < cutBefore {
			break
		}
		base = p
	}
	var all []string
	for _, k := range now.Kinds {
		if n := k.Interrupted - base.kind(k.Kind).Interrupted; n > 0 {
			all = append(all, fmt.Sprintf("%s of kind %s", number(n), k.Kind))
		}
	}
	if len(all) == 0 || base.Time.IsZero() {
		return ""
	}
	return "; cut off: " + strings.Join(all[:min(len(all), mostAlike)], ", ")
}

// cutBefore is how long before a reading that shows the loss of a node its tasks may have been claimed.
const cutBefore = 2 * time.Second

// backAt returns when the lost node came back, at the latest: when it was lost or, if it is a process that was started
// later, when that was. It returns zero if the node is not there.
func (r SchedulerReading) backAt(lost LostNode) (at time.Time) {
	for _, n := range r.Nodes {
		if n.Name == lost.Name && !n.IsLate() {
			if at = lost.At; n.Started.After(at) {
				at = n.Started
			}
		}
	}
	return at
}

// joinedAgain reports whether a missing node has joined again as another member, without having been restarted.
func (r SchedulerReading) joinedAgain(missed NodeReading) bool {
	return slices.ContainsFunc(r.Nodes, func(n NodeReading) bool {
		return n.Name == missed.Name && n.Started.Equal(missed.Started) && !n.Started.IsZero()
	})
}
