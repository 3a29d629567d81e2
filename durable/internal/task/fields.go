// SPDX-License-Identifier: MIT

package task

import (
	"encoding/binary"
	"math"
	"time"
)

// The optional fields of a record follow on its header, in order of their tags, each with its tag, its length
// and its bytes. The tag 0 ends them. A program that does not know a field does not read the record, for it
// could not write it again as it was.

// A field is an optional part of a record.
type field struct {
	tag   uint64                      // is never used for anything else
	write func(r *Record) []byte      // empty if the record has no such part
	read  func(r *Record, d *decoder) // sets d.short if the bytes make no sense
}

var fields = [...]field{
	{1, (*Record).encodeFailed, (*Record).decodeFailed},
	{2, (*Record).encodeTrace, (*Record).decodeTrace},
	{3, (*Record).encodeVersion, (*Record).decodeVersion},
	{4, (*Record).encodeStarts, (*Record).decodeStarts},
	{5, (*Record).encodeCron, (*Record).decodeCron},
	{6, (*Record).encodePaused, (*Record).decodePaused},
	{7, (*Record).encodeGroup, (*Record).decodeGroup},
	{8, (*Record).encodeShift, (*Record).decodeShift},
	{9, (*Record).encodeDeadline, (*Record).decodeDeadline},
	{10, (*Record).encodeNote, (*Record).decodeNote},
}

// encodeFields returns the optional fields with their end, or nil if there are none.
func (r *Record) encodeFields() (b []byte) {
	for _, f := range fields {
		if bytes := f.write(r); len(bytes) > 0 {
			b = binary.AppendUvarint(b, f.tag)
			b = binary.AppendUvarint(b, uint64(len(bytes)))
			b = append(b, bytes...)
		}
	}
	if b != nil {
		b = append(b, 0)
	}
	return b
}

// decodeFields reads what encodeFields wrote. It returns the tag of a field that this program does not know,
// or 0.
func (r *Record) decodeFields(d *decoder) (unknown uint64) {
	known := fields[:]
	for {
		tag := d.uvarint()
		if tag == 0 {
			return 0
		}
		for len(known) > 0 && known[0].tag < tag {
			known = known[1:]
		}
		if len(known) == 0 || known[0].tag != tag {
			if tag <= fields[len(fields)-1].tag { // it comes too late, or never was one
				d.short = true
				return 0
			}
			return tag
		}
		own := decoder{b: d.take(d.uvarint())}
		known[0].read(r, &own)
		known = known[1:]
		d.short = d.short || own.short || len(own.b) > 0
	}
}

func (r *Record) encodeVersion() []byte {
	if r.Version == 0 {
		return nil
	}
	return binary.AppendUvarint(nil, uint64(r.Version))
}

func (r *Record) decodeVersion(d *decoder) {
	version := d.uvarint()
	d.short = d.short || version < 2 || version > MostVersion
	r.Version = int(version)
}

func (r *Record) encodeCron() []byte { return []byte(r.Cron) }

func (r *Record) decodeCron(d *decoder) {
	r.Cron = d.text()
	d.short = d.short || r.Interval > 0
}

func (r *Record) encodeShift() []byte {
	if r.Shift == 0 {
		return nil
	}
	return binary.AppendUvarint(nil, uint64(r.Shift))
}

func (r *Record) decodeShift(d *decoder) {
	shift := d.uvarint()
	d.short = d.short || shift == 0 || shift > math.MaxInt64 || r.Cron == ""
	r.Shift = time.Duration(shift)
}

func (r *Record) encodeDeadline() []byte {
	if r.Deadline == 0 {
		return nil
	}
	return binary.AppendVarint(nil, r.Deadline)
}

func (r *Record) decodeDeadline(d *decoder) {
	r.Deadline = d.varint()
	d.short = d.short || r.Deadline <= 0
}

func (r *Record) encodeNote() []byte { return []byte(r.Note) }

func (r *Record) decodeNote(d *decoder) { r.Note = d.text() }

func (r *Record) encodePaused() []byte {
	if r.Paused == 0 {
		return nil
	}
	return binary.AppendVarint(nil, r.Paused)
}

func (r *Record) decodePaused(d *decoder) {
	r.Paused = d.varint()
	d.short = d.short || r.Paused <= 0
}

func (r *Record) encodeGroup() []byte { return []byte(r.Group) }

func (r *Record) decodeGroup(d *decoder) { r.Group = d.text() }

func (r *Record) encodeStarts() []byte {
	if r.Starts == 0 {
		return nil
	}
	return binary.AppendUvarint(nil, uint64(r.Starts))
}

func (r *Record) decodeStarts(d *decoder) {
	starts := d.uvarint()
	d.short = d.short || starts == 0 || starts > math.MaxInt32
	r.Starts = int(starts)
}

func (r *Record) encodeFailed() (b []byte) {
	for _, f := range r.Failed {
		b = appendString(binary.AppendVarint(b, f.At), f.Text)
	}
	return b
}

func (r *Record) decodeFailed(d *decoder) {
	r.Failed = nil
	for len(d.b) > 0 && !d.short {
		r.Failed = append(r.Failed, Failure{d.varint(), d.string()})
	}
	d.short = d.short || len(r.Failed) > mostFailed
}

func (r *Record) encodeTrace() []byte { return []byte(r.Trace) }

func (r *Record) decodeTrace(d *decoder) { r.Trace = d.text() }

// text takes all that is left, which must be something.
func (d *decoder) text() string {
	d.short = d.short || len(d.b) == 0
	return string(d.take(uint64(len(d.b))))
}
