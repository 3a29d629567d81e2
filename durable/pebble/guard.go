// SPDX-License-Identifier: MIT

package pebble

import (
	"io"
	"regexp"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A guard is the file system that Pebble uses. It wraps the real file system and changes its behavior as follows.
//
// # Checksums
//
// Every byte that Pebble writes passes through the guard. For each file, the guard maintains a checksum of the bytes
// that are certainly on the disk. It saves these checksums in the inventory before Pebble relies on the bytes: when the
// MANIFEST is synced, and when the name of a new log or marker is synced. The next open can then distinguish a damaged
// file from a file that a crash cut short.
//
// # Failure
//
// The first failed write closes the channel failed. From then on, nothing is written to the disk. No write error
// reaches Pebble, which would end the process after some errors and retry forever after others. Writes are handled as
// follows:
//
//	tables         the write waits until the store is closed, so that the rows stay in memory
//	other files    the write is discarded and reported as successful
//
// Before that, an open store waits up to descriptorWait if the process has no file descriptor left.
//
// # Other directories
//
// Files outside the store's directory belong to a backup. The guard maintains no checksums for them. Their errors reach
// Pebble, which returns them.
//
// # Removal
//
// A file that Pebble removes stays on the disk until the next save of the inventory, so that the inventory never lists
// a missing file. It also stays until the opened store has been checked, because a repair may need it.
type guard struct {
	vfs.FS // the real file system, which waits for file descriptors while the store serves
	dir    string

	failed chan struct{} // closed on the first failure

	saving sync.Mutex // serializes calls to save

	mu      sync.Mutex // protects the fields below
	cause   error
	files   map[string]*guarded // the files that Pebble needs, by name
	log     *guarded            // the most recently created log
	removed map[string]bool     // files removed by Pebble but not yet deleted
	made    bool                // the store has been created, so save writes its inventory
	checked bool                // the store has been checked, so removed files may be deleted
	parked  chan struct{}       // not nil while the store serves; table writes wait for it after a failure
}

// guarded is the state that the guard maintains for a file.
type guarded struct {
	name    string
	table   bool
	written extent
	next    extent // for a table: replaces written once it covers tailSize bytes
	synced  extent // the extent that is on the disk
	linked  bool   // the name of the file is on the disk
}

// newGuard returns a guard for a directory with the given inventory of its needed files, which is nil if there is no
// store yet.
func newGuard(dir string, files vfs.FS, now inventory) *guard {
	g := &guard{
		dir: dir, failed: make(chan struct{}),
		files: make(map[string]*guarded), removed: make(map[string]bool), made: now != nil,
	}
	g.FS = patientFS{files, g.isServing}
	for name, e := range now {
		g.files[name] = &guarded{name: name, table: isTable(name), written: e, synced: e, linked: true}
	}
	return g
}

// These patterns match the names of Pebble's files. Other files do not belong to the store, whatever their suffix.
var (
	logName      = regexp.MustCompile(`^[0-9]{6,}\.log$`)
	tableName    = regexp.MustCompile(`^[0-9]{6,}\.(sst|blob)$`)
	manifestName = regexp.MustCompile(`^MANIFEST-[0-9]{6,}$`)
	otherName    = regexp.MustCompile(`^(OPTIONS-[0-9]{6,}|marker\.[a-z-]+\.[0-9]{6,}\.\S+)$`)
)

func isLog(name string) bool      { return logName.MatchString(name) }
func isTable(name string) bool    { return tableName.MatchString(name) }
func isManifest(name string) bool { return manifestName.MatchString(name) }

// needed reports whether Pebble may read the file again after closing it.
func needed(name string) bool {
	return isLog(name) || isTable(name) || isManifest(name) || otherName.MatchString(name)
}

// err returns the first failure, or nil if there has been none.
func (g *guard) err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause
}

// fail records the first failure, which ends all writing. It does nothing if err is nil.
func (g *guard) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil && g.cause == nil {
		g.cause = err
		close(g.failed)
	}
}

// do applies a change to the file system. After a failure it does nothing, and its caller proceeds as if the change had
// succeeded.
func (g *guard) do(change func() error) {
	if g.err() == nil {
		g.fail(change())
	}
}

// serve is called once the store has been opened. From then on, table writes wait after a failure.
func (g *guard) serve() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.made = true
	g.parked = make(chan struct{})
}

// isServing reports whether the store serves and has not failed.
func (g *guard) isServing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.parked != nil && g.cause == nil
}

// dismiss is called when the store is about to be closed. Writes that have been waiting since a failure are then
// discarded.
func (g *guard) dismiss() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.parked != nil {
		close(g.parked)
		g.parked = nil
	}
}

// park waits until the store is about to be closed if the store failed while it was serving.
func (g *guard) park() {
	g.mu.Lock()
	parked, failed := g.parked, g.cause != nil
	g.mu.Unlock()
	if failed && parked != nil {
		<-parked
	}
}

// check is called once the store has been checked. It allows removed files to be deleted.
func (g *guard) check() {
	g.mu.Lock()
	g.checked = true
	waiting := len(g.removed) > 0
	g.mu.Unlock()
	if waiting {
		g.do(g.save)
	}
}

// save writes the inventory. If the store has been checked, save also deletes the files that Pebble has removed.
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
		// An error leaves an unneeded file on the disk, which the next open removes.
		_ = g.FS.Remove(g.FS.PathJoin(g.dir, name))
	}
	return nil
}

// lastLog returns the name of the newest log and the extent of that log that is on the disk.
func (g *guard) lastLog() (name string, synced extent) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.name, g.log.synced
}

// ours reports whether the path names a file in the store's directory.
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

// Open pauses before it opens a table of a failed store, because Pebble retries failed background work without a pause.
func (g *guard) Open(path string, opts ...vfs.OpenOption) (vfs.File, error) {
	if isTable(g.PathBase(path)) && g.err() != nil {
		time.Sleep(retryPause)
	}
	return g.FS.Open(path, opts...)
}

const retryPause = 10 * time.Millisecond

// ReuseForWrite creates a new file, because overwriting the old file would destroy bytes that a repair may need.
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
		// The file has been written, synced and closed. It is small, so reading it again is cheap.
		sum, err := sumOf(g.FS, to, false)
		g.fail(err)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.files[name] = &guarded{name: name, written: sum, synced: sum}
	}
	return nil
}

// Lock does nothing, because the store has already locked the directory.
func (g *guard) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (g *guard) OpenDir(path string) (vfs.File, error) {
	dir, err := g.FS.OpenDir(path)
	if err != nil || path != g.dir {
		return dir, err
	}
	return &guardedDir{dir, g}, nil
}

// A guardedDir records which file names are on the disk.
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
			due = due || !f.table // a table counts only once the MANIFEST that lists it is synced
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

// do applies a change through the guard. If the file is a table and the store has failed, do then waits as park does.
func (f *guardedFile) do(change func() error) {
	f.g.do(change)
	if f.of.table {
		f.g.park()
	}
}

func (f *guardedFile) Write(b []byte) (int, error) {
	n := len(b)
	f.do(func() error {
		written, next := f.of.written.with(b), f.of.next.with(b) // computed before the write, which may change b
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

// Preallocate does nothing, because Pebble asks for more space than a small disk has.
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

// sync calls the function and, if it reports that everything is on the disk, records the written bytes as synced.
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
