// SPDX-License-Identifier: MIT

package pebble

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/seed581295f1/timewheel/durable"
)

// Salvage reads a store that can no longer be opened and calls fn with every intact task it finds. It writes nothing,
// takes no lock and does not open the store with Pebble. No process may have the store open during the call.
//
// Salvage reads only the tables (*.sst) and logs (*.log) in the directory. The state of MANIFEST, OPTIONS, FORMAT,
// INVENTORY, COMMITTED and the marker files does not matter. If a block of a table is damaged, the rows in that block
// are lost. If a chunk of a log is damaged, the rest of its commit is lost. The last commit in a log counts only if it
// is complete.
//
// Every row in a table or log carries the number of the write that created it. For each row, Salvage uses the version
// with the highest number, even if that version is a deletion. A task consists of two rows: one under its key, and one
// under its due time with everything else. Both have the task's revision, which increases with every write. If both rows
// exist and agree, Salvage yields the task with NoDoubt. Otherwise, if the second row is intact, Salvage yields the task
// with a doubt. Of several second rows, it yields the one with the highest revision.
//
// The result is correct unless the report contains Damage, files are missing, or a killed process left tables that the
// store no longer used. In these cases the result can be wrong in the following ways:
//
//   - A removed task reappears if its removal was in an unreadable part. It usually has the doubt MaybeRemoved, but not
//     if the remaining rows agree.
//   - A task is yielded in an earlier state, with an earlier run, due time or number of attempts, if its later state
//     was in an unreadable part. It has the doubt MaybeStale if another row reveals the later state.
//   - A task is missing without a trace if both of its rows are unreadable. Expected is the number of tasks after the
//     last commit found.
//
// A killed process leaves traces that look like damage. A table or log that was being written is reported as
// incomplete, but no acknowledged task is lost with it. Salvage also reads tables that the store no longer used but had
// not yet deleted: only the MANIFEST, which it does not read, identifies them. These tables can bring back a removed
// task, or an earlier state of a task, if other tables from the same time have already been deleted. Payload bytes can
// be mistaken for a block or chunk if they have its exact form, including the checksum, and the bytes around them are
// damaged.
//
// Salvage reads each file twice and holds one file at a time in memory: up to 128 MB, or more if a log contains a
// larger commit. It also holds the keys of all rows in the files, including those of removed tasks, but never their
// payloads.
//
// Salvage yields each task once, in no particular order. The payload belongs to fn. If fn returns an error, Salvage
// stops and returns that error. Otherwise the error is nil if the directory could be listed and contains a table or a
// log. The report covers everything up to the error.
func Salvage(dir string, fn func(Salvaged) error) (SalvageReport, error) {
	return salvage(vfs.Default, dir, fn)
}

// Salvaged is a task found by Salvage.
type Salvaged struct {
	durable.Info
	Doubt Doubt
}

// String returns a one-line description of the task, including its doubt if it has one.
func (s Salvaged) String() string {
	if s.Doubt == NoDoubt {
		return s.Info.String()
	}
	return fmt.Sprintf("%v, %v", s.Info, s.Doubt)
}

// A Doubt is a reason why a task found by Salvage may differ from the task that the store held.
type Doubt uint8

// The possible doubts. They arise from rows that are missing or disagree.
const (
	NoDoubt      Doubt = iota
	MaybeRemoved       // the row under the task's key is missing or deleted
	MaybeStale         // the row under the key has another revision
)

func (d Doubt) String() string {
	switch d {
	case NoDoubt:
		return "no doubt"
	case MaybeRemoved:
		return "maybe removed"
	case MaybeStale:
		return "maybe stale"
	}
	return fmt.Sprintf("Doubt(%d)", uint8(d))
}

// A SalvageReport summarizes what Salvage found in a store.
type SalvageReport struct {
	Files        int // tables and logs in the directory
	Tasks        int // tasks yielded, including those with a doubt
	MaybeRemoved int // tasks yielded with the doubt MaybeRemoved
	MaybeStale   int // tasks yielded with the doubt MaybeStale

	Expected int      // number of tasks after the last commit found, or 0 if there is none
	Lost     []string // sorted keys of tasks whose second row is not readable
	Damage   []Damage // unreadable parts, ordered by file and offset
}

// Damage is a part of a file that Salvage could not read.
type Damage struct {
	File   string // the name of the file within the directory
	Offset int64
	Length int64
	Err    error
}

func (d Damage) String() string {
	return fmt.Sprintf("%s, %d bytes at %d: %v", d.File, d.Length, d.Offset, d.Err)
}

// A row is one write to a row of the store, read from a table or log. Its bytes are valid only until the function that
// receives it returns.
type row struct {
	name  []byte
	write uint64 // number of the write; 0 in a table with no older rows below it
	set   bool   // false if the write deleted the row
	value []byte
}

// A version is the state of a row after its latest known write.
type version struct {
	write    uint64
	file     int32 // index of the file in salvager.names
	set      bool
	whole    bool // the row can be decoded
	revision int64
	other    string // the name of the task's other row
}

// later reports whether v is a later version of a row than the other one. In a table with no older rows below it,
// writes have no numbers. The revisions then show which of two versions is later.
func (v version) later(than version) bool {
	return cmp.Or(
		cmp.Compare(v.write, than.write),
		cmp.Compare(v.revision, than.revision),
		cmp.Compare(v.file, than.file),
	) > 0
}

// A salvager collects the latest version of every row, chooses the row that represents each key's task, and yields the
// tasks while reading the files a second time.
type salvager struct {
	files  vfs.FS
	dir    string
	names  []string
	report SalvageReport
	last   version // of the row with the number of tasks
	latest map[string]version
	chosen map[string]choice // by key
}

// A choice is the row chosen as the task of a key.
type choice struct {
	version
	yielded bool
}

func salvage(files vfs.FS, dir string, fn func(Salvaged) error) (SalvageReport, error) {
	s := &salvager{files: files, dir: dir, latest: map[string]version{}, chosen: map[string]choice{}}
	all, err := files.List(dir)
	if err != nil {
		return s.report, fmt.Errorf("durable/pebble: directory %s: %w", dir, err)
	}
	for _, name := range all {
		if strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".log") {
			s.names = append(s.names, name)
		}
	}
	if len(s.names) == 0 {
		return s.report, fmt.Errorf("durable/pebble: directory %s: it contains no table and no log", dir)
	}
	slices.SortFunc(s.names, func(a, b string) int { // newer files have greater numbers
		return cmp.Or(cmp.Compare(fileNumber(a), fileNumber(b)), strings.Compare(a, b))
	})
	s.report.Files = len(s.names)
	for i, name := range s.names {
		s.report.Damage = append(s.report.Damage, s.read(name, func(r row) { s.note(int32(i), r) })...)
	}
	s.choose()
	for i, name := range s.names {
		var failed error
		s.read(name, func(r row) {
			if failed == nil {
				failed = s.yield(int32(i), r, fn)
			}
		})
		if failed != nil {
			return s.report, failed
		}
	}
	s.countLost()
	return s.report, nil
}

// read calls see with each readable row in the file and returns the unreadable parts.
func (s *salvager) read(name string, see func(row)) []Damage {
	data, damage := readSectors(s.files, s.files.PathJoin(s.dir, name))
	var gaps []Damage
	if strings.HasSuffix(name, ".sst") {
		gaps = tableRows(data, see)
	} else {
		gaps = logRows(data, fileNumber(name), see)
	}
	damage = append(damage, gaps...)
	for i := range damage {
		damage[i].File = name
	}
	return damage
}

// parse returns the version of a row and its part of a task. ok is false if it belongs to no task.
func parse(file int32, r row) (v version, part kv.Part, task durable.Info, ok bool) {
	name := string(r.name)
	v = version{write: r.write, file: file, set: r.set, whole: true}
	key, whole, ok := kv.IsPart(name)
	if part.Key, part.Whole = key, whole; !ok || !r.set {
		return v, part, task, ok
	}
	part, err := kv.PartOf(engine.Entry{Key: name, Value: r.value})
	if err == nil && part.Whole {
		task, err = durable.InfoOf(part.Record)
	}
	if err != nil {
		v.whole = false
		return v, part, task, true
	}
	v.revision, v.other = part.Revision, part.Other
	return v, part, task, true
}

// note records the row if it is the latest version with its name.
func (s *salvager) note(file int32, r row) {
	if tasks, ok := kv.TasksOf(engine.Entry{Key: string(r.name), Value: r.value}); ok {
		if v := (version{write: r.write, file: file, set: true}); !s.last.set || v.later(s.last) {
			s.last, s.report.Expected = v, tasks
		}
		return
	}
	v, _, _, ok := parse(file, r)
	if !ok {
		return
	}
	if before, seen := s.latest[string(r.name)]; !seen || v.later(before) {
		s.latest[string(r.name)] = v
	}
}

// choose decides for each key which of its rows is its task. A key has several such rows if a deletion is unreadable.
func (s *salvager) choose() {
	for name, v := range s.latest {
		key, whole, _ := kv.IsPart(name)
		if !whole || !v.set || !v.whole {
			continue
		}
		if c, there := s.chosen[key]; !there || v.revision > c.revision {
			s.chosen[key] = choice{version: v}
		}
	}
	for key, c := range s.chosen {
		// A removal deletes both rows at once, so a later deletion of the first row means that the task was removed.
		if first, ok := s.latest[c.other]; ok && !first.set && c.write > 0 && first.write > c.write {
			delete(s.chosen, key)
		}
	}
}

// yield calls fn if the row was chosen as the task of its key.
func (s *salvager) yield(file int32, r row, fn func(Salvaged) error) error {
	v, part, task, ok := parse(file, r)
	if !ok || !v.set || !v.whole || !part.Whole {
		return nil
	}
	c, there := s.chosen[part.Key]
	if !there || c.yielded || c.version != v {
		return nil
	}
	c.yielded = true
	s.chosen[part.Key] = c
	task.Payload = slices.Clone(task.Payload)
	found := Salvaged{task, s.doubt(c)}
	s.report.Tasks++
	switch found.Doubt {
	case MaybeRemoved:
		s.report.MaybeRemoved++
	case MaybeStale:
		s.report.MaybeStale++
	}
	return fn(found)
}

func (s *salvager) doubt(c choice) Doubt {
	first, ok := s.latest[c.other]
	switch {
	case !ok || !first.set:
		return MaybeRemoved
	case !first.whole || first.revision != c.revision:
		return MaybeStale
	}
	return NoDoubt
}

// countLost lists the keys that have a first row but no task. It omits a key if the second row was deleted later.
func (s *salvager) countLost() {
	for name, first := range s.latest {
		key, whole, _ := kv.IsPart(name)
		if whole || !first.set || s.chosen[key].yielded {
			continue
		}
		if second, ok := s.latest[first.other]; ok && !second.set && second.write >= first.write {
			continue
		}
		s.report.Lost = append(s.report.Lost, key)
	}
	slices.Sort(s.report.Lost)
}
