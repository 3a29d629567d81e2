// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A Tuning holds the numbers that operators have set in place of those in the code. They are stored with the tasks, apply to
// every scheduler on the engine within two seconds, and survive a restart and a deployment, until they are reset. A
// number that is 0 is that of the code. A program of a version without these methods ignores them, and deletes them when it
// pauses a kind or drains a node.
type Tuning struct {
	PoolSize int              // as in [WithPoolSize], on each scheduler
	CatchUp  int              // as in [WithCatchUp]
	Limits   []KindLimits     // of kinds, by name
	By       map[string]Pause // who set what: the key is "pool size", "catch-up", or "kind " and the name of a kind
}

// Tuned returns the numbers that operators have set. A node reads them from the engine.
func (s *Scheduler) Tuned(ctx context.Context) (Tuning, error) {
	if err := ctx.Err(); err != nil {
		return Tuning{}, err
	}
	if !s.reads.Enter() {
		return Tuning{}, failed(ErrStopped, "Tuned", "")
	}
	defer s.reads.Leave()
	t, err := s.node.Tuned(ctx)
	all := Tuning{PoolSize: t.PoolSize, CatchUp: t.CatchUp, By: newBy(t.By)}
	for _, kind := range slices.Sorted(maps.Keys(t.Limits)) {
		l := t.Limits[kind]
		all.Limits = append(all.Limits, KindLimits{kind, Limit(l.Here), Limit(l.Cluster)})
	}
	return all, err
}

// TunePoolSize sets how many handlers may run at once on each scheduler of the engine, in place of [WithPoolSize]. 0 resets
// it. If the number becomes smaller, no run is interrupted, and none starts until fewer are in progress.
func (s *Scheduler) TunePoolSize(ctx context.Context, n int, opts ...PauseOption) error {
	return s.tune(ctx, "TunePoolSize", node.TunedPool, n, opts, func(t *node.Tuning) { t.PoolSize = n })
}

// TuneCatchUp sets how many overdue tasks may start per second on all nodes together, in place of [WithCatchUp]. 0 resets
// it. The maximum is a million.
func (s *Scheduler) TuneCatchUp(ctx context.Context, n int, opts ...PauseOption) error {
	n = min(n, node.MostCatchUp)
	return s.tune(ctx, "TuneCatchUp", node.TunedCatchUp, n, opts, func(t *node.Tuning) { t.CatchUp = n })
}

// tune sets a number, or resets it if it is 0.
func (s *Scheduler) tune(ctx context.Context, what, key string, n int, opts []PauseOption, set func(*node.Tuning)) error {
	if n < 0 {
		return failed(fmt.Errorf("%w: %s of %d", ErrInvalidTask, key, n), what, "")
	}
	return failed(s.tuneBy(ctx, key, n > 0, opts, set), what, "")
}

func (s *Scheduler) tuneBy(ctx context.Context, key string, is bool, opts []PauseOption, set func(*node.Tuning)) error {
	by, err := s.by(opts)
	if err != nil {
		return err
	}
	return s.node.Change(ctx, func(to *node.Settings) { to.Tuning.Set(key, by, is, set) })
}

// TuneLimits sets the numbers of the limits of a kind, in place of [WithConcurrency], [WithRate], [WithClusterConcurrency] and
// [WithClusterRate]. It replaces what an earlier call has set for the kind. A number of 0 stays as in the code, and so does
// the Per and the Burst of a rate that are 0. A kind gets no limit that its code does not have. The zero value of both
// limits resets the kind.
//
// A limit across all nodes that becomes smaller holds once every node knows it, within two seconds, and as many runs as
// the new limit allows are in progress: no run is interrupted.
func (s *Scheduler) TuneLimits(ctx context.Context, l KindLimits, opts ...PauseOption) error {
	err := task.CheckKind(l.Kind)
	for _, of := range []Limit{l.Here, l.Cluster} {
		if err == nil && (of.Concurrency < 0 || of.Rate < 0 || of.Per < 0 || of.Burst < 0) {
			err = fmt.Errorf("%w: the limit %+v has a negative number", ErrInvalidTask, of)
		}
	}
	if err != nil {
		return failed(err, "TuneLimits", l.Kind)
	}
	is := l.Here != (Limit{}) || l.Cluster != (Limit{})
	return failed(s.tuneBy(ctx, node.TunedKind+l.Kind, is, opts, func(t *node.Tuning) {
		if delete(t.Limits, l.Kind); is {
			t.Limits[l.Kind] = node.KindLimits{Kind: l.Kind, Here: limit.Bound(l.Here), Cluster: limit.Bound(l.Cluster)}
		}
	}), "TuneLimits", l.Kind)
}
