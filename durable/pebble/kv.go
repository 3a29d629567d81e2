// SPDX-License-Identifier: MIT

package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A kv is an [engine.KV] that stores its entries in a directory. It is also an [engine.Exclusive], an [engine.Verifier],
// an [engine.FailureReporter], an [engine.Backuper], an [engine.SizeReporter], an [engine.SpaceReporter] and an
// [io.Closer]. It supports no checks, and its entries have no versions.
//
// The directory is guarded as that of a [Store]. The Engine on the kv keeps the summary of the tasks, and its load takes
// the place of a walk over [Store.Keys].
type kv struct {
	store Store // used without its rows
}

// openKV opens the kv in a directory. It returns the same errors as [Open].
func openKV(dir string, files vfs.FS, memTable uint64) (*kv, error) {
	k := &kv{store: Store{dir: dir, format: formatKV, batches: make(chan *pebble.Batch), results: make(chan error, 1)}}
	if err := k.store.start(files, memTable); err != nil {
		return nil, err
	}
	return k, nil
}

// Exclusive implements [engine.Exclusive].
func (k *kv) Exclusive() {}

// VerifyFirst implements [engine.Verifier]. Files are deleted only after the tasks have been verified, so a process that
// repeatedly ends before that would otherwise fill the directory.
func (k *kv) VerifyFirst() bool { return k.store.littered }

// Verified implements [engine.Verifier]. The files that Pebble has removed may be deleted.
func (k *kv) Verified() { k.store.guard.check() }

// Limits implements engine.KV, as do the methods below. There are no limits.
func (k *kv) Limits() engine.Limits { return engine.Limits{} }

func (k *kv) Get(ctx context.Context, keys ...string) (found []engine.Entry, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, key := range keys {
		value, closer, err := k.store.db.Get([]byte(key))
		if errors.Is(err, pebble.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, k.store.check(err)
		}
		found = append(found, engine.Entry{Key: key, Value: slices.Clone(value)})
		if err := closer.Close(); err != nil {
			return nil, k.store.check(err)
		}
	}
	return found, nil
}

// checkEvery is the number of entries after which a scan looks whether its context is done.
const checkEvery = 128

func (k *kv) Scan(ctx context.Context, from, to string) iter.Seq2[engine.Entry, error] {
	return func(yield func(engine.Entry, error) bool) {
		if from >= to && ctx.Err() == nil {
			return
		}
		n := 0
		bounds := &pebble.IterOptions{LowerBound: []byte(from), UpperBound: []byte(to)}
		err := ctx.Err()
		if err == nil {
			err = walk(k.store.db, bounds, func(key, value []byte) (more bool, err error) {
				if n++; n%checkEvery == 0 && ctx.Err() != nil {
					return false, ctx.Err()
				}
				return yield(engine.Entry{Key: string(key), Value: append([]byte{}, value...)}, nil), nil
			})
		}
		if err = k.store.check(err); err != nil {
			yield(engine.Entry{}, err)
		}
	}
}

// Commit applies all Txs in one batch, and syncs them to the disk. See engine.KV.
func (k *kv) Commit(ctx context.Context, txs ...engine.Tx) (done []bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("durable/pebble: %w: %w", engine.ErrNotDone, err)
	}
	size := 0
	for _, tx := range txs {
		if len(tx.If) > 0 {
			return nil, fmt.Errorf("durable/pebble: %w: a transaction has checks", engine.ErrNotDone)
		}
		for _, e := range tx.Put {
			size += 32 + len(e.Key) + len(e.Value)
		}
		for _, key := range tx.Delete {
			size += 32 + len(key)
		}
	}
	k.store.mu.Lock()
	defer k.store.mu.Unlock()
	if err := k.store.usableLocked(); err != nil {
		return nil, err
	}
	b := k.store.db.NewBatchWithSize(size)
	for _, tx := range txs {
		for _, e := range tx.Put {
			err = errors.Join(err, b.Set([]byte(e.Key), e.Value, nil))
		}
		for _, key := range tx.Delete {
			err = errors.Join(err, b.Delete([]byte(key), nil))
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("durable/pebble: %w: %w", engine.ErrNotDone, err), b.Close())
	}
	if err := k.store.syncLocked(b); err != nil {
		return nil, err
	}
	return slices.Repeat([]bool{true}, len(txs)), nil
}

// Failed implements [engine.FailureReporter], as does Err.
func (k *kv) Failed() <-chan struct{} { return k.store.Failed() }
func (k *kv) Err() error              { return k.store.Err() }

// Backup implements [engine.Backuper].
func (k *kv) Backup(ctx context.Context, w io.Writer) error { return k.store.Backup(ctx, w) }

// Size implements [engine.SizeReporter].
func (k *kv) Size() int64 { return k.store.Size() }

// Space implements [engine.SpaceReporter].
func (k *kv) Space() (free, size int64) { return k.store.Space() }

// Close implements [io.Closer].
func (k *kv) Close() error { return k.store.Close() }
