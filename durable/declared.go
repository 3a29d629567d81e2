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

// A TaskSet is the repeating tasks that a program declares with [Scheduler.Schedule].
type TaskSet struct {
	// Prefix is what the keys of the set begin with, such as "cron/": 1 to MaxPrefix bytes. Every task whose key begins
	// with it belongs to the set. At most MaxSet tasks do.
	Prefix string

	// Version increases with each deployment, such as the number of the build. 0 is the lowest. To go back to an
	// earlier set, deploy it with a higher version.
	Version int64

	// Tasks are the tasks, in any order. Each has Cron or Interval, and runs until it is removed: Times is 0 or Forever.
	Tasks []Task
}

const (
	MaxPrefix = 100    // the size of a [TaskSet].Prefix, in bytes
	MaxSet    = 10_000 // the number of tasks of a [TaskSet]
)

// A SetResult is what Schedule has done to the tasks of a set.
type SetResult struct {
	Added, Changed, Removed, Unchanged int

	// Newer is the version of the set that was declared before, if that is higher than the one of this call. Then
	// nothing has changed. Otherwise it is 0.
	Newer int64
}

// Schedule makes the tasks of the set those that exist under its prefix: all at once, or none if it returns an error.
// Call it when the program starts, in every process.
//
//   - A declared task that does not exist is added.
//   - One that exists with another definition is changed. It keeps its count of missed periods and its pause. If its
//     Interval, Cron and Jitter are the same, it keeps its due time as well, unless it is parked.
//   - One that exists with the same definition is left alone, and so is its parking. Delay and At count only when a task is
//     added, and are not compared.
//   - A task under the prefix that is not declared is removed.
//
// In a rolling deployment processes with the old set and the new one start in any order. The highest version wins: after
// a set of that version, one of a lower version changes nothing, and SetResult.Newer says so. Of different sets with one
// version, the last call wins.
//
// The error wraps ErrInvalidTask or ErrUnknownKind, or is that of any verb. After an error the call can be repeated.
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

// A declaration is a valid TaskSet.
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

// A redeclared is a task before and after a declaration; either may be nil.
type redeclared struct{ was, next *task.Record }

// plan returns the changes that make the declared tasks of those that exist. number returns generations for n new tasks.
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

// declare stores the changes in one commit, and then the version.
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
	for _, t := range g.order { // not stored yet
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
	// declaredNote begins the name of the note of a set. It is before the notes that nodes read all the time.
	declaredNote = "declared "

	// declareFor is how long one call may hold the note of a set, and so keep others waiting after its process has ended.
	declareFor = 15 * time.Second
)

// A declaredSet is the data of the note of a set. The call that holds the note is the only one that changes the set.
type declaredSet struct {
	Version int64  `json:"version"`
	Holder  uint64 `json:"holder,omitempty"` // a random number for each call; 0 if no call holds it
	Until   int64  `json:"until,omitempty"`  // when another call may hold it, by the engine's clock
}

// declare holds the note of the set while it changes the tasks. A batch cannot have both tasks and notes.
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
					_, _ = n.putSet(ctx, note, revision, declaredSet{Version: d.version}) // otherwise the others wait
					return r, err
				}
			}
		}
		if err := pauseFor(ctx, notDoneEvery); err != nil {
			return r, err
		}
	}
}

// putSet writes the note of a set, and returns its revision, or 0 if it has changed meanwhile.
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

// applySet commits the changes of the tasks in one batch. If a task has changed since it was read, it reads all again.
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

// pauseFor returns after d, or earlier with the error of ctx.
func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
