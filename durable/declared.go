// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A TaskSet contains the repeating tasks that a program declares with [Scheduler.Schedule].
type TaskSet struct {
	// Prefix, such as "cron/", begins every key of the set. It has 1 to MaxPrefix bytes. Every task whose key begins
	// with Prefix belongs to the set, which has at most MaxSet tasks. No set's Prefix may begin that of another.
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

// Schedule adds, changes and removes tasks so that exactly the tasks of the set exist under its prefix. On a store, all
// changes take effect together. On an engine they take effect one after the other. Call Schedule in every process when
// the program starts.
//
//   - A declared task that does not exist is added.
//   - An existing task with a different Kind, Payload, Group, Interval, Cron or Jitter is changed. It keeps its number
//     of missed periods, and remains paused if it is paused. It also keeps its due time, unless Interval, Cron or
//     Jitter has changed or the task is parked: in those cases it is due as if it had just been added.
//   - A run in progress of a changed task is not interrupted, but its result no longer counts. The next run follows at the
//     next due time. If a crash of the database server has lost the start of that run, it is repeated with its token.
//   - An existing task with the same definition is left alone, even if it is parked. Delay, At, Trace, and the Jitter of a
//     task with Interval are not compared.
//   - A task under the prefix that is not declared is removed.
//
// During a rolling deployment, processes with the old set and processes with the new set may start in any order. The
// highest version wins. Once it is stored, Schedule changes nothing for a lower version, and sets SetResult.Newer. If
// two sets have the same version, the last call wins.
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

// An existing is a task under the prefix of a set. rec is nil if there is none.
type existing struct {
	rec      *task.Record
	running  bool
	revision int64 // on a node
	started  bool  // on a node, whether a start of the run was counted
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
	named := make(map[string]bool, len(d.records))
	for _, rec := range d.records {
		named[rec.Key] = true
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
		if !named[key] {
			changes = append(changes, redeclared{key: key, was: was})
		}
	}
	return changes
}

func tooManyTasks(prefix string) error {
	return fmt.Errorf("%w: set %q: more than %d tasks have the prefix", ErrInvalidTask, prefix, MaxSet)
}

// The keeper's part.

// declare stores the changes in one commit, and the version after it.
func (k *keeper) declare(ctx context.Context, d *declaration) (SetResult, error) {
	done := make(chan SetResult, 1) // the keeper may still work on it when ask gives up
	err := k.ask(ctx, op{size: d.size, do: func(g *group) error {
		settings := g.settingsNow()
		if was := settings.declared[d.prefix]; was > d.version {
			done <- SetResult{Newer: was}
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
		var r SetResult
		for _, c := range d.plan(exist, k.now(), func(n int) uint64 { return k.next(0, uint64(n)) }) {
			c.count(&r)
			g.put(c.key, c.was.rec, c.next)
		}
		r.Unchanged = len(d.records) - r.Added - r.Changed
		g.tally.added += uint64(r.Added)
		g.tally.removed += uint64(r.Removed)
		done <- r
		return nil
	}})
	if err != nil {
		return SetResult{}, err
	}
	return <-done, nil
}

// withPrefix returns the tasks whose keys begin with prefix.
func (g *group) withPrefix(prefix string) (map[string]existing, error) {
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
	exist := make(map[string]existing, len(keys))
	for _, key := range keys {
		rec, err := g.find(key)
		if err != nil {
			return nil, err
		}
		if rec != nil {
			exist[key] = existing{rec: rec, running: g.k.running.has(rec)}
		}
	}
	return exist, nil
}

// The node's part.

const (
	// declaredNote begins the name of a set's note. Such names sort before the notes that nodes read periodically.
	declaredNote = "declared "

	// declareFor is how long one call may hold the note of a set. If its process ends, other calls wait that long. A
	// call stops declareMargin before that, so that its last commit arrives in time.
	declareFor    = 15 * time.Second
	declareMargin = 3 * time.Second

	// declareAtOnce is how many tasks one commit changes.
	declareAtOnce = 256
)

// A declaredSet is the content of a set's note. Only the node that holds the note changes the set.
type declaredSet struct {
	Version int64  `json:"version"`
	Holder  uint64 `json:"holder,omitempty"` // random number of the node that holds the note; 0 if none does
	Until   int64  `json:"until,omitempty"`  // when the hold expires, by the engine's clock
}

// declare changes the tasks while it holds the note of the set, because a batch cannot contain both tasks and notes.
func (n *node) declare(ctx context.Context, d *declaration) (r SetResult, err error) {
	if !n.verbs.enter() {
		return r, ErrStopped
	}
	defer n.verbs.leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.sends, func() { cancel(ErrStopped) })() // Shutdown waits no longer
	unlock, err := n.bursts.lock(ctx, declaredNote+d.prefix)
	if err != nil {
		return r, context.Cause(ctx)
	}
	defer unlock()
	for again := true; again && err == nil; {
		if again, err = n.declareHeld(ctx, d, &r); again && err == nil {
			err = pauseFor(ctx, notDoneEvery)
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return SetResult{}, context.Cause(ctx)
	case err != nil:
		return SetResult{}, err
	case r.Newer == 0:
		r.Unchanged = len(d.records) - r.Added - r.Changed
	}
	return r, nil
}

// declareHeld takes hold of the note, applies the set and releases the note. It reports whether it has to be called
// again, because another node holds the note or the hold was too short.
func (n *node) declareHeld(ctx context.Context, d *declaration, r *SetResult) (again bool, err error) {
	name := declaredNote + d.prefix
	stored, err := n.note(ctx, name)
	if err != nil {
		return false, n.unavailable(ctx, err)
	}
	var was declaredSet
	if stored.Data != nil {
		if err := json.Unmarshal(stored.Data, &was); err != nil {
			return false, fmt.Errorf("%w: version of set %q: %w", ErrCorrupt, d.prefix, err)
		}
	}
	switch {
	case was.Version > d.version:
		*r = SetResult{Newer: was.Version}
		return false, nil
	case was.Holder != 0 && was.Holder != n.holder && was.Until > n.clock.Earliest(n.own()):
		return true, nil
	}
	held, cancel := context.WithTimeout(ctx, declareFor-declareMargin)
	defer cancel()
	revision, err := n.putSet(held, name, stored.Revision, declaredSet{d.version, n.holder, n.now() + int64(declareFor)})
	if err != nil || revision == 0 {
		return err == nil, err
	}
	sure, err := n.applySet(held, d, r)
	if sure { // otherwise a commit may still arrive, and the note stays held until the hold expires
		next := declaredSet{Version: d.version}
		if err != nil {
			next.Version = was.Version
		}
		brief, cancel := n.callContext()
		defer cancel()
		_, _ = n.putSet(brief, name, revision, next) // if this fails, the hold expires
	}
	if err != nil && ctx.Err() == nil && held.Err() != nil {
		return true, nil
	}
	return false, err
}

// putSet writes the note of a set and returns its new revision. It returns 0 if the note has changed since it was read.
func (n *node) putSet(ctx context.Context, name string, revision int64, set declaredSet) (int64, error) {
	data, err := json.Marshal(set)
	if err != nil {
		return 0, err
	}
	results, err := n.engine.Commit(ctx, 0, []engine.Batch{{putNote(name, data, revision)}})
	switch {
	case err != nil:
		return 0, n.unavailable(ctx, err)
	case results[0].Busy || len(results[0].Unmet) > 0:
		return 0, nil
	}
	return results[0].Written[0].Revision, nil
}

// applySet commits the changes, each in a batch of its own, so that a task that has changed since it was read does not
// hold up the others. It repeats this until no change is left. sure reports whether no commit can take effect later.
func (n *node) applySet(ctx context.Context, d *declaration, r *SetResult) (sure bool, err error) {
	for {
		exist := make(map[string]existing)
		for v, err := range n.walk(ctx, stretch{order: byKey, from: d.prefix}) {
			if err != nil {
				return true, err
			}
			if !strings.HasPrefix(v.rec.Key, d.prefix) {
				break
			}
			if exist[v.rec.Key] = (existing{v.rec, v.running, v.revision, v.starts > 0}); len(exist) > MaxSet {
				return true, tooManyTasks(d.prefix)
			}
		}
		left := 0
		for some := range slices.Chunk(d.plan(exist, n.now(), n.next), declareAtOnce) {
			batches := make([]engine.Batch, len(some))
			for i, c := range some {
				batches[i] = engine.Batch{c.write()}
			}
			results, err := n.engine.Commit(ctx, 0, batches)
			switch {
			case errors.Is(err, engine.ErrTooLarge):
				return true, fmt.Errorf("%w: %w", ErrInvalidTask, err)
			case err != nil:
				return errors.Is(err, engine.ErrNotDone), n.unavailable(ctx, err)
			}
			for i, result := range results {
				if result.Busy || len(result.Unmet) > 0 {
					left++
					continue
				}
				some[i].count(r)
				switch {
				case some[i].was.rec == nil:
					n.count.added.Add(1)
				case some[i].next == nil:
					n.count.removed.Add(1)
				}
			}
		}
		if left == 0 {
			return true, nil
		}
		if err := pauseFor(ctx, notDoneEvery); err != nil {
			return true, err
		}
	}
}

// write returns the write of the change. It takes effect if the task is as it was. If a run has started since, the
// changed task would repeat it, so the change is then planned again.
func (c *redeclared) write() engine.Write {
	if c.was.rec == nil {
		return c.next.Write(engine.IfAbsent, 0)
	}
	w := completion(c.next, c.was.rec, c.was.revision)
	if c.next != nil && !c.was.started {
		w.If = engine.IfUnstarted
	}
	return w
}
