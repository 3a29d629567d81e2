// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed581295f1/timewheel/durable/internal/task"
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

// Schedule adds, changes and removes tasks so that exactly the tasks of the set exist under its prefix. On an own
// engine all changes take effect together, on a shared one one after the other. Call Schedule in every process when
// the program starts.
//
//   - A declared task that does not exist is added.
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
	if !s.reads.enter() {
		return SetResult{}, stopped(ErrStopped, "Schedule", set.Prefix)
	}
	defer s.reads.leave()
	r, err := s.node.declare(ctx, d)
	return r, stopped(err, "Schedule", set.Prefix)
}

// A declaration is a validated TaskSet.
type declaration struct {
	prefix  string
	version int64
	tasks   []Task
	records []*task.Record // of the tasks, without generations; see timed
	kinds   *kinds
	named   map[string]bool // their keys, without duplicates
	size    int
	again   bool // the version is already stored; set by declare
}

// overlap returns an error if the set would remove the task with the key, which belongs to the other set, or the other
// set would remove tasks of this one.
func (d *declaration) overlap(other, key string) error {
	removed := !d.named[key]
	if len(other) < len(d.prefix) {
		removed = !strings.HasPrefix(key, d.prefix) // otherwise this set has taken over the task
	}
	if !removed {
		return nil
	}
	return fmt.Errorf("%w: set %q: it overlaps with the set %q, which has the task %q", ErrInvalidTask, d.prefix, other, key)
}

// tell reports changes to a set whose version has not increased.
func (d *declaration) tell(to *reporter, r SetResult) {
	if d.again && r.Changed+r.Removed > 0 {
		to.note(func(n *notices) { n.set = d.prefix })
	}
}

// overlaps reports whether the prefix of the set begins that of the other, or the other way round.
func (d *declaration) overlaps(other string) bool {
	return other != d.prefix && (strings.HasPrefix(other, d.prefix) || strings.HasPrefix(d.prefix, other))
}

func (s *Scheduler) declaration(set TaskSet) (*declaration, error) {
	invalid := func(format string, args ...any) (*declaration, error) {
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
	size, err := s.check(set.Tasks)
	if err != nil {
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
		case t.MaxDelay != 0:
			return invalid("task %q has MaxDelay, which is for SetTask", t.Key)
		}
		named[t.Key], t.Times = true, Forever
	}
	return &declaration{prefix: set.Prefix, version: set.Version, tasks: tasks, kinds: &s.kinds, named: named, size: size}, nil
}

// timed computes the records of the tasks as of the given time.
func (d *declaration) timed(now int64) { d.records = recordsOf(d.tasks, d.kinds, now) }

// An existing is a task under the prefix of a set. rec is nil if there is none.
type existing struct {
	rec      *task.Record
	running  bool
	revision int64
	started  bool // a start of the run was counted
}

// A redeclared is a task before and after a declaration. next is nil if the task is removed.
type redeclared struct {
	key  string
	was  existing
	next *task.Record
}

// count counts the change.
func (c *redeclared) count(r *SetResult) {
	switch {
	case c.was.rec == nil:
		r.Added++
	case c.next == nil:
		r.Removed++
	default:
		r.Changed++
	}
}

// plan returns the changes that turn the existing tasks into the declared ones. number reserves n generations and
// returns the first.
func (d *declaration) plan(exist map[string]existing, now int64, number func(n int) uint64) (changes []redeclared) {
	for _, rec := range d.records {
		switch was := exist[rec.Key]; {
		case was.rec == nil:
			next := *rec
			next.Generation = number(1)
			changes = append(changes, redeclared{rec.Key, was, &next})
		case !was.rec.IsDefinedAs(rec):
			changes = append(changes, redeclared{rec.Key, was, was.rec.Redefined(rec, was.running, now)})
		}
	}
	for key, was := range exist {
		if !d.named[key] {
			changes = append(changes, redeclared{key: key, was: was})
		}
	}
	return changes
}

func tooManyTasks(prefix string) error {
	return fmt.Errorf("%w: set %q: more than %d tasks have the prefix", ErrInvalidTask, prefix, MaxSet)
}
