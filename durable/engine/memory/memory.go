// SPDX-License-Identifier: MIT

// Package memory keeps tasks in memory, for tests. Its contents do not outlive the process. It uses time.Now as its
// clock, so it works inside a testing/synctest bubble. Package enginetest simulates failures and users' transactions.
package memory

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/google/btree"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
)

// A KV is an in-memory engine.KV with a clock. Use [New] to create one.
type KV struct {
	limits engine.Limits

	mu      sync.RWMutex // protects below
	entries *btree.BTreeG[engine.Entry]
	version int64
	offset  time.Duration // offset of the clock from time.Now
	up      int64         // time of the last Restart, by the KV's clock; 0 if there was none
	fault   error         // returned by every Commit; nil if commits succeed
}

// New returns an empty KV without limits.
func New() *KV { return Limited(engine.Limits{}) }

// Limited returns an empty KV with the given limits.
func Limited(l engine.Limits) *KV {
	return &KV{limits: l, entries: btree.NewG(32, func(a, b engine.Entry) bool { return a.Key < b.Key })}
}

// Clone returns an independent KV with everything that has been committed so far. A program that uses it behaves as
// after a crash.
func (k *KV) Clone() *KV {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &KV{limits: k.limits, entries: k.entries.Clone(), version: k.version, offset: k.offset, up: k.up}
}

// SetFault makes every later Commit return err and change nothing, as on a full disk. A nil err ends that. Unless err
// wraps [engine.ErrNotDone], it fails an exclusive engine for good.
func (k *KV) SetFault(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fault = err
}

// Engine returns an engine on the KV for one scheduler.
func (k *KV) Engine() engine.Owned { return on(Exclusive(k)).(engine.Owned) }

// Shared returns an engine on the KV for several schedulers in this process, as the nodes of a cluster share a database.
// Schedulers may also use different engines that Shared returns.
func (k *KV) Shared() engine.Engine { return on(k) }

func on(k engine.KV) engine.Engine {
	e, err := kv.New(context.Background(), k)
	if err != nil {
		panic(err) // a KV in memory returns no error
	}
	return e
}

// Exclusive returns the KV as an [engine.Exclusive].
func Exclusive(kv *KV) engine.KV { return exclusive{kv} }

type exclusive struct{ *KV }

func (exclusive) Exclusive() {}

// NoClock returns the KV without its [engine.Clock].
func NoClock(kv *KV) engine.KV { return struct{ engine.KV }{kv} }

// Get implements engine.KV, as do the other methods of that interface.
func (k *KV) Get(ctx context.Context, keys ...string) (found []engine.Entry, err error) {
	if err := failed(ctx); err != nil {
		return nil, err
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, key := range keys {
		if e, ok := k.entries.Get(engine.Entry{Key: key}); ok {
			found = append(found, own(e))
		}
	}
	return found, nil
}

// page is the number of entries that Scan reads atomically.
const page = 128

// Scan reads one page at a time, so later pages may show a later state.
func (k *KV) Scan(ctx context.Context, from, to string) iter.Seq2[engine.Entry, error] {
	return func(yield func(engine.Entry, error) bool) {
		for from := from; ; {
			if err := failed(ctx); err != nil {
				yield(engine.Entry{}, err)
				return
			}
			some := k.read(from, to)
			for _, e := range some {
				if !yield(own(e), nil) {
					return
				}
			}
			if len(some) < page {
				return
			}
			from = some[page-1].Key + "\x00"
		}
	}
}

// read returns the first page of the entries with from <= Key < to. Their values must not be modified.
func (k *KV) read(from, to string) (some []engine.Entry) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	k.entries.AscendRange(engine.Entry{Key: from}, engine.Entry{Key: to}, func(e engine.Entry) bool {
		some = append(some, e)
		return len(some) < page
	})
	return some
}

// own returns a copy of e whose Value may be modified.
func own(e engine.Entry) engine.Entry {
	e.Value = bytes.Clone(e.Value)
	return e
}

func (k *KV) Commit(ctx context.Context, txs ...engine.Tx) (done []bool, err error) {
	if err := failed(ctx); err != nil {
		return nil, err
	}
	for _, tx := range txs {
		if err := k.fits(tx); err != nil {
			return nil, err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fault != nil {
		return nil, k.fault
	}
	done = make([]bool, len(txs))
	for i, tx := range txs {
		if done[i] = k.holds(tx.If); done[i] {
			k.do(tx)
		}
	}
	return done, nil
}

func (k *KV) holds(checks []engine.Check) bool {
	for _, c := range checks {
		if e, _ := k.entries.Get(engine.Entry{Key: c.Key}); e.Version != c.Version {
			return false
		}
	}
	return true
}

// do applies the Tx. All its entries get the same version.
func (k *KV) do(tx engine.Tx) {
	k.version++
	for i := range tx.Put {
		e := &tx.Put[i]
		e.Version = k.version
		kept := own(*e)
		if kept.Value == nil {
			kept.Value = []byte{}
		}
		k.entries.ReplaceOrInsert(kept)
	}
	for _, key := range tx.Delete {
		k.entries.Delete(engine.Entry{Key: key})
	}
}

// fits returns an error if the Tx exceeds the limits.
func (k *KV) fits(tx engine.Tx) error {
	bytes := 0
	for _, e := range tx.Put {
		if l := k.limits.Value; l > 0 && len(e.Value) > l {
			return fmt.Errorf("%w: value of %d bytes; %d are allowed", engine.ErrTooLarge, len(e.Value), l)
		}
		bytes += len(e.Key) + len(e.Value)
	}
	for _, key := range tx.Delete {
		bytes += len(key)
	}
	for _, c := range tx.If {
		bytes += len(c.Key)
	}
	n := len(tx.If) + len(tx.Put) + len(tx.Delete)
	if l := k.limits.Operations; l > 0 && n > l {
		return fmt.Errorf("%w: %d operations; %d are allowed", engine.ErrTooLarge, n, l)
	}
	if l := k.limits.Bytes; l > 0 && bytes > l {
		return fmt.Errorf("%w: transaction of %d bytes; %d are allowed", engine.ErrTooLarge, bytes, l)
	}
	return nil
}

func (k *KV) Limits() engine.Limits { return k.limits }

// Now implements [engine.Clock].
func (k *KV) Now(ctx context.Context) (now, up int64, err error) {
	if err := failed(ctx); err != nil {
		return 0, 0, err
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.now(), k.up, nil
}

func (k *KV) now() int64 { return time.Now().Add(k.offset).UnixNano() }

// Step moves the clock forward by d, or back if d is negative.
func (k *KV) Step(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.offset += d
}

// Restart simulates an interruption that has just ended. Committed entries are preserved.
func (k *KV) Restart() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.up = k.now()
}

// failed returns an error if ctx is done.
func failed(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory: %w: %w", engine.ErrNotDone, err)
	}
	return nil
}
