// SPDX-License-Identifier: MIT

package series

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"
	"github.com/seed581295f1/timewheel/durable/internal/past"
)

const (
	// A minute is written up to spread after its end, because many tasks are due at the full minute.
	spread = 10 * time.Second

	// writeFor bounds a write and a sweep, and lastWrite bounds the write in Stop.
	writeFor  = 10 * time.Second
	lastWrite = time.Second
)

// A Writer writes the last hour of a process. It has a goroutine once Start was called. A write that fails is repeated
// with the next minute.
type Writer struct {
	notes past.Notebook
	now   func() int64              // the time of the engine, in nanoseconds since 1970
	read  func() map[string]Numbers // see NewWriter
	life  context.Context           // done when Stop is called
	end   context.CancelFunc
	ended sync.WaitGroup // the goroutine

	mu      sync.Mutex // protects started
	started bool

	// The goroutine owns the fields below.
	name    string
	hour    Hour                // without its kinds
	was     map[string]Numbers  // as read last
	minutes map[string][]Minute // by kind; none is empty
	fresh   bool                // something was not written yet
	written bool                // the note may exist
}

// NewWriter returns a Writer for a node with this name. read returns the numbers of runs of each kind since the scheduler
// was created, and its overdue tasks.
func NewWriter(notes past.Notebook, node string, now func() int64, read func() map[string]Numbers) *Writer {
	w := &Writer{notes: notes, now: now, read: read, name: newName(), hour: Hour{Node: node}}
	w.was, w.minutes = make(map[string]Numbers), make(map[string][]Minute)
	w.life, w.end = context.WithCancel(context.Background())
	return w
}

// Start begins the first minute. A second call has no effect.
func (w *Writer) Start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started || w.life.Err() != nil {
		return
	}
	w.started, w.fresh = true, true
	w.hour.Started = w.now()
	w.ended.Go(w.run)
}

// Stop writes the last minute and the end, for at most a second, unless there is nothing to write but the start. It is
// called after the last run has ended.
func (w *Writer) Stop() {
	w.mu.Lock() // Start has started the goroutine, or will see that the Writer has ended
	w.end()
	w.mu.Unlock()
	w.ended.Wait()
}

func (w *Writer) run() {
	for n := 0; ; n++ {
		now := w.now()
		if clock.PauseFor(w.life, time.Duration(minute-now%minute)) != nil {
			break
		}
		w.take(now / minute)
		if clock.PauseFor(w.life, rand.N(spread)) != nil {
			break
		}
		w.write(w.life, writeFor, now/minute)
		if n%Minutes == 0 {
			ctx, cancel := context.WithTimeout(w.life, writeFor)
			_ = sweep(ctx, w.notes, w.now()) // the next one is in an hour
			cancel()
		}
	}
	w.hour.Ended = w.now()
	w.take(w.hour.Ended / minute)
	if w.written || len(w.minutes) > 0 {
		w.fresh = true
		w.write(context.Background(), lastWrite, w.hour.Ended/minute)
	}
}

// take adds the numbers since the last call to the minute, and drops the minutes that are not in the hour before it.
func (w *Writer) take(at int64) {
	for kind, is := range w.read() {
		was := w.was[kind]
		w.was[kind] = is
		m := Minute{at, Numbers{is.Succeeded - was.Succeeded, is.Failed - was.Failed, is.Overdue}}
		if m.Succeeded+m.Failed == 0 && m.Overdue <= 0 {
			continue
		}
		all := w.minutes[kind]
		if last := len(all) - 1; last >= 0 && all[last].At == at {
			m.Succeeded, m.Failed = m.Succeeded+all[last].Succeeded, m.Failed+all[last].Failed
			all = all[:last]
		}
		w.minutes[kind] = append(all, m)
		w.fresh = true
	}
	for kind, all := range w.minutes {
		w.minutes[kind] = slices.DeleteFunc(all, func(m Minute) bool { return m.At <= at-Minutes || m.At > at })
		if len(w.minutes[kind]) == 0 {
			delete(w.minutes, kind)
		}
	}
}

// write writes the note, whose last minute is given, if there is something new.
func (w *Writer) write(ctx context.Context, most time.Duration, last int64) {
	if !w.fresh {
		return
	}
	h := w.hour
	for kind, all := range w.minutes {
		h.Kinds = append(h.Kinds, Kind{kind, all})
	}
	data, err := h.encode(last)
	if err != nil {
		return // unreachable
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	w.written = true
	w.fresh = w.notes.Write(ctx, []engine.Record{{Key: w.name, Data: data}}) != nil
}
