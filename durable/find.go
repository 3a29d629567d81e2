// SPDX-License-Identifier: MIT

package durable

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

const (
	pageLimit = 100

	// lookGrace is how long the engine may still take to answer after the time is up.
	lookGrace = 40 * time.Millisecond
)

func (s *Scheduler) find(ctx context.Context, q Query) (Found, error) {
	if q.Limit < 0 {
		return Found{}, fmt.Errorf("%w: Limit %d is negative", ErrInvalidTask, q.Limit)
	}
	now := s.node.Now()
	over := q.stretch(now)
	if err := resume(&over, q.After); err != nil {
		return Found{}, err
	}
	var f Found
	limit := cmp.Or(q.Limit, pageLimit)
	end, err := s.look(ctx, &over, q, now, cmp.Or(q.For, node.LookFor), func(v node.View) bool {
		f.Tasks = append(f.Tasks, infoOfView(v, now))
		return len(f.Tasks) < limit
	})
	if err != nil {
		return Found{}, err
	}
	f.Looked = end.looked
	if !end.whole {
		f.Next = cursorOfStretch(&over)
		f.Cut = len(f.Tasks) < limit
	}
	return f, nil
}

// stretch returns the smallest stretch that contains all tasks that match the query.
func (q Query) stretch(now int64) node.Stretch {
	failing := q.Failing || q.Failure != "" || q.State == Retrying || q.State == Parked && q.Prefix != ""
	switch {
	case q.State == Running:
		return node.Stretch{Order: node.ByRunning, From: q.Prefix}
	case failing:
		return node.Stretch{Order: node.ByFailing, From: q.Prefix}
	case q.Prefix != "":
		return node.Stretch{Order: node.ByKey, From: q.Prefix}
	case q.State == Waiting:
		return node.Stretch{After: engine.Position{Due: engine.None}, Until: now}
	case q.State == Scheduled:
		return node.Stretch{After: node.AfterDue(now), Until: task.Latest}
	case q.State == Paused:
		return node.Stretch{After: node.AfterDue(task.Latest), Until: task.PausedDue}
	case q.State == Parked:
		return node.Stretch{After: node.AfterDue(task.PausedDue), Until: task.Never}
	}
	return node.Stretch{After: engine.Position{Due: engine.None}, Until: task.Never}
}

// fits reports whether the task matches the query.
func (q Query) fits(v node.View, now int64) bool {
	return q.suits(v.Rec) && (q.State == AnyState || q.State == stateOfView(v, now))
}

// suits is like fits, but ignores the state.
func (q Query) suits(r *task.Record) bool {
	return strings.HasPrefix(r.Key, q.Prefix) && (q.Kind == r.Kind || q.Kind == "" && r.Kind != OnceKind) &&
		(q.Group == "" || q.Group == r.Group) && (!q.Repeating || r.Repeats()) && (!q.Failing || r.Failing() && r.Paused == 0) &&
		node.FailsWith(r, q.Failure)
}

// An ending describes how a look ended.
type ending struct {
	looked int  // number of tasks examined
	whole  bool // the look reached the end of the stretch
}

// look calls the given function for each matching task in the stretch, until the function returns false or the time
// since the first task is up. A time of 0 means no limit. look moves the beginning of the stretch to the position where
// the next look starts.
func (s *Scheduler) look(ctx context.Context, over *node.Stretch, q Query, now int64, most time.Duration,
	each func(node.View) (more bool),
) (e ending, err error) {
	limited, begin, cancel := node.Within(ctx, most+lookGrace)
	defer cancel()
	var began time.Time
	more := true
	for v, err := range s.walk(ctx, limited, *over) {
		if err != nil {
			if ctx.Err() == nil && limited.Err() != nil {
				return e, nil
			}
			return e, err
		}
		if most > 0 && began.IsZero() {
			began = time.Now()
			begin()
		}
		if over.Order != node.ByDue && !strings.HasPrefix(v.Rec.Key, q.Prefix) {
			break
		}
		if !more || e.looked > 0 && most > 0 && time.Since(began) >= most {
			return e, nil
		}
		over.Pass(v.Rec)
		e.looked++
		if q.fits(v, now) {
			more = each(v)
		}
	}
	e.whole = true
	return e, nil
}

// The first byte of a cursor identifies its order.
const (
	cursorDue = 'd'
	cursorKey = 'k'
)

// cursorOfStretch returns the beginning of the stretch as text. resume sets the beginning from that text.
func cursorOfStretch(o *node.Stretch) string {
	b := []byte{cursorKey}
	if o.Order == node.ByDue {
		b = binary.BigEndian.AppendUint64([]byte{cursorDue}, uint64(o.After.Due))
		b = append(b, o.After.Key...)
	} else {
		b = append(b, o.From...)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func resume(o *node.Stretch, cursor string) error {
	if cursor == "" {
		return nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	switch {
	case err == nil && o.Order == node.ByDue && len(b) > 8 && b[0] == cursorDue:
		at := engine.Position{Due: int64(binary.BigEndian.Uint64(b[1:])), Key: string(b[9:])}
		if o.After.Before(at) {
			o.After = at
		}
	case err == nil && o.Order != node.ByDue && len(b) > 0 && b[0] == cursorKey:
		o.From = max(o.From, string(b[1:]))
	default:
		return fmt.Errorf("%w: After %q is not the Next of a page of this query", ErrInvalidTask, cursor)
	}
	return nil
}
