// SPDX-License-Identifier: MIT

// Package past keeps the history of runs: it writes the attempts that have ended into notes of a store or an engine, and
// reads them again.
//
// The history of a kind consists of blocks. A block is a note with the attempts that ended on one node within about a
// second: blockBytes of them, or a single longer one. The name of a note is
//
//	history/  hash of the kind  end of the last attempt  random number  number of attempts
//
// in big-endian numbers of 8, 8, 8 and 4 bytes. The end is subtracted from the greatest number, so the newest block of a
// kind comes first. The names alone show which blocks are surplus or too old. A write that is repeated has the same
// names, so it does no harm if the first attempt took effect.
package past

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"iter"
	"math"
	"math/rand/v2"

	"github.com/seed581295f1/timewheel/durable/engine"
)

const (
	historyPrefix = "history/"
	historyName   = len(historyPrefix) + 28
	blockBytes    = 8 << 10
)

// historyOf returns the beginning of the names of a kind's blocks.
func historyOf(kind string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(kind)) // never fails
	return string(binary.BigEndian.AppendUint64([]byte(historyPrefix), h.Sum64()))
}

// blockName returns a new name for a block of n attempts, the last of which ended at the given time.
func blockName(kind string, ended int64, n int) string {
	b := binary.BigEndian.AppendUint64([]byte(historyOf(kind)), uint64(math.MaxInt64-ended))
	return string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, rand.Uint64()), uint32(n)))
}

// parseBlock returns when the last attempt of a block ended, and the number of its attempts.
func parseBlock(name string) (ended int64, n int, ok bool) {
	if len(name) != historyName {
		return 0, 0, false
	}
	b := []byte(name[len(historyPrefix)+8:])
	return math.MaxInt64 - int64(binary.BigEndian.Uint64(b)), int(binary.BigEndian.Uint32(b[16:])), true
}

// AfterPrefix returns the first name that is greater than all names with the prefix. It is empty if there is none.
func AfterPrefix(prefix string) string {
	b := []byte(prefix)
	for len(b) > 0 && b[len(b)-1] == 0xff {
		b = b[:len(b)-1]
	}
	if len(b) > 0 {
		b[len(b)-1]++
	}
	return string(b)
}

// A Notebook reads and writes the notes of a store or an engine.
type Notebook interface {
	Read(ctx context.Context, over engine.Range) iter.Seq2[engine.Record, error]
	Write(ctx context.Context, notes []engine.Record) error // puts the notes, and deletes those without Data
}

// OfStore returns the notes of a store, or nil if it stores none.
func OfStore(store engine.Store) Notebook {
	if notes, ok := store.(engine.Noter); ok {
		return ofStore{notes}
	}
	return nil
}

// OfEngine returns the notes of an engine.
func OfEngine(e engine.Engine) Notebook { return ofEngine{e} }

type ofStore struct{ engine.Noter }

func (s ofStore) Read(_ context.Context, over engine.Range) iter.Seq2[engine.Record, error] {
	return s.Notes(over)
}

func (s ofStore) Write(_ context.Context, notes []engine.Record) error { return s.SetNotes(notes) }

type ofEngine struct{ engine.Engine }

func (e ofEngine) Read(ctx context.Context, over engine.Range) iter.Seq2[engine.Record, error] {
	over.Order = engine.Notes
	return func(yield func(engine.Record, error) bool) {
		for note, err := range e.Walk(ctx, over) {
			if !yield(note.Record, err) || err != nil {
				return
			}
		}
	}
}

func (e ofEngine) Write(ctx context.Context, notes []engine.Record) error {
	batches := make([]engine.Batch, len(notes))
	for i, note := range notes {
		batches[i] = engine.Batch{{Record: note, Note: true, If: engine.Always}}
	}
	_, err := e.Commit(ctx, 0, batches)
	return err
}
