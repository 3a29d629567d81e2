// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"slices"

	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// Pauses describes the paused kinds, whose tasks run on no node. See [Scheduler.PauseKind].
type Pauses struct {
	All   bool     // every kind is paused; see [Scheduler.PauseAll]
	Kinds []string // individually paused kinds, sorted; see [Scheduler.PauseKind]
}

// Has reports whether the kind is paused, either individually or by All.
func (p Pauses) Has(kind string) bool { return node.Pauses(p).Has(kind) }

// PauseKind prevents the tasks of a kind from running until [Scheduler.ResumeKind] is called. The pause is stored with
// the tasks and survives a restart of the process. Once PauseKind has returned nil, no run of the kind starts on this
// scheduler. After another two seconds, no run of the kind starts on any other node. A run in progress is not
// interrupted, and its result counts.
//
// Tasks of the kind can be added, changed and removed as usual. Tasks that fall due wait in the state [Waiting], and
// are overdue when the kind is resumed. They then run at the rate set by [WithCatchUp], and missed runs of repeating
// tasks are treated as they are after downtime ([WithMissed]). [Scheduler.Paused], KindInfo and KindCounts report that
// the kind is paused. Pausing a paused kind has no effect. The kind does not need a handler. All paused kinds together
// must fit in [engine.MaxNote]. If there is no room for another kind, or its name is invalid, the error wraps
// ErrInvalidTask.
func (s *Scheduler) PauseKind(ctx context.Context, kind string) error {
	if err := task.CheckKind(kind); err != nil {
		return err
	}
	err := s.node.Change(ctx, func(to *node.Settings) {
		if i, paused := slices.BinarySearch(to.Pauses.Kinds, kind); !paused {
			to.Pauses.Kinds = slices.Insert(slices.Clone(to.Pauses.Kinds), i, kind)
		}
	})
	return failed(err, "PauseKind", kind)
}

// ResumeKind ends the pause set by PauseKind. If PauseAll is also in effect, the kind stays paused until ResumeAll is
// called. Resuming a kind that is not paused has no effect.
func (s *Scheduler) ResumeKind(ctx context.Context, kind string) error {
	err := s.node.Change(ctx, func(to *node.Settings) {
		if i, paused := slices.BinarySearch(to.Pauses.Kinds, kind); paused {
			to.Pauses.Kinds = slices.Delete(slices.Clone(to.Pauses.Kinds), i, i+1)
		}
	})
	return failed(err, "ResumeKind", kind)
}

// PauseAll prevents all tasks from running until [Scheduler.ResumeAll] is called, as PauseKind does for one kind.
func (s *Scheduler) PauseAll(ctx context.Context) error {
	return failed(s.node.Change(ctx, func(to *node.Settings) { to.Pauses.All = true }), "PauseAll", "")
}

// ResumeAll ends the pause set by PauseAll. A kind paused by PauseKind stays paused.
func (s *Scheduler) ResumeAll(ctx context.Context) error {
	return failed(s.node.Change(ctx, func(to *node.Settings) { to.Pauses.All = false }), "ResumeAll", "")
}

// Paused returns the current pauses. A node reads them from the engine.
func (s *Scheduler) Paused(ctx context.Context) (Pauses, error) {
	if err := ctx.Err(); err != nil {
		return Pauses{}, err
	}
	if !s.reads.Enter() {
		return Pauses{}, failed(ErrStopped, "Paused", "")
	}
	defer s.reads.Leave()
	p, err := s.node.Paused(ctx)
	return Pauses{p.All, slices.Clone(p.Kinds)}, err
}
