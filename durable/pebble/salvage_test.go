// SPDX-License-Identifier: MIT

package pebble_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A wreck is a store for Salvage, and its tasks.
type wreck struct {
	state string
	files *vfs.MemFS
	tasks map[string]durable.Info
}

// makeWrecks returns stores with some hundred tasks: in the log alone; after a kill; and closed.
func makeWrecks(t testing.TB) []wreck {
	t.Helper()
	mem := vfs.NewCrashableMem()
	on, err := openOn(mem)
	must(t, err)
	s, err := durable.New(ctx, on.Owned, durable.WithLogger(testkit.Quiet()))
	must(t, err)
	must(t, s.Handle("k", func(context.Context, durable.Run) error { return nil }))
	rnd := rand.New(rand.NewPCG(13, 1))
	made := 0
	add := func(n, most int) {
		for n > 0 {
			var batch []durable.Task
			for range min(n, 1+rnd.IntN(20)) {
				payload := make([]byte, rnd.IntN(most))
				for i := range payload {
					payload[i] = byte(rnd.Uint32())
				}
				batch = append(batch, durable.Task{
					Key: fmt.Sprint("key", made), Kind: "k", Payload: payload, Times: 3,
					Interval: time.Hour, Delay: time.Hour + time.Duration(rnd.IntN(1e12)),
				})
				made++
			}
			n -= len(batch)
			must(t, s.AddTask(ctx, batch...))
		}
	}
	tasks := func() map[string]durable.Info {
		all := map[string]durable.Info{}
		for i, err := range s.All(ctx) {
			must(t, err)
			all[i.Key] = i
		}
		return all
	}
	var wrecks []wreck
	kill := func(state string) {
		left := killed(t, mem, rnd)
		settle(t, left)
		wrecks = append(wrecks, wreck{state, left, tasks()})
	}
	add(40, 60)
	kill("log alone")
	add(500, 300)
	for _, i := range slices.SortedFunc(maps.Values(tasks()), func(a, b durable.Info) int { return strings.Compare(a.Key, b.Key) }) {
		switch rnd.IntN(5) {
		case 0:
			must(t, s.RemoveTask(ctx, i.Key))
		case 1:
			must(t, s.Reschedule(ctx, i.Key, time.Duration(rnd.IntN(1e12))+time.Hour))
		case 2:
			must(t, s.SetTask(ctx, durable.Task{Key: i.Key, Kind: "k", Payload: i.Payload, Delay: 3 * time.Hour}))
		}
	}
	kill("killed")
	add(3, 200_000) // each larger than a block of a log
	kill("large tasks")
	want := tasks()
	must(t, s.Shutdown(ctx))
	return append(wrecks, wreck{"closed", mem, want})
}

// killed returns the files of the store as they are after a kill. A crash of MemFS brings back files whose removal was
// not synced, and a kill does not.
func killed(t testing.TB, mem *vfs.MemFS, rnd *rand.Rand) *vfs.MemFS {
	t.Helper()
	list := func(files vfs.FS) []string {
		names, err := files.List("store")
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	there := list(mem)
	left := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rnd})
	there = append(there, list(mem)...) // and files created since
	for _, name := range list(left) {
		if !slices.Contains(there, name) {
			if err := left.Remove("store/" + name); err != nil {
				t.Fatal(err)
			}
		}
	}
	return left
}

// settle removes the tables that the store does not use: they await removal, or are half written.
func settle(t testing.TB, files vfs.FS) {
	t.Helper()
	db, err := lsm.Open("store", &lsm.Options{FS: files, ReadOnly: true, Logger: quietPebble{}})
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	levels, err := db.SSTables()
	for _, tables := range levels {
		for _, table := range tables {
			used[fmt.Sprintf("%06d.sst", uint64(table.FileNum))] = true
		}
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	names, err := files.List("store")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") && !used[name] {
			if err := files.Remove("store/" + name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// salvaged returns the results of Salvage for the store in the directory "store".
func salvaged(t *testing.T, files vfs.FS) (map[string]pebble.Salvaged, pebble.SalvageReport) {
	t.Helper()
	all := map[string]pebble.Salvaged{}
	report, err := pebble.SalvageOn(files, "store", func(s pebble.Salvaged) error {
		if _, twice := all[s.Key]; twice {
			t.Errorf("%q is yielded twice", s.Key)
		}
		all[s.Key] = s
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	count := map[pebble.Doubt]int{}
	for _, s := range all {
		count[s.Doubt]++
	}
	if report.Tasks != len(all) || report.MaybeRemoved != count[pebble.MaybeRemoved] || report.MaybeStale != count[pebble.MaybeStale] {
		t.Errorf("of %d tasks with the doubts %v the report is %+v", len(all), count, report)
	}
	return all, report
}

// wantAll fails the test unless exactly the given tasks are there, without doubt. A kill may have cut off the end of a
// file that was being written.
func (w wreck) wantAll(t *testing.T, all map[string]pebble.Salvaged, report pebble.SalvageReport, what string) {
	t.Helper()
	for key, want := range w.tasks {
		if got := all[key]; got.Doubt != pebble.NoDoubt || !reflect.DeepEqual(got.Info, want) {
			t.Errorf("%s: %s: %+v is salvaged as %+v", w.state, what, want, got)
		}
	}
	for _, d := range report.Damage {
		if w.state == "closed" || d.Offset+d.Length < int64(len(bytesOf(t, w.files, d.File))) {
			t.Errorf("%s: %s: damaged is %v", w.state, what, d)
		}
	}
	if len(all) != len(w.tasks) || len(report.Lost) > 0 || report.Expected != len(w.tasks) {
		t.Errorf("%s: %s: of %d tasks %d are salvaged, %+v", w.state, what, len(w.tasks), len(all), report)
	}
}

// bytesOf returns the bytes of a file of the store.
func bytesOf(t testing.TB, files vfs.FS, name string) []byte {
	t.Helper()
	file, err := files.Open("store/" + name)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(file)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return data
}

func isRows(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".log")
}

// copyExcept returns a copy of the store in which the named file has other bytes, or is missing if they are nil.
func (w wreck) copyExcept(t *testing.T, name string, data []byte) *vfs.MemFS {
	t.Helper()
	copied := vfs.NewMem()
	if err := copied.MkdirAll("store", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, other := range w.names(t) {
		b := data
		if other != name {
			b = bytesOf(t, w.files, other)
		}
		if b != nil {
			writeFile(t, copied, "store/"+other, b)
		}
	}
	return copied
}

func (w wreck) names(t testing.TB) []string {
	t.Helper()
	names, err := w.files.List("store")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func TestSalvage_wholeStore_yieldsAllTasks(t *testing.T) {
	for _, w := range makeWrecks(t) {
		all, report := salvaged(t, w.files)
		w.wantAll(t, all, report, "whole")
		t.Logf("%s: %d tasks in %d files", w.state, len(all), report.Files)
	}
}

// Files other than tables and logs may be missing or contain anything.
func TestSalvage_otherFiles_doNotMatter(t *testing.T) {
	for _, w := range makeWrecks(t) {
		for _, name := range w.names(t) {
			if isRows(name) {
				continue
			}
			for what, data := range map[string][]byte{"missing": nil, "empty": {}, "garbage": []byte("garbage")} {
				if testing.Short() && what != "garbage" {
					continue
				}
				all, report := salvaged(t, w.copyExcept(t, name, data))
				w.wantAll(t, all, report, name+" "+what)
			}
		}
		only := vfs.NewMem()
		if err := only.MkdirAll("store", 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range w.names(t) {
			if isRows(name) {
				writeFile(t, only, "store/"+name, bytesOf(t, w.files, name))
			}
		}
		all, report := salvaged(t, only)
		w.wantAll(t, all, report, "tables and logs alone")
	}
}

// Damage to a table or log loses the rows of one block, or of one commit. Every task without a row there is recovered
// unchanged.
func TestSalvage_damagedTableOrLog_costsThePartAlone(t *testing.T) {
	flips := 15
	if testing.Short() {
		flips = 2
	}
	rnd := rand.New(rand.NewPCG(14, 1))
	damages, lost := 0, 0
	for _, w := range makeWrecks(t) {
		most := int64(16 << 10) // a block of a table, or a commit
		if w.state == "large tasks" || w.state == "closed" {
			most += 3 * 200_000 // that has three large tasks, perhaps in one commit
		}
		for _, name := range w.names(t) {
			if !isRows(name) {
				continue
			}
			whole := bytesOf(t, w.files, name)
			before, cut := pebble.RowsOf(name, whole)
			if len(cut) > 0 && w.state == "closed" {
				t.Errorf("%s: %s is whole, and has %v", w.state, name, cut)
			}
			for range min(len(whole), flips) {
				at := rnd.IntN(len(whole))
				flipped := slices.Clone(whole)
				flipped[at] ^= 1 << rnd.IntN(8)
				what := fmt.Sprintf("%s: a bit of byte %d of the %d of %s", w.state, at, len(whole), name)
				after, gaps := pebble.RowsOf(name, flipped)
				gone := maps.Clone(before)
				for r := range after {
					if _, ok := before[r]; !ok {
						t.Errorf("%s makes the row %s", what, r)
					}
					delete(gone, r)
				}
				gaps = slices.DeleteFunc(gaps, func(d pebble.Damage) bool {
					return slices.ContainsFunc(cut, func(c pebble.Damage) bool { return c.Offset == d.Offset })
				})
				for _, g := range gaps {
					if len(gone) > 0 && (len(gaps) > 1 || g.Length > most || g.Offset > int64(at) || g.Offset+g.Length <= int64(at)) {
						t.Errorf("%s costs %d rows: %v", what, len(gone), gaps)
					}
				}
				if len(gone) > 0 && len(gaps) == 0 && !endOfLog(name, gone, before) {
					t.Errorf("%s costs %d rows without a word", what, len(gone))
				}
				damages++
				if len(gone) > 0 {
					lost++
				}
				w.wantUntouched(t, w.copyExcept(t, name, flipped), gone, what)
			}
			if w.state != "log alone" {
				w.wantUntouched(t, w.copyExcept(t, name, nil), before, "without "+name)
			}
		}
	}
	t.Logf("%d damages, %d of which cost rows", damages, lost)
}

// endOfLog reports whether the rows belong to the last commit of a log, which may have been cut off.
func endOfLog(name string, gone, before map[string]string) bool {
	return strings.HasSuffix(name, ".log") && len(gone) < len(before)
}

// wantUntouched fails the test unless every task without a row in gone is recovered.
func (w wreck) wantUntouched(t *testing.T, files vfs.FS, gone map[string]string, what string) {
	t.Helper()
	touched := map[string]bool{}
	for _, key := range gone {
		touched[key] = true
	}
	all, report := salvaged(t, files)
	for key, want := range w.tasks {
		if got := all[key]; !touched[key] && (got.Doubt != pebble.NoDoubt || !reflect.DeepEqual(got.Info, want)) {
			t.Errorf("%s: %s: %+v is salvaged as %+v, %v", w.state, what, want, got, report.Damage)
		}
	}
	for key, got := range all {
		if _, ok := w.tasks[key]; !ok && !touched[key] {
			t.Errorf("%s: %s: %+v was not there", w.state, what, got)
		}
	}
}

// From a truncated file everything complete before the cut is recovered, and the report names the file.
func TestSalvage_truncatedFile_keepsWhatIsBefore(t *testing.T) {
	cuts := 40
	if testing.Short() {
		cuts = 10
	}
	rnd := rand.New(rand.NewPCG(15, 1))
	for _, w := range makeWrecks(t) {
		for _, name := range w.names(t) {
			if !isRows(name) {
				continue
			}
			whole := bytesOf(t, w.files, name)
			before, _ := pebble.RowsOf(name, whole)
			last := 0
			for range min(len(whole), cuts) {
				at := rnd.IntN(len(whole))
				after, gaps := pebble.RowsOf(name, whole[:at])
				for r := range after {
					if _, ok := before[r]; !ok {
						t.Errorf("%s: %s: %d bytes have the row %s", w.state, name, at, r)
					}
				}
				if strings.HasSuffix(name, ".sst") && len(gaps) == 0 {
					t.Errorf("%s: %s: %d of %d bytes are taken for a whole table", w.state, name, at, len(whole))
				}
				last = max(last, len(after))
			}
			if len(before) > 1000 && last == 0 {
				t.Errorf("%s: %s: no row comes back of what is cut off", w.state, name)
			}
		}
	}
}

// Unreadable sectors of the disk lose only their own contents.
func TestSalvage_unreadableSectors_costWhatIsInThem(t *testing.T) {
	w := makeWrecks(t)[3]
	for _, name := range w.names(t) {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		const from, to = 4096, 8192
		if len(bytesOf(t, w.files, name)) < 3*to {
			continue
		}
		files := &badSectors{w.files, name, from, to}
		all, report := salvaged(t, files)
		if len(all) < len(w.tasks)/2 || len(report.Damage) == 0 {
			t.Errorf("%s: of %d tasks %d come back, %v", name, len(w.tasks), len(all), report.Damage)
		}
	}
}

type badSectors struct {
	vfs.FS
	name     string
	from, to int64
}

func (f *badSectors) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err != nil || !strings.HasSuffix(name, f.name) {
		return file, err
	}
	return &badFile{file, f}, nil
}

type badFile struct {
	vfs.File
	of *badSectors
}

func (f *badFile) ReadAt(b []byte, at int64) (int, error) {
	if end := at + int64(len(b)); at < f.of.to && end > f.of.from {
		n := max(f.of.from-at, 0)
		if n > 0 {
			if _, err := f.File.ReadAt(b[:n], at); err != nil {
				return 0, err
			}
		}
		return int(n), errors.New("the sector cannot be read")
	}
	return f.File.ReadAt(b, at)
}

func TestSalvage_neverWrites(t *testing.T) {
	for _, w := range makeWrecks(t) {
		files := errorfs.Wrap(w.files, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
				t.Errorf("%v of %s", op.Kind, op.Path)
			}
			return nil
		}))
		all, report := salvaged(t, files)
		w.wantAll(t, all, report, "watched")
	}

	dir := filepath.Join(t.TempDir(), "store")
	s, err := newScheduler(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Handle("k", func(context.Context, durable.Run) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := s.AddTask(ctx, durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(dir, 0o700) }()
	before := listing(t, dir)
	n := 0
	if _, err := pebble.Salvage(dir, func(pebble.Salvaged) error { n++; return nil }); err != nil || n != 20 {
		t.Errorf("%d tasks, %v", n, err)
	}
	if after := listing(t, dir); after != before {
		t.Errorf("there was\n%s, now\n%s", before, after)
	}
}

func TestSalvage_whatIsNoStore_isAnError(t *testing.T) {
	parent := t.TempDir()
	empty, other, file := filepath.Join(parent, "empty"), filepath.Join(parent, "other"), filepath.Join(parent, "file")
	if err := errors.Join(os.Mkdir(empty, 0o700), os.Mkdir(other, 0o700), os.WriteFile(file, nil, 0o600),
		os.WriteFile(filepath.Join(other, "letter.txt"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{empty, other, file, filepath.Join(parent, "no", "such")} {
		_, err := pebble.Salvage(dir, func(pebble.Salvaged) error { return nil })
		if err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// Files that only have the name of a table or log are named in the report, and all tasks are recovered.
func TestSalvage_garbageFiles_areReported(t *testing.T) {
	w := makeWrecks(t)[3]
	rnd := rand.New(rand.NewPCG(16, 1))
	garbage := make([]byte, 100_000)
	for i := range garbage {
		garbage[i] = byte(rnd.Uint32())
	}
	files := w.copyExcept(t, "", nil)
	for _, name := range []string{"999999.sst", "999999.log", "x.log", "x.sst", ".sst", ".log"} {
		writeFile(t, files, "store/"+name, garbage)
	}
	writeFile(t, files, "store/999998.sst", nil)
	if err := files.MkdirAll("store/999997.sst", 0o755); err != nil {
		t.Fatal(err)
	}
	all, report := salvaged(t, files)
	named := map[string]bool{}
	for _, d := range report.Damage {
		named[d.File] = true
	}
	if len(named) != 8 || report.Files < 8 {
		t.Errorf("the report names %v", named)
	}
	report.Damage = nil
	w.wantAll(t, all, report, "with garbage")
}

func TestSalvage_errorOfTheFunction_endsIt(t *testing.T) {
	w := makeWrecks(t)[3]
	calls := 0
	report, err := pebble.SalvageOn(w.files, "store", func(pebble.Salvaged) error {
		if calls++; calls == 3 {
			return errFail
		}
		return nil
	})
	if !errors.Is(err, errFail) || calls != 3 || report.Tasks != 3 {
		t.Errorf("after %d calls: %v, %+v", calls, err, report)
	}
}

func TestSalvage_panicOfTheFunction_isTheCallers(t *testing.T) {
	w := makeWrecks(t)[3]
	defer func() {
		if recover() == nil {
			t.Error("the panic is gone")
		}
	}()
	_, _ = pebble.SalvageOn(w.files, "store", func(pebble.Salvaged) error { panic("mine") })
}

// Wherever the search begins, it finds the next block.
func TestSalvage_nextDataBlock_isFoundFromAnywhere(t *testing.T) {
	w := makeWrecks(t)[3]
	for _, name := range w.names(t) {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		data := bytesOf(t, w.files, name)
		var starts []int
		for at := pebble.NextDataBlock(data, 0); at < len(data); at = pebble.NextDataBlock(data, at+1) {
			starts = append(starts, at)
		}
		if len(starts) == 0 || starts[0] != 0 {
			t.Fatalf("%s: the blocks begin at %v", name, starts)
		}
		rnd := rand.New(rand.NewPCG(17, 1))
		for range 20 {
			from := rnd.IntN(starts[len(starts)-1] + 1)
			i, _ := slices.BinarySearch(starts, from)
			if at := pebble.NextDataBlock(data, from); at != starts[i] {
				t.Errorf("%s: from %d on the next block is at %d, want %d", name, from, at, starts[i])
			}
		}
	}
}

// No bytes make Salvage panic or run forever, and damage never creates a row that did not exist.
func FuzzSalvage_damagedBytes(f *testing.F) {
	for _, w := range makeWrecks(f) {
		for _, name := range w.names(f) {
			if data := bytesOf(f, w.files, name); isRows(name) && len(data) < 20_000 { // more is slow
				f.Add(strings.HasSuffix(name, ".sst"), data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, table bool, data []byte) {
		name := "000007.log"
		if table {
			name = "000007.sst"
		}
		files := vfs.NewMem()
		if err := files.MkdirAll("store", 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, files, "store/"+name, data)
		if _, err := pebble.SalvageOn(files, "store", func(pebble.Salvaged) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if _, damage := pebble.RowsOf(name, data); len(damage) > 0 {
			for _, d := range damage {
				if d.Offset < 0 || d.Length < 0 || d.Offset+d.Length > int64(len(data)) {
					t.Errorf("of %d bytes there is %v", len(data), d)
				}
			}
		}
	})
}
