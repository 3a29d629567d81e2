// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// bulkAtOnce is the maximum number of tasks changed concurrently, in shared commits. Fewer tasks are changed at a time
// if their records reach bulkBytes.
const (
	bulkAtOnce = 1024
	bulkBytes  = 16 << 20
)

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
	now := s.node.now()
	over := q.stretch(now)
	if do == DoRunNow {
		over = q.stretchToMove(now)
	}
	if err := over.resume(q.After); err != nil {
		return 0, "", err
	}
	n, whole, err := s.eachOf(ctx, &over, q, now, do, most)
	if err == nil && !whole {
		next = over.cursor()
	}
	return n, next, err
}

// stretchToMove is like stretch, but for tasks that will be moved to now or later. A walk over its result yields no
// task twice, not even a repeating one.
func (q Query) stretchToMove(now int64) stretch {
	over := q.stretch(now)
	if over.order == byDue {
		switch q.State {
		case Waiting:
			over.until = now - 1
		case AnyState, Scheduled:
			over = stretch{order: byKey}
		}
	}
	return over
}

// reschedule moves each task that matches the query to after(n) from now, where n is the task's index among the moved
// tasks. It skips paused tasks.
func (s *Scheduler) reschedule(ctx context.Context, q Query, after func(n int) time.Duration) (n int, err error) {
	now := s.node.now()
	over := q.stretchToMove(now)
	if err := over.resume(q.After); err != nil {
		return 0, err
	}
	found := 0
	n, _, err = s.each(ctx, &over, q, now, 0, func(v *view) *verb {
		if v.rec.Paused != 0 {
			return nil
		}
		d := after(found)
		found++
		return v.verb(toMove, max(d, 0))
	})
	return n, err
}

// verb returns a verb that applies the change to the task, provided that the task still has the same run as when it was
// found. after is how long after the call a task to move is due.
func (v *view) verb(what what, after time.Duration) *verb {
	return &verb{what: what, key: v.rec.Key, after: after, size: v.rec.Size(), found: v, same: true}
}

// eachOf applies an action to each task in the stretch that matches the query, or only counts the matching tasks if the
// action is DoNothing.
func (s *Scheduler) eachOf(ctx context.Context, over *stretch, q Query, now int64, do Action, most time.Duration,
) (n int, whole bool, err error) {
	if do == DoNothing {
		end, err := s.look(ctx, over, q, now, most, func(view) bool { n++; return true })
		return n, end.whole, err
	}
	what := map[Action]what{DoRemove: toRemove, DoRunNow: toMove, DoPause: toPause, DoResume: toResume}[do]
	return s.each(ctx, over, q, now, most, func(v *view) *verb {
		verb := v.verb(what, 0)
		verb.kinds = &s.kinds
		return verb
	})
}

// each applies a verb, group by group, to every task that is in the stretch and matches the query, until no tasks are
// left or the time is up. A time of 0 means no limit. A task for which verb returns nil is skipped. each returns the
// number of tasks that it changed, and whether it reached the end of the stretch.
func (s *Scheduler) each(ctx context.Context, over *stretch, q Query, now int64, most time.Duration,
	verb func(*view) *verb,
) (n int, whole bool, err error) {
	for begun := time.Now(); ; {
		var page []view
		size, began := 0, time.Time{}
		left := time.Duration(0)
		if most > 0 {
			left = max(most-time.Since(begun), 1)
		}
		end, err := s.look(ctx, over, q, now, left, func(v view) bool {
			if page = append(page, v); began.IsZero() {
				began = time.Now()
			}
			size += v.rec.Size()
			// If matches are rare, a group is changed after lookFor even if it is not full.
			return len(page) < bulkAtOnce && size < bulkBytes && time.Since(began) < lookFor
		})
		if err != nil {
			return n, false, err
		}
		done, err := s.node.together(ctx, page, verb)
		if n += done; err != nil || end.whole || most > 0 && time.Since(begun) >= most {
			return n, end.whole, err
		}
	}
}

// together applies a verb to several tasks concurrently. It returns the number of tasks changed, and an error if any
// verb failed. A task that no longer exists is not an error.
func (n *node) together(ctx context.Context, page []view, verb func(*view) *verb) (done int, err error) {
	var mu sync.Mutex // protects done and err
	var all sync.WaitGroup
	for i := range page {
		verb := verb(&page[i])
		if verb == nil || !verb.fits(page[i].rec) {
			continue
		}
		all.Go(func() {
			failed := n.do(ctx, verb)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case failed == nil:
				done++
			case !errors.Is(failed, ErrTaskKeyNotFound):
				err = failed
			}
		})
	}
	all.Wait()
	return done, err
}
