// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// Pauses describes the paused kinds, whose tasks run on no node. See [Scheduler.PauseKind].
type Pauses struct {
	All   bool     // every kind is paused; see [Scheduler.PauseAll]
	Kinds []string // individually paused kinds, sorted; see [Scheduler.PauseKind]
}

// Has reports whether the kind is paused, either individually or by All.
func (p Pauses) Has(kind string) bool {
	if p.All || len(p.Kinds) == 0 {
		return p.All
	}
	_, paused := slices.BinarySearch(p.Kinds, kind)
	return paused
}

// PauseKind prevents the tasks of a kind from running until [Scheduler.ResumeKind] is called. The pause is stored with
// the tasks and survives a restart of the process. Once PauseKind has returned nil, no run of the kind starts on this
// scheduler. After another two seconds, no run of the kind starts on any other node. A run in progress is not
// interrupted, and its result counts.
//
// Tasks of the kind can be added, changed and removed as usual. Tasks that fall due wait in the state [Waiting], and
// are overdue when the kind is resumed. They then run at the rate set by [WithCatchUp], and missed runs of repeating
// tasks are treated as after downtime ([WithMissed]). [Scheduler.Paused], KindInfo and KindCounts report that the kind
// is paused. Pausing a paused kind has no effect. The kind does not need a handler. All paused kinds together must fit
// in [engine.MaxNote]. If there is no room for another kind, or its name is invalid, the error wraps ErrInvalidTask.
func (s *Scheduler) PauseKind(ctx context.Context, kind string) error {
	if err := checkKind(kind); err != nil {
		return err
	}
	err := s.below.pause(ctx, func(p *Pauses) {
		if i, paused := slices.BinarySearch(p.Kinds, kind); !paused {
			p.Kinds = slices.Insert(slices.Clone(p.Kinds), i, kind)
		}
	})
	return stopped(err, "PauseKind", kind)
}

// ResumeKind ends the pause set by PauseKind. If all kinds are paused, the kind stays paused until ResumeAll is called.
// Resuming a kind that is not paused has no effect.
func (s *Scheduler) ResumeKind(ctx context.Context, kind string) error {
	err := s.below.pause(ctx, func(p *Pauses) {
		if i, paused := slices.BinarySearch(p.Kinds, kind); paused {
			p.Kinds = slices.Delete(slices.Clone(p.Kinds), i, i+1)
		}
	})
	return stopped(err, "ResumeKind", kind)
}

// PauseAll prevents all tasks from running until [Scheduler.ResumeAll] is called, as PauseKind does for one kind.
func (s *Scheduler) PauseAll(ctx context.Context) error {
	return stopped(s.below.pause(ctx, func(p *Pauses) { p.All = true }), "PauseAll", "")
}

// ResumeAll ends the pause set by PauseAll. A kind paused by PauseKind stays paused.
func (s *Scheduler) ResumeAll(ctx context.Context) error {
	return stopped(s.below.pause(ctx, func(p *Pauses) { p.All = false }), "ResumeAll", "")
}

// Paused returns the current pauses. A node reads them from the engine.
func (s *Scheduler) Paused(ctx context.Context) (Pauses, error) {
	if err := ctx.Err(); err != nil {
		return Pauses{}, err
	}
	if !s.reads.enter() {
		return Pauses{}, stopped(ErrStopped, "Paused", "")
	}
	defer s.reads.leave()
	p, err := s.below.paused(ctx)
	p.Kinds = slices.Clone(p.Kinds)
	return p, err
}

// checkKind returns an error that wraps ErrInvalidTask if name is not a valid name for a kind.
func checkKind(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: kind is empty", ErrInvalidTask)
	case len(name) > MaxKind:
		return fmt.Errorf("%w: kind of %d bytes; %d are allowed", ErrInvalidTask, len(name), MaxKind)
	case strings.Contains(name, task.ClassMark):
		return fmt.Errorf("%w: kind %q has the byte 0x1f, which separates the version of a payload", ErrInvalidTask, name)
	}
	return nil
}

func (p Pauses) equal(q Pauses) bool { return p.All == q.All && slices.Equal(p.Kinds, q.Kinds) }

// settings is the JSON form in which pauses are stored next to the tasks.
type settings struct {
	Version int      `json:"version"`
	All     bool     `json:"all,omitempty"`
	Kinds   [][]byte `json:"kinds,omitempty"` // a kind need not be UTF-8
}

const settingsVersion = 1

// encode returns the pauses encoded as settings.
func (p Pauses) encode() ([]byte, error) {
	s := settings{Version: settingsVersion, All: p.All}
	for _, kind := range p.Kinds {
		s.Kinds = append(s.Kinds, []byte(kind))
	}
	data, err := json.Marshal(s)
	if err == nil && len(data) > engine.MaxNote {
		err = fmt.Errorf("%w: %d paused kinds take %d bytes; %d are allowed",
			ErrInvalidTask, len(p.Kinds), len(data), engine.MaxNote)
	}
	return data, err
}

// decodePauses decodes pauses from settings. data may be empty.
func decodePauses(data []byte) (p Pauses, err error) {
	if len(data) == 0 {
		return p, nil
	}
	var s settings
	if err := json.Unmarshal(data, &s); err != nil {
		return p, fmt.Errorf("%w: settings: %w", ErrCorrupt, err)
	}
	if s.Version != settingsVersion {
		return p, fmt.Errorf("%w: settings of version %d; this program reads %d", ErrVersion, s.Version, settingsVersion)
	}
	p.All = s.All
	for _, kind := range s.Kinds {
		p.Kinds = append(p.Kinds, string(kind))
	}
	slices.Sort(p.Kinds)
	return p, nil
}

// The keeper's methods for pauses.

// pause stores the change and then applies it. It stores nothing if the pauses stay the same.
func (k *keeper) pause(ctx context.Context, change func(*Pauses)) error {
	return k.ask(ctx, op{size: MaxKey, do: func(g *group) error {
		was := k.kinds.pauses()
		if g.pauses != nil {
			was = *g.pauses
		}
		next := was
		if change(&next); next.equal(was) {
			return nil
		}
		data, err := next.encode()
		if err == nil {
			g.pauses, g.settings = &next, data
		}
		return err
	}})
}

func (k *keeper) paused(context.Context) (Pauses, error) { return k.kinds.pauses(), nil }

// adopt applies the pauses. It rereads tasks that were set aside if their kind is resumed, or if their kind is paused
// and has no handler.
func (k *keeper) adopt(p Pauses) {
	was := k.kinds.pause(p, k.now())
	again := func(kind string) {
		if was.Has(kind) != p.Has(kind) {
			k.readAgain(kind)
		}
	}
	for kind := range k.unhandled {
		again(kind)
	}
	for kind := range k.waiting {
		again(kind)
	}
}
