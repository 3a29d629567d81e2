// SPDX-License-Identifier: MIT

package kv

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// Layout. A row is an entry of the KV whose key begins with one of these bytes:
//
//	t  task      key                          the task; the row's version is its revision
//	s  starts    key                          confirmed starts since the task was written, once there was one
//	f  free      kind, grouped or not, due, key
//	g  turn      kind, group, due, key        a free task of a group
//	h  held      member, key
//	d  due       due, key
//	x  failing   key
//	n  note      name
//	m  member    member, part                 the member, its heartbeat, or its remains
//	c  counter                                the last reserved revision of an exclusive engine, and its summary
//
// The value of an f or g row is the version of the record, which is the first byte of Data. It is empty if the record
// has no data. An exclusive engine has f rows for all tasks, g rows for all tasks with a group, few s rows, and no h, d or
// m rows. Its t rows contain no data. Instead, its f rows contain the whole task after the version, so that claims and
// walks by due time read tasks sequentially.
const (
	taskRow    = "t"
	startsRow  = "s"
	freeRow    = "f"
	turnRow    = "g"
	heldRow    = "h"
	dueRow     = "d"
	failingRow = "x"
	noteRow    = "n"
	memberRow  = "m"
	counterRow = "c"
)

// A row is a task or a note, with fields that only the engine uses.
type row struct {
	engine.Stored
	failing bool
	starts  int64 // version of the starts row, or 0 if there is none; if the engine is exclusive, not 0 if there may be one
	kept    int64 // the revision in the row itself, which a claim does not change if the engine is exclusive

	// When a start was last confirmed, and until when the run may begin.
	confirmed, until int64
}

// wait returns how long a run of the task may still begin on the member that has confirmed it, as in engine.Result. now may be
// from before the confirmation.
func (r *row) wait(now int64) time.Duration {
	if r.isSetBack(now) {
		return 0
	}
	return time.Duration(max(r.until-max(now, r.confirmed), 0))
}

// isSetBack reports whether the clock was set back by more than a second since the confirmation.
func (r *row) isSetBack(now int64) bool { return now < r.confirmed-int64(time.Second) }

// confirm records a confirmed start. A run may still begin because of an earlier confirmation, unless the clock was set back.
func (r *row) confirm(now int64, within time.Duration) {
	if r.isSetBack(now) {
		r.confirmed, r.until = 0, 0
	}
	r.confirmed, r.until = max(r.confirmed, now), max(r.until, now+int64(within))
}

// startsEntry returns the task's s row with the number of starts.
func (r *row) startsEntry(starts int) engine.Entry {
	return engine.Entry{Key: startsRow + r.Key, Value: varints(int64(starts), r.confirmed, r.until)}
}

// stored returns the task or note of the row, or nil if there is no row.
func (r *row) stored() *engine.Stored {
	if r == nil {
		return nil
	}
	return &r.Stored
}

// format is the first byte of the value of every task or note row.
const format = 1

// encode returns the value of a task or note row. The encoded revision is only used by an exclusive engine.
func (r *row) encode() []byte { return r.appendTo(make([]byte, 0, r.size())) }

// size returns an upper bound on the length of the value.
func (r *row) size() int { return 32 + len(r.Kind) + len(r.Group) + len(r.Data) }

func (r *row) appendTo(b []byte) []byte {
	b = append(b, format, bit(r.failing))
	b = binary.AppendVarint(b, r.Due)
	b = binary.AppendVarint(b, int64(r.Owner))
	b = binary.AppendVarint(b, r.Revision)
	b = appendString(b, r.Kind)
	b = appendString(b, r.Group)
	return append(b, r.Data...)
}

// freeValue returns the value of the task's f row in an exclusive engine.
func (r *row) freeValue() []byte {
	b := append(make([]byte, 0, 1+r.size()), 0)
	if len(r.Data) > 0 {
		b[0] = r.Data[0]
	}
	return r.appendTo(b)
}

// decodeFree decodes the task in an f row of an exclusive engine.
func decodeFree(key string, value []byte) (*row, error) {
	return decodeRow(key, value[min(1, len(value)):], 0)
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// decode decodes the task or note in an entry.
func decode(e engine.Entry) (*row, error) { return decodeRow(e.Key[1:], e.Value, e.Version) }

func decodeRow(key string, value []byte, version int64) (*row, error) {
	d := decoder{b: value}
	if f := d.byte(); f != format && !d.bad {
		return nil, fmt.Errorf("%w: row of key %q has the format %d", engine.ErrVersion, key, f)
	}
	r := &row{}
	r.Key = key
	r.failing = d.byte() == 1
	r.Due, r.Owner = d.varint(), engine.MemberID(d.varint())
	if r.Revision = d.varint(); r.Revision == 0 {
		r.Revision = version
	}
	r.kept = r.Revision
	r.Kind, r.Group = d.string(), d.string()
	r.Data = d.b
	return r, d.err(key)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// A decoder reads a value. A missing part reads as zero and sets bad.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) byte() (c byte) {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	c, d.b = d.b[0], d.b[1:]
	return c
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) string() string {
	l, n := binary.Uvarint(d.b)
	if n <= 0 || l > uint64(len(d.b)-n) {
		d.bad = true
		return ""
	}
	s := string(d.b[n : n+int(l)])
	d.b = d.b[n+int(l):]
	return s
}

func (d *decoder) err(key string) error {
	if d.bad {
		return fmt.Errorf("%w: malformed row of key %q", engine.ErrCorrupt, key)
	}
	return nil
}

// varints encodes the numbers as varints.
func varints(n ...int64) (b []byte) {
	for _, v := range n {
		b = binary.AppendVarint(b, v)
	}
	return b
}

// escaped escapes s. Escaped strings sort like the original strings, and none is a prefix of another.
func escaped(s string) string { return string(appendEscaped(nil, s)) }

func appendEscaped(b []byte, s string) []byte {
	return append(append(b, strings.ReplaceAll(s, "\x00", "\x00\xff")...), 0, 1)
}

// unescaped returns the unescaped string at the beginning of the key, and the rest of the key.
func unescaped(key string) (s, rest string) {
	for i := 0; i+1 < len(key); i++ {
		if key[i] != 0 {
			continue
		}
		if key[i+1] == 1 {
			return strings.ReplaceAll(key[:i], "\x00\xff", "\x00"), key[i+2:]
		}
		i++
	}
	return key, ""
}

// ordered encodes a number so that the encodings sort like the numbers.
func ordered(n int64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n)^1<<63)
	return string(b[:])
}

// number decodes the ordered number at the beginning of s, and returns it with the rest of s.
func number(s string) (n int64, rest string) {
	if len(s) < 8 {
		return 0, ""
	}
	return int64(binary.BigEndian.Uint64([]byte(s[:8])) ^ 1<<63), s[8:]
}

// end returns the first key after all keys with the prefix. The last byte of the prefix must not be 0xff.
func end(prefix string) string {
	last := len(prefix) - 1
	return prefix[:last] + string([]byte{prefix[last] + 1})
}

// freeOf returns the key prefix of the f rows of a kind's tasks that have a group, or of those without one.
func freeOf(kind string, grouped bool) string {
	return string(appendFree(make([]byte, 0, len(kind)+4), kind, grouped))
}

func appendFree(b []byte, kind string, grouped bool) []byte {
	return append(appendEscaped(append(b, freeRow...), kind), bit(grouped))
}

func turnsOf(kind, group string) string { return turnRow + escaped(kind) + escaped(group) }

func heldBy(id engine.MemberID) string { return heldRow + ordered(int64(id)) + "/" }

// between returns the key range of the rows with the prefix whose due times are later than after, but not later than
// until.
func between(prefix string, after, until int64) (from, to string) {
	if after == math.MaxInt64 {
		return prefix, prefix
	}
	from, to = prefix+ordered(after+1), end(prefix)
	if until < math.MaxInt64 {
		to = prefix + ordered(until+1)
	}
	return from, to
}

// appendIndex appends the task's index rows. In an exclusive engine, the value of an f row differs for each state of the
// task, and is omitted unless whole is set.
func (b *base) appendIndex(rows []engine.Entry, r *row, whole bool) []engine.Entry {
	if !b.alone {
		rows = append(rows, engine.Entry{Key: rowAt([]byte(dueRow), r)})
	}
	if r.failing {
		rows = append(rows, engine.Entry{Key: failingRow + r.Key})
	}
	if r.Owner != 0 && !b.alone {
		return append(rows, engine.Entry{Key: heldBy(r.Owner) + r.Key})
	}
	var version []byte
	if len(r.Data) > 0 {
		version = r.Data[:1]
	}
	free := engine.Entry{Key: r.freeRow(), Value: version}
	if b.alone && whole {
		free.Value = r.freeValue()
	}
	rows = append(rows, free)
	if r.Group != "" {
		rows = append(rows, engine.Entry{Key: rowAt([]byte(turnsOf(r.Kind, r.Group)), r), Value: version})
	}
	return rows
}

// freeRowOf returns the key of the f row that belongs to the same task as the g row.
func freeRowOf(turn string) string {
	kind, rest := unescaped(turn[1:])
	_, rest = unescaped(rest)
	return freeOf(kind, true) + rest
}

// freeRow returns the key of the task's f row.
func (r *row) freeRow() string {
	var b [usual]byte
	return rowAt(appendFree(b[:0], r.Kind, r.Group != ""), r)
}

// usual is a buffer size that fits the keys of most rows.
const usual = 128

// rowAt returns the prefix followed by the task's due time and key.
func rowAt(prefix []byte, r *row) string {
	return string(append(binary.BigEndian.AppendUint64(prefix, uint64(r.Due)^1<<63), r.Key...))
}

// mostIndex is the maximum number of index rows per task.
const mostIndex = 4

// change adds to the Tx the index rows that differ between two states of a task. Either state may be nil.
func (b *base) change(tx *engine.Tx, from, to *row) {
	var was, is []engine.Entry
	var some, others [mostIndex]engine.Entry
	if from != nil {
		was = b.appendIndex(some[:0], from, false)
	}
	if to != nil {
		is = b.appendIndex(others[:0], to, true)
	}
	for _, row := range was {
		if find(is, row.Key) == nil {
			tx.Delete = append(tx.Delete, row.Key)
		}
	}
	for _, row := range is {
		if same := find(was, row.Key); same == nil || string(same.Value) != string(row.Value) {
			tx.Put = append(tx.Put, row)
		}
	}
}

func find(rows []engine.Entry, key string) *engine.Entry {
	for i := range rows {
		if rows[i].Key == key {
			return &rows[i]
		}
	}
	return nil
}
