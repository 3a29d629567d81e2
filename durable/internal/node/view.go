// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A View is a task in the result of a look-up.
type View struct {
	Rec       *task.Record
	Confirmed bool   // the start of its run is confirmed, so its handler may have been called
	Running   bool   // and the run is due
	Starts    int    // as in engine.Stored
	Started   int64  // when the running handler was called, or could be; 0 if unknown
	Node      string // the node that holds the task; empty if the task is free
	Revision  int64  // the record's revision in the engine
}

// Verb returns a verb that applies the change to the task, provided that the task still has the same run as when it was
// found. after is how long after the call a task to move is due.
func (v *View) Verb(what What, after time.Duration) *Verb {
	return &Verb{What: what, Key: v.Rec.Key, After: after, Size: v.Rec.Size(), Found: v, Same: true}
}

// A Stretch is a range of tasks in one of the orders in which tasks are stored.
type Stretch struct {
	Order Order
	After engine.Position // in order ByDue: the position after which the stretch begins
	Until int64           // in order ByDue: the due time at which the stretch ends, inclusive
	From  string          // in other orders: the key at which the stretch begins, inclusive
}

// Pass moves the beginning of the stretch past the task.
func (o *Stretch) Pass(r *task.Record) {
	if o.Order == ByDue {
		o.After = r.Position()
		return
	}
	o.From = r.Key + "\x00"
}

// AfterDue returns the position after all tasks due at or before the given time.
func AfterDue(due int64) engine.Position { return engine.Position{Due: due, Key: beyondKeys} }

// beyondKeys is longer than any key, and therefore sorts after all keys.
var beyondKeys = strings.Repeat("\xff", task.MaxKey+1)

// An Order is one of the orders in which tasks are walked.
type Order uint8

const (
	ByDue     Order = iota // by due time and key
	ByKey                  // by key
	ByFailing              // tasks with a failed attempt, by key
	ByRunning              // running tasks, by key
)

// yieldFrom yields the tasks whose keys are not less than from, in key order.
func yieldFrom(all []View, from string, yield func(View, error) bool) {
	slices.SortFunc(all, func(a, b View) int { return strings.Compare(a.Rec.Key, b.Rec.Key) })
	for _, v := range all {
		if v.Rec.Key >= from && !yield(v, nil) {
			return
		}
	}
}

// LookFor is how long a look-up takes at most, unless its caller sets a time.
const LookFor = 150 * time.Millisecond

// Await waits until the channel is closed or LookFor has passed. It returns ctx.Err() if ctx is done first.
func Await(ctx context.Context, done <-chan struct{}) error {
	timer := time.NewTimer(LookFor)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Within returns a context that is done when the given time has passed since the first call of begin. A search calls
// begin at its first task. A limit for the first task as well would end every search of a slow engine where it began.
func Within(ctx context.Context, most time.Duration) (limited context.Context, begin func(), cancel context.CancelFunc) {
	limited, end := context.WithCancelCause(ctx)
	var once sync.Once
	begin = func() {
		once.Do(func() {
			timer := time.AfterFunc(most, func() { end(context.DeadlineExceeded) })
			context.AfterFunc(limited, func() { timer.Stop() })
		})
	}
	return limited, begin, func() { end(nil) }
}
