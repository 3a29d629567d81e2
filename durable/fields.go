// SPDX-License-Identifier: MIT

package durable

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
	write func(r *record) []byte      // empty if the record has no such part
	read  func(r *record, d *decoder) // sets d.short if the bytes make no sense
}

var fields = [...]field{
	{1, (*record).encodeFailed, (*record).decodeFailed},
	{2, (*record).encodeTrace, (*record).decodeTrace},
	{3, (*record).encodeVersion, (*record).decodeVersion},
	{4, (*record).encodeStarts, (*record).decodeStarts},
	{5, (*record).encodeCron, (*record).decodeCron},
	{6, (*record).encodePaused, (*record).decodePaused},
	{7, (*record).encodeGroup, (*record).decodeGroup},
	{8, (*record).encodeShift, (*record).decodeShift},
	{9, (*record).encodeDeadline, (*record).decodeDeadline},
	{10, (*record).encodeNote, (*record).decodeNote},
}

// encodeFields returns the optional fields with their end, or nil if there are none.
func (r *record) encodeFields() (b []byte) {
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
func (r *record) decodeFields(d *decoder) (unknown uint64) {
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

func (r *record) encodeVersion() []byte {
	if r.version == 0 {
		return nil
	}
	return binary.AppendUvarint(nil, uint64(r.version))
}

func (r *record) decodeVersion(d *decoder) {
	version := d.uvarint()
	d.short = d.short || version < 2 || version > mostVersion
	r.version = int(version)
}

func (r *record) encodeCron() []byte { return []byte(r.cron) }

func (r *record) decodeCron(d *decoder) {
	r.cron = d.text()
	d.short = d.short || r.interval > 0
}

func (r *record) encodeShift() []byte {
	if r.shift == 0 {
		return nil
	}
	return binary.AppendUvarint(nil, uint64(r.shift))
}

func (r *record) decodeShift(d *decoder) {
	shift := d.uvarint()
	d.short = d.short || shift == 0 || shift > math.MaxInt64 || r.cron == ""
	r.shift = time.Duration(shift)
}

func (r *record) encodeDeadline() []byte {
	if r.deadline == 0 {
		return nil
	}
	return binary.AppendVarint(nil, r.deadline)
}

func (r *record) decodeDeadline(d *decoder) {
	r.deadline = d.varint()
	d.short = d.short || r.deadline <= 0
}

func (r *record) encodeNote() []byte { return []byte(r.note) }

func (r *record) decodeNote(d *decoder) { r.note = d.text() }

func (r *record) encodePaused() []byte {
	if r.paused == 0 {
		return nil
	}
	return binary.AppendVarint(nil, r.paused)
}

func (r *record) decodePaused(d *decoder) {
	r.paused = d.varint()
	d.short = d.short || r.paused <= 0
}

func (r *record) encodeGroup() []byte { return []byte(r.group) }

func (r *record) decodeGroup(d *decoder) { r.group = d.text() }

func (r *record) encodeStarts() []byte {
	if r.starts == 0 {
		return nil
	}
	return binary.AppendUvarint(nil, uint64(r.starts))
}

func (r *record) decodeStarts(d *decoder) {
	starts := d.uvarint()
	d.short = d.short || starts == 0 || starts > math.MaxInt32
	r.starts = int(starts)
}

func (r *record) encodeFailed() (b []byte) {
	for _, f := range r.failed {
		b = appendString(binary.AppendVarint(b, f.at), f.text)
	}
	return b
}

func (r *record) decodeFailed(d *decoder) {
	r.failed = nil
	for len(d.b) > 0 && !d.short {
		r.failed = append(r.failed, failed{d.varint(), d.string()})
	}
	d.short = d.short || len(r.failed) > mostFailed
}

func (r *record) encodeTrace() []byte { return []byte(r.trace) }

func (r *record) decodeTrace(d *decoder) { r.trace = d.text() }

// text takes all that is left, which must be something.
func (d *decoder) text() string {
	d.short = d.short || len(d.b) == 0
	return string(d.take(uint64(len(d.b))))
}
