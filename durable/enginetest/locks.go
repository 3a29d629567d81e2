// SPDX-License-Identifier: MIT

package enginetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A Locks is an engine whose users have transactions that lock tasks, as in a database. It adds them to an engine of any
// type, for tests. All nodes must use the same Locks, and each node's [Link], if any, is on the Locks. Use [NewLocks] to
// create one.
type Locks struct {
	engine.Engine

	mu    sync.RWMutex            // held by calls that a lock affects; protects the fields below and the fields of each Transaction
	locks map[string]*Transaction // locked keys, and the transaction that has locked each
}

// NewLocks returns an engine with transactions. The given engine must not delay calls, as a Link does.
func NewLocks(on engine.Engine) *Locks {
	return &Locks{Engine: on, locks: make(map[string]*Transaction)}
}

// Count counts as the engine does.
func (l *Locks) Count(ctx context.Context) ([]engine.KindCount, error) {
	return engine.Count(ctx, l.Engine)
}

// Commit waits for locks if there is only one batch.
func (l *Locks) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(batches) == 1 && l.locked(nil, batches[0]) != nil {
		_, arrived, err := l.Engine.Renew(ctx, 0, nil)
		if err != nil {
			return nil, err
		}
		if batches[0].IsLate(arrived) {
			return []engine.Result{{Late: arrived}}, nil
		}
		if err := l.await(ctx, l.mu.RLocker(), nil, batches[0]); err != nil {
			return nil, err
		}
		batches = []engine.Batch{slices.Clone(batches[0])}
		for i := range batches[0] {
			batches[0][i].Now = 0 // it has arrived in time
		}
	}
	results := make([]engine.Result, len(batches))
	var free []engine.Batch
	var at []int
	for i, batch := range batches {
		if results[i].Busy = l.locked(nil, batch) != nil; !results[i].Busy {
			free, at = append(free, batch), append(at, i)
		}
	}
	done, err := l.Engine.Commit(ctx, by, free)
	if err != nil {
		return nil, err
	}
	for j, i := range at {
		results[i] = done[j]
	}
	return results, nil
}

// Claim claims again until it meets no lock or has enough other tasks. It then releases the locked ones, whose revisions
// rise.
func (l *Locks) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var free []engine.Stored
	var locked []engine.Claim
	for most, met := r.Most, false; ; met = false {
		got, err := l.Engine.Claim(ctx, r)
		if err != nil {
			return engine.Claims{}, err
		}
		for _, s := range got.Tasks {
			if l.locks[s.Key] == nil {
				free = append(free, s)
			} else {
				locked, met = append(locked, claimOf(s)), true
			}
		}
		if r.Most = most - len(free); met && r.Most > 0 {
			continue
		}
		if len(locked) > 0 {
			err = l.Engine.Release(ctx, r.By, locked)
		}
		got.Tasks = free
		return got, err
	}
}

func (l *Locks) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration) ([]bool, int64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	confirmed, now, err := l.Engine.Confirm(ctx, by, l.free(claims), within)
	if err != nil {
		return nil, 0, err
	}
	held := make([]bool, len(claims))
	for i, c := range claims {
		if l.locks[c.Key] == nil {
			held[i], confirmed = confirmed[0], confirmed[1:]
		}
	}
	return held, now, nil
}

func (l *Locks) Release(ctx context.Context, by engine.MemberID, claims []engine.Claim) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.Engine.Release(ctx, by, l.free(claims))
}

// free returns the claims of tasks that are not locked.
func (l *Locks) free(claims []engine.Claim) []engine.Claim {
	return slices.DeleteFunc(slices.Clone(claims), func(c engine.Claim) bool { return l.locks[c.Key] != nil })
}

// locked returns a transaction other than own that has locked a key of the batch, or nil.
func (l *Locks) locked(own *Transaction, batch engine.Batch) *Transaction {
	for _, w := range batch {
		if tx := l.locks[w.Key]; tx != nil && tx != own && !w.Note {
			return tx
		}
	}
	return nil
}

// await waits until no transaction other than own has locked a key of the batch. It unlocks mu, which must be locked,
// while it waits.
func (l *Locks) await(ctx context.Context, mu sync.Locker, own *Transaction, batch engine.Batch) (err error) {
	for tx := l.locked(own, batch); tx != nil && err == nil; tx = l.locked(own, batch) {
		mu.Unlock()
		select {
		case <-tx.done:
		case <-ctx.Done():
			err = fmt.Errorf("enginetest: a key is locked: %w", ctx.Err())
		}
		mu.Lock()
	}
	return err
}

// RollBack rolls back all transactions, as a restart of an engine does.
func (l *Locks) RollBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, tx := range l.locks {
		tx.end()
	}
}

// A Transaction is a [Tx], such as that of a program that adds a task together with its own rows. Until it ends, it
// locks the keys that it writes: commits wait for it, and tasks with these keys cannot be claimed or confirmed.
type Transaction struct {
	l      *Locks
	keys   map[string]*engine.Stored // the locked keys, and their tasks as the transaction sees them; nil once it has ended
	writes map[string]engine.Write
	done   chan struct{} // closed at the end
}

// Begin begins a transaction.
func (l *Locks) Begin() *Transaction {
	return &Transaction{l: l, keys: make(map[string]*engine.Stored), writes: make(map[string]engine.Write), done: make(chan struct{})}
}

var errEnded = errors.New("enginetest: the transaction has ended: committed, or rolled back")

// Write adds the writes of tasks to the transaction if all their conditions hold. Otherwise, it adds none and returns
// the keys whose conditions do not hold. In both cases, it locks the keys. If another transaction has locked a key,
// Write waits until that one ends or ctx is done. Write ignores Hold.
func (tx *Transaction) Write(ctx context.Context, writes ...engine.Write) (unmet []string, err error) {
	tx.l.mu.Lock()
	defer tx.l.mu.Unlock()
	if err := tx.lock(ctx, writes); err != nil {
		return nil, err
	}
	for _, w := range writes {
		if !w.Holds(tx.keys[w.Key]) {
			unmet = append(unmet, w.Key)
		}
	}
	if unmet != nil {
		return unmet, nil
	}
	for _, w := range writes {
		w.Data = slices.Clone(w.Data)
		tx.keys[w.Key] = nil
		if w.Data != nil {
			tx.keys[w.Key] = &engine.Stored{Record: w.Record, Kind: w.Kind, Group: w.Group}
		}
		w.If, w.Now, w.Hold = engine.Always, 0, false // nothing else changes it until the commit
		tx.writes[w.Key] = w
	}
	return nil, nil
}

// Lock locks the keys as Write does. A key need not have a task.
func (tx *Transaction) Lock(ctx context.Context, keys ...string) error {
	batch := make(engine.Batch, len(keys))
	for i, key := range keys {
		batch[i].Key = key
	}
	tx.l.mu.Lock()
	defer tx.l.mu.Unlock()
	return tx.lock(ctx, batch)
}

func (tx *Transaction) lock(ctx context.Context, batch engine.Batch) error {
	if err := tx.l.await(ctx, &tx.l.mu, tx, batch); err != nil {
		return err
	}
	if tx.keys == nil {
		return errEnded
	}
	for _, w := range batch {
		if tx.l.locks[w.Key] == tx {
			continue
		}
		found, err := tx.l.Get(ctx, w.Key)
		if err != nil {
			return err
		}
		tx.l.locks[w.Key], tx.keys[w.Key] = tx, nil
		if len(found) > 0 {
			tx.keys[w.Key] = &found[0]
		}
	}
	return nil
}

// Commit makes all writes visible and ends the transaction. It first waits as long as runs of the tasks may begin. It returns
// an error if the transaction has already ended.
func (tx *Transaction) Commit() error {
	tx.l.mu.Lock()
	defer tx.l.mu.Unlock()
	defer tx.end()
	for tx.keys != nil {
		results, err := tx.l.Engine.Commit(context.Background(), 0, []engine.Batch{slices.Collect(maps.Values(tx.writes))})
		if err != nil || results[0].Wait == 0 {
			return err
		}
		tx.l.mu.Unlock()
		time.Sleep(results[0].Wait)
		tx.l.mu.Lock()
	}
	return errEnded
}

// Rollback discards the transaction's writes and ends it. If the transaction has already ended, Rollback does nothing.
func (tx *Transaction) Rollback() {
	tx.l.mu.Lock()
	defer tx.l.mu.Unlock()
	tx.end()
}

func (tx *Transaction) end() {
	if tx.keys == nil {
		return
	}
	for key := range tx.keys {
		delete(tx.l.locks, key)
	}
	tx.keys, tx.writes = nil, nil
	close(tx.done)
}
