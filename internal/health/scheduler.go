// SPDX-License-Identifier: MIT

package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/internal/recent"
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
	DiskLow Kind = "disk"    // the store's disk is nearly full, but the store works
	Slow    Kind = "slow"    // the engine takes long to answer
)

const (
	// fewFailures is how many attempts of a kind must have failed lately for them to be reported. After fewer failures
	// the next attempt will probably succeed.
	fewFailures = 3

	// overAfter is how long after its last failure a kind may count as recovered. backAfter is how long the return of a
	// lost node is reported.
	overAfter = 10 * time.Second
	backAfter = 5 * time.Second

	// refusedFor is how long a refused connection is reported.
	refusedFor = time.Minute

	// mostAlike is the maximum number of findings of one kind that are listed. If there are more, the last one says so.
	mostAlike = 3

	// mostCause is the maximum number of bytes quoted from an error.
	mostCause = 200
)

// A SchedulerReading is the state of a durable scheduler at one moment.
type SchedulerReading struct {
	Time    time.Time
	Stopped bool
	Broken  string // why the store has failed, or empty
	Full    bool   // whether the cause is a full disk

	Away    string        // why the node cannot run tasks, by its own account, or empty
	AwayFor time.Duration // for how long
	Slow    time.Duration // how long the engine takes to answer on average, if that is long
	Started uint64        // attempts started here so far

	Unread      string    // why the reader got no answer from the engine, or empty; the answers below are then old
	UnreadSince time.Time // since when

	Unflushed bool // whether a crash of the engine's server may lose acknowledged tasks
	Refused   int  // connections to an old primary or another cluster refused so far; negative if unknown

	Counting                  bool      // whether the tasks are being counted, for the first time or again since an outage
	Counted                   time.Time // when the tasks were last counted; zero if never
	Tasks, Parked             int
	Waiting, Running, Workers int
	OldestWait                time.Duration // how long the oldest due task has waited for a worker
	SinceStart                time.Duration // time since a handler was last called here; 0 if none was called
	Busiest                   KindRuns      // the kind with the most runs in progress here

	DiskFree, DiskSize int64 // bytes on the store's disk; 0 if unknown

	Kinds    []KindReading
	Orphans  []DueReading  // due tasks of kinds without a handler
	Paused   []DueReading  // paused kinds; a single unnamed kind if all kinds are paused
	Nodes    []NodeReading // empty for a store
	NodesOld bool          // whether the node reports are from before an outage, or too old to judge by
	Lost     []LostNode    // the nodes most recently taken over by other nodes
	Left     Backlog       // backlog of the kinds without a limit
	Limited  []LimitedReading
	LeftMore bool      // whether the backlogs are larger than counted
	LeftAt   time.Time // when the backlogs were counted; zero if unknown
	Done     time.Time // when all tasks of the backlogs will have started; zero if unknown
}

// A Backlog describes overdue tasks.
type Backlog struct {
	Tasks  int
	Oldest time.Time // when the oldest task was due
}

// A LimitedReading describes the overdue tasks of a kind with a limit, on all nodes.
type LimitedReading struct {
	Kind, Limit string // Limit is as in "1 at once on all nodes"
	Backlog
}

// KindRuns describes the runs in progress of a kind.
type KindRuns struct {
	Kind    string
	Running int
	Longest time.Duration // how long the longest run has been in progress
	Waiting int           // overdue tasks of the kind; 0 if unknown
}

// A KindReading describes the tasks of a kind.
type KindReading struct {
	Kind                       string
	Tasks, Parked              int
	Started, Succeeded, Failed uint64 // attempts here since New; a cancelled run does not count as failed
	Failure                    string // the last error, if known
	Failing                    bool   // as FailingKinds says of this reading
}

// A DueReading describes the waiting due tasks of a kind.
type DueReading struct {
	Kind   string
	Due    int // number of due tasks
	More   bool
	Oldest time.Time // when the oldest task was due; zero if unknown

	Paused   time.Time // when the kind was paused; zero if unknown
	Who, Why string    // who paused it, and why; empty if unknown
}

// A NodeReading describes a member of the engine.
type NodeReading struct {
	Name    string
	ID      int64
	Started time.Time // zero if unknown
	Lease   time.Duration
	Left    time.Duration // remaining time of the lease; negative if the lease has expired

	// The node's report about itself, as in SchedulerReading. The report of this scheduler's own node is not used.
	Self             bool
	Drained          bool
	Running, Workers int
	OldestWait       time.Duration
	SinceStart       time.Duration
	Busiest          KindRuns
}

// A LostNode is a node whose lease expired and whose tasks another node has taken over.
type LostNode struct {
	Name string
	At   time.Time // when its tasks were taken over
}

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

// NotesOfScheduler returns the intended reasons why tasks do not run: paused kinds, and overdue tasks held back by the
// limit of their kind. It also includes a finding if the store's disk is nearly full, or the engine slow.
func NotesOfScheduler(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Stopped {
		return nil
	}
	return slices.Concat(pauses(now, past, false), drained(now, past), limited(now, past), slow(now, past), diskLow(now, past))
}

// slow reports an engine that takes long to answer.
func slow(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Slow == 0 || now.Away != "" {
		return nil
	}
	return []Finding{{Slow, since(now, past, func(r SchedulerReading) bool { return r.Slow > 0 }),
		fmt.Sprintf("The engine is slow: it takes %d ms to answer on average, and runs start that much later", now.Slow.Milliseconds())}}
}

// forgottenAfter is the length of a pause from which it is a finding, if tasks are due.
const forgottenAfter = time.Hour

// isForgotten reports whether a kind with due tasks has been paused for so long that the pause may have been forgotten.
func (d DueReading) isForgotten(now time.Time) bool {
	return d.Due > 0 && !d.Paused.IsZero() && now.Sub(d.Paused) >= forgottenAfter
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

// allDrained reports that an operator has drained every node.
func allDrained(now SchedulerReading, past []SchedulerReading) []Finding {
	if !now.isDrained() {
		return nil
	}
	n := 0
	for _, node := range now.Nodes {
		if node.Left > 0 {
			n++
		}
	}
	text := "The only node is drained, and nothing starts"
	if n > 1 {
		text = fmt.Sprintf("All %s are drained, and nothing starts", count(n, "node"))
	}
	if now.Left.Tasks > 0 {
		text += ": " + atLeast(now.LeftMore) + dueTasks(now.Left.Tasks)
	}
	return []Finding{{Drained, since(now, past, SchedulerReading.isDrained), text}}
}

// isDrained reports whether every node with a lease is drained.
func (r SchedulerReading) isDrained() bool {
	with := func(drained bool) bool {
		return slices.ContainsFunc(r.Nodes, func(n NodeReading) bool { return n.Left > 0 && n.Drained == drained })
	}
	return r.Unread == "" && !r.NodesOld && with(true) && !with(false)
}

// drained returns the nodes that an operator has drained.
func drained(now SchedulerReading, past []SchedulerReading) (all []Finding) {
	for _, n := range now.Nodes {
		if !n.Drained {
			continue
		}
		text := fmt.Sprintf("Node %s is drained and can be stopped", n.Name)
		if n.Running > 0 {
			text = fmt.Sprintf("Node %s is drained; runs in progress: %s", n.Name, number(n.Running))
		}
		from := since(now, past, func(r SchedulerReading) bool {
			return slices.ContainsFunc(r.Nodes, func(m NodeReading) bool { return m.ID == n.ID && m.Drained })
		})
		all = append(all, Finding{Drained, from, text})
	}
	return few(all, "nodes are drained")
}

// A disk counts as nearly full if less than one part in lowDisk is free.
const lowDisk = 20

func diskLow(now SchedulerReading, past []SchedulerReading) []Finding {
	is := func(r SchedulerReading) bool { return r.DiskSize > 0 && r.DiskFree < r.DiskSize/lowDisk }
	if !is(now) || now.Broken != "" { // if the store has failed, a finding names the cause
		return nil
	}
	return []Finding{{DiskLow, since(now, past, is), fmt.Sprintf("The disk of the store is nearly full: %s of %s are free",
		size(now.DiskFree), size(now.DiskSize))}}
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

func storeFailed(now SchedulerReading, past []SchedulerReading) Finding {
	from := since(now, past, func(r SchedulerReading) bool { return r.Broken != "" })
	what, remedy := "The store has failed", "restart the process"
	if now.Full {
		what, remedy = "The disk is full", "make room, then restart the process"
	}
	return Finding{StoreFailed, from, fmt.Sprintf("%s, and nothing has run%s (%s): %s",
		what, lasting(now.Time, from), remedy, cause(now.Broken))}
}

func engineAway(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Away == "" {
		return nil
	}
	from := now.Time.Add(-now.AwayFor)
	return []Finding{{EngineAway, from, fmt.Sprintf("The engine has not served this node%s%s: %s",
		lasting(now.Time, from), starts(now, past, ", and nothing starts here"), cause(now.Away))}}
}

// unread reports that the answers of the page are old. It says whether the node still runs tasks.
func unread(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Unread == "" || now.Away != "" {
		return nil
	}
	return []Finding{{Unread, now.UnreadSince, fmt.Sprintf("This page cannot read the engine%s%s: %s",
		lasting(now.Time, now.UnreadSince), starts(now, past, ""), cause(now.Unread))}}
}

// startsFor is the time over which starts are counted.
const startsFor = 3 * time.Second

// starts says how many runs have started here lately, or none if there were none. It says nothing if that is not known.
func starts(now SchedulerReading, past []SchedulerReading, none string) string {
	for i := len(past) - 1; i >= 0; i-- {
		within := now.Time.Sub(past[i].Time)
		if within < startsFor {
			continue
		}
		n := now.Started - past[i].Started
		switch rate := int((time.Duration(n)*time.Second + within/2) / within); {
		case n == 0:
			return none
		case rate == 0:
			return "; runs go on"
		default:
			return fmt.Sprintf("; runs go on, %s a second", number(rate))
		}
	}
	return ""
}

func counting(now SchedulerReading, past []SchedulerReading) []Finding {
	if !now.Counting || now.Away != "" || now.Unread != "" {
		return nil
	}
	text := "The tasks are being counted"
	if !now.Counted.IsZero() {
		text = fmt.Sprintf("The tasks are being counted again: %s %s", count(now.Tasks, "task"), ago(now.Time.Sub(now.Counted)))
	}
	return []Finding{{Counting, since(now, past, func(r SchedulerReading) bool { return r.Counting }), text}}
}

func unflushed(now SchedulerReading, past []SchedulerReading) []Finding {
	if !now.Unflushed {
		return nil
	}
	from := since(now, past, func(r SchedulerReading) bool { return r.Unflushed })
	return []Finding{{Unflushed, from,
		"A crash of the engine's server can lose acknowledged tasks: synchronous_commit or fsync is off"}}
}

func refused(now SchedulerReading, past []SchedulerReading) []Finding {
	if now.Refused < 0 {
		return nil
	}
	n, first, latest := 0, now.Time, now.Time
	after := now
	for i := len(past) - 1; i >= 0 && now.Time.Sub(after.Time) < refusedFor; i-- {
		if past[i].Refused < 0 {
			continue
		}
		if past[i].Refused < after.Refused {
			if first = after.Time; n == 0 {
				latest = first
			}
			n = now.Refused - past[i].Refused
		}
		after = past[i]
	}
	if n == 0 {
		return nil
	}
	verb := "was"
	if n > 1 {
		verb = "were"
	}
	return []Finding{{Refused, first, fmt.Sprintf("%s to the wrong database server %s refused, the latest %s: it is an old primary, "+
		"or another cluster. Stop it, or make it a standby of the primary", count(n, "connection"), verb, ago(now.Time.Sub(latest)))}}
}

// Survival says whether an acknowledged task survives the loss of the engine's server. replicated means that the server
// waits for its standbys. If it is set and standbys is 0, the role is not allowed to see the number of standbys.
func Survival(replicated bool, standbys int) string {
	switch {
	case replicated && standbys > 0:
		return fmt.Sprintf("Acknowledged tasks survive the loss of the database server (%s)", count(standbys, "synchronous standby"))
	case replicated:
		return "Acknowledged tasks survive the loss of the database server if the connected standby is synchronous"
	case standbys > 0:
		return "Acknowledged tasks can be lost with the database server: synchronous_commit does not wait for the standby"
	}
	return "Acknowledged tasks are on this database server only"
}

func nodesLate(now SchedulerReading, past []SchedulerReading) []Finding {
	var all []Finding
	for _, n := range LateNodes(now, past) {
		from := now.Time.Add(n.Left - n.Lease)
		text := fmt.Sprintf("Node %s has not renewed its lease for %s", n.Name, Span(n.Lease-n.Left))
		switch {
		case n.Left > 0:
		case now.takesOver(n):
			text += ": it has expired, and other nodes take over its tasks"
		default:
			text += ": it has expired, and no other node takes over its tasks"
		}
		all = append(all, Finding{NodeLate, from, text})
	}
	return few(all, "nodes are late")
}

// takesOver reports whether another node has a lease and can run the tasks of the node.
func (r SchedulerReading) takesOver(late NodeReading) bool {
	return slices.ContainsFunc(r.Nodes, func(n NodeReading) bool {
		return n.ID != late.ID && n.Left > 0 && !n.Drained && !(n.Self && r.Away != "")
	})
}

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
	for _, n := range now.Nodes {
		if n.isBusy() {
			others = append(others, Finding{Overloaded, now.Time.Add(-n.OldestWait), fmt.Sprintf("Node %s is overloaded: %s",
				n.Name, load(n.Running, n.Workers, "due tasks wait", n.OldestWait, n.SinceStart, n.Busiest))})
		}
	}
	return append(all, few(others, "nodes are overloaded")...)
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
		ended, failed, within, from := failures(now, past, k)
		if failed == 0 {
			continue
		}
		where := ""
		if len(now.Nodes) > 1 {
			where = " on this node"
		}
		text := fmt.Sprintf("Kind %s: %s of %s%s failed in the last %s",
			k.Kind, number(failed), count(ended, "attempt"), where, Span(within))
		if k.Failure != "" {
			text += ": " + cause(k.Failure)
		}
		all = append(all, Finding{Failing, from, text})
	}
	return few(all, "kinds fail")
}

// FailingKinds returns the kinds that a finding about the reading calls failing.
func FailingKinds(now SchedulerReading, past []SchedulerReading) (kinds []string) {
	for _, k := range now.Kinds {
		if _, failed, _, _ := failures(now, past, k); failed > 0 {
			kinds = append(kinds, k.Kind)
		}
	}
	return kinds
}

// failures is attemptsLately for a kind that has not recovered. A kind that is failing counts as failing until fewer than a
// quarter of the attempts in the last stillFor fail, so that a kind that fails half of the time does not seem to recover
// again and again.
func failures(now SchedulerReading, past []SchedulerReading, k KindReading) (ended, failed uint64, within time.Duration, from time.Time) {
	if ended, failed, within, from = attemptsLately(now, past, k); failed == 0 {
		ended, failed, within, from = stillFailing(now, past, k)
	}
	if failed == 0 || isOver(now, past, k) {
		return 0, 0, 0, from
	}
	return ended, failed, within, from
}

// stillFor is the time in which enough attempts must succeed for a failing kind to have recovered.
const stillFor = time.Minute

func stillFailing(now SchedulerReading, past []SchedulerReading, k KindReading) (ended, failed uint64, within time.Duration, from time.Time) {
	base := len(past) // the reading before it began to fail, if that is not too long ago
	for i := len(past) - 1; i > 0 && past[i].kind(k.Kind).Failing; i-- {
		if from = past[i].Time; now.Time.Sub(past[i-1].Time) <= stillFor {
			base = i - 1
		}
	}
	if base == len(past) {
		return 0, 0, 0, from
	}
	was := past[base].kind(k.Kind)
	failed = k.Failed - was.Failed
	if ended = k.Succeeded - was.Succeeded + failed; ended >= fewFailures && 4*failed < ended {
		return 0, 0, 0, from
	}
	return ended, failed, now.Time.Sub(past[base].Time), from
}

// attemptsLately returns how many attempts of a kind ended within a period, how many of them failed, and the length of
// the period. It also returns the time of the reading that shows the first of these failures. The period is the
// longest, up to Lately, in which most attempts failed and at least fewFailures did. So a kind that begins to fail is
// noticed after a few attempts, however many succeeded before. attemptsLately returns zeros if there is no such period.
func attemptsLately(now SchedulerReading, past []SchedulerReading, k KindReading,
) (ended, failed uint64, within time.Duration, from time.Time) {
	for len(past) > 0 && now.Time.Sub(past[0].Time) > Lately {
		past = past[1:]
	}
	for i := range past {
		base := past[i].kind(k.Kind)
		failed = k.Failed - base.Failed
		if ended = k.Succeeded - base.Succeeded + failed; failed < fewFailures {
			break
		}
		if 2*failed <= ended {
			continue
		}
		from = now.Time
		for j := len(past) - 1; j > i && past[j].kind(k.Kind).Failed > base.Failed; j-- {
			from = past[j].Time
		}
		if within = now.Time.Sub(past[i].Time); i == 0 {
			within = Lately
		}
		return ended, failed, within, from
	}
	return 0, 0, 0, from
}

// isOver reports whether a kind that has failed lately has recovered: either its tasks are gone, or its last failure
// was at least overAfter ago and enough attempts have succeeded since.
func isOver(now SchedulerReading, past []SchedulerReading, k KindReading) bool {
	last, succeeded := now.Time, uint64(0) // time of the reading that shows the last failure, and successes since
	for i := len(past) - 1; i >= 0; i-- {
		was := past[i].kind(k.Kind)
		if was.Failed < k.Failed {
			break
		}
		last, succeeded = past[i].Time, k.Succeeded-was.Succeeded
	}
	gone := k.Tasks == 0 && !now.Counted.IsZero() && !now.Counted.Before(last)
	return gone || succeeded >= fewFailures && now.Time.Sub(last) >= overAfter
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

// nodesLost reports the nodes that were lost lately. These are the nodes that other nodes report as taken over. They
// also include nodes that were late when last seen, in case the node that took them over is also gone. A node that left
// by Shutdown is not reported. A node that has returned without a restart is reported only for a while.
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
	for _, l := range lost {
		age := now.Time.Sub(l.At)
		back := now.isBack(l) || slices.ContainsFunc(past, func(p SchedulerReading) bool { return p.Time.After(l.At) && p.isBack(l) })
		if age > Lately || back && age >= backAfter {
			continue
		}
		text := fmt.Sprintf("Node %s was lost %s: its lease expired, and other nodes took over its tasks", l.Name, ago(age))
		if back {
			text += "; it is back"
		}
		all = append(all, Finding{NodeLost, l.At, text})
	}
	return few(all, "nodes were lost")
}

// isBack reports whether the lost node is present again without having been restarted.
func (r SchedulerReading) isBack(lost LostNode) bool {
	return slices.ContainsFunc(r.Nodes, func(n NodeReading) bool {
		return n.Name == lost.Name && !n.Started.IsZero() && n.Started.Before(lost.At)
	})
}

// joinedAgain reports whether a missing node has joined again as another member, without having been restarted.
func (r SchedulerReading) joinedAgain(missed NodeReading) bool {
	return slices.ContainsFunc(r.Nodes, func(n NodeReading) bool {
		return n.Name == missed.Name && n.Started.Equal(missed.Started) && !n.Started.IsZero()
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

// counted says when the backlog was counted, if that was long ago.
func (r SchedulerReading) counted() string {
	if age := r.Time.Sub(r.LeftAt); !r.LeftAt.IsZero() && age > recent.Stale {
		return ", counted " + ago(age)
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
