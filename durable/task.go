// SPDX-License-Identifier: MIT

package durable

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// Forever is the Times of a task that runs until it is removed.
const Forever = timewheel.Forever

// The largest sizes of a task's parts, in bytes.
const (
	MaxKey     = 1 << 10
	MaxKind    = 1 << 8
	MaxPayload = 1 << 20
	MaxTrace   = 1 << 9
	MaxGroup   = 1 << 8
	MaxCron    = 1 << 8
	MaxBatch   = 64 << 20 // all tasks of one AddTask
)

// A Task is what [Scheduler.AddTask] adds. Without Interval, Cron, Delay and At it is due at once.
//
// Cron has the five fields of a crontab: minute, hour, day of the month, month and day of the week, as in "0 9
// * * MON", or is one of @hourly, @daily, @weekly, @monthly and @yearly. A field is a *, or numbers, ranges and
// steps, as in "*/15" and "1-5,30". Days of the week are 0 to 6 from Sunday on, or SUN to SAT, and 7 is none. The times
// are those of UTC, or of the zone that goes first: "CRON_TZ=Europe/Berlin 0 9 * * *". If both day fields are
// restricted, a day matches if it matches either. When the clock of the zone is set forward or back, these rules hold:
//
//   - If the hour is a *, a run is due whenever the clock shows a matching minute. It is due twice if the clock shows
//     that minute twice, and not at all if the clock skips it.
//   - Otherwise each matching minute of the calendar has one run, when the clock first shows that minute or a later
//     one. So a skipped minute is due when the clock is set forward, and a repeated one is due the first time. Minutes
//     that fall on one instant in this way share a run. A daily task runs once on each day.
//
// "0-23" and "*/2" do not count as a *. A task with Cron runs until it is removed, unless Times is set.
//
// [Next] returns due times in advance. Each process that runs the task must know the zone, from its machine or by
// importing time/tzdata. If it does not, the task is parked when its next run is computed.
//
// Jitter spreads the runs of many tasks. It delays the first run by a part of Jitter that depends only on the key, so
// it is the same each time the task is added. Later runs follow at Interval, or with the same delay after each instant
// of Cron. Jitter may be longer than the time between runs. It does not delay a run set by Reschedule, and delays no
// run beyond MaxDelay.
//
// MaxDelay turns a burst of SetTask into one run (debounce). The run is due Delay after the last SetTask of the key,
// but at most MaxDelay after the first, and has the payload of the last. The start of the run ends the burst, and so
// does Reschedule. The next SetTask begins another burst, even if the run is still in progress: then the result of that
// run no longer counts, and the next may overlap with it. If MaxDelay equals Delay, there is one run in each Delay
// (throttle).
//
// Expires is for runs that are useless when they are late, such as a one-time code after an outage. An attempt that
// could not start within Expires after the due time of its run does not start: the task is removed, and [Stats].Expired
// counts it. This includes a retry, and a run that was put off with [Snooze]. A task that is paused, or whose kind has
// no handler, stays until it could start. A task that repeats cannot expire: see [WithMissedAge].
type Task struct {
	Key      string        // unique among the live tasks; 1 to MaxKey bytes
	Kind     string        // which handler runs it; 1 to MaxKind bytes, none of them 0x1f
	Payload  []byte        // for the handler; at most MaxPayload bytes
	Interval time.Duration // time between runs, and before the first unless Delay or At is set
	Cron     string        // when runs are due, in place of Interval: see [Task]; at most MaxCron bytes
	Delay    time.Duration // time before the first run; 0 means Interval or Cron, or at once without these
	At       time.Time     // when the first run is due, in place of Delay; the past means at once
	MaxDelay time.Duration // how long SetTask may postpone the first run: see [Task]; 0 means without bound
	Jitter   time.Duration // the greatest delay added to the runs: see [Task]
	Expires  time.Duration // how long after its due time the run of a task that does not repeat may start: see [Task]
	Times    int           // number of runs; Forever means until removed; 0 means one, or with Cron Forever
	Trace    string        // trace context of the caller, for the runs; at most MaxTrace bytes. See package otel

	// Group is the group of the task, such as a tenant: at most MaxGroup bytes. If the kind has a limit, such as
	// WithConcurrency, the groups take turns, however many due tasks one has. See the Limits section of the package
	// documentation.
	Group string

	// PayloadVersion is the version of the payload. 0 means the version of the kind's handler in this scheduler, or 1
	// for [NewWrite]. See [WithPayloadVersion].
	PayloadVersion int
}

func (t *Task) validate() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrInvalidTask, fmt.Sprintf(format, args...))
	}
	kind := checkKind(t.Kind)
	switch {
	case t.Key == "":
		return invalid("key is empty")
	case len(t.Key) > MaxKey:
		return invalid("key of %d bytes; %d are allowed", len(t.Key), MaxKey)
	case t.Kind == "":
		return invalid("kind of %q is empty", t.Key)
	case kind != nil:
		return kind
	case len(t.Payload) > MaxPayload:
		return invalid("payload of %q has %d bytes; %d are allowed", t.Key, len(t.Payload), MaxPayload)
	case len(t.Trace) > MaxTrace:
		return invalid("trace of %q has %d bytes; %d are allowed", t.Key, len(t.Trace), MaxTrace)
	case len(t.Group) > MaxGroup:
		return invalid("group of %q has %d bytes; %d are allowed", t.Key, len(t.Group), MaxGroup)
	case t.PayloadVersion < 0 || t.PayloadVersion > task.MostVersion:
		return invalid("payload version %d of %q; 0 to %d are allowed", t.PayloadVersion, t.Key, task.MostVersion)
	case t.Interval < 0 || t.Delay < 0:
		return invalid("interval %v or delay %v of %q is negative", t.Interval, t.Delay, t.Key)
	case t.MaxDelay < 0, t.MaxDelay > 0 && (t.Delay == 0 || t.Delay > t.MaxDelay):
		return invalid("max delay %v of %q: Delay must be positive and not longer", t.MaxDelay, t.Key)
	case t.Jitter < 0:
		return invalid("jitter %v of %q is negative", t.Jitter, t.Key)
	case t.Expires < 0:
		return invalid("expiry %v of %q is negative", t.Expires, t.Key)
	case t.Expires > 0 && (t.Interval > 0 || t.Cron != ""):
		return invalid("%q repeats and has Expires; WithMissedAge bounds how late its runs may be", t.Key)
	case t.Times < Forever:
		return invalid("times %d of %q is negative and not Forever", t.Times, t.Key)
	case t.Delay > 0 && !t.At.IsZero():
		return invalid("%q has both Delay and At", t.Key)
	case t.Interval > 0 && t.Cron != "":
		return invalid("%q has both Interval and Cron", t.Key)
	case t.Interval == 0 && t.Cron == "" && (t.Times == Forever || t.Times > 1):
		return invalid("%q is to run more than once and has no Interval or Cron", t.Key)
	case !t.At.IsZero() && (t.At.Before(firstTime) || t.At.After(task.LastTime)):
		const form = time.RFC3339
		return invalid("at %s of %q is not between %s and %s", t.At.UTC().Format(form), t.Key,
			firstTime.UTC().Format(form), task.LastTime.UTC().Format(form))
	}
	if t.Cron != "" {
		if _, err := parseCron(t.Cron); err != nil {
			return invalid("%q: %v", t.Key, err)
		}
	}
	return nil
}

var firstTime = time.Unix(0, 0)

// due returns when the first run is due, if the task is added now.
func (t *Task) due(now int64, shift time.Duration) int64 {
	switch {
	case !t.At.IsZero():
		return task.Later(t.At.UnixNano(), shift)
	case t.Delay > 0:
		return task.Later(task.Later(now, t.Delay), shift)
	case t.Cron != "":
		return task.NextOf(t.Cron, now, shift)
	default:
		return task.Later(task.Later(now, t.Interval), shift)
	}
}

// shift returns the delay of the task's runs, up to Jitter, derived from the key.
func (t *Task) shift() time.Duration {
	if t.Jitter == 0 {
		return 0
	}
	sum := sha256.Sum256([]byte(t.Key))
	return time.Duration(binary.BigEndian.Uint64(sum[:]) % (uint64(t.Jitter) + 1))
}

// record returns the record of the task if it is added now, without a generation.
func (t *Task) record(now int64) *task.Record {
	shift := t.shift()
	due := t.due(now, shift)
	r := &task.Record{
		Key: t.Key, Kind: t.Kind, Payload: append([]byte(nil), t.Payload...),
		Interval: t.Interval, Cron: t.Cron, Times: int64(t.Times), Grid: due, Due: max(due, now),
		Trace: t.Trace, Group: t.Group, Expires: t.Expires,
	}
	if t.Cron != "" {
		r.Shift = shift
	}
	if t.MaxDelay > 0 {
		r.Deadline = task.Later(now, t.MaxDelay)
		r.Grid = min(r.Grid, r.Deadline)
		r.Due = r.Grid
	}
	if t.PayloadVersion > 1 {
		r.Version = t.PayloadVersion
	}
	switch {
	case t.Times == 0 && t.Cron != "":
		r.Times = Forever
	case t.Times == 0:
		r.Times = 1
	}
	return r
}

// Info describes a task at the time of the call.
type Info struct {
	Key            string
	Kind           string
	Payload        []byte
	Interval       time.Duration
	Cron           string    // as in Task
	Times          int       // unacknowledged runs, as from GetTaskTimes
	Next           time.Time // when the next run or attempt is due; zero if Parked or paused
	Generation     uint64    // as in Token
	Seq            uint64    // as in Token: the number of the next run, or of the running one
	Attempts       int       // failed attempts of that run
	Snoozes        int       // how often a handler has put that run off: see [Snooze]
	Missed         uint64    // periods that passed without a run
	Parked         bool      // it does not run until it is rescheduled or replaced
	Failure        string    // the error of the last attempt, or empty
	Trace          string    // as in Task
	Note           string    // of the last complete run: see [Run.Complete]
	Group          string    // as in Task
	State          State     // as in States
	PayloadVersion int       // as in Task
	Started        time.Time // when the running attempt began, by the clock that decides what is due; otherwise zero
	Node           string    // the name of the node that holds it; empty if it is free, and on a store
	Failed         []Failure // the last failed attempts of the run, at most five, the newest first

	Shift    time.Duration // the delay of the runs after the instants of Cron: a part of Jitter
	Expires  time.Duration // as in Task
	Deadline time.Time     // the latest due time of the first run, from MaxDelay; zero if there is no bound
}

// String returns the fields in one line, without the payload and trace context. Times are in UTC.
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
	if i.Shift > 0 {
		fmt.Fprintf(&b, ", shifted by %v", i.Shift)
	}
	if i.Times == Forever {
		b.WriteString(", for ever")
	} else {
		fmt.Fprintf(&b, ", runs left: %d", i.Times)
	}
	if i.Missed > 0 {
		fmt.Fprintf(&b, ", missed: %d", i.Missed)
	}
	if i.Attempts > 0 || i.Failure != "" {
		fmt.Fprintf(&b, ", failed attempts: %d, the last: %q", i.Attempts, i.Failure)
	}
	if i.Snoozes > 0 {
		fmt.Fprintf(&b, ", snoozed: %d", i.Snoozes)
	}
	if i.Expires > 0 {
		fmt.Fprintf(&b, ", expires %v after it was due", i.Expires)
	}
	for _, named := range []struct{ name, value string }{{"note", i.Note}, {"group", i.Group}, {"held by", i.Node}} {
		if named.value != "" {
			fmt.Fprintf(&b, ", %s %q", named.name, named.value)
		}
	}
	fmt.Fprintf(&b, ", %d bytes of payload version %d, token %v", len(i.Payload), max(i.PayloadVersion, 1),
		Token{i.Key, i.Generation, i.Seq})
	return b.String()
}

// A Failure is a failed attempt.
type Failure struct {
	At   time.Time
	Text string // the error
}
