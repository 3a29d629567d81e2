// SPDX-License-Identifier: MIT

package pebble_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
)

func backupOf(t *testing.T, s *subject) *bytes.Buffer {
	t.Helper()
	var copy bytes.Buffer
	must(t, s.Backup(ctx, &copy))
	return &copy
}

func openCopy(t *testing.T, copy io.Reader) (*subject, error) {
	dir := t.TempDir()
	if err := unpack(dir, copy); err != nil {
		return nil, err
	}
	return openIn(dir)
}

// wantState fails the test unless the open store has the contents after the given commit of the history.
func wantState(t *testing.T, what string, s *subject, h *history, commits int64) {
	t.Helper()
	if all, err := readAll(s); err != nil || !h.is(all, commits) {
		t.Errorf("%s has %d tasks, %v, want %d", what, len(all), err, len(h.states[commits]))
	}
}

// A backup is a store with the same contents, and does not change the store. A copy can be changed and backed up
// itself.
func TestBackup_isAStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := openIn(dir)
	must(t, err)
	h := newHistory(3)
	for _, commits := range []int{0, 100} {
		must(t, h.commit(s, commits))
		c, err := openCopy(t, backupOf(t, s))
		must(t, err)
		wantState(t, "the copy", c, h, h.made.Load())
		must(t, c.Commit([]change{{Key: "only in the copy", From: engine.None, Due: 1}}))
		second := backupOf(t, c)
		must(t, c.Close())
		c, err = openCopy(t, second)
		must(t, err)
		if _, ok, err := c.Get("only in the copy"); err != nil || !ok || c.Len() != len(h.states[h.made.Load()])+1 {
			t.Errorf("the copy of the copy has %d tasks: %v, %v", c.Len(), ok, err)
		}
		must(t, c.Close())
		wantState(t, "the store", s, h, h.made.Load())
	}
	must(t, h.commit(s, 1))
	must(t, s.Close())
	s, err = openIn(dir)
	must(t, err)
	wantState(t, "the store", s, h, 101)
	must(t, s.Close())
}

// A copy has the contents after one of the commits. The earliest possible is the last one that had returned before the
// backup began. The latest possible is the last one that had begun before the backup ended.
func TestBackup_besideCommits_isOfOneMoment(t *testing.T) {
	const commits, backups = 3000, 5
	s, err := openIn(filepath.Join(t.TempDir(), "store"))
	must(t, err)
	h := newHistory(4)
	var all [][]change
	for n := range commits {
		from := int64(n) - 1
		if n == 0 {
			from = engine.None
		}
		number := change{Key: "number", From: from, Due: int64(n)}
		all = append(all, append(h.next(), number))
	}
	var begun, returned atomic.Int64
	committed := make(chan error, 1)
	go func() {
		for _, changes := range all {
			begun.Add(1)
			if err := s.Commit(changes); err != nil {
				committed <- err
				return
			}
			returned.Add(1)
		}
		committed <- nil
	}()
	for range backups {
		from := returned.Load()
		copy := backupOf(t, s)
		to := begun.Load()
		c, err := openCopy(t, copy)
		must(t, err)
		tasks, err := readAll(c)
		must(t, err)
		is := int64(0)
		if number, ok := tasks["number"]; ok {
			is = number.Due + 1
		}
		if is < from || is > to {
			t.Errorf("the copy is of the time after commit %d, and the backup was made from %d to %d", is, from, to)
		}
		if delete(tasks, "number"); !h.is(tasks, is) {
			t.Errorf("the copy of the time after commit %d has other tasks", is)
		}
		must(t, c.Close())
	}
	must(t, <-committed)
	must(t, s.Close())
}

// A truncated copy does not open, wherever it was cut off, unless it still has all tasks.
func TestBackup_cutOff_isNoStore(t *testing.T) {
	s, err := openIn(filepath.Join(t.TempDir(), "store"))
	must(t, err)
	h := newHistory(5)
	must(t, h.commit(s, 20))
	whole := backupOf(t, s).Bytes()
	must(t, s.Close())
	rnd := rand.New(rand.NewPCG(4, 4))
	for range 40 {
		part := whole[:rnd.IntN(len(whole))]
		dir := t.TempDir()
		_ = unpack(dir, bytes.NewReader(part))
		if names, err := os.ReadDir(dir); err != nil || len(names) == 0 {
			continue // in an empty directory Open makes a new store
		}
		if c, err := openIn(dir); err == nil {
			wantState(t, fmt.Sprintf("a copy of %d of %d bytes", len(part), len(whole)), c, h, 20)
			must(t, c.Close())
		}
	}
}

func TestBackup_contextDone_writesNothing(t *testing.T) {
	s, err := openIn(filepath.Join(t.TempDir(), "store"))
	must(t, err)
	done, cancel := context.WithCancel(ctx)
	cancel()
	var copy bytes.Buffer
	if err := s.Backup(done, &copy); !errors.Is(err, context.Canceled) || copy.Len() > 0 {
		t.Errorf("it wrote %d bytes, and returned %v", copy.Len(), err)
	}
	must(t, s.Close())
}

// A small is a writer that accepts a limited number of bytes.
type small struct{ room int }

func (w *small) Write(b []byte) (int, error) {
	if len(b) > w.room {
		return 0, errFail
	}
	w.room -= len(b)
	return len(b), nil
}

func TestBackup_writerFails_returnsItsError(t *testing.T) {
	s, err := openIn(filepath.Join(t.TempDir(), "store"))
	must(t, err)
	h := newHistory(6)
	must(t, h.commit(s, 10))
	for _, room := range []int{0, 512, 2048} {
		if err := s.Backup(ctx, &small{room}); !errors.Is(err, errFail) {
			t.Errorf("with room for %d bytes it returns %v", room, err)
		}
	}
	c, err := openCopy(t, backupOf(t, s)) // the next copy is complete
	must(t, err)
	wantState(t, "the next copy", c, h, 10)
	must(t, c.Close())
	must(t, s.Close())
}

// A backup includes pauses: paused tasks that are restored from it do not run.
func TestBackup_hasWhatIsPaused(t *testing.T) {
	open := func(dir string) *durable.Scheduler {
		t.Helper()
		s, err := newScheduler(dir)
		must(t, err)
		must(t, s.Handle("k", func(context.Context, durable.Run) error { t.Error("it runs"); return nil }))
		must(t, s.Start())
		return s
	}
	s := open(filepath.Join(t.TempDir(), "store"))
	must(t, s.PauseKind(ctx, "k"))
	must(t, s.AddTask(ctx, durable.Task{Key: "a", Kind: "k", Delay: time.Millisecond}))
	var tape bytes.Buffer
	must(t, s.Backup(ctx, &tape))
	must(t, s.Shutdown(ctx))
	dir := filepath.Join(t.TempDir(), "copy")
	must(t, os.Mkdir(dir, 0o700))
	must(t, unpack(dir, &tape))
	s = open(dir)
	if p, err := s.Paused(ctx); err != nil || !p.Has("k") || p.All {
		t.Errorf("%+v, %v", p, err)
	}
	must(t, s.Shutdown(ctx))
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
	s, err := openIn(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Commit([]change{{Key: "a", From: engine.None, Due: 1}}); err != nil {
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
		store, err := openIn(dir)
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
	s, err := openIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Commit([]change{{Key: "a", From: engine.None, Due: 1}}), s.Close()); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "BACKUP")
	err = errors.Join(os.Mkdir(left, 0o700), os.WriteFile(filepath.Join(left, "000004.sst"), []byte("x"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if s, err = openIn(dir); err != nil {
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
	s, err := openIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	put := func(round int) {
		var all []change
		for i := range 64 {
			from := int64(engine.None)
			if round > 0 {
				from = int64(round - 1)
			}
			all = append(all, change{Key: fmt.Sprint(i), From: from, Due: int64(round), Data: data})
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
		c, err := openIn(to)
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
		if s, err = openIn(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
