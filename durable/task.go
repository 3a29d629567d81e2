// SPDX-License-Identifier: MIT

package durable

import (
	"fmt"
	"math"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// Forever is the Times of a task that runs until it is removed.
const Forever = timewheel.Forever

// What a task may hold, in bytes.
const (
	MaxKey     = 1 << 10
	MaxKind    = 1 << 8
	MaxPayload = 1 << 20
	MaxBatch   = 64 << 20 // all that one AddTask adds
)

// A Task is what [Scheduler.AddTask] adds. One of Interval, Delay and At must say when it is due.
type Task struct {
	Key      string        // unique among the live tasks; 1 to MaxKey bytes
	Kind     string        // which handler runs it; 1 to MaxKind bytes
	Payload  []byte        // for the handler; at most MaxPayload bytes
	Interval time.Duration // time between runs, and before the first unless Delay or At is set
	Delay    time.Duration // time before the first run; 0 means Interval
	At       time.Time     // when the first run is due, in place of Delay; the past means at once
	Times    int           // number of runs; 0 means one, Forever means until removed

	// PayloadVersion is the version of the payload's form. 0 means that of the kind's handler in this scheduler, or
	// 1 for [NewWrite]. See [WithPayloadVersion].
	PayloadVersion int
}

// latest is the last instant before never.
const latest = math.MaxInt64 - 1

func (t *Task) validate() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrInvalidTask, fmt.Sprintf(format, args...))
	}
	switch {
	case t.Key == "":
		return invalid("key is empty")
	case len(t.Key) > MaxKey:
		return invalid("key of %d bytes; %d are allowed", len(t.Key), MaxKey)
	case t.Kind == "":
		return invalid("kind of %q is empty", t.Key)
	case len(t.Kind) > MaxKind:
		return invalid("kind of %d bytes; %d are allowed", len(t.Kind), MaxKind)
	case len(t.Payload) > MaxPayload:
		return invalid("payload of %q has %d bytes; %d are allowed", t.Key, len(t.Payload), MaxPayload)
	case t.PayloadVersion < 0 || t.PayloadVersion > mostVersion:
		return invalid("payload version %d of %q; 0 to %d are allowed", t.PayloadVersion, t.Key, mostVersion)
	case t.Interval < 0 || t.Delay < 0:
		return invalid("interval %v or delay %v of %q is negative", t.Interval, t.Delay, t.Key)
	case t.Times < Forever:
		return invalid("times %d of %q is negative and not Forever", t.Times, t.Key)
	case t.Delay > 0 && !t.At.IsZero():
		return invalid("%q has both Delay and At", t.Key)
	case t.Interval == 0 && (t.Times == Forever || t.Times > 1):
		return invalid("%q is to run more than once and has no interval", t.Key)
	case t.Interval == 0 && t.Delay == 0 && t.At.IsZero():
		return invalid("%q has no Interval, Delay or At", t.Key)
	case !t.At.IsZero() && (t.At.Before(firstTime) || t.At.After(lastTime)):
		return invalid("%q is due in the year %d; 1970 to 2262 are allowed", t.Key, t.At.Year())
	}
	return nil
}

var firstTime, lastTime = time.Unix(0, 0), time.Unix(0, latest)

// due returns when the first run is due, if the task is added now.
func (t *Task) due(now int64) int64 {
	switch {
	case !t.At.IsZero():
		return t.At.UnixNano()
	case t.Delay > 0:
		return later(now, t.Delay)
	default:
		return later(now, t.Interval)
	}
}

// record returns the task as it is kept, if it is added now, without a generation.
func (t *Task) record(now int64) *record {
	due := t.due(now)
	r := &record{
		key: t.Key, kind: t.Kind, payload: append([]byte(nil), t.Payload...),
		interval: t.Interval, times: int64(t.Times), grid: due, due: max(due, now),
	}
	if t.PayloadVersion > 1 {
		r.version = t.PayloadVersion
	}
	if t.Times == 0 {
		r.times = 1
	}
	return r
}

// later returns the instant d after t, where d is not negative, and the latest there is if that is beyond it.
func later(t int64, d time.Duration) int64 {
	if t > 0 && int64(d) > latest-t {
		return latest
	}
	return t + int64(d)
}

// Info is one task, as it was at the call.
type Info struct {
	Key            string
	Kind           string
	Payload        []byte
	Interval       time.Duration
	Times          int       // runs that have not been acknowledged, as GetTaskTimes
	Next           time.Time // when the next run or attempt is due; zero if Parked
	Generation     uint64    // as in Token
	Seq            uint64    // as in Token: the number of the run that is next, or running
	Attempts       int       // failed attempts of that run
	Missed         uint64    // periods that passed without a run
	Parked         bool      // it does not run until it is rescheduled or replaced
	Failure        string    // the error of the last attempt, or empty
	State          State     // where it stands
	PayloadVersion int       // as in Task
	Node           string    // the name of the node that holds it; empty if none does, or on a store
	Failed         []Failure // the last attempts of the run that have failed, at most five, the newest first
}

// A Failure is a failed attempt.
type Failure struct {
	At   time.Time
	Text string // the error
}
