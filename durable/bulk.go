// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// bulkAtOnce is how many tasks are changed at the same time, or fewer if they have groupBytes: they share
// commits.
const bulkAtOnce = 1024

// bulk does an action to what it finds within that time, or to all if that is 0. next is where it has come to, or
// empty at the end.
func (s *Scheduler) bulk(ctx context.Context, q Query, do Action, most time.Duration,
) (n int, next string, err error) {
	if do > DoResume {
		return 0, "", fmt.Errorf("%w: unknown action %d", ErrInvalidTask, do)
	}
	now := s.below.now()
	over := q.stretch(now)
	if do == DoRunNow && over.order == byDue { // what is moved, or repeats, must not come again
		switch q.State {
		case Waiting:
			over.until = now - 1
		case AnyState, Scheduled:
			over = stretch{order: byKey}
		}
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

// eachOf does an action to each task of the stretch that fits the query, or counts them.
func (s *Scheduler) eachOf(ctx context.Context, over *stretch, q Query, now int64, do Action, most time.Duration,
) (n int, whole bool, err error) {
	if do == DoNothing {
		end, err := s.look(ctx, over, q, now, most, func(view) bool { n++; return true })
		return n, end.whole, err
	}
	return s.each(ctx, over, q, now, most, func(v *view) *verb {
		verb := &verb{
			what: toRemove, key: v.rec.key, to: s.below.now(), kinds: &s.kinds, size: v.rec.size(), found: v, same: true,
		}
		switch do {
		case DoRunNow:
			verb.what = toMove
		case DoPause:
			verb.what = toPause
		case DoResume:
			verb.what = toResume
		}
		return verb
	})
}

// each does a verb to each task of the stretch that fits the query, in groups, until there is no more or it has
// looked for that time. A time of 0 is never up. It returns to how many.
func (s *Scheduler) each(ctx context.Context, over *stretch, q Query, now int64, most time.Duration,
	verb func(*view) *verb,
) (n int, whole bool, err error) {
	for begun := time.Now(); ; {
		var page []view
		size, began := 0, time.Now()
		left := time.Duration(0)
		if most > 0 {
			left = max(most-time.Since(begun), 1)
		}
		end, err := s.look(ctx, over, q, now, left, func(v view) bool {
			page = append(page, v)
			size += v.rec.size()
			// What is rare is not kept waiting.
			return len(page) < bulkAtOnce && size < groupBytes && time.Since(began) < lookFor
		})
		if err != nil {
			return n, false, err
		}
		done, err := s.together(ctx, page, verb)
		if n += done; err != nil || end.whole || most > 0 && time.Since(begun) >= most {
			return n, end.whole, err
		}
	}
}

// together does a verb to each of some tasks at the same time. It returns how many of them it has found, and an
// error.
func (s *Scheduler) together(ctx context.Context, page []view, verb func(*view) *verb) (n int, err error) {
	var mu sync.Mutex // protects n and err
	var all sync.WaitGroup
	for i := range page {
		verb := verb(&page[i])
		if !verb.fits(page[i].rec) {
			continue
		}
		all.Go(func() {
			failed := s.below.do(ctx, verb)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case failed == nil:
				n++
			case !errors.Is(failed, ErrTaskKeyNotFound):
				err = failed
			}
		})
	}
	all.Wait()
	return n, err
}
