// SPDX-License-Identifier: MIT

package health

import (
	"fmt"
	"slices"
	"time"
)

func isBusy(r SchedulerReading) bool {
	return r.OldestWait >= TooLong && r.Broken == "" && r.Away == ""
}

// isBusy reports whether this is another node that has reported itself as overloaded. The report of a late node is too
// old to count.
func (n NodeReading) isBusy() bool { return !n.Self && n.OldestWait >= TooLong && !n.IsLate() }

// allBusy reports due tasks that have waited for TooLong, here and on other nodes. The rule is the same as for a wheel.
func allBusy(now SchedulerReading, past []SchedulerReading) []Finding {
	var all []Finding
	if isBusy(now) {
		from := now.Time.Add(-now.OldestWait)
		for i := len(past) - 1; i >= 0 && isBusy(past[i]); i-- {
			if began := past[i].Time.Add(-past[i].OldestWait); began.Before(from) {
				from = began
			}
		}
		waiting := waits(now.Waiting)
		if now.Left.Tasks > now.Waiting {
			waiting = atLeast(now.LeftMore) + dueTasks(now.Left.Tasks)
		} else if now.Waiting == 0 {
			waiting = "due tasks wait"
		}
		text := fmt.Sprintf("Overloaded for %s: %s", Span(now.Time.Sub(from)),
			load(now.Running, now.Workers, waiting, now.OldestWait, now.SinceStart, now.Busiest))
		if b := now.Busiest; now.Running < now.Workers && b.Waiting > 0 && b.Longest >= TooLong {
			text = fmt.Sprintf("%s of kind %s wait, the oldest due task for %s: a slow kind gets half of the workers (%s of %s); the longest run for %s",
				number(b.Waiting), b.Kind, Span(now.OldestWait), number(b.Running), number(now.Workers), Span(b.Longest))
		}
		all = append(all, Finding{Overloaded, from, text})
	}
	if now.Unread != "" {
		return all // the node reports are old
	}
	var others []Finding
	var names []string
	for _, n := range now.Nodes {
		if n.isBusy() {
			names = append(names, n.Name)
			others = append(others, Finding{Overloaded, now.Time.Add(-n.OldestWait), fmt.Sprintf("Node %s is overloaded: %s",
				n.Name, load(n.Running, n.Workers, "due tasks wait", n.OldestWait, n.SinceStart, n.Busiest))})
		}
	}
	return append(all, together(others, "nodes are overloaded", names)...)
}

// load describes what the workers of an overloaded scheduler are doing.
func load(running, workers int, waiting string, oldest, sinceStart time.Duration, busiest KindRuns) string {
	text := fmt.Sprintf("%s of %s busy, %s, the oldest for %s",
		number(running), count(workers, "worker"), waiting, Span(oldest))
	if sinceStart >= TooLong {
		text += fmt.Sprintf("; none has started for %s", Span(sinceStart))
	}
	return text + busiest.long()
}

// long describes the runs of the kind that occupies the most workers, if the longest of these runs is long.
func (k KindRuns) long() string {
	switch {
	case k.Longest < TooLong:
		return ""
	case k.Running == 1:
		return fmt.Sprintf("; 1 worker has run kind %s for %s", k.Kind, Span(k.Longest))
	}
	return fmt.Sprintf("; %s workers run kind %s, the longest for %s", number(k.Running), k.Kind, Span(k.Longest))
}

// nothingStarts reports whether no run has started on any node for TooLong while due tasks have been waiting for a
// worker.
func nothingStarts(r SchedulerReading) bool {
	return isBusy(r) && r.SinceStart >= TooLong && !slices.ContainsFunc(r.Nodes, func(n NodeReading) bool {
		return !n.Self && !n.IsLate() && (!n.isBusy() || n.SinceStart < TooLong)
	})
}

func catchingUp(now SchedulerReading, past []SchedulerReading) []Finding {
	if nothingStarts(now) || now.isDrained() {
		return nil // another finding already gives the number
	}
	is := func(r SchedulerReading) bool { return r.Left.Tasks > 0 && r.Time.Sub(r.Left.Oldest) >= TooLong }
	if !is(now) || now.Unread != "" {
		return nil
	}
	text := fmt.Sprintf("Catching up: %s%s left, the oldest due %s%s",
		atLeast(now.LeftMore), count(now.Left.Tasks, "overdue task"), ago(now.Time.Sub(now.Left.Oldest)), now.counted())
	if now.Done.After(now.Time) && now.Limited == nil {
		text += ", done in about " + Span(now.Done.Sub(now.Time))
	}
	if !isBusy(now) { // a hanging kind occupies all workers that it may use, so its backlog waits
		text += now.Busiest.long()
	}
	return []Finding{{CatchingUp, since(now, past, is), text}}
}

// aged is the age from which a text says how old its numbers are.
const aged = 3 * time.Second

// counted says when the backlog was counted, if that was not just now.
func (r SchedulerReading) counted() string {
	if age := r.Time.Sub(r.LeftAt); !r.LeftAt.IsZero() && age >= aged {
		return ", counted " + ago(age)
	}
	return ""
}

// limited returns the kinds whose tasks wait for their limit.
func limited(now SchedulerReading, past []SchedulerReading) (all []Finding) {
	if now.Unread != "" {
		return nil
	}
	for _, l := range now.Limited {
		is := func(r SchedulerReading) bool {
			return slices.ContainsFunc(r.Limited, func(m LimitedReading) bool {
				return m.Kind == l.Kind && m.Tasks > 0 && r.Time.Sub(m.Oldest) >= TooLong
			})
		}
		if is(now) {
			text := fmt.Sprintf("Kind %s: %s for its limit (%s), the oldest due %s%s",
				l.Kind, atLeast(now.LeftMore)+dueTasks(l.Tasks), l.Limit, ago(now.Time.Sub(l.Oldest)), now.counted())
			all = append(all, Finding{Limited, since(now, past, is), text})
		}
	}
	return few(all, "kinds wait for their limits")
}
