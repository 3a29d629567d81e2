// SPDX-License-Identifier: MIT

package durable

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
)

// A watermark is a file that says how many commits there have been. Pebble takes a damaged end of its log for
// a commit that was cut off while it was written, and goes on without: up to the last 32 KB of commits would be
// missing, and nobody told. The watermark tells.
//
// It is written after the commit was synced, and not synced itself, so that it costs a microsecond: a crash of
// the process leaves it as it was, a power cut may leave an older one, and none is ever ahead of the commits.
type watermark struct{ file watermarkFile }

type watermarkFile interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
	Close() error
}

const watermarkName = "COMMITTED"

// read returns the number of commits that there were at least. What a power cut has left half written counts
// for nothing.
func (w watermark) read() (uint64, error) {
	var b [12]byte
	if _, err := w.file.ReadAt(b[:], 0); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		}
		return 0, err
	}
	if crc32.ChecksumIEEE(b[:8]) != binary.BigEndian.Uint32(b[8:]) {
		return 0, nil
	}
	return binary.BigEndian.Uint64(b[:8]), nil
}

func (w watermark) write(commits uint64) error {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 12), commits)
	_, err := w.file.WriteAt(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)), 0)
	return err
}

func (w watermark) close() error { return errors.Join(w.file.Sync(), w.file.Close()) }
