// SPDX-License-Identifier: MIT

package past

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

const (
	// Attempts wait up to writtenEvery for others to share a block. If writtenMost of a kind are waiting, they are
	// written at once.
	writtenEvery = time.Second
	writtenMost  = 4096

	// A node trims the history of a kind every trimmedEvery, and after it has written one part in trimmedPart of it.
	trimmedEvery = 10 * time.Minute
	trimmedPart  = 8

	// historyTimeout is how long a write may take, and lastWrite how long the one in Shutdown.
	historyTimeout = 10 * time.Second
	lastWrite      = 2 * time.Second

	// notesAtOnce is how many notes one call writes or deletes.
	notesAtOnce = 128
)

// A Writer writes the history of a scheduler's kinds. It has a goroutine once a kind has a history.
type Writer struct {
	notes  Notebook
	node   string
	now    func() int64    // the time of the store or the engine, in nanoseconds since 1970
	failed func(error)     // called when a write fails and the one before did not
	full   chan struct{}   // signals that many attempts are waiting
	life   context.Context // done when Stop is called
	end    context.CancelFunc
	ended  sync.WaitGroup // the goroutine

	mu    sync.Mutex // protects kinds, and the waiting attempts of each
	kinds []*Kind

	// The goroutine owns the fields below.
	unsent []block // blocks that have not been written, or whose write has failed
	fails  bool    // the last write has failed
}

// A Kind is the history of a kind with a handler in this process.
type Kind struct {
	to   *Writer
	name string
	most int
	age  time.Duration

	waiting []task.Past // attempts in no block yet, oldest first; to.mu protects it

	// The goroutine of the Writer owns the fields below.
	written int       // number of attempts written since the history was trimmed
	trim    time.Time // when to trim it at the latest
}

// A block is a note with n attempts.
type block struct {
	of   *Kind
	note engine.Record
	n    int
}

// NewWriter returns a Writer for a node with this name. It calls failed when the history cannot be written, once until a
// write succeeds.
func NewWriter(notes Notebook, node string, now func() int64, failed func(error)) *Writer {
	w := &Writer{notes: notes, node: node, now: now, failed: failed, full: make(chan struct{}, 1)}
	w.life, w.end = context.WithCancel(context.Background())
	return w
}

// Kind returns the history of a kind, which keeps the given number of attempts for as long as age. After Stop it returns
// nil.
func (w *Writer) Kind(name string, most int, age time.Duration) *Kind {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life.Err() != nil {
		return nil
	}
	k := &Kind{to: w, name: name, most: most, age: age}
	if w.kinds = append(w.kinds, k); len(w.kinds) == 1 {
		w.ended.Go(w.run)
	}
	return k
}

// Stop writes the waiting attempts. It is called after the last run has ended.
func (w *Writer) Stop() {
	w.mu.Lock() // Kind has started the goroutine, or will see that the Writer has ended
	w.end()
	w.mu.Unlock()
	w.ended.Wait()
}

// Now returns the time of the store or the engine, in nanoseconds since 1970.
func (k *Kind) Now() int64 { return k.to.now() }

// Add adds an attempt. While the history cannot be written, Add forgets the attempts that it would not keep anyway.
func (k *Kind) Add(e task.Past) {
	w := k.to
	w.mu.Lock()
	defer w.mu.Unlock()
	if k.waiting = append(k.waiting, e); len(k.waiting) >= 2*k.most {
		k.waiting = append(k.waiting[:0], k.waiting[len(k.waiting)-k.most:]...)
	}
	if len(k.waiting) == writtenMost {
		select {
		case w.full <- struct{}{}:
		default:
		}
	}
}

// run writes the waiting attempts every writtenEvery or sooner, until Stop is called.
func (w *Writer) run() {
	every := time.NewTicker(writtenEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-w.full:
		case <-w.life.Done():
			ctx, cancel := context.WithTimeout(context.Background(), lastWrite)
			defer cancel()
			_ = w.write(ctx) // the scheduler ends in any case
			return
		}
		ctx, cancel := context.WithTimeout(w.life, historyTimeout)
		err := w.write(ctx)
		cancel()
		if err != nil && !w.fails && w.life.Err() == nil {
			w.failed(err)
		}
		w.fails = err != nil
	}
}

// write writes the waiting attempts, and deletes blocks that are surplus or too old.
func (w *Writer) write(ctx context.Context) error {
	if err := w.send(ctx); err != nil { // under the same names, because a write that failed may have taken effect
		return err
	}
	kinds := w.encode()
	if err := w.send(ctx); err != nil {
		return err
	}
	for _, k := range kinds {
		if k.written*trimmedPart >= k.most || !time.Now().Before(k.trim) {
			if err := w.trimKind(ctx, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// encode turns the waiting attempts into unsent blocks. It returns the kinds.
func (w *Writer) encode() []*Kind {
	w.mu.Lock()
	kinds := slices.Clone(w.kinds)
	waiting := make([][]task.Past, len(kinds))
	for i, k := range kinds {
		waiting[i], k.waiting = k.waiting[max(0, len(k.waiting)-k.most):], nil
	}
	w.mu.Unlock()
	for i, k := range kinds {
		for left := waiting[i]; len(left) > 0; {
			data, n := (&task.PastBlock{Kind: k.name, Node: w.node, Past: left}).Encode(blockBytes)
			ended := left[0].Ended
			for _, e := range left[:n] {
				ended = max(ended, e.Ended)
			}
			note := engine.Record{Key: blockName(k.name, ended, n), Data: data}
			w.unsent = append(w.unsent, block{k, note, n})
			left = left[n:]
		}
	}
	return kinds
}

// send writes the blocks in unsent.
func (w *Writer) send(ctx context.Context) error {
	for len(w.unsent) > 0 {
		some := w.unsent[:min(len(w.unsent), notesAtOnce)]
		notes := make([]engine.Record, len(some))
		for i, b := range some {
			notes[i] = b.note
		}
		if err := w.notes.Write(ctx, notes); err != nil {
			return err
		}
		for _, b := range some {
			b.of.written += b.n
		}
		w.unsent = w.unsent[len(some):]
	}
	w.unsent = nil
	return nil
}

// trimKind deletes the blocks of a kind beyond its newest attempts, and blocks that are too old.
func (w *Writer) trimKind(ctx context.Context, k *Kind) error {
	prefix, oldest, n := historyOf(k.name), w.now()-int64(k.age), 0
	var surplus []engine.Record
	for note, err := range w.notes.Read(ctx, engine.Range{From: prefix, To: AfterPrefix(prefix), Bare: true}) {
		if err != nil {
			return err
		}
		ended, attempts, ok := parseBlock(note.Key)
		if ok && (n >= k.most || ended < oldest) {
			surplus = append(surplus, engine.Record{Key: note.Key})
		}
		n += attempts
	}
	for some := range slices.Chunk(surplus, notesAtOnce) {
		if err := w.notes.Write(ctx, some); err != nil {
			return err
		}
	}
	k.written, k.trim = 0, time.Now().Add(trimmedEvery/2+rand.N(trimmedEvery/2)) // nodes trim at different times
	return nil
}
