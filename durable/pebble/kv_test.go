// SPDX-License-Identifier: MIT

package pebble_test

import (
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/kvtest"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/pebble"
)

// openKV opens the store in the folder "store" of the file system, which the test closes.
func openKV(t testing.TB, files vfs.FS) pebble.KV {
	t.Helper()
	k, err := pebble.OpenOn("store", files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

func TestKV(t *testing.T) {
	kvtest.Test(t, func(t *testing.T) engine.KV { return openKV(t, memOf(t, nil)) })
}

func TestKV_underAnEngine(t *testing.T) {
	enginetest.Test(t, func(t *testing.T) enginetest.Subject {
		e, err := kv.New(t.Context(), openKV(t, memOf(t, nil)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // before the store is closed under its goroutines
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
		on, err := pebble.OpenOn("store", files)
		if err != nil || lives > 100 {
			t.Fatalf("after %d lives: %v", lives, err)
		}
		first = on.VerifyFirst()
		if err := on.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := openOn(files)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // at once: the files are gone already
		t.Error(err)
	}
	if on := openKV(t, files); on.VerifyFirst() {
		t.Error("the files are still there")
	}
}
