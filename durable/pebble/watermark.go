// SPDX-License-Identifier: MIT

package pebble

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A watermark is a file that records what the last log must contain. The [inventory] does the same for all other files.
//
// The watermark is written after each commit but not synced, so a write takes only a microsecond. A process crash does
// not affect it. A power cut may leave an older watermark, which requires less. The file has two slots that are written
// alternately, because a power cut may tear one of them. Both slots are written and synced before the creation of a
// store is complete, so at least one of them can always be read.
type watermark struct {
	file vfs.File
	turn int64
}

const (
	watermarkName  = "COMMITTED"
	watermarkSlots = 2
	watermarkSlot  = 4096 // offset of the second slot
	watermarkSize  = 96
)

func (w *watermark) write(name string, e extent) error {
	b := sealed(appendLine(make([]byte, 0, watermarkSize), name, e))
	for len(b) < watermarkSize {
		b = append(b, ' ')
	}
	w.turn = (w.turn + 1) % watermarkSlots
	_, err := w.file.WriteAt(b, w.turn*watermarkSlot)
	return err
}

// begin writes the same extent to all slots and syncs them.
func (w *watermark) begin(name string, e extent) error {
	for range watermarkSlots {
		if err := w.write(name, e); err != nil {
			return err
		}
	}
	return w.file.Sync()
}

func (w *watermark) close() error { return errors.Join(w.file.Sync(), w.file.Close()) }

// verifyWatermark compares the last log with the directory's watermark. It ignores a log that the inventory does not
// list, because that log is no longer needed.
func verifyWatermark(files vfs.FS, dir string, list inventory) error {
	text, err := readAll(files, files.PathJoin(dir, watermarkName))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is missing", engine.ErrCorrupt, watermarkName)
	}
	if err != nil {
		return err
	}
	whole := 0
	for slot := range slices.Chunk(text, watermarkSlot) {
		line, ok := unsealed(bytes.TrimRight(slot[:min(len(slot), watermarkSize)], " "))
		name, e, parsed := parseLine(line)
		if !ok || !parsed {
			continue
		}
		whole++
		if _, listed := list[name]; !listed {
			continue
		}
		if err := e.verify(files, files.PathJoin(dir, name)); err != nil {
			return fmt.Errorf("%w, by %s", err, watermarkName)
		}
	}
	if whole == 0 {
		return fmt.Errorf("%w: %s is damaged", engine.ErrCorrupt, watermarkName)
	}
	return nil
}

// verifyLogs returns an error for damage that Pebble would mistake for the end of a log: a commit that follows an
// incomplete chunk. Each commit is synced before the next one is written, so a power cut can tear only the last commit.
// The watermark requires more, but may not have survived the power cut itself.
func verifyLogs(files vfs.FS, dir string, list inventory) error {
	for name := range list {
		if !isLog(name) {
			continue
		}
		data, err := readAll(files, files.PathJoin(dir, name))
		if err != nil {
			return err
		}
		if at, damaged := logDamage(data, fileNumber(name)); damaged {
			return fmt.Errorf("%w: %s is damaged before byte %d, where a commit begins", engine.ErrCorrupt, name, at)
		}
	}
	return nil
}

// logDamage looks for damage that is followed by a commit in the log with the given number, and returns the offset of
// that commit. A chunk of another log, or of an earlier commit in the same log, does not count, because it is part of
// the last commit's payload.
func logDamage(log []byte, number uint64) (at int, damaged bool) {
	var last uint64 // sequence number of the last complete commit
	for at < len(log) {
		left := log[at:min(len(log), at-at%logBlock+logBlock)]
		c, ok := chunk{}, false
		if len(left) >= 11 && binary.LittleEndian.Uint32(left[7:]) == uint32(number) {
			c, ok = readChunk(left)
		}
		var sequence uint64
		if ok && c.first && len(c.payload) >= batchHead {
			sequence = binary.LittleEndian.Uint64(c.payload)
		}
		switch {
		case ok && damaged && sequence > last:
			return at, true
		case ok && !damaged:
			last = max(last, sequence)
			at += c.length
		case !damaged && len(left) < mostChunkHead && !slices.ContainsFunc(left, notZero):
			at += len(left) // the rest of the block is too short for a chunk
		default:
			damaged = true
			at++
		}
	}
	return 0, false
}
