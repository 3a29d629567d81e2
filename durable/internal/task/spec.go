// SPDX-License-Identifier: MIT

package task

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// ErrInvalidTask is the error with the same name of package durable. It wraps that of package timewheel.
var ErrInvalidTask error = LikeOfWheel{"durable: invalid task", timewheel.ErrInvalidTask}

// A LikeOfWheel is an error that also matches the corresponding error of package timewheel.
type LikeOfWheel struct {
	Text string
	Of   error
}

func (e LikeOfWheel) Error() string { return e.Text }
func (e LikeOfWheel) Unwrap() error { return e.Of }

// The largest sizes of a task's parts, in bytes.
const (
	MaxKey     = 1 << 10
	MaxKind    = 1 << 8
	MaxPayload = 1 << 20
	MaxTrace   = 1 << 9
	MaxGroup   = 1 << 8
	MaxCron    = 1 << 8
	MaxMeta    = 1 << 11
)

// A Spec describes a task to add. It has the fields of the type Task of package durable, which documents them.
type Spec struct {
	Key      string
	Kind     string
	Payload  []byte
	Interval time.Duration
	Cron     string
	Delay    time.Duration
	At       time.Time
	MaxDelay time.Duration
	Jitter   time.Duration
	Expires  time.Duration
	Times    int
	Until    time.Time
	Trace    string
	Meta     string

	Group string

	PayloadVersion int

	Once string
}

// OnceKind and OncePrefix are the constants with the same names of package durable.
const (
	OnceKind   = "timewheel/once"
	OncePrefix = OnceKind + "/"
)

// IsOnce reports whether the task has the kind, or a key, of the tasks that remember names.
func (t *Spec) IsOnce() bool { return t.Kind == OnceKind || strings.HasPrefix(t.Key, OncePrefix) }

// Validate returns an error that wraps ErrInvalidTask if the task is invalid.
func (t *Spec) Validate() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrInvalidTask, fmt.Sprintf(format, args...))
	}
	kind := CheckKind(t.Kind)
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
	case len(t.Meta) > MaxMeta:
		return invalid("meta of %q has %d bytes; %d are allowed", t.Key, len(t.Meta), MaxMeta)
	case len(t.Group) > MaxGroup:
		return invalid("group of %q has %d bytes; %d are allowed", t.Key, len(t.Group), MaxGroup)
	case t.PayloadVersion < 0 || t.PayloadVersion > MostVersion:
		return invalid("payload version %d of %q; 0 to %d are allowed", t.PayloadVersion, t.Key, MostVersion)
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
	case !t.Until.IsZero() && t.Interval == 0 && t.Cron == "":
		return invalid("%q has Until and no Interval or Cron", t.Key)
	case !t.Until.IsZero() && !isInstant(t.Until):
		return invalid("until %s", outside(t.Key, t.Until))
	case t.Times < Forever:
		return invalid("times %d of %q is negative and not Forever", t.Times, t.Key)
	case t.Delay > 0 && !t.At.IsZero():
		return invalid("%q has both Delay and At", t.Key)
	case t.Interval > 0 && t.Cron != "":
		return invalid("%q has both Interval and Cron", t.Key)
	case t.Interval == 0 && t.Cron == "" && (t.Times == Forever || t.Times > 1):
		return invalid("%q is to run more than once and has no Interval or Cron", t.Key)
	case !t.At.IsZero() && !isInstant(t.At):
		return invalid("at %s", outside(t.Key, t.At))
	}
	if t.Cron != "" {
		if _, err := ParseCron(t.Cron); err != nil {
			return invalid("%q: %v", t.Key, err)
		}
	}
	return nil
}

// FirstTime is the first instant at which a task can be due.
var FirstTime = time.Unix(0, 0)

func isInstant(t time.Time) bool { return !t.Before(FirstTime) && !t.After(LastTime) }

// outside says that a time of a task is not an instant.
func outside(key string, t time.Time) string {
	const form = time.RFC3339
	return fmt.Sprintf("%s of %q is not between %s and %s", t.UTC().Format(form), key, FirstTime.UTC().Format(form), LastTime.UTC().Format(form))
}

// due returns when the first run is due, if the task is added now.
func (t *Spec) due(now int64, shift time.Duration) int64 {
	switch {
	case !t.At.IsZero():
		return Later(t.At.UnixNano(), shift)
	case t.Delay > 0:
		return Later(Later(now, t.Delay), shift)
	case t.Cron != "":
		return NextOf(t.Cron, now, shift)
	default:
		return Later(Later(now, t.Interval), shift)
	}
}

// shift returns the delay of the task's runs. The delay is at most Jitter and depends only on Jitter and the key.
func (t *Spec) shift() time.Duration {
	if t.Jitter == 0 {
		return 0
	}
	sum := sha256.Sum256([]byte(t.Key))
	return time.Duration(binary.BigEndian.Uint64(sum[:]) % (uint64(t.Jitter) + 1))
}

// Size returns the approximate size of the task's record, as [Record.Size] does.
func (t *Spec) Size() int {
	r := Record{Token: Token{Key: t.Key}, Kind: t.Kind, Payload: t.Payload, Trace: t.Trace, Group: t.Group, Meta: t.Meta}
	return r.Size()
}

// Record returns the record of a task that is added now, without a generation.
func (t *Spec) Record(now int64) *Record {
	shift := t.shift()
	due := t.due(now, shift)
	r := &Record{
		Token: Token{Key: t.Key}, Kind: t.Kind, Payload: append([]byte(nil), t.Payload...),
		Interval: t.Interval, Cron: t.Cron, Times: int64(t.Times), Grid: due, Due: max(due, now),
		Trace: t.Trace, Group: t.Group, Meta: t.Meta, Expires: t.Expires,
	}
	if !t.Until.IsZero() {
		r.Until = max(t.Until.UnixNano(), 1)
	}
	if t.Cron != "" {
		r.Shift = shift
	}
	if t.MaxDelay > 0 {
		r.Deadline = Later(now, t.MaxDelay)
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
	if (t.At.IsZero() || due < now) && r.Repeats() { // otherwise the caller has chosen the due time
		r.Asof = now
	}
	return r
}

// CheckKind returns an error that wraps ErrInvalidTask if name is not a valid name for a kind.
func CheckKind(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: kind is empty", ErrInvalidTask)
	case len(name) > MaxKind:
		return fmt.Errorf("%w: kind of %d bytes; %d are allowed", ErrInvalidTask, len(name), MaxKind)
	case strings.Contains(name, ClassMark):
		return fmt.Errorf("%w: kind %q has the byte 0x1f, which separates the version of a payload", ErrInvalidTask, name)
	}
	return nil
}

// ParseCron parses the Cron of a Spec into a calendar.
func ParseCron(spec string) (*Calendar, error) {
	if len(spec) > MaxCron {
		return nil, fmt.Errorf("cron %q: %d bytes; %d are allowed", spec, len(spec), MaxCron)
	}
	return ParseCalendar(spec)
}
