// SPDX-License-Identifier: MIT

package pebble_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/pebble"
)

func TestOpen_keepsTheContractOfAnEngine(t *testing.T) {
	enginetest.Test(t, func(t *testing.T) enginetest.Subject {
		e, err := pebble.Open(ctx, filepath.Join(t.TempDir(), "store"))
		must(t, err)
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		return enginetest.Subject{Engine: e}
	})
}

// The next process reads everything that was committed, whatever the keys, the due times and the data are.
func TestOpen_again_readsWhatWasCommitted(t *testing.T) {
	mem := vfs.NewMem()
	dir := filepath.Join(t.TempDir(), "store")
	for name, open := range map[string]func() (*subject, error){
		"on disk": func() (*subject, error) { return openIn(dir) }, "small tables": func() (*subject, error) { return openOn(mem) },
	} {
		t.Run(name, func(t *testing.T) {
			m := &model{t: t, open: open, tasks: map[string]change{}, notes: map[string]string{}}
			m.reopen()
			m.check()
			m.reopen()
			var all []change
			for i, due := range []int64{engine.None + 1, -1 << 40, -256, -1, 0, 1, 255, 256, 1 << 62, engine.PausedDue, engine.ParkedDue} {
				all = append(all, m.put(fmt.Sprint("due", i), due, "x", i%2 == 0))
			}
			for i, key := range []string{"\x00", "\x00\x00", "\xff", "\xff\xff", "a", "a\x00", "a\x00b", "ab", "ä", "t", "f", "c", "n",
				"key with\nlines", strings.Repeat("\xff", durable.MaxKey), strings.Repeat("x", durable.MaxKey)} {
				all = append(all, m.put(key, 7, "data of "+key, i%2 == 0))
			}
			all = append(all, m.put("large", 1, strings.Repeat("0123456789abcdef", durable.MaxPayload/16), false), m.put("empty", 2, "", true))
			must(t, m.Commit(all))
			m.check()
			m.reopen()
			m.check()
			must(t, m.Commit([]change{m.del("a"), m.del("\x00"), m.put("large", 3, "small", true), m.put("due0", engine.ParkedDue, "", false)}))
			m.note("n", "first")
			m.note("\xff", strings.Repeat("\x00\xff", engine.MaxNote/2))
			m.check()
			rnd := rand.New(rand.NewPCG(7, 7))
			for round := range 60 {
				var some []change
				for _, n := range rnd.Perm(40)[:rnd.IntN(20)] {
					if key := fmt.Sprint("k", n); rnd.IntN(3) == 0 && m.due(key) != engine.None {
						some = append(some, m.del(key))
					} else {
						some = append(some, m.put(key, rnd.Int64N(30)-10, fmt.Sprint(round), rnd.IntN(4) == 0))
					}
				}
				must(t, m.Commit(some))
				m.note("n", fmt.Sprint(round))
				if round%10 == 0 {
					m.reopen()
				}
				m.check()
			}
			m.reopen()
			m.check()
			for range 2 { // the second one does nothing
				must(t, m.Close())
			}
		})
	}
}

// A model is an open store with its expected contents.
type model struct {
	*subject
	t     *testing.T
	open  func() (*subject, error)
	tasks map[string]change
	notes map[string]string
}

func (m *model) reopen() {
	m.t.Helper()
	var err error
	if m.subject != nil {
		err = m.Close()
	}
	must(m.t, err)
	m.subject, err = m.open()
	must(m.t, err)
}

func (m *model) due(key string) int64 {
	if c, ok := m.tasks[key]; ok {
		return c.Due
	}
	return engine.None
}

// put and del return a change and apply it to the model.
func (m *model) put(key string, due int64, data string, failing bool) change {
	c := change{Key: key, From: m.due(key), Due: due, Data: []byte(data), Failing: failing}
	m.tasks[key] = c
	return c
}

func (m *model) del(key string) change {
	c := change{Key: key, From: m.due(key), Due: engine.None}
	delete(m.tasks, key)
	return c
}

// note puts a note in the store and in the model.
func (m *model) note(name, data string) {
	m.t.Helper()
	m.notes[name] = data
	w := engine.Write{Record: engine.Record{Key: name, Data: []byte(data)}, Note: true, If: engine.Always}
	_, err := m.Owned.Commit(ctx, 0, []engine.Batch{{w}})
	must(m.t, err)
}

// check compares everything that can be read with the model.
func (m *model) check() {
	m.t.Helper()
	all, err := readAll(m.subject)
	must(m.t, err)
	for key, c := range m.tasks {
		if got, ok := all[key]; !ok || got.Due != c.Due || string(got.Data) != string(c.Data) {
			m.t.Errorf("the task %.20q is there: %v, due at %d with %d bytes, want %d with %d", key, ok, got.Due, len(got.Data),
				c.Due, len(c.Data))
		}
	}
	if len(all) != len(m.tasks) {
		m.t.Errorf("there are %d tasks, want %d", len(all), len(m.tasks))
	}
	var failing, want []string
	for r, err := range m.walk(engine.Range{Order: engine.Failing}) {
		must(m.t, err)
		failing = append(failing, r.Key)
	}
	for _, key := range slices.Sorted(maps.Keys(m.tasks)) {
		if m.tasks[key].Failing {
			want = append(want, key)
		}
	}
	if !slices.Equal(failing, want) {
		m.t.Errorf("%.200q fail, want %.200q", failing, want)
	}
	notes := map[string]string{}
	for r, err := range m.walk(engine.Range{Order: engine.Notes}) {
		must(m.t, err)
		notes[r.Key] = string(r.Data)
	}
	if !maps.Equal(notes, m.notes) {
		m.t.Errorf("there are %d notes, want %d", len(notes), len(m.notes))
	}
}

func TestOpen_whatIsNoStore_isRefusedAndLeftAsItWas(t *testing.T) {
	parent := t.TempDir()
	file := filepath.Join(parent, "file")
	other := filepath.Join(parent, "other")
	foreign := filepath.Join(parent, "foreign")
	if err := errors.Join(os.WriteFile(file, []byte("x"), 0o600), os.Mkdir(other, 0o700),
		os.WriteFile(filepath.Join(other, "letter.txt"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	db, err := lsm.Open(foreign, &lsm.Options{Logger: quietPebble{}, FormatMajorVersion: lsm.FormatMinSupported})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Set([]byte("theirs"), nil, lsm.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
	before := map[string]string{other: listing(t, other), foreign: listing(t, foreign)}
	for dir, why := range map[string]string{
		filepath.Join(parent, "no", "such"): "no such file", file: "not a directory", other: "something other", foreign: "something other",
	} {
		s, err := pebble.Open(ctx, dir)
		if err == nil {
			t.Errorf("%s is opened", dir)
			_ = s.Close()
			continue
		}
		if !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	for dir, was := range before {
		if is := listing(t, dir); is != was {
			t.Errorf("in %s there was\n%s, now\n%s", dir, was, is)
		}
	}
}

type quietPebble struct{}

func (quietPebble) Infof(string, ...any)      {}
func (quietPebble) Errorf(string, ...any)     {}
func (quietPebble) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

func TestOpen_aSecondTime_isRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := newScheduler(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pebble.Open(ctx, dir); !errors.Is(err, pebble.ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("the second open: %v", err)
	}
	if err := s.Handle("k", nil); err == nil {
		t.Error("the first is not itself any more")
	}
	if err := s.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if s, err = newScheduler(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestOpen_formatOfAnotherVersion_isRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := pebble.Open(ctx, dir+"/")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for format, want := range map[string]error{
		"timewheel/durable 4\nsum 945820cf\n": engine.ErrVersion,
		"timewheel/durable 7\nsum a0bf8856\n": engine.ErrVersion,
		"timewheel/durable 7\nsum a0bf8857\n": engine.ErrCorrupt,
		"timewheel/durable 1\n":               engine.ErrCorrupt,
		"":                                    engine.ErrCorrupt,
		"nonsense":                            engine.ErrCorrupt,
	} {
		if err := os.WriteFile(filepath.Join(dir, "FORMAT"), []byte(format), 0o600); err != nil {
			t.Fatal(err)
		}
		before := listing(t, dir)
		if _, err := pebble.Open(ctx, dir); !errors.Is(err, want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("format %q: %v", format, err)
		}
		if after := listing(t, dir); after != before {
			t.Errorf("format %q: before there was\n%s, now\n%s", format, before, after)
		}
	}
}

// listing returns the names and the contents of the files of a directory.
func listing(t *testing.T, dir string) string {
	t.Helper()
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, n := range names {
		data, err := os.ReadFile(filepath.Join(dir, n.Name()))
		if errors.Is(err, os.ErrNotExist) { // an open store has renamed or removed it
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %d %x\n", n.Name(), len(data), sha256.Sum256(data))
	}
	return b.String()
}

// Opening a store on a full disk is an error, and the store is unchanged when there is room again.
func TestOpen_fullDisk_isAnError(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s, err := openOn(mem)
	if err != nil {
		t.Fatal(err)
	}
	h := newHistory(8)
	if err := h.commit(s, 30); err != nil {
		t.Fatal(err)
	}
	left := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files := errorfs.Wrap(left, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite {
			return syscall.ENOSPC
		}
		return nil
	}))
	_, err = openOn(files)
	if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, engine.ErrCorrupt) || errors.Is(err, pebble.ErrLocked) {
		t.Errorf("the open: %v", err)
	}
	_, err = openOn(&smallDisk{left})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the open with some bytes left: %v", err)
	}
	wantOpened(t, left, h, 30)
}

// wantOpened opens the store again, and fails the test unless its contents are those after the given commit.
func wantOpened(t *testing.T, files vfs.FS, h *history, commits int64) {
	t.Helper()
	s, err := openOn(files)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := readAll(s); err != nil || !h.is(all, commits) {
		t.Errorf("afterwards there are %d records, %v", len(all), err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A store closes even while nothing can be written, and the log has everything.
func TestPebble_closeOnAFullDisk_doesNotHang(t *testing.T) {
	for name, hits := range map[string]func(op errorfs.Op) bool{
		"tables": func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".sst")
		},
		"log": func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".log")
		},
		"next log": func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpReuseForWrite
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			var full atomic.Bool
			s, err := openOn(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if full.Load() && hits(op) {
					return syscall.ENOSPC
				}
				return nil
			})))
			if err != nil {
				t.Fatal(err)
			}
			h := newHistory(9)
			if err := h.commit(s, 20); err != nil {
				t.Fatal(err)
			}
			full.Store(true)
			_ = s.Close() // it may report a failed write
			full.Store(false)
			wantOpened(t, mem, h, 20)
		})
	}
}

// An Open that finds the log damaged leaves it unchanged: the commits behind the damage may still be saved.
func TestOpen_damagedLog_isLeftAsItWas(t *testing.T) {
	const commits = 8 // so few that they are in the log only
	mem := vfs.NewCrashableMem()
	s, err := openOn(mem)
	if err != nil {
		t.Fatal(err)
	}
	h := newHistory(10)
	if err := h.commit(s, commits); err != nil {
		t.Fatal(err)
	}
	left := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := left.List("store")
	if err != nil {
		t.Fatal(err)
	}
	var log string
	var whole []byte
	for _, name := range names { // there may be another, which is empty or no longer needed
		if data := readFile(t, left, "store/"+name); strings.HasSuffix(name, ".log") && len(data) > len(whole) {
			log, whole = "store/"+name, data
		}
	}
	damaged := slices.Clone(whole)
	damaged[len(whole)/2] ^= 1
	writeFile(t, left, log, damaged)
	for range 2 {
		if _, err := openOn(left); !errors.Is(err, engine.ErrCorrupt) {
			t.Errorf("the open: %v", err)
		}
		if !slices.Equal(readFile(t, left, log), damaged) {
			t.Error("the damaged log was changed")
		}
	}
	writeFile(t, left, log, whole)
	wantOpened(t, left, h, commits)
}

// The remains of a store whose creation was interrupted by a power cut are removed, and nothing else is.
func TestOpen_beginnings_areTakenAwayAlone(t *testing.T) {
	for name, opens := range map[string]bool{"": true, "notes.txt": false, "000005.sst": false} {
		mem := vfs.NewMem()
		if err := mem.MkdirAll("store", 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, mem, "store/INVENTORY", []byte("timewheel/durable inventory\nsum c8b15d27\n"))
		writeFile(t, mem, "store/marker.manifest.000001.MANIFEST-000001", nil)
		if name != "" {
			writeFile(t, mem, "store/"+name, []byte("mine"))
		}
		s, err := openOn(mem)
		if (err == nil) != opens {
			t.Errorf("with %q next to the beginnings: %v", name, err)
		}
		if err == nil {
			_ = s.Close()
		}
		if name != "" && string(readFile(t, mem, "store/"+name)) != "mine" {
			t.Errorf("%s was changed", name)
		}
	}
}

// smallDisk has room for one small file only.
type smallDisk struct{ vfs.FS }

func (smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: 1 << 20, TotalBytes: 1 << 30}, nil
}

// A history is the expected contents of a store after each of its commits.
type history struct {
	rnd    *rand.Rand
	states []map[string]engine.Record
	made   atomic.Int64 // how many commits have returned nil
}

func newHistory(seed uint64) *history {
	return &history{rnd: rand.New(rand.NewPCG(seed, 1)), states: []map[string]engine.Record{{}}}
}

// next returns the changes of the next commit, and records the expected contents.
func (h *history) next() []change {
	state := maps.Clone(h.states[len(h.states)-1])
	var all []change
	for range 1 + h.rnd.IntN(8) {
		key := fmt.Sprint("key", h.rnd.IntN(200))
		if slices.ContainsFunc(all, func(c change) bool { return c.Key == key }) {
			continue
		}
		c := change{Key: key, From: engine.None, Due: engine.None}
		old, ok := state[key]
		if ok {
			c.From = old.Due
		}
		if ok && h.rnd.IntN(3) == 0 {
			delete(state, key)
		} else {
			c.Due = h.rnd.Int64N(1000)
			c.Data = []byte(strings.Repeat(fmt.Sprintf("%x", h.rnd.Uint64()), h.rnd.IntN(40)))
			state[key] = engine.Record{Key: key, Due: c.Due, Data: c.Data}
		}
		all = append(all, c)
	}
	h.states = append(h.states, state)
	return all
}

// commit makes n commits. It stops at the first failure and returns its error.
func (h *history) commit(s *subject, n int) error {
	for range n {
		if err := s.Commit(h.next()); err != nil {
			return err
		}
		h.made.Add(1)
	}
	return nil
}

// readAll returns the contents of the store, or an error if they are inconsistent.
func readAll(s *subject) (map[string]engine.Record, error) {
	all := map[string]engine.Record{}
	for r, err := range s.Due(engine.Position{Due: engine.None}, math.MaxInt64) {
		if err != nil {
			return all, err
		}
		if _, twice := all[r.Key]; twice {
			return all, fmt.Errorf("%q is there twice", r.Key)
		}
		all[r.Key] = r
	}
	keys := 0
	for key, err := range s.Keys() {
		if err != nil {
			return all, err
		}
		if keys++; all[key].Key != key {
			return all, fmt.Errorf("%q has no record", key)
		}
		if r, ok, err := s.Get(key); err != nil || !ok || !sameRecord(r, all[key]) {
			return all, fmt.Errorf("Get(%q) = %v, %v, %v", key, r, ok, err)
		}
	}
	if keys != len(all) || s.Len() != keys {
		return all, fmt.Errorf("%d keys, %d records, and Len is %d", keys, len(all), s.Len())
	}
	return all, nil
}

func sameRecord(a, b engine.Record) bool {
	return a.Key == b.Key && a.Due == b.Due && string(a.Data) == string(b.Data)
}

// is reports whether all are the expected contents after the given number of commits.
func (h *history) is(all map[string]engine.Record, commits int64) bool {
	return commits < int64(len(h.states)) && maps.EqualFunc(all, h.states[commits], sameRecord)
}

// wantAnswers fails the test unless the store, in which the commit after the given number has failed, still answers. A
// read may see the failed commit, which is in memory. A walk sees a part of it if it gets there during the walk, so
// another one follows.
func (h *history) wantAnswers(t *testing.T, s *subject, made int64) {
	t.Helper()
	for try := 0; ; try++ {
		all, err := readAll(s)
		if h.is(all, made) || h.is(all, made+1) {
			return
		}
		if try == 10 {
			t.Errorf("the store answers with %d records, %v", len(all), err)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// The power fails at every sync of a log, a table, a manifest or a directory, just before and just after it. The
// remaining data is the synced data, possibly with some of the rest. It must contain everything acknowledged and,
// completely or not at all, the commit in progress.
func TestPebble_powerCutAtEverySync_losesNothingAcknowledged(t *testing.T) {
	commits := 400
	if testing.Short() {
		commits = 100
	}
	type cut struct {
		files    *vfs.MemFS
		made     int64 // commits that had returned before the cut
		underway int64 // and one more than had returned after it
		what     string
	}
	h := newHistory(1)
	var mu sync.Mutex
	var cuts []cut
	mem := vfs.NewCrashableMem()
	rnd := rand.New(rand.NewPCG(2, 2))
	inject := errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpRename, errorfs.OpRemove:
			mu.Lock()
			defer mu.Unlock()
			made := h.made.Load()
			for _, percent := range []int{0, 50} {
				files := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rnd})
				cuts = append(cuts, cut{files, made, h.made.Load() + 1, fmt.Sprintf("%v of %s, %d %%", op.Kind, op.Path, percent)})
			}
		}
		return nil
	})
	files := errorfs.Wrap(mem, inject)
	s, err := openOn(&oneAtATime{files, mem, inject, &mu})
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	opening := len(cuts)
	mu.Unlock()
	if err := h.commit(s, commits); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(cuts) < 2*commits {
		t.Fatalf("there were %d cuts for %d commits", len(cuts), commits)
	}
	tables := 0
	for i, c := range cuts {
		if strings.HasSuffix(strings.Fields(c.what)[2], ".sst,") {
			tables++
		}
		if i < opening && c.made == 0 {
			// The store did not exist yet. It must open, and may be a new one.
			if s, err := openOn(c.files); err == nil {
				_ = s.Close()
			} else if _, statErr := c.files.Stat("store"); statErr == nil {
				t.Errorf("cut %d while the store was made, at %s: %v", i, c.what, err)
			}
			continue
		}
		s, err := openOn(c.files)
		if err != nil {
			t.Errorf("cut %d, at %s: %v", i, c.what, err)
			continue
		}
		all, err := readAll(s)
		ok := err == nil
		for made := c.made; ok && !h.is(all, made); made++ {
			ok = made < c.underway
		}
		if !ok {
			t.Errorf("cut %d, at %s: of %d commits not all is there: %d records, %v", i, c.what, c.made, len(all), err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("cut %d: close: %v", i, err)
		}
	}
	t.Logf("%d cuts, %d of them at tables", len(cuts), tables)
}

// oneAtATime prevents the reuse of a log while a crash is simulated: the file system takes a lock twice for the reuse,
// and if a crash waits for the lock in between, both wait forever.
type oneAtATime struct {
	vfs.FS
	mem    *vfs.MemFS
	inject errorfs.Injector
	mu     *sync.Mutex
}

func (f *oneAtATime) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file, err := f.mem.ReuseForWrite(from, to, c)
	if err != nil {
		return nil, err
	}
	return errorfs.WrapFile(file, f.inject), nil
}

// When a log cannot be written the store reports it. From then on it answers reads and refuses commits. The next open
// finds everything that was acknowledged.
func TestPebble_diskFault_isSaidAndLosesNothingAcknowledged(t *testing.T) {
	log := func(op errorfs.Op, kinds ...errorfs.OpKind) bool {
		return strings.HasSuffix(op.Path, ".log") && slices.Contains(kinds, op.Kind)
	}
	for name, c := range map[string]struct {
		err  error
		hits func(op errorfs.Op) bool
	}{
		"disk full": {syscall.ENOSPC, func(op errorfs.Op) bool { return log(op, errorfs.OpFileWrite, errorfs.OpFilePreallocate) }},
		"sync fails": {syscall.EIO, func(op errorfs.Op) bool {
			return log(op, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo)
		}},
		"write fails":  {syscall.EIO, func(op errorfs.Op) bool { return log(op, errorfs.OpFileWrite) }},
		"short writes": {syscall.ENOSPC, nil},
		// When the memory table is full the store begins its next log, which fails here.
		"no next log": {syscall.EMFILE, func(op errorfs.Op) bool { return log(op, errorfs.OpCreate, errorfs.OpReuseForWrite) }},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			var faulty atomic.Bool
			var files vfs.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if faulty.Load() && c.hits != nil && c.hits(op) {
					return c.err
				}
				return nil
			}))
			if c.hits == nil {
				files = &shortFS{FS: mem, on: &faulty}
			}
			s, err := openOn(files)
			if err != nil {
				t.Fatal(err)
			}
			h := newHistory(3)
			if err := h.commit(s, 50); err != nil {
				t.Fatal(err)
			}
			faulty.Store(true)
			if err := h.commit(s, 1000); !errors.Is(err, c.err) {
				t.Fatalf("after %d commits: %v", h.made.Load(), err)
			}
			made := h.made.Load()
			faulty.Store(false)
			if err := h.commit(s, 1); err == nil {
				t.Error("after a failed commit another is taken")
			}
			h.wantAnswers(t, s, made)
			crashed := mem.CrashClone(vfs.CrashCloneCfg{})
			_ = s.Close() // its error is the earlier one
			for _, left := range []vfs.FS{crashed, mem} {
				s, err := openOn(left)
				if err != nil {
					t.Fatalf("the next open: %v", err)
				}
				all, err := readAll(s)
				if err != nil || !h.is(all, made) && !h.is(all, made+1) {
					t.Errorf("the next open finds %d records, %v", len(all), err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// While shortFS is on, a write to a log writes half of its data and fails.
type shortFS struct {
	vfs.FS
	on *atomic.Bool
}

func (f *shortFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	if err != nil || !strings.HasSuffix(name, ".log") {
		return file, err
	}
	return &shortFile{file, f.on}, nil
}

type shortFile struct {
	vfs.File
	on *atomic.Bool
}

func (f *shortFile) Write(b []byte) (int, error) {
	if !f.on.Load() {
		return f.File.Write(b)
	}
	n, err := f.File.Write(b[:len(b)/2])
	return n, errors.Join(err, syscall.ENOSPC)
}

func TestOpen_readOnlyDirectory_isAnError(t *testing.T) {
	mem := vfs.NewMem()
	s, err := openOn(mem)
	if err != nil {
		t.Fatal(err)
	}
	h := newHistory(4)
	if err := errors.Join(h.commit(s, 20), s.Close()); err != nil {
		t.Fatal(err)
	}
	files := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
			return syscall.EROFS
		}
		return nil
	}))
	_, err = openOn(files)
	if !errors.Is(err, syscall.EROFS) || errors.Is(err, pebble.ErrLocked) || errors.Is(err, engine.ErrCorrupt) {
		t.Errorf("the open: %v", err)
	}
	wantOpened(t, mem, h, 20)
}

// A flipped byte anywhere is detected, by Open or by the read that meets it, or changes nothing, and everything read
// before the error is true. This holds for a closed store and for the store of a crashed process. Only the watermark
// may be damaged unnoticed, because it is not needed then.
func TestPebble_flippedByte_isNeverReadAsTruth(t *testing.T) {
	const commits = 60
	for _, how := range []string{"closed", "crashed"} {
		t.Run(how, func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			s, err := openOn(mem)
			if err != nil {
				t.Fatal(err)
			}
			h := newHistory(5)
			if err := h.commit(s, commits); err != nil {
				t.Fatal(err)
			}
			// Only the process crashes. The system keeps all written data, synced or not.
			left := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if how == "closed" {
				left = mem
			}
			names, err := left.List("store")
			if err != nil {
				t.Fatal(err)
			}
			rnd := rand.New(rand.NewPCG(6, 6))
			flips, found := 0, 0
			for _, name := range names {
				whole := readFile(t, left, "store/"+name)
				for range min(len(whole), 40) {
					flips++
					at := rnd.IntN(len(whole))
					flipped := slices.Clone(whole)
					flipped[at] ^= 1 << rnd.IntN(8)
					copied := vfs.NewMem()
					if err := copied.MkdirAll("store", 0o755); err != nil {
						t.Fatal(err)
					}
					for _, other := range names {
						data := flipped
						if other != name {
							data = readFile(t, left, "store/"+other)
						}
						writeFile(t, copied, "store/"+other, data)
					}
					if !checkFlipped(t, h, copied, commits) {
						t.Errorf("a bit of byte %d of the %d of %s is flipped, and lies are read", at, len(whole), name)
					} else {
						found++
					}
				}
			}
			if flips < 100 || found != flips {
				t.Errorf("%d of %d flips were found or did no harm", found, flips)
			}
		})
	}
}

// checkFlipped reports whether all answers are true, or the damage is detected.
func checkFlipped(t *testing.T, h *history, files vfs.FS, commits int64) bool {
	t.Helper()
	s, err := openOn(files)
	if err != nil {
		return true
	}
	defer func() { _ = s.Close() }()
	all, err := readAll(s)
	if err != nil {
		for key, r := range all {
			if want, ok := h.states[commits][key]; !ok || !sameRecord(r, want) {
				return false
			}
		}
		return true
	}
	return h.is(all, commits)
}

func readFile(t *testing.T, files vfs.FS, name string) []byte {
	t.Helper()
	f, err := files.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return data
}

func writeFile(t *testing.T, files vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := files.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(slices.Clone(data)) // which may change its argument
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// The engine reports the space of the disk. On a file system that does not know it, it reports none.
func TestOpen_space_isThatOfTheDisk(t *testing.T) {
	e, err := pebble.Open(ctx, filepath.Join(t.TempDir(), "store"))
	must(t, err)
	defer e.Close()
	if free, size := e.Space(); size <= 0 || free < 0 || free > size {
		t.Errorf("%d of %d bytes are free", free, size)
	}
	inMemory, err := openOn(vfs.NewMem())
	must(t, err)
	defer inMemory.Close()
	if free, size := inMemory.Space(); free != 0 || size != 0 {
		t.Errorf("in memory %d of %d bytes are free", free, size)
	}
}

// The size follows the contents of the store, and is the size of its files.
func TestOpen_size_isThatOfTheFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := openIn(dir)
	must(t, err)
	before := s.Size()
	data := make([]byte, 1<<20)
	for i := range 8 {
		for j := range data {
			data[j] = byte(rand.Uint32())
		}
		must(t, s.Commit([]change{{Key: fmt.Sprint(i), From: engine.None, Due: 1, Data: data}}))
	}
	must(t, s.Close()) // it writes data that is only in memory
	s, err = openIn(dir)
	must(t, err)
	defer s.Close()
	if size := s.Size(); size < before+8<<20 {
		t.Errorf("the size was %d, and with 8 MiB more it is %d", before, size)
	}
}
