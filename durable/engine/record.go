// SPDX-License-Identifier: MIT

package engine

import "math"

// A Record is the stored form of a task.
type Record struct {
	Key  string
	Due  int64  // when the task is due, in nanoseconds since 1970; ParkedDue if it is parked
	Data []byte // everything else
}

// Position returns the record's position in the order of due time and key.
func (r Record) Position() Position { return Position{r.Due, r.Key} }

// A Position is a position in the order of due time and key. There may be no record there.
type Position struct {
	Due int64
	Key string
}

// Before reports whether p comes before q.
func (p Position) Before(q Position) bool { return p.Due < q.Due || p.Due == q.Due && p.Key < q.Key }

// None is the due time of a record that does not exist. It is less than any other due time.
const None = math.MinInt64

// The due times of paused and parked tasks, which do not run. They are greater than all other due times.
const (
	PausedDue = math.MaxInt64 - 1
	ParkedDue = math.MaxInt64
)
