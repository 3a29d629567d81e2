// SPDX-License-Identifier: MIT

package timewheel

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"
)

// The functions in this file walk over all tasks of the wheel, whatever the prefix, which takes about 70 ms for a
// million tasks. The walk copies the index, which takes 8 bytes per task. It locks the 32 shards of the index one at a
// time, each for less than 1 ms with a million tasks. Everything else, including the comparison of keys, is done
// without a lock.

// AllPrefix returns an iterator that walks over all tasks of the wheel and yields the live tasks whose keys begin with
// prefix. Otherwise it is like [TimeWheel.All].
func (tw *TimeWheel) AllPrefix(prefix string) iter.Seq[Info] {
	return func(yield func(Info) bool) {
		for key, e := range tw.index.prefix(prefix) {
			if info, ok := tw.infoOf(key, e); ok && !yield(info) {
				return
			}
		}
	}
}

// RemovePrefix walks over all tasks of the wheel and removes the live tasks whose keys begin with prefix. It removes
// them one by one, as [TimeWheel.RemoveTask] does, and returns how many it removed. A task that is live throughout the
// call is removed; a task that is added during the call may be removed. RemovePrefix does not delay ticks. If ctx is
// done, RemovePrefix stops and returns the cause; another call removes the remaining tasks.
func (tw *TimeWheel) RemovePrefix(ctx context.Context, prefix string) (int, error) {
	return tw.eachPrefix(ctx, prefix, tw.RemoveTask)
}

// ReschedulePrefix walks over all tasks of the wheel and reschedules the live tasks whose keys begin with prefix, so
// that their next runs are due d from now. It reschedules them one by one, as [TimeWheel.Reschedule] does, and returns
// how many it rescheduled. Otherwise it is like [TimeWheel.RemovePrefix]. The error may also wrap [ErrInvalidTask] or
// [ErrStopped].
func (tw *TimeWheel) ReschedulePrefix(ctx context.Context, prefix string, d time.Duration) (int, error) {
	if err := checkDelay(prefix, d); err != nil {
		return 0, err
	}
	return tw.eachPrefix(ctx, prefix, func(key string) error { return tw.Reschedule(key, d) })
}

// GetMany returns descriptions of the live tasks with the given keys, in the order of the keys. It skips keys without a
// live task. Each description shows the task as it was at some moment during the call.
func (tw *TimeWheel) GetMany(keys ...string) []Info {
	var infos []Info
	for _, key := range keys {
		if info, ok := tw.Get(key); ok {
			infos = append(infos, info)
		}
	}
	return infos
}

// eachPrefix calls do for each key that begins with prefix, and returns how many calls found a live task.
func (tw *TimeWheel) eachPrefix(
	ctx context.Context, prefix string, do func(key string) error,
) (n int, err error) {
	for key := range tw.index.prefix(prefix) {
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		switch err := do(key); {
		case err == nil:
			n++
		case !errors.Is(err, ErrTaskKeyNotFound):
			return n, err
		}
	}
	return n, nil
}

// prefix yields the keys that begin with the prefix and their entries, including dead entries.
func (x *index) prefix(prefix string) iter.Seq2[string, *entry] {
	return func(yield func(string, *entry) bool) {
		for _, e := range x.entries() {
			if strings.HasPrefix(e.key, prefix) && !yield(e.key, e) {
				return
			}
		}
	}
}
