// SPDX-License-Identifier: MIT

package past

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// pages is a notebook in memory.
type pages map[string][]byte

func (p pages) Read(_ context.Context, over engine.Range) iter.Seq2[engine.Record, error] {
	return func(yield func(engine.Record, error) bool) {
		for _, name := range slices.Sorted(maps.Keys(p)) {
			note := engine.Record{Key: name, Data: p[name]}
			if over.Bare {
				note.Data = nil
			}
			if name >= over.From && (over.To == "" || name < over.To) && !yield(note, nil) {
				return
			}
		}
	}
}

func (p pages) Write(_ context.Context, notes []engine.Record) error {
	for _, note := range notes {
		if p[note.Key] = note.Data; note.Data == nil {
			delete(p, note.Key)
		}
	}
	return nil
}

// Blocks of several nodes overlap. A query still returns exactly the last attempts, in order, whatever its limit.
func TestRead_returnsTheLast_ofOverlappingBlocks(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	p := pages{}
	type made struct {
		kind, key string
		ended     int64
	}
	var all []made
	kinds := []string{"a", "b", "\xff", strings.Repeat("long", 60)}
	for i := range 200 {
		kind, start := kinds[draw.IntN(len(kinds))], draw.Int64N(1e6)
		block := task.PastBlock{Kind: kind, Node: fmt.Sprint("node ", i%3)}
		last := int64(0)
		for j := range 1 + draw.IntN(20) {
			ended := start + draw.Int64N(20_000)
			last = max(last, ended)
			e := made{kind, fmt.Sprint(i, " ", j), ended}
			all = append(all, e)
			block.Past = append(block.Past, task.Past{Key: e.key, Ended: ended, Started: ended})
		}
		data, n := block.Encode(1 << 20)
		p[blockName{last, 0, n}.of(kind)] = data
	}
	p["answer/x"], p["pauses"] = []byte("no"), []byte("block")
	slices.SortStableFunc(all, func(a, b made) int { return int(b.ended - a.ended) })
	for _, kind := range append(kinds, "") {
		for _, limit := range []int{1, 7, 100, 5000} {
			for _, of := range [][2]int64{{0, 1 << 62}, {0, 500_000}, {300_000, 1 << 62}, {300_000, 500_000}, {all[0].ended, 1 << 62}} {
				from, before := of[0], of[1]
				got, err := Read(t.Context(), p, kind, time.Unix(0, from), limit, func(e Entry) bool {
					return (kind == "" || e.Kind == kind) && e.Ended < before && e.Ended >= from
				})
				if err != nil {
					t.Fatal(err)
				}
				var want []int64
				for _, e := range all {
					if (kind == "" || e.kind == kind) && e.ended < before && e.ended >= from && len(want) < limit {
						want = append(want, e.ended)
					}
				}
				var ends []int64
				for _, r := range got {
					ends = append(ends, r.Ended)
				}
				if !slices.Equal(ends, want) {
					t.Errorf("kind %.5q, limit %d: %d attempts, want %d", kind, limit, len(ends), len(want))
				}
			}
		}
	}
}

// Blocks of a later version and damaged blocks are passed over.
func TestRead_unreadableBlocks(t *testing.T) {
	p := pages{}
	data, n := (&task.PastBlock{Kind: "k", Past: []task.Past{{Key: "a"}}}).Encode(1)
	p[blockName{1, 0, n}.of("k")] = data
	p[blockName{2, 0, 1}.of("k")] = []byte{task.PastFormat + 1, 1, 2, 3}
	all := func(Entry) bool { return true }
	if got, err := Read(t.Context(), p, "", time.Time{}, 10, all); err != nil || len(got) != 1 {
		t.Errorf("a block of a later version: %v, %v", got, err)
	}
	p[blockName{3, 0, 1}.of("k")] = data[:len(data)-1]
	if got, err := Read(t.Context(), p, "", time.Time{}, 10, all); err != nil || len(got) != 1 {
		t.Errorf("a damaged block: %v, %v", got, err)
	}
}

// AfterPrefix is greater than each name with the prefix, and not greater than any other that is greater.
func TestAfterPrefix(t *testing.T) {
	for prefix, want := range map[string]string{"": "", "a": "b", "a/": "a0", "a\xff": "b", "\xff": "", "a\xff\xff": "b"} {
		if got := AfterPrefix(prefix); got != want {
			t.Errorf("after %q comes %q, want %q", prefix, got, want)
		}
	}
}
