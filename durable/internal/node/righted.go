// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// If a clock is ahead for a while, the due times that are computed meanwhile are too late. A repeating task would wait
// until that time, which may be years away. So once the clock is found to have been ahead, such tasks get the due time
// that they have by the clock of today (task.Record.Righted).
// A note stores the latest time of the engine that a node has read, to within task.MostAhead. Every member reads it with
// the settings.

// right changes the tasks whose due times were computed while the clock was ahead. It reports whether it has found them
// all: a task whose run is in progress is left alone, because the end of the run computes the due time again.
func (n *Node) right(ctx context.Context) (all bool, err error) {
	now := n.Now()
	over := Stretch{After: AfterDue(now), Until: task.PausedDue}
	for all = true; ; {
		var page []View
		whole := true
		for v, err := range n.Walk(ctx, over) {
			if err != nil {
				return false, err
			}
			if len(page) == AtOnce {
				whole = false
				break
			}
			over.Pass(v.Rec)
			switch {
			case v.Rec.Righted(now) == v.Rec:
			case v.Confirmed:
				all = false
			default:
				page = append(page, v)
			}
		}
		done, err := n.Together(ctx, page, func(v *View) *Verb { return v.Verb(toRight, 0) })
		if done > 0 {
			n.report.note(func(some *notices) { some.ahead, some.aheadKey = some.ahead+done, page[0].Rec.Key })
		}
		if err != nil || whole {
			return all && err == nil, err
		}
	}
}

// rightAgain is how long to wait before tasks are looked at again that could not be changed.
const rightAgain = time.Minute

// timeNote is the name of the note that stores the latest time of the engine. It sorts after pausesNote, so it is read
// with the settings.
const timeNote = "time"

// A timeMark is the content of the note.
type timeMark struct {
	At int64 `json:"at"` // in nanoseconds since 1970
}

// A clockWatch is the state of watchClock.
type clockWatch struct {
	righting atomic.Bool  // it is at work
	shown    atomic.Int64 // the latest time of the engine in an answer, if it is not in the note
}

// watchClock compares the engine's clock with its latest time, as stored in the note. It stores the time once a minute, or
// when an answer has shown a later one: a clock that was ahead for a moment was so for every node.
func (n *Node) watchClock(note engine.Stored) {
	var mark timeMark
	_ = json.Unmarshal(note.Data, &mark) // a note that cannot be read is replaced
	now, shown := n.Now(), n.shown.Load()
	if shown-mark.At <= int64(task.MostAhead) {
		n.shown.CompareAndSwap(shown, 0)
	}
	switch latest := max(now, shown); {
	case n.current() == nil || n.clock.IsUnsure() || !n.righting.CompareAndSwap(false, true):
		return
	case latest-mark.At > int64(task.MostAhead):
		n.markTime(latest, note.Revision)
	case mark.At-now > int64(task.MostAhead):
		n.helper.Go(func() { n.keepRight(note.Revision) })
		return
	}
	n.righting.Store(false)
}

// keepRight calls right, and then stores the engine's time, so that no node calls right again.
func (n *Node) keepRight(revision int64) {
	defer n.righting.Store(false)
	switch all, err := n.right(n.life); {
	case all:
		n.markTime(n.Now(), revision)
	case err == nil:
		_ = clock.PauseFor(n.life, rightAgain)
	}
}

// markTime stores a time of the engine in the note. If another node does so at the same time, one of them succeeds.
func (n *Node) markTime(at, revision int64) {
	data, err := json.Marshal(timeMark{at})
	if err != nil {
		return
	}
	ctx, cancel := n.callContext()
	defer cancel()
	_, _ = n.engine.Commit(ctx, 0, []engine.Batch{{putNote(timeNote, data, revision)}}) // tried again with the next settings
}
