// SPDX-License-Identifier: MIT

package pebble

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// backupName is a directory within the store's, in which a copy is made: hard links need the same file system.
const backupName = "BACKUP"

// Backup writes a copy of the store to w, as a tar of the files of a directory. Unpacked into an empty directory it is
// a store for [Open], with exactly the commits made up to one instant during the call.
//
// Commits wait while the files are linked and the log is copied, some milliseconds. They do not wait for w. Until w has
// been written, the files of the copy stay on the disk, including files that the store no longer uses. Concurrent
// backups run one after the other. A truncated copy cannot be opened.
func (s *Store) Backup(ctx context.Context, w io.Writer) (err error) {
	s.backups.Lock()
	defer s.backups.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	files := s.guard.FS
	dir := files.PathJoin(s.dir, backupName)
	if err := files.RemoveAll(dir); err != nil {
		return backupError(err)
	}
	defer func() { err = errors.Join(err, backupError(files.RemoveAll(dir))) }()
	if err := s.checkpoint(dir); err != nil {
		return backupError(err)
	}
	names, err := complete(files, dir)
	if err != nil {
		return backupError(err)
	}
	out := tar.NewWriter(w)
	for _, name := range names {
		if err := errors.Join(ctx.Err(), pack(out, files, dir, name)); err != nil {
			return backupError(err)
		}
	}
	return backupError(out.Close())
}

func backupError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("durable/pebble: backup: %w", err)
}

// checkpoint makes a copy of Pebble's files between two commits.
func (s *Store) checkpoint(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(); err != nil {
		return err
	}
	s.mu.Unlock()
	s.flush() // while commits need not wait: a log must be copied, a table is linked
	s.mu.Lock()
	if err := s.usableLocked(); err != nil {
		return err
	}
	return s.check(s.db.Checkpoint(dir))
}

// complete makes a store from a copy of Pebble's files. It returns the names of all its files. The format file is the
// last: without it the others are not a store.
func complete(files vfs.FS, dir string) (names []string, err error) {
	now, err := inventory{}.verify(files, dir)
	if err != nil {
		return nil, err
	}
	last := ""
	for name := range now {
		names = append(names, name)
		if isLog(name) && (last == "" || fileNumber(name) > fileNumber(last)) {
			last = name
		}
	}
	slices.Sort(names)
	if err := now.save(files, dir); err != nil {
		return nil, err
	}
	file, err := files.Create(files.PathJoin(dir, watermarkName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	mark := watermark{file: file}
	err = errors.Join(mark.begin(last, now[last]), mark.close(),
		replaceFile(files, dir, formatTemp, formatName, sealed([]byte(format))))
	return append(names, inventoryName, watermarkName, formatName), err
}

// pack adds a file of a directory to a tar.
func pack(out *tar.Writer, files vfs.FS, dir, name string) (err error) {
	file, err := files.Open(files.PathJoin(dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	err = out.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: 0o600, ModTime: info.ModTime(),
	})
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(out, io.NewSectionReader(file, 0, info.Size()), make([]byte, 256<<10))
	return err
}
