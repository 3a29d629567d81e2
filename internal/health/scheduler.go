// SPDX-License-Identifier: MIT

package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The kinds of findings about a durable scheduler, the worst first. Stopped is worse than all of them, and
// Overloaded comes after NodeLate.
const (
	StoreFailed Kind = "failed"    // the store has failed, and nothing runs any more
	EngineAway  Kind = "away"      // the engine does not answer
	NodeLate    Kind = "lease"     // a node has not renewed its lease in time
	Unhandled   Kind = "unhandled" // due tasks have a kind without a handler
	Failing     Kind = "failing"   // most attempts of a kind have failed lately
	Parked      Kind = "parked"    // tasks are parked
	NodeLost    Kind = "taken"     // a lease has run out lately, and other nodes have taken the tasks over
	CatchingUp  Kind = "backlog"   // overdue tasks are left
)

// Paused is the kind of the notes: what somebody wants to be so is no alarm.
const Paused Kind = "paused"

const (
	// fewFailures is how many attempts of a kind must have failed lately to be reported: fewer are likely to be
	// mended by the next attempt.
	fewFailures = 3

	// mostAlike is how many findings of one kind are told apart. The others are counted.
	mostAlike = 3

	// mostCause is how much of an error is quoted, in bytes.
	mostCause = 200
)

// A SchedulerReading is what was read of a durable scheduler at one time.
type SchedulerReading struct {
	Time    time.Time
	Stopped bool
	Broken  string // why the store has failed, or empty
	Full    bool   // it has failed because the disk is full
	Away    string // why the engine does not answer, or empty

	Tasks, Parked             int
	Waiting, Running, Workers int
	OldestWait                time.Duration // of the due tasks that wait for a worker
	SinceStart                time.Duration // since a handler was called here last; 0 if none was
	Busiest                   KindRuns      // the kind with most runs in progress here

	Kinds    []KindReading
	Orphans  []DueReading  // kinds that have no handler
	Paused   []DueReading  // paused kinds; one without a name if all kinds are paused
	Nodes    []NodeReading // none on a store
	Left     Backlog       // of the kinds that no limit holds back
	Limited  Backlog       // of the kinds whose runs wait for their limit
	LeftMore bool          // there are more than these
	Done     time.Time     // when all of these will have been started; zero if unknown
}

// A Backlog is overdue tasks.
type Backlog struct {
	Tasks  int
	Oldest time.Time // when the first of these was due
}

// KindRuns are runs of a kind that are in progress.
type KindRuns struct {
	Kind    string
	Running int
	Longest time.Duration // how long the longest has taken
}

// A KindReading is about the tasks of a kind.
type KindReading struct {
	Kind                       string
	Parked                     int
	Started, Succeeded, Failed uint64 // attempts here, since New
	Failure                    string // the last error, if known
}

// A DueReading is the due tasks of a kind that do not run.
type DueReading struct {
	Kind   string
	Due    int // tasks
	More   bool
	Oldest time.Time // when the first of them was due; zero if unknown
}

// A NodeReading is a member of the engine.
type NodeReading struct {
	Name    string
	ID      int64
	Started time.Time // zero if unknown
	Lease   time.Duration
	Left    time.Duration // of the lease; negative if it has run out

	// What it has said about itself, as in SchedulerReading. That of the scheduler that is asked is not used.
	Self             bool
	Running, Workers int
	OldestWait       time.Duration
	SinceStart       time.Duration
	Busiest          KindRuns
}

// IsLate reports whether the node has missed two of the renewals that are due each quarter of a lease.
func (n NodeReading) IsLate() bool { return n.Left < n.Lease/2 }

// JudgeScheduler is [Judge] for a durable scheduler.
func JudgeScheduler(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Stopped {
		from := since(now, past, func(r SchedulerReading) bool { return r.Stopped })
		return []Finding{{Stopped, from, "Stopped: it was shut down"}}
	}
	if now.Broken != "" { // nothing else matters, and what is read may be old
		return []Finding{storeFailed(now, past)}
	}
	var all []Finding
	for _, judge := range []func(SchedulerReading, []SchedulerReading) []Finding{
		engineAway, nodesLate, allBusy, unhandled, failing, parked, nodesLost, catchingUp,
	} {
		all = append(all, judge(now, past)...)
	}
	return all
}

// SchedulerIsWell says in words that nothing is wrong at the reading.
func SchedulerIsWell(now SchedulerReading) string {
	text := fmt.Sprintf("Working: %s of %s busy, %s, none parked",
		number(now.Running), count(now.Workers, "worker"), count(now.Tasks, "task"))
	if len(now.Nodes) > 1 {
		text += fmt.Sprintf(", %s", count(len(now.Nodes), "node"))
	}
	return text
}

// NotesOfScheduler says what keeps tasks from running and is wanted: which kinds are paused, and what is overdue
// while runs wait for a limit of their kind.
func NotesOfScheduler(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Stopped {
		return nil
	}
	var all []Finding
	for _, p := range now.Paused {
		text := "All kinds are paused"
		if p.Kind != "" {
			text = fmt.Sprintf("Kind %s is paused", p.Kind)
		}
		if p.Due > 0 {
			text += ": " + atLeast(p.More) + dueTasks(p.Due)
		}
		from := since(now, past, func(r SchedulerReading) bool {
			return slices.ContainsFunc(r.Paused, func(q DueReading) bool { return q.Kind == p.Kind })
		})
		all = append(all, Finding{Paused, from, text})
	}
	all = few(all, "kinds are paused")
	limited := func(r SchedulerReading) Backlog { return r.Limited }
	for _, f := range behind(now, past, limited) {
		f.Text += "; runs wait for the limit of their kind"
		all = append(all, f)
	}
	return all
}

// since returns from which reading on something has been so. It is zero if it was so at the first reading
// already: then it is unknown.
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

// lasting returns " for 41 s" if the time is known and a second ago or more.
func lasting(now, from time.Time) string {
	if d := now.Sub(from); !from.IsZero() && d >= time.Second {
		return " for " + Span(d)
	}
	return ""
}

func storeFailed(now SchedulerReading, past []SchedulerReading) Finding {
	from := since(now, past, func(r SchedulerReading) bool { return r.Broken != "" })
	what := "The store has failed"
	if now.Full {
		what = "The disk is full"
	}
	return Finding{StoreFailed, from, fmt.Sprintf("%s, and nothing has run%s: %s",
		what, lasting(now.Time, from), cause(now.Broken))}
}

func engineAway(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Away == "" {
		return nil
	}
	from := since(now, past, func(r SchedulerReading) bool { return r.Away != "" })
	return []Finding{{EngineAway, from, fmt.Sprintf("The engine has not answered%s, and nothing starts here: %s",
		lasting(now.Time, from), cause(now.Away))}}
}

func nodesLate(now SchedulerReading, _ []SchedulerReading) []Finding {
	if now.Away != "" {
		return nil // what is known of the nodes is old
	}
	var all []Finding
	for _, n := range now.Nodes {
		if !n.IsLate() {
			continue
		}
		from := now.Time.Add(n.Left - n.Lease)
		text := fmt.Sprintf("Node %s has not renewed its lease for %s", n.Name, Span(n.Lease-n.Left))
		if n.Left <= 0 {
			text += ": it has run out, and other nodes take its tasks over"
		}
		all = append(all, Finding{NodeLate, from, text})
	}
	return few(all, "nodes are late")
}

func isBusy(r SchedulerReading) bool {
	return r.OldestWait >= TooLong && r.Broken == "" && r.Away == ""
}

// isBusy reports whether another node has said so of itself. One that is late says nothing new.
func (n NodeReading) isBusy() bool { return !n.Self && n.OldestWait >= TooLong && !n.IsLate() }

// allBusy reports that a due task has waited for TooLong, as of a wheel, here and on other nodes.
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
		all = append(all, Finding{Overloaded, from, fmt.Sprintf("Overloaded for %s: %s", Span(now.Time.Sub(from)),
			load(now.Running, now.Workers, waiting, now.OldestWait, now.SinceStart, now.Busiest))})
	}
	if now.Away != "" {
		return all // what is known of the nodes is old
	}
	var others []Finding
	for _, n := range now.Nodes {
		if n.isBusy() {
			others = append(others, Finding{Overloaded, now.Time.Add(-n.OldestWait), fmt.Sprintf("Node %s is overloaded: %s",
				n.Name, load(n.Running, n.Workers, "due tasks wait", n.OldestWait, n.SinceStart, n.Busiest))})
		}
	}
	return append(all, few(others, "nodes are overloaded")...)
}

// load says what the workers of an overloaded scheduler do.
func load(running, workers int, waiting string, oldest, sinceStart time.Duration, busiest KindRuns) string {
	text := fmt.Sprintf("%s of %s busy, %s, the oldest for %s",
		number(running), count(workers, "worker"), waiting, Span(oldest))
	if sinceStart >= TooLong {
		text += fmt.Sprintf("; none has started for %s", Span(sinceStart))
	}
	switch {
	case busiest.Longest < TooLong:
	case busiest.Running == 1:
		text += fmt.Sprintf("; 1 worker has run kind %s for %s", busiest.Kind, Span(busiest.Longest))
	default:
		text += fmt.Sprintf("; %s workers run kind %s, the longest for %s",
			number(busiest.Running), busiest.Kind, Span(busiest.Longest))
	}
	return text
}

// nothingStarts reports whether no run has started for TooLong, on any node, while due tasks wait for a worker.
func nothingStarts(r SchedulerReading) bool {
	return isBusy(r) && r.SinceStart >= TooLong && !slices.ContainsFunc(r.Nodes, func(n NodeReading) bool {
		return !n.Self && !n.IsLate() && (!n.isBusy() || n.SinceStart < TooLong)
	})
}

func unhandled(now SchedulerReading, _ []SchedulerReading) []Finding {
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

func failing(now SchedulerReading, past []SchedulerReading) []Finding {
	var all []Finding
	for _, k := range now.Kinds {
		ended, failed, from := attemptsLately(now, past, k)
		if failed < fewFailures || 2*failed <= ended {
			continue
		}
		where := ""
		if len(now.Nodes) > 1 {
			where = " on this node"
		}
		text := fmt.Sprintf("Kind %s: %s of %s%s failed in the last %s",
			k.Kind, number(failed), count(ended, "attempt"), where, Span(Lately))
		if k.Failure != "" {
			text += ": " + cause(k.Failure)
		}
		all = append(all, Finding{Failing, from, text})
	}
	return few(all, "kinds fail")
}

// attemptsLately returns how many attempts of a kind have ended and failed since the first of the past readings
// that is of lately, and which reading saw the first of these failures.
func attemptsLately(now SchedulerReading, past []SchedulerReading, k KindReading,
) (ended, failed uint64, from time.Time) {
	for len(past) > 0 && now.Time.Sub(past[0].Time) > Lately {
		past = past[1:]
	}
	if len(past) == 0 {
		return 0, 0, from
	}
	base := past[0].kind(k.Kind)
	from = now.Time
	for i := len(past) - 1; i > 0 && past[i].kind(k.Kind).Failed > base.Failed; i-- {
		from = past[i].Time
	}
	failed = k.Failed - base.Failed
	return k.Succeeded - base.Succeeded + failed, failed, from
}

func (r SchedulerReading) kind(name string) KindReading {
	for _, k := range r.Kinds {
		if k.Kind == name {
			return k
		}
	}
	return KindReading{}
}

func parked(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Parked == 0 {
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
	return []Finding{{Parked, since(now, past, func(r SchedulerReading) bool { return r.Parked > 0 }),
		text + ", until somebody acts"}}
}

// nodesLost reports the members that have gone lately and did not leave by themselves: their lease was late
// when they were seen last, or would have run out before they were missed, or they joined again without being
// restarted.
func nodesLost(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Away != "" {
		return nil
	}
	known := make(map[int64]bool)
	for _, n := range now.Nodes {
		known[n.ID] = true
	}
	missed := now.Time // when the reading after past[i] was made
	var all []Finding
	for i := len(past) - 1; i >= 0 && now.Time.Sub(past[i].Time) <= Lately; i-- {
		if past[i].Away != "" {
			continue // who is missed after that is missed since the engine is back
		}
		for _, n := range past[i].Nodes {
			if known[n.ID] {
				continue
			}
			known[n.ID] = true
			back := slices.ContainsFunc(now.Nodes, func(m NodeReading) bool {
				return m.Name == n.Name && m.Started.Equal(n.Started) && !n.Started.IsZero()
			})
			if !back && !n.IsLate() && missed.Sub(past[i].Time) < n.Left {
				continue
			}
			text := fmt.Sprintf("Node %s was lost %s: its lease ran out, and other nodes took its tasks over",
				n.Name, ago(now.Time.Sub(missed)))
			if back {
				text += "; it is back"
			}
			all = append(all, Finding{NodeLost, missed, text})
		}
		missed = past[i].Time
	}
	return few(all, "nodes were lost")
}

func catchingUp(now SchedulerReading, past []SchedulerReading) []Finding {
	if nothingStarts(now) {
		return nil // the number is in the text of Overloaded
	}
	return behind(now, past, func(r SchedulerReading) Backlog { return r.Left })
}

// behind reports that a part of what is overdue has been so for long.
func behind(now SchedulerReading, past []SchedulerReading, part func(SchedulerReading) Backlog) []Finding {
	is := func(r SchedulerReading) bool { return part(r).Tasks > 0 && r.Time.Sub(part(r).Oldest) >= TooLong }
	if !is(now) || now.Away != "" {
		return nil
	}
	text := fmt.Sprintf("Catching up: %s%s left, the oldest due %s",
		atLeast(now.LeftMore), count(part(now).Tasks, "overdue task"), ago(now.Time.Sub(part(now).Oldest)))
	if now.Done.After(now.Time) && part(now).Tasks == now.Left.Tasks+now.Limited.Tasks {
		text += ", done in about " + Span(now.Done.Sub(now.Time))
	}
	return []Finding{{CatchingUp, since(now, past, is), text}}
}

// few returns the first findings, and how many there are if that is not all.
func few(all []Finding, what string) []Finding {
	if len(all) > mostAlike {
		all = all[:mostAlike:mostAlike]
		all[mostAlike-1].Text += fmt.Sprintf(" (and more: %s)", what)
	}
	return all
}

// cause returns the beginning of an error, in one line.
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
