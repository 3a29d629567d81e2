// SPDX-License-Identifier: MIT

package pebble

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// This file reads Pebble's tables and logs for [Salvage] without using Pebble's own metadata. Tables and logs consist
// of pieces that each have a checksum. A piece that does not match its checksum is skipped. The next intact piece is
// found by searching for it, because its start is not known.

var errNotWhole = errors.New("not whole")

// fileNumber returns the number in the name of a table or log, or 0 if there is none.
func fileNumber(name string) uint64 {
	digits, _, _ := strings.Cut(name, ".")
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

const sector = 4096

// readSectors reads a file and replaces unreadable sectors with zeros.
func readSectors(files vfs.FS, name string) (data []byte, damage []Damage) {
	failed := func(err error) ([]byte, []Damage) { return nil, []Damage{{Err: err}} }
	file, err := files.Open(name)
	if err != nil {
		return failed(err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return failed(err)
	}
	if info.IsDir() {
		return failed(errors.New("it is a directory"))
	}
	data = make([]byte, info.Size())
	for at := 0; at < len(data); {
		n, err := file.ReadAt(data[at:], int64(at))
		if at += n; err == nil || at == len(data) {
			continue
		}
		if errors.Is(err, io.EOF) {
			return data[:at], append(damage, Damage{Offset: int64(at), Err: err})
		}
		lost := min(sector-at%sector, len(data)-at)
		clear(data[at : at+lost])
		damage = appendGap(damage, at, lost, err)
		at += lost
	}
	return data, damage
}

// appendGap adds an unreadable part, or extends the last part if it ends where the new one begins.
func appendGap(gaps []Damage, at, length int, err error) []Damage {
	if n := len(gaps) - 1; n >= 0 && gaps[n].Offset+gaps[n].Length == int64(at) {
		gaps[n].Length += int64(length)
		return gaps
	}
	return append(gaps, Damage{Offset: int64(at), Length: int64(length), Err: err})
}

// # Tables
//
// A table is a sequence of blocks: first the data, then the index, the filter and other metadata, and finally a footer.
// Each block is followed by 5 bytes: its compression code, and a checksum of the block and that code. A block does not
// contain its own length. The index does, but it may itself be damaged. The end of a block is therefore taken to be the
// first position at which the checksum is correct.

const (
	blockTrailer  = 5
	footerLength  = 61
	footerMagic   = "\xf0\x9f\xaa\xb3\xf0\x9f\xaa\xb3"
	mostBlock     = 32 << 20 // the filter is the largest block
	mostDataBlock = 2 << 20  // a task takes just over 1 MB at most, and a block exceeds 4 KB by at most one row
	mostUnpacked  = 64 << 20
	checksumDelta = 0xa282ead8

	// The highest bit of a polynomial is the coefficient of its lowest power.
	one           = 1 << 31
	castagnoliLow = crc32.Castagnoli<<1&(1<<32-1) | 1
)

// register returns the state of a CRC that ends with the given checksum.
func register(checksum []byte) uint32 {
	return ^bits.RotateLeft32(binary.LittleEndian.Uint32(checksum)-checksumDelta, 15)
}

func tableRows(b []byte, see func(row)) (gaps []Damage) {
	at := 0
	for at < len(b) {
		if end := blockEnd(b, at); end > 0 {
			if err := blockRows(b[at:end], see); err != nil {
				gaps = appendGap(gaps, at, end-at, err)
			}
			at = end
			continue
		}
		if len(b)-at == footerLength && hasFooter(b) {
			return gaps
		}
		next := nextDataBlock(b, at+1)
		gaps = appendGap(gaps, at, next-at, fmt.Errorf("a block is %w", errNotWhole))
		at = next
	}
	if hasFooter(b) {
		return gaps
	}
	return append(gaps, Damage{Offset: int64(at), Err: errors.New("the end of the table is missing")})
}

func hasFooter(b []byte) bool { return bytes.HasSuffix(b, []byte(footerMagic)) }

// blockEnd returns the end of the block that begins at the given offset, including its trailer. It returns 0 if the
// block is not intact.
func blockEnd(b []byte, at int) int {
	crc := ^uint32(0)
	for i := at; i < min(len(b)-blockTrailer, at+mostBlock)+1; i++ {
		crc = castagnoli[byte(crc)^b[i]] ^ crc>>8
		if i+5 <= len(b) && crc == register(b[i+1:]) && packing(b[i]) && i > at {
			return i + blockTrailer
		}
	}
	return 0
}

// packing reports whether the byte is a compression code.
func packing(b byte) bool {
	switch block.CompressionIndicator(b) {
	case block.NoCompressionIndicator, block.SnappyCompressionIndicator,
		block.ZstdCompressionIndicator, block.MinLZCompressionIndicator:
		return true
	}
	return false
}

// nextDataBlock returns the start of the first intact data block at or after the given offset, or the length of b if
// there is none.
//
// Let R(i) be the CRC of the bytes before i, computed with the initial state 0. Let U(e) be the CRC state that the
// checksum at e requires. A block from s to e is intact if
//
//	(R(s) + 1...1) / x^8s = (R(e) + U(e)) / x^8e
//
// because a CRC is linear. The left side is known for every s by the time the scan reaches e, so one pass finds the
// block.
func nextDataBlock(b []byte, from int) int {
	// recent and older hold the left sides of the most recent bytes, which cover at least the longest block.
	recent, older := map[uint32]int{}, map[uint32]int{}
	crc, power := uint32(0), uint32(one)
	for i := from; i+4 <= len(b); i++ {
		if i > from && packing(b[i-1]) {
			side := multiply(crc^register(b[i:]), power)
			for _, starts := range []map[uint32]int{recent, older} {
				if s, ok := starts[side]; ok && s < i-1 && isData(b[s:i-1], b[i-1]) {
					return s
				}
			}
		}
		if len(recent) == mostDataBlock {
			recent, older = map[uint32]int{}, recent
		}
		recent[multiply(crc^^uint32(0), power)] = i
		crc = castagnoli[byte(crc)^b[i]] ^ crc>>8
		for range 8 { // divide by x
			power = power<<1 ^ -(power>>31)&castagnoliLow
		}
	}
	return len(b)
}

// multiply multiplies two polynomials modulo the checksum's polynomial.
func multiply(a, b uint32) (product uint32) {
	for ; b != 0; b <<= 1 {
		product ^= a & -(b >> 31)
		a = a>>1 ^ crc32.Castagnoli&-(a&1)
	}
	return product
}

// dataColumns lists the types of the columns in a data block. The first four columns are the two parts of the key, the
// number and kind of the write, and whether the key differs from the previous one. The other three are the value,
// whether the value is stored elsewhere, and whether the row is obsolete.
var dataColumns = [...]colblk.DataType{
	colblk.DataTypePrefixBytes, colblk.DataTypeBytes, colblk.DataTypeUint, colblk.DataTypeBool,
	colblk.DataTypeBytes, colblk.DataTypeBool, colblk.DataTypeBool,
}

// hasDataColumns reports whether an unpacked block begins like a data block. A data block begins with the length of the
// longest key, a version, the numbers of columns and rows, and the type and offset of each column.
func hasDataColumns(b []byte) bool {
	const head = 4 + 1 + 2 + 4
	if len(b) <= head+5*len(dataColumns) || b[4] != byte(colblk.Version1) ||
		binary.LittleEndian.Uint16(b[5:]) != uint16(len(dataColumns)) {
		return false
	}
	before := uint32(head + 5*len(dataColumns))
	for i, want := range dataColumns {
		column := b[head+5*i:]
		at := binary.LittleEndian.Uint32(column[1:])
		if column[0] != byte(want) || at < before || at >= uint32(len(b)) {
			return false
		}
		before = at
	}
	return true
}

func isData(packed []byte, how byte) bool {
	b, err := unpack(packed, how)
	return err == nil && hasDataColumns(b)
}

func unpack(packed []byte, how byte) (b []byte, err error) {
	defer recoverInto(&err)
	n, err := block.DecompressedLen(block.CompressionIndicator(how), packed)
	if err != nil {
		return nil, err
	}
	if n < 0 || n > mostUnpacked {
		return nil, fmt.Errorf("a block of %d bytes", n)
	}
	b = make([]byte, n)
	return b, block.DecompressInto(block.CompressionIndicator(how), packed, b)
}

// recoverInto converts a panic in a decoder to an error.
func recoverInto(err *error) {
	if value := recover(); value != nil {
		*err = fmt.Errorf("it cannot be decoded: %v", value)
	}
}

var dataSchema = colblk.DefaultKeySchema(pebble.DefaultComparer, 16)

// blockRows calls see with each row in the block, which includes its trailer. It ignores blocks that are not data
// blocks.
func blockRows(whole []byte, see func(row)) (err error) {
	packed, how := whole[:len(whole)-blockTrailer], whole[len(whole)-blockTrailer]
	b, err := unpack(packed, how)
	if err != nil || !hasDataColumns(b) {
		return nil // a metadata block may have another form
	}
	rows, err := dataRows(b)
	for _, r := range rows {
		see(r)
	}
	return err
}

// dataRows returns the rows of a data block, up to the first row that cannot be decoded.
func dataRows(b []byte) (rows []row, err error) {
	// The decoder trusts its input and reads it through pointers, so a damaged block can cause a fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverInto(&err)
	var d colblk.DataBlockDecoder
	d.Init(&dataSchema, b)
	if d.BlockDecoder().Rows() == 0 {
		return nil, nil
	}
	var it colblk.DataBlockIter
	it.InitOnce(&dataSchema, pebble.DefaultComparer, nil) // this store has no values outside their rows
	if err := it.Init(&d, block.IterTransforms{}); err != nil {
		return nil, err
	}
	for kv := it.First(); kv != nil; kv = it.Next() {
		r := row{name: slices.Clone(kv.K.UserKey), write: uint64(kv.SeqNum())}
		switch kv.Kind() {
		case pebble.InternalKeyKindSet, pebble.InternalKeyKindSetWithDelete:
			r.set, r.value = true, kv.InPlaceValue()
		case pebble.InternalKeyKindDelete, pebble.InternalKeyKindSingleDelete, pebble.InternalKeyKindDeleteSized:
		default:
			return rows, fmt.Errorf("a row of the unknown kind %d", kv.Kind())
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// # Logs
//
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
