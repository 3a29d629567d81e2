// SPDX-License-Identifier: MIT

package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// An inventory records the minimum that the files of a store must contain, which Pebble itself does not record. Pebble
// mistakes a damaged end of its MANIFEST or log for the result of a crash, and a missing log for one that is no longer
// needed. The inventory lets the store distinguish these cases.
//
// The inventory lists files, each with a checksum of the bytes between two offsets. The bytes and the name of a file
// are synced before they are listed, and they are listed before Pebble relies on them. A file may have grown since
// then, and there may be other files, but Pebble does not rely on unlisted bytes.
//
//	logs, MANIFESTs, OPTIONS, markers   the whole file, as it was at the last save
//	tables                              at least the last tailSize bytes. They contain the index, which identifies
//	                                    the table. Each earlier block has its own checksum, written by Pebble
//
// A crash may leave a table that is not listed. Such a table is incomplete, or Pebble began to rely on it just before
// the save. The next open lists the table if each of its blocks matches Pebble's own checksum.
//
// The inventory is a text file that is replaced as a whole. It does not change when a commit extends the last log. The
// watermark records what that log must contain.
type inventory map[string]extent

// An extent describes a part of a file.
type extent struct {
	from, to int64
	sum      uint32 // CRC-32C of the bytes between from and to
}

const (
	inventoryName = "INVENTORY"
	inventoryTemp = "INVENTORY.new"
	inventoryHead = "timewheel/durable inventory\n"

	// tailSize is how many bytes of each table are read at every open, which takes a few milliseconds for a hundred
	// tables.
	tailSize = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// with returns the extent extended by the bytes b.
func (e extent) with(b []byte) extent {
	return extent{e.from, e.to + int64(len(b)), crc32.Update(e.sum, castagnoli, b)}
}

// appendLine appends a file name and its extent as a line of text. parseLine parses that line.
func appendLine(b []byte, name string, e extent) []byte {
	return fmt.Appendf(b, "%s %d %d %08x\n", name, e.from, e.to, e.sum)
}

func parseLine(line string) (name string, e extent, ok bool) {
	n, err := fmt.Sscanf(line, "%s %d %d %08x\n", &name, &e.from, &e.to, &e.sum)
	return name, e, n == 4 && err == nil && 0 <= e.from && e.from <= e.to
}

// sealed appends a line with a checksum to the text. unsealed returns the text before that line and reports whether the
// checksum is correct.
func sealed(text []byte) []byte {
	return fmt.Appendf(text, "sum %08x\n", crc32.Checksum(text, castagnoli))
}

func unsealed(text []byte) (before string, ok bool) {
	at := bytes.LastIndex(text, []byte("sum "))
	if at < 0 || !bytes.Equal(sealed(slices.Clone(text[:at])), text) {
		return "", false
	}
	return string(text[:at]), true
}

// readInventory returns the inventory of a directory, or an error that wraps fs.ErrNotExist if there is none.
func readInventory(files vfs.FS, dir string) (inventory, error) {
	text, err := readAll(files, files.PathJoin(dir, inventoryName))
	if err != nil {
		return nil, err
	}
	lines, ok := unsealed(text)
	lines, headed := strings.CutPrefix(lines, inventoryHead)
	list := make(inventory)
	for line := range strings.Lines(lines) {
		name, e, parsed := parseLine(line)
		ok = ok && parsed
		list[name] = e
	}
	if !ok || !headed {
		return nil, fmt.Errorf("%w: %s is damaged", engine.ErrCorrupt, inventoryName)
	}
	return list, nil
}

// save replaces the directory's inventory file.
func (list inventory) save(files vfs.FS, dir string) error {
	text := []byte(inventoryHead)
	for _, name := range slices.Sorted(maps.Keys(list)) {
		text = appendLine(text, name, list[name])
	}
	return replaceFile(files, dir, inventoryTemp, inventoryName, sealed(text))
}

// verify compares the files in a directory with the inventory. It returns the current extent of each needed file.
func (list inventory) verify(files vfs.FS, dir string) (inventory, error) {
	names, err := files.List(dir)
	if err != nil {
		return nil, err
	}
	for name := range list {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("%w: %s is missing", engine.ErrCorrupt, name)
		}
	}
	now := make(inventory)
	for _, name := range names {
		if !needed(name) {
			continue
		}
		path := files.PathJoin(dir, name)
		listed, ok := list[name]
		if ok {
			if err := listed.verify(files, path); err != nil {
				return nil, err
			}
		}
		if ok && isTable(name) {
			now[name] = listed
			continue
		}
		if now[name], err = sumOf(files, path, isTable(name)); err != nil {
			return nil, err
		}
	}
	return now, nil
}

// verify returns an error unless the file contains the bytes that the extent describes.
func (e extent) verify(files vfs.FS, path string) error {
	is, err := read(files, path, e.from, e.to)
	if err != nil {
		return err
	}
	if is != e {
		return fmt.Errorf("%w: %s is damaged: "+
			"bytes %d to %d: %d are present, with the checksum %08x in place of %08x",
			engine.ErrCorrupt, files.PathBase(path), e.from, e.to, is.to-is.from, is.sum, e.sum)
	}
	return nil
}

// checkTable compares each block of a table with the checksum that Pebble stored with the block.
func checkTable(files vfs.FS, path string) (err error) {
	file, err := files.Open(path)
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(file)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	options := &pebble.Options{}
	options.EnsureDefaults()
	table, err := sstable.NewReader(context.Background(), readable, options.MakeReaderOptions())
	if err != nil {
		return errors.Join(err, readable.Close())
	}
	defer func() { err = errors.Join(err, table.Close()) }()
	return table.ValidateBlockChecksums()
}

// sumOf returns the current extent of a file, or of its tail only.
func sumOf(files vfs.FS, path string, tail bool) (extent, error) {
	info, err := files.Stat(path)
	if err != nil {
		return extent{}, err
	}
	from := int64(0)
	if tail {
		from = max(0, info.Size()-tailSize)
	}
	return read(files, path, from, info.Size())
}

// read returns the extent of the bytes that exist in the given range of a file.
func read(files vfs.FS, path string, from, to int64) (e extent, err error) {
	file, err := files.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return extent{}, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	e = extent{from: from, to: from}
	in := io.NewSectionReader(file, from, to-from)
	for b := make([]byte, 256<<10); ; {
		n, err := in.Read(b)
		e = e.with(b[:n])
		switch {
		case errors.Is(err, io.EOF):
			return e, nil
		case err != nil:
			return e, err
		}
	}
}

// readAll reads a file into one buffer of its size, because a log is large.
func readAll(files vfs.FS, path string) ([]byte, error) {
	file, err := files.Open(path)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	info, err := file.Stat()
	if err == nil {
		text.Grow(int(info.Size()) + bytes.MinRead)
		_, err = text.ReadFrom(file)
	}
	return text.Bytes(), errors.Join(err, file.Close())
}

// replaceFile replaces a file in the directory as a whole and syncs it.
func replaceFile(files vfs.FS, dir, temp, name string, text []byte) error {
	from := files.PathJoin(dir, temp)
	file, err := files.Create(from, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := files.Rename(from, files.PathJoin(dir, name)); err != nil {
		return err
	}
	return syncDirectory(files, dir)
}

// syncFiles syncs the contents and names of the files in a directory, because a killed process may have left bytes that
// are not on the disk yet.
func syncFiles(files vfs.FS, dir string, now inventory) error {
	for name := range now {
		file, err := files.OpenReadWrite(files.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		if err := errors.Join(file.Sync(), file.Close()); err != nil {
			return err
		}
	}
	return syncDirectory(files, dir)
}

// syncDirectory syncs the names of the files in a directory.
func syncDirectory(files vfs.FS, dir string) error {
	d, err := files.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
