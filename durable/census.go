// SPDX-License-Identifier: MIT

package durable

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A census counts a keeper's tasks. It counts changes as they happen, and existing tasks in the background. Both are
// added to the same totals, so their order does not matter.
type census struct {
	mu    sync.Mutex // protects the fields below
	of    engine.Tally
	whole bool
}

// change updates the counts for the given changes.
func (c *census) change(all []touched) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range all {
		if was, is := all[i].was, all[i].now; was != nil && is != nil && was.Kind == is.Kind &&
			!was.Failing() && !is.Failing() && was.Paused == 0 && is.Paused == 0 {
			continue // the task moved to its next run, which changes no count
		}
		c.addLocked(all[i].was, -1)
		c.addLocked(all[i].now, 1)
	}
}

func (c *census) addLocked(rec *task.Record, n int) {
	if rec == nil {
		return
	}
	if c.of == nil {
		c.of = make(engine.Tally)
	}
	c.of.Add(rec.Kind, rec.Due, rec.Failing(), n)
}

// finish records that the background count is complete.
func (c *census) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whole = true
}

// take returns the current counts; now is the current time.
func (c *census) take(now int64) Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return newCensus(now, c.whole, byKind(c.of.Kinds()))
}

// newCensus returns Counts that contain only the kinds that have tasks.
func newCensus(now int64, whole bool, kinds []KindCounts) Counts {
	for i := range kinds { // a task may have been removed before it was counted
		k := &kinds[i]
		k.Tasks, k.Failing = max(k.Tasks, 0), max(k.Failing, 0)
		k.Parked, k.Paused = max(k.Parked, 0), max(k.Paused, 0)
	}
	kinds = slices.DeleteFunc(kinds, func(k KindCounts) bool { return k.Tasks == 0 })
	slices.SortFunc(kinds, func(a, b KindCounts) int { return cmp.Compare(a.Kind, b.Kind) })
	return Counts{At: time.Unix(0, now), Whole: whole, Kinds: kinds}
}

// sum returns the total number of tasks and the number of parked tasks.
func (c Counts) sum() (tasks, parked int) {
	for _, k := range c.Kinds {
		tasks += k.Tasks
		parked += k.Parked
	}
	return tasks, parked
}

func (n *node) census(ctx context.Context) (Counts, error) {
	era := n.era()
	counted := n.counts.Ask(era, func(ctx context.Context) (Counts, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(n.life, cancel)()
		begun := time.Now() // by the clock that measures the age of the count
		kinds, err := engine.Count(ctx, n.engine)
		if err != nil {
			return Counts{}, err
		}
		return newCensus(begun.UnixNano(), true, byKind(kinds)), nil
	})
	if err := await(ctx, counted); err != nil {
		return Counts{}, err
	}
	last := n.counts.Last(era)
	if last.Err != nil {
		return Counts{}, n.unavailable(ctx, last.Err)
	}
	last.Value.Whole = !last.Old
	return last.Value, nil
}

func (n *node) era() uint64 { return n.outages.Load() }

// len returns the number of tasks as of the last count.
func (n *node) len() int {
	_, _ = n.census(n.life)
	tasks, _ := n.counts.Last(n.era()).Value.sum()
	return tasks
}
