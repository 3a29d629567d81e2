// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

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
		r.Unchanged = len(d.tasks) - r.Added - r.Changed
	}
	d.tell(&n.report, r)
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
	if was.Holder == 0 {
		d.again = stored.Data != nil && was.Version == d.version
		if err := n.checkOverlaps(ctx, d); err != nil {
			return false, err
		}
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

// checkOverlaps returns an error if the set or another one would remove tasks of the other.
func (n *node) checkOverlaps(ctx context.Context, d *declaration) error {
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
		for v, err := range n.walk(ctx, stretch{order: byKey, from: other}) {
			if err != nil {
				return err
			}
			if !strings.HasPrefix(v.rec.Key, other) {
				break
			}
			if err := d.overlap(other, v.rec.Key); err != nil {
				return err
			}
		}
	}
	return nil
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
		now, err := n.sureNow(ctx)
		if err != nil {
			return true, err
		}
		left := 0
		d.timed(now)
		for some := range slices.Chunk(d.plan(exist, now, n.next), declareAtOnce) {
			batches := make([]engine.Batch, len(some))
			for i, c := range some {
				batches[i] = engine.Batch{c.write()}
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
				if result.Busy || result.Late != 0 || len(result.Unmet) > 0 {
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
