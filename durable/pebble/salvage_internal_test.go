// SPDX-License-Identifier: MIT

package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/memstore"
)

// The result of Salvage for rows that disagree, or if one is missing. A row is written as k or d, its due time, @ and
// the number of its write. These may follow: x if it is deleted, g and a generation, f and the index of its file, ? if
// it cannot be decoded.
func TestSalvage_rowsThatDisagree(t *testing.T) {
	data, generations := generationsOf(t, "key", 4)
	for rows, want := range map[string]string{
		"k7@5 d7@6":                "7 no doubt",
		"d7@6":                     "7 maybe removed",
		"k7@5":                     "lost",
		"k7@5 d7@6?":               "lost",
		"k7@0 d7@0":                "7 no doubt",
		"k7@5 d7@6f0 d7@6f1":       "7 no doubt",
		"k7@5 d8@6":                "8 maybe stale",
		"k7@5 d7@6 d8@6 d8@9x":     "7 no doubt",
		"k0@9x d7@8x":              "",
		"k0@9x d7@6":               "", // the removal deletes both at once, and one of the deletions could not be read
		"k0@9x d7@10":              "7 maybe removed",
		"k0@9x d7@0":               "7 maybe removed",
		"k7@5 d7@9x":               "", // nor could the deletion of the key
		"k7@0 d7@9x":               "",
		"k7@5 d7@4x":               "lost",
		"k8@9 d7@6g1 d8@10g1":      "8 no doubt",
		"k7@5 d7@6g1 d8@10g1":      "8 maybe stale",
		"k8@0 d7@6g1 d8@0g2":       "8 no doubt", // the table that has lost the number has the later task
		"k7@5 d7@6g1 d8@0g2":       "8 maybe stale",
		"k8@0 d7@6g1 d8@0g1":       "8 maybe stale", // only the row of the key shows which one it is
		"k7@6 d7@6 d8@0":           "7 maybe stale",
		"k7@6 d7@6 d8@9":           "8 maybe stale",
		"k7@0f1 d7@0f1g1 d7@0f2g3": "7 no doubt",
	} {
		s := &salvager{latest: map[string]version{}, chosen: map[string]choice{}}
		type placed struct {
			file int32
			row
			generation uint64
		}
		var all []placed
		for _, text := range strings.Fields(rows) {
			var p placed
			var due int64
			var kind rune
			if _, err := fmt.Sscanf(text, "%c%d@%d", &kind, &due, &p.write); err != nil {
				t.Fatal(err)
			}
			p.generation = 1
			if _, after, ok := strings.Cut(text, "g"); ok {
				p.generation = uint64(after[0] - '0')
			}
			if _, after, ok := strings.Cut(text, "f"); ok {
				p.file = int32(after[0] - '0')
			}
			p.set = !strings.Contains(text, "x")
			if kind == 'k' {
				p.name, p.value = appendKeyRow(nil, "key"), binary.BigEndian.AppendUint64(nil, orderly(due))
			} else {
				p.name = appendDueRow(nil, engine.Position{Due: due, Key: "key"})
				p.value = data[p.generation]
			}
			if strings.Contains(text, "?") {
				p.value = p.value[:1]
			}
			if !p.set {
				p.value = nil
			}
			all = append(all, p)
		}
		for range 2 { // in either order
			slices.Reverse(all)
			clear(s.latest)
			clear(s.chosen)
			s.report = SalvageReport{}
			var got []string
			for _, p := range all {
				s.note(p.file, p.row)
			}
			s.choose()
			latest := uint64(0)
			for _, p := range all {
				if err := s.yield(p.file, p.row, func(f Salvaged) error {
					latest = f.Generation
					got = append(got, fmt.Sprintf("%d %v", f.Next.UnixNano(), f.Doubt))
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			if s.countLost(); len(s.report.Lost) > 0 {
				got = append(got, "lost")
			}
			if strings.Join(got, ", ") != want {
				t.Errorf("of %q comes %q, want %q", rows, got, want)
			}
			if strings.Contains(rows, "g3") && latest != generations[3] {
				t.Errorf("of %q comes generation %d", rows, latest)
			}
		}
	}
}

// generationsOf returns the data and the generations of tasks that have had the key in turn.
func generationsOf(t *testing.T, key string, n int) (data [][]byte, generations []uint64) {
	store := memstore.New()
	s, err := durable.New(store)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	err = s.Handle("kind", func(context.Context, durable.Run) error { return nil })
	for range n {
		err = errors.Join(err, s.SetTask(ctx, durable.Task{Key: key, Kind: "kind", Delay: time.Hour}))
		r, _, failed := store.Get(key)
		info, undecoded := durable.InfoOf(r)
		if err = errors.Join(err, failed, undecoded); err != nil {
			t.Fatal(err)
		}
		data, generations = append(data, r.Data), append(generations, info.Generation)
	}
	if err := s.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	return data, generations
}

// If a chunk of a commit is damaged, the rows from that chunk on are lost. At the end of the log all rows of
// the commit are lost, since the commit may have been cut off.
func TestSalvage_logsChunkByChunk(t *testing.T) {
	chunk := func(position byte, payload []byte) []byte {
		b := []byte{6: recycledChunk + position}
		binary.LittleEndian.PutUint16(b[4:], uint16(len(payload)))
		b = append(binary.LittleEndian.AppendUint32(b, 7), payload...)
		return withChecksum(b)
	}
	batch := func(write uint64, keys ...string) []byte {
		b := binary.LittleEndian.AppendUint64(nil, write)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(keys)))
		for _, key := range keys {
			b = append(append(b, 0, byte(len(key))), key...) // a deletion
		}
		return b
	}
	const full, first, middle, last = 0, 1, 2, 3
	a, long := batch(1, "a"), batch(2, "b", "c", "d")
	cut := len(long) - 2 // so that "b" and "c" are before it
	end := []byte{6: recycledChunk, 7: 8, 10: 0}
	damaged := func(b []byte) []byte {
		b = slices.Clone(b)
		b[len(b)-1] ^= 1
		return b
	}
	for name, c := range map[string]struct {
		chunks [][]byte
		rows   string
		gaps   int
	}{
		"whole":                {[][]byte{chunk(full, a), chunk(first, long[:20]), chunk(last, long[20:]), end}, "abcd", 0},
		"no mark at the end":   {[][]byte{chunk(full, a)}, "a", 0},
		"zeros at the end":     {[][]byte{chunk(full, a), make([]byte, 100_000)}, "a", 0},
		"the first is damaged": {[][]byte{damaged(chunk(full, a)), chunk(full, long), end}, "bcd", 1},
		"part of a commit":     {[][]byte{chunk(first, long[:cut]), damaged(chunk(last, long[cut:])), chunk(full, a), end}, "abc", 1},
		"a middle one":         {[][]byte{chunk(first, long[:cut]), damaged(chunk(middle, nil)), chunk(last, long[cut:]), chunk(full, a), end}, "abc", 1},
		"a beginning":          {[][]byte{damaged(chunk(first, long[:20])), chunk(last, long[20:]), chunk(full, a), end}, "a", 1},
		"the last is cut off":  {[][]byte{chunk(full, a), chunk(first, long[:cut])}, "a", 1},
		"garbage at the end":   {[][]byte{chunk(full, a), []byte("garbage, and more of it")}, "a", 1},
		"an end is missing":    {[][]byte{chunk(first, long[:cut]), chunk(full, a), end}, "abc", 1},
		"behind the mark":      {[][]byte{chunk(full, a), end, chunk(full, long)}, "a", 0},
	} {
		rows := map[string]bool{}
		gaps := logRows(slices.Concat(c.chunks...), 7, func(r row) { rows[string(r.name)] = true })
		if got := strings.Join(slices.Sorted(maps.Keys(rows)), ""); got != c.rows || len(gaps) != c.gaps {
			t.Errorf("%s: the rows are %q, want %q, and the gaps %v", name, got, c.rows, gaps)
		}
	}
	older := chunk(full, long) // of log 7, left over in the file of log 9
	if gaps := logRows(slices.Concat(older, older), 9, func(r row) { t.Errorf("%q is read", r.name) }); len(gaps) > 0 {
		t.Error(gaps)
	}
}

// withChecksum fills in the first four bytes of a chunk.
func withChecksum(b []byte) []byte {
	crc := crc32.Checksum(b[6:], castagnoli)
	binary.LittleEndian.PutUint32(b, (crc>>15|crc<<17)+checksumDelta)
	return b
}
