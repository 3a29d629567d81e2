// SPDX-License-Identifier: MIT

// Package task defines a task and how it changes: its record and encoding, its transitions, its calendar, and the
// policy of its kind. The package reads no clock and starts no goroutines: times and random numbers are arguments. Its
// only state is a cache of time zones.
package task

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A Record is a task as stored by the scheduler. A Record is never modified: each change to the task creates a new
// Record.
type Record struct {
	Token          // of the current run, or of the next run if none is in progress
	Due      int64 // when the task is handled next: Grid, the time of a later attempt, PausedDue or Never
	Grid     int64 // when the run is due, in nanoseconds since 1970
	Asof     int64 // the time from which Due was computed; 0 if it was not, or if the task runs only once: see Righted
	Kind     string
	Payload  []byte
	Times    int64 // runs not yet acknowledged, or Forever
	Interval time.Duration
	Cron     string        // cron expression, instead of Interval
	Shift    time.Duration // delay of each run after its instant of Cron
	Attempts uint64
	Missed   uint64
	Failed   []Failure // last failed attempts of the run and of the GivenUp runs before it, newest first; at most mostFailed
	GivenUp  int       // runs given up since the last run that completed
	Trace    string
	Group    string
	Note     string        // note of the previous run, or empty
	Version  int           // version of the payload; 0 is the first
	Paused   int64         // due time when the task was paused; 0 if it is not paused
	Deadline int64         // latest due time of the first run, however often SetTask postpones it; 0 if there is no deadline
	Snoozes  int           // how often a handler has postponed the run
	Expires  time.Duration // how long after Grid an attempt may start; 0 means no limit
	Until    int64         // the last instant at which a run after the first may be due; 0 means no limit
	Meta     string        // what the caller keeps with the task
}

// Forever is the Times of a task that repeats until it is removed.
const Forever = -1

// The due times of tasks that do not run, in nanoseconds since 1970. They are greater than all other due times.
const (
	PausedDue = engine.PausedDue // due time of a paused task
	Never     = engine.ParkedDue // due time of a parked task
)

// Latest is the last instant at which a task can be due.
const Latest = PausedDue - 1

// LastTime is Latest as a time.
var LastTime = time.Unix(0, Latest)

// Later returns the instant d after t, but at most Latest. d must not be negative.
func Later(t int64, d time.Duration) int64 {
	if t > 0 && int64(d) > Latest-t {
		return Latest
	}
	return t + int64(d)
}

// A Failure is a failed attempt.
type Failure struct {
	At   int64  // when the attempt ended, in nanoseconds since 1970; 0 if unknown
	Text string // the error
}

// mostFailed is the maximum number of failed attempts in a record.
const mostFailed = 5

// RecordVersion is the latest version of a record. The first byte of a record's data is its version. A field (fields.go)
// added after a release requires a new version for the records that have it, so that nodes of that release leave tasks
// with that field, and only those tasks, to other nodes.
const RecordVersion = 1

// Position returns the record's position in the order of due time and key.
func (r *Record) Position() engine.Position { return engine.Position{Due: r.Due, Key: r.Key} }

// Size returns the approximate size of the record in the store, in bytes.
func (r *Record) Size() int {
	return 128 + 2*len(r.Key) + len(r.Kind) + len(r.Payload) + len(r.Trace) + len(r.Group) + len(r.Meta)
}

// HasFailed reports whether an attempt of the run has failed.
func (r *Record) HasFailed() bool { return r.Attempts > 0 }

// Failing reports whether the task's last attempt failed: the last attempt of the run or, before the first attempt of the
// run, that of a run that was given up.
func (r *Record) Failing() bool { return r.HasFailed() || r.GivenUp > 0 }

// Failure returns the error of the last failed attempt, or an empty string.
func (r *Record) Failure() string {
	if len(r.Failed) == 0 {
		return ""
	}
	return r.Failed[0].Text
}

// A Token identifies a run. It corresponds to the type Token of package durable.
type Token struct {
	Key        string
	Generation uint64
	Seq        uint64
}

// AttemptDue returns the due time of the current attempt, or of the next attempt if none is in progress.
func (r *Record) AttemptDue() int64 {
	if r.HasFailed() || r.Snoozes > 0 {
		return r.Due
	}
	return r.Grid
}

// Encode encodes everything except the key and the due time.
func (r *Record) Encode() []byte {
	fields := r.encodeFields()
	b := make([]byte, 0, 32+len(r.Kind)+len(fields)+len(r.Payload))
	b = append(b, RecordVersion)
	b = binary.AppendUvarint(b, r.Generation)
	b = binary.AppendUvarint(b, r.Seq)
	b = binary.AppendVarint(b, r.Times)
	b = binary.AppendVarint(b, int64(r.Interval))
	b = binary.AppendVarint(b, r.Grid)
	b = binary.AppendUvarint(b, r.Attempts)
	b = binary.AppendUvarint(b, r.Missed)
	b = appendString(b, r.Kind)
	b = append(b, fields...)
	b = append(b, 0) // the end of the fields
	return append(b, r.Payload...)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Decode decodes the result of Encode. The record's payload shares memory with stored.Data.
func Decode(stored engine.Record) (*Record, error) {
	d := decoder{b: stored.Data}
	version := d.byte()
	if version != RecordVersion && !d.short {
		return nil, fmt.Errorf("%w: record of %q has version %d, and not %d", engine.ErrVersion, stored.Key, version,
			RecordVersion)
	}
	r := &Record{
		Due:      stored.Due,
		Token:    Token{Key: stored.Key, Generation: d.uvarint(), Seq: d.uvarint()},
		Times:    d.varint(),
		Interval: time.Duration(d.varint()),
		Grid:     d.varint(),
		Attempts: d.uvarint(),
		Missed:   d.uvarint(),
		Kind:     d.string(),
	}
	if !d.short {
		if tag := r.decodeFields(&d); tag != 0 {
			return nil, fmt.Errorf("%w: record of %q has the unknown field %d", engine.ErrVersion, stored.Key, tag)
		}
	}
	r.Payload = d.b
	switch {
	case d.short, r.Times < Forever, r.Times == 0, r.Times > math.MaxInt, r.Interval < 0, r.Grid < 0, r.Kind == "",
		(r.Until > 0 || r.Repeats()) && r.Interval == 0 && r.Cron == "", r.Interval > 0 && r.Cron != "", r.Shift > 0 && r.Cron == "",
		r.Expires > 0 && r.Repeats():
		return nil, fmt.Errorf("%w: malformed record of %d bytes for key %q", engine.ErrCorrupt, len(stored.Data), stored.Key)
	}
	return r, nil
}

// Write returns the write that puts the record.
func (r *Record) Write(on engine.Condition, revision int64) engine.Write {
	return engine.Write{Record: engine.Record{Key: r.Key, Due: r.Due, Data: r.Encode()}, Kind: class(r.Kind, r.Version), Group: r.Group,
		If: on, Revision: revision, Failing: r.Failing()}
}

// A decoder reads from b. It sets short if b is too short.
type decoder struct {
	b     []byte
	short bool
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.short, n = true, 0
	}
	taken := d.b[:n]
	d.b = d.b[n:]
	return taken
}

func (d *decoder) byte() byte {
	if b := d.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (d *decoder) uvarint() uint64 { return number(d, binary.Uvarint) }
func (d *decoder) varint() int64   { return number(d, binary.Varint) }
func (d *decoder) string() string  { return string(d.take(d.uvarint())) }

func number[T int64 | uint64](d *decoder, read func([]byte) (T, int)) T {
	v, n := read(d.b)
	if n <= 0 {
		d.short, n = true, 0
	}
	d.b = d.b[n:]
	return v
}
