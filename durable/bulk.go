// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"fmt"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/node"
)

// bulkBytes is the size of the records from which fewer than node.AtOnce tasks are changed at a time.
const bulkBytes = 16 << 20

// bulk applies an action to the tasks that match the query. It stops when the time is up; a time of 0 means no limit. n
// is the number of tasks changed, and next is the cursor at which to continue, or empty at the end.
func (s *Scheduler) bulk(ctx context.Context, q Query, do Action, most time.Duration,
) (n int, next string, err error) {
	switch {
	case do > DoCancel:
		return 0, "", fmt.Errorf("%w: unknown action %d", ErrInvalidTask, do)
	case do == DoCancel:
		n, err = s.cancelAll(ctx, q)
		return n, "", err
	}
	now := s.node.Now()
	over := q.stretch(now)
	if do == DoRunNow {
		over = q.stretchToMove(now)
	}
	if err := resume(&over, q.After); err != nil {
		return 0, "", err
	}
	n, whole, err := s.eachOf(ctx, &over, q, now, do, most)
	if err == nil && !whole {
		next = cursorOfStretch(&over)
	}
	return n, next, err
}

// stretchToMove is like stretch, but for tasks that will be moved to now or later. A walk over its result yields no
// task twice, not even a repeating one.
func (q Query) stretchToMove(now int64) node.Stretch {
	over := q.stretch(now)
	if over.Order == node.ByDue {
		switch q.State {
		case Waiting:
			over.Until = now - 1
		case AnyState, Scheduled:
			over = node.Stretch{Order: node.ByKey}
		}
	}
	return over
}

// reschedule moves each task that matches the query to after(n) from now, where n is the task's index among the moved
// tasks. It skips paused tasks.
func (s *Scheduler) reschedule(ctx context.Context, q Query, after func(n int) time.Duration) (n int, err error) {
	now := s.node.Now()
	over := q.stretchToMove(now)
	if err := resume(&over, q.After); err != nil {
		return 0, err
	}
	found := 0
	n, _, err = s.each(ctx, &over, q, now, 0, func(v *node.View) *node.Verb {
		if v.Rec.Paused != 0 {
			return nil
		}
		d := after(found)
		found++
		return v.Verb(node.ToMove, max(d, 0))
	})
	return n, err
}

// eachOf applies an action to each task in the stretch that matches the query, or only counts the matching tasks if the
// action is DoNothing.
func (s *Scheduler) eachOf(ctx context.Context, over *node.Stretch, q Query, now int64, do Action, most time.Duration,
) (n int, whole bool, err error) {
	if do == DoNothing {
		end, err := s.look(ctx, over, q, now, most, func(node.View) bool { n++; return true })
		return n, end.whole, err
	}
	what := map[Action]node.What{DoRemove: node.ToRemove, DoRunNow: node.ToMove, DoPause: node.ToPause, DoResume: node.ToResume}[do]
	return s.each(ctx, over, q, now, most, func(v *node.View) *node.Verb {
		return v.Verb(what, 0)
	})
}

// each applies a verb, group by group, to every task that is in the stretch and matches the query, until no tasks are
// left or the time is up. A time of 0 means no limit. A task for which verb returns nil is skipped. each returns the
// number of tasks that it changed, and whether it reached the end of the stretch.
func (s *Scheduler) each(ctx context.Context, over *node.Stretch, q Query, now int64, most time.Duration,
	verb func(*node.View) *node.Verb,
) (n int, whole bool, err error) {
	for begun := time.Now(); ; {
		var page []node.View
		size, began := 0, time.Time{}
		left := time.Duration(0)
		if most > 0 {
			left = max(most-time.Since(begun), 1)
		}
		end, err := s.look(ctx, over, q, now, left, func(v node.View) bool {
			if page = append(page, v); began.IsZero() {
				began = time.Now()
			}
			size += v.Rec.Size()
			// If matches are rare, a group is changed after node.LookFor even if it is not full.
			return len(page) < node.AtOnce && size < bulkBytes && time.Since(began) < node.LookFor
		})
		if err != nil {
			return n, false, err
		}
		done, err := s.node.Together(ctx, page, verb)
		if n += done; err != nil || end.whole || most > 0 && time.Since(begun) >= most {
			return n, end.whole, err
		}
	}
}
