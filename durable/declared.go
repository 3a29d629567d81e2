// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/node"
)

// A TaskSet contains the repeating tasks that a program declares with [Scheduler.Schedule].
type TaskSet struct {
	// Prefix, such as "cron/", begins every key of the set. It has 1 to MaxPrefix bytes. Every task whose key begins
	// with Prefix belongs to the set, which has at most MaxSet tasks. Schedule refuses a set if one of the two prefixes
	// begins the other and it would remove a task of the other set, or the other set one of its tasks.
	Prefix string

	// Version must increase with each deployment, as a build number does. The lowest version is 0. To go back to an
	// earlier set, deploy that set with a higher version.
	Version int64

	// Tasks lists the tasks in any order. Each task needs Cron or Interval and runs until it is removed, so its Times
	// must be 0 or Forever. The same Payload must be the same bytes each time: one that is encrypted with a random nonce
	// counts as changed.
	Tasks []Task
}

const (
	MaxPrefix = 100    // the size of a [TaskSet].Prefix, in bytes
	MaxSet    = 10_000 // the number of tasks of a [TaskSet]
)

// A SetResult counts the changes that Schedule made to the tasks of a set.
type SetResult struct {
	Added, Changed, Removed, Unchanged int

	// Newer is the stored version of the set if it is higher than the version passed to Schedule. In that case Schedule
	// changed nothing. Otherwise Newer is 0.
	Newer int64
}

// A SetInfo describes a set that [Scheduler.Schedule] has declared.
type SetInfo struct {
	Prefix     string
	Version    int64     // the last version that was applied in full; -1 if none was
	Unfinished int64     // a version that was begun since and is not finished, so that the tasks are a mixture; -1 if there is none
	At         time.Time // when the version was first applied, by the engine's clock; zero if unknown
	By         string    // the name of the node that did so; empty if unknown
}

// Sets returns the declared sets, by prefix. The tasks of a set are those whose keys begin with its prefix: see
// [Query].Prefix.
func (s *Scheduler) Sets(ctx context.Context) ([]SetInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !s.reads.Enter() {
		return nil, failed(ErrStopped, "Sets", "")
	}
	defer s.reads.Leave()
	sets, err := s.node.Sets(ctx)
	all := make([]SetInfo, len(sets))
	for i, set := range sets {
		if all[i] = (SetInfo{Prefix: set.Prefix, Version: set.Version, Unfinished: set.Unfinished, By: set.By}); set.At != 0 {
			all[i].At = time.Unix(0, set.At)
		}
	}
	return all, err
}

// Schedule adds, changes and removes tasks so that exactly the tasks of the set exist under its prefix, apart from tasks of
// [OnceKind]. On an own engine all changes take effect together, on a shared one one after the other. Call Schedule in every process, before
// Start: after it, a task that the release removes may still run once.
//
//   - A declared task that does not exist is added, unless its first run would be due after Until. So a task that has ended
//     does not come back, and counts as unchanged.
//   - An existing task with a different Kind, Payload, PayloadVersion, Group, Interval, Cron or Jitter is changed. It keeps its number
//     of missed periods, and remains paused if it is paused. It also keeps its due time, unless Interval, Cron or
//     Jitter has changed or the task is parked: in those cases it is due as if it had just been added.
//   - A run in progress of a changed task is not interrupted, but its result no longer counts. The next run follows at the
//     next due time. If a crash of the database server has lost the start of that run, it is repeated with its token.
//   - An existing task with the same definition is left alone, even if it is parked. Delay, At, Trace, and the Jitter of a
//     task with Interval are not compared.
//   - A task under the prefix that is not declared is removed.
//
// During a rolling deployment, processes with the old set and processes with the new set may start in any order. The
// highest version wins. Once Schedule has applied it in full, it changes nothing for a lower version, and sets
// SetResult.Newer. If two sets have the same version, the last call wins, and a warning is logged when it changes or
// removes tasks.
//
// On a shared engine, a process that ends during Schedule leaves some tasks of each set. The next call of Schedule for the
// prefix waits up to 15 seconds, and then applies its own set, even if the version that was not finished is higher. So
// a version that crashes in Schedule can be rolled back to the one before. A call with a version below the last one that
// was applied in full changes nothing: it would undo that version.
//
// The error wraps ErrInvalidTask or ErrUnknownKind, or is one that every verb can return. If Schedule returns
// ErrUnavailable, its changes may or may not have taken effect. Calling it again is safe.
func (s *Scheduler) Schedule(ctx context.Context, set TaskSet) (SetResult, error) {
	d, err := s.declaration(set)
	if err != nil {
		return SetResult{}, err
	}
	if err := ctx.Err(); err != nil {
		return SetResult{}, err
	}
	if !s.reads.Enter() {
		return SetResult{}, failed(ErrStopped, "Schedule", set.Prefix)
	}
	defer s.reads.Leave()
	r, err := s.node.Declare(ctx, d)
	return SetResult(r), failed(err, "Schedule", set.Prefix)
}

func (s *Scheduler) declaration(set TaskSet) (*node.Set, error) {
	invalid := func(format string, args ...any) (*node.Set, error) {
		return nil, fmt.Errorf("%w: set %q: %s", ErrInvalidTask, set.Prefix, fmt.Sprintf(format, args...))
	}
	switch {
	case set.Prefix == "" || len(set.Prefix) > MaxPrefix:
		return invalid("the prefix has %d bytes; 1 to %d are allowed", len(set.Prefix), MaxPrefix)
	case len(set.Tasks) > MaxSet:
		return invalid("%d tasks; %d are allowed", len(set.Tasks), MaxSet)
	case set.Version < 0:
		return invalid("version %d is negative", set.Version)
	}
	if _, err := check(&s.kinds, set.Tasks); err != nil {
		return nil, err
	}
	tasks := slices.Clone(set.Tasks)
	named := make(map[string]bool, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		switch {
		case named[t.Key]:
			return invalid("key %q occurs twice", t.Key)
		case !strings.HasPrefix(t.Key, set.Prefix):
			return invalid("key %q does not begin with the prefix", t.Key)
		case t.Interval == 0 && t.Cron == "":
			return invalid("task %q has no Interval and no Cron", t.Key)
		case t.Times != 0 && t.Times != Forever:
			return invalid("times %d of %q; 0 and Forever are allowed", t.Times, t.Key)
		case t.Once != "":
			return invalid("task %q has Once, which is for AddTask and SetTask", t.Key)
		case t.MaxDelay != 0:
			return invalid("task %q has MaxDelay, which is for SetTask", t.Key)
		}
		named[t.Key], t.Times = true, Forever
	}
	return &node.Set{Prefix: set.Prefix, Version: set.Version, Make: recordsOf(&s.kinds, tasks), Named: named}, nil
}
