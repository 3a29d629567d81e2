// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// RemovePrefix removes the tasks whose keys begin with prefix, each as [Scheduler.RemoveTask] does, and returns how
// many it removed. The prefix "" matches all tasks. A task that exists during the whole call is removed; one that is
// added meanwhile may be. It works in key order, up to a thousand tasks or 16 MiB at a time. If ctx is done or another
// error ends it, RemovePrefix returns the error. Some of the last thousand tasks may then be removed but not counted. A
// further call removes the rest.
//
// [Scheduler.Bulk] removes what a [Query] finds.
func (s *Scheduler) RemovePrefix(ctx context.Context, prefix string) (int, error) {
	return s.eachPrefix(ctx, "RemovePrefix", prefix, func(v *view) *verb {
		return &verb{what: toRemove, key: v.rec.Key, size: MaxKey}
	})
}

// ReschedulePrefix makes the next runs of the tasks whose keys begin with prefix due after d, each as
// [Scheduler.Reschedule] does, and returns how many it moved. Otherwise it is like [Scheduler.RemovePrefix], except
// that a further call reschedules all of them again.
func (s *Scheduler) ReschedulePrefix(ctx context.Context, prefix string, d time.Duration) (int, error) {
	return s.eachPrefix(ctx, "ReschedulePrefix", prefix, func(v *view) *verb {
		to := task.Later(s.below.now(), max(d, 0))
		return &verb{what: toMove, key: v.rec.Key, to: to, found: v, size: v.rec.Size()}
	})
}

// eachPrefix applies a verb to each task whose key begins with prefix, and returns how many it changed.
func (s *Scheduler) eachPrefix(ctx context.Context, name, prefix string, verb func(*view) *verb) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	over := stretch{order: byKey, from: prefix}
	n, _, err := s.each(ctx, &over, Query{Prefix: prefix}, s.below.now(), 0, verb)
	return n, stopped(err, name, prefix)
}

// AllPrefix returns an iterator over the tasks whose keys begin with prefix and are greater than after, in key order.
// If after is the last key of an earlier walk, it continues that walk. Otherwise it is like [Scheduler.All].
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

// GetMany returns the tasks with the keys, in that order. A key without a task is left out. Each task is as it was at
// some time during the call. On a node, each thousand keys cost one call to the engine.
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
