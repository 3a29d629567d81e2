// SPDX-License-Identifier: MIT

package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/cockroachdb/pebble/v2"
)

// A store is an [engine.KV] that stores its entries in a directory. It is also an [engine.Exclusive], an
// [engine.Verifier], an [engine.FailureReporter], an [engine.Backuper], an [engine.SizeReporter], an
// [engine.SpaceReporter] and an [io.Closer]. It supports no checks, and its entries have no versions.
type store struct {
	db      *pebble.DB
	dir     string
	guard   *guard
	lock    io.Closer
	mark    watermark
	here    func() error // returns an error if the directory has been removed
	batches chan *pebble.Batch
	results chan error

	littered bool // there are many files that may be deleted once all tasks have been verified

	backups sync.Mutex // held during a backup

	mu     sync.Mutex // protects closed; held during a commit
	closed bool
}

// Exclusive implements [engine.Exclusive].
func (s *store) Exclusive() {}

// VerifyFirst implements [engine.Verifier]. Files are deleted only after the tasks have been verified, so a process that
// repeatedly ends before that would otherwise fill the directory.
func (s *store) VerifyFirst() bool { return s.littered }

// Verified implements [engine.Verifier]. The files that Pebble has removed may be deleted.
func (s *store) Verified() { s.guard.check() }

// Limits implements engine.KV, as do the methods below. There are no limits.
func (s *store) Limits() engine.Limits { return engine.Limits{} }

func (s *store) Get(ctx context.Context, keys ...string) (found []engine.Entry, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, key := range keys {
		value, closer, err := s.db.Get([]byte(key))
		if errors.Is(err, pebble.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, s.check(err)
		}
		found = append(found, engine.Entry{Key: key, Value: slices.Clone(value)})
		if err := closer.Close(); err != nil {
			return nil, s.check(err)
		}
	}
	return found, nil
}

// checkEvery is the number of entries after which a scan looks whether its context is done.
const checkEvery = 128

func (s *store) Scan(ctx context.Context, from, to string) iter.Seq2[engine.Entry, error] {
	return func(yield func(engine.Entry, error) bool) {
		if from >= to && ctx.Err() == nil {
			return
		}
		n := 0
		bounds := &pebble.IterOptions{LowerBound: []byte(from), UpperBound: []byte(to)}
		err := ctx.Err()
		if err == nil {
			err = walk(s.db, bounds, func(key, value []byte) (more bool, err error) {
				if n++; n%checkEvery == 0 && ctx.Err() != nil {
					return false, ctx.Err()
				}
				return yield(engine.Entry{Key: string(key), Value: append([]byte{}, value...)}, nil), nil
			})
		}
		if err = s.check(err); err != nil {
			yield(engine.Entry{}, err)
		}
	}
}

// Commit applies all Txs in one batch, and syncs them to the disk. See engine.KV.
func (s *store) Commit(ctx context.Context, txs ...engine.Tx) (done []bool, err error) {
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(); err != nil {
		return nil, err
	}
	b := s.db.NewBatchWithSize(size)
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
	if err := s.syncLocked(b); err != nil {
		return nil, err
	}
	return slices.Repeat([]bool{true}, len(txs)), nil
}
