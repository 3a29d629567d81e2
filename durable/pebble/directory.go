// SPDX-License-Identifier: MIT

package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A directory is a store if it contains a format file. The format file is written after an empty inventory and before
// Pebble creates its files, so if either of the two is missing from a store, it has been lost.
const (
	formatName = "FORMAT"
	formatTemp = "FORMAT.new"
	format     = "timewheel/durable 1\n"
)

// foreign reports whether a file comes neither from an interrupted first Open nor from the creation of the file system.
func foreign(name string) bool {
	return !slices.Contains([]string{"LOCK", formatTemp, inventoryTemp, "lost+found"}, name)
}

// resolve returns a path to the directory that is not affected by later calls to os.Chdir or by changes to symbolic
// links.
func resolve(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("durable/pebble: the directory is empty; use \".\" for the current one")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real, nil
	}
	return dir, nil // the directory is about to be created, or Open will report the error
}

// makeDirectory creates the directory, accessible to its owner only, if the parent exists. It returns an error if the
// directory contains something other than a store, and does not change that directory.
func makeDirectory(files vfs.FS, dir string) error {
	names, err := files.List(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := files.Stat(files.PathDir(dir)); err != nil {
			return err
		}
		return files.MkdirAll(dir, 0o700)
	case err != nil:
		return err
	case slices.Contains(names, formatName) || slices.Contains(names, inventoryName):
		return nil
	case slices.ContainsFunc(names, foreign):
		return errors.New("it contains something other than a store")
	}
	return nil
}

// checkDirectory compares the files of a store with the inventory. It writes nothing except the first files of a new
// store. It returns an inventory of the needed files, or nil if the store has not been created yet.
func checkDirectory(files vfs.FS, dir string) (inventory, error) {
	formatted, err := checkFormat(files, dir)
	if err != nil {
		return nil, err
	}
	list, err := readInventory(files, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !formatted:
		list = inventory{}
		if err := list.save(files, dir); err != nil {
			return nil, err
		}
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %s is missing", engine.ErrCorrupt, inventoryName)
	case err != nil:
		return nil, err
	case !formatted && len(list) > 0:
		return nil, fmt.Errorf("%w: %s is missing", engine.ErrCorrupt, formatName)
	}
	if len(list) == 0 {
		if err := removeBeginnings(files, dir); err != nil || formatted {
			return nil, err
		}
		return nil, replaceFile(files, dir, formatTemp, formatName, sealed([]byte(format)))
	}
	now, err := list.verify(files, dir)
	if err != nil {
		return nil, err
	}
	for name := range now {
		if err := checkPebbleVersion(name); err != nil {
			return nil, err
		}
		if _, listed := list[name]; listed || !isTable(name) {
			continue
		}
		switch err := checkTable(files, files.PathJoin(dir, name)); {
		case pebble.IsCorruptionError(err):
			delete(now, name) // if listed, it would count as damaged once its original bytes are restored
		case err != nil:
			return nil, err
		}
	}
	return now, errors.Join(verifyWatermark(files, dir, list), verifyLogs(files, dir, now))
}

// checkFormat checks the format file and reports whether it exists.
func checkFormat(files vfs.FS, dir string) (formatted bool, err error) {
	text, err := readAll(files, files.PathJoin(dir, formatName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	is, ok := unsealed(text)
	var version int
	if _, err := fmt.Sscanf(is, "timewheel/durable %d\n", &version); err != nil {
		ok = false
	}
	switch {
	case !ok:
		return false, fmt.Errorf("%w: %s is damaged", engine.ErrCorrupt, formatName)
	case is != format:
		return false, fmt.Errorf("%w: %q, this program reads %q", engine.ErrVersion, is, format)
	}
	return true, nil
}

// checkPebbleVersion returns an error if the file is the marker of a Pebble format that is newer than this program
// supports.
func checkPebbleVersion(name string) error {
	marked, ok := strings.CutPrefix(name, "marker.format-version.")
	if !ok {
		return nil
	}
	_, version, _ := strings.Cut(marked, ".")
	if v, err := strconv.ParseUint(version, 10, 64); err == nil && v > uint64(pebble.FormatNewest) {
		return fmt.Errorf("%w: format %d of Pebble, this program reads up to %d", engine.ErrVersion, v, pebble.FormatNewest)
	}
	return nil
}

// removeBeginnings removes the files left by a crash during the creation of a store. The inventory is empty, so the
// store should have no commits. If it has one, the inventory belongs to another store, and removeBeginnings returns an
// error.
func removeBeginnings(files vfs.FS, dir string) error {
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	var beginnings []string
	for _, name := range names {
		path := files.PathJoin(dir, name)
		info, err := files.Stat(path)
		switch {
		case err != nil:
			return err
		case isTable(name), isLog(name) && info.Size() > 0:
			return fmt.Errorf("%w: %s does not list %s, which has tasks", engine.ErrCorrupt, inventoryName, name)
		case needed(name), strings.HasPrefix(name, "temporary."), name == watermarkName:
			beginnings = append(beginnings, path)
		case name != formatName && name != inventoryName && foreign(name):
			return fmt.Errorf("it contains something other than a store: %s", name)
		}
	}
	for _, path := range beginnings {
		if err := files.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// leastRoom is the number of bytes that must be free on the disk to open a store, in addition to the size of the
// store's logs, which are rewritten.
const leastRoom = 8 << 20

// checkRoom writes and syncs a file and checks the free space, so that Open fails on a full disk instead of returning a
// store that fails at once.
func checkRoom(files vfs.FS, dir string) error {
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
		return nil // there is enough space, or the file system does not report its free space
	}
	return fmt.Errorf("%w: %d bytes are free, and %d needed to open the store",
		syscall.ENOSPC, disk.AvailBytes, need)
}

// memTableFor returns how many bytes Pebble holds in memory before it writes them to a table. Each log grows to the
// same size, and there may be several logs, so the size is smaller on a small disk.
func memTableFor(files vfs.FS, dir string) uint64 {
	const least, most, part = 1 << 20, 32 << 20, 64
	disk, err := files.GetDiskUsage(dir)
	if err != nil {
		return most
	}
	return min(max(disk.TotalBytes/part, least), most)
}
