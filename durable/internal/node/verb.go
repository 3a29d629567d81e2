// SPDX-License-Identifier: MIT

package node

import (
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A Verb is a caller's request as data.
type Verb struct {
	What     What
	Make     func(now int64) []*task.Record // returns the records of the tasks to add or to set, without generations
	Records  []*task.Record                 // those records once the verb is timed, with different keys
	Numbered bool                           // the records already have generations and keep them; Make is nil
	Twice    map[string]bool                // keys to add that the caller gave more than once
	Key      string                         // key of the task to remove, move, pause or resume
	After    time.Duration                  // how long after the call the task to move is due
	Size     int                            // approximate number of bytes that the verb writes
	Found    *View                          // the task as it was when found; may be nil
	Same     bool                           // the task must still be at the same run; set for one of many tasks
	Replaced bool                           // the verb has replaced a task

	asof int64 // the time of the call, from which all other times are computed; see timed
}

// What says what a verb does.
type What uint8

const (
	ToAdd    What = iota // adds all of the records or none
	ToSet                // sets the first record, whether or not the key is in use, and adds the others, or none of them
	ToRemove             // removes the task with the key
	ToMove               // moves the next run of the task with the key
	ToPause              // pauses the task with the key
	ToResume             // resumes the task with the key
	toRight              // gives the task with the key the due time that it has by the clock of today
)

// Distinct returns the first record of each key, and the keys with more than one record.
func Distinct(recs []*task.Record) (first []*task.Record, twice map[string]bool) {
	if len(recs) == 1 {
		return recs, nil
	}
	seen := make(map[string]struct{}, len(recs))
	first = recs[:0]
	for _, rec := range recs {
		before := len(seen)
		if seen[rec.Key] = struct{}{}; len(seen) > before {
			first = append(first, rec)
			continue
		}
		if twice == nil {
			twice = make(map[string]bool)
		}
		twice[rec.Key] = true
	}
	return first, twice
}

// keys yields the keys of the tasks that the verb changes.
func (v *Verb) keys(yield func(string) bool) {
	if v.Records == nil {
		yield(v.Key)
		return
	}
	for _, rec := range v.Records {
		if !yield(rec.Key) {
			return
		}
	}
}

// change returns the task after a verb that moves, pauses or resumes it.
func (v *Verb) change(old *task.Record, kinds *Kinds) *task.Record {
	switch v.What {
	case ToPause:
		return old.Held()
	case ToResume:
		return old.Resumed(kinds.policy(old), v.asof)
	case toRight:
		return old.Righted(v.asof)
	}
	return old.Moved(task.Later(v.asof, v.After), v.asof)
}

// fits reports whether the verb applies to the task, which may be nil. If the verb is for one of many tasks, the task
// must still be at the same run, and a paused task can only be removed or resumed.
func (v *Verb) fits(old *task.Record) bool {
	if old == nil || !v.Same {
		return old != nil
	}
	return v.Found.Rec.Token == old.Token &&
		(v.What == ToRemove || v.What == toRight || (old.Paused != 0) == (v.What == ToResume))
}
