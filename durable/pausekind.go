// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// Pauses describes the paused kinds, whose tasks run on no node. See [Scheduler.PauseKind].
type Pauses struct {
	All   bool     // every kind is paused; see [Scheduler.PauseAll]
	Kinds []string // individually paused kinds, sorted; see [Scheduler.PauseKind]

	By map[string]Pause // when and by whom, by kind; the pause of all kinds has the empty key
}

// A Pause says when a kind, or all kinds, were paused, and by whom.
type Pause struct {
	At  time.Time // by the engine's clock
	Who string    // as in [By]
	Why string
}

// Has reports whether the kind is paused, either individually or by All.
func (p Pauses) Has(kind string) bool { return node.Pauses{All: p.All, Kinds: p.Kinds}.Has(kind) }

func newPauses(p node.Pauses) Pauses {
	return Pauses{All: p.All, Kinds: slices.Clone(p.Kinds), By: newBy(p.By)}
}

func newBy(of map[string]node.Pause) map[string]Pause {
	all := make(map[string]Pause, len(of))
	for key, by := range of {
		all[key] = Pause{time.Unix(0, by.At), by.Who, by.Why}
	}
	return all
}

// A PauseOption says something about a pause, or about a change by one of the methods Tune….
type PauseOption func(*node.Pause)

// By says who pauses, and why, for the page, the command and [Scheduler.Paused]. who may have up to 100 bytes, and why up
// to 200; both must be valid UTF-8.
func By(who, why string) PauseOption {
	return func(p *node.Pause) { p.Who, p.Why = who, why }
}

const (
	maxWho = 100
	maxWhy = 200
)

// pause pauses a kind, or all kinds if it is empty.
func (s *Scheduler) pause(ctx context.Context, kind string, opts []PauseOption) error {
	by, err := s.by(opts)
	if err != nil {
		return err
	}
	return s.node.Change(ctx, func(to *node.Settings) { to.Pauses.Set(kind, by) })
}

// by returns who does something now, and why.
func (s *Scheduler) by(opts []PauseOption) (node.Pause, error) {
	by := node.Pause{At: s.node.Now()}
	for _, opt := range opts {
		opt(&by)
	}
	if len(by.Who) > maxWho || len(by.Why) > maxWhy || !utf8.ValidString(by.Who+by.Why) {
		return by, fmt.Errorf("%w: who may have %d bytes, and why %d, in UTF-8", ErrInvalidTask, maxWho, maxWhy)
	}
	return by, nil
}

// PauseKind prevents the tasks of a kind from running until [Scheduler.ResumeKind] is called. The pause is stored with
// the tasks and survives a restart of the process. Once PauseKind has returned nil, no run of the kind starts on this
// scheduler. After another two seconds, no run of the kind starts on any other node. A run in progress is not
// interrupted, and its result counts.
//
// Tasks of the kind can be added, changed and removed as usual. Tasks that fall due wait in the state [Waiting], and
// are overdue when the kind is resumed. They then run at the rate set by [WithCatchUp], and missed runs of repeating
// tasks are treated as they are after downtime ([WithMissed]). [Scheduler.Paused], KindInfo and KindCounts report that
// the kind is paused. [By] says by whom. Pausing a paused kind has no effect. The kind does not need a handler. All
// paused kinds together must fit in [engine.MaxNote]. If there is no room for another kind, or its name is invalid, the
// error wraps ErrInvalidTask.
func (s *Scheduler) PauseKind(ctx context.Context, kind string, opts ...PauseOption) error {
	if err := task.CheckKind(kind); err != nil {
		return err
	}
	return failed(s.pause(ctx, kind, opts), "PauseKind", kind)
}

// ResumeKind ends the pause set by PauseKind. If PauseAll is also in effect, the kind stays paused until ResumeAll is
// called. Resuming a kind that is not paused has no effect.
func (s *Scheduler) ResumeKind(ctx context.Context, kind string) error {
	err := s.node.Change(ctx, func(to *node.Settings) {
		if kind != "" { // which would end the pause of all kinds
			to.Pauses.End(kind)
		}
	})
	return failed(err, "ResumeKind", kind)
}

// PauseAll prevents all tasks from running until [Scheduler.ResumeAll] is called, as PauseKind does for one kind.
func (s *Scheduler) PauseAll(ctx context.Context, opts ...PauseOption) error {
	return failed(s.pause(ctx, "", opts), "PauseAll", "")
}

// ResumeAll ends the pause set by PauseAll. A kind paused by PauseKind stays paused.
func (s *Scheduler) ResumeAll(ctx context.Context) error {
	return failed(s.node.Change(ctx, func(to *node.Settings) { to.Pauses.End("") }), "ResumeAll", "")
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
	return newPauses(p), err
}
