// SPDX-License-Identifier: MIT

package durable

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"

	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// Forever is the value of Times for a task that runs until it is removed.
const Forever = timewheel.Forever

// The maximum sizes of a task's parts, in bytes.
const (
	MaxKey     = 1 << 10
	MaxKind    = 1 << 8
	MaxPayload = 1 << 20
	MaxTrace   = 1 << 9
	MaxGroup   = 1 << 8
	MaxCron    = 1 << 8
	MaxMeta    = 1 << 11
	MaxBatch   = 64 << 20 // all tasks in one AddTask
)

// The other packages have the same bounds.
var _ = [1]struct{}{}[MaxKey-task.MaxKey|MaxKind-task.MaxKind|MaxPayload-task.MaxPayload|MaxTrace-task.MaxTrace|MaxGroup-task.MaxGroup|
	MaxCron-task.MaxCron|MaxMeta-task.MaxMeta|MaxSet-node.MaxSet|MaxNodeName-node.MaxName]

// A Task describes a task to add with [Scheduler.AddTask]. Without Interval, Cron, Delay or At, it is due at once.
//
// Cron has the five fields of a crontab: minute, hour, day of the month, month and day of the week, as in "0 9 * *
// MON", or is one of @hourly, @daily, @weekly, @monthly and @yearly. A field is a * or a list of numbers, ranges and
// steps, as in "*/15" and "1-5,30". A ? is the same as a *. Months are 1 to 12 or JAN to DEC. Days of the week are 0 to
// 7 or SUN to SAT, and both 0 and 7 are Sunday. A range may end on Sunday, as in "SAT-SUN". Times are in UTC, or in the
// zone at the start of the expression, as in "CRON_TZ=Europe/Berlin 0 9 * * *". These forms depend on the month:
//
//   - "0 9 L * *" is the last day of a month, and "0 9 LW * *" its last day from Monday to Friday.
//   - "0 9 15W * *" is the day from Monday to Friday that is nearest to the 15th and in the same month. With 31W, a month
//     of 30 days has no run.
//   - "0 9 * * MON#1" is the first Monday, and "0 9 * * 5L" the last Friday.
//
// If both day fields are restricted, a day matches if either field matches: "0 9 13 * FRI" is each 13th and each Friday.
// As in cron(8), a day field that begins with a * restricts nothing, and a day must match both fields. So
// "5 12 */100,1-7 * 1" is the first Monday of a month, because */100 selects only the 1st. When the zone's clock is set
// forward or back, these rules apply:
//
//   - If Cron matches every hour, as "30 * * * *" does, or more than one minute of an hour, as "*/15 8-18 * * *" does,
//     runs follow the clock. A run is due whenever the clock shows a matching minute. It is due twice if the clock shows
//     that minute twice, and not at all if the clock skips it.
//   - Otherwise, each matching minute of the calendar has one run, which is due when the clock first shows that minute
//     or a later minute. So a skipped minute is due when the clock is set forward, and a repeated minute only the first
//     time. Minutes that become due at the same instant in this way share a run. A daily task runs once each day.
//
// So "*/15 2 * * *" has no run on the day on which the clock skips the hour from 2:00 to 3:00. A task with Cron runs
// until it is removed, unless Times is set. To run a task only by hand, choose any calendar and pause the task.
//
// [Next] computes due times in advance. Each process that runs the task needs the zone's data, either from its machine
// or from an import of time/tzdata. If the data is missing, the task is parked when its next run is computed.
//
// Jitter spreads the runs of many tasks over time. It delays the first run by a fraction of Jitter that depends only on
// the key, so the delay is the same each time the task is added. Later runs follow at Interval, or with the same delay
// after each time given by Cron. Jitter may be longer than the time between runs. It does not delay a run set by
// Reschedule, and it never delays a run beyond MaxDelay.
//
// MaxDelay combines a burst of SetTask calls into one run (debounce). The run is due Delay after the last SetTask call
// for the key, but at most MaxDelay after the first, and it gets the payload of the last call. The burst ends when the
// run starts or when Reschedule is called. The next SetTask call begins a new burst, even if the run is still in
// progress. In that case, the result of that run no longer counts, and the next run may overlap with it. If MaxDelay
// equals Delay, there is one run per Delay (throttle).
//
// Until ends a repeating task. Its last run is the last one that is due by then, even if it starts later, such as after downtime. The
// task ends when that run is complete, and is parked if that run fails for the last time. The first run, a run set
// by Reschedule, and the next run after a declared set has replaced Until, are performed whenever they are due.
//
// Expires is for runs that are useless when they are late, such as sending a one-time code after an outage. No attempt
// starts later than Expires after the due time of its run. When an attempt would be too late, the task is removed
// instead, and [Stats].Expired counts it. This also applies to a retry, and to a run that was postponed with [Snooze].
// An Expires below one second, or below two ticks ([WithTick]), counts as that long, because a run may start so late on
// a scheduler that has nothing else to do. If the kind has a history ([WithHistory]), the task appears there. While a
// task is paused, or its kind has no handler, it is not removed. A repeating task cannot expire; see [WithMissedAge].
type Task struct {
	Key      string        // unique among live tasks; 1 to MaxKey bytes
	Kind     string        // selects the handler; 1 to MaxKind bytes, none of them 0x1f
	Payload  []byte        // passed to the handler; at most MaxPayload bytes; if empty, the zero value with KindOf
	Interval time.Duration // time between runs, and before the first run unless Delay or At is set
	Cron     string        // when runs are due, in place of Interval; see [Task]; at most MaxCron bytes
	Delay    time.Duration // time before the first run; if 0, Interval or Cron applies, or else the run is due at once
	At       time.Time     // when the first run is due, in place of Delay; a time in the past means at once
	MaxDelay time.Duration // how long SetTask may postpone the first run; see [Task]; 0 means no limit
	Jitter   time.Duration // the maximum delay added to the runs; see [Task]
	Expires  time.Duration // how late an attempt may start; see [Task]; 0 means no limit
	Times    int           // number of runs; Forever means until removed; 0 means one, or Forever with Cron
	Until    time.Time     // no run is due later, except the first; only for a task with Interval or Cron; zero means no limit
	Trace    string        // the caller's trace context, passed to the runs; at most MaxTrace bytes; see package otel
	Meta     string        // kept with the payload, for middleware or a service, and passed to the runs; at most MaxMeta bytes

	// Group is the task's group, such as a tenant. It has at most MaxGroup bytes. If the kind has a limit, such as
	// WithConcurrency, the groups take turns, regardless of how many due tasks each group has. See the Limits section
	// of the package documentation.
	Group string

	// PayloadVersion is the version of the payload. 0 means the version of the kind's handler in this scheduler. See
	// [WithPayloadVersion].
	PayloadVersion int

	// Once names the call that adds the task, such as the id of the message or of the request that asks for it. While the
	// name is remembered, AddTask and SetTask return [ErrRepeated] for any task with the same Once and have no effect. So a
	// caller that has lost an answer can repeat its call, even if the task has run meanwhile. The name is stored in the
	// commit that adds the task, and remembered while the task exists and for a time after it, as [WithOnce] says. It has at
	// most MaxOnce bytes. A declared set and a user's transaction have no such tasks.
	Once string
}

func (t *Task) spec() *task.Spec { return (*task.Spec)(t) }

// Info describes a task at the time of the call.
type Info struct {
	Token          // of the next run, or of the run in progress
	Kind           string
	Payload        []byte
	Interval       time.Duration
	Cron           string    // as in Task
	Times          int       // unacknowledged runs, as returned by GetTaskTimes
	Next           time.Time // when the next run or attempt is due; zero if the task is parked or paused
	Attempts       int       // failed attempts of the run with number Seq
	Snoozes        int       // how many times a handler has postponed that run: see [Snooze]
	Missed         uint64    // number of periods that passed without a run
	Failure        string    // the error of the last failed attempt, until a run is complete; otherwise empty
	GivenUp        int       // runs given up since the last complete run: see [WithRetry]
	Trace          string    // as in Task
	Meta           string    // as in Task
	Note           string    // the note of the last complete run; see [Run.Complete]
	Group          string    // as in Task
	State          State     // as in States
	PayloadVersion int       // as in Task
	Started        time.Time // when the running attempt began, by the clock that determines due times; otherwise zero
	Node           string    // the name of the node that holds the task; empty if the task is free
	Failed         []Failure // the last failed attempts of the run and of the GivenUp runs before it, at most five, newest first

	Shift    time.Duration // how long after each time given by Cron the run is due: a fraction of Jitter
	Until    time.Time     // as in Task
	Expires  time.Duration // as in Task
	Deadline time.Time     // the latest due time of the first run, from MaxDelay; zero if there is no bound
}

// String returns the fields as one line, without the payload and trace context. Times are in UTC.
func (i Info) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q of kind %q: %v", i.Key, i.Kind, i.State)
	at := func(what string, t time.Time) {
		if !t.IsZero() {
			fmt.Fprintf(&b, ", %s %s", what, t.UTC().Format(time.RFC3339Nano))
		}
	}
	at("due", i.Next)
	at("at the latest", i.Deadline)
	at("started", i.Started)
	switch {
	case i.Cron != "":
		fmt.Fprintf(&b, ", by calendar %q", i.Cron)
	case i.Interval > 0:
		fmt.Fprintf(&b, ", every %v", i.Interval)
	}
	at("until", i.Until)
	if i.Shift > 0 {
		fmt.Fprintf(&b, ", shifted by %v", i.Shift)
	}
	if i.Times == Forever {
		b.WriteString(", forever")
	} else {
		fmt.Fprintf(&b, ", runs left: %d", i.Times)
	}
	if i.Missed > 0 {
		fmt.Fprintf(&b, ", missed: %d", i.Missed)
	}
	if i.Attempts > 0 || i.Failure != "" {
		fmt.Fprintf(&b, ", failed attempts: %d, the last: %q", i.Attempts, i.Failure)
	}
	if i.GivenUp > 0 {
		fmt.Fprintf(&b, ", runs given up: %d", i.GivenUp)
	}
	if i.Snoozes > 0 {
		fmt.Fprintf(&b, ", snoozed: %d", i.Snoozes)
	}
	if i.Expires > 0 {
		fmt.Fprintf(&b, ", expires %v after it was due", i.Expires)
	}
	fprintNamed(&b, []named{{"note", i.Note}, {"group", i.Group}, {"meta", i.Meta}, {"held by", i.Node}})
	fmt.Fprintf(&b, ", %d bytes of payload version %d, token %v", len(i.Payload), max(i.PayloadVersion, 1),
		i.Token)
	return b.String()
}

// named is a text with a name.
type named struct{ name, text string }

// fprintNamed writes the texts that are not empty.
func fprintNamed(b *strings.Builder, all []named) {
	for _, n := range all {
		if n.text != "" {
			fmt.Fprintf(b, ", %s %q", n.name, n.text)
		}
	}
}

// A Failure is a failed attempt.
type Failure struct {
	At   time.Time
	Text string // the error
}
