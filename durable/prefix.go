// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/node"
)

// RemovePrefix removes the tasks whose keys begin with prefix, as [Scheduler.RemoveTask] does, and returns the number
// of tasks that it removed. The prefix "" matches all tasks that are not of [OnceKind]. Every matching task that exists when the call begins is
// removed, unless another call removes it first. A task that is added during the call may or may not be removed.
// RemovePrefix removes tasks in key order, up to a thousand tasks or 16 MiB at a time. If ctx is done or another error
// occurs, RemovePrefix stops and returns the error. Some of the last thousand tasks may then have been removed but not
// counted. Calling it again removes the remaining tasks.
//
// To remove the tasks that match a [Query], use [Scheduler.Bulk].
func (s *Scheduler) RemovePrefix(ctx context.Context, prefix string) (int, error) {
	return s.eachPrefix(ctx, "RemovePrefix", prefix, func(v *node.View) *node.Verb {
		return &node.Verb{What: node.ToRemove, Key: v.Rec.Key, Size: MaxKey}
	})
}

// ReschedulePrefix reschedules every task whose key begins with prefix, as [Scheduler.Reschedule] does for one task:
// its next run is due after d. It returns the number of tasks that it moved. In other respects it is like
// [Scheduler.RemovePrefix], but calling it again does not resume: it reschedules all of the tasks again.
func (s *Scheduler) ReschedulePrefix(ctx context.Context, prefix string, d time.Duration) (int, error) {
	return s.eachPrefix(ctx, "ReschedulePrefix", prefix, func(v *node.View) *node.Verb {
		return &node.Verb{What: node.ToMove, Key: v.Rec.Key, After: max(d, 0), Found: v, Size: v.Rec.Size()}
	})
}

// eachPrefix applies a verb to each task whose key begins with prefix, and returns the number of tasks that it changed.
func (s *Scheduler) eachPrefix(ctx context.Context, name, prefix string, verb func(*node.View) *node.Verb) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	over := node.Stretch{Order: node.ByKey, From: prefix}
	n, _, err := s.each(ctx, &over, Query{Prefix: prefix}, s.node.Now(), 0, verb)
	return n, failed(err, name, prefix)
}

// AllPrefix returns an iterator over the tasks whose keys begin with prefix and are greater than after, in key order.
// To continue an earlier walk, set after to the last key of that walk. AllPrefix is otherwise like [Scheduler.All].
func (s *Scheduler) AllPrefix(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for found, err := range s.walk(ctx, ctx, node.Stretch{Order: node.ByKey, From: max(prefix, after+"\x00")}) {
			if err != nil {
				yield(Info{}, failed(err, "AllPrefix", prefix))
				return
			}
			if !strings.HasPrefix(found.Rec.Key, prefix) || !yield(infoOfView(found, s.node.Now()), nil) {
				return
			}
		}
	}
}

// manyAtOnce is how many tasks GetMany requests from an engine at once.
const manyAtOnce = 1024

// GetMany returns the tasks with the given keys, in the order of the keys. A key without a task is skipped. Each task
// is returned as it was at some time during the call. GetMany calls a shared engine once per thousand keys.
func (s *Scheduler) GetMany(ctx context.Context, keys ...string) ([]Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !s.reads.Enter() {
		return nil, failed(ErrStopped, "GetMany", "")
	}
	defer s.reads.Leave()
	var infos []Info
	for len(keys) > 0 {
		some := keys[:min(len(keys), manyAtOnce)]
		keys = keys[len(some):]
		found, err := s.node.GetMany(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, key := range some {
			if v, ok := found[key]; ok {
				infos = append(infos, infoOfView(v, s.node.Now()))
			}
		}
	}
	return infos, nil
}
