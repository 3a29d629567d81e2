// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// RemovePrefix removes the tasks whose key begins with prefix, each as [Scheduler.RemoveTask] does, and returns
// how many it has removed. The prefix "" is that of all tasks. A task that exists during the whole call is
// removed; one that is added meanwhile may be. It works in the order of the keys, a thousand tasks or 16 MiB of
// them at a time. When ctx is done, or another error ends it, RemovePrefix returns the error; of the last
// thousand some may be removed and not counted then. A further call removes the rest.
//
// [Scheduler.Bulk] removes what a [Query] finds.
func (s *Scheduler) RemovePrefix(ctx context.Context, prefix string) (int, error) {
	return s.eachPrefix(ctx, "RemovePrefix", prefix, func(v *view) *verb {
		return &verb{what: toRemove, key: v.rec.Key, size: MaxKey}
	})
}

// ReschedulePrefix makes the next runs of the tasks whose key begins with prefix due after d, each as
// [Scheduler.Reschedule] does, and returns of how many. In all else it is like [Scheduler.RemovePrefix], but
// for a further call, which reschedules all of them again.
func (s *Scheduler) ReschedulePrefix(ctx context.Context, prefix string, d time.Duration) (int, error) {
	return s.eachPrefix(ctx, "ReschedulePrefix", prefix, func(v *view) *verb {
		to := task.Later(s.below.now(), max(d, 0))
		return &verb{what: toMove, key: v.rec.Key, to: to, found: v, size: v.rec.Size()}
	})
}

// eachPrefix does a verb to each of the tasks whose key begins with prefix, and returns to how many.
func (s *Scheduler) eachPrefix(ctx context.Context, name, prefix string, verb func(*view) *verb) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	over := stretch{order: byKey, from: prefix}
	n, _, err := s.each(ctx, &over, Query{Prefix: prefix}, s.below.now(), 0, verb)
	return n, stopped(err, name, prefix)
}

// AllPrefix returns an iterator over the tasks whose key begins with prefix and is greater than after, in the
// order of the keys. With the key of the last task of an earlier walk as after, it continues that walk. In all
// else it is like [Scheduler.All].
func (s *Scheduler) AllPrefix(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for found, err := range s.walk(ctx, ctx, stretch{order: byKey, from: max(prefix, after+"\x00")}) {
			if err != nil {
				yield(Info{}, stopped(err, "AllPrefix", prefix))
				return
			}
			if !strings.HasPrefix(found.rec.Key, prefix) || !yield(found.info(s.below.now()), nil) {
				return
			}
		}
	}
}

// manyAtOnce is how many tasks GetMany asks an engine for at once.
const manyAtOnce = 1024

// GetMany returns the tasks with the keys, in that order. A key that no task has is left out. Each is as it was
// at some time during the call. On a node a thousand keys are one question to the engine.
func (s *Scheduler) GetMany(ctx context.Context, keys ...string) ([]Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !s.reads.enter() {
		return nil, stopped(ErrStopped, "GetMany", "")
	}
	defer s.reads.leave()
	var infos []Info
	for len(keys) > 0 {
		some := keys[:min(len(keys), manyAtOnce)]
		keys = keys[len(some):]
		found, err := s.below.getMany(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, key := range some {
			if v, ok := found[key]; ok {
				infos = append(infos, v.info(s.below.now()))
			}
		}
	}
	return infos, nil
}
