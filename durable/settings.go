// SPDX-License-Identifier: MIT

package durable

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// settings apply to all schedulers on an engine. Their slices and maps are replaced and never modified.
type settings struct {
	pauses  Pauses
	drained map[string]int64 // when nodes were drained, by name
}

func (s settings) equal(as settings) bool {
	return s.pauses.equal(as.pauses) && maps.Equal(s.drained, as.drained)
}

// storedSettings is the JSON form of settings. Kinds and names are byte slices because they need not be
// UTF-8.
type storedSettings struct {
	Version int           `json:"version"`
	All     bool          `json:"all,omitempty"`
	Kinds   [][]byte      `json:"kinds,omitempty"`
	Drained []drainedNode `json:"drained,omitempty"`
}

type drainedNode struct {
	Name []byte `json:"name"`
	At   int64  `json:"at"` // by the engine's clock
}

const settingsVersion = 1

func (s settings) encode() ([]byte, error) {
	stored := storedSettings{Version: settingsVersion, All: s.pauses.All}
	for _, kind := range s.pauses.Kinds {
		stored.Kinds = append(stored.Kinds, []byte(kind))
	}
	for _, name := range slices.Sorted(maps.Keys(s.drained)) {
		stored.Drained = append(stored.Drained, drainedNode{[]byte(name), s.drained[name]})
	}
	data, err := json.Marshal(stored)
	if err == nil && len(data) > engine.MaxNote {
		err = fmt.Errorf("%w: %d paused kinds and %d drained nodes take %d bytes; %d are allowed",
			ErrInvalidTask, len(s.pauses.Kinds), len(s.drained), len(data), engine.MaxNote)
	}
	return data, err
}

// decodeSettings decodes settings, which may be empty.
func decodeSettings(data []byte) (s settings, err error) {
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
	s.pauses.All = stored.All
	for _, kind := range stored.Kinds {
		s.pauses.Kinds = append(s.pauses.Kinds, string(kind))
	}
	slices.Sort(s.pauses.Kinds)
	for _, d := range stored.Drained {
		if s.drained == nil {
			s.drained = make(map[string]int64)
		}
		s.drained[string(d.Name)] = d.At
	}
	return s, nil
}
