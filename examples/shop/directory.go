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
// PostgreSQL changes an order and its recheck in one transaction. Here they are two files, and a kill may come between
// the two writes. So the journal is always written first, and the tasks follow it. If the recheck of a held order is
// missing, the next process adds it. If the recheck of a paid or returned order is still there, or its run is repeated,
// it does nothing. And no other process takes over: until the next one starts, there are no orders and no rechecks.
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
	defer engine.Close() // Shutdown has closed it, unless there was an error before
	b := &directory{config: c}
	defer func() { _ = b.journal.Close() }()
	return serve(ctx, c, engine, b, out)
}

// open reads the journal and adds the missing rechecks. It cuts off a part of a line, which a power cut during a write
// may leave. No client was answered then.
func (b *directory) open(ctx context.Context, tasks *durable.Scheduler) (err error) {
	b.tasks = tasks
	b.journal, err = os.OpenFile(journalIn(b.dir), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	entries, size, err := readJournal(b.dir)
	if err != nil {
		return err
	}
	if err := b.journal.Truncate(size); err != nil {
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
	e, gone := b.orders[o.ID], b.gone[o.Article]
	switch from := e.State; {
	case from == to, to == held && from != "", to == returned && from != held:
		return nil
	case to == held && gone+o.Units > stock:
		return errSoldOut
	case to == held:
		e = entry{order: o, Gone: gone + o.Units}
	case from == "":
		return errNoOrder
	case from == returned:
		return errExpired
	case to == paid:
		e.Gone = b.gone[e.Article]
	case to == returned:
		e.Gone = b.gone[e.Article] - e.Units
	}
	e.State = to
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = b.journal.Write(append(line, '\n'))
	if err = errors.Join(err, b.journal.Sync()); err != nil {
		return errors.Join(err, b.journal.Close()) // no line may follow a part of a line
	}
	b.orders[e.ID], b.gone[e.Article] = e, e.Gone
	return nil
}

func journalIn(dir string) string { return filepath.Join(dir, "orders.jsonl") }

// readJournal returns the lines, and the size of the complete ones.
func readJournal(dir string) (entries []entry, size int64, err error) {
	text, err := os.ReadFile(journalIn(dir))
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	for line := range bytes.Lines(text) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, 0, err
		}
		entries = append(entries, e)
	}
	return entries, int64(len(text)), err
}
