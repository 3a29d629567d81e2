// SPDX-License-Identifier: MIT

package past

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// An Entry is an attempt in the history.
type Entry struct {
	Kind, Node string
	task.Past
}

// Compare orders entries as Read returns them, newest first.
func (e Entry) Compare(f Entry) int {
	return cmp.Or(cmp.Compare(f.Ended, e.Ended), cmp.Compare(f.Started, e.Started), cmp.Compare(e.Key, f.Key),
		cmp.Compare(e.Generation, f.Generation), cmp.Compare(f.Seq, e.Seq), cmp.Compare(f.Attempt, e.Attempt))
}

// Read returns the first entries for which fits returns true, up to the limit. It reads the history of a kind, or of
// all kinds if kind is empty, and omits blocks that it cannot read and blocks whose entries all ended before since.
func Read(ctx context.Context, from Notebook, kind string, since time.Time, limit int, fits func(Entry) bool,
) (all []Entry, err error) {
	var least int64
	if since.After(time.Unix(0, 0)) {
		least = since.UnixNano()
	}
	if kind != "" {
		return readKind(ctx, from, historyOf(kind), least, limit, fits, nil)
	}
	for next := historyPrefix; ; {
		prefix := ""
		for note, err := range from.Read(ctx, engine.Range{From: next, To: AfterPrefix(historyPrefix), Bare: true}) {
			if err != nil {
				return nil, err
			}
			prefix = note.Key[:min(len(note.Key), len(historyPrefix)+8)]
			break
		}
		if prefix == "" {
			break
		}
		if all, err = readKind(ctx, from, prefix, least, limit, fits, all); err != nil {
			return nil, err
		}
		next = AfterPrefix(prefix)
	}
	return all, nil
}

// readKind is like Read, for the blocks whose names begin with the prefix. The result includes the entries in all.
func readKind(ctx context.Context, from Notebook, prefix string, since int64, limit int, fits func(Entry) bool, all []Entry,
) ([]Entry, error) {
	for note, err := range from.Read(ctx, engine.Range{From: prefix, To: AfterPrefix(prefix)}) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		name, ok := parseBlock(note.Key)
		if ok && (name.ended < since || len(all) == limit && name.ended < all[limit-1].Ended) {
			break // no entry of this block or a later one is among the first
		}
		block, err := task.DecodePast(note.Data)
		if !ok || err != nil {
			continue
		}
		for _, p := range block.Past {
			if e := (Entry{block.Kind, block.Node, p}); fits(e) {
				all = append(all, e)
			}
		}
		if len(all) >= limit {
			all = first(all, limit)
		}
	}
	return first(all, limit), nil
}

// first sorts the entries and returns the first ones, up to the limit.
func first(all []Entry, limit int) []Entry {
	slices.SortFunc(all, Entry.Compare)
	return all[:min(len(all), limit)]
}
