// SPDX-License-Identifier: MIT

package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

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

// verifyLogs looks for what Pebble takes for the end of a log and is not: a commit that follows on a chunk which
// is not whole. Each commit is synced before the next one is written, so a power cut can have torn the last
// alone. The watermark demands more, but may itself not have outlived the power cut.
func verifyLogs(files vfs.FS, dir string, list inventory) error {
	for name := range list {
		if !isLog(name) {
			continue
		}
		data, err := readAll(files, files.PathJoin(dir, name))
		if err != nil {
			return err
		}
		if at, damaged := logDamage(data); damaged {
			return fmt.Errorf("%w: %s is damaged before byte %d, where a commit begins", ErrCorrupt, name, at)
		}
	}
	return nil
}

// logDamage returns where a commit begins that follows on a damage.
func logDamage(log []byte) (at int, damaged bool) {
	for at < len(log) {
		left := log[at:min(len(log), at-at%logBlock+logBlock)]
		c, ok := readChunk(left)
		switch {
		case ok && c.first && damaged:
			return at, true
		case ok:
			at += c.length
		case !damaged && len(left) < mostChunkHead && !slices.ContainsFunc(left, notZero):
			at += len(left) // the rest of a block in which no chunk has room
		default:
			damaged = true
			at++
		}
	}
	return 0, false
}
