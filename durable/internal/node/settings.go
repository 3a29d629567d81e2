// SPDX-License-Identifier: MIT

package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
)

// Settings apply to all schedulers on an engine. Their slices and maps are replaced and never modified.
type Settings struct {
	Pauses  Pauses
	Drained map[string]int64 // when nodes were drained, by name
	Tuning  Tuning
}

// A Tuning holds the numbers that operators have set in place of those in the code, as the type Tuning of package durable.
// A number of 0 is that of the code.
type Tuning struct {
	PoolSize, CatchUp int
	Limits            map[string]KindLimits // by kind
	By                map[string]Pause      // by TunedPool, TunedCatchUp, or TunedKind and the kind
}

// MostCatchUp is the greatest catch-up rate.
const MostCatchUp = 1_000_000

// The keys of Tuning.By.
const (
	TunedPool    = "pool size"
	TunedCatchUp = "catch-up"
	TunedKind    = "kind "
)

func (t Tuning) equal(u Tuning) bool {
	return t.PoolSize == u.PoolSize && t.CatchUp == u.CatchUp && maps.Equal(t.Limits, u.Limits)
}

// Set sets what the key names by the function, on copies of the maps. is reports whether a number is set.
func (t *Tuning) Set(key string, by Pause, is bool, set func(t *Tuning)) {
	t.Limits, t.By = maps.Clone(t.Limits), maps.Clone(t.By)
	if t.Limits == nil {
		t.Limits = make(map[string]KindLimits)
	}
	if t.By == nil {
		t.By = make(map[string]Pause)
	}
	set(t)
	if delete(t.By, key); is {
		t.By[key] = by
	}
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
	return s.Pauses.equal(as.Pauses) && maps.Equal(s.Drained, as.Drained) && s.Tuning.equal(as.Tuning)
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

	PoolSize *tunedNumber `json:"pool_size,omitempty"`
	CatchUp  *tunedNumber `json:"catch_up,omitempty"`
	Limits   []tunedKind  `json:"limits,omitempty"`
}

type tunedNumber struct {
	Number int `json:"number"`
	storedPause
}

type tunedKind struct {
	Kind    []byte      `json:"kind"`
	Here    limit.Bound `json:"here,omitzero"`
	Cluster limit.Bound `json:"cluster,omitzero"`
	storedPause
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
	t := s.Tuning
	number := func(n int, key string) *tunedNumber {
		if n == 0 {
			return nil
		}
		return &tunedNumber{n, storedPause(t.By[key])}
	}
	stored.PoolSize, stored.CatchUp = number(t.PoolSize, TunedPool), number(t.CatchUp, TunedCatchUp)
	for _, kind := range slices.Sorted(maps.Keys(t.Limits)) {
		l := t.Limits[kind]
		stored.Limits = append(stored.Limits, tunedKind{[]byte(kind), l.Here, l.Cluster, storedPause(t.By[TunedKind+kind])})
	}
	data, err := json.Marshal(stored)
	if err == nil && len(data) > engine.MaxNote {
		err = fmt.Errorf("%w: %d paused kinds, %d drained nodes and the limits of %d kinds take %d bytes; %d are allowed",
			ErrInvalidTask, len(s.Pauses.Kinds), len(s.Drained), len(t.Limits), len(data), engine.MaxNote)
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
	for _, n := range []*tunedNumber{stored.PoolSize, stored.CatchUp} {
		if n != nil && (n.Number <= 0 || n == stored.CatchUp && n.Number > MostCatchUp) {
			return s, fmt.Errorf("%w: settings: the number %d", ErrCorrupt, n.Number)
		}
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
	if n := stored.PoolSize; n != nil {
		s.Tuning.Set(TunedPool, Pause(n.storedPause), true, func(t *Tuning) { t.PoolSize = n.Number })
	}
	if n := stored.CatchUp; n != nil {
		s.Tuning.Set(TunedCatchUp, Pause(n.storedPause), true, func(t *Tuning) { t.CatchUp = n.Number })
	}
	for _, l := range stored.Limits {
		kind := string(l.Kind)
		s.Tuning.Set(TunedKind+kind, Pause(l.storedPause), true, func(t *Tuning) { t.Limits[kind] = KindLimits{kind, l.Here, l.Cluster} })
	}
	return s, nil
}
