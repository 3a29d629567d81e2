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

func (s *Scheduler) bulk(ctx context.Context, q Query, do Action) (n int, err error) {
	if do > DoResume {
		return 0, fmt.Errorf("%w: unknown action %d", ErrInvalidTask, do)
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
		return 0, err
	}
	if do == DoNothing {
		_, err = s.look(ctx, &over, q, now, 0, func(view) bool { n++; return true })
		return n, err
	}
	return s.each(ctx, &over, q, now, func(v *view) *verb {
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

// each does a verb to each task of the stretch that fits the query, in steps. It returns to how many.
func (s *Scheduler) each(ctx context.Context, over *stretch, q Query, now int64, verb func(*view) *verb,
) (n int, err error) {
	for {
		var page []view
		size, began := 0, time.Now()
		end, err := s.look(ctx, over, q, now, 0, func(v view) bool {
			page = append(page, v)
			size += v.rec.size()
			// What is rare is not kept waiting.
			return len(page) < bulkAtOnce && size < groupBytes && time.Since(began) < lookFor
		})
		if err != nil {
			return n, err
		}
		done, err := s.together(ctx, page, verb)
		if n += done; err != nil || end.whole {
			return n, err
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
