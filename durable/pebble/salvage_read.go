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

// This file and salvage_log.go read Pebble's tables and logs for [Salvage] without using Pebble's own metadata. Both consist
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
