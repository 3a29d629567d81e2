// SPDX-License-Identifier: MIT

// Package series keeps what the processes have done in the last hour: a number of runs for each kind and minute. Each
// process writes its own note,
//
//	hour/  random number
//
// once a minute, if there is something new in it, and when it ends. The name sorts before the notes that nodes read
// periodically. A process that starts again has another note with the same node name. So no process reads a note in order to
// write it, and two processes with one name keep separate numbers. Any process deletes a note that was not written for an
// hour.
package series

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/past"
)

const (
	notePrefix = "hour/"
	version    = 1

	minute = int64(time.Minute)

	// Minutes is how many minutes a process keeps.
	Minutes = 60

	// MostKinds is how many kinds a note has. The numbers of all further kinds are added up under the name "". So a note has
	// 5 KiB if five kinds are busy, and 20 KiB if all are.
	MostKinds = 16
)

// An Hour is the last hour of a process.
type Hour struct {
	Node    string
	Started int64 // by the engine's clock
	Ended   int64 // 0 if the process is running, or has not ended properly
	Kinds   []Kind
}

// A Kind holds the minutes of a kind in which it had runs or overdue tasks, oldest first.
type Kind struct {
	Name    string
	Minutes []Minute
}

// A Minute holds the numbers of a kind in a minute.
type Minute struct {
	At int64 // in minutes since 1970, by the engine's clock
	Numbers
}

// Numbers are the runs of a kind that have ended, and its overdue tasks. Overdue is negative if it is not known.
type Numbers struct {
	Succeeded, Failed uint64
	Overdue           int
}

// add adds other numbers of the same minute.
func (n *Numbers) add(other Numbers) {
	n.Succeeded += other.Succeeded
	n.Failed += other.Failed
	if n.Overdue < 0 || other.Overdue < 0 {
		n.Overdue = max(n.Overdue, other.Overdue)
		return
	}
	n.Overdue += other.Overdue
}

// A stored is the content of a note. Minute stays readable in all versions, because a process of any version deletes old
// notes.
type stored struct {
	Version int          `json:"version"`
	Minute  int64        `json:"minute"` // the last one
	Node    string       `json:"node"`
	Started int64        `json:"started"`
	Ended   int64        `json:"ended,omitempty"`
	Kinds   []storedKind `json:"kinds,omitempty"`
}

// The name of a storedKind need not be UTF-8. Each of its minutes is the number of minutes before stored.Minute, and the
// Numbers.
type storedKind struct {
	Name    []byte     `json:"name,omitempty"`
	Minutes [][4]int64 `json:"minutes"`
}

// encode returns the content of the note, whose last minute is given.
func (h Hour) encode(last int64) ([]byte, error) {
	s := stored{version, last, h.Node, h.Started, h.Ended, nil}
	for _, k := range h.busiest() {
		of := storedKind{Name: []byte(k.Name)}
		for _, m := range k.Minutes {
			of.Minutes = append(of.Minutes, [4]int64{last - m.At, int64(m.Succeeded), int64(m.Failed), int64(m.Overdue)})
		}
		s.Kinds = append(s.Kinds, of)
	}
	return json.Marshal(s)
}

// busiest returns the kinds with the most runs. The last one has the numbers of all others, if there are more than
// MostKinds.
func (h Hour) busiest() []Kind {
	runs := func(k Kind) (n uint64) {
		for _, m := range k.Minutes {
			n += m.Succeeded + m.Failed
		}
		return n
	}
	kinds := slices.SortedFunc(slices.Values(h.Kinds), func(a, b Kind) int {
		return cmp.Or(cmp.Compare(runs(b), runs(a)), cmp.Compare(a.Name, b.Name))
	})
	if len(kinds) <= MostKinds {
		return kinds
	}
	others := make(map[int64]Numbers)
	for _, k := range kinds[MostKinds:] {
		for _, m := range k.Minutes {
			of, known := others[m.At]
			if !known {
				of.Overdue = -1
			}
			of.add(m.Numbers)
			others[m.At] = of
		}
	}
	rest := Kind{}
	for at, of := range others {
		rest.Minutes = append(rest.Minutes, Minute{at, of})
	}
	slices.SortFunc(rest.Minutes, func(a, b Minute) int { return cmp.Compare(a.At, b.At) })
	return append(kinds[:MostKinds:MostKinds], rest)
}

// hour returns the last hour of the process, without the minutes that are not in the hour before now.
func (s stored) hour(now int64) Hour {
	h := Hour{s.Node, s.Started, s.Ended, nil}
	for _, k := range s.Kinds {
		of := Kind{Name: string(k.Name)}
		for _, m := range k.Minutes {
			if at := s.Minute - m[0]; isLately(at, now) {
				of.Minutes = append(of.Minutes, Minute{at, Numbers{uint64(m[1]), uint64(m[2]), int(m[3])}})
			}
		}
		if len(of.Minutes) > 0 {
			h.Kinds = append(h.Kinds, of)
		}
	}
	return h
}

// isLately reports whether the minute is in the hour before now, or in the hour after it, because clocks differ.
func isLately(at, now int64) bool { return at >= now/minute-Minutes && at < now/minute+Minutes }

// Read returns the last hour of each process, by node name and start. It omits notes of other versions.
func Read(ctx context.Context, from past.Notebook, now int64) (all []Hour, err error) {
	for note, err := range from.Read(ctx, engine.Range{From: notePrefix, To: past.AfterPrefix(notePrefix)}) {
		if err != nil {
			return nil, err
		}
		var s stored
		if json.Unmarshal(note.Data, &s) == nil && s.Version == version && isLately(s.Minute, now) {
			all = append(all, s.hour(now))
		}
	}
	slices.SortFunc(all, func(a, b Hour) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Started, b.Started))
	})
	return all, nil
}

// sweep deletes the notes that nothing was written to for an hour, and unreadable notes.
func sweep(ctx context.Context, notes past.Notebook, now int64) error {
	var old []engine.Record
	for note, err := range notes.Read(ctx, engine.Range{From: notePrefix, To: past.AfterPrefix(notePrefix)}) {
		if err != nil {
			return err
		}
		var s stored
		if json.Unmarshal(note.Data, &s) != nil || !isLately(s.Minute, now) {
			old = append(old, engine.Record{Key: note.Key})
		}
	}
	if len(old) == 0 {
		return nil
	}
	return notes.Write(ctx, old)
}

// newName returns the name of a new note.
func newName() string {
	return string(binary.BigEndian.AppendUint64([]byte(notePrefix), rand.Uint64()))
}
