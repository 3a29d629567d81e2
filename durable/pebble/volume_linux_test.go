// SPDX-License-Identifier: MIT

package pebble_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// rewrite replaces the tasks of a few keys again and again, so that much data is written and little is kept.
func rewrite(s engine.Store, from, to int) error {
	const keys = 500
	data := make([]byte, 2000)
	for i := from; i < to; i++ {
		for j := range data {
			data[j] = byte(i * j >> 3) // data that does not compress to nothing
		}
		c := engine.Change{Key: fmt.Sprint("key", i%keys), From: int64(i - keys), Due: int64(i), Data: data}
		if i < keys {
			c.From = engine.None
		}
		if err := s.Commit([]engine.Change{c}); err != nil {
			return err
		}
	}
	return nil
}

// Several times its size is written to a volume of 120 MB.
func TestPebble_smallVolume_isEnough(t *testing.T) {
	dir := filepath.Join(testkit.SmallVolume(t, 120), "store")
	s, err := pebble.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Keys() { // which checks the store
		t.Fatal(err)
	}
	writes := 200_000
	if testing.Short() {
		writes = 20_000
	}
	if err := rewrite(s, 0, writes); err != nil {
		t.Fatal(err)
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		t.Fatal(err)
	}
	if used := (disk.Blocks - disk.Bfree) * uint64(disk.Bsize); used > 60<<20 {
		t.Errorf("500 tasks of 2 KB take %d MB", used>>20)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Something else fills up the volume: the store reports it, and has everything when there is room again.
func TestPebble_volumeThatFillsUp_isToldAndLosesNothing(t *testing.T) {
	for free := range 6 { // remaining megabytes, so that it becomes full at different moments
		volume := testkit.SmallVolume(t, 60)
		dir := filepath.Join(volume, "store")
		s, err := pebble.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := rewrite(s, 0, 2000); err != nil {
			t.Fatal(err)
		}
		filler := testkit.Fill(t, volume, free)
		testkit.Returns(t, "a commit", func() { err = rewrite(s, 2000, 100_000) })
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("with %d MB left: %v", free, err)
		}
		testkit.Returns(t, "Close", func() { _ = s.Close() })
		if _, err := pebble.Open(dir); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("with %d MB left the next open: %v", free, err)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if s, err = pebble.Open(dir); err != nil {
			t.Fatal(err)
		}
		if all, err := readAll(s); err != nil || len(all) != 500 {
			t.Errorf("there are %d records, %v", len(all), err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
