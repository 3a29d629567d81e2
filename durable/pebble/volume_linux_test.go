// SPDX-License-Identifier: MIT

package pebble_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// rewrite replaces the tasks of a few keys again and again, so that much data is written and little is kept.
func rewrite(s *subject, from, to int) error {
	const keys = 500
	data := make([]byte, 2000)
	for i := from; i < to; i++ {
		for j := range data {
			data[j] = byte(i * j >> 3) // data that does not compress to nothing
		}
		c := change{Key: fmt.Sprint("key", i%keys), From: int64(i - keys), Due: int64(i), Data: data}
		if i < keys {
			c.From = engine.None
		}
		if err := s.Commit([]change{c}); err != nil {
			return err
		}
	}
	return nil
}

// addAll adds tasks until a commit fails, and returns how many it has added.
func addAll(s *subject) (added int, err error) {
	rnd := rand.New(rand.NewPCG(1, 1))
	data := make([]byte, 2000)
	for ; added < 100_000; added++ {
		for j := range data {
			data[j] = byte(rnd.Uint32())
		}
		c := change{Key: fmt.Sprint("added", added), From: engine.None, Due: int64(added), Data: data}
		if err := s.Commit([]change{c}); err != nil {
			return added, err
		}
	}
	return added, nil
}

// Several times its size is written to a volume of 120 MB.
func TestPebble_smallVolume_isEnough(t *testing.T) {
	dir := filepath.Join(testkit.SmallVolume(t, 120), "store")
	s, err := openIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Keys() { // until the tasks have been verified
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

// The volume fills up: the store reports it, and has everything when there is room again.
func TestPebble_volumeThatFillsUp_isToldAndLosesNothing(t *testing.T) {
	for free := range 6 { // remaining megabytes, so that it becomes full at different moments
		volume := testkit.SmallVolume(t, 60)
		dir := filepath.Join(volume, "store")
		s, err := openIn(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := rewrite(s, 0, 2000); err != nil {
			t.Fatal(err)
		}
		filler := testkit.Fill(t, volume, free)
		added := 0
		testkit.Returns(t, "a commit", func() { added, err = addAll(s) })
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("with %d MB left, after %d tasks: %v", free, added, err)
		}
		testkit.Returns(t, "Close", func() { _ = s.Close() })
		if _, err := pebble.Open(ctx, dir); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("with %d MB left the next open: %v", free, err)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if s, err = openIn(dir); err != nil {
			t.Fatal(err)
		}
		// The failed commit may be there.
		if all, err := readAll(s); err != nil || len(all) != 500+added && len(all) != 500+added+1 {
			t.Errorf("of %d tasks %d are there, %v", 500+added, len(all), err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
