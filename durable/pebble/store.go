// SPDX-License-Identifier: MIT

package pebble

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/internal/descriptors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrLocked is wrapped by the error that Open returns if the store is already open.
var ErrLocked = errors.New("durable/pebble: the store is open in another process or scheduler")

var errClosed = errors.New("durable/pebble: the store is closed")

const cacheSize = 32 << 20

// Open returns an engine that stores its tasks in a directory. If the directory does not exist but its parent does, Open
// creates it with access for its owner only. The error wraps [ErrLocked] if the store is already open,
// [durable.ErrVersion] if it has an unsupported format, and [durable.ErrCorrupt] if it is damaged. In these cases Open
// changes nothing. It also refuses a directory that contains something other than a store, and leaves it unchanged.
//
// The engine belongs to one scheduler, whose Shutdown closes it ([durable.New]). Every commit is synced to the disk. The
// engine reads all tasks in the background, and deletes no file before that has shown that none is missing. If many
// processes have ended before, Open itself reads them, and returns early if ctx is done.
//
// Opening a store requires 8 MB of free disk space in addition to the size of its logs. An open store requires space
// for about six logs and tables that are being written. Each takes up to 1/64 of the disk, but at most 32 MB. It uses up
// to [MaxDescriptors] file descriptors.
func Open(ctx context.Context, dir string) (engine.Owned, error) {
	dir, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	s, err := open(dir, vfs.Default, 0)
	if err != nil {
		return nil, err
	}
	e, err := kv.New(ctx, s)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return e.(engine.Owned), nil
}

// open opens the store. If memTable is 0, open uses a size that suits the disk.
func open(dir string, files vfs.FS, memTable uint64) (*store, error) {
	s := &store{dir: dir, batches: make(chan *pebble.Batch), results: make(chan error, 1)}
	if err := s.open(files, memTable); err != nil {
		if s.lock != nil {
			err = errors.Join(err, s.lock.Close())
		}
		return nil, fmt.Errorf("durable/pebble: directory %s: %w", s.dir, err)
	}
	go s.commitBatches()
	return s, nil
}

func (s *store) open(files vfs.FS, memTable uint64) (err error) {
	if err := makeDirectory(files, s.dir); err != nil {
		return err
	}
	if files == vfs.Default {
		s.lock, err = lockDirectory(s.dir)
	} else if s.lock, err = files.Lock(files.PathJoin(s.dir, "LOCK")); errors.Is(err, syscall.EAGAIN) {
		err = fmt.Errorf("%w: %w", ErrLocked, err)
	}
	if err != nil {
		return err
	}
	now, err := checkDirectory(files, s.dir)
	if err != nil {
		return err
	}
	if err := checkRoom(files, s.dir); err != nil {
		return err
	}
	if err := syncFiles(files, s.dir, now); err != nil {
		return err
	}
	if err := files.RemoveAll(files.PathJoin(s.dir, backupName)); err != nil { // left by a backup that a crash ended
		return err
	}
	s.guard = newGuard(s.dir, files, now)
	if memTable == 0 {
		memTable = memTableFor(files, s.dir)
	}
	if err := s.openDB(memTable); err != nil {
		return err
	}
	path := files.PathJoin(s.dir, watermarkName)
	file, err := files.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		s.guard.fail(err) // so that Pebble writes nothing further
		return errors.Join(err, s.closeDB())
	}
	s.mark = watermark{file: file}
	s.here, err = presence(files, path)
	if err == nil && now == nil {
		name, _ := s.guard.lastLog()
		err = errors.Join(s.mark.begin(name, extent{}), syncDirectory(files, s.dir))
	}
	if err == nil {
		s.guard.serve()
		err = s.guard.save()
	}
	s.guard.fail(err)
	if err := s.guard.err(); err != nil {
		return errors.Join(err, file.Close(), s.closeDB())
	}
	s.littered = now.isLittered()
	return nil
}

// litter is the number of files, other than tables, that an unchecked store may accumulate. Each open adds a few files,
// which are deleted only after all tasks have been read. A process that repeatedly ends before that would otherwise fill
// the directory.
const litter = 64

// isLittered reports whether there are more files than that.
func (now inventory) isLittered() bool {
	n := 0
	for name := range now {
		if !isTable(name) {
			n++
		}
	}
	return n > litter
}

// presence returns a function that checks whether the path still names the same file.
func presence(files vfs.FS, path string) (func() error, error) {
	if files != vfs.Default {
		return func() error { _, err := files.Stat(path); return err }, nil
	}
	was, err := os.Stat(path)
	return func() error {
		is, err := os.Stat(path)
		if err == nil && !os.SameFile(was, is) {
			err = fmt.Errorf("%s has been replaced", path)
		}
		return err
	}, err
}

// openDB opens Pebble. If a write fails, openDB waits for Pebble no longer than patience.
func (s *store) openDB(memTable uint64) error {
	cache := pebble.NewCache(cacheSize)
	defer cache.Unref()
	o := &pebble.Options{
		FS:                  s.guard,
		Cache:               cache,
		MemTableSize:        memTable,
		FormatMajorVersion:  pebble.FormatNewest,
		MaxManifestFileSize: 4 << 20, // the MANIFEST is read at every open
		MaxOpenFiles:        openFiles(descriptors.Limit()),
		Logger:              logger{s.guard.fail},
	}
	o.EnsureDefaults()
	compactor := new(compactor)
	o.Experimental.CompactionScheduler = compactor
	// Without this handler, Pebble ends the process when it detects corruption. With it, the affected read returns an
	// error.
	o.EventListener.DataCorruption = func(i pebble.DataCorruptionInfo) {
		s.guard.fail(fmt.Errorf("%w: %s: %w", engine.ErrCorrupt, i.Path, i.Details))
	}
	o.EventListener.BackgroundError = func(err error) { s.guard.fail(damaged(err)) }
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // so that a look-up of a missing key seldom reads the disk
	}
	type opened struct {
		db  *pebble.DB
		err error
	}
	done := make(chan opened, 1)
	go func() {
		var is opened
		defer func() { done <- is }()
		defer func() { is.err = recovered(recover(), is.err) }()
		if is.db, is.err = pebble.Open(s.dir, o); is.err == nil {
			compactor.open()
			s.flatten(is.db)
		}
	}()
	var is opened
	select {
	case is = <-done:
	case <-s.guard.failed:
		select {
		case is = <-done:
		case <-time.After(patience):
			return s.guard.err() // Pebble is abandoned and can no longer write
		}
	}
	s.db = is.db
	if err := s.guard.err(); err != nil {
		if s.db != nil {
			return errors.Join(err, s.closeDB())
		}
		return err
	}
	// The files match the inventory. If Pebble still cannot read them, and the cause is not a system error, they are
	// damaged.
	if errno := syscall.Errno(0); is.err != nil && (!errors.As(is.err, &errno) || errno == syscall.ENOENT) {
		return fmt.Errorf("%w: %w", engine.ErrCorrupt, is.err)
	}
	return is.err
}

// deep is the number of layers of new tables from which a store is compacted before it is open. Each open adds a layer.
// At 12, Pebble lets commits wait, and each layer takes a file descriptor.
const deep = 8

// flatten waits until there are fewer layers, or the store has failed. Processes that end before their first compaction
// does, one after another, would otherwise add layers without bound.
func (s *store) flatten(db *pebble.DB) {
	for db.Metrics().Levels[0].Sublevels >= deep && s.guard.err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
}

// patience is how long Pebble may take to return after a failure.
const patience = time.Second

// damaged returns the error, wrapped with ErrCorrupt if it indicates damage.
func damaged(err error) error {
	if err == nil || errors.Is(err, engine.ErrCorrupt) {
		return err
	}
	if pebble.IsCorruptionError(err) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", engine.ErrCorrupt, err)
	}
	return err
}

// check returns the read error, wrapped with ErrCorrupt if it indicates damage. In that case the store also fails.
func (s *store) check(err error) error {
	if err = damaged(err); errors.Is(err, engine.ErrCorrupt) {
		s.guard.fail(err)
	}
	return err
}

// Failed returns a channel that is closed when the store fails. Err then returns the cause.
func (s *store) Failed() <-chan struct{} { return s.guard.failed }

// Err returns the cause if the store has failed, and nil otherwise.
func (s *store) Err() error { return s.guard.err() }

// syncLocked commits the batch, and syncs it to the disk.
func (s *store) syncLocked(b *pebble.Batch) (err error) {
	// Pebble may wait forever for background work that has failed, so another goroutine performs the commit.
	s.batches <- b
	select {
	case err = <-s.results:
	case <-s.guard.failed:
		return s.guard.err()
	}
	if err == nil {
		err = s.here() // the files of a removed directory can still be written and synced
	}
	if err == nil {
		err = s.mark.write(s.guard.lastLog())
	}
	s.guard.fail(damaged(err))
	return s.guard.err()
}

// usableLocked returns an error if the store cannot commit.
func (s *store) usableLocked() error {
	if s.closed {
		return errClosed
	}
	return s.guard.err()
}

// commitBatches commits one batch after another.
func (s *store) commitBatches() {
	commit := func(b *pebble.Batch) (err error) {
		defer func() { err = recovered(recover(), err) }()
		return errors.Join(b.Commit(pebble.Sync), b.Close())
	}
	for b := range s.batches {
		s.results <- commit(b)
	}
}

// walk calls row for each row within the bounds until row returns false or an error. It returns the error that ended
// the walk, or nil.
func walk(
	from pebble.Reader, bounds *pebble.IterOptions, row func(key, value []byte) (more bool, err error),
) error {
	it, err := from.NewIter(bounds)
	if err != nil {
		return err
	}
	defer func() { _ = it.Close() }()
	for it.First(); it.Valid(); it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if more, err := row(it.Key(), value); err != nil || !more {
			return err
		}
	}
	return it.Error()
}

// Size returns the approximate size of the store's files in bytes. It reads no file.
func (s *store) Size() int64 {
	m := s.db.Metrics()
	return int64(m.DiskSpaceUsage())
}

// Space returns how many bytes of the disk are available to the store, and the size of the disk in bytes. Both are 0 if
// the file system does not report them.
func (s *store) Space() (free, size int64) {
	disk, err := s.guard.GetDiskUsage(s.dir)
	if err != nil {
		return 0, 0
	}
	return int64(disk.AvailBytes), int64(disk.TotalBytes)
}

// Close closes the store. If the store has failed, Close returns the cause. Commits made before the failure are on the
// disk.
func (s *store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	close(s.batches)
	if s.guard.err() == nil {
		s.flush()
	}
	s.guard.fail(s.closeDB())
	if s.guard.err() == nil {
		s.guard.fail(s.guard.save())
	}
	return errors.Join(s.guard.err(), s.mark.close(), s.lock.Close())
}

// closeDB closes Pebble. After a failure it waits no longer than patience, because Pebble can no longer write.
func (s *store) closeDB() error {
	s.guard.dismiss()
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() { done <- err }()
		defer func() { err = recovered(recover(), err) }()
		err = s.db.Close()
	}()
	select {
	case err := <-done:
		return err
	case <-s.guard.failed:
	}
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		return nil
	}
}

// flush writes rows that are only in the log to a table, in which a checksum covers every byte. Flushing is optional:
// if the disk is very slow, the rows stay in the log.
func (s *store) flush() {
	flushed, err := s.db.AsyncFlush()
	if err != nil {
		return
	}
	select {
	case <-flushed:
	case <-s.guard.failed:
	case <-time.After(flushPatience):
	}
}

const flushPatience = 10 * time.Second

// A logger receives Pebble's messages. It ignores all but fatal ones, because important errors also arrive as events or
// through Fatalf. Pebble relies on Fatalf not returning, and may call it on any goroutine and with locks held. Fatalf
// therefore fails the store and blocks the calling goroutine forever.
type logger struct{ fail func(error) }

func (logger) Infof(string, ...any)  {}
func (logger) Errorf(string, ...any) {}

func (l logger) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	for _, arg := range args {
		if cause, ok := arg.(error); ok {
			err = fmt.Errorf("pebble: %w", cause)
		}
	}
	l.fail(damaged(err))
	select {}
}

// recovered returns the recovered value if it is an error, or err if nothing was recovered. It panics again with any
// other value.
func recovered(value any, err error) error {
	if value == nil {
		return err
	}
	is, ok := value.(error)
	if !ok {
		panic(value)
	}
	return is
}
