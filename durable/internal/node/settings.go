// SPDX-License-Identifier: MIT

package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// Settings apply to all schedulers on an engine. Their slices and maps are replaced and never modified.
type Settings struct {
	Pauses  Pauses
	Drained map[string]int64 // when nodes were drained, by name
}

// Pauses describes the paused kinds, as the type Pauses of package durable.
type Pauses struct {
	All   bool
	Kinds []string         // sorted
	By    map[string]Pause // by kind; that of All has no kind
}

// A Pause says when kinds were paused, and by whom.
type Pause struct {
	At  int64 // by the engine's clock
	Who string
	Why string
}

// Set pauses the kind, or all kinds if it is empty, unless it is paused.
func (p *Pauses) Set(kind string, by Pause) {
	i, paused := slices.BinarySearch(p.Kinds, kind)
	switch {
	case kind == "" && p.All, kind != "" && paused:
		return
	case kind == "":
		p.All = true
	default:
		p.Kinds = slices.Insert(slices.Clone(p.Kinds), i, kind)
	}
	if p.By = maps.Clone(p.By); p.By == nil {
		p.By = make(map[string]Pause)
	}
	p.By[kind] = by
}

// End ends the pause of the kind, or that of all kinds if it is empty.
func (p *Pauses) End(kind string) {
	if kind == "" {
		p.All = false
	} else if i, paused := slices.BinarySearch(p.Kinds, kind); paused {
		p.Kinds = slices.Delete(slices.Clone(p.Kinds), i, i+1)
	}
	p.By = maps.Clone(p.By)
	delete(p.By, kind)
}

// Has reports whether the kind is paused, either individually or by All.
func (p Pauses) Has(kind string) bool {
	if p.All || len(p.Kinds) == 0 {
		return p.All
	}
	_, paused := slices.BinarySearch(p.Kinds, kind)
	return paused
}

func (p Pauses) equal(q Pauses) bool { return p.All == q.All && slices.Equal(p.Kinds, q.Kinds) }

func (s Settings) equal(as Settings) bool {
	return s.Pauses.equal(as.Pauses) && maps.Equal(s.Drained, as.Drained)
}

// storedSettings is the JSON form of settings. Kinds and names are byte slices because they need not be
// UTF-8.
type storedSettings struct {
	Version int           `json:"version"`
	All     bool          `json:"all,omitempty"`
	Kinds   [][]byte      `json:"kinds,omitempty"`
	AllBy   *storedPause  `json:"all_by,omitempty"`
	By      []storedPause `json:"by,omitempty"` // in the order of Kinds
	Drained []drainedNode `json:"drained,omitempty"`
}

type storedPause struct {
	At  int64  `json:"at"` // by the engine's clock
	Who string `json:"who,omitempty"`
	Why string `json:"why,omitempty"`
}

type drainedNode struct {
	Name []byte `json:"name"`
	At   int64  `json:"at"` // by the engine's clock
}

const settingsVersion = 1

func (s Settings) encode() ([]byte, error) {
	stored := storedSettings{Version: settingsVersion, All: s.Pauses.All}
	for _, kind := range s.Pauses.Kinds {
		stored.Kinds = append(stored.Kinds, []byte(kind))
		stored.By = append(stored.By, storedPause(s.Pauses.By[kind]))
	}
	if by, known := s.Pauses.By[""]; known {
		all := storedPause(by)
		stored.AllBy = &all
	}
	for _, name := range slices.Sorted(maps.Keys(s.Drained)) {
		stored.Drained = append(stored.Drained, drainedNode{[]byte(name), s.Drained[name]})
	}
	data, err := json.Marshal(stored)
	if err == nil && len(data) > engine.MaxNote {
		err = fmt.Errorf("%w: %d paused kinds and %d drained nodes take %d bytes; %d are allowed",
			ErrInvalidTask, len(s.Pauses.Kinds), len(s.Drained), len(data), engine.MaxNote)
	}
	return data, err
}

// decodeSettings decodes settings, which may be empty.
func decodeSettings(data []byte) (s Settings, err error) {
	if len(data) == 0 {
		return s, nil
	}
	var stored storedSettings
	if err := json.Unmarshal(data, &stored); err != nil {
		return s, fmt.Errorf("%w: settings: %w", ErrCorrupt, err)
	}
	if stored.Version != settingsVersion {
		return s, fmt.Errorf("%w: settings of version %d; this program reads %d", ErrVersion, stored.Version, settingsVersion)
	}
	s.Pauses.All = stored.All
	for _, kind := range stored.Kinds {
		s.Pauses.Kinds = append(s.Pauses.Kinds, string(kind))
	}
	s.Pauses.By = make(map[string]Pause)
	for i, by := range stored.By[:min(len(stored.By), len(stored.Kinds))] {
		s.Pauses.By[s.Pauses.Kinds[i]] = Pause(by)
	}
	if stored.AllBy != nil {
		s.Pauses.By[""] = Pause(*stored.AllBy)
	}
	slices.Sort(s.Pauses.Kinds)
	for _, d := range stored.Drained {
		if s.Drained == nil {
			s.Drained = make(map[string]int64)
		}
		s.Drained[string(d.Name)] = d.At
	}
	return s, nil
}
