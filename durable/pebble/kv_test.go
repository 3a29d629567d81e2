// SPDX-License-Identifier: MIT

package pebble_test

import (
	"errors"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/kvtest"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/pebble"
)

// openKV opens the kv in the folder "store" of the file system, which the test closes.
func openKV(t testing.TB, files vfs.FS) engine.KV {
	t.Helper()
	k, err := pebble.OpenKVOn("store", files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.(io.Closer).Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

func TestKV(t *testing.T) {
	kvtest.Test(t, func(t *testing.T) engine.KV { return openKV(t, memOf(t, nil)) })
}

// A store is no kv, and a kv is no store. Neither changes the other.
func TestKV_otherFormat_isRefused(t *testing.T) {
	for name, opens := range map[string][2]func(vfs.FS) (io.Closer, error){
		"a store": {openStore, openAsKV}, "a kv": {openAsKV, openStore},
	} {
		files := memOf(t, nil)
		is, err := opens[0](files)
		if err == nil {
			err = is.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := opens[1](files); !errors.Is(err, engine.ErrVersion) {
			t.Errorf("%s is opened as the other: %v", name, err)
		}
		if is, err = opens[0](files); err != nil {
			t.Fatalf("%s after that: %v", name, err)
		}
		if err := is.Close(); err != nil {
			t.Error(err)
		}
	}
}

func openStore(files vfs.FS) (io.Closer, error) { return pebble.OpenOn("store", files) }

func openAsKV(files vfs.FS) (io.Closer, error) {
	k, err := pebble.OpenKVOn("store", files)
	if err != nil {
		return nil, err
	}
	return k.(io.Closer), nil
}

func TestKV_underAnEngine(t *testing.T) {
	enginetest.Test(t, func(t *testing.T) enginetest.Subject {
		e, err := kv.New(t.Context(), openKV(t, memOf(t, nil)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // before the kv is closed under its goroutines
			if err := e.(io.Closer).Close(); err != nil {
				t.Error(err)
			}
		})
		return enginetest.Subject{Engine: e}
	})
}

// Processes that end before the tasks have been verified leave files, which are then verified first.
func TestKV_ofManyShortLives_isVerifiedFirst(t *testing.T) {
	files := memOf(t, nil)
	first := false
	for lives := 0; !first; lives++ {
		on, err := pebble.OpenKVOn("store", files)
		if err != nil || lives > 100 {
			t.Fatalf("after %d lives: %v", lives, err)
		}
		first = on.(engine.Verifier).VerifyFirst()
		if err := on.(io.Closer).Close(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := openOnEngine("store", files)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // at once: the files are gone already
		t.Error(err)
	}
	if on := openKV(t, files); on.(engine.Verifier).VerifyFirst() {
		t.Error("the files are still there")
	}
}
