// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A TaskSet contains the repeating tasks that a program declares with [Scheduler.Schedule].
type TaskSet struct {
	// Prefix begins every key of the set, such as "cron/". It has 1 to MaxPrefix bytes. Every task whose key begins
	// with Prefix belongs to the set, which has at most MaxSet tasks.
	Prefix string

	// Version must increase with each deployment, as a build number does. The lowest version is 0. To go back to an
	// earlier set, deploy that set with a higher version.
	Version int64

	// Tasks lists the tasks in any order. Each task needs Cron or Interval and runs until it is removed, so its Times
	// must be 0 or Forever.
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

// Schedule adds, changes and removes tasks so that exactly the tasks of the set exist under its prefix. All changes
// take effect together. Call Schedule in every process when the program starts.
//
//   - A declared task that does not exist is added.
//   - An existing task with a different definition is changed. It keeps its number of missed periods, and remains paused
//     if it is paused. If its Interval, Cron and Jitter are unchanged, it also keeps its due time, unless it is parked.
//   - An existing task with the same definition is left alone, even if it is parked. Delay and At apply only when a task
//     is added, and are not compared.
//   - A task under the prefix that is not declared is removed.
//
// During a rolling deployment, processes with the old and the new set start in any order. The highest version wins.
// Once it is stored, Schedule changes nothing for a lower version, and sets SetResult.Newer. If two sets have the same
// version, the last call wins.
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
	r, err := s.below.declare(ctx, d)
	return r, stopped(err, "Schedule", set.Prefix)
}

// A declaration is a validated TaskSet.
type declaration struct {
	prefix  string
	version int64
	records []*task.Record // without generations, with different keys
	size    int
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
	recs, size, err := s.records(set.Tasks)
	if err != nil {
		return nil, err
	}
	recs, twice := distinct(recs)
	for key := range twice {
		return invalid("key %q occurs twice", key)
	}
	for i, rec := range recs {
		if set.Tasks[i].Times == 0 {
			rec.Times = Forever
		}
		switch {
		case !strings.HasPrefix(rec.Key, set.Prefix):
			return invalid("key %q does not begin with the prefix", rec.Key)
		case rec.Interval == 0 && rec.Cron == "":
			return invalid("task %q has no Interval and no Cron", rec.Key)
		case rec.Times != Forever:
			return invalid("times %d of %q; 0 and Forever are allowed", rec.Times, rec.Key)
		case rec.Deadline != 0:
			return invalid("task %q has MaxDelay, which is for SetTask", rec.Key)
		}
	}
	return &declaration{prefix: set.Prefix, version: set.Version, records: recs, size: size}, nil
}

// A redeclared is a task before and after a declaration. Either record may be nil.
type redeclared struct{ was, next *task.Record }

// plan returns the changes that turn the existing tasks into the declared ones. number reserves n generations and
// returns the first.
func (d *declaration) plan(exist map[string]*task.Record, number func(n int) uint64) (changes []redeclared, r SetResult) {
	named := make(map[string]bool, len(d.records))
	for _, rec := range d.records {
		named[rec.Key] = true
		next := *rec
		switch old := exist[rec.Key]; {
		case old == nil:
			r.Added++
			next.Generation = number(1)
			changes = append(changes, redeclared{next: &next})
		case old.IsDefinedAs(rec):
			r.Unchanged++
		default:
			r.Changed++
			changes = append(changes, redeclared{old, old.Redefined(rec)})
		}
	}
	for key, old := range exist {
		if !named[key] {
			r.Removed++
			changes = append(changes, redeclared{was: old})
		}
	}
	return changes, r
}

func tooManyTasks(prefix string) error {
	return fmt.Errorf("%w: set %q: more than %d tasks have the prefix", ErrInvalidTask, prefix, MaxSet)
}

// The keeper's part.

// declare stores the changes in one commit, and the version after it.
func (k *keeper) declare(ctx context.Context, d *declaration) (r SetResult, err error) {
	err = k.ask(ctx, op{size: d.size, do: func(g *group) error {
		settings := g.settingsNow()
		if was := settings.declared[d.prefix]; was > d.version {
			r.Newer = was
			return nil
		}
		exist, err := g.withPrefix(d.prefix)
		if err != nil {
			return err
		}
		declared := map[string]int64{}
		maps.Copy(declared, settings.declared)
		declared[d.prefix] = d.version
		settings.declared = declared
		if err := g.setSettings(settings); err != nil {
			return err
		}
		var changes []redeclared
		changes, r = d.plan(exist, func(n int) uint64 { return k.next(0, uint64(n)) })
		for _, c := range changes {
			if c.next != nil {
				g.put(c.next.Key, c.was, c.next)
			} else {
				g.put(c.was.Key, c.was, nil)
			}
		}
		g.tally.added += uint64(r.Added)
		g.tally.removed += uint64(r.Removed)
		return nil
	}})
	return r, err
}

// withPrefix returns the tasks whose keys begin with prefix.
func (g *group) withPrefix(prefix string) (map[string]*task.Record, error) {
	var keys []string
	for rec, err := range g.k.store.ByKey(prefix) {
		if err != nil {
			return nil, g.k.readError(err)
		}
		if !strings.HasPrefix(rec.Key, prefix) {
			break
		}
		if keys = append(keys, rec.Key); len(keys) > MaxSet {
			return nil, tooManyTasks(prefix)
		}
	}
	for _, t := range g.order { // changes of this group, which are not stored yet
		if strings.HasPrefix(t.key, prefix) {
			keys = append(keys, t.key)
		}
	}
	exist := make(map[string]*task.Record, len(keys))
	for _, key := range keys {
		rec, err := g.find(key)
		if err != nil {
			return nil, err
		}
		if rec != nil {
			exist[key] = rec
		}
	}
	return exist, nil
}

// The node's part.

const (
	// declaredNote begins the name of a set's note. Such names sort before the notes that nodes read periodically.
	declaredNote = "declared "

	// declareFor is how long one call may hold the note of a set. If its process ends, other calls wait that long.
	declareFor = 15 * time.Second
)

// A declaredSet is the content of a set's note. Only the call that holds the note changes the set.
type declaredSet struct {
	Version int64  `json:"version"`
	Holder  uint64 `json:"holder,omitempty"` // random number of the call that holds the note; 0 if none does
	Until   int64  `json:"until,omitempty"`  // when the hold expires, by the engine's clock
}

// declare holds the note of the set while it changes the tasks, because a batch cannot contain both tasks and notes.
func (n *node) declare(ctx context.Context, d *declaration) (r SetResult, err error) {
	if !n.verbs.enter() {
		return r, ErrStopped
	}
	defer n.verbs.leave()
	note := declaredNote + d.prefix
	for holder := rand.Uint64() | 1; ; {
		var was declaredSet
		stored, err := n.note(ctx, note)
		if err != nil {
			return r, n.unavailable(ctx, err)
		}
		if stored.Data != nil {
			if err := json.Unmarshal(stored.Data, &was); err != nil {
				return r, fmt.Errorf("%w: version of set %q: %w", ErrCorrupt, d.prefix, err)
			}
		}
		if was.Version > d.version {
			return SetResult{Newer: was.Version}, nil
		}
		if now := n.now(); was.Holder == 0 || was.Holder == holder || was.Until <= now {
			revision, err := n.putSet(ctx, note, stored.Revision, declaredSet{d.version, holder, now + int64(declareFor)})
			if err != nil {
				return r, err
			}
			if revision != 0 {
				held, cancel := context.WithTimeout(ctx, declareFor)
				r, err = n.applySet(held, d)
				cancel()
				if err == nil || ctx.Err() != nil || held.Err() == nil {
					_, _ = n.putSet(ctx, note, revision, declaredSet{Version: d.version}) // if this fails, other calls wait until the hold expires
					return r, err
				}
			}
		}
		if err := pauseFor(ctx, notDoneEvery); err != nil {
			return r, err
		}
	}
}

// putSet writes the note of a set and returns its new revision. It returns 0 if the note has changed since it was read.
func (n *node) putSet(ctx context.Context, note string, revision int64, set declaredSet) (int64, error) {
	data, err := json.Marshal(set)
	if err != nil {
		return 0, err
	}
	results, err := n.engine.Commit(ctx, 0, []engine.Batch{{putNote(note, data, revision)}})
	switch {
	case err != nil:
		return 0, n.unavailable(ctx, err)
	case results[0].Busy || len(results[0].Unmet) > 0:
		return 0, nil
	}
	return results[0].Written[0].Revision, nil
}

// applySet commits the changes in one batch. If a task has changed since it was read, it reads all tasks again.
func (n *node) applySet(ctx context.Context, d *declaration) (r SetResult, err error) {
	for {
		exist, revisions := make(map[string]*task.Record), make(map[string]int64)
		for v, err := range n.walk(ctx, stretch{order: byKey, from: d.prefix}) {
			if err != nil {
				return r, n.unavailable(ctx, err)
			}
			if !strings.HasPrefix(v.rec.Key, d.prefix) {
				break
			}
			if exist[v.rec.Key], revisions[v.rec.Key] = v.rec, v.revision; len(exist) > MaxSet {
				return r, tooManyTasks(d.prefix)
			}
		}
		changes, r := d.plan(exist, n.next)
		if len(changes) == 0 {
			return r, nil
		}
		var batch engine.Batch
		for _, c := range changes {
			switch {
			case c.was == nil:
				batch = append(batch, c.next.Write(engine.IfAbsent, 0))
			case c.next == nil:
				batch = append(batch, engine.Write{Record: engine.Record{Key: c.was.Key}, If: engine.IfUnchanged, Revision: revisions[c.was.Key]})
			default:
				batch = append(batch, c.next.Write(engine.IfUnchanged, revisions[c.was.Key]))
			}
		}
		results, err := n.engine.Commit(ctx, 0, []engine.Batch{batch})
		switch {
		case errors.Is(err, engine.ErrTooLarge):
			return r, fmt.Errorf("%w: %w", ErrInvalidTask, err)
		case err != nil:
			return r, n.unavailable(ctx, err)
		case !results[0].Busy && len(results[0].Unmet) == 0:
			n.count.added.Add(uint64(r.Added))
			n.count.removed.Add(uint64(r.Removed))
			return r, nil
		}
		if err := pauseFor(ctx, notDoneEvery); err != nil {
			return r, err
		}
	}
}

// pauseFor waits for d. It returns the error of ctx if ctx is done first.
func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
