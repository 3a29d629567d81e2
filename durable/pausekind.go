// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// Pauses are the paused kinds, whose tasks run on no node. See [Scheduler.PauseKind].
type Pauses struct {
	All   bool     // every kind: [Scheduler.PauseAll]
	Kinds []string // single kinds, in order: [Scheduler.PauseKind]
}

// Has reports whether the kind is paused, either individually or by All.
func (p Pauses) Has(kind string) bool {
	if p.All || len(p.Kinds) == 0 {
		return p.All
	}
	_, paused := slices.BinarySearch(p.Kinds, kind)
	return paused
}

// PauseKind keeps the tasks of a kind from running until [Scheduler.ResumeKind]. The pause is stored with the tasks and
// survives the process. When PauseKind has returned nil, no run of the kind starts on this scheduler, and after two
// seconds none starts on any other node. A run in progress is not interrupted, and its result counts.
//
// Tasks of the kind can be added, changed and removed as usual. Tasks that fall due wait, with the State Waiting, and
// are overdue when the kind is resumed: they run at the rate of [WithCatchUp], and missed runs of repeating tasks are
// treated as after downtime ([WithMissed]). [Scheduler.Paused], KindInfo and KindCounts say that the kind is paused.
// Pausing a paused kind does nothing. The kind needs no handler. All paused kinds together must fit in
// [engine.MaxNote]. If one more does not fit, or its name is not valid, the error wraps ErrInvalidTask.
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

// ResumeKind ends a PauseKind. If all kinds are paused, the kind waits for ResumeAll. Resuming a kind that is not
// paused does nothing.
func (s *Scheduler) ResumeKind(ctx context.Context, kind string) error {
	err := s.below.pause(ctx, func(p *Pauses) {
		if i, paused := slices.BinarySearch(p.Kinds, kind); paused {
			p.Kinds = slices.Delete(slices.Clone(p.Kinds), i, i+1)
		}
	})
	return stopped(err, "ResumeKind", kind)
}

// PauseAll keeps all tasks from running until [Scheduler.ResumeAll], as PauseKind does for one kind.
func (s *Scheduler) PauseAll(ctx context.Context) error {
	return stopped(s.below.pause(ctx, func(p *Pauses) { p.All = true }), "PauseAll", "")
}

// ResumeAll ends a PauseAll. A kind paused by PauseKind stays paused.
func (s *Scheduler) ResumeAll(ctx context.Context) error {
	return stopped(s.below.pause(ctx, func(p *Pauses) { p.All = false }), "ResumeAll", "")
}

// Paused returns the current pauses. A node asks the engine for them.
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

// checkKind returns an error that wraps ErrInvalidTask if no kind can have that name.
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

// settings are stored next to the tasks, as JSON.
type settings struct {
	Version  int              `json:"version"`
	All      bool             `json:"all,omitempty"`
	Kinds    [][]byte         `json:"kinds,omitempty"`    // a kind need not be UTF-8
	Declared []declaredPrefix `json:"declared,omitempty"` // on a store
}

// A declaredPrefix is the version of a [TaskSet].
type declaredPrefix struct {
	Prefix  []byte `json:"prefix"` // it need not be UTF-8
	Version int64  `json:"version"`
}

const settingsVersion = 1

// encodeSettings returns the settings with the pauses and the versions of the declared sets.
func encodeSettings(p Pauses, declared map[string]int64) ([]byte, error) {
	s := settings{Version: settingsVersion, All: p.All}
	for _, kind := range p.Kinds {
		s.Kinds = append(s.Kinds, []byte(kind))
	}
	for _, prefix := range slices.Sorted(maps.Keys(declared)) {
		s.Declared = append(s.Declared, declaredPrefix{[]byte(prefix), declared[prefix]})
	}
	data, err := json.Marshal(s)
	if err == nil && len(data) > engine.MaxNote {
		err = fmt.Errorf("%w: %d paused kinds and %d declared sets take %d bytes; %d are allowed",
			ErrInvalidTask, len(p.Kinds), len(declared), len(data), engine.MaxNote)
	}
	return data, err
}

// decodeSettings returns the pauses and the versions of the settings, which may be empty.
func decodeSettings(data []byte) (p Pauses, declared map[string]int64, err error) {
	if len(data) == 0 {
		return p, nil, nil
	}
	var s settings
	if err := json.Unmarshal(data, &s); err != nil {
		return p, nil, fmt.Errorf("%w: settings: %w", ErrCorrupt, err)
	}
	if s.Version != settingsVersion {
		return p, nil, fmt.Errorf("%w: settings of version %d; this program reads %d", ErrVersion, s.Version, settingsVersion)
	}
	p.All = s.All
	for _, kind := range s.Kinds {
		p.Kinds = append(p.Kinds, string(kind))
	}
	slices.Sort(p.Kinds)
	for _, d := range s.Declared {
		if declared == nil {
			declared = make(map[string]int64)
		}
		declared[string(d.Prefix)] = d.Version
	}
	return p, declared, nil
}

// The keeper's part.

// pause stores the change, if it is one, and then applies it.
func (k *keeper) pause(ctx context.Context, change func(*Pauses)) error {
	return k.ask(ctx, op{size: MaxKey, do: func(g *group) error {
		was, declared := g.settingsNow()
		next := was
		if change(&next); next.equal(was) {
			return nil
		}
		data, err := encodeSettings(next, declared)
		if err == nil {
			g.pauses, g.settings = &next, data
		}
		return err
	}})
}

// settingsNow returns the pauses and the versions of the declared sets, as the operations of the group so far leave them.
func (g *group) settingsNow() (Pauses, map[string]int64) {
	p, declared := g.k.kinds.pauses(), g.k.declared
	if g.pauses != nil {
		p = *g.pauses
	}
	if g.declared != nil {
		declared = g.declared
	}
	return p, declared
}

func (k *keeper) paused(context.Context) (Pauses, error) { return k.kinds.pauses(), nil }

// adopt applies the pauses. It rereads the tasks that were set aside if their kind is resumed, or if it is paused and
// has no handler.
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
