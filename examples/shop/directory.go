// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/pebble"
)

// A directory is a book in a directory, which one process owns. The orders are lines of a journal, and the rechecks are
// in a durable store.
//
// A kill may come between the writes to the two. So the journal is always written first. If the recheck of a held order
// is missing, the next process adds it. If the recheck of a paid or returned order is still there, or its run is
// repeated, it does nothing.
type directory struct {
	config
	tasks *durable.Scheduler

	mu      sync.Mutex // protects the fields below
	journal *os.File
	orders  map[string]entry
	gone    map[int]int // units by article
}

func serveDirectory(ctx context.Context, c config, out io.Writer) error {
	engine, err := pebble.Open(ctx, filepath.Join(c.dir, "tasks")) // fails while another process owns it
	if err != nil {
		return err
	}
	return serve(ctx, c, engine, &directory{config: c}, out)
}

// open reads the journal and adds the missing rechecks.
func (b *directory) open(ctx context.Context, tasks *durable.Scheduler) (err error) {
	b.tasks = tasks
	b.journal, err = os.OpenFile(journalIn(b.dir), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	entries, err := readJournal(b.dir)
	if err != nil {
		return err
	}
	b.orders, b.gone = make(map[string]entry), make(map[int]int)
	for _, e := range entries {
		b.orders[e.ID], b.gone[e.Article] = e, e.Gone
	}
	for id, o := range b.orders {
		if o.State == held {
			if err := b.addRecheck(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// addRecheck adds the recheck of an order, unless it exists.
func (b *directory) addRecheck(ctx context.Context, id string) error {
	err := b.tasks.AddTask(ctx, durable.Task{Key: id, Kind: recheck, Delay: b.window})
	if errors.Is(err, durable.ErrDuplicateTaskKey) {
		return nil
	}
	return err
}

func (b *directory) place(ctx context.Context, o order) error {
	if err := b.change(o, held); err != nil {
		return err
	}
	return b.addRecheck(ctx, o.ID)
}

func (b *directory) pay(ctx context.Context, id string) error {
	if err := b.change(order{ID: id}, paid); err != nil {
		return err
	}
	err := b.tasks.RemoveTask(ctx, id)
	if errors.Is(err, durable.ErrTaskKeyNotFound) {
		return nil // it was already paid and the answer was lost
	}
	return err
}

func (b *directory) giveBack(_ context.Context, run durable.Run) error {
	return b.change(order{ID: run.Key}, returned)
}

// change writes the new state of an order to the journal, unless an earlier call has done so. The line is on the disk
// when change returns. That needs Sync only for a power cut: what a process has written survives its kill.
func (b *directory) change(o order, to string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, known := b.orders[o.ID]
	switch {
	case to == e.State, to == held && known, to == returned && e.State != held:
		return nil
	case to == paid && e.State != held:
		return errExpired
	case to == held && b.gone[o.Article]+o.Units > stock:
		return errSoldOut
	case to == held:
		e = entry{order: o, Gone: b.gone[o.Article] + o.Units}
	case to == paid:
		e.Gone = b.gone[e.Article]
	case to == returned:
		e.Gone = b.gone[e.Article] - e.Units
	}
	e.State = to
	err := json.NewEncoder(b.journal).Encode(e)
	if err = errors.Join(err, b.journal.Sync()); err != nil {
		return errors.Join(err, b.journal.Close()) // no line may follow a part of a line
	}
	b.orders[e.ID], b.gone[e.Article] = e, e.Gone
	return nil
}

func journalIn(dir string) string { return filepath.Join(dir, "orders.jsonl") }

// readJournal returns the lines. A part of a line is an error. Only a power cut or a full disk can leave one.
func readJournal(dir string) (entries []entry, err error) {
	text, err := os.ReadFile(journalIn(dir))
	for line := range bytes.Lines(text) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, err
}
