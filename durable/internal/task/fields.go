// SPDX-License-Identifier: MIT

package task

import (
	"encoding/binary"
	"math"
	"time"
)

// The optional fields of a record follow its header in tag order. Each field consists of its tag, its length and its
// bytes. Tag 0 ends the list. A program that does not know a field rejects the record, because it could not write the
// field back.

// A field is an optional part of a record.
type field struct {
	tag   uint64                      // never reused for another field
	write func(r *Record) []byte      // returns no bytes if the record does not have the field
	read  func(r *Record, d *decoder) // sets d.short if the bytes are malformed
}

var fields = [...]field{
	{1, (*Record).encodeFailed, (*Record).decodeFailed},
	text(2, func(r *Record) *string { return &r.Trace }),
	count(3, func(r *Record) *int { return &r.Version }, 2, MostVersion),
	text(5, func(r *Record) *string { return &r.Cron }),
	instant(6, func(r *Record) *int64 { return &r.Paused }),
	text(7, func(r *Record) *string { return &r.Group }),
	count(8, func(r *Record) *time.Duration { return &r.Shift }, 1, math.MaxInt64),
	instant(9, func(r *Record) *int64 { return &r.Deadline }),
	text(10, func(r *Record) *string { return &r.Note }),
	count(11, func(r *Record) *int { return &r.Snoozes }, 1, math.MaxInt32),
	count(12, func(r *Record) *time.Duration { return &r.Expires }, 1, math.MaxInt64),
	count(13, func(r *Record) *int { return &r.GivenUp }, 1, math.MaxInt32),
	instant(14, func(r *Record) *int64 { return &r.Asof }),
	instant(15, func(r *Record) *int64 { return &r.Until }),
	text(16, func(r *Record) *string { return &r.Meta }),
}

// text returns a text field. An empty text is not written.
func text(tag uint64, of func(*Record) *string) field {
	return field{tag,
		func(r *Record) []byte { return []byte(*of(r)) },
		func(r *Record, d *decoder) {
			d.short = d.short || len(d.b) == 0
			*of(r) = string(d.take(uint64(len(d.b))))
		}}
}

// count returns a field for a number from least to most. A zero is not written.
func count[T int | time.Duration](tag uint64, of func(*Record) *T, least, most uint64) field {
	return field{tag,
		func(r *Record) []byte {
			if *of(r) == 0 {
				return nil
			}
			return binary.AppendUvarint(nil, uint64(*of(r)))
		},
		func(r *Record, d *decoder) {
			n := d.uvarint()
			d.short = d.short || n < least || n > most
			*of(r) = T(n)
		}}
}

// instant returns a field for an instant after the beginning of 1970. A zero is not written.
func instant(tag uint64, of func(*Record) *int64) field {
	return field{tag,
		func(r *Record) []byte {
			if *of(r) == 0 {
				return nil
			}
			return binary.AppendVarint(nil, *of(r))
		},
		func(r *Record, d *decoder) {
			*of(r) = d.varint()
			d.short = d.short || *of(r) <= 0
		}}
}

// encodeFields returns the encoded optional fields without the tag that ends them.
func (r *Record) encodeFields() (b []byte) {
	for _, f := range fields {
		if bytes := f.write(r); len(bytes) > 0 {
			b = binary.AppendUvarint(b, f.tag)
			b = binary.AppendUvarint(b, uint64(len(bytes)))
			b = append(b, bytes...)
		}
	}
	return b
}

// decodeFields decodes the optional fields and the tag that ends them. It returns the tag of the first field that this
// program does not know, or 0.
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
			if tag <= fields[len(fields)-1].tag { // the tag is out of order or was never defined
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

func (r *Record) encodeFailed() (b []byte) {
	for _, f := range r.Failed {
		b = appendString(binary.AppendVarint(b, f.At), f.Text)
	}
	return b
}

func (r *Record) decodeFailed(d *decoder) {
	for len(d.b) > 0 && !d.short {
		r.Failed = append(r.Failed, Failure{d.varint(), d.string()})
	}
	d.short = d.short || len(r.Failed) > mostFailed
}
