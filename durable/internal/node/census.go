// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
	"github.com/seed581295f1/timewheel/internal/recent"
)

// A Census holds the number of tasks of each kind.
type Census struct {
	At    time.Time // as in the type Counts of package durable
	Whole bool
	Kinds []engine.KindCount // those with tasks, sorted
}

// A census is what a node knows about the number of tasks.
type census struct {
	counts  recent.Of[Census]
	outages atomic.Uint64 // number of past outages
}

// newCensus returns a census of an engine's counts, which are by class.
func newCensus(at time.Time, whole bool, classes []engine.KindCount) Census {
	of := make(map[string]engine.KindCount)
	for _, c := range classes {
		kind, _, _ := strings.Cut(c.Kind, task.ClassMark)
		k := of[kind]
		of[kind] = engine.KindCount{
			Kind: kind, Tasks: k.Tasks + c.Tasks, Failing: k.Failing + c.Failing, Parked: k.Parked + c.Parked, Paused: k.Paused + c.Paused,
		}
	}
	c := Census{At: at, Whole: whole}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		k := of[name]
		k.Failing, k.Parked, k.Paused = max(k.Failing, 0), max(k.Parked, 0), max(k.Paused, 0) // a task may have been removed before it was counted
		if k.Tasks > 0 {
			c.Kinds = append(c.Kinds, k)
		}
	}
	return c
}

// countTimeout is the time limit for a census.
const countTimeout = time.Minute

// Census counts the tasks, or returns the last count.
func (n *Node) Census(ctx context.Context) (Census, error) {
	if n.alone {
		kinds, whole := n.owned.Counted()
		return newCensus(time.Unix(0, n.Now()), whole, kinds), nil
	}
	era := n.Era()
	counted := n.counts.Ask(era, func(ctx context.Context) (Census, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(n.life, cancel)()
		begun := time.Now() // by the clock that measures the age of the count
		kinds, err := engine.Count(ctx, n.engine)
		if err != nil {
			return Census{}, err
		}
		return newCensus(begun, true, kinds), nil
	})
	if err := Await(ctx, counted); err != nil {
		return Census{}, err
	}
	last := n.counts.Last(era)
	if last.Err != nil {
		return Census{}, n.unavailable(ctx, last.Err)
	}
	last.Value.Whole = !last.Old
	return last.Value, nil
}

// Era returns a number that changes when an outage of the engine ends.
func (n *Node) Era() uint64 { return n.outages.Load() }

// Total returns the number of tasks and of parked tasks, as far as they have been counted.
func (n *Node) Total() (tasks, parked int) {
	counts, err := n.Census(n.life)
	if err != nil {
		counts = n.counts.Last(n.Era()).Value
	}
	for _, k := range counts.Kinds {
		tasks += k.Tasks
		parked += k.Parked
	}
	if n.alone {
		tasks = n.owned.Len()
	}
	return tasks, parked
}
