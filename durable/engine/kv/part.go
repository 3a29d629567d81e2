// SPDX-License-Identifier: MIT

package kv

import (
	"strings"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A Part is what a row of an [engine.Exclusive] KV says about a task. A task has two such rows: one under its key, which
// has no data, and one under its due time. Each write of a task replaces both in one Commit, and a removal deletes both.
type Part struct {
	engine.Record
	Whole    bool   // the row has the data
	Revision int64  // the task's revision, which increases with each write, even if the task was removed in between
	Other    string // the key of the other row
}

// IsPart reports whether a row with this key is a Part. It returns the key of the task, and whether the Part is Whole.
func IsPart(row string) (key string, whole, is bool) {
	switch {
	case strings.HasPrefix(row, taskRow):
		return row[1:], false, true
	case strings.HasPrefix(row, freeRow):
		if _, rest := unescaped(row[1:]); len(rest) > 9 {
			return rest[9:], true, true
		}
	}
	return "", false, false
}

// PartOf decodes a row for which IsPart returns true. The Data shares memory with the value. The error wraps ErrCorrupt
// or ErrVersion.
func PartOf(e engine.Entry) (p Part, err error) {
	var r *row
	key, whole, _ := IsPart(e.Key)
	if p.Whole = whole; whole {
		r, err = decodeFree(key, e.Value)
	} else {
		r, err = decode(e)
	}
	if err != nil {
		return p, err
	}
	p.Record, p.Revision, p.Other = r.Record, r.Revision, r.freeRow()
	if p.Whole {
		p.Other = taskRow + key
	}
	return p, nil
}

// TasksOf decodes a row that every Commit of an exclusive engine puts, and returns the number of tasks after that Commit.
// It reports whether this is the row.
func TasksOf(e engine.Entry) (tasks int, is bool) {
	if e.Key != counterRow {
		return 0, false
	}
	d := decoder{b: e.Value}
	_, n := d.varint(), d.varint()
	return int(n), !d.bad
}
