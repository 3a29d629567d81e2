// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// bulkAtOnce is how many tasks Bulk changes at the same time: they share commits.
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
	for {
		var page []view
		began := time.Now()
		end, err := s.look(ctx, &over, q, now, 0, func(v view) bool {
			page = append(page, v)
			return len(page) < bulkAtOnce && time.Since(began) < lookFor // what is rare is not kept waiting
		})
		if err != nil {
			return n, err
		}
		done, err := s.each(ctx, page, do)
		if n += done; err != nil || end.whole {
			return n, err
		}
	}
}

// only returns the verb that does it to the task, if that is the same run still.
func (s *Scheduler) only(v view, do Action) *verb {
	verb := &verb{what: toRemove, key: v.rec.key, to: s.below.now(), kinds: &s.kinds, size: v.rec.size(), only: &v}
	switch do {
	case DoRunNow:
		verb.what = toMove
	case DoPause:
		verb.what = toPause
	case DoResume:
		verb.what = toResume
	}
	return verb
}

// each does the same to some tasks, those that have changed left alone. It returns to how many, and an error.
func (s *Scheduler) each(ctx context.Context, page []view, do Action) (n int, err error) {
	var mu sync.Mutex // protects n and err
	var all sync.WaitGroup
	for _, v := range page {
		verb := s.only(v, do)
		if !verb.fits(v.rec) {
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
