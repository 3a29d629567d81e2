// SPDX-License-Identifier: MIT

package pebble

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// A log is divided into blocks of 32 KB. A batch, which is one commit, is divided into chunks that do not cross block
// boundaries. A chunk begins with its checksum, length, kind and log number. From kind 9 on, the chunk also states how
// far the log is synced. If a log file is reused, older chunks with a smaller log number follow the end of the log.

const (
	logBlock      = 32 << 10
	recycledChunk = 5 // the first of four kinds: full, first, middle and last
	syncedChunk   = 9
	lastChunk     = 12
	mostChunkHead = 19
	batchHead     = 12
)

func notZero(b byte) bool { return b != 0 }

// A chunk is a piece of a batch in a log.
type chunk struct {
	first, last bool
	number      uint32 // the number of the log
	payload     []byte
	length      int // the length of the chunk, including its head
}

// readChunk reads the chunk at the start of b, which is the unread part of a log block.
func readChunk(b []byte) (c chunk, ok bool) {
	const head = 4 + 2 + 1 + 4
	if len(b) < head || b[6] < recycledChunk || b[6] > lastChunk {
		return c, false
	}
	begin := head
	if b[6] >= syncedChunk {
		begin += 8
	}
	c.length = begin + int(binary.LittleEndian.Uint16(b[4:]))
	if c.length > len(b) || ^crc32.Checksum(b[6:c.length], castagnoli) != register(b) {
		return c, false
	}
	position := (b[6] - recycledChunk) % 4
	c.first, c.last = position <= 1, position == 0 || position == 3
	c.number = binary.LittleEndian.Uint32(b[7:])
	c.payload = b[begin:c.length]
	return c, true
}

// isLogEnd reports whether the log with the given number ends at the start of b. The end is marked by a chunk that has
// the next log number and no checksum.
func isLogEnd(b []byte, number uint64) bool {
	end := []byte{6: recycledChunk}
	return bytes.HasPrefix(b, binary.LittleEndian.AppendUint32(end, uint32(number)+1))
}

// logRows calls see with each row in the log with the given number and returns the unreadable parts. It skips chunks
// with smaller log numbers, which remain from an earlier use of the file.
func logRows(b []byte, number uint64, see func(row)) (gaps []Damage) {
	var (
		batch    []byte
		began    = -1 // start of the batch whose chunks are being collected, or -1
		at       = 0
		damaged  = -1 // start of the current unreadable part, or -1
		recycled bool
	)
	// closeGap ends a damaged part when an intact chunk follows it. If the damage interrupted a batch, closeGap reads
	// the batch up to the damage.
	closeGap := func(end int) {
		if damaged < 0 {
			return
		}
		start := damaged
		if began >= 0 {
			start = began
			_ = batchRows(batch, see)
		}
		gaps = appendGap(gaps, start, end-start, fmt.Errorf("a commit is %w", errNotWhole))
		batch, began, damaged = batch[:0], -1, -1
	}
	for at < len(b) {
		left := b[at:min(len(b), at-at%logBlock+logBlock)]
		if isLogEnd(left, number) {
			closeGap(at)
			return gaps
		}
		c, ok := readChunk(left)
		if ok && uint64(c.number) < number&(1<<32-1) {
			recycled, ok = true, false
		}
		if !ok {
			if damaged < 0 && len(left) < mostChunkHead && !slices.ContainsFunc(left, notZero) {
				at += len(left) // the rest of the block is too short for a chunk
				continue
			}
			if damaged < 0 {
				damaged = at
			}
			at++
			continue
		}
		if damaged < 0 && c.first == (began >= 0) { // the end or the beginning of a batch is missing
			damaged = at
		}
		if c.first {
			closeGap(at)
			batch, began = batch[:0], at
		} else if damaged >= 0 {
			at += c.length // the beginning of the batch is unreadable
			continue
		}
		batch = append(batch, c.payload...)
		at += c.length
		if c.last {
			if err := batchRows(batch, see); err != nil {
				gaps = appendGap(gaps, began, at-began, err)
			}
			batch, began = batch[:0], -1
		}
	}
	switch {
	case recycled:
	case began >= 0:
		gaps = appendGap(gaps, began, len(b)-began, fmt.Errorf("the last commit is %w", errNotWhole))
	case damaged >= 0 && slices.ContainsFunc(b[damaged:], notZero):
		gaps = appendGap(gaps, damaged, len(b)-damaged, fmt.Errorf("the end of the log is %w", errNotWhole))
	}
	return gaps
}

// batchRows calls see with each row in a batch, up to the first row that is cut off.
func batchRows(batch []byte, see func(row)) error {
	if len(batch) < batchHead {
		return fmt.Errorf("a batch is %w", errNotWhole)
	}
	write := binary.LittleEndian.Uint64(batch)
	left, whole := batch[batchHead:], true
	piece := func() []byte { // reads a length and the bytes after it
		length, head := binary.Uvarint(left)
		if head <= 0 || length > uint64(len(left)-head) {
			whole = false
			return nil
		}
		taken := left[head:][:length]
		left = left[head:][length:]
		return taken
	}
	for len(left) > 0 {
		kind := pebble.InternalKeyKind(left[0])
		left = left[1:]
		r := row{write: write, name: piece()}
		switch kind {
		case pebble.InternalKeyKindSet:
			r.set, r.value = true, piece()
		case pebble.InternalKeyKindDelete, pebble.InternalKeyKindSingleDelete:
		case pebble.InternalKeyKindLogData:
			continue // log data is not a row and has no write number
		default:
			return fmt.Errorf("a row of the unknown kind %d", kind)
		}
		if !whole {
			return fmt.Errorf("a row is %w", errNotWhole)
		}
		see(r)
		write++
	}
	return nil
}
