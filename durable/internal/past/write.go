// SPDX-License-Identifier: MIT

package past

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

const (
	// The attempts of a kind are written once there are enoughWait of them, or the first has waited for waitMost. This is
	// checked every writtenEvery, and when crowdWaits are waiting. A block costs an engine as much as a few attempts do.
	writtenEvery = time.Second
	waitMost     = 5 * time.Second
	enoughWait   = 32
	crowdWaits   = 4096

	// Once a node has written 1/trimmedPart of a kind's history, it deletes the surplus and the blocks that are too old,
	// at most once every trimmedEvery. It also does so after it has written as many attempts as the kind keeps, and every
	// sweptEvery, because the age of a kind may be shorter than when the blocks were written.
	trimmedPart  = 8
	trimmedEvery = 30 * time.Second

	// A sweep deletes the blocks of all kinds that are too old. Every sweptEvery, or sooner, each node checks whether
	// there was a sweep within half that time.
	sweptEvery = 10 * time.Minute

	// historyTimeout bounds a write, a trim or a sweep, and lastWrite bounds the write in Stop.
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
	failed func(error)     // see NewWriter
	full   chan struct{}   // signals that many attempts are waiting
	life   context.Context // done when Stop is called
	end    context.CancelFunc
	ended  sync.WaitGroup // the goroutine

	mu    sync.Mutex // protects kinds, and the waiting attempts of each
	kinds []*Kind

	// The goroutine owns the fields below.
	unsent []block   // blocks that have not been written, or whose write has failed
	fails  bool      // failed has been called since the last write that succeeded
	sweep  time.Time // when to look whether to sweep
}

// A Kind is the history of a kind with a handler in this process.
type Kind struct {
	to   *Writer
	name string
	most int
	age  time.Duration

	// to.mu protects the fields below.
	waiting []task.Past // attempts in no block yet, oldest first
	since   time.Time   // when the first of them was added

	// The goroutine of the Writer owns the fields below.
	written int       // number of attempts written since the history was trimmed
	trimmed time.Time // when it was trimmed
}

// A block is a note with n attempts.
type block struct {
	of   *Kind
	note engine.Record
	n    int
}

// NewWriter returns a Writer for a node with this name. It calls failed when the history cannot be written or trimmed,
// once until that succeeds.
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
	k.written = most // earlier processes may each have written less than makes a trim due
	if w.kinds = append(w.kinds, k); len(w.kinds) == 1 {
		w.ended.Go(w.run)
	}
	return k
}

// Life returns a context that is done when Stop is called.
func (w *Writer) Life() context.Context { return w.life }

// Stop writes the waiting attempts, on an engine for at most two seconds. It is called after the last run has ended.
func (w *Writer) Stop() {
	w.mu.Lock() // Kind has started the goroutine, or will see that the Writer has ended
	w.end()
	w.mu.Unlock()
	w.ended.Wait()
}

// Now returns the time of the store or the engine, in nanoseconds since 1970.
func (k *Kind) Now() int64 { return k.to.now() }

// Add adds an attempt. While the history cannot be written, Add forgets attempts that are older than the kind keeps.
func (k *Kind) Add(e task.Past) {
	w := k.to
	w.mu.Lock()
	defer w.mu.Unlock()
	if k.waiting = append(k.waiting, e); len(k.waiting) == 1 {
		k.since = time.Now()
	}
	if len(k.waiting) >= 2*k.most {
		k.waiting = append(k.waiting[:0], k.waiting[len(k.waiting)-k.most:]...)
	}
	if len(k.waiting) == crowdWaits {
		select {
		case w.full <- struct{}{}:
		default:
		}
	}
}

// run writes the waiting attempts until Stop is called.
func (w *Writer) run() {
	every := time.NewTicker(writtenEvery)
	defer every.Stop()
	w.sweep = time.Now().Add(rand.N(sweptEvery))
	for {
		select {
		case <-every.C:
		case <-w.full:
		case <-w.life.Done():
			if err := w.write(context.Background(), lastWrite, true); err != nil {
				w.failed(err)
			}
			return
		}
		err := w.write(w.life, historyTimeout, false)
		if err == nil {
			err = errors.Join(w.trimKinds(), w.sweepAll())
		}
		if err != nil && !w.fails && w.life.Err() == nil {
			w.fails = true
			w.failed(err)
		}
	}
}

// write writes the attempts that have waited long enough, or all of them.
func (w *Writer) write(ctx context.Context, most time.Duration, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if err := w.send(ctx); err != nil { // under the same names, because a write that failed may have taken effect
		return err
	}
	w.encode(all)
	return w.send(ctx)
}

// encode turns attempts that have waited long enough, or all of them, into unsent blocks.
func (w *Writer) encode(all bool) {
	taken := make(map[*Kind][]task.Past)
	w.mu.Lock()
	for _, k := range w.kinds {
		if n := len(k.waiting); n > 0 && (all || n >= enoughWait || time.Since(k.since) >= waitMost) {
			taken[k], k.waiting = k.waiting[max(0, n-k.most):], nil
		}
	}
	w.mu.Unlock()
	for k, left := range taken {
		for len(left) > 0 {
			data, n := (&task.PastBlock{Kind: k.name, Node: w.node, Past: left}).Encode(blockBytes)
			ended := left[0].Ended
			for _, e := range left[:n] {
				ended = max(ended, e.Ended)
			}
			name := blockName{ended, task.Later(ended, k.age), n}
			w.unsent = append(w.unsent, block{k, engine.Record{Key: name.of(k.name), Data: data}, n})
			left = left[n:]
		}
	}
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
		w.fails = false
		for _, b := range some {
			b.of.written += b.n
		}
		w.unsent = w.unsent[len(some):]
	}
	w.unsent = nil
	return nil
}

// trimKinds deletes surplus blocks of kinds of which this node has written enough.
func (w *Writer) trimKinds() (all error) {
	w.mu.Lock()
	kinds := slices.Clone(w.kinds)
	w.mu.Unlock()
	for _, k := range kinds {
		since := time.Since(k.trimmed)
		if k.written*trimmedPart >= k.most && since >= trimmedEvery || k.written >= k.most || since >= sweptEvery {
			k.written, k.trimmed = 0, time.Now()
			n, ahead, now := 0, 0, w.now()
			all = errors.Join(all, w.delete(historyOf(k.name), func(b blockName) bool {
				newer := &n
				if b.ended-now > int64(task.MostAhead) { // the clock was ahead, and the block must not displace any of today
					newer = &ahead
				}
				*newer += b.n
				old := task.Later(b.ended, k.age) <= now // b.until is of the age at that time
				return old || *newer-b.n >= k.most
			}))
		}
	}
	return all
}

// sweepAll deletes the blocks of all kinds that are too old, unless a node has done so lately.
func (w *Writer) sweepAll() error {
	if time.Now().Before(w.sweep) {
		return nil
	}
	w.sweep = time.Now().Add(sweptEvery/2 + rand.N(sweptEvery/2))
	ctx, cancel := context.WithTimeout(w.life, historyTimeout)
	defer cancel()
	now := w.now()
	for note, err := range w.notes.Read(ctx, engine.Range{From: sweepNote, To: sweepNote + "\x00"}) {
		if err != nil {
			return err
		}
		if last, n := binary.Varint(note.Data); n > 0 && last <= now && last > now-int64(sweptEvery/2) {
			return nil
		}
	}
	mark := engine.Record{Key: sweepNote, Data: binary.AppendVarint(nil, now)}
	if err := w.notes.Write(ctx, []engine.Record{mark}); err != nil {
		return err
	}
	return w.delete(historyPrefix, func(b blockName) bool { return b.until <= now })
}

// delete deletes the blocks whose names begin with the prefix and for which the function returns true.
func (w *Writer) delete(prefix string, is func(blockName) bool) error {
	ctx, cancel := context.WithTimeout(w.life, historyTimeout)
	defer cancel()
	var names []engine.Record
	for note, err := range w.notes.Read(ctx, engine.Range{From: prefix, To: AfterPrefix(prefix), Bare: true}) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if b, ok := parseBlock(note.Key); ok && is(b) {
			names = append(names, engine.Record{Key: note.Key})
		}
	}
	for some := range slices.Chunk(names, notesAtOnce) {
		if err := errors.Join(ctx.Err(), w.notes.Write(ctx, some)); err != nil {
			return err
		}
	}
	return nil
}
