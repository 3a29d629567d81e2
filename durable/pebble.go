// SPDX-License-Identifier: MIT

package durable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/sirupsen/logrus"
)

// A pebbleStore is a Store in a directory, on Pebble, a log-structured merge tree. Its rows:
//
//	m commits             how many commits there were, and how many records there are
//	k key                 the due time of the record of the key
//	d due key             the data of that record
//
// So the records lie in due order and are read one after the other, a look-up by key takes two reads, and the
// keys alone can be read quickly. Numbers are big-endian; due times have their sign bit flipped, so that the
// order of the bytes is that of the numbers.
type pebbleStore struct {
	db     *pebble.DB
	files  *logFiles
	lock   *pebble.Lock
	mark   watermark
	length atomic.Int64

	trouble chan struct{} // closed when something has failed in the background

	mu      sync.Mutex // protects below
	commits uint64
	closed  bool
	broken  bool // a commit has failed
}

var rowCommits = []byte("mcommits")

const (
	cacheSize    = 32 << 20
	memTableSize = 32 << 20
)

// OpenPebble opens the store in a directory, which it makes, for its user alone, if its parent is there. Every
// commit is synced to the disk.
func OpenPebble(dir string) (Store, error) { return openDisk(dir, logrus.StandardLogger()) }

func openDisk(dir string, log logrus.FieldLogger) (Store, error) {
	return openPebble(filepath.Clean(dir), vfs.Default, memTableSize, log)
}

func openPebble(dir string, files vfs.FS, memTable uint64, log logrus.FieldLogger) (Store, error) {
	failed := func(err error) (Store, error) { return nil, fmt.Errorf("durable: directory %s: %w", dir, err) }
	names, err := files.List(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := files.Stat(files.PathDir(dir)); err != nil {
			return failed(err)
		}
		if err := files.MkdirAll(dir, 0o700); err != nil {
			return failed(err)
		}
	case err != nil:
		return failed(err)
	case !slices.Contains(names, formatName) && slices.ContainsFunc(names, foreign):
		return failed(errors.New("it holds something else than a store"))
	}
	lock, err := pebble.LockDirectory(dir, files)
	if errors.Is(err, syscall.EAGAIN) || err != nil && strings.Contains(err.Error(), "held by current process") {
		return nil, fmt.Errorf("%w: %s: %w", ErrLocked, dir, err)
	}
	if err != nil {
		return failed(err)
	}
	s := &pebbleStore{files: &logFiles{FS: files}, lock: lock, trouble: make(chan struct{})}
	if err := s.open(dir, files, memTable, log); err != nil {
		if pebble.IsCorruptionError(err) {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		_, err = failed(errors.Join(err, lock.Close()))
		return nil, err
	}
	return s, nil
}

func (s *pebbleStore) open(dir string, files vfs.FS, memTable uint64, log logrus.FieldLogger) (err error) {
	if err := checkFormat(dir, files); err != nil {
		return err
	}
	if err := checkRoom(dir, files); err != nil {
		return err
	}
	cache := pebble.NewCache(cacheSize)
	defer cache.Unref()
	o := &pebble.Options{
		FS:                 s.files,
		Lock:               s.lock,
		Cache:              cache,
		MemTableSize:       memTable,
		FormatMajorVersion: pebble.FormatNewest,
		Logger:             pebbleLogger{log},
	}
	o.EnsureDefaults()
	// A corruption is an error of the read that meets it, and not the end of the process.
	o.EventListener.DataCorruption = func(i pebble.DataCorruptionInfo) { o.Logger.Errorf("%s", i) }
	// What fails in the background is tried again at once, as long as the disk is full.
	var said sync.Once
	o.EventListener.BackgroundError = func(err error) {
		said.Do(func() {
			o.Logger.Errorf("in the background, and perhaps again and again: %v", err)
			close(s.trouble)
		})
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // a key that is not there is seldom looked for on the disk
	}
	defer func() {
		if f, ok := recovered(recover()); ok {
			err = f
		}
	}()
	if err := s.verify(dir, *o); err != nil {
		return err
	}
	if s.db, err = pebble.Open(dir, o); err != nil && removeBeginnings(dir, files) {
		s.db, err = pebble.Open(dir, o)
	}
	if err != nil {
		return err
	}
	file, err := files.OpenReadWrite(files.PathJoin(dir, watermarkName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return errors.Join(err, s.db.Close())
	}
	s.mark = watermark{file}
	if err := errors.Join(s.readCounts(), s.files.err()); err != nil {
		return errors.Join(err, file.Close(), s.db.Close())
	}
	return nil
}

// verify reads the store as it is and compares it with the watermark, before it is opened to be written: then
// the log is read into tables and removed, and with it what lies behind a damage.
func (s *pebbleStore) verify(dir string, o pebble.Options) (err error) {
	files := o.FS
	file, err := files.Open(files.PathJoin(dir, watermarkName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there has been no commit
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	o.ReadOnly = true
	if s.db, err = pebble.Open(dir, &o); err != nil {
		return err
	}
	s.mark = watermark{file}
	return errors.Join(s.readCounts(), s.db.Close())
}

// removeBeginnings removes what a power cut has left of a store that was being made, and reports whether it
// was that: there has been no commit, and no file has a record in it.
func removeBeginnings(dir string, files vfs.FS) bool {
	names, err := files.List(dir)
	if err != nil || slices.Contains(names, watermarkName) {
		return false
	}
	begins := func(name string) bool {
		return strings.HasPrefix(name, "MANIFEST-") || strings.HasPrefix(name, "OPTIONS-") ||
			strings.HasPrefix(name, "marker.") || strings.HasPrefix(name, "temporary.")
	}
	var beginnings []string
	for _, name := range names {
		path := files.PathJoin(dir, name)
		info, err := files.Stat(path)
		switch {
		case err != nil:
			return false
		case !foreign(name) || name == formatName:
		case begins(name), isLog(name) && info.Size() == 0:
			beginnings = append(beginnings, path)
		default:
			return false
		}
	}
	for _, path := range beginnings {
		if files.Remove(path) != nil {
			return false
		}
	}
	return true
}

// readCounts reads how many commits and records there are, and compares it with the watermark.
func (s *pebbleStore) readCounts() error {
	marked, err := s.mark.read()
	if err != nil {
		return err
	}
	counts, isThere, err := numbers(s.db, rowCommits, 2)
	if err != nil {
		return err
	}
	if isThere {
		s.commits = counts[0]
		s.length.Store(int64(counts[1]))
	}
	if s.commits < marked {
		return fmt.Errorf("%w: the end of the log is damaged; %d of %d commits were read, with %d tasks",
			ErrCorrupt, s.commits, marked, s.length.Load())
	}
	return nil
}

// numbers reads a row of n numbers.
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
		return nil, false, fmt.Errorf("%w: row %q is %x", ErrCorrupt, row, value)
	}
	for i := range n {
		all = append(all, binary.BigEndian.Uint64(value[8*i:]))
	}
	return all, true, nil
}

func appendKeyRow(b []byte, key string) []byte { return append(append(b, 'k'), key...) }

func appendDueRow(b []byte, p Position) []byte {
	b = binary.BigEndian.AppendUint64(append(b, 'd'), orderly(p.Due))
	return append(b, p.Key...)
}

// orderly maps due times to numbers whose bytes have the same order; disorderly is its inverse.
func orderly(due int64) uint64  { return uint64(due) ^ 1<<63 }
func disorderly(n uint64) int64 { return int64(n ^ 1<<63) }

func (s *pebbleStore) Commit(changes []Change) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.broken {
		return errors.New("durable: the store is closed or has failed before")
	}
	defer func() {
		if f, ok := recovered(recover()); ok {
			err = f
		}
		s.broken = err != nil
	}()
	size := 0
	for _, c := range changes {
		size += 96 + 3*len(c.Key) + len(c.Data)
	}
	b := s.db.NewBatchWithSize(size)
	defer func() { err = errors.Join(err, b.Close()) }()
	var row []byte
	length := s.length.Load()
	for _, c := range changes {
		if c.From != None && c.From != c.Due {
			row = appendDueRow(row[:0], Position{c.From, c.Key})
			if err := b.Delete(row, nil); err != nil {
				return err
			}
		}
		if c.Due == None {
			row = appendKeyRow(row[:0], c.Key)
			if err := b.Delete(row, nil); err != nil {
				return err
			}
			length--
			continue
		}
		if c.From == None {
			length++
		}
		if c.From != c.Due {
			var due [8]byte
			binary.BigEndian.PutUint64(due[:], orderly(c.Due))
			row = appendKeyRow(row[:0], c.Key)
			if err := b.Set(row, due[:], nil); err != nil {
				return err
			}
		}
		row = appendDueRow(row[:0], Position{c.Due, c.Key})
		if err := b.Set(row, c.Data, nil); err != nil {
			return err
		}
	}
	var counts [16]byte
	binary.BigEndian.PutUint64(counts[:8], s.commits+1)
	binary.BigEndian.PutUint64(counts[8:], uint64(length))
	if err := b.Set(rowCommits, counts[:], nil); err != nil {
		return err
	}
	if err := errors.Join(b.Commit(pebble.Sync), s.files.err()); err != nil {
		return err
	}
	s.commits++
	s.length.Store(length)
	return s.mark.write(s.commits)
}

func (s *pebbleStore) Get(key string) (Record, bool, error) {
	r, ok, err := get(s.db, key)
	if errors.Is(err, pebble.ErrNotFound) { // it was moved between the two reads, or its data is lost
		snapshot := s.db.NewSnapshot()
		defer func() { _ = snapshot.Close() }()
		if r, ok, err = get(snapshot, key); errors.Is(err, pebble.ErrNotFound) {
			err = fmt.Errorf("%w: no data of %q", ErrCorrupt, key)
		}
	}
	return r, ok, err
}

// get returns pebble.ErrNotFound if there is the first row of a record and not the second.
func get(from pebble.Reader, key string) (Record, bool, error) {
	n, ok, err := numbers(from, appendKeyRow(nil, key), 1)
	if err != nil || !ok {
		return Record{}, false, err
	}
	due := disorderly(n[0])
	data, closer, err := from.Get(appendDueRow(nil, Position{due, key}))
	if err != nil {
		return Record{}, false, err
	}
	return Record{key, due, append([]byte(nil), data...)}, true, closer.Close()
}

func (s *pebbleStore) Due(after Position, until int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		bounds := &pebble.IterOptions{LowerBound: append(appendDueRow(nil, after), 0), UpperBound: []byte("e")}
		if until < Never {
			bounds.UpperBound = appendDueRow(nil, Position{Due: until + 1})
		}
		it, err := s.db.NewIter(bounds)
		walk(it, err, func(key, value []byte) (Record, error) {
			if len(key) < 9 {
				return Record{}, fmt.Errorf("%w: row %x", ErrCorrupt, key)
			}
			due := disorderly(binary.BigEndian.Uint64(key[1:]))
			return Record{string(key[9:]), due, append([]byte(nil), value...)}, nil
		}, yield)
	}
}

func (s *pebbleStore) Keys() iter.Seq2[string, error] {
	snapshot := s.db.NewSnapshot()
	return func(yield func(string, error) bool) {
		defer func() { _ = snapshot.Close() }()
		it, err := snapshot.NewIter(&pebble.IterOptions{LowerBound: []byte("k"), UpperBound: []byte("l")})
		walk(it, err, func(key, _ []byte) (string, error) { return string(key[1:]), nil }, yield)
	}
}

// walk yields what is read from each row.
func walk[T any](
	it *pebble.Iterator, err error, read func(key, value []byte) (T, error), yield func(T, error) bool,
) {
	var none T
	if err != nil {
		yield(none, err)
		return
	}
	defer func() { _ = it.Close() }()
	for it.First(); it.Valid(); it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			yield(none, err)
			return
		}
		r, err := read(it.Key(), value)
		if !yield(r, err) || err != nil {
			return
		}
	}
	if err := it.Error(); err != nil {
		yield(none, err)
	}
}

func (s *pebbleStore) Len() int { return int(s.length.Load()) }

func (s *pebbleStore) Close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	defer func() {
		if f, ok := recovered(recover()); ok {
			err = f
		}
		err = errors.Join(err, s.mark.close(), s.lock.Close())
	}()
	if !s.broken && s.files.err() == nil {
		s.flush()
	}
	return s.db.Close()
}

// flush writes what is in the log alone into a table, every byte of which has its checksum. It is not needed:
// if the disk is full, which would keep it trying for ever, or very slow, the log has it all.
func (s *pebbleStore) flush() {
	flushed, err := s.db.AsyncFlush()
	if err != nil {
		return
	}
	select {
	case <-flushed:
	case <-s.trouble:
	case <-time.After(flushPatience):
	}
}

const flushPatience = 10 * time.Second

// pebbleLogger passes on what Pebble has to complain about. Pebble takes it for granted that Fatalf does not
// return: it is told of a failure on the goroutine that opens, commits or closes, which recovers; and of one in
// the background, where it cannot write its own books, which ends the process.
type pebbleLogger struct{ log logrus.FieldLogger }

func (pebbleLogger) Infof(string, ...any) {}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Errorf("durable: pebble: "+format, args...)
}

func (pebbleLogger) Fatalf(format string, args ...any) {
	// The errors among the arguments are to be found in that which Commit returns.
	panic(fmt.Errorf(strings.ReplaceAll(format, "%v", "%w"), args...))
}

// recovered returns the error in what was recovered, if anything was; what is no error goes on.
func recovered(value any) (error, bool) {
	if value == nil {
		return nil, false
	}
	err, ok := value.(error)
	if !ok {
		panic(value)
	}
	return err, true
}
