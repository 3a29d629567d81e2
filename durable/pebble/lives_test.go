// SPDX-License-Identifier: MIT

package pebble_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// unlocked is a file system whose locks dead processes do not hold.
type unlocked struct{ vfs.FS }

func (unlocked) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// A mortal is an injector that blocks every write from the n-th on, forever, like a killed process.
type mortal struct {
	left atomic.Int64
	dead chan struct{}
}

func (m *mortal) String() string { return "mortal" }

func (m *mortal) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
		switch n := m.left.Add(-1); {
		case n == 0:
			close(m.dead)
			select {}
		case n < 0:
			select {}
		}
	}
	return nil
}

// live opens the store, makes commits with distinct keys, and dies at the n-th write. It returns the acknowledged keys.
func live(mem vfs.FS, n int64, name string, commits int, walk bool) (acked []string, err error) {
	m := &mortal{dead: make(chan struct{})}
	m.left.Store(n)
	acks := make(chan string, commits)
	ended := make(chan error, 1)
	go func() {
		s, err := openOn(unlocked{errorfs.Wrap(mem, m)})
		for i := 0; err == nil && i < commits; i++ {
			if i == commits/2 && walk {
				for _, err := range s.Keys() {
					if err != nil {
						ended <- err
						return
					}
				}
			}
			key := name + strconv.Itoa(i)
			c := change{Key: key, From: engine.None, Due: 5, Data: make([]byte, 100+i*997%4000)}
			if err = s.Commit([]change{c}); err == nil {
				acks <- key
			}
		}
		ended <- err
	}()
	select {
	case err = <-ended:
	case <-m.dead:
	}
	m.left.Store(0) // nothing is written after this
	for len(acks) > 0 {
		acked = append(acked, <-acks)
	}
	return acked, err
}

// A process is killed and started again, several times, and then the power goes. Nothing acknowledged is lost, and the
// store is not reported as damaged.
func TestPebble_killsAndThenAPowerCut_areNoDamage(t *testing.T) {
	trials := 40
	if testing.Short() {
		trials = 10
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	for trial := range trials {
		mem := vfs.NewCrashableMem()
		var acked []string
		for life := range 1 + rnd.IntN(3) {
			n := int64(1 + rnd.IntN(120))
			if life == 0 {
				n = int64(40 + rnd.IntN(800))
			}
			keys, err := live(mem, n, fmt.Sprint(trial, "-", life, "-"), rnd.IntN(150), rnd.IntN(2) == 0)
			if err != nil {
				t.Fatalf("trial %d, life %d: %v", trial, life, err)
			}
			acked = append(acked, keys...)
		}
		percent := 50 * rnd.IntN(2)
		left := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rnd})
		s, err := openOn(unlocked{left})
		if err != nil {
			t.Fatalf("trial %d, %d %% of what was not synced is left: %v", trial, percent, err)
		}
		all, err := readAll(s)
		if err != nil {
			t.Fatalf("trial %d: %v", trial, err)
		}
		for _, key := range acked {
			if _, ok := all[key]; !ok {
				t.Errorf("trial %d: %s is lost", trial, key)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A first open that fails at any of its writes leaves nothing that the next open mistakes for damage.
func TestOpen_firstOpenThatFails_leavesNoDamage(t *testing.T) {
	for n := int64(1); n < 90; n++ {
		mem := vfs.NewMem()
		var count atomic.Int64
		s, err := openOn(unlocked{errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && count.Add(1) == n {
				return syscall.ENOSPC
			}
			return nil
		}))})
		if err == nil {
			_ = s.Close() // its error is the injected one, if it was injected
		}
		if s, err = openOn(unlocked{mem}); err != nil {
			t.Errorf("after the %d-th write has failed: %v", n, err)
			continue
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Files of other programs are not part of the store, whatever their extension.
func TestOpen_filesOfOthers_areNotTheStores(t *testing.T) {
	others := []string{"app.log", "my notes.log", "000002 (copy).log", "a.sst", "OPTIONS-old", "MANIFEST-x"}
	dir := filepath.Join(t.TempDir(), "store")
	s, err := openIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	h := newHistory(1)
	if err := errors.Join(h.commit(s, 5), s.Close()); err != nil {
		t.Fatal(err)
	}
	for _, there := range []bool{true, false, true} {
		for _, name := range others {
			if path := filepath.Join(dir, name); there {
				err = os.WriteFile(path, []byte("not yours"), 0o600)
			} else {
				err = os.Remove(path)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if s, err = openIn(dir); err != nil {
			t.Fatal(err)
		}
		if all, err := readAll(s); err != nil || !h.is(all, 5) {
			t.Errorf("there are %d records, %v", len(all), err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Processes that end before the tasks have been verified do not fill up the directory.
func TestOpen_againAndAgain_doesNotFillTheDirectory(t *testing.T) {
	mem := vfs.NewMem()
	h := newHistory(1)
	most := 0
	for range 40 {
		s, err := openUnverified(mem)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(h.commit(s, 10), s.Close()); err != nil {
			t.Fatal(err)
		}
		names, err := mem.List("store")
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(names))
	}
	if most > 150 {
		t.Errorf("there are up to %d files", most)
	}
	wantOpened(t, mem, h, 400)
}
