// SPDX-License-Identifier: MIT

package durable

import (
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// logFiles is a file system on which the log never fails: what does fail is kept, to be asked for after each
// commit, and from then on the log leads nowhere. Pebble, when it cannot go on to its next log, panics in a
// way that nobody can recover from; this way a commit returns an error, and the process goes on.
type logFiles struct {
	vfs.FS
	failure atomic.Pointer[error]
}

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

// err returns what failed first.
func (f *logFiles) err() error {
	if err := f.failure.Load(); err != nil {
		return *err
	}
	return nil
}

func (f *logFiles) keep(err error) {
	if err != nil {
		f.failure.CompareAndSwap(nil, &err)
	}
}

func (f *logFiles) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return f.log(name, file, err)
}

func (f *logFiles) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(from, to, c)
	return f.log(to, file, err)
}

// log returns the file as it is if it is no log.
func (f *logFiles) log(name string, file vfs.File, err error) (vfs.File, error) {
	if !isLog(name) {
		return file, err
	}
	if err != nil {
		f.keep(err)
		if file, err = vfs.NewMem().Create("nowhere", vfs.WriteCategoryUnspecified); err != nil {
			return nil, err
		}
	}
	return &logFile{file, f}, nil
}

type logFile struct {
	vfs.File
	of *logFiles
}

func (l *logFile) Write(b []byte) (int, error) {
	if l.of.err() == nil {
		_, err := l.File.Write(b)
		l.of.keep(err)
	}
	return len(b), nil
}

func (l *logFile) WriteAt(b []byte, at int64) (int, error) {
	if l.of.err() == nil {
		_, err := l.File.WriteAt(b, at)
		l.of.keep(err)
	}
	return len(b), nil
}

func (l *logFile) Preallocate(at, length int64) error {
	l.of.keep(l.File.Preallocate(at, length))
	return nil
}

func (l *logFile) Sync() error {
	l.of.keep(l.File.Sync())
	return nil
}

func (l *logFile) SyncData() error {
	l.of.keep(l.File.SyncData())
	return nil
}

func (l *logFile) SyncTo(length int64) (bool, error) {
	full, err := l.File.SyncTo(length)
	l.of.keep(err)
	return full, nil
}

func (l *logFile) Close() error {
	l.of.keep(l.File.Close())
	return nil
}
