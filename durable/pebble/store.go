// SPDX-License-Identifier: MIT

package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/internal/descriptors"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A Store is an [engine.Store] that stores its records in a directory. It is also an [engine.FailureReporter], an
// [engine.Backuper], an [engine.Noter], an [engine.SizeReporter] and an [engine.SpaceReporter]. See [Open].
type Store struct {
	db      *pebble.DB
	dir     string
	format  string
	guard   *guard
	lock    io.Closer
	mark    watermark
	here    func() error // returns an error if the directory has been removed
	length  atomic.Int64
	batches chan *pebble.Batch
	results chan error

	backups sync.Mutex // held during a backup

	mu       sync.Mutex // protects the fields below; held during a commit
	littered bool       // there are many files that may be deleted once all tasks have been verified
	commits  uint64     // number of commits, as in the row rowCommits
	sum      uint64     // sum of the hashes, as in the row rowCommits
	indexed  bool       // every failing record has an f row
	noted    bool       // the row rowIndexed exists
	closed   bool
}

// ErrLocked is wrapped by the error that Open returns if the store is already open.
var ErrLocked = errors.New("durable/pebble: the store is open in another process or scheduler")

var errClosed = errors.New("durable/pebble: the store is closed")

var (
	rowCommits  = []byte("mcommits")
	rowSettings = []byte("msettings")
)

const cacheSize = 32 << 20

// Open opens the store in a directory. If the directory does not exist but its parent does, Open creates it with access
// for its owner only. The error wraps [ErrLocked] if the store is already open, [durable.ErrVersion] if it has an
// unsupported format, and [durable.ErrCorrupt] if it is damaged. In these cases Open changes nothing. It also refuses a
// directory that contains something other than a store, and leaves it unchanged.
//
// Every commit is synced to the disk. The store deletes no file before the first complete walk over [Store.Keys], which
// checks the store. A [durable.Scheduler] performs that walk after [durable.New].
//
// Opening a store requires 8 MB of free disk space in addition to the size of its logs. An open store requires space
// for about six logs and tables that are being written. Each takes up to 1/64 of the disk, but at most 32 MB. It uses up
// to [MaxDescriptors] file descriptors.
func Open(dir string) (*Store, error) {
	dir, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	return open(dir, vfs.Default, 0)
}

// open opens the store. If memTable is 0, open uses a size that suits the disk.
func open(dir string, files vfs.FS, memTable uint64) (*Store, error) {
	s := &Store{dir: dir, format: format, batches: make(chan *pebble.Batch), results: make(chan error, 1)}
	if err := s.start(files, memTable); err != nil {
		return nil, err
	}
	return s, nil
}

// start opens the store's files, and starts its goroutine.
func (s *Store) start(files vfs.FS, memTable uint64) error {
	if err := s.open(files, memTable); err != nil {
		if s.lock != nil {
			err = errors.Join(err, s.lock.Close())
		}
		return fmt.Errorf("durable/pebble: directory %s: %w", s.dir, err)
	}
	go s.commitBatches()
	return nil
}

func (s *Store) open(files vfs.FS, memTable uint64) (err error) {
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
	now, err := checkDirectory(files, s.dir, s.format)
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
	if s.format != formatKV {
		err = errors.Join(err, s.readCounts())
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
	if s.format == formatKV {
		return nil
	}
	if err := upgradeFormat(files, s.dir); err != nil {
		return errors.Join(err, s.mark.close(), s.closeDB())
	}
	return s.walkIfLittered()
}

// litter is the number of files, other than tables, that an unchecked store may accumulate. Each open adds a few files,
// which are deleted only after a complete walk over the keys. A process that repeatedly ends before that walk is
// complete would otherwise fill the directory.
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

// walkIfLittered walks over the keys if the directory contains too many files that may be deleted after the walk.
func (s *Store) walkIfLittered() error {
	if !s.littered {
		return nil
	}
	for _, err := range s.keys(nil) {
		if err != nil {
			return errors.Join(err, s.mark.close(), s.closeDB())
		}
	}
	return nil
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
func (s *Store) openDB(memTable uint64) error {
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
		is.db, is.err = pebble.Open(s.dir, o)
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

// patience is how long Pebble may take to return after a failure.
const patience = time.Second

// readCounts reads the number of commits, the number of records and the sum of their hashes.
func (s *Store) readCounts() error {
	counts, ok, err := numbers(s.db, rowCommits, 3)
	if ok {
		s.commits, s.sum = counts[0], counts[2]
		s.length.Store(int64(counts[1]))
	}
	if err != nil {
		return damaged(err)
	}
	_, s.noted, err = numbers(s.db, rowIndexed, 0)
	s.indexed = s.noted || !ok // a new store has no failing records
	return damaged(err)
}

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
func (s *Store) check(err error) error {
	if err = damaged(err); errors.Is(err, engine.ErrCorrupt) {
		s.guard.fail(err)
	}
	return err
}

// Failed returns a channel that is closed when the store fails. Err then returns the cause.
func (s *Store) Failed() <-chan struct{} { return s.guard.failed }

// Err returns the cause if the store has failed, and nil otherwise.
func (s *Store) Err() error { return s.guard.err() }

// numbers reads a row that consists of n numbers, and reports whether the row exists.
func numbers(from pebble.Reader, row []byte, n int) (all []uint64, ok bool, err error) {
	value, closer, err := from.Get(row)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = closer.Close() }()
	if len(value) != 8*n {
		return nil, false, fmt.Errorf("%w: row %q is %x", engine.ErrCorrupt, row, value)
	}
	for i := range n {
		all = append(all, binary.BigEndian.Uint64(value[8*i:]))
	}
	return all, true, nil
}

func appendKeyRow(b []byte, key string) []byte { return append(append(b, 'k'), key...) }

func appendDueRow(b []byte, p engine.Position) []byte {
	b = binary.BigEndian.AppendUint64(append(b, 'd'), orderly(p.Due))
	return append(b, p.Key...)
}

// orderly maps due times to numbers whose bytes sort in the same order. disorderly is its inverse.
func orderly(due int64) uint64  { return uint64(due) ^ 1<<63 }
func disorderly(n uint64) int64 { return int64(n ^ 1<<63) }

// Commit applies all of the changes or none of them, and syncs them to the disk.
func (s *Store) Commit(changes []engine.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(); err != nil {
		return err
	}
	return s.commitLocked(changes)
}

// An otherRow is a row apart from the records.
type otherRow struct{ name, value []byte }

// commitLocked applies the changes, and stores the other rows. It deletes those whose value is nil.
func (s *Store) commitLocked(changes []engine.Change, others ...otherRow) error {
	b, length, sum, err := s.batch(changes, others)
	if err != nil {
		return errors.Join(err, b.Close())
	}
	if err := s.syncLocked(b); err != nil {
		return err
	}
	s.commits++
	s.length.Store(length)
	s.sum = sum
	s.noted = s.indexed
	return nil
}

// syncLocked commits the batch, and syncs it to the disk.
func (s *Store) syncLocked(b *pebble.Batch) (err error) {
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

// Settings returns the settings stored by the last call to SetSettings, or nil if there are none.
func (s *Store) Settings() ([]byte, error) {
	value, closer, err := s.db.Get(rowSettings)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, s.check(err)
	}
	return slices.Clone(value), closer.Close()
}

// SetSettings stores the settings and syncs them to the disk.
func (s *Store) SetSettings(settings []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(); err != nil {
		return err
	}
	return s.commitLocked(nil, otherRow{rowSettings, settings})
}

// SetNotes puts or deletes the notes and syncs them to the disk.
func (s *Store) SetNotes(notes []engine.Record) error {
	rows := make([]otherRow, len(notes))
	for i, note := range notes {
		rows[i] = otherRow{noteRow(note.Key), note.Data}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(); err != nil {
		return err
	}
	return s.commitLocked(nil, rows...)
}

// Notes walks over the notes in the range, in order of their names.
func (s *Store) Notes(over engine.Range) iter.Seq2[engine.Record, error] {
	return func(yield func(engine.Record, error) bool) {
		bounds := &pebble.IterOptions{LowerBound: noteRow(over.From), UpperBound: []byte("o")}
		if over.To != "" {
			bounds.UpperBound = noteRow(over.To)
		}
		err := walk(s.db, bounds, func(name, value []byte) (more bool, err error) {
			note := engine.Record{Key: string(name[1:])}
			if !over.Bare {
				note.Data = append([]byte{}, value...)
			}
			return yield(note, nil), nil
		})
		if err = s.check(err); err != nil {
			yield(engine.Record{}, err)
		}
	}
}

func noteRow(name string) []byte { return append([]byte{'n'}, name...) }

// usableLocked returns an error if the store cannot commit.
func (s *Store) usableLocked() error {
	if s.closed {
		return errClosed
	}
	return s.guard.err()
}

// commitBatches commits one batch after another.
func (s *Store) commitBatches() {
	commit := func(b *pebble.Batch) (err error) {
		defer func() { err = recovered(recover(), err) }()
		return errors.Join(b.Commit(pebble.Sync), b.Close())
	}
	for b := range s.batches {
		s.results <- commit(b)
	}
}

// batch returns the Pebble batch for the changes and the other rows, and the counts after its commit.
func (s *Store) batch(changes []engine.Change, others []otherRow,
) (b *pebble.Batch, length int64, sum uint64, err error) {
	size := 0
	for _, r := range others {
		size += len(r.name) + len(r.value)
	}
	for _, c := range changes {
		size += 96 + 3*len(c.Key) + len(c.Data)
	}
	b, length, sum = s.db.NewBatchWithSize(size), s.length.Load(), s.sum
	var row []byte
	set := func(row, value []byte) {
		if err == nil {
			err = b.Set(row, value, nil)
		}
	}
	remove := func(row []byte) {
		if err == nil {
			err = b.Delete(row, nil)
		}
	}
	for _, c := range changes {
		if c.From != engine.None {
			row = appendDueRow(row[:0], engine.Position{Due: c.From, Key: c.Key})
			length--
			sum -= xxhash.Sum64(row)
			if c.From != c.Due {
				remove(row)
			}
		}
		if c.WasFailing && !c.Failing {
			row = appendFailingRow(row[:0], c.Key)
			remove(row)
		}
		if c.Due == engine.None {
			row = appendKeyRow(row[:0], c.Key)
			remove(row)
			continue
		}
		if c.From != c.Due {
			row = appendKeyRow(row[:0], c.Key)
			set(row, binary.BigEndian.AppendUint64(nil, orderly(c.Due)))
		}
		row = appendDueRow(row[:0], engine.Position{Due: c.Due, Key: c.Key})
		length++
		sum += xxhash.Sum64(row)
		set(row, c.Data)
		if c.Failing {
			row = appendFailingRow(row[:0], c.Key)
			set(row, binary.BigEndian.AppendUint64(nil, orderly(c.Due)))
		}
	}
	if s.indexed && !s.noted {
		set(rowIndexed, nil)
	}
	for _, r := range others {
		if r.value == nil {
			remove(r.name)
		} else {
			set(r.name, r.value)
		}
	}
	counts := make([]byte, 0, 24)
	for _, n := range []uint64{s.commits + 1, uint64(length), sum} {
		counts = binary.BigEndian.AppendUint64(counts, n)
	}
	set(rowCommits, counts)
	return b, length, sum, err
}

// Get returns the record with the given key, and reports whether it exists.
func (s *Store) Get(key string) (engine.Record, bool, error) {
	r, ok, err := get(s.db, key)
	if errors.Is(err, pebble.ErrNotFound) { // the record was moved between the two reads, or its data is lost
		snapshot := s.db.NewSnapshot()
		defer func() { _ = snapshot.Close() }()
		r, ok, err = get(snapshot, key)
		err = noData(err, key)
	}
	return r, ok, s.check(err)
}

// noData returns err, but replaces pebble.ErrNotFound with an error that wraps ErrCorrupt. A record that has its first
// row but not its second is damaged.
func noData(err error, key string) error {
	if errors.Is(err, pebble.ErrNotFound) {
		return fmt.Errorf("%w: no data of %q", engine.ErrCorrupt, key)
	}
	return err
}

// get reads the record with the given key. It returns pebble.ErrNotFound if the record has its first row but not its
// second.
func get(from pebble.Reader, key string) (engine.Record, bool, error) {
	n, ok, err := numbers(from, appendKeyRow(nil, key), 1)
	if err != nil || !ok {
		return engine.Record{}, false, err
	}
	r, err := record(from, key, disorderly(n[0]))
	return r, err == nil, err
}

// record returns the record with the given key and due time, or pebble.ErrNotFound if it does not exist.
func record(from pebble.Reader, key string, due int64) (engine.Record, error) {
	r := engine.Record{Key: key, Due: due}
	data, closer, err := from.Get(appendDueRow(nil, r.Position()))
	if err != nil {
		return r, err
	}
	r.Data = append([]byte(nil), data...)
	return r, closer.Close()
}

// Due walks, in due order, over the records that come after the position and are due no later than the given time.
func (s *Store) Due(after engine.Position, until int64) iter.Seq2[engine.Record, error] {
	return func(yield func(engine.Record, error) bool) {
		bounds := &pebble.IterOptions{LowerBound: append(appendDueRow(nil, after), 0), UpperBound: []byte("e")}
		if until < math.MaxInt64 {
			bounds.UpperBound = appendDueRow(nil, engine.Position{Due: until + 1})
		}
		err := walk(s.db, bounds, func(key, value []byte) (more bool, err error) {
			if len(key) < 9 {
				return false, fmt.Errorf("%w: row %x", engine.ErrCorrupt, key)
			}
			due := disorderly(binary.BigEndian.Uint64(key[1:]))
			return yield(engine.Record{Key: string(key[9:]), Due: due, Data: append([]byte(nil), value...)}, nil), nil
		})
		if err = s.check(err); err != nil {
			yield(engine.Record{}, err)
		}
	}
}

// Keys walks over all keys that exist when Keys is called. A complete walk also checks the store. If the store was
// created in a format without f rows, the walk creates them.
func (s *Store) Keys() iter.Seq2[string, error] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.indexed {
		return s.keys(nil)
	}
	return s.keys(&indexer{store: s})
}

// keys implements Keys. It passes each key to the indexer, unless the indexer is nil.
func (s *Store) keys(index *indexer) iter.Seq2[string, error] {
	snapshot := s.db.NewSnapshot()
	return func(yield func(string, error) bool) {
		defer func() { _ = snapshot.Close() }()
		var length, sum uint64
		var row []byte
		whole := true
		bounds := &pebble.IterOptions{LowerBound: []byte("k"), UpperBound: []byte("l")}
		err := walk(snapshot, bounds, func(key, value []byte) (more bool, err error) {
			if len(value) != 8 {
				return false, fmt.Errorf("%w: row %x is %x", engine.ErrCorrupt, key, value)
			}
			row = append(append(append(row[:0], 'd'), value...), key[1:]...)
			length++
			sum += xxhash.Sum64(row)
			if index != nil {
				if err := index.see(snapshot, string(key[1:])); err != nil {
					return false, err
				}
			}
			whole = yield(string(key[1:]), nil)
			return whole, nil
		})
		if err == nil && whole {
			err = s.checkCounts(snapshot, length, sum)
			if err == nil && index != nil {
				err = index.finish()
			}
		}
		if err = s.check(err); err != nil {
			yield("", err)
		}
	}
}

// checkCounts compares the counts from a walk over all keys with the committed counts. If they agree, the files that
// Pebble has removed may be deleted.
func (s *Store) checkCounts(snapshot pebble.Reader, length, sum uint64) error {
	counts, ok, err := numbers(snapshot, rowCommits, 3)
	if err != nil {
		return err
	}
	if !ok {
		counts = make([]uint64, 3)
	}
	if length != counts[1] || sum != counts[2] {
		return fmt.Errorf("%w: there are %d tasks with the sum %016x, and %d with the sum %016x were committed",
			engine.ErrCorrupt, length, sum, counts[1], counts[2])
	}
	s.guard.check()
	return nil
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

// Len returns the number of records.
func (s *Store) Len() int { return int(s.length.Load()) }

// Size returns the approximate size of the store's files in bytes. It reads no file.
func (s *Store) Size() int64 {
	m := s.db.Metrics()
	return int64(m.DiskSpaceUsage())
}

// Space returns how many bytes of the disk are available to the store, and the size of the disk in bytes. Both are 0 if
// the file system does not report them.
func (s *Store) Space() (free, size int64) {
	disk, err := s.guard.GetDiskUsage(s.dir)
	if err != nil {
		return 0, 0
	}
	return int64(disk.AvailBytes), int64(disk.TotalBytes)
}

// Close closes the store. If the store has failed, Close returns the cause. Commits made before the failure are on the
// disk.
func (s *Store) Close() error {
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
func (s *Store) closeDB() error {
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
func (s *Store) flush() {
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
