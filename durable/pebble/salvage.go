// SPDX-License-Identifier: MIT

package pebble

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/seed581295f1/timewheel/durable/engine"

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
// with the highest number, even if that version is a deletion. A task consists of two rows: one holds its due time
// under its key, and the other holds everything else under its due time. If both rows exist and agree, Salvage yields
// the task with NoDoubt. Otherwise, if the second row is intact, Salvage yields the task with a doubt.
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
	MaybeStale         // the row under the key has a different due time, or it is unclear which version is later
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

	Commits  uint64   // number of the last commit found, or 0 if there is none
	Expected int      // number of tasks after the last commit found, or 0 if there is none
	Lost     []string // sorted keys that have a due time but no readable task
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
	write uint64
	file  int32 // index of the file in salvager.names
	set   bool
	whole bool // the value of the row can be decoded

	// for a k row, or for a chosen d row
	due int64

	// for a d row
	generation, seq uint64
}

// later reports whether v is a later version of a row than the other one. In a table with no older rows below it,
// writes have no numbers. The tasks themselves then show which version is later. If they do not, the later file wins.
func (v version) later(than version) bool {
	return cmp.Or(
		cmp.Compare(v.write, than.write),
		cmp.Compare(v.generation, than.generation),
		cmp.Compare(v.seq, than.seq),
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
	latest map[string]version
	chosen map[string]choice // by key
}

// A choice is the row chosen as the task of a key.
type choice struct {
	version
	unclear bool // nothing shows which of the possible rows is the latest
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

// parse returns the version of a row and the parts of a task that the row contains.
func parse(file int32, r row) (v version, stored engine.Record, task durable.Info, ok bool) {
	v = version{write: r.write, file: file, set: r.set, whole: true}
	switch {
	case string(r.name) == string(rowCommits):
	case r.name[0] == 'k' && r.set:
		if v.whole = len(r.value) == 8; v.whole {
			v.due = disorderly(binary.BigEndian.Uint64(r.value))
		}
	case r.name[0] == 'k':
	case r.name[0] == 'd' && len(r.name) >= 9:
		stored = dueRow(string(r.name))
		if !r.set {
			break
		}
		stored.Data = r.value
		var err error
		if task, err = durable.InfoOf(stored); err != nil {
			v.whole = false
			break
		}
		v.generation, v.seq = task.Generation, task.Seq
	default:
		return v, stored, task, false
	}
	return v, stored, task, true
}

// dueRow is the inverse of appendDueRow.
func dueRow(name string) engine.Record {
	return engine.Record{Key: name[9:], Due: disorderly(binary.BigEndian.Uint64([]byte(name[1:9])))}
}

// note records the row if it is the latest version with its name.
func (s *salvager) note(file int32, r row) {
	if len(r.name) == 0 {
		return
	}
	if string(r.name) == string(rowCommits) {
		s.noteCommit(r)
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

func (s *salvager) noteCommit(r row) {
	if len(r.value) != 24 {
		return
	}
	if n := binary.BigEndian.Uint64(r.value); n > s.report.Commits {
		s.report.Commits, s.report.Expected = n, int(binary.BigEndian.Uint64(r.value[8:]))
	}
}

// choose decides for each key which of its rows is its task. A key has several such rows if a deletion is unreadable.
func (s *salvager) choose() {
	for name, v := range s.latest {
		if name[0] != 'd' || !v.set || !v.whole {
			continue
		}
		at := dueRow(name)
		v.due = at.Due
		c, there := s.chosen[at.Key]
		switch {
		case !there:
			c.version = v
		case s.better(at.Key, v, c.version):
			c = choice{version: v, unclear: unclear(v, c.version)}
		default:
			c.unclear = c.unclear || unclear(v, c.version)
		}
		s.chosen[at.Key] = c
	}
	for key, c := range s.chosen {
		// A removal deletes both rows at once, so a later deletion of the k row means that the task was removed.
		if k, ok := s.latest["k"+key]; ok && !k.set && c.write > 0 && k.write > c.write {
			delete(s.chosen, key)
		}
	}
}

// better reports whether one row is more likely than another to be the task of the key. The row with the later write is
// the more likely one. If one of the writes has no number, the tasks themselves show which row is later. If they do
// not, the row under the key does.
func (s *salvager) better(key string, v, than version) bool {
	if v.write > 0 && than.write > 0 {
		return v.write > than.write
	}
	if c := cmp.Or(cmp.Compare(v.generation, than.generation), cmp.Compare(v.seq, than.seq)); c != 0 {
		return c > 0
	}
	if k, ok := s.latest["k"+key]; ok && k.set && k.whole && (v.due == k.due) != (than.due == k.due) {
		return v.due == k.due
	}
	return v.later(than)
}

// unclear reports whether neither the write numbers nor the tasks determine the order of two rows.
func unclear(v, than version) bool {
	return (v.write == 0 || than.write == 0) && v.generation == than.generation && v.seq == than.seq
}

// yield calls fn if the row was chosen as the task of its key.
func (s *salvager) yield(file int32, r row, fn func(Salvaged) error) error {
	if len(r.name) == 0 || r.name[0] != 'd' || !r.set {
		return nil
	}
	v, stored, task, ok := parse(file, r)
	if !ok || !v.whole {
		return nil
	}
	v.due = stored.Due
	c, there := s.chosen[stored.Key]
	if !there || c.yielded || c.version != v {
		return nil
	}
	c.yielded = true
	s.chosen[stored.Key] = c
	task.Payload = slices.Clone(task.Payload)
	found := Salvaged{task, s.doubt(stored.Key, c)}
	s.report.Tasks++
	switch found.Doubt {
	case MaybeRemoved:
		s.report.MaybeRemoved++
	case MaybeStale:
		s.report.MaybeStale++
	}
	return fn(found)
}

func (s *salvager) doubt(key string, c choice) Doubt {
	k, ok := s.latest["k"+key]
	switch {
	case !ok || !k.set:
		return MaybeRemoved
	case !k.whole || k.due != c.due || c.unclear:
		return MaybeStale
	}
	return NoDoubt
}

// countLost lists the keys that have a due time but no task. It omits a key if the task at that due time was deleted
// later.
func (s *salvager) countLost() {
	for name, k := range s.latest {
		if name[0] != 'k' || !k.set || s.chosen[name[1:]].yielded {
			continue
		}
		d, ok := s.latest[string(appendDueRow(nil, engine.Position{Due: k.due, Key: name[1:]}))]
		if ok && !d.set && d.write >= k.write {
			continue
		}
		s.report.Lost = append(s.report.Lost, name[1:])
	}
	slices.Sort(s.report.Lost)
}
