// SPDX-License-Identifier: MIT

package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// TestBackup tests whether a store satisfies the contract of [engine.Backuper]. It calls fresh for each test, as [Test]
// does. It passes each copy to unpack, which returns a function that opens the copy or, if the copy is incomplete, an
// error.
func TestBackup(t *testing.T, fresh func(t *testing.T) Open, unpack func(t *testing.T, copy io.Reader) Open) {
	for name, test := range map[string]func(t *testing.T, s *subject, unpack func(io.Reader) Open){
		"backup of an empty store":     backupEmpty,
		"backup between commits":       backupBetweenCommits,
		"backup that is cut off":       backupCutOff,
		"backup of a copy":             backupOfCopy,
		"backup whose context is done": backupDone,
		"backup whose writer fails":    backupWriterFails,
	} {
		t.Run(name, func(t *testing.T) {
			s := &subject{t: t, open: fresh(t), model: map[string]engine.Record{}}
			s.reopen()
			test(t, s, func(copy io.Reader) Open { return unpack(t, copy) })
			s.check()
			s.commit(s.put("after the backup", 1, "x"))
			s.reopen() // a backup must not change the store
			s.check()
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

// backup returns a copy of the store.
func (s *subject) backup() *bytes.Buffer {
	s.t.Helper()
	var b bytes.Buffer
	if err := s.Store.(engine.Backuper).Backup(context.Background(), &b); err != nil {
		s.t.Fatalf("backup: %v", err)
	}
	return &b
}

// checkCopy checks that a copy contains the records of the model and is a fully functional store.
func (s *subject) checkCopy(open Open) {
	s.t.Helper()
	c := &subject{t: s.t, open: open, model: maps.Clone(s.model)}
	c.reopen()
	c.check()
	c.commit(c.put("only in the copy", 7, "x"))
	c.reopen()
	c.check()
	if err := c.Close(); err != nil {
		s.t.Errorf("close: %v", err)
	}
}

func backupEmpty(_ *testing.T, s *subject, unpack func(io.Reader) Open) {
	s.checkCopy(unpack(s.backup()))
}

func backupOfCopy(_ *testing.T, s *subject, unpack func(io.Reader) Open) {
	for i := range 100 {
		s.commit(s.put(fmt.Sprint(i), int64(i), "x"))
	}
	c := &subject{t: s.t, open: unpack(s.backup()), model: maps.Clone(s.model)}
	c.reopen()
	c.commit(c.del("7"), c.put("8", math.MaxInt64, "parked"))
	c.checkCopy(unpack(c.backup()))
	if err := c.Close(); err != nil {
		s.t.Errorf("close: %v", err)
	}
}

// The copy contains the records as of one of the commits. The earliest possible is the last commit that had returned
// before the backup began. The latest possible is the last commit that had begun before the backup ended.
func backupBetweenCommits(t *testing.T, s *subject, unpack func(io.Reader) Open) {
	const commits, backups = 3000, 5
	rnd := rand.New(rand.NewPCG(3, 3))
	states := []map[string]engine.Record{maps.Clone(s.model)} // expected records after each commit
	var changes [][]engine.Change
	for n := range commits {
		all := []engine.Change{s.put("number", int64(n), fmt.Sprint(n))}
		for _, key := range rnd.Perm(50)[:1+rnd.IntN(5)] {
			key := fmt.Sprint("k", key)
			if rnd.IntN(3) == 0 && s.due(key) != engine.None {
				all = append(all, s.del(key))
			} else {
				all = append(all, s.put(key, rnd.Int64N(1000), fmt.Sprintf("%d %0512d", n, n)))
			}
		}
		changes, states = append(changes, all), append(states, maps.Clone(s.model))
	}
	var begun, returned atomic.Int64
	committed := make(chan error, 1)
	go func() {
		for _, c := range changes {
			begun.Add(1)
			if err := s.Commit(c); err != nil {
				committed <- err
				return
			}
			returned.Add(1)
		}
		committed <- nil
	}()
	for range backups {
		from := returned.Load()
		copy := s.backup()
		to := begun.Load()
		store, err := unpack(copy)()
		if err != nil {
			t.Fatalf("open the copy: %v", err)
		}
		is := int64(0)
		if r, ok, err := store.Get("number"); err != nil {
			t.Fatal(err)
		} else if ok {
			is = r.Due + 1
		}
		if is < from || is > to {
			t.Errorf("the copy is of the time after commit %d, and the backup was made from %d to %d", is, from, to)
		}
		c := &subject{t: t, Store: store, model: states[is]}
		c.check()
		if err := store.Close(); err != nil {
			t.Errorf("close the copy: %v", err)
		}
	}
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
}

// A truncated copy does not open, wherever it was cut off, unless it still contains all records.
func backupCutOff(t *testing.T, s *subject, unpack func(io.Reader) Open) {
	for i := range 20 {
		s.commit(s.put(fmt.Sprint(i), int64(i), "data"))
	}
	whole := s.backup().Bytes()
	rnd := rand.New(rand.NewPCG(4, 4))
	for range 40 {
		part := whole[:rnd.IntN(len(whole))]
		store, err := unpack(bytes.NewReader(part))()
		if err != nil {
			continue
		}
		c := &subject{t: t, Store: store, model: s.model}
		c.check()
		if t.Failed() {
			t.Fatalf("%d of %d bytes are a store", len(part), len(whole))
		}
		if err := store.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func backupDone(t *testing.T, s *subject, _ func(io.Reader) Open) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var b bytes.Buffer
	if err := s.Store.(engine.Backuper).Backup(ctx, &b); !errors.Is(err, context.Canceled) || b.Len() > 0 {
		t.Errorf("it wrote %d bytes, and returned %v", b.Len(), err)
	}
}

var errFull = errors.New("storetest: there is no room")

// A small is a writer that accepts a limited number of bytes.
type small struct{ room int }

func (w *small) Write(b []byte) (int, error) {
	if len(b) > w.room {
		return 0, errFull
	}
	w.room -= len(b)
	return len(b), nil
}

func backupWriterFails(t *testing.T, s *subject, unpack func(io.Reader) Open) {
	s.commit(s.put("a", 1, "x"))
	for _, room := range []int{0, 512, 2048} {
		err := s.Store.(engine.Backuper).Backup(context.Background(), &small{room})
		if !errors.Is(err, errFull) {
			t.Errorf("with room for %d bytes it returns %v", room, err)
		}
	}
	s.checkCopy(unpack(s.backup())) // the next copy is complete
}
