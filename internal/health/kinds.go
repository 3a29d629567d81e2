// SPDX-License-Identifier: MIT

package health

import (
	"fmt"
	"slices"
	"time"
)

func unhandled(now SchedulerReading, _ []SchedulerReading) []Finding {
	if now.Unread != "" || now.isDrained() {
		return nil // the readings are from before the outage, or all tasks wait
	}
	where := "here"
	if len(now.Nodes) > 1 {
		where = "on any node"
	}
	var all []Finding
	for _, o := range now.Orphans {
		if o.Due == 0 {
			continue
		}
		text := fmt.Sprintf("Kind %s has no handler %s: %s%s", o.Kind, where, atLeast(o.More), dueTasks(o.Due))
		if !o.Oldest.IsZero() {
			text += fmt.Sprintf(", the oldest for %s", Span(now.Time.Sub(o.Oldest)))
		}
		all = append(all, Finding{Unhandled, o.Oldest, text})
	}
	return few(all, "kinds have no handler")
}

// forgottenAfter is the length of a pause from which it is a finding, if tasks are due.
const forgottenAfter = time.Hour

// isForgotten reports whether a kind with due tasks has been paused for so long that the pause may have been forgotten.
func (d DueReading) isForgotten(now time.Time) bool {
	return d.Due > 0 && !d.Paused.IsZero() && now.Sub(d.Paused) >= forgottenAfter
}

// watchAfter is the length of a pause from which an operator should know of it, if tasks are due.
const watchAfter = time.Minute

// Watch reports whether due tasks have waited for the end of a pause for so long that an operator should know.
func (r SchedulerReading) Watch() bool {
	return slices.ContainsFunc(r.Paused, func(p DueReading) bool {
		return p.Due > 0 && !p.Paused.IsZero() && r.Time.Sub(p.Paused) >= watchAfter
	})
}

// forgotten reports the kinds whose pauses may have been forgotten.
func forgotten(now SchedulerReading, past []SchedulerReading) []Finding {
	return pauses(now, past, true)
}

// pauses returns the paused kinds whose pauses may have been forgotten, or all others.
func pauses(now SchedulerReading, past []SchedulerReading, forgotten bool) (all []Finding) {
	for _, p := range now.Paused {
		if p.isForgotten(now.Time) == forgotten {
			all = append(all, pause(p, now, past))
		}
	}
	return few(all, "kinds are paused")
}

// pause describes a paused kind.
func pause(p DueReading, now SchedulerReading, past []SchedulerReading) Finding {
	text := "All kinds are paused"
	if p.Kind != "" {
		text = fmt.Sprintf("Kind %s is paused", p.Kind)
	}
	text += lasting(now.Time, p.Paused)
	if p.Who != "" {
		text += " by " + p.Who
	}
	if p.Why != "" {
		text += fmt.Sprintf(" (%s)", cause(p.Why))
	}
	if p.Due > 0 {
		text += ": " + atLeast(p.More) + dueTasks(p.Due)
	}
	from := p.Paused
	if from.IsZero() {
		from = since(now, past, func(r SchedulerReading) bool {
			return slices.ContainsFunc(r.Paused, func(q DueReading) bool { return q.Kind == p.Kind })
		})
	}
	return Finding{Paused, from, text}
}

func parked(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Parked == 0 || now.Unread != "" {
		return nil
	}
	most := KindReading{}
	for _, k := range now.Kinds {
		if k.Parked > most.Parked {
			most = k
		}
	}
	text := "1 task is parked"
	if now.Parked > 1 {
		text = number(now.Parked) + " tasks are parked"
	}
	switch {
	case most.Parked == 0:
	case most.Parked >= now.Parked:
		text += ", of kind " + most.Kind
	default:
		text += fmt.Sprintf(", %s of them of kind %s", number(most.Parked), most.Kind)
	}
	text += ", waiting for an operator"
	if now.Counting {
		text += ", counted " + ago(now.Time.Sub(now.Counted))
	}
	return []Finding{{Parked, since(now, past, func(r SchedulerReading) bool { return r.Parked > 0 }), text}}
}
