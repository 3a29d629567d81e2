// SPDX-License-Identifier: MIT

package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The kinds of findings about a durable scheduler, worst first. Stopped ranks above all of them, and Overloaded ranks
// directly below NodeLate.
const (
	StoreFailed Kind = "failed"    // the store has failed, and no run starts
	EngineAway  Kind = "away"      // the engine does not do what the node needs to run tasks
	Unread      Kind = "unread"    // the page cannot read the engine
	Unflushed   Kind = "unflushed" // a crash of the engine's server may lose acknowledged tasks
	Refused     Kind = "refused"   // connections to an old primary or another cluster were refused in the last minute
	NodeLate    Kind = "lease"     // a node has not renewed its lease in time
	Unhandled   Kind = "unhandled" // some due tasks are of a kind without a handler
	Failing     Kind = "failing"   // most attempts of a kind have failed lately
	Parked      Kind = "parked"    // tasks are parked
	CatchingUp  Kind = "backlog"   // overdue tasks remain
	NodeLost    Kind = "taken"     // a node's lease has expired lately, and other nodes have taken over its tasks
	Counting    Kind = "counting"  // the tasks have not been counted yet, or not since an outage
)

// The kinds of notes, which are not alarms.
const (
	Paused  Kind = "paused"  // tasks are paused, as requested; a finding if due tasks have waited for an hour
	Limited Kind = "limited" // tasks of a kind wait for its limit
	Drained Kind = "drained" // a node starts no further run, because an operator has drained it; a finding if no other node is left
	Leaving Kind = "leaving" // a node shuts down and waits for the ends of its runs
	DiskLow Kind = "disk"    // the store's disk is nearly full, but the store works
	Slow    Kind = "slow"    // the engine takes long to answer
	Starved Kind = "cpu"     // this process gets too little CPU
	Dirty   Kind = "vacuum"  // no autovacuum removes the dead rows of the engine
)

// mostAlike is the maximum number of findings of one kind that are listed. If there are more, the last one says so.
const mostAlike = 3

// mostCause is the maximum number of bytes quoted from an error.
const mostCause = 200

// JudgeScheduler is like [Judge], but for a durable scheduler.
func JudgeScheduler(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Stopped {
		from := since(now, past, func(r SchedulerReading) bool { return r.Stopped })
		return []Finding{{Stopped, from, "Stopped: it was shut down"}}
	}
	if now.Broken != "" { // nothing else matters, and the other readings may be old
		return []Finding{storeFailed(now, past)}
	}
	var all []Finding
	for _, judge := range []func(SchedulerReading, []SchedulerReading) []Finding{
		engineAway, unread, unflushed, refused, nodesLate, allDrained, allBusy, unhandled, failing, parked, forgotten, catchingUp, nodesLost, counting,
	} {
		all = append(all, judge(now, past)...)
	}
	return all
}

// SchedulerIsWell describes a reading without findings.
func SchedulerIsWell(now SchedulerReading) string {
	text := fmt.Sprintf("Working: %s of %s busy, %s, none parked",
		number(now.Running), count(now.Workers, "worker"), count(now.Tasks, "task"))
	if len(now.Nodes) > 1 {
		text += fmt.Sprintf(", %s", count(len(now.Nodes), "node"))
	}
	return text
}

// NotesOfScheduler returns the intended reasons why tasks do not run: paused kinds, and overdue tasks held back by the
// limit of their kind. It also includes a finding if the store's disk is nearly full, or the engine slow.
func NotesOfScheduler(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Stopped {
		return nil
	}
	return slices.Concat(pauses(now, past, false), drained(now, past), leaving(now, past), limited(now, past), slow(now, past),
		starved(now, past), dirty(now, past), diskLow(now, past))
}

// since returns the time of the first reading in the latest series of readings for which the given function returns
// true. It returns the zero time, which means unknown, if the series begins with the oldest reading.
func since(now SchedulerReading, past []SchedulerReading, is func(SchedulerReading) bool) time.Time {
	from := now.Time
	for i := len(past) - 1; i >= 0; i-- {
		if !is(past[i]) {
			return from
		}
		from = past[i].Time
	}
	return time.Time{}
}

// lasting returns a phrase such as " for 41 s" if the time is known and at least a second ago.
func lasting(now, from time.Time) string {
	if d := now.Sub(from); !from.IsZero() && d >= time.Second {
		return " for " + Span(d)
	}
	return ""
}

// few returns the first findings. If there are more, the text of the last one says so.
func few(all []Finding, what string) []Finding {
	if len(all) > mostAlike {
		all = all[:mostAlike:mostAlike]
		all[mostAlike-1].Text += fmt.Sprintf(" (and more: %s)", what)
	}
	return all
}

// cause returns the beginning of an error, on one line.
func cause(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if len(text) <= mostCause {
		return text
	}
	n := mostCause
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

func dueTasks(n int) string {
	if n == 1 {
		return "1 due task waits"
	}
	return number(n) + " due tasks wait"
}

func atLeast(more bool) string {
	if more {
		return "at least "
	}
	return ""
}

// size formats a number of bytes, for example as "1.2 GB".
func size(n int64) string {
	const units = "kMGTPE"
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/1000, 0
	for ; f >= 999.95; i++ {
		f /= 1000
	}
	return fmt.Sprintf("%.1f %cB", f, units[i])
}
