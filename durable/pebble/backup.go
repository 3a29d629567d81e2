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

// backupName is the subdirectory in which a backup is assembled. It is in the store's own directory because hard links
// cannot cross file systems.
const backupName = "BACKUP"

// Backup writes a copy of the store to w as a tar archive. Unpacked into an empty directory, the archive is a store
// that [Open] can open. It contains exactly the commits made up to a single instant during the call.
//
// Commits wait for a few milliseconds while Backup links the files and copies the log. They do not wait for w. The
// copied files stay on the disk until the whole archive has been written to w, even if the store no longer uses some of
// them. Concurrent backups run one after another. A truncated copy cannot be opened.
func (s *store) Backup(ctx context.Context, w io.Writer) (err error) {
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

// checkpoint creates a copy of Pebble's files between two commits.
func (s *store) checkpoint(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(); err != nil {
		return err
	}
	s.mu.Unlock()
	s.flush() // unlocked, so that commits need not wait: a log must be copied, but a table is linked
	s.mu.Lock()
	if err := s.usableLocked(); err != nil {
		return err
	}
	return s.check(s.db.Checkpoint(dir))
}

// complete turns a copy of Pebble's files into a store and returns the names of all its files. The format file comes
// last, because the other files are not a store without it.
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

// pack adds a file from the directory to the tar archive.
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
