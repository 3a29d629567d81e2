// SPDX-License-Identifier: MIT

package durable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/sirupsen/logrus"
)

// A pebbleStore is a Store in a directory, on Pebble, a log-structured merge tree. Its rows:
//
//	m version             the version of the format
//	m commits             how many commits there were, and how many records there are
//	k key                 the due time of the record of the key
//	d due key             the data of that record
//
// So the records lie in due order and are read one after the other, a look-up by key takes two reads, and the
// keys alone can be read quickly. Numbers are big-endian; due times have their sign bit flipped, so that the
// order of the bytes is that of the numbers.
type pebbleStore struct {
	db     *pebble.DB
	lock   *pebble.Lock
	mark   watermark
	length atomic.Int64

	mu      sync.Mutex // protects below
	commits uint64
	closed  bool
	broken  bool // a commit has failed
}

const formatVersion = 1

var (
	rowVersion = []byte("mversion")
	rowCommits = []byte("mcommits")
)

const (
	cacheSize    = 32 << 20
	memTableSize = 32 << 20
)

// OpenPebble opens the store in a directory, which it makes if its parent is there. Every commit is synced to
// the disk.
func OpenPebble(dir string) (Store, error) { return openDisk(dir, logrus.StandardLogger()) }

func openDisk(dir string, log logrus.FieldLogger) (Store, error) {
	return openPebble(dir, vfs.Default, memTableSize, log)
}

func openPebble(dir string, files vfs.FS, memTable uint64, log logrus.FieldLogger) (Store, error) {
	names, err := files.List(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := files.Stat(files.PathDir(dir)); err != nil {
			return nil, fmt.Errorf("durable: directory %s: %w", dir, err)
		}
		if err := files.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("durable: directory %s: %w", dir, err)
		}
	case err != nil:
		return nil, fmt.Errorf("durable: directory %s: %w", dir, err)
	case len(names) > 0:
		if d, err := pebble.Peek(dir, files); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, dir, err)
		} else if !d.Exists && slices.ContainsFunc(names, foreign) {
			return nil, fmt.Errorf("durable: directory %s holds something else than a store", dir)
		}
	}
	lock, err := pebble.LockDirectory(dir, files)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrLocked, dir, err)
	}
	s := &pebbleStore{lock: lock}
	if err := s.open(dir, files, memTable, log); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

// foreign reports whether a file is none of those that an Open leaves behind which was cut off before there was
// a store.
func foreign(name string) bool {
	return name != "LOCK" && !strings.HasPrefix(name, "MANIFEST-") && !strings.HasPrefix(name, "marker.")
}

func (s *pebbleStore) open(dir string, files vfs.FS, memTable uint64, log logrus.FieldLogger) (err error) {
	cache := pebble.NewCache(cacheSize)
	defer cache.Unref()
	o := &pebble.Options{
		FS:                 files,
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
	var said atomic.Bool
	o.EventListener.BackgroundError = func(err error) {
		if said.CompareAndSwap(false, true) {
			o.Logger.Errorf("in the background, and perhaps again and again: %v", err)
		}
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // a key that is not there is seldom looked for on the disk
	}
	defer func() {
		if f, ok := recovered(recover()); ok {
			err = fmt.Errorf("%w: %s: %w", ErrCorrupt, dir, f)
		}
	}()
	if s.db, err = pebble.Open(dir, o); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, dir, err)
	}
	file, err := files.OpenReadWrite(files.PathJoin(dir, watermarkName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return errors.Join(fmt.Errorf("durable: directory %s: %w", dir, err), s.db.Close())
	}
	s.mark = watermark{file}
	if err := s.readMeta(dir); err != nil {
		return errors.Join(err, file.Close(), s.db.Close())
	}
	return nil
}

// readMeta reads the version and the length, or writes them if the store is new.
func (s *pebbleStore) readMeta(dir string) error {
	version, isThere, err := s.numbers(rowVersion, 1)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, dir, err)
	}
	marked, err := s.mark.read()
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, dir, err)
	}
	if !isThere {
		it, err := s.db.NewIter(nil)
		if err != nil {
			return err
		}
		foreign := it.First()
		if err := it.Close(); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrCorrupt, dir, err)
		}
		if foreign {
			return fmt.Errorf("durable: directory %s holds a Pebble store of another program", dir)
		}
		if marked > 0 {
			return fmt.Errorf("%w: %s is empty, after %d commits", ErrCorrupt, dir, marked)
		}
		return s.db.Set(rowVersion, binary.BigEndian.AppendUint64(nil, formatVersion), pebble.Sync)
	}
	if version[0] != formatVersion {
		return fmt.Errorf("%w: %s has %d, this program reads %d", ErrVersion, dir, version[0], formatVersion)
	}
	counts, isThere, err := s.numbers(rowCommits, 2)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, dir, err)
	}
	if isThere {
		s.commits = counts[0]
		s.length.Store(int64(counts[1]))
	}
	if s.commits < marked {
		return fmt.Errorf("%w: %s: the end of the log is damaged; %d of %d commits were read, with %d tasks",
			ErrCorrupt, dir, s.commits, marked, s.length.Load())
	}
	return nil
}

// numbers reads a row of n numbers.
func (s *pebbleStore) numbers(row []byte, n int) (all []uint64, ok bool, err error) {
	value, closer, err := s.db.Get(row)
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
	if err := b.Commit(pebble.Sync); err != nil {
		return err
	}
	s.commits++
	s.length.Store(length)
	return s.mark.write(s.commits)
}

func (s *pebbleStore) Get(key string) (Record, bool, error) {
	row := appendKeyRow(nil, key)
	for last := int64(None); ; {
		n, ok, err := s.numbers(row, 1)
		if err != nil || !ok {
			return Record{}, false, err
		}
		due := disorderly(n[0])
		data, closer, err := s.db.Get(appendDueRow(nil, Position{due, key}))
		switch {
		case err == nil:
			r := Record{key, due, append([]byte(nil), data...)}
			return r, true, closer.Close()
		case !errors.Is(err, pebble.ErrNotFound):
			return Record{}, false, err
		case due == last:
			return Record{}, false, fmt.Errorf("%w: no data of %q, due at %d", ErrCorrupt, key, due)
		}
		last = due // it was moved between the two reads, or its data is lost: the next look tells
	}
}

func (s *pebbleStore) Due(after Position, until int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		bounds := &pebble.IterOptions{LowerBound: append(appendDueRow(nil, after), 0), UpperBound: []byte("e")}
		if until < Never {
			bounds.UpperBound = appendDueRow(nil, Position{Due: until + 1})
		}
		s.walk(bounds, func(key, value []byte) (Record, error) {
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

func (s *pebbleStore) walk(
	bounds *pebble.IterOptions, read func(key, value []byte) (Record, error), yield func(Record, error) bool,
) {
	it, err := s.db.NewIter(bounds)
	walk(it, err, read, yield)
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
	if !s.broken {
		err = s.db.Flush() // into a table, every byte of which has its checksum
	}
	return errors.Join(err, s.db.Close())
}

// pebbleLogger passes on what Pebble has to complain about. Pebble takes it for granted that Fatalf does not
// return: it is told of a commit that failed, on the goroutine that made it, which recovers; and of trouble in
// the background after which it cannot go on, which ends the process.
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
