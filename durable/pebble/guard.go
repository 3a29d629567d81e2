// SPDX-License-Identifier: MIT

package pebble

import (
	"io"
	"regexp"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A guard is the file system that Pebble works on. It adds three things.
//
// # Accounts
//
// The guard sees every byte that Pebble writes. For each file it keeps a checksum of the bytes that are certainly on
// the disk. It saves these sums in the inventory before Pebble relies on the bytes: when the MANIFEST is synced, and
// when the name of a new log or marker is. So the next open can distinguish a damaged file from one that a crash has
// cut off.
//
// # Failure
//
// The first failed write closes failed. From then on nothing is written to the disk, and no error of a write reaches
// Pebble, which would end the process for some and retry others for ever:
//
//	a table              its write waits until the store is closed, so that the rows stay in memory
//	everything else      its writes lead nowhere
//
// # Elsewhere
//
// Files outside the store's directory belong to a backup. They have no account, and their errors reach Pebble, which
// returns them.
//
// # Removal
//
// A file that Pebble removes stays until the next save of the inventory, so that the inventory never lists a missing
// file. It also stays until the store has been checked after its open, because a repair may need it.
type guard struct {
	vfs.FS // the real one
	dir    string

	failed chan struct{} // closed by the first failure

	saving sync.Mutex // serializes the saves

	mu      sync.Mutex // protects below
	cause   error
	files   map[string]*guarded // by name, the files that Pebble needs
	log     *guarded            // the last log made
	removed map[string]bool     // removed by Pebble, but not deleted
	made    bool                // the store has been made, and its inventory is kept
	checked bool                // removed files may be deleted
	parked  chan struct{}       // while the store serves: writes of tables wait for it after a failure
}

// guarded is what the guard knows about a file.
type guarded struct {
	name    string
	table   bool
	written extent
	next    extent // of a table: the next written, once it is long enough
	synced  extent // what is on the disk
	linked  bool   // its name is on the disk
}

// newGuard returns a guard for a directory with this inventory of its needed files, which is nil if there is no store
// yet.
func newGuard(dir string, files vfs.FS, now inventory) *guard {
	g := &guard{
		FS: files, dir: dir, failed: make(chan struct{}),
		files: make(map[string]*guarded), removed: make(map[string]bool), made: now != nil,
	}
	for name, e := range now {
		g.files[name] = &guarded{name: name, table: isTable(name), written: e, synced: e, linked: true}
	}
	return g
}

// The names of Pebble's files. Other files do not belong to the store, whatever their suffix.
var (
	logName      = regexp.MustCompile(`^[0-9]{6,}\.log$`)
	tableName    = regexp.MustCompile(`^[0-9]{6,}\.(sst|blob)$`)
	manifestName = regexp.MustCompile(`^MANIFEST-[0-9]{6,}$`)
	otherName    = regexp.MustCompile(`^(OPTIONS-[0-9]{6,}|marker\.[a-z-]+\.[0-9]{6,}\.\S+)$`)
)

func isLog(name string) bool      { return logName.MatchString(name) }
func isTable(name string) bool    { return tableName.MatchString(name) }
func isManifest(name string) bool { return manifestName.MatchString(name) }

// needed reports whether Pebble reads the file again after it has been closed.
func needed(name string) bool {
	return isLog(name) || isTable(name) || isManifest(name) || otherName.MatchString(name)
}

// err returns the first failure.
func (g *guard) err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause
}

// fail ends all writing, if err is not nil.
func (g *guard) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil && g.cause == nil {
		g.cause = err
		close(g.failed)
	}
}

// do makes a change to the file system, or acts as if it had after a failure.
func (g *guard) do(change func() error) {
	if g.err() == nil {
		g.fail(change())
	}
}

// serve is called when the store has been opened: from here on tables wait after a failure.
func (g *guard) serve() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.made = true
	g.parked = make(chan struct{})
}

// dismiss is called when the store is about to be closed: writes that wait after a failure lead nowhere.
func (g *guard) dismiss() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.parked != nil {
		close(g.parked)
		g.parked = nil
	}
}

// park waits until the store is closed, if it has failed while it served.
func (g *guard) park() {
	g.mu.Lock()
	parked, failed := g.parked, g.cause != nil
	g.mu.Unlock()
	if failed && parked != nil {
		<-parked
	}
}

// check allows removed files to be deleted.
func (g *guard) check() {
	g.mu.Lock()
	g.checked = true
	waiting := len(g.removed) > 0
	g.mu.Unlock()
	if waiting {
		g.do(g.save)
	}
}

// save writes the inventory, and deletes the files that Pebble has removed.
func (g *guard) save() error {
	g.saving.Lock()
	defer g.saving.Unlock()
	g.mu.Lock()
	if !g.made {
		g.mu.Unlock()
		return nil
	}
	var gone []string
	if g.checked {
		for name := range g.removed {
			gone = append(gone, name)
			delete(g.files, name)
			delete(g.removed, name)
		}
	}
	list := make(inventory, len(g.files))
	for name, f := range g.files {
		if f.linked {
			list[name] = f.synced
		}
	}
	g.mu.Unlock()
	if err := list.save(g.FS, g.dir); err != nil {
		return err
	}
	for _, name := range gone {
		// An error leaves an unneeded file, which the next open removes.
		_ = g.FS.Remove(g.FS.PathJoin(g.dir, name))
	}
	return nil
}

// lastLog returns the name of the last log, and the extent of it that is on the disk.
func (g *guard) lastLog() (name string, synced extent) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.name, g.log.synced
}

// ours reports whether the path is a file of the store.
func (g *guard) ours(path string) bool { return g.PathDir(path) == g.dir }

func (g *guard) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if !g.ours(path) {
		return g.FS.Create(path, c)
	}
	name := g.PathBase(path)
	f := &guardedFile{g: g, of: &guarded{name: name, table: isTable(name)}}
	g.do(func() (err error) {
		f.File, err = g.FS.Create(path, c)
		return err
	})
	if f.File == nil {
		if f.of.table {
			g.park()
		}
		nowhere, err := vfs.NewMem().Create("nowhere", c)
		if err != nil {
			return nil, err
		}
		f.File = nowhere
	}
	if needed(name) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.files[name] = f.of
		delete(g.removed, name)
		if isLog(name) {
			g.log = f.of
		}
	}
	return f, nil
}

// Open pauses before it opens a table of a failed store: Pebble retries failed work in the background without a
// pause.
func (g *guard) Open(path string, opts ...vfs.OpenOption) (vfs.File, error) {
	if isTable(g.PathBase(path)) && g.err() != nil {
		time.Sleep(retryPause)
	}
	return g.FS.Open(path, opts...)
}

const retryPause = 10 * time.Millisecond

// ReuseForWrite makes a new file. Overwriting an old one would destroy bytes that a repair may need.
func (g *guard) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := g.Create(to, c)
	if err == nil {
		err = g.Remove(from)
	}
	return file, err
}

func (g *guard) Remove(path string) error {
	if !g.ours(path) {
		return g.FS.Remove(path)
	}
	name := g.PathBase(path)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.cause != nil:
		return nil
	case needed(name):
		g.removed[name] = true
		return nil
	}
	return g.FS.Remove(path)
}

// Rename is called for a file that Pebble has written under a temporary name.
func (g *guard) Rename(from, to string) error {
	if !g.ours(to) {
		return g.FS.Rename(from, to)
	}
	g.do(func() error { return g.FS.Rename(from, to) })
	if name := g.PathBase(to); needed(name) && g.err() == nil {
		// It was written, synced and closed, and is small.
		sum, err := sumOf(g.FS, to, false)
		g.fail(err)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.files[name] = &guarded{name: name, written: sum, synced: sum}
	}
	return nil
}

// Lock is called by Pebble. The store has already locked the directory.
func (g *guard) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (g *guard) OpenDir(path string) (vfs.File, error) {
	dir, err := g.FS.OpenDir(path)
	if err != nil || path != g.dir {
		return dir, err
	}
	return &guardedDir{dir, g}, nil
}

// A guardedDir notes which names are on the disk.
type guardedDir struct {
	vfs.File
	g *guard
}

func (d *guardedDir) Sync() error {
	g := d.g
	g.mu.Lock()
	var named []*guarded
	for _, f := range g.files {
		if !f.linked {
			named = append(named, f)
		}
	}
	g.mu.Unlock()
	g.do(func() error {
		if err := d.File.Sync(); err != nil {
			return err
		}
		due := false
		g.mu.Lock()
		for _, f := range named {
			f.linked = true
			due = due || !f.table // tables count from the sync of the MANIFEST that lists them
		}
		g.mu.Unlock()
		if !due {
			return nil
		}
		return g.save()
	})
	return nil
}

// A guardedFile is a file that Pebble writes.
type guardedFile struct {
	vfs.File
	g  *guard
	of *guarded
}

// do is do of the guard, and waits where a table must wait.
func (f *guardedFile) do(change func() error) {
	f.g.do(change)
	if f.of.table {
		f.g.park()
	}
}

func (f *guardedFile) Write(b []byte) (int, error) {
	n := len(b)
	f.do(func() error {
		written, next := f.of.written.with(b), f.of.next.with(b) // before the write, which may change b
		if _, err := f.File.Write(b); err != nil {
			return err
		}
		if f.of.table && next.to-next.from >= tailSize {
			written, next = next, extent{from: next.to, to: next.to}
		}
		f.g.mu.Lock()
		defer f.g.mu.Unlock()
		f.of.written, f.of.next = written, next
		return nil
	})
	return n, nil
}

// Preallocate does nothing: Pebble asks for more than fits on a small disk.
func (f *guardedFile) Preallocate(int64, int64) error { return nil }

func (f *guardedFile) Sync() error {
	f.sync(func() (bool, error) { return true, f.File.Sync() })
	return nil
}

func (f *guardedFile) SyncData() error {
	f.sync(func() (bool, error) { return true, f.File.SyncData() })
	return nil
}

func (f *guardedFile) SyncTo(length int64) (full bool, err error) {
	f.sync(func() (bool, error) {
		full, err = f.File.SyncTo(length)
		return full, err
	})
	return full, nil
}

// sync notes what is on the disk if do reports that everything is.
func (f *guardedFile) sync(do func() (all bool, err error)) {
	f.do(func() error {
		f.g.mu.Lock()
		written := f.of.written
		f.g.mu.Unlock()
		if all, err := do(); err != nil || !all {
			return err
		}
		f.g.mu.Lock()
		f.of.synced = written
		f.g.mu.Unlock()
		if isManifest(f.of.name) {
			return f.g.save()
		}
		return nil
	})
}

func (f *guardedFile) Close() error {
	f.g.fail(f.File.Close())
	if f.of.table {
		f.g.park()
	}
	return nil
}
