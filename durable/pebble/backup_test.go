// SPDX-License-Identifier: MIT

package pebble_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/durable/storetest"
)

func TestBackup_keepsTheContract(t *testing.T) {
	storetest.TestBackup(t, func(t *testing.T) storetest.Open {
		dir := filepath.Join(t.TempDir(), "store")
		return func() (engine.Store, error) { return pebble.Open(dir) }
	}, func(t *testing.T, copy io.Reader) storetest.Open {
		dir := t.TempDir()
		err := unpack(dir, copy)
		return func() (engine.Store, error) {
			if err != nil {
				return nil, err
			}
			return pebble.Open(dir)
		}
	})
}

// unpack works like tar, even with the beginning of a truncated archive.
func unpack(dir string, from io.Reader) error {
	for in := tar.NewReader(from); ; {
		head, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		file, err := os.OpenFile(filepath.Join(dir, head.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, in)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
}

// Complete files are not a store if some are missing: the file that makes them a store is the last.
func TestBackup_withoutItsLastFile_isNoStore(t *testing.T) {
	s, err := pebble.Open(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Commit([]engine.Change{{Key: "a", From: engine.None, Due: 1}}); err != nil {
		t.Fatal(err)
	}
	var copy bytes.Buffer
	if err := s.Backup(ctx, &copy); err != nil {
		t.Fatal(err)
	}
	var names []string
	for in := tar.NewReader(bytes.NewReader(copy.Bytes())); ; {
		head, err := in.Next()
		if err != nil {
			break
		}
		names = append(names, head.Name)
	}
	for i, name := range names {
		dir := t.TempDir()
		if err := unpack(dir, bytes.NewReader(copy.Bytes())); err != nil {
			t.Fatal(err)
		}
		for _, missing := range names[i:] {
			if err := os.Remove(filepath.Join(dir, missing)); err != nil {
				t.Fatal(err)
			}
		}
		store, err := pebble.Open(dir)
		if err == nil && store.Len() != 0 || err == nil && i > 0 {
			t.Errorf("without %s and what follows it is a store of %d tasks", name, store.Len())
		}
		if err == nil {
			_ = store.Close()
		}
	}
}

// A process that dies during a backup leaves a directory, which the next open removes.
func TestOpen_afterABackupThatDied_removesItsFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := pebble.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Commit([]engine.Change{{Key: "a", From: engine.None, Due: 1}}), s.Close()); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "BACKUP")
	err = errors.Join(os.Mkdir(left, 0o700), os.WriteFile(filepath.Join(left, "000004.sst"), []byte("x"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if s, err = pebble.Open(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	var copy bytes.Buffer
	if err := s.Backup(ctx, &copy); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("a backup leaves its files: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(ctx, io.Discard); err == nil {
		t.Error("a closed store is backed up")
	}
}

// Pebble continues to remove and compact tables while copies that share them are made.
func TestBackup_whileTablesAreCompacted_takesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := pebble.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	put := func(round int) {
		var all []engine.Change
		for i := range 64 {
			from := int64(engine.None)
			if round > 0 {
				from = int64(round - 1)
			}
			all = append(all, engine.Change{Key: fmt.Sprint(i), From: from, Due: int64(round), Data: data})
		}
		if err := s.Commit(all); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 20 {
		put(round)
		var copy bytes.Buffer
		if err := s.Backup(ctx, &copy); err != nil {
			t.Fatal(err)
		}
		if round%5 != 4 {
			continue
		}
		to := t.TempDir()
		if err := unpack(to, &copy); err != nil {
			t.Fatal(err)
		}
		c, err := pebble.Open(to)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for r, err := range c.Due(engine.Position{Due: engine.None}, 100) {
			if err != nil || r.Due != int64(round) || !bytes.Equal(r.Data, data) {
				t.Fatalf("round %d: %d, %v", round, r.Due, err)
			}
			n++
		}
		if n != 64 {
			t.Errorf("the copy has %d tasks", n)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = pebble.Open(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
