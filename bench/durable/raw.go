// SPDX-License-Identifier: MIT

package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sys/unix"
)

// diskAddOne appends records to a file, one at a time, each synced.
func diskAddOne(size sizes, dir string) (map[string]float64, error) {
	f, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if err := f.Truncate(64 << 20); err != nil { // like a reused log, whose length does not change
		return nil, err
	}
	n, began := 0, time.Now()
	for ; time.Since(began) < size.duration; n++ {
		if _, err := f.Write(payload); err != nil {
			return nil, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return nil, err
		}
	}
	return map[string]float64{"ops": perSecond(n, time.Since(began))}, nil
}

// openRaw opens Pebble with the same amount of memory as the scheduler's engine.
func openRaw(dir string) (*pebble.DB, error) {
	cache := pebble.NewCache(32 << 20)
	defer cache.Unref()
	return pebble.Open(filepath.Join(dir, "raw"), &pebble.Options{
		Cache: cache, MemTableSize: 32 << 20, FormatMajorVersion: pebble.FormatNewest, Logger: silent{},
	})
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) { os.Exit(4) }

func pebbleAddOne(size sizes, dir string) (map[string]float64, error) {
	db, err := openRaw(dir)
	if err != nil {
		return nil, err
	}
	n, began := 0, time.Now()
	for ; time.Since(began) < size.duration; n++ {
		if err := db.Set([]byte(key(n)), payload, pebble.Sync); err != nil {
			return nil, err
		}
	}
	return map[string]float64{"ops": perSecond(n, time.Since(began))}, db.Close()
}

func pebbleAddMany(size sizes, dir string) (map[string]float64, error) {
	return rawWithLive(size, dir, func(db *pebble.DB) (float64, error) {
		return together(callers, size.adds, func(i int) error { return rawBatch(db, size.live+i, 1) })
	})
}

func pebbleAddBatch(size sizes, dir string) (map[string]float64, error) {
	return rawWithLive(size, dir, func(db *pebble.DB) (float64, error) {
		ops, err := together(batchers, size.adds/batch, func(i int) error {
			return rawBatch(db, size.live+i*batch, batch)
		})
		return ops * batch, err
	})
}

// rawBatch inserts n records in one synced commit: as many bytes as the scheduler's engine writes for them, in two
// rows each, but without checking whether they exist.
func rawBatch(db *pebble.DB, from, n int) error {
	b := db.NewBatch()
	defer func() { _ = b.Close() }()
	for i := from; i < from+n; i++ {
		due := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Add(far(i)).UnixNano()))
		if err := b.Set([]byte("t"+key(i)), head, nil); err != nil {
			return err
		}
		if err := b.Set(append(append([]byte("fk\x00\x01\x00"), due...), key(i)...), data, nil); err != nil {
			return err
		}
	}
	return b.Commit(pebble.Sync)
}

// The values of a task's rows are as long as these: head has what the engine needs of it, and data the whole task.
var (
	head = make([]byte, 23)
	data = make([]byte, recordLen+51)
)

func rawWithLive(size sizes, dir string, measure func(db *pebble.DB) (float64, error)) (map[string]float64, error) {
	db, err := openRaw(dir)
	if err != nil {
		return nil, err
	}
	for i := 0; i < size.live; i += batch {
		if err := rawBatch(db, i, batch); err != nil {
			return nil, err
		}
	}
	ops, err := measure(db)
	if err != nil {
		return nil, err
	}
	return map[string]float64{"ops": ops}, db.Close()
}
