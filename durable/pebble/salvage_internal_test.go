// SPDX-License-Identifier: MIT

package pebble

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/memory"

	"github.com/seed581295f1/timewheel/durable"
)

// The result of Salvage for rows that disagree, or if one is missing. The task of the key has had three states: revision
// 1 was due at 7, revision 2 at 8, and revision 3 at 7 again. A row is written as t and its revision, or as f, its due
// time, r and its revision. Then follow @ and the number of its write. These may follow: x if it is deleted, ? if it
// cannot be decoded, # and the index of its file.
func TestSalvage_rowsThatDisagree(t *testing.T) {
	values := statesOf(t)
	for rows, want := range map[string]string{
		"t1@5 f7r1@6":                      "1 no doubt",
		"f7r1@6":                           "1 maybe removed",
		"t1@5":                             "lost",
		"t1@5 f7r1@6?":                     "lost",
		"t1@5? f7r1@6":                     "1 maybe stale",
		"t1@5? f7r1@6?":                    "lost",
		"t1@0 f7r1@0":                      "1 no doubt",
		"t1@5 f7r1@6#0 f7r1@6#1":           "1 no doubt", // the tables of an unfinished compaction are still there
		"t1@5 f7r1@6 f7r1@6":               "1 no doubt",
		"t1@5 f8r2@6":                      "2 maybe stale",
		"t1@5 f7r1@6 f8r2@8 f8r2@9x":       "1 no doubt",
		"t2@9x f7r1@10x f8r2@8":            "", // the removal deletes both at once, and one of the deletions could not be read
		"t1@9x f7r1@10x":                   "",
		"t1@9x f7r1@6":                     "",
		"t1@9x f7r3@12":                    "3 maybe removed", // it was added again, and its first row could not be read
		"t1@9x f7r1@0":                     "1 maybe removed",
		"t1@5 f7r1@9x":                     "", // nor could the deletion of the first row
		"t1@0 f7r1@9x":                     "",
		"t3@5 f7r1@4x":                     "lost", // the deletion belongs to an earlier task
		"t2@9 f7r1@6 f8r2@10":              "2 no doubt",
		"t1@5 f7r1@6 f8r2@10":              "2 maybe stale",
		"t2@9 f7r1@6":                      "1 maybe stale",
		"t2@9 f7r1@11x":                    "lost",
		"t2@9 f7r1@11x f8r2@10?":           "lost",
		"t2@9 f8r2@10 f7r1@11x":            "2 no doubt",
		"t2@0 f7r1@6 f8r2@0":               "2 no doubt", // the table that has lost the number has the later task
		"t1@5 f7r1@6 f8r2@0":               "2 maybe stale",
		"t3@12 f7r1@6 f8r2@10 f7r3@13":     "3 no doubt",
		"t3@12 f7r1@6 f8r2@10 f8r2@14x":    "1 maybe stale",
		"t3@12 f7r1@6 f7r3@13 f8r2@14x":    "3 no doubt",
		"t2@9 f8r2@10 f7r3@13":             "3 maybe stale",
		"t3@0#1 f7r1@0#1 f7r3@0#0":         "3 no doubt", // of rows without a number the revision decides
		"t3@0#0 t1@0#1 f7r1@0#1 f7r3@0#2":  "3 no doubt",
		"t3@12 t2@9 f8r2@10 f7r3@13 t1@5":  "3 no doubt",
		"t3@12x t2@9 f8r2@10 f7r3@13x":     "",
		"t1@9x t2@12 f7r1@10x f8r2@13":     "2 no doubt",
		"t1@9x t2@12? f7r1@10x f8r2@13":    "2 maybe stale",
		"t1@9x t2@12 f7r1@10x f8r2@13?":    "lost",
		"t1@9x t2@12 f7r1@10x":             "lost",
		"t1@9x t2@12 t2@15x f8r2@13":       "",
		"t1@9x t2@12 f8r2@13 f8r2@16x":     "",
		"t2@12 f7r1@6 f8r2@13 f8r2@16x":    "1 maybe stale",
		"t2@15x f7r1@6 f8r2@13 f8r2@16x":   "",
		"t1@0 t2@15x f7r1@0 f8r2@13 t1@5x": "",
	} {
		s := &salvager{latest: map[string]version{}, chosen: map[string]choice{}}
		type placed struct {
			file int32
			row
		}
		var all []placed
		for _, text := range strings.Fields(rows) {
			var p placed
			name, flags, _ := strings.Cut(text, "@")
			if _, err := fmt.Sscanf(flags, "%d", &p.write); err != nil {
				t.Fatal(err)
			}
			if _, after, ok := strings.Cut(flags, "#"); ok {
				p.file = int32(after[0] - '0')
			}
			p.set = !strings.Contains(flags, "x")
			state, ok := values[name]
			if !ok {
				t.Fatalf("there is no row %s", name)
			}
			p.name = []byte(state.Key)
			if p.set {
				p.value = state.Value
			}
			if strings.Contains(flags, "?") {
				p.value = p.value[:1]
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
			for _, p := range all {
				if err := s.yield(p.file, p.row, func(f Salvaged) error {
					got = append(got, fmt.Sprintf("%s %v", f.Payload, f.Doubt))
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
		}
	}
}

// statesOf returns the rows of a task in its three states, each under its name in the test. The payload of each state is
// its number.
func statesOf(t *testing.T) map[string]engine.Entry {
	t.Helper()
	ctx := context.Background()
	on := memory.New()
	s, err := durable.New(ctx, on.Engine())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Handle("kind", func(context.Context, durable.Run) error { return nil }); err != nil {
		t.Fatal(err)
	}
	rows := map[string]engine.Entry{}
	began := time.Now()
	for state, due := range []int{7, 8, 7} {
		err := s.SetTask(ctx, durable.Task{
			Key: "key", Kind: "kind", At: began.Add(time.Duration(due) * time.Hour), Payload: fmt.Append(nil, state+1),
		})
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range on.Scan(ctx, "\x00", "\xff") {
			if err != nil {
				t.Fatal(err)
			}
			switch _, whole, is := kv.IsPart(e.Key); {
			case is && whole:
				rows[fmt.Sprintf("f%dr%d", due, state+1)] = e
			case is:
				rows[fmt.Sprintf("t%d", state+1)] = e
			}
		}
	}
	if err := s.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if rows["f7r1"].Key != rows["f7r3"].Key || rows["f7r1"].Key == rows["f8r2"].Key || len(rows) != 6 {
		t.Fatalf("the rows are %v", rows)
	}
	return rows
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
