// SPDX-License-Identifier: MIT

package durable

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A record is a task as the scheduler keeps it. It does not change: what changes is which one a key has.
type record struct {
	key        string
	due        int64 // when it is to be looked at: on the grid, or at a later attempt, or never
	grid       int64 // when the run is due, in nanoseconds since 1970
	kind       string
	payload    []byte
	times      int64 // runs that have not been acknowledged, or timesForever
	interval   time.Duration
	cron       string        // in place of interval
	shift      time.Duration // how much later than the instants of cron the runs are
	generation uint64
	seq        uint64
	attempts   uint64
	missed     uint64
	failed     []failed // the last failed attempts of the run, at most mostFailed, the newest first
	trace      string
	group      string
	note       string // of the run before, if that has left one
	version    int    // of the payload's form; 0 is the first
	paused     int64  // when it was due as it was paused; 0 if it is not
	deadline   int64  // when the first run is due at the latest, however often SetTask puts it off; 0 if never
	starts     int    // of the run, whose end is not known; an engine counts them itself
}

// timesForever is the times of a task that repeats until it is removed.
const timesForever = -1

// A failed is a failed attempt.
type failed struct {
	at   int64  // when it ended, in nanoseconds since 1970; 0 if that is not known
	text string // the error
}

// mostFailed is how many failed attempts a record keeps.
const mostFailed = 5

// The first byte of a record's data is its version. A record without an optional field (fields.go) is written
// as version 1, which has none. A field that is added after a release needs a further version, so that nodes of
// that release leave the tasks with the field to others, and no more than those.
const (
	recordVersion = 1
	fieldsVersion = 2
)

func (r *record) position() engine.Position { return engine.Position{Due: r.due, Key: r.key} }

// size is about how many bytes the record takes in the store.
func (r *record) size() int {
	return 128 + 2*len(r.key) + len(r.kind) + len(r.payload) + len(r.trace) + len(r.group)
}

// failing reports whether an attempt of the run has failed.
func (r *record) failing() bool { return r.attempts > 0 }

// failure is the error of the last attempt, or empty.
func (r *record) failure() string {
	if len(r.failed) == 0 {
		return ""
	}
	return r.failed[0].text
}

// A token identifies a run, as the type Token of package durable.
type token struct {
	Key        string
	Generation uint64
	Seq        uint64
}

// token is that of the run that is next, or running.
func (r *record) token() token { return token{r.key, r.generation, r.seq} }

// attemptDue returns when the next attempt is due, or was due if it is running.
func (r *record) attemptDue() int64 {
	if r.failing() {
		return r.due
	}
	return r.grid
}

// encode returns everything but the key and the due time.
func (r *record) encode() []byte {
	fields := r.encodeFields()
	b := make([]byte, 0, 32+len(r.kind)+len(fields)+len(r.payload))
	if fields == nil {
		b = append(b, recordVersion)
	} else {
		b = append(b, fieldsVersion)
	}
	b = binary.AppendUvarint(b, r.generation)
	b = binary.AppendUvarint(b, r.seq)
	b = binary.AppendVarint(b, r.times)
	b = binary.AppendVarint(b, int64(r.interval))
	b = binary.AppendVarint(b, r.grid)
	b = binary.AppendUvarint(b, r.attempts)
	b = binary.AppendUvarint(b, r.missed)
	b = appendString(b, r.kind)
	b = appendString(b, "") // version 1 has the error of the last attempt here
	b = append(b, fields...)
	return append(b, r.payload...)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decode reads what encode wrote. The payload is that of the data, and not a copy.
func decode(stored engine.Record) (*record, error) {
	d := decoder{b: stored.Data}
	version := d.byte()
	if version != recordVersion && version != fieldsVersion && !d.short {
		return nil, fmt.Errorf("%w: record of %q has version %d, and not %d or %d",
			engine.ErrVersion, stored.Key, version, recordVersion, fieldsVersion)
	}
	r := &record{
		key:        stored.Key,
		due:        stored.Due,
		generation: d.uvarint(),
		seq:        d.uvarint(),
		times:      d.varint(),
		interval:   time.Duration(d.varint()),
		grid:       d.varint(),
		attempts:   d.uvarint(),
		missed:     d.uvarint(),
		kind:       d.string(),
	}
	if failure := d.string(); failure != "" {
		r.failed = []failed{{text: failure}}
	}
	if version == fieldsVersion && !d.short {
		if tag := r.decodeFields(&d); tag != 0 {
			return nil, fmt.Errorf("%w: record of %q has the unknown field %d", engine.ErrVersion, stored.Key, tag)
		}
	}
	r.payload = d.b
	switch {
	case d.short, r.times < timesForever, r.times == 0, r.times > math.MaxInt, r.interval < 0, r.grid < 0, r.kind == "",
		r.repeats() && r.interval == 0 && r.cron == "":
		return nil, fmt.Errorf("%w: malformed record for key %q: %x", engine.ErrCorrupt, stored.Key, stored.Data)
	}
	return r, nil
}

// write returns the write that puts the record.
func (r *record) write(on engine.Condition, revision int64) engine.Write {
	return engine.Write{Record: engine.Record{Key: r.key, Due: r.due, Data: r.encode()}, Kind: class(r.kind, r.version), Group: r.group,
		If: on, Revision: revision, Failing: r.failing()}
}

// A decoder reads from b, until it is short.
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

// generationBits is how many of the last bits of a generation are no time. They keep apart what is added within
// the same instant, by several processes or after a clock was set back.
const generationBits = 10

// generationAt returns a generation of that time, whose last bits are those of low.
func generationAt(now int64, low uint64) uint64 {
	const mask = 1<<generationBits - 1
	return uint64(now)&^mask | low&mask
}
