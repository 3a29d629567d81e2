// SPDX-License-Identifier: MIT

package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A directory is a store if it has a file that says so, and in which format. It is written before anything
// else, so that a directory which belongs to somebody else is told without touching it.
const (
	formatName = "FORMAT"
	formatTemp = "FORMAT.new"
	format     = "timewheel/durable 1\n"
)

// foreign reports whether a file is none of those that an Open leaves behind which was cut off before there was
// a store, nor what a new file system has.
func foreign(name string) bool { return name != "LOCK" && name != formatTemp && name != "lost+found" }

// checkFormat compares the format with ours, or writes it if the directory is new.
func checkFormat(dir string, files vfs.FS) error {
	file, err := files.Open(files.PathJoin(dir, formatName))
	if errors.Is(err, fs.ErrNotExist) {
		return writeFormat(dir, files)
	}
	if err != nil {
		return err
	}
	text, err := io.ReadAll(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if string(text) != format {
		return fmt.Errorf("%w: %q, this program reads %q", ErrVersion, text, format)
	}
	return nil
}

func writeFormat(dir string, files vfs.FS) error {
	temp := files.PathJoin(dir, formatTemp)
	file, err := files.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write([]byte(format))
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := files.Rename(temp, files.PathJoin(dir, formatName)); err != nil {
		return err
	}
	parent, err := files.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}

// leastRoom is what must be free on the disk for a store to be opened, beside the size of its logs, which are
// read and written anew.
const leastRoom = 8 << 20

// checkRoom writes and syncs a file, and asks how much room there is. Pebble, when it finds the disk full in
// the middle of an open, tries again for ever.
func checkRoom(dir string, files vfs.FS) error {
	name := files.PathJoin(dir, formatTemp)
	file, err := files.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write(make([]byte, 4096))
	if err := errors.Join(err, file.Sync(), file.Close(), files.Remove(name)); err != nil {
		return err
	}
	need := uint64(leastRoom)
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if info, err := files.Stat(files.PathJoin(dir, name)); err == nil && isLog(name) {
			need += uint64(info.Size())
		}
	}
	disk, err := files.GetDiskUsage(dir)
	if err != nil || disk.AvailBytes >= need {
		return nil // a file system that cannot tell has as much as it has
	}
	return fmt.Errorf("%w: %d bytes are free, and %d needed to open the store", syscall.ENOSPC, disk.AvailBytes, need)
}
