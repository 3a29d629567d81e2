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

// An inventory is the least that the files of a store must contain: a record that Pebble does not keep. Pebble mistakes
// a damaged end of its MANIFEST or log for a crash, and a missing log for one that is no longer needed. With the
// inventory the store can distinguish them.
//
// It lists files with a checksum of their bytes from one offset to another. The bytes were synced, and so was the name
// of the file, before they were listed; they are listed before Pebble relies on them. A file may have grown since, and
// there may be more files: unlisted bytes have not been relied on.
//
//	logs, MANIFESTs, OPTIONS, markers   all of the file, as it was at the last save
//	tables                              the last tailSize bytes at least, which have the index: so they are
//	                                    known to be those; each block before has a checksum of Pebble's own
//
// A crash may leave a table that is not listed: written in part, or one that Pebble relies on in the moment
// before the save. The next open lists it if each of its blocks matches the checksum of Pebble's own.
//
// The inventory is a file of text that is replaced as a whole. The last log grows with every commit and the
// inventory does not: what that log must hold is in the watermark.
type inventory map[string]extent

// An extent describes a part of a file.
type extent struct {
	from, to int64
	sum      uint32 // CRC-32C of the bytes in between
}

const (
	inventoryName = "INVENTORY"
	inventoryTemp = "INVENTORY.new"
	inventoryHead = "timewheel/durable inventory\n"

	// tailSize is how many bytes of a table are read at each open: a few milliseconds for a hundred tables.
	tailSize = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// with returns the extent with more bytes at its end.
func (e extent) with(b []byte) extent {
	return extent{e.from, e.to + int64(len(b)), crc32.Update(e.sum, castagnoli, b)}
}

// appendLine writes a file and its extent as a line of text, parseLine reads it.
func appendLine(b []byte, name string, e extent) []byte {
	return fmt.Appendf(b, "%s %d %d %08x\n", name, e.from, e.to, e.sum)
}

func parseLine(line string) (name string, e extent, ok bool) {
	n, err := fmt.Sscanf(line, "%s %d %d %08x\n", &name, &e.from, &e.to, &e.sum)
	return name, e, n == 4 && err == nil && 0 <= e.from && e.from <= e.to
}

// sealed appends a line with the checksum to the text; unsealed returns the text before that line, and whether the
// checksum is right.
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

// readInventory returns the inventory of a directory, or an error that wraps fs.ErrNotExist if it has none.
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

// save replaces the inventory of the directory.
func (list inventory) save(files vfs.FS, dir string) error {
	text := []byte(inventoryHead)
	for _, name := range slices.Sorted(maps.Keys(list)) {
		text = appendLine(text, name, list[name])
	}
	return replaceFile(files, dir, inventoryTemp, inventoryName, sealed(text))
}

// verify compares the files of a directory with the inventory. It returns the present extent of each needed file.
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

// verify compares the bytes of a file with the extent.
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

// checkTable compares each block of a table with the checksum of Pebble's own.
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

// sumOf returns the present extent of a file, or of its tail.
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

// read returns the extent of the existing bytes in a part of a file.
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

func readAll(files vfs.FS, path string) ([]byte, error) {
	file, err := files.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(file)
	return text, errors.Join(err, file.Close())
}

// replaceFile replaces a file of a directory as a whole, and syncs it.
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

// syncFiles syncs the contents and names of the files of a directory. A killed process may have left bytes that are not
// on the disk yet.
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
