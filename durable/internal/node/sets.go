// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

const (
	// declaredNote begins the name of a set's note. Such names sort before the notes that nodes read periodically.
	declaredNote = "declared "

	// declareFor is how long one call may hold the note of a set. If its process ends, other calls wait that long. A
	// call sends its last commit at least declareMargin before that, so that the commit arrives in time. The hold is
	// not a fence: an engine cannot add a task on the condition that a note is unchanged.
	declareFor    = 15 * time.Second
	declareMargin = 3 * time.Second

	// declareAtOnce is how many tasks one commit changes. The node's own engine changes all tasks of a set at once.
	declareAtOnce = 256
)

// A declaredSet is the content of a set's note. Only the call that holds the note changes the set. A call that has
// ended halfway leaves a mixture of two versions, and Applying names the one that was not finished. The next call, of
// any version that is not below the finished one, applies its own set.
type declaredSet struct {
	Version  int64  `json:"version"`            // the last version that was applied in full; noVersion if none was
	Applying *int64 `json:"applying,omitempty"` // the version that was begun since and is not finished; nil if none was
	Holder   uint64 `json:"holder,omitempty"`   // random number of the hold; 0 if no call holds the note
	Until    int64  `json:"until,omitempty"`    // when the hold expires, by the engine's clock
	At       int64  `json:"at,omitempty"`       // when the version was applied first, by the engine's clock
	By       string `json:"by,omitempty"`       // by the node of this name
}

const noVersion = -1

// A Set is a valid set of tasks that a program declares.
type Set struct {
	Prefix  string
	Version int64
	Make    func(now int64) []*task.Record // returns the records of the tasks, without generations
	Named   map[string]bool                // the keys of the tasks

	again bool // the version is already stored; set by Declare
}

// A SetResult counts the changes to the tasks of a set, as the type SetResult of package durable.
type SetResult struct {
	Added, Changed, Removed, Unchanged int
	Newer                              int64
}

// MaxSet is the number of tasks of a set.
const MaxSet = 10_000

// overlap returns an error if the set would remove the task with the key, which belongs to the other set, or the other
// set would remove tasks of this one.
func (d *Set) overlap(other, key string) error {
	removed := !d.Named[key]
	if len(other) < len(d.Prefix) {
		removed = !strings.HasPrefix(key, d.Prefix) // otherwise this set has taken over the task
	}
	if !removed {
		return nil
	}
	return fmt.Errorf("%w: set %q: it overlaps with the set %q, which has the task %q", ErrInvalidTask, d.Prefix, other, key)
}

// tell reports changes to a set whose version has not increased.
func (d *Set) tell(to *Reporter, r SetResult) {
	if d.again && r.Changed+r.Removed > 0 {
		to.note(func(n *notices) { n.set = d.Prefix })
	}
}

// overlaps reports whether the prefix of the set begins that of the other, or the other way round.
func (d *Set) overlaps(other string) bool {
	return other != d.Prefix && (strings.HasPrefix(other, d.Prefix) || strings.HasPrefix(d.Prefix, other))
}

// A declaring is a call of Declare.
type declaring struct {
	*Set
	r        SetResult
	holder   uint64 // as in declaredSet; replaced if a commit may still arrive, so that the call waits until it cannot
	revision int64  // revision of the note while the call holds it; otherwise 0
}

// Declare changes the tasks while it holds the note of the set, because a batch cannot contain both tasks and notes.
func (n *Node) Declare(ctx context.Context, d *Set) (_ SetResult, err error) {
	if err := n.enter(); err != nil {
		return SetResult{}, err
	}
	defer n.verbs.Leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.sends, func() { cancel(ErrStopped) })() // Shutdown waits no longer
	unlock, err := n.bursts.lock(ctx, declaredNote+d.Prefix)
	if err != nil {
		return SetResult{}, context.Cause(ctx)
	}
	defer unlock()
	c := &declaring{Set: d, holder: rand.Uint64() | 1}
	for again := true; again && err == nil; {
		if again, err = n.declareHeld(ctx, c); again && err == nil {
			err = clock.PauseFor(ctx, notDoneEvery)
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return SetResult{}, context.Cause(ctx)
	case err != nil:
		return SetResult{}, err
	case c.r.Newer == 0:
		c.r.Unchanged = len(c.Named) - c.r.Added - c.r.Changed
	}
	d.tell(&n.report, c.r)
	return c.r, nil
}

// declareHeld takes hold of the note, applies the set and releases the note. It reports whether it has to be called
// again, because another call holds the note or the hold was too short.
func (n *Node) declareHeld(ctx context.Context, c *declaring) (again bool, err error) {
	name := declaredNote + c.Prefix
	stored, err := n.note(ctx, name)
	if err != nil {
		return false, n.unavailable(ctx, err)
	}
	was := declaredSet{Version: noVersion}
	if stored.Data != nil {
		if err := json.Unmarshal(stored.Data, &was); err != nil {
			return false, fmt.Errorf("%w: version of set %q: %w", ErrCorrupt, c.Prefix, err)
		}
	}
	switch {
	case was.Version > c.Version:
		c.r = SetResult{Newer: was.Version}
		return false, nil
	case was.Holder != c.holder && n.isHeld(was):
		return true, nil
	}
	if c.revision == 0 {
		c.again = was.Version == c.Version && (was.Applying == nil || *was.Applying == c.Version)
	}
	if c.revision != stored.Revision || c.revision == 0 { // otherwise the call has held the note since the last check
		if err := n.checkOverlaps(ctx, c.Set); err != nil {
			return false, err
		}
	}
	held, cancel := context.WithTimeout(ctx, declareFor-declareMargin)
	defer cancel()
	revision, err := n.putSet(held, name, stored.Revision,
		declaredSet{was.Version, &c.Version, c.holder, n.Now() + int64(declareFor), was.At, was.By})
	if err != nil && held.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err != nil || revision == 0 {
		return err == nil, err
	}
	c.revision = revision
	sure, err := n.applySet(held, c)
	if !sure { // a commit may still arrive, and the note stays held until the hold expires
		c.holder, c.revision = rand.Uint64()|1, 0
	}
	if err != nil && ctx.Err() == nil && (held.Err() != nil || errors.Is(err, errHoldOver)) {
		return true, nil
	}
	if !sure {
		return false, err
	}
	next := declaredSet{Version: c.Version, At: n.Now(), By: strings.ToValidUTF8(n.cfg.Name, "\uFFFD")}
	if err != nil || c.again && was.At != 0 {
		next.At, next.By = was.At, was.By
	}
	if err != nil {
		next.Version, next.Applying = was.Version, &c.Version
	}
	brief, cancel := n.callContext()
	defer cancel()
	released, failed := n.putSet(brief, name, revision, next)
	if err == nil && (failed != nil || released == 0) {
		return true, nil // it is not known that the version is finished
	}
	return false, err // if the note is not released, the hold expires
}

// A SetInfo describes a declared set, as the type SetInfo of package durable.
type SetInfo struct {
	Prefix              string
	Version, Unfinished int64 // -1 if there is none
	At                  int64 // 0 if unknown
	By                  string
}

// Sets returns the declared sets, by prefix.
func (n *Node) Sets(ctx context.Context) (all []SetInfo, err error) {
	for note, err := range n.engine.Walk(ctx, engine.Range{Order: engine.Notes, From: declaredNote}) {
		if err != nil {
			return nil, n.unavailable(ctx, err)
		}
		prefix, is := strings.CutPrefix(note.Key, declaredNote)
		if !is {
			break
		}
		set := declaredSet{Version: noVersion}
		if err := json.Unmarshal(note.Data, &set); err != nil {
			return nil, fmt.Errorf("%w: version of set %q: %w", ErrCorrupt, prefix, err)
		}
		i := SetInfo{prefix, set.Version, noVersion, set.At, set.By}
		if set.Applying != nil {
			i.Unfinished = *set.Applying
		}
		all = append(all, i)
	}
	return all, nil
}

// isHeld reports whether a call holds the note. A hold that expires later than declareFor from now was taken while the
// engine's clock was ahead, and is over. A call that holds the note of the node's own engine has ended with its process.
func (n *Node) isHeld(set declaredSet) bool {
	if n.alone {
		return false
	}
	own := n.own()
	return set.Holder != 0 && set.Until > n.clock.Earliest(own) && set.Until <= n.clock.Latest(own)+int64(declareFor)
}

// checkOverlaps returns an error if the set or another one would remove tasks of the other.
func (n *Node) checkOverlaps(ctx context.Context, d *Set) error {
	for note, err := range n.engine.Walk(ctx, engine.Range{Order: engine.Notes, From: declaredNote}) {
		if err != nil {
			return n.unavailable(ctx, err)
		}
		other, is := strings.CutPrefix(note.Key, declaredNote)
		if !is {
			break
		}
		if !d.overlaps(other) {
			continue
		}
		for v, err := range n.under(ctx, other) {
			if err != nil {
				return err
			}
			if err := d.overlap(other, v.Rec.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// under returns the tasks of the set with the prefix. Tasks that remember names belong to no set.
func (n *Node) under(ctx context.Context, prefix string) iter.Seq2[View, error] {
	return func(yield func(View, error) bool) {
		for v, err := range n.Walk(ctx, Stretch{Order: ByKey, From: prefix}) {
			switch {
			case err == nil && !strings.HasPrefix(v.Rec.Key, prefix):
				return
			case err == nil && v.Rec.Kind == task.OnceKind:
			case !yield(v, err):
				return
			}
		}
	}
}

// putSet writes the note of a set and returns its new revision. It returns 0 if the note has changed since it was read.
func (n *Node) putSet(ctx context.Context, name string, revision int64, set declaredSet) (int64, error) {
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

// errHoldOver is returned by applySet if another call has taken the note.
var errHoldOver = errors.New("durable: another call has taken the note of the set")

// applySet commits the changes, each in a batch of its own, so that a task that has changed since it was read does not
// hold up the others. It repeats this until no change is left. It stops if another call has taken the note, as it can
// while this process is suspended. sure reports whether no commit can take effect later.
func (n *Node) applySet(ctx context.Context, c *declaring) (sure bool, err error) {
	for {
		exist := make(map[string]existing)
		for v, err := range n.under(ctx, c.Prefix) {
			if err != nil {
				return true, err
			}
			if exist[v.Rec.Key] = (existing{v.Rec, v.Confirmed, v.Revision, v.Starts > 0}); len(exist) > MaxSet {
				return true, tooManyTasks(c.Prefix)
			}
		}
		now, err := n.sureNow(ctx)
		if err != nil {
			return true, err
		}
		left := 0
		plan, most := c.plan(exist, c.Make(now), now, n.next), declareAtOnce
		if n.alone {
			most = max(len(plan), 1)
		}
		for some := range slices.Chunk(plan, most) {
			batches := make([]engine.Batch, len(some))
			for i, change := range some {
				batches[i] = engine.Batch{change.write()}
			}
			note, err := n.note(ctx, declaredNote+c.Prefix)
			switch {
			case err != nil:
				return true, n.unavailable(ctx, err)
			case note.Revision != c.revision:
				return true, errHoldOver
			}
			if n.stamp(batches); n.clock.IsOld(now) {
				left++
				break
			}
			asked := n.own()
			results, err := n.engine.Commit(ctx, 0, batches)
			switch {
			case errors.Is(err, engine.ErrTooLarge):
				return true, fmt.Errorf("%w: %w", ErrInvalidTask, err)
			case err != nil:
				return errors.Is(err, engine.ErrNotDone), n.unavailable(ctx, err)
			}
			for i, result := range results {
				if result.Late != 0 {
					n.late(asked, result.Late)
				}
				if len(result.Written) == 0 {
					left++
					continue
				}
				some[i].count(&c.r)
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
		// The pauses differ, because a task that repeats quickly may be about to begin most of the time.
		if err := clock.PauseFor(ctx, rand.N(notDoneEvery)); err != nil {
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
	w := task.Completion(c.next, c.was.rec, c.was.revision)
	w.Begun = 0 // a run may begin
	if c.next != nil && !c.was.started {
		w.If = engine.IfUnstarted
	}
	return w
}

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
func (d *Set) plan(exist map[string]existing, records []*task.Record, now int64, number func(n int) uint64) (changes []redeclared) {
	for _, rec := range records {
		switch was := exist[rec.Key]; {
		case was.rec == nil && rec.IsLate(rec.Due): // it has ended, or never begins
		case was.rec == nil:
			next := *rec
			next.Generation = number(1)
			changes = append(changes, redeclared{rec.Key, was, &next})
		case !was.rec.IsDefinedAs(rec):
			changes = append(changes, redeclared{rec.Key, was, was.rec.Redefined(rec, was.running, now)})
		}
	}
	for key, was := range exist {
		if !d.Named[key] {
			changes = append(changes, redeclared{key: key, was: was})
		}
	}
	return changes
}

func tooManyTasks(prefix string) error {
	return fmt.Errorf("%w: set %q: more than %d tasks have the prefix", ErrInvalidTask, prefix, MaxSet)
}
