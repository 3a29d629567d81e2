// SPDX-License-Identifier: MIT

package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A watermark is a file that tells what the last log must hold, as the [inventory] does for all other files.
//
// It is written after each commit and not synced, so that it costs a microsecond. A crash of the process leaves
// it as it was. A power cut may leave an older one, or none that can be read: then it demands less, or nothing,
// and never more than there is.
type watermark struct{ file vfs.File }

const (
	watermarkName = "COMMITTED"
	watermarkSize = 96
)

func (w watermark) write(name string, e extent) error {
	b := sealed(appendLine(make([]byte, 0, watermarkSize), name, e))
	for len(b) < watermarkSize {
		b = append(b, ' ')
	}
	_, err := w.file.WriteAt(b, 0)
	return err
}

func (w watermark) close() error { return errors.Join(w.file.Sync(), w.file.Close()) }

// verifyWatermark compares the last log with the watermark of the directory. A log that the inventory does
// not list was not needed any more.
func verifyWatermark(files vfs.FS, dir string, list inventory) error {
	text, err := readAll(files, files.PathJoin(dir, watermarkName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, io.EOF) {
		return err
	}
	for len(text) > 0 && text[len(text)-1] == ' ' {
		text = text[:len(text)-1]
	}
	line, ok := unsealed(text)
	if !ok {
		return nil
	}
	name, e, ok := parseLine(line)
	if _, listed := list[name]; !ok || !listed {
		return nil
	}
	if err := e.verify(files, files.PathJoin(dir, name)); err != nil {
		return fmt.Errorf("%w, as %s tells", err, watermarkName)
	}
	return nil
}
