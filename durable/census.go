// SPDX-License-Identifier: MIT

package durable

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

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
	if n.alone {
		kinds, whole := n.owned.Counted()
		return newCensus(n.now(), whole, byKind(kinds)), nil
	}
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

// total returns the number of tasks and of parked tasks, as far as they have been counted.
func (n *node) total() (tasks, parked int) {
	counts, err := n.census(n.life)
	if err != nil {
		counts = n.counts.Last(n.era()).Value
	}
	tasks, parked = counts.sum()
	if n.alone {
		tasks = n.owned.Len()
	}
	return tasks, parked
}
