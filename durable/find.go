// SPDX-License-Identifier: MIT

package durable

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

const (
	pageLimit = 100
	lookFor   = 150 * time.Millisecond

	// lookGrace is how long the engine may still take to answer after the time is up.
	lookGrace = 40 * time.Millisecond
)

// within returns a context that is done when the given time has passed since the first call of begin. A search calls
// begin at its first task. A limit for the first task as well would end every search of a slow engine where it began.
func within(ctx context.Context, most time.Duration) (limited context.Context, begin func(), cancel context.CancelFunc) {
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

func (s *Scheduler) find(ctx context.Context, q Query) (Found, error) {
	if q.Limit < 0 {
		return Found{}, fmt.Errorf("%w: Limit %d is negative", ErrInvalidTask, q.Limit)
	}
	now := s.node.now()
	over := q.stretch(now)
	if err := over.resume(q.After); err != nil {
		return Found{}, err
	}
	var f Found
	limit := cmp.Or(q.Limit, pageLimit)
	end, err := s.look(ctx, &over, q, now, cmp.Or(q.For, lookFor), func(v view) bool {
		f.Tasks = append(f.Tasks, v.info(now))
		return len(f.Tasks) < limit
	})
	if err != nil {
		return Found{}, err
	}
	f.Looked = end.looked
	if !end.whole {
		f.Next = over.cursor()
		f.Cut = len(f.Tasks) < limit
	}
	return f, nil
}

// stretch returns the smallest stretch that contains all tasks that match the query.
func (q Query) stretch(now int64) stretch {
	failing := q.Failing || q.Failure != "" || q.State == Retrying || q.State == Parked && q.Prefix != ""
	switch {
	case q.State == Running:
		return stretch{order: byRunning, from: q.Prefix}
	case failing:
		return stretch{order: byFailing, from: q.Prefix}
	case q.Prefix != "":
		return stretch{order: byKey, from: q.Prefix}
	case q.State == Waiting:
		return stretch{after: engine.Position{Due: engine.None}, until: now}
	case q.State == Scheduled:
		return stretch{after: end(now), until: task.Latest}
	case q.State == Paused:
		return stretch{after: end(task.Latest), until: task.PausedDue}
	case q.State == Parked:
		return stretch{after: end(task.PausedDue), until: task.Never}
	}
	return stretch{after: engine.Position{Due: engine.None}, until: task.Never}
}

// fits reports whether the task matches the query.
func (q Query) fits(v view, now int64) bool {
	return q.suits(v.rec) && (q.State == AnyState || q.State == v.state(now))
}

// suits is like fits, but ignores the state.
func (q Query) suits(r *task.Record) bool {
	return strings.HasPrefix(r.Key, q.Prefix) && (q.Kind == "" || q.Kind == r.Kind) &&
		(q.Group == "" || q.Group == r.Group) && (!q.Repeating || r.Repeats()) && (!q.Failing || r.Failing() && r.Paused == 0) &&
		(q.Failure == "" || strings.Contains(r.Failure(), q.Failure) || groupText(r.Failure()) == q.Failure)
}

// An ending describes how a look ended.
type ending struct {
	looked int  // number of tasks examined
	whole  bool // the look reached the end of the stretch
}

// look calls the given function for each matching task in the stretch, until the function returns false or the time since
// the first task is up. A time of 0 means no limit. look moves the beginning of the stretch to the position where the next look starts.
func (s *Scheduler) look(ctx context.Context, over *stretch, q Query, now int64, most time.Duration,
	each func(view) (more bool),
) (e ending, err error) {
	limited, begin, cancel := within(ctx, most+lookGrace)
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
		if over.order != byDue && !strings.HasPrefix(v.rec.Key, q.Prefix) {
			break
		}
		if !more || e.looked > 0 && most > 0 && time.Since(began) >= most {
			return e, nil
		}
		over.pass(v.rec)
		e.looked++
		if over.order == byFailing && !v.rec.Failing() {
			continue // an earlier version of this program wrote the record
		}
		if q.fits(v, now) {
			more = each(v)
		}
	}
	e.whole = true
	return e, nil
}

// pass moves the beginning of the stretch past the task.
func (o *stretch) pass(r *task.Record) {
	if o.order == byDue {
		o.after = r.Position()
		return
	}
	o.from = r.Key + "\x00"
}

// The first byte of a cursor identifies its order.
const (
	cursorDue = 'd'
	cursorKey = 'k'
)

// cursor returns the beginning of the stretch as text. resume sets the beginning from that text.
func (o *stretch) cursor() string {
	b := []byte{cursorKey}
	if o.order == byDue {
		b = binary.BigEndian.AppendUint64([]byte{cursorDue}, uint64(o.after.Due))
		b = append(b, o.after.Key...)
	} else {
		b = append(b, o.from...)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func (o *stretch) resume(cursor string) error {
	if cursor == "" {
		return nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	switch {
	case err == nil && o.order == byDue && len(b) > 8 && b[0] == cursorDue:
		at := engine.Position{Due: int64(binary.BigEndian.Uint64(b[1:])), Key: string(b[9:])}
		if o.after.Before(at) {
			o.after = at
		}
	case err == nil && o.order != byDue && len(b) > 0 && b[0] == cursorKey:
		o.from = max(o.from, string(b[1:]))
	default:
		return fmt.Errorf("%w: After %q is not the Next of a page of this query", ErrInvalidTask, cursor)
	}
	return nil
}
