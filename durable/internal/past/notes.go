// SPDX-License-Identifier: MIT

// Package past keeps the history of runs: it writes attempts that have ended into notes of a store or an engine, and
// reads them.
//
// The history of a kind consists of blocks. A block is a note with consecutive attempts of one node: up to blockBytes
// of them, or a single longer one. The name of the note is
//
//	history/  hash of the kind  end of the last attempt  end of its age  random number  number of attempts
//
// in big-endian numbers, the last of 4 bytes and the others of 8. The first end is subtracted from the greatest number,
// so the newest block of a kind comes first. The names alone show which blocks are surplus or too old. A repeated write
// uses the same names, so it is harmless if the first one took effect. The note
//
//	history
//
// has the time of the last sweep, in which one of the nodes deletes all blocks that are too old.
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
	sweepNote     = "history"
	historyPrefix = sweepNote + "/"
	historyName   = len(historyPrefix) + 36
	blockBytes    = 8 << 10
)

// historyOf returns the beginning of the names of a kind's blocks.
func historyOf(kind string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(kind)) // never fails
	return string(binary.BigEndian.AppendUint64([]byte(historyPrefix), h.Sum64()))
}

// A blockName is a decoded name of a block.
type blockName struct {
	ended int64 // when its last attempt ended
	until int64 // when it is too old
	n     int   // number of its attempts
}

// of returns a new name for a block of the kind.
func (b blockName) of(kind string) string {
	name := []byte(historyOf(kind))
	for _, number := range []uint64{uint64(math.MaxInt64 - b.ended), uint64(b.until), rand.Uint64()} {
		name = binary.BigEndian.AppendUint64(name, number)
	}
	return string(binary.BigEndian.AppendUint32(name, uint32(b.n)))
}

func parseBlock(name string) (b blockName, ok bool) {
	if len(name) != historyName {
		return b, false
	}
	rest := []byte(name[len(historyPrefix)+8:])
	b.ended = math.MaxInt64 - int64(binary.BigEndian.Uint64(rest))
	b.until = int64(binary.BigEndian.Uint64(rest[8:]))
	b.n = int(binary.BigEndian.Uint32(rest[24:]))
	return b, true
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

// A Notebook reads and writes the notes of an engine.
type Notebook interface {
	Read(ctx context.Context, over engine.Range) iter.Seq2[engine.Record, error]
	Write(ctx context.Context, notes []engine.Record) error // puts the notes, and deletes those without Data
}

// OfEngine returns the notes of an engine.
func OfEngine(e engine.Engine) Notebook { return ofEngine{e} }

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
