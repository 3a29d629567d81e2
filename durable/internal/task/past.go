// SPDX-License-Identifier: MIT

package task

import (
	"encoding/binary"
	"fmt"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A Past is an attempt that has ended, or a run that has expired, in the history. Its times are in nanoseconds since
// 1970.
type Past struct {
	Key, Group      string
	Generation, Seq uint64
	Attempt         int
	Due             int64
	Started, Ended  int64 // equal if the run has expired
	Failure, Note   string

	Parked, Snoozed, Cancelled, Expired, GivenUp bool
}

// flags returns the fields that Past stores as one bit each. The order must not change.
func (p *Past) flags() [5]*bool {
	return [...]*bool{&p.Parked, &p.Snoozed, &p.Cancelled, &p.Expired, &p.GivenUp}
}

// PastFormat is the version of a block of the history, and its first byte.
const PastFormat = 1

// A PastBlock holds attempts of one kind on one node, in the order in which they ended.
type PastBlock struct {
	Kind, Node string
	Past       []Past
}

// Encode encodes the first attempts of the block, up to about the given number of bytes, and returns their number,
// which is at least 1 unless the block is empty.
func (b *PastBlock) Encode(most int) (data []byte, n int) {
	data = appendString(appendString([]byte{PastFormat}, b.Kind), b.Node)
	for n < len(b.Past) && (n == 0 || len(data) < most) {
		data = b.Past[n].append(data)
		n++
	}
	return data, n
}

func (p *Past) append(b []byte) []byte {
	var bits byte
	for i, flag := range p.flags() {
		if *flag {
			bits |= 1 << i
		}
	}
	b = appendString(appendString(append(b, bits), p.Key), p.Group)
	b = binary.AppendUvarint(binary.AppendUvarint(b, p.Generation), p.Seq)
	b = binary.AppendVarint(b, int64(p.Attempt))
	b = binary.AppendVarint(b, p.Due)
	b = binary.AppendVarint(b, p.Started-p.Due)
	b = binary.AppendVarint(b, p.Ended-p.Started)
	return appendString(appendString(b, p.Failure), p.Note)
}

// DecodePast decodes a block. For a block that a later version has written, the error wraps ErrVersion.
func DecodePast(data []byte) (b PastBlock, err error) {
	d := &decoder{b: data}
	if version := d.byte(); version > PastFormat {
		return b, fmt.Errorf("%w: a block of the history has version %d", engine.ErrVersion, version)
	}
	b.Kind, b.Node = d.string(), d.string()
	for len(d.b) > 0 && !d.short {
		var p Past
		bits := d.byte()
		for i, flag := range p.flags() {
			*flag = bits&(1<<i) != 0
		}
		p.Key, p.Group = d.string(), d.string()
		p.Generation, p.Seq, p.Attempt = d.uvarint(), d.uvarint(), int(d.varint())
		p.Due = d.varint()
		p.Started = p.Due + d.varint()
		p.Ended = p.Started + d.varint()
		p.Failure, p.Note = d.string(), d.string()
		b.Past = append(b.Past, p)
	}
	if d.short || len(data) == 0 || data[0] != PastFormat {
		return b, fmt.Errorf("%w: a block of the history cannot be read", engine.ErrCorrupt)
	}
	return b, nil
}
