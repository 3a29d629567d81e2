// SPDX-License-Identifier: MIT

package memengine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable/internal/valid"
)

// A Tx simulates a user's own transaction, such as that of a program that adds a task together with its own rows. Its
// writes become visible at Commit. Until Commit or Rollback, it locks the keys that it writes: commits wait for it, and
// tasks with these keys cannot be claimed or confirmed.
type Tx struct {
	e      *Engine
	keys   map[string]*engine.Stored // the locked keys, and their tasks as seen by the transaction
	writes engine.Batch
	done   chan struct{} // closed when the transaction ends
}

var errTxDone = errors.New("memengine: the transaction has ended: committed, rolled back, or by a restart")

// Begin begins a transaction.
func (e *Engine) Begin() *Tx {
	return &Tx{e: e, keys: make(map[string]*engine.Stored), done: make(chan struct{})}
}

// Write adds the writes to the transaction if all their conditions hold. Otherwise, it adds none and returns the keys
// whose conditions do not hold. In both cases, it locks the keys. If another transaction has locked a key, Write waits
// for that transaction to end, or for ctx to be done. Write ignores Hold.
func (tx *Tx) Write(ctx context.Context, writes ...engine.Write) (unmet []string, err error) {
	if err := valid.Batches([]engine.Batch{writes}); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(writes, func(w engine.Write) bool { return w.Note }) {
		return nil, errors.New("memengine: a transaction cannot write notes")
	}
	if err := tx.lock(ctx, writes); err != nil {
		return nil, err
	}
	defer tx.e.mu.Unlock()
	for _, w := range writes {
		if !w.Holds(tx.keys[w.Key]) {
			unmet = append(unmet, w.Key)
		}
	}
	if unmet != nil {
		return unmet, nil
	}
	for _, w := range writes {
		w.Hold = false
		if w.Data = slices.Clone(w.Data); w.Data == nil {
			tx.keys[w.Key] = nil
		} else {
			tx.keys[w.Key] = &engine.Stored{Record: w.Record, Kind: w.Kind, Group: w.Group}
		}
		tx.writes = append(tx.writes, w)
	}
	return nil, nil
}

// Lock locks the keys as Write does. A key need not have a task.
func (tx *Tx) Lock(ctx context.Context, keys ...string) error {
	batch := make(engine.Batch, len(keys))
	for i, key := range keys {
		batch[i].Key = key
	}
	if err := tx.lock(ctx, batch); err != nil {
		return err
	}
	tx.e.mu.Unlock()
	return nil
}

// lock locks the keys of the batch, and leaves the engine locked.
func (tx *Tx) lock(ctx context.Context, batch engine.Batch) error {
	if err := tx.e.lock(ctx); err != nil {
		return err
	}
	err := tx.e.awaitLocks(ctx, tx, batch)
	if err == nil && tx.keys == nil {
		err = errTxDone
	}
	if err != nil {
		tx.e.mu.Unlock()
		return err
	}
	for _, w := range batch {
		if tx.e.locks[w.Key] == nil {
			tx.e.locks[w.Key] = tx
			tx.keys[w.Key] = tx.e.tasks[w.Key]
		}
	}
	return nil
}

// awaitLocks waits until no transaction other than own has locked a key of the batch. The engine must be locked.
// awaitLocks unlocks it while it waits.
func (e *Engine) awaitLocks(ctx context.Context, own *Tx, batch engine.Batch) error {
	for {
		i := slices.IndexFunc(batch, func(w engine.Write) bool {
			tx := e.locked(w)
			return tx != nil && tx != own
		})
		if i < 0 {
			return nil
		}
		done := e.locks[batch[i].Key].done
		e.mu.Unlock()
		var err error
		select {
		case <-done:
		case <-ctx.Done():
			err = fmt.Errorf("memengine: key %q is locked: %w", batch[i].Key, ctx.Err())
		}
		e.mu.Lock()
		if err != nil {
			return err
		}
	}
}

// Commit makes all writes visible and ends the transaction. It returns an error if the transaction has already ended.
func (tx *Tx) Commit() error {
	tx.e.mu.Lock()
	defer tx.e.mu.Unlock()
	if tx.keys == nil {
		return errTxDone
	}
	for _, w := range tx.writes {
		tx.e.write(0, w)
	}
	tx.end()
	return nil
}

// Rollback discards the transaction's writes and ends it. If the transaction has already ended, Rollback does nothing.
func (tx *Tx) Rollback() {
	tx.e.mu.Lock()
	defer tx.e.mu.Unlock()
	tx.end()
}

func (tx *Tx) end() {
	if tx.keys == nil {
		return
	}
	for key := range tx.keys {
		delete(tx.e.locks, key)
	}
	tx.keys, tx.writes = nil, nil
	close(tx.done)
}
