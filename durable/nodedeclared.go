// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
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
}

const noVersion = -1

// A declaring is a call of declare.
type declaring struct {
	*declaration
	r        SetResult
	holder   uint64 // as in declaredSet; replaced if a commit may still arrive, so that the call waits until it cannot
	revision int64  // revision of the note while the call holds it; otherwise 0
}

// declare changes the tasks while it holds the note of the set, because a batch cannot contain both tasks and notes.
func (n *node) declare(ctx context.Context, d *declaration) (_ SetResult, err error) {
	if err := n.enter(); err != nil {
		return SetResult{}, err
	}
	defer n.verbs.leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.sends, func() { cancel(ErrStopped) })() // Shutdown waits no longer
	unlock, err := n.bursts.lock(ctx, declaredNote+d.prefix)
	if err != nil {
		return SetResult{}, context.Cause(ctx)
	}
	defer unlock()
	c := &declaring{declaration: d, holder: rand.Uint64() | 1}
	for again := true; again && err == nil; {
		if again, err = n.declareHeld(ctx, c); again && err == nil {
			err = pauseFor(ctx, notDoneEvery)
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return SetResult{}, context.Cause(ctx)
	case err != nil:
		return SetResult{}, err
	case c.r.Newer == 0:
		c.r.Unchanged = len(c.tasks) - c.r.Added - c.r.Changed
	}
	d.tell(&n.report, c.r)
	return c.r, nil
}

// declareHeld takes hold of the note, applies the set and releases the note. It reports whether it has to be called
// again, because another call holds the note or the hold was too short.
func (n *node) declareHeld(ctx context.Context, c *declaring) (again bool, err error) {
	name := declaredNote + c.prefix
	stored, err := n.note(ctx, name)
	if err != nil {
		return false, n.unavailable(ctx, err)
	}
	was := declaredSet{Version: noVersion}
	if stored.Data != nil {
		if err := json.Unmarshal(stored.Data, &was); err != nil {
			return false, fmt.Errorf("%w: version of set %q: %w", ErrCorrupt, c.prefix, err)
		}
	}
	switch {
	case was.Version > c.version:
		c.r = SetResult{Newer: was.Version}
		return false, nil
	case was.Holder != c.holder && n.isHeld(was):
		return true, nil
	}
	if c.revision == 0 {
		c.again = was.Version == c.version && (was.Applying == nil || *was.Applying == c.version)
	}
	if c.revision != stored.Revision || c.revision == 0 { // otherwise the call has held the note since the last check
		if err := n.checkOverlaps(ctx, c.declaration); err != nil {
			return false, err
		}
	}
	held, cancel := context.WithTimeout(ctx, declareFor-declareMargin)
	defer cancel()
	revision, err := n.putSet(held, name, stored.Revision,
		declaredSet{was.Version, &c.version, c.holder, n.now() + int64(declareFor)})
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
	next := declaredSet{Version: c.version}
	if err != nil {
		next = declaredSet{Version: was.Version, Applying: &c.version}
	}
	brief, cancel := n.callContext()
	defer cancel()
	released, failed := n.putSet(brief, name, revision, next)
	if err == nil && (failed != nil || released == 0) {
		return true, nil // it is not known that the version is finished
	}
	return false, err // if the note is not released, the hold expires
}

// isHeld reports whether a call holds the note. A hold that expires later than declareFor from now was taken while the
// engine's clock was ahead, and is over. A call that holds the note of the node's own engine has ended with its process.
func (n *node) isHeld(set declaredSet) bool {
	if n.alone {
		return false
	}
	own := n.own()
	return set.Holder != 0 && set.Until > n.clock.Earliest(own) && set.Until <= n.clock.Latest(own)+int64(declareFor)
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

// errHoldOver is returned by applySet if another call has taken the note.
var errHoldOver = errors.New("durable: another call has taken the note of the set")

// applySet commits the changes, each in a batch of its own, so that a task that has changed since it was read does not
// hold up the others. It repeats this until no change is left. It stops if another call has taken the note, as it can
// while this process is suspended. sure reports whether no commit can take effect later.
func (n *node) applySet(ctx context.Context, c *declaring) (sure bool, err error) {
	for {
		exist := make(map[string]existing)
		for v, err := range n.walk(ctx, stretch{order: byKey, from: c.prefix}) {
			if err != nil {
				return true, err
			}
			if !strings.HasPrefix(v.rec.Key, c.prefix) {
				break
			}
			if exist[v.rec.Key] = (existing{v.rec, v.running, v.revision, v.starts > 0}); len(exist) > MaxSet {
				return true, tooManyTasks(c.prefix)
			}
		}
		now, err := n.sureNow(ctx)
		if err != nil {
			return true, err
		}
		left := 0
		c.timed(now)
		plan, most := c.plan(exist, now, n.next), declareAtOnce
		if n.alone {
			most = max(len(plan), 1)
		}
		for some := range slices.Chunk(plan, most) {
			batches := make([]engine.Batch, len(some))
			for i, change := range some {
				batches[i] = engine.Batch{change.write()}
			}
			note, err := n.note(ctx, declaredNote+c.prefix)
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
				if result.Busy || result.Late != 0 || len(result.Unmet) > 0 {
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
