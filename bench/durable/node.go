// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"path/filepath"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
)

// openNode opens a node on an exclusive engine on Pebble, as a scheduler on a store would be if it were a node. It
// lacks the store's protection against damage.
func openNode(dir string, opts ...durable.Option) (*durable.Scheduler, *counter, error) {
	o := &pebble.Options{MemTableSize: 32 << 20, FormatMajorVersion: pebble.FormatNewest, MaxOpenFiles: 256, Logger: silent{}}
	o.Cache = pebble.NewCache(32 << 20)
	defer o.Cache.Unref()
	o.EnsureDefaults()
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	db, err := pebble.Open(filepath.Join(dir, "tasks"), o)
	if err != nil {
		return nil, nil, err
	}
	e, err := kv.New(ctx, plain{db})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return counted(durable.Join(ctx, e, opts...)) // the process ends with it
}

// plain is Pebble as a KV for a single process. An exclusive engine needs no versions.
type plain struct{ *pebble.DB }

func (plain) Exclusive() {}

func (p plain) Get(_ context.Context, keys ...string) (found []engine.Entry, err error) {
	for _, key := range keys {
		value, closer, err := p.DB.Get([]byte(key))
		if errors.Is(err, pebble.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, engine.Entry{Key: key, Value: bytes.Clone(value), Version: 1})
		if err := closer.Close(); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (p plain) Scan(_ context.Context, from, to string) iter.Seq2[engine.Entry, error] {
	return func(yield func(engine.Entry, error) bool) {
		it, err := p.NewIter(&pebble.IterOptions{LowerBound: []byte(from), UpperBound: []byte(to)})
		if err != nil {
			yield(engine.Entry{}, err)
			return
		}
		defer func() { _ = it.Close() }()
		for it.First(); it.Valid(); it.Next() {
			if !yield(engine.Entry{Key: string(it.Key()), Value: bytes.Clone(it.Value()), Version: 1}, nil) {
				return
			}
		}
		if err := it.Error(); err != nil {
			yield(engine.Entry{}, err)
		}
	}
}

// Commit writes all Txs in one synced batch. They have no checks.
func (p plain) Commit(_ context.Context, txs ...engine.Tx) (done []bool, err error) {
	b := p.NewBatch()
	for _, tx := range txs {
		for i := range tx.Put {
			tx.Put[i].Version = 1
			err = errors.Join(err, b.Set([]byte(tx.Put[i].Key), tx.Put[i].Value, nil))
		}
		for _, key := range tx.Delete {
			err = errors.Join(err, b.Delete([]byte(key), nil))
		}
		done = append(done, true)
	}
	return done, errors.Join(err, b.Commit(pebble.Sync), b.Close())
}

func (plain) Limits() engine.Limits { return engine.Limits{} }
